//! Compares the owners of memory that a dry run reports, and what is concluded from a bare recording, with what the
//! program counts in its own tensors.

use std::fs;

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::again::tried;
use crate::explanations::explained;
use crate::run::{Run, TORCH_2_15};

/// The cases of `owners.py`.
const CASES: [&str; 10] = ["mlp", "convnet", "amp", "lstm", "resnet", "llama", "gpt2", "qlora", "unet", "generate"];

/// What is compared: the owners of the report that belong together, and what the program calls them. Only names
/// distinguish parameters from buffers.
const GROUPS: [(&[&str], &[&str]); 4] = [
    (&["parameters", "buffers"], &["parameter", "buffer"]),
    (&["optimizer-state"], &["optimizer-state"]),
    (&["gradients"], &["gradient"]),
    (&["kv-cache"], &["kv-cache"]),
];

/// All trials.
pub fn trials() -> Vec<Trial> {
    let trial = |case: &'static str| {
        let test = move || owners(case).map_err(|error| Failed::from(format!("{error:#}")));
        tried(format!("explain::owners::{case}"), test)
    };
    CASES.into_iter().map(trial).collect()
}

/// Parameters, buffers, gradients, optimizer state and the cache of keys and values are to the byte what the program
/// counts: at the moment at which it counts, and at the peak as far as they do not change. Without the hook's names they
/// are the same to 2 % at both.
fn owners(case: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).to_str().map(str::to_owned).context("no plain name");
    let (snapshot, bare) = (path("run.pickle")?, path("bare.pickle")?);
    let run = Run::json("h100", TORCH_2_15)?.args(["--until-exit", "--snapshot", &snapshot]);
    let finished = run.program(&["owners.py", case]).finish()?;
    let report = finished.report()?;
    let printed: Value = serde_json::from_str(&finished.printed("owners")?)?;

    let device = &report["devices"][0];
    let at_peak = device["whose"]["owners"].as_array().context("nobody's memory")?;
    let sum: u64 = at_peak.iter().filter_map(|row| row["bytes"].as_u64()).sum();
    ensure!(device["peak"]["process_bytes"] == sum, "the owners add up to {sum}: {device}");

    // The names lie in the recording's folder, and a copy elsewhere has none.
    fs::copy(&snapshot, &bare)?;
    let moment = format!("event:{}", printed["event"]);
    for (at, counted) in [(moment.as_str(), true), ("peak", false)] {
        let named = rows(&explained(&["--no-what-if", "--at", at, &snapshot])?)?;
        let inferred = rows(&explained(&["--no-what-if", "--at", at, &bare])?)?;
        for (ours, theirs) in GROUPS {
            let (exact, named) = (sum_of(&named, ours, "named_bytes"), sum_of(&named, ours, "bytes"));
            let inferred = sum_of(&inferred, ours, "bytes");
            let own: u64 = theirs.iter().filter_map(|name| printed["owners"][name]["requested"].as_u64()).sum();
            // Gradients and caches come and go.
            if counted || !matches!(ours, ["gradients"] | ["kv-cache"]) {
                ensure!(exact == own, "{ours:?} at {at} are {exact} bytes, and the program counts {own}");
            }
            for row in [exact, inferred] {
                ensure!(row.abs_diff(named) * 50 <= named, "{ours:?} at {at} are {named} bytes, and {row} are found");
            }
        }
    }
    ensure!(sum_of(at_peak, GROUPS[0].0, "bytes") > 0, "nothing was counted: {printed}");
    Ok(())
}

fn rows(explained: &Value) -> Result<Vec<Value>> {
    explained["devices"][0]["owners"].as_array().cloned().context("no owners")
}

fn sum_of(rows: &[Value], owners: &[&str], field: &str) -> u64 {
    let of_owner = |row: &&Value| row["owner"].as_str().is_some_and(|name| owners.contains(&name));
    rows.iter().filter(of_owner).filter_map(|row| row[field].as_u64()).sum()
}
