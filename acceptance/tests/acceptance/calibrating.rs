//! `oomph calibrate`, with a virtual card in place of the real one: a card with the catalogue's figures has nothing to
//! correct; one whose context is 100 MiB larger is corrected by that, dry runs use it and say so, and the next calibration
//! takes it back.

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::again::tried;
use crate::binary;
use crate::run::{Run, TORCH_2_15, python_by_hand};

/// A card that no other test runs on: what is kept of it is kept for all of this machine's dry runs.
const CARD: &str = "rtx-4500-ada";

const LARGER: u64 = 100 << 20;

/// The tests.
pub fn trials() -> Vec<Trial> {
    let test = || larger_context().map_err(|error| Failed::from(format!("{error:#}")));
    vec![tried("calibrating::what-differs-is-found-and-used".to_owned(), test)]
}

fn calibrated(options: &[&str]) -> Result<Value> {
    let run = Run::command("calibrate")?.args(["--rehearse", CARD, "--keep", "--format", "json"]).args(options);
    let finished = match python_by_hand() {
        // `python` is the one that is found first.
        Some(python) => {
            let folder = std::path::Path::new(&python).parent().context("the interpreter has no folder")?.to_owned();
            let path = std::env::var("PATH").unwrap_or_default();
            run.env("PATH", &format!("{}:{path}", folder.display())).finish()?
        }
        None => run.with(TORCH_2_15).finish()?,
    };
    finished.report().with_context(|| finished.story())
}

/// The capacity, the context and the correction that a dry run of the card reports.
fn dry_run() -> Result<Value> {
    let run = Run::dry_run()?.args(["--gpu", CARD, "--format", "json"]);
    let run = match python_by_hand() {
        Some(python) => run.args(["--", &python]),
        None => run.with(TORCH_2_15).args(["--", "python"]),
    };
    let mut run = run.args([binary::programs().join("mlp.py")]);
    let finished = run.finish()?;
    Ok(finished.report().with_context(|| finished.story())?["devices"][0].clone())
}

fn larger_context() -> Result<()> {
    let found = calibrated(&["--rehearse-context", "100MiB"])?;
    let difference = |what: &str| {
        let correction = &found["correction"];
        let number = |name: String| correction[name].as_u64();
        Some(number(format!("{what}_bytes"))? - number(format!("catalogue_{what}_bytes"))?)
    };
    ensure!(
        difference("context") == Some(LARGER) && difference("capacity") == Some(0),
        "found {}",
        found["correction"]
    );
    let readings = found["card"]["readings"].as_array().context("no readings")?;
    ensure!(readings.len() >= 10, "{} programs", readings.len());
    for (card, twin) in readings.iter().zip(found["twin"]["readings"].as_array().context("no twin")?) {
        ensure!(card["failure"].is_null(), "{card}");
        let mut twin = twin.clone();
        for outside in ["outside_bytes", "process_bytes"] {
            twin[outside] = (twin[outside].as_u64().context("the virtual NVML lists no process")? + LARGER).into();
        }
        ensure!(*card == twin, "the cards differ by more than the context: {card} and {twin}");
    }

    let corrected = dry_run()?;
    ensure!(corrected["correction"] == found["correction"], "the dry run says {}", corrected["correction"]);
    let nothing = calibrated(&[])?;
    ensure!(nothing["correction"].is_null(), "a true card is corrected: {}", nothing["correction"]);
    let usual = dry_run()?;
    ensure!(usual["correction"].is_null(), "the correction is still used: {}", usual["correction"]);
    let peak = |device: &Value, what: &str| device["peak"][what].as_u64().context("no peak");
    ensure!(peak(&corrected, "process_bytes")? == peak(&usual, "process_bytes")? + LARGER, "{corrected} and {usual}");
    ensure!(peak(&corrected, "reserved_bytes")? == peak(&usual, "reserved_bytes")?, "{corrected} and {usual}");
    Ok(())
}
