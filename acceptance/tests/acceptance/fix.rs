//! Tests what `oomph fix` finds for programs that do not fit, and that what it finds is true.

use std::fs;

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::again::tried;
use crate::binary;
use crate::run::{Finished, Run, TORCH_2_15};

/// A machine that is shared needs longer; the bound on time is measured elsewhere.
const MAX_TIME: &str = "400s";

/// All trials.
pub fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn() -> Result<()>| {
        tried(format!("fix::{name}"), move || test().map_err(|error| Failed::from(format!("{error:#}"))))
    };
    vec![
        trial("trainer", trainer),
        trial("price_of_checkpointing", price_of_checkpointing),
        trial("convnet", convnet),
        trial("leaking_losses", leaking_losses),
        trial("in_place", in_place),
        trial("evaluation_results", evaluation_results),
        trial("vae_slicing_before_offload", vae_slicing_before_offload),
        trial("arguments_in_a_file", arguments_in_a_file),
        trial("what_fits_is_left_alone", what_fits_is_left_alone),
    ]
}

/// `oomph fix` on a program, and its answer.
fn fixed(options: &[&str], program: &[&str]) -> Result<(Finished, Value)> {
    let run = Run::command("fix")?.args(["--format", "json", "--max-time", MAX_TIME]).args(options);
    let finished = run.with(TORCH_2_15).program(program).finish()?;
    let report = finished.report()?;
    ensure!(report["schema"] == "oomph.fix/1", "another document: {report:#}");
    Ok((finished, report))
}

fn fixes(report: &Value) -> Result<&Vec<Value>> {
    report["fixes"].as_array().context("no fixes in the answer")
}

fn ids(fix: &Value) -> Vec<String> {
    let names = fix["remedies"].as_array().into_iter().flatten().filter_map(Value::as_str);
    names.map(|name| name.split('/').next().unwrap_or(name).to_owned()).collect()
}

/// What is true of every answer with fixes: each fits the card, says how it is written, and was seen to take effect.
fn sound(report: &Value) -> Result<()> {
    ensure!(report["verdict"] == "fixed", "nothing was found: {report:#}");
    let limit = report["baseline"]["limit_bytes"].as_u64().context("no limit")?;
    for fix in fixes(report)? {
        let peak = fix["peak_bytes"].as_u64().context("no peak")?;
        ensure!(peak <= limit && fix["room_bytes"] == limit - peak, "the figures do not add up: {fix:#}");
        ensure!(fix["verified"] == true && fix["verdict"] == "fits", "not verified: {fix:#}");
        ensure!(fix["apply"].as_array().is_some_and(|words| !words.is_empty()), "no words: {fix:#}");
    }
    Ok(())
}

/// A GPT-2 that needs five times the card: a smaller micro-batch alone is enough, and costs no quality.
fn trainer() -> Result<()> {
    let program = ["trainer_gpt2.py", "--batch-size", "32"];
    let (finished, report) = fixed(&["--gpu", "rtx-3060", "--allow", "micro-batch", "--fixes", "1"], &program)?;
    sound(&report)?;
    let fix = &fixes(&report)?[0];
    finished.ensure(ids(fix) == ["micro-batch"], format!("another fix: {fix:#}"))?;
    // The same by hand: the Trainer's batch is what the remedy says.
    let name = fix["remedies"][0].as_str().context("no name")?;
    let divisor: u64 = name.split_once('/').context("no amount")?.1.parse()?;
    // The script's own option has the batch, and its code the accumulation.
    let command = fix["command"].as_str().context("no command")?;
    finished.ensure(command.contains(&format!("--batch-size {}", 32_u64.div_ceil(divisor))), command)?;
    let patch = fix["patch"].as_str().context("no patch")?;
    finished.ensure(patch.contains(&format!("gradient_accumulation_steps={divisor}")), patch)?;
    let batch = 32_u64.div_ceil(divisor).to_string();
    let by_hand =
        Run::json("rtx-3060", TORCH_2_15)?.args(["--no-owners"]).program(&["trainer_gpt2.py", "--batch-size", &batch]);
    let by_hand = { by_hand }.finish()?.report()?;
    ensure!(by_hand["verdict"] == "fits", "the batch by hand does not fit: {by_hand:#}");
    Ok(())
}

