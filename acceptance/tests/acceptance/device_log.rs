//! Tests what a dry run records of a program without PyTorch, and what `oomph explain` makes of it.

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::again::tried;
use crate::explanations::explained;
use crate::run::{Finished, Run, TORCH_2_15};

const MIB: u64 = 1 << 20;

/// All trials.
pub fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn() -> Result<()>| {
        tried(name, move || test().map_err(|error| Failed::from(format!("{error:#}"))))
    };
    vec![trial("device-log::is-explained", is_explained), trial("device-log::ends-with-a-refusal", ends_with_a_refusal)]
}

/// Runs `driver_calls.py` and explains its log.
fn run(arguments: &[&str]) -> Result<(Finished, Value)> {
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("log");
    let log = log.to_str().context("the temporary folder has no plain name")?;
    // Any environment has a Python.
    let run = Run::json("rtx-3060", TORCH_2_15)?.args(["--until-exit", "--no-probe", "--snapshot", log]);
    let finished = run.program(&[&["driver_calls.py"], arguments].concat()).finish()?;
    let report = explained(&[log]).with_context(|| finished.story())?;
    Ok((finished, report["devices"][0].clone()))
}

/// The peak, the largest blocks and the number of allocations are what the program counts.
fn is_explained() -> Result<()> {
    let (finished, device) = run(&[])?;
    let peak = finished.printed_number("peak")?;
    ensure!(device["peak"]["requested_bytes"] == peak, "the peak is {}, not {peak}", device["peak"]);
    let churn = &device["churn"];
    ensure!(churn["allocations"] == finished.printed_number("allocations")?, "{churn}\n{}", finished.story());
    ensure!(churn["bytes"] == finished.printed_number("asked")?, "{churn}\n{}", finished.story());
    let largest = &device["by_size"][0];
    ensure!(largest["bytes"] == 3 * 64 * MIB && largest["blocks"] == 3, "the largest are {largest}");
    ensure!(device["what_if"] == Value::Array(Vec::new()), "PyTorch's settings are tried: {}", device["what_if"]);
    Ok(())
}

/// A request that the card cannot hold is the end of the log, with what was free.
fn ends_with_a_refusal() -> Result<()> {
    let (finished, device) = run(&["--too-much", "16384"])?;
    let oom = &device["oom"];
    ensure!(oom["requested_bytes"] == 16384 * MIB, "{oom}\n{}", finished.story());
    let free = oom["free_bytes"].as_u64().context("nothing is said of what was free")?;
    ensure!(free > 0 && free < 16384 * MIB, "{free} bytes are said to have been free");
    ensure!(device["peak"]["requested_bytes"] == finished.printed_number("peak")?, "{}", device["peak"]);
    Ok(())
}
