//! Tests `oomph attach`: what it reports of a training program on a virtual card is what PyTorch reports there, and the
//! program's results stay the same.
//!
//! The program (`acceptance/programs/attaching.py`) runs under `oomph run --rehearse`. The ways through the kernel are held
//! against interpreters without a card in `crates/oomph-attach/tests/attaching.rs`.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::again::tried;
use crate::binary;
use crate::run::{Run, TORCH_2_15, python_by_hand};

/// The tests.
pub fn trials() -> Vec<Trial> {
    vec![tried("attaching::a-training-program-is-seen-as-it-is", || {
        seen_as_it_is().map_err(|error| Failed::from(format!("{error:#}")))
    })]
}

fn attach(arguments: &[&str]) -> Result<Output> {
    Ok(Command::new(binary::oomph()).arg("attach").args(arguments).output()?)
}

/// The answer about one process.
fn answer(arguments: &[&str]) -> Result<Value> {
    let output = attach(&[arguments, &["--format", "json"]].concat())?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("no JSON: {}", String::from_utf8_lossy(&output.stderr)))?;
    ensure!(report["schema"] == "oomph.attach/1", "schema {}", report["schema"]);
    ensure!(output.status.success(), "{report:#}");
    Ok(report["processes"][0].clone())
}

fn seen_as_it_is() -> Result<()> {
    let oomph = binary::oomph().to_str().context("the path of oomph is not text")?;
    let run = Run::command("run")?.args(["--rehearse", "rtx-3060", "--no-check", "--attempts", "1", "--record", "off"]);
    let run = run.env("OOMPH", oomph);
    let program = binary::programs().join("attaching.py");
    let run = match python_by_hand() {
        Some(python) => run.args(["--", &python]),
        None => run.with(TORCH_2_15).args(["--", "python"]),
    };
    let folder = run.folder().to_owned();
    let mut run = run.args([program]).args([&folder]);
    let started = run.start()?;
    let result = questions(&folder);
    // Whatever was wrong, the program is to end.
    std::fs::write(folder.join("go"), "")?;
    std::fs::write(folder.join("end"), "")?;
    let finished = started.finish()?;
    result.with_context(|| finished.story())?;
    finished.ensure(finished.status.success(), "the program failed")?;
    finished.ensure(finished.printed("right")? == "True", "the program computed something else")?;
    finished.ensure(finished.printed_number("hooks")? <= 1, "a hook stayed behind")
}

fn questions(folder: &Path) -> Result<()> {
    let begun = Instant::now();
    while !folder.join("ready").exists() {
        ensure!(begun.elapsed() < Duration::from_secs(600), "the program was not ready in time");
        std::thread::sleep(Duration::from_millis(100));
    }
    let truth: Value = serde_json::from_slice(&std::fs::read(folder.join("ready"))?)?;
    let pid = truth["pid"].to_string();
    let checked = answer(&["--check", &pid])?;
    ensure!(checked["ways"][0]["id"] == "door" && checked["ways"][0]["closed"].is_null(), "{checked:#}");

    let kept = folder.join("kept.pickle");
    let look = answer(&["--snapshot", kept.to_str().context("no text")?, &pid])?;
    ensure!(look["way"] == "door", "{look:#}");
    let device = &look["devices"][0];
    for (name, true_name) in [
        ("allocated_bytes", "allocated"),
        ("reserved_bytes", "reserved"),
        ("free_bytes", "free"),
        ("total_bytes", "total"),
    ] {
        ensure!(device[name] == truth[true_name], "{name}: reported {}, is {}", device[name], truth[true_name]);
    }
    let owners = look["explanation"][0]["owners"].as_array().context("no owners")?;
    let of =
        |name: &str| owners.iter().find(|row| row["owner"] == name).and_then(|row| row["bytes"].as_u64()).unwrap_or(0);
    let parameters = truth["parameters"].as_u64().context("no size")?;
    ensure!(of("parameters").abs_diff(parameters) < 4096, "parameters {parameters}: {owners:?}");
    ensure!(of("optimizer-state").abs_diff(2 * parameters) < 8192, "optimizer state of {parameters}: {owners:?}");
    ensure!(kept.exists() && kept.with_extension("names.json").exists(), "the snapshot was not kept");

    std::fs::write(folder.join("go"), "")?;
    let recorded = answer(&["--record", "3", &pid])?;
    ensure!(recorded["recorded"]["steps"] == 3 && recorded["recording"] == "ours", "{:#}", recorded["recorded"]);
    let stacks = recorded["explanation"][0].to_string();
    ensure!(stacks.contains("attaching.py"), "no line of the program: {stacks}");

    for kill in 0..20u64 {
        let mut attacher = Command::new(binary::oomph())
            .args(["attach", "--record", "2", &pid])
            .stdout(std::process::Stdio::null())
            .spawn()?;
        std::thread::sleep(Duration::from_micros(500 + (kill * 7919) % 60_000));
        attacher.kill()?;
        attacher.wait()?;
    }
    let after = answer(&["--record", "1", &pid])?;
    ensure!(after["recorded"]["steps"] == 1, "{after:#}");
    ensure!(!attach(&[&std::process::id().to_string()])?.status.success(), "what is not Python was attached to");
    Ok(())
}
