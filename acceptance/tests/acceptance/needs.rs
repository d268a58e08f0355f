//! Tests the smallest card that holds a program: the answer against a capacity that is bisected with dry runs, and
//! programs that catch their out-of-memory error.

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::again::tried;
use crate::run::{Run, TORCH_2_15};

/// A name, the script with its arguments, and a capacity in bytes on which it dies.
type Row = (&'static str, &'static [&'static str], u64);

const ROWS: [Row; 1] = [("growing-lengths", &["expandable.py", "--width", "512", "--batch-size", "8"], 1 << 30)];

/// How closely the truth is bisected, and the steps in which cards are cut, in bytes.
const CLOSE: u64 = 4 << 20;

/// All trials.
pub fn trials() -> Vec<Trial> {
    let trial = |(name, program, too_small): Row| {
        let test = move || smallest(program, too_small).map_err(|error| Failed::from(format!("{error:#}")));
        tried(format!("needs::{name}"), test)
    };
    let mut trials: Vec<Trial> = ROWS.into_iter().map(trial).collect();
    let recovered = || recovered().map_err(|error| Failed::from(format!("{error:#}")));
    trials.push(tried("needs::recovered", recovered));
    trials
}

fn on(capacity: u64, more: &[&str], program: &[&str]) -> Result<Value> {
    let capacity = capacity.to_string();
    let run = Run::json("rtx-3060", TORCH_2_15)?.args(["--until-exit", "--no-owners", "--vram", &capacity]);
    run.args(more.iter().copied()).program(program).finish()?.report()
}

fn smallest(program: &[&str], too_small: u64) -> Result<()> {
    let report = on(too_small, &[], program)?;
    ensure!(report["verdict"] == "oom", "{} fits on {too_small}", program[0]);
    let device = &report["devices"][0];
    let need = device["oom"]["would_need_bytes"].as_u64().context("it is not said what it needs")?;
    let found = &device["smallest_capacity"];
    ensure!(found["how"] == "run" && found["capacity_bytes"] == need, "{found:#}");
    let runs = found["runs"].as_u64().unwrap_or(u64::MAX);
    ensure!(runs <= 4, "{runs} runs for {}", program[0]);

    let (mut dies, mut holds) = (too_small, need);
    ensure!(on(need, &["--no-probe"], program)?["verdict"] == "fits", "{} dies on {need}", program[0]);
    while holds - dies > CLOSE {
        let middle = dies.midpoint(holds) / CLOSE * CLOSE;
        if on(middle, &["--no-probe"], program)?["verdict"] == "fits" {
            holds = middle;
        } else {
            dies = middle;
        }
    }
    eprintln!("{}: needs {need}, smallest {holds}, {runs} runs", program[0]);
    ensure!(need <= holds + holds / 100 + CLOSE, "{} needs {holds}, and {need} is said", program[0]);

    // Without a card it is the same search on a card of another generation, whose libraries take other workspaces.
    let run = Run::dry_run()?.args(["--format", "json", "--until-exit"]).with(TORCH_2_15);
    let free = run.program(program).finish()?.report()?;
    let free = &free["devices"][0];
    ensure!(free["smallest_capacity"]["how"] == "run", "{free:#}");
    let peak = free["peak"]["process_bytes"].as_u64().context("no peak without a card")?;
    let capacity = free["smallest_capacity"]["capacity_bytes"].as_u64().context("no need without a card")?;
    ensure!(capacity <= peak, "{capacity} is said to be needed, and {peak} were taken without a limit");
    Ok(())
}

fn recovered() -> Result<()> {
    let run = Run::json("rtx-3060", TORCH_2_15)?.args(["--until-exit", "--vram", "2GiB"]);
    let finished = run.program(&["recovers.py"]).finish()?;
    finished.ensure(finished.status.code() == Some(1), "a program that recovers does not simply fit")?;
    let report = finished.report()?;
    finished.ensure(report["verdict"] == "recovered", format!("{report:#}"))?;
    let oom = &report["devices"][0]["caught_ooms"][0];
    let instead = &oom["instead"];
    let bytes = |name: &str| instead[name].as_u64().context("it is not said what it did instead");
    let (requested, granted) = (bytes("requested_bytes")?, bytes("granted_bytes")?);
    finished.ensure(granted > 0 && requested > granted, format!("{instead:#}"))?;
    let need = oom["would_need_bytes"].as_u64().context("it is not said what it needs as written")?;
    finished.ensure(need > 2 << 30, format!("{oom:#}"))?;
    let enough = need.to_string();
    let run = Run::json("rtx-3060", TORCH_2_15)?.args(["--until-exit", "--no-probe", "--vram", &enough]);
    let whole = run.program(&["recovers.py"]).finish()?;
    whole.ensure(whole.report()?["verdict"] == "fits", "it does not run as written with what it is said to need")
}
