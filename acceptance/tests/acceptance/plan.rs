//! Tests `oomph plan --verify`: the program of a plan runs as it was written, and takes what was planned.

use std::fs;

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};

use crate::again::tried;
use crate::run::{Run, TORCH_2_15};

/// A Llama of two layers: as a folder it has a configuration and no weights.
const CONFIG: &str = r#"{"model_type":"llama","architectures":["LlamaForCausalLM"],"num_hidden_layers":2,"hidden_size":1024,
    "intermediate_size":2816,"num_attention_heads":16,"num_key_value_heads":4,"vocab_size":32000,"dtype":"bfloat16"}"#;

/// All trials.
pub fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn() -> Result<()>| {
        tried(name, move || test().map_err(|error| Failed::from(format!("{error:#}"))))
    };
    vec![
        trial("plan::full_training_is_verified", full_training_is_verified),
        trial("plan::a_folder_with_adapters_is_verified", a_folder_with_adapters_is_verified),
    ]
}

/// The plan of a built-in model against a dry run of its own program, which is written too.
fn full_training_is_verified() -> Result<()> {
    let words = ["gpt2", "--task", "full", "--batch", "4", "--seq", "256", "--gpu", "rtx-3060"];
    let mut run = Run::command("plan")?.args(words).args(["--verify", "--script", "plan.py", "--format", "json"]);
    run = run.with(TORCH_2_15);
    let finished = run.finish()?;
    finished.ensure(finished.status.code() == Some(0), "it fits")?;
    let verify = finished.report()?["verify"].clone();
    let error = verify["difference_percent"].as_f64().with_context(|| finished.story())?;
    ensure!(error.abs() < 6.0, "{error} %: {}", finished.story());
    finished.ensure(verify["fits"] == true && verify["within"] == true, "the dry run agrees")?;
    ensure!(verify["frameworks"]["torch"].as_str().is_some_and(|version| version.starts_with("2.15")), "{verify}");
    let program = fs::read_to_string(run.folder().join("plan.py"))?;
    ensure!(
        program.contains("AutoModelForCausalLM.from_pretrained") && program.contains("torch.autocast"),
        "{program}"
    );
    Ok(())
}

/// The same of a folder, with LoRA over 4-bit weights, in text.
fn a_folder_with_adapters_is_verified() -> Result<()> {
    let mut run = Run::command("plan")?;
    let folder = run.folder().join("small-llama");
    fs::create_dir(&folder)?;
    fs::write(folder.join("config.json"), CONFIG)?;
    run = run.args(["small-llama", "--task", "qlora", "--batch", "2", "--seq", "512", "--gpu", "rtx-3060", "--verify"]);
    let finished = run.with(TORCH_2_15).finish()?;
    finished.ensure(finished.status.code() == Some(0), "it fits")?;
    let text = String::from_utf8_lossy(&finished.stdout).replace("\n  ", " ");
    finished.ensure(text.contains("verified:") && text.contains("in a dry run, which fits"), "both figures are shown")
}
