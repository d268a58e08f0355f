//! Tests `oomph tune`: the boundary that it finds is the one that dry runs find, and a run that shares its imports with
//! others has the peak of one that does not.

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::again::tried;
use crate::run::{Finished, Run, TORCH_2_15, Turn};

/// All trials.
pub fn trials() -> Vec<Trial> {
    let trial = |name: String, test: Box<dyn Fn() -> Result<()> + Send>| {
        tried(name, move || test().map_err(|error| Failed::from(format!("{error:#}"))))
    };
    let mut trials = vec![
        trial("tune::the_boundary_is_exact".into(), Box::new(the_boundary_is_exact)),
        trial("tune::a_name_without_a_place".into(), Box::new(a_name_without_a_place)),
        trial("tune::nothing_fits".into(), Box::new(nothing_fits)),
    ];
    for (program, arguments) in EQUAL {
        trials.push(trial(format!("server::{program}"), Box::new(move || same_peak(program, arguments))));
    }
    trials
}

/// Programs that are run both ways, with the argument that is varied over one value.
const EQUAL: [(&str, &[&str]); 4] = [
    ("mlp.py", &[]),
    ("lstm.py", &[]),
    ("trainer_gpt2.py", &["--layers", "2", "--max-steps", "4"]),
    ("dataloader_workers.py", &[]),
];

fn tune(gpu: &str, vary: &str) -> Result<Run> {
    Ok(Run::command("tune")?.args(["--gpu", gpu, "--format", "json", "--vary", vary]).with(TORCH_2_15))
}

/// Both sides of the boundary are what dry runs of them say, in at most 14 runs.
fn the_boundary_is_exact() -> Result<()> {
    const PROGRAM: &str = "examples/finetune_gpt2.py";
    let small = ["--layers", "4", "--width", "256", "--heads", "4", "--blocks", "20000", "--batch-size"];
    let words: Vec<&str> = [PROGRAM].into_iter().chain(small).collect();
    let tuned = tune("rtx-3060", "batch=1..4096")?
        .turn(Turn::Alone)
        .program(&[words.as_slice(), &["{batch}"]].concat())
        .finish()?;
    tuned.ensure(tuned.status.code() == Some(0), "a value fits")?;
    let report = tuned.report()?;
    ensure!(report["schema"] == "oomph.tune/1" && report["verdict"] == "found", "{}", tuned.story());
    ensure!(report["forked"] == true, "the runs did not share their imports: {}", tuned.story());
    let number =
        |field: &str| report[field]["batch"].as_u64().with_context(|| format!("no {field}: {}", tuned.story()));
    let (best, fails, recommended) = (number("best")?, number("fails_at")?, number("recommended")?);
    let runs = report["tried"].as_array().map_or(0, Vec::len);
    ensure!(fails == best + 1 && recommended <= best, "{}", tuned.story());
    ensure!(runs <= 14, "{runs} runs: {}", tuned.story());
    for (batch, verdict) in [(best, "fits"), (fails, "oom")] {
        let dry = Run::json("rtx-3060", TORCH_2_15)?.args(["--no-owners", "--no-probe"]);
        let dry = dry.program(&[words.as_slice(), &[batch.to_string().as_str()]].concat()).finish()?;
        let dry_report = dry.report()?;
        ensure!(dry_report["verdict"] == verdict, "at {batch}: {}", dry.story());
        if verdict == "fits" {
            let peak = &dry_report["devices"][0]["peak"]["process_bytes"];
            ensure!(*peak == report["peak_bytes"], "{peak} and {} at {batch}", report["peak_bytes"]);
        }
    }
    Ok(())
}

fn a_name_without_a_place() -> Result<()> {
    let finished = tune("rtx-3060", "batch=1..8")?.program(&["mlp.py"]).finish()?;
    finished.ensure(finished.status.code() == Some(2), "wrong usage")?;
    finished.ensure(String::from_utf8_lossy(&finished.stderr).contains("{batch}"), "it names what is missing")
}

fn nothing_fits() -> Result<()> {
    let run = tune("rtx-3060", "batch=64..128")?.args(["--vram", "1GiB"]);
    let finished = run.program(&["examples/finetune_gpt2.py", "--batch-size", "{batch}"]).finish()?;
    finished.ensure(finished.status.code() == Some(1), "nothing fits")?;
    let report = finished.report()?;
    finished.ensure(report["verdict"] == "none-fits" && report["best"].is_null(), "nothing fits")
}

/// A run in the fork server has the peak of a process of its own, to the byte.
fn same_peak(program: &str, arguments: &[&str]) -> Result<()> {
    let words: Vec<&str> = [program].into_iter().chain(arguments.iter().copied()).collect();
    // The variable is read by nobody; each of its values is the same run.
    let forked = tune("rtx-3060", "again=1,2")?.args(["--env", "AGAIN={again}"]).program(&words).finish()?;
    let report = forked.report()?;
    ensure!(report["forked"] == true, "the runs did not share their imports: {}", forked.story());
    let dry = Run::json("rtx-3060", TORCH_2_15)?.args(["--no-owners"]).program(&words).finish()?;
    let peak = dry.report()?["devices"][0]["peak"]["process_bytes"].clone();
    let peaks = peaks(&report, &forked)?;
    ensure!(peaks.len() == 2 && peaks.iter().all(|other| *other == peak), "{peaks:?} and {peak}: {}", forked.story());
    Ok(())
}

fn peaks(report: &Value, finished: &Finished) -> Result<Vec<Value>> {
    let tried = report["tried"].as_array().with_context(|| finished.story())?;
    Ok(tried.iter().map(|run| run["peak_bytes"].clone()).collect())
}
