//! Tests that doubtful and void answers say so: sizes that were not computed, a host whose memory ran out, and memory
//! that grows beyond a card that nothing filled.

use anyhow::{Result, ensure};
use libtest_mimic::{Failed, Trial};

use crate::again::tried;
use crate::run::{Run, TORCH_2_15};

/// A test.
type Test = fn() -> Result<()>;

/// All trials.
pub fn trials() -> Vec<Trial> {
    let tests: [(&str, Test); 6] = [
        ("doubt::mask", mask),
        ("doubt::host", host),
        ("doubt::forecast", forecast),
        ("doubt::checks", checks),
        ("doubt::swallowed", swallowed),
        ("doubt::waits", waits),
    ];
    let trial =
        |(name, test): (&str, Test)| tried(name, move || test().map_err(|error| Failed::from(format!("{error:#}"))));
    tests.into_iter().map(trial).collect()
}

/// The mask picks between nothing and 1 GiB, of which three copies are made.
fn mask() -> Result<()> {
    let ask =
        |vram: &str| Run::json("rtx-3060", TORCH_2_15)?.args(["--vram", vram]).program(&["doubt.py", "mask"]).finish();
    let between = ask("4GiB")?;
    between.ensure(between.status.code() == Some(1), "an unsure answer is not a fit")?;
    let report = between.report()?;
    between.ensure(report["verdict"] == "unsure", format!("{report:#}"))?;
    let unsure = &report["unsure"];
    ensure!(unsure["least"]["verdict"] == "fits" && unsure["most"]["verdict"] == "oom", "{unsure:#}");
    let line = &unsure["sizes"][0]["site"]["line"];
    ensure!(unsure["sizes"][0]["high"] == 1 << 21 && line.as_u64() == Some(16), "{unsure:#}");

    // Neither end decides where both agree.
    let (large, small) = (ask("8GiB")?.report()?, ask("1GiB")?.report()?);
    ensure!(large["verdict"] == "fits" && large["unsure"].is_null(), "{large:#}");
    ensure!(
        large["devices"][0]["peak_is_maximum"] == true && large["devices"][0]["peak"]["low_bytes"] == 0,
        "{large:#}"
    );
    ensure!(small["verdict"] == "oom" && small["unsure"].is_null(), "{small:#}");
    Ok(())
}

/// That the host is full says nothing of the card.
fn host() -> Result<()> {
    let run = Run::dry_run()?.args(["--format", "json", "--gpu", "rtx-3060", "--vram", "900GiB"]).with(TORCH_2_15);
    let finished = run.program(&["doubt.py", "host"]).finish()?;
    finished.ensure(finished.status.code() == Some(3), "a full host is not a lack of GPU memory")?;
    let report = finished.report()?;
    let host = &report["host"];
    let bytes = |name: &str| host[name].as_u64().unwrap_or(0);
    ensure!(report["verdict"] == "failed" && bytes("total_bytes") > 0, "{report:#}");
    ensure!(bytes("requested_bytes") == 2 * bytes("total_bytes"), "{host:#}");
    ensure!(host["site"]["line"].as_u64() == Some(24), "{host:#}");
    Ok(())
}

/// What a program checks of its numbers holds in a healthy run. Where no source says so, the zero that was read is named.
fn checks() -> Result<()> {
    let finished = Run::json("rtx-3060", TORCH_2_15)?.program(&["distributions.py", "--strict"]).finish()?;
    ensure!(finished.printed("steps")? == "3", "{}", finished.story());
    finished.ensure(finished.status.code() == Some(2), "what reads a zero that was never computed was not run")?;
    let report = finished.report()?;
    let fault = &report["fault"];
    ensure!(report["verdict"] == "failed" && fault["message"] == "ValueError: nothing was reconstructed", "{fault:#}");
    ensure!(fault["read_at"]["line"].as_u64() == Some(30), "{fault:#}");
    Ok(())
}

/// A card is not filled in the time that there is, and the answer says when it would be.
fn forecast() -> Result<()> {
    let run = Run::dry_run()?.args(["--format", "json", "--gpu", "rtx-3060", "--vram", "64GiB", "--budget", "5"]);
    let finished = run.with(TORCH_2_15).program(&["doubt.py", "forecast"]).finish()?;
    finished.ensure(finished.status.code() == Some(1), "memory that grows beyond the card does not fit")?;
    let report = finished.report()?;
    let oom = &report["devices"][0]["oom"];
    ensure!(report["verdict"] == "oom" && oom["forecast"] == true, "{report:#}");
    // Each loss keeps its input, its output and itself: twice 64 x 1024 numbers and some small change.
    let growth = &report["loops"][0]["growth"];
    let each = growth["bytes_per_iteration"].as_u64().unwrap_or(0);
    ensure!((2 * 262_144..3 * 262_144).contains(&each), "{growth:#}");
    let step = oom["step"].as_u64().unwrap_or(0);
    let room = (64_u64 << 30) - (200 << 20);
    ensure!(step.abs_diff(room / each) * 100 <= room / each, "step {step} where {each} bytes are kept in each");
    ensure!(growth["holders"][0]["name"] == "losses", "{growth:#}");
    ensure!(growth["site"]["line"].as_u64() == Some(33), "{growth:#}");
    Ok(())
}

/// A server answers its client with an error, because a model does not load: that is why the client fails.
fn swallowed() -> Result<()> {
    let run = Run::json("rtx-3060", TORCH_2_15)?.args(["--vram", "6GiB", "--no-probe"]);
    let finished = run.program(&["verdicts.py", "swallowed_by_a_handler"]).finish()?;
    finished.ensure(finished.status.code() == Some(1), "what a handler swallowed is why the program failed")?;
    let report = finished.report()?;
    let line = &report["devices"][0]["oom"]["site"]["line"];
    ensure!(report["verdict"] == "oom" && line.as_u64() == Some(26), "{report:#}");
    Ok(())
}

/// Nobody fills the queue that a program waits for, which is not an answer of "fits".
fn waits() -> Result<()> {
    let run = Run::json("rtx-3060", TORCH_2_15)?.args(["--timeout", "40"]);
    let finished = run.program(&["verdicts.py", "waits_for_a_queue"]).finish()?;
    finished.ensure(finished.status.code() == Some(1), "a program that waits does not fit")?;
    let report = finished.report()?;
    let waits = &report["waits"];
    ensure!(report["verdict"] == "unsure" && waits["site"]["line"].as_u64() == Some(191), "{report:#}");
    ensure!(waits["called"] == "queue.get", "{waits:#}");
    Ok(())
}
