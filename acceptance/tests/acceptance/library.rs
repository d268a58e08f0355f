//! Tests `import oomph` in a program that was not started under oomph: its reports are true, it warns of growth, it
//! explains a death, and a trainer's loggers get its figures.
//!
//! The program has the virtual card of a rehearsal without its hook (`acceptance/programs/library/without_hook.py`). The
//! trainers are tried by hand, in the environment that `OOMPH_ANSWERS` names.

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::again::tried;
use crate::binary;
use crate::run::{Finished, Run, TORCH_2_15, python_by_hand};

type Test = fn() -> Result<()>;

/// The tests.
pub fn trials() -> Vec<Trial> {
    let mut all: Vec<(&str, Test)> = vec![("library::a-watched-program", plain)];
    if python_by_hand().is_some() {
        all.push(("library::trainer-callback", || board("trainer", "train/oomph/allocated_gib/0")));
        all.push(("library::lightning-callback", || board("lightning", "oomph/allocated_gib/0")));
    }
    let failed = |error: anyhow::Error| Failed::from(format!("{error:#}"));
    all.into_iter().map(|(name, test)| tried(name, move || test().map_err(failed))).collect()
}

fn watched(mode: &str) -> Result<(Finished, Vec<String>)> {
    let programs = binary::programs().join("library");
    let oomph = binary::oomph().to_str().context("the path of oomph is not text")?;
    let run = Run::command("run")?.args(["--rehearse", "rtx-3060", "--no-check", "--attempts", "1", "--record", "off"]);
    let run = match python_by_hand() {
        Some(python) => run.args(["--", &python]),
        None => run.with(TORCH_2_15).args(["--", "python"]),
    };
    let mut run =
        run.args([programs.join("without_hook.py"), programs.join("watched.py")]).args([mode]).env("OOMPH_BIN", oomph);
    let finished = run.finish()?;
    let kept = std::fs::read_dir(run.folder().join("kept")).into_iter().flatten().flatten();
    let kept = kept.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    Ok((finished, kept))
}

fn plain() -> Result<()> {
    let (finished, kept) = watched("plain")?;
    let printed = |name: &str| -> Result<Value> { Ok(serde_json::from_str(&finished.printed(name)?)?) };
    let (report, truth, scalars) = (printed("report")?, printed("truth")?, printed("scalars")?);
    let card = &report["devices"][0];
    for what in ["allocated", "reserved", "allocated_peak", "free", "total"] {
        let own = &card[format!("{what}_bytes")];
        finished.ensure(*own == truth[what], format!("{what}: {own}, and PyTorch says {}", truth[what]))?;
    }
    finished.ensure(report["steps"] == 40, "the steps are not counted")?;
    finished.ensure(card["outside_bytes"].as_u64().is_some_and(|bytes| bytes > 50 << 20), "no context is seen")?;
    let allocated = truth["allocated"].as_f64().context("no figure")? / f64::from(1 << 30);
    let scalar = scalars["oomph/allocated_gib/0"].as_f64().context("no scalar")?;
    finished.ensure((scalar - allocated).abs() < 1e-9, "the scalar is another figure")?;
    let stderr = String::from_utf8_lossy(&finished.stderr);
    let sign = "8.00 MiB more are held after each step";
    finished.ensure(stderr.contains(sign), "the growth is not reported")?;
    // Python's own traceback stays, and what oomph explain says of the recording is there.
    finished.ensure(stderr.contains("OutOfMemoryError"), "the error is hidden")?;
    finished.ensure(stderr.contains("watched.py:"), "the explanation names no line")?;
    finished.ensure(!finished.status.success(), "the death is hidden")?;
    ensure!(kept.iter().any(|name| name.ends_with(".pickle")), "no recording was kept: {kept:?}");
    let left: Vec<_> = std::fs::read_dir("/dev/shm")?.flatten().map(|entry| entry.file_name()).collect();
    let ours = |name: &std::ffi::OsString| name.to_string_lossy().starts_with(&format!("oomph-{}-", truth["pid"]));
    ensure!(!left.iter().any(ours), "the folder of the watch is left");
    Ok(())
}

fn board(mode: &str, scalar: &str) -> Result<()> {
    let (finished, _) = watched(mode)?;
    finished.ensure(finished.status.success(), "the training failed")?;
    let board: Value = serde_json::from_str(&finished.printed("board")?)?;
    finished
        .ensure(board[scalar].as_f64().is_some_and(|gib| gib > 0.0), format!("TensorBoard has no {scalar}: {board}"))
}
