//! Compares the answer of a shortened run with that of the whole run, on programs that `acceptance/composed/compose.py` composes
//! by seed.
//!
//! The seeds of [`SEEDS`] are always run. `OOMPH_SEEDS=1-200` names others, for a night: each takes about half a minute.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};

use crate::again::tried;
use crate::binary;
use crate::run::{Run, TORCH_2_15};

/// What is run where nobody names others: the ways of collecting that differ most.
const SEEDS: [u64; 5] = [3, 8, 14, 21, 33];

/// Names other seeds: the first and the last.
const VARIABLE: &str = "OOMPH_SEEDS";

/// How far two peaks may lie apart, as a part of the larger one.
const APART: f64 = 0.01;

/// A trial for each seed.
pub fn trials() -> Vec<Trial> {
    let named = std::env::var(VARIABLE).ok().and_then(|text| {
        let (first, last) = text.split_once('-')?;
        Some((first.parse::<u64>().ok()?..=last.parse().ok()?).collect())
    });
    let seeds = named.unwrap_or_else(|| SEEDS.to_vec());
    let trial = |seed| {
        tried(format!("composed::seed-{seed}"), move || alike(seed).map_err(|error| Failed::from(format!("{error:#}"))))
    };
    seeds.into_iter().map(trial).collect()
}

/// What a run answered: the verdict, and the peak as allocated and of the process, in bytes.
#[derive(Debug)]
struct Answer {
    verdict: String,
    allocated: u64,
    process: u64,
}

fn alike(seed: u64) -> Result<()> {
    let shortened = answer(seed, &[])?;
    let whole = answer(seed, &["--until-exit"])?;
    ensure!(
        shortened.verdict == whole.verdict && matches!(whole.verdict.as_str(), "fits" | "oom"),
        "seed {seed}: shortened {shortened:?}, whole {whole:?}"
    );
    // Where it dies, the step may be another one of equal height.
    let near = |one: u64, other: u64| one.abs_diff(other) as f64 <= APART * one.max(other) as f64;
    let alike = near(shortened.allocated, whole.allocated) && near(shortened.process, whole.process);
    ensure!(alike || whole.verdict == "oom", "seed {seed}: shortened {shortened:?}, whole {whole:?}");
    Ok(())
}

fn answer(seed: u64, options: &[&str]) -> Result<Answer> {
    let composer = binary::root().join("acceptance/composed/compose.py");
    let composed = Command::new("python3").arg(composer).arg(seed.to_string()).output().context("python3 composes")?;
    ensure!(composed.status.success(), "{}", String::from_utf8_lossy(&composed.stderr));
    let mut run = Run::json("rtx-3060", TORCH_2_15)?.args(["--no-probe"]).args(options);
    let program = run.folder().join(format!("seed_{seed}.py"));
    fs::write(&program, composed.stdout)?;
    run = run.program(&[&program.to_string_lossy()]);
    let finished = run.finish()?;
    let report = finished.report()?;
    let peak = &report["devices"][0]["peak"];
    let bytes = |name: &str| peak[name].as_u64().unwrap_or(0);
    Ok(Answer {
        verdict: report["verdict"].as_str().unwrap_or_default().to_owned(),
        allocated: bytes("allocated_bytes"),
        process: bytes("process_bytes"),
    })
}