/// A transformer that computes its forward passes twice takes about a third longer.
fn price_of_checkpointing() -> Result<()> {
    let program = ["trainer_gpt2.py", "--batch-size", "4"];
    let options = ["--gpu", "rtx-3060", "--target", "6GiB", "--allow", "gradient-checkpointing", "--fixes", "1"];
    let (finished, report) = fixed(&options, &program)?;
    sound(&report)?;
    let price = &fixes(&report)?[0]["slowdown"];
    let (low, high) = (price["low"].as_f64().context("no price")?, price["high"].as_f64().context("no price")?);
    finished.ensure(1.15 <= low && low <= high && high <= 1.45, format!("another price: {price}"))
}

/// A plain loop with convolutions: what is offered first changes no result.
fn convnet() -> Result<()> {
    let (finished, report) = fixed(&["--vram", "4GiB", "--fixes", "1"], &["convnet.py", "--batch-size", "256"])?;
    sound(&report)?;
    let first = &fixes(&report)?[0];
    finished.ensure(first["room_bytes"].as_i64().is_some_and(|room| room >= 0), format!("it does not fit: {first:#}"))
}

/// A loop that keeps its losses: the line is named, and the fix is to keep numbers.
fn leaking_losses() -> Result<()> {
    let program = ["leaking.py", "--steps", "40"];
    let (finished, report) = fixed(&["--vram", "1150MiB", "--until-exit", "--fixes", "2"], &program)?;
    sound(&report)?;
    let fix = &fixes(&report)?[0];
    finished.ensure(ids(fix) == ["detach-losses"], format!("another fix: {fix:#}"))?;
    let notes = fix["notes"].to_string();
    finished.ensure(notes.contains("leaking.py"), format!("the line is not named: {notes}"))
}

/// The user's file is changed where that was asked for: a copy of the old text is kept in the same folder, and the
/// changed program fits without a remedy.
fn in_place() -> Result<()> {
    let folder = tempfile::tempdir()?;
    for name in ["leaking.py", "common.py"] {
        fs::copy(binary::programs().join(name), folder.path().join(name))?;
    }
    let script = folder.path().join("leaking.py");
    let before = fs::read_to_string(&script)?;
    let path = script.to_string_lossy().into_owned();
    let asked = |command: &str, options: &[&str]| {
        let run = Run::command(command)?.args(["--vram", "1150MiB", "--until-exit"]).args(options).with(TORCH_2_15);
        { run }.args(["--", "python", &path, "--steps", "40"]).finish()
    };
    let options = ["--max-time", MAX_TIME, "--allow", "detach-losses", "--in-place", "1"];
    let refused = asked("fix", &options)?;
    // Nobody is there who could be asked, which is said before the search.
    refused.ensure(refused.status.code() == Some(2) && refused.stdout.is_empty(), "it did not ask")?;
    ensure!(fs::read_to_string(&script)? == before, "the file was changed");
    let done = asked("fix", &[options.as_slice(), &["--yes"]].concat())?;
    let after = fs::read_to_string(&script)?;
    done.ensure(after == before.replace("losses.append(loss)", "losses.append(loss.item())"), after)?;
    ensure!(fs::read_to_string(folder.path().join("leaking.py.orig"))? == before, "the old text was not kept");
    let alone = asked("dry-run", &["--format", "json"])?;
    alone.ensure(alone.report()?["verdict"] == "fits", "the changed program does not fit on its own")
}

