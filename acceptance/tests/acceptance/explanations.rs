//! Tests what `oomph explain` says of recordings and messages that real PyTorch has just made.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::again::tried;
use crate::binary;
use crate::run::{Run, TORCH_2_6, TORCH_2_15, Torch};

/// Cases of `causes.py`, each of which prints the cause that has to come first. (`ring_too_short` can rightly be
/// reported as `does-not-fit`, where the snapshot still knows the stacks of what the ring has dropped.)
const CAUSES: [&str; 14] = [
    "does_not_fit",
    "single_allocation",
    "fragments",
    "leak_losses",
    "leak_outputs",
    "kept_results",
    "kept_by_exception",
    "earlier_model",
    "longest_batch",
    "lazy_optimizer",
    "other_stream",
    "other_pool",
    "memory_limit",
    "recorded_too_late",
];

/// All trials.
pub fn trials() -> Vec<Trial> {
    let trial = |name: String, test: Box<dyn Fn() -> Result<()> + Send>| {
        tried(name, move || test().map_err(|error| Failed::from(format!("{error:#}"))))
    };
    let mut trials: Vec<Trial> =
        CAUSES.iter().map(|case| trial(format!("explain::cause::{case}"), Box::new(|| cause(case)))).collect();
    for torch in [TORCH_2_15, TORCH_2_6] {
        trials.push(trial(format!("explain::messages::{}", torch.name), Box::new(move || messages(torch))));
    }
    trials
}

/// A program that dies of one cause gets that cause reported, and the bytes of causes and owners add up.
fn cause(case: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let snapshot = folder.path().join("snapshot.pickle");
    let snapshot = snapshot.to_str().context("the temporary folder has no plain name")?;
    let run = Run::dry_run()?.args(["--gpu", "rtx-3060", "--until-exit", "--no-owners", "--allow-writes"]);
    let finished = run.with(TORCH_2_15).program(&["causes.py", case, snapshot]).finish()?;
    let output = String::from_utf8_lossy(&finished.stdout).into_owned();
    let expected = output.lines().find_map(|line| line.strip_prefix("expected=")).context("no line `expected=`")?;
    let report = explained(&[snapshot])?;
    let device = &report["devices"][0];
    let causes = device["causes"].as_array().context("no causes")?;
    let first = causes.iter().find(|cause| cause["background"] == false).map(|cause| &cause["cause"]);
    ensure!(first.and_then(Value::as_str) == Some(expected), "{expected} is not the first cause: {causes:#?}");
    for rows in ["causes", "owners"] {
        let sum: u64 = device[rows].as_array().context("no rows")?.iter().filter_map(|row| row["bytes"].as_u64()).sum();
        ensure!(
            device["card"]["capacity_bytes"] == sum,
            "the {rows} add up to {sum}, and the card is {}",
            device["card"]
        );
    }
    Ok(())
}

/// Each form of PyTorch's message is read, with the figures of the allocator's own statistics.
fn messages(torch: Torch) -> Result<()> {
    let run = Run::dry_run()?.args(["--gpu", "rtx-4090", "--until-exit", "--no-owners"]);
    let finished = run.with(torch).program(&["oom_shapes.py"]).finish()?;
    let output = String::from_utf8_lossy(&finished.stdout).into_owned();
    let (mut read, mut pooled) = (0, 0);
    for shape in output.lines().filter_map(|line| line.strip_prefix("shape ")) {
        let shape: Value = serde_json::from_str(shape)?;
        let Some(message) = shape["message"].as_str() else { continue };
        let folder = tempfile::tempdir()?;
        let log = folder.path().join("log");
        std::fs::write(&log, format!("Traceback (most recent call last):\ntorch.OutOfMemoryError: {message}\n"))?;
        let report = explained(&[log.to_str().context("the temporary folder has no plain name")?])?;
        let failure = &report["failures"][0];
        if shape["name"] == "more-than-1eb" {
            // A wrong size in the program, which no card could hold; this form has no figures.
            ensure!(failure["is_gpu_oom"] == false, "{shape}: {failure}");
            continue;
        }
        ensure!(failure["is_gpu_oom"] == true && failure["framework"] == "pytorch", "{shape}: {failure}");
        let (facts, statistics) = (&failure["facts"], &shape["statistics"]);
        for figure in ["capacity_bytes", "free_bytes"] {
            ensure!(near(&facts[figure], &statistics[figure]), "{figure} of {shape} is {}", facts[figure]);
        }
        let reserved = &failure["derived"]["reserved_bytes"];
        ensure!(near(reserved, &statistics["reserved_bytes"]), "reserved of {shape} is {reserved}");
        // PyTorch counts what is free in private pools as allocated.
        let allocated = statistics["allocated_bytes"].as_u64().unwrap_or(0);
        let pools = statistics["private_pools_bytes"].as_u64().unwrap_or(0);
        let either = [allocated, allocated + pools];
        let printed = &facts["allocated_bytes"];
        ensure!(either.iter().any(|bytes| near(printed, &(*bytes).into())), "allocated of {shape} is {printed}");
        if message.contains("private pools") {
            let printed = &facts["private_pools_bytes"];
            ensure!(near(printed, &pools.into()), "what lies free in private pools of {shape} is {printed}");
            pooled += 1;
        }
        if let Some(pid) = shape["other_pid"].as_u64() {
            let others = facts["other_processes"].as_array().context("no other processes")?;
            ensure!(others.iter().any(|other| other["pid"] == pid), "process {pid} of {shape} is not named: {facts}");
        }
        read += 1;
    }
    ensure!(pooled >= 1, "no message named private pools:\n{output}");
    ensure!(read >= 6, "only {read} forms of the message were read:\n{output}");
    Ok(())
}

/// The document of `oomph explain --format json`.
pub fn explained(arguments: &[&str]) -> Result<Value> {
    let output =
        Command::new(binary::oomph()).args(["explain", "--quiet", "--format", "json"]).args(arguments).output()?;
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("no document: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Whether a figure that was printed with two decimals of its unit is that number of bytes.
fn near(printed: &Value, bytes: &Value) -> bool {
    let (Some(printed), Some(bytes)) = (printed.as_u64(), bytes.as_u64()) else { return false };
    let unit = (0..4).map(|power| 1_u64 << (10 * power)).filter(|unit| bytes >= *unit).max().unwrap_or(1);
    printed.abs_diff(bytes) <= unit / 200 + 1
}