/// An evaluation that gathers its logits on the card, by its own loop and by the Trainer: they are moved off it, and the
/// loop's line is named.
fn evaluation_results() -> Result<()> {
    for by in [&[][..], &["--trainer"]] {
        let program =
            [&["acceptance/programs/training/evaluate.py", "--samples", "32", "--length", "128"][..], by].concat();
        let (finished, report) = fixed(&["--vram", "1700MiB", "--until-exit", "--fixes", "1"], &program)?;
        sound(&report)?;
        let fix = &fixes(&report)?[0];
        finished.ensure(ids(fix) == ["eval-accumulation"], format!("another fix: {fix:#}"))?;
        let notes = fix["notes"].to_string();
        finished
            .ensure(!by.is_empty() || notes.contains("evaluate.py:19"), format!("the line is not named: {notes}"))?;
    }
    Ok(())
}

/// Several images decoded at a time: slicing, which is free, comes before moving models about. The card is so small
/// because PyTorch continues with less workspace where cuDNN's first request does not fit: with 50 MiB more the program
/// fits unchanged.
fn vae_slicing_before_offload() -> Result<()> {
    let (finished, report) = fixed(&["--vram", "1000MiB", "--fixes", "2"], &["acceptance/programs/fixes/images.py"])?;
    sound(&report)?;
    let first = ids(&fixes(&report)?[0]);
    finished.ensure(first.contains(&"vae-slicing".to_owned()), format!("{first:?} comes first"))?;
    finished.ensure(!first.iter().any(|id| id.contains("offload")), format!("{first:?} comes first"))
}

/// A program that fits is reported as such, and nothing is tried.
fn what_fits_is_left_alone() -> Result<()> {
    let (finished, report) = fixed(&["--gpu", "rtx-3060"], &["convnet.py"])?;
    finished.ensure(report["verdict"] == "fits-already" && report["tried"] == 0, format!("{report:#}"))
}

/// A Trainer whose arguments are in a file gets another file, which is the fix: run on its own, it has the same peak.
/// The user's own file stays unchanged.
fn arguments_in_a_file() -> Result<()> {
    const ARGUMENTS: &str = "{\n  \"output_dir\": \"out\",\n  \"per_device_train_batch_size\": 32,\n  \"max_steps\": 3,\n  \
                             \"report_to\": \"none\",\n  \"save_strategy\": \"no\"\n}\n";
    let folder = tempfile::tempdir()?;
    let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (mine, fixed_file) = (file("args.json"), file("fixed.json"));
    fs::write(&mine, ARGUMENTS)?;
    let program = "acceptance/programs/fixes/arguments_file.py";
    let card = ["--gpu", "rtx-3060", "--vram", "4GiB"];
    let options = [card.as_slice(), &["--allow", "micro-batch", "--fixes", "1", "--write", "1", &fixed_file]].concat();
    let (finished, report) = fixed(&options, &[program, &mine])?;
    sound(&report)?;
    let fix = &fixes(&report)?[0];
    ensure!(fix["apply"][0]["kind"] == "config", "not said as a file: {fix:#}");
    ensure!(
        String::from_utf8_lossy(&finished.stderr).contains(&fixed_file),
        "the output does not say how to run it: {}",
        finished.story()
    );
    ensure!(fs::read_to_string(&mine)? == ARGUMENTS, "the user's file was changed");
    let wanted = "{\n  \"output_dir\": \"out\",\n  \"per_device_train_batch_size\": 8,\n  \"max_steps\": 3,\n  \
                  \"report_to\": \"none\",\n  \"save_strategy\": \"no\",\n  \"gradient_accumulation_steps\": 4\n}\n";
    let written = fs::read_to_string(&fixed_file)?;
    ensure!(written == wanted, "another file: {written}");
    let run = Run::dry_run()?.args(["--format", "json"]).args(card).with(TORCH_2_15);
    let report = run.program(&[program, &fixed_file]).finish()?.report()?;
    let peak = &report["devices"][0]["peak"]["process_bytes"];
    ensure!(peak == &fix["peak_bytes"], "{peak} by hand, {} by the fix", fix["peak_bytes"]);
    Ok(())
}
