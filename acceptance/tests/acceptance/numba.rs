//! Tests programs of Numba: what a kernel's loop calls, the line that dies, what a list on the card costs, and the fixes.

use anyhow::{Context, Result};
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::again::tried;
use crate::frameworks::{dies_at, finish, number};
use crate::run::{NUMBA, Run};

const MIB: u64 = 1 << 20;

/// A trajectory of 4,000 steps on the card, from a kernel whose loop calls a function.
const BODIES: &str = "acceptance/programs/numba/bodies.py";

type Test = fn() -> Result<()>;

pub fn trials() -> Vec<Trial> {
    let tests: [(&str, Test); 2] =
        [("a-list-on-the-card-is-counted-to-its-end", whole_trajectory), ("a-list-on-the-card-has-fixes", fixes)];
    let trial = |(name, test): (&str, Test)| {
        tried(format!("numba::{name}"), move || test().map_err(|error| Failed::from(format!("{error:#}"))))
    };
    tests.into_iter().map(trial).collect()
}

fn on_2_gib() -> Result<Run> {
    Ok(Run::json("rtx-3060", NUMBA)?.args(["--vram", "2GiB"]))
}

fn whole_trajectory() -> Result<()> {
    let (finished, report) = finish(on_2_gib()?.program(&[BODIES]))?;
    dies_at(&finished, &report, BODIES, "snapshot = cuda.device_array_like(pos)")?;
    // The matrix of distances, eight snapshots of 20,000 x 3 numbers for each 2 MiB that the driver hands out, two more of
    // these, and what the context takes of this card.
    let matrix = (20_000_u64 * 20_000 * 4).next_multiple_of(2 * MIB);
    let snapshots = 4_000 / 8 * 2 * MIB;
    let context = number(&report, "/devices/0/peak/context_bytes")?;
    let (need, expected) = (number(&report, "/devices/0/oom/would_need_bytes")?, matrix + snapshots + context);
    finished.ensure(need.abs_diff(expected) <= 4 * MIB, format!("it needs {need} bytes, and not {expected}"))
}

fn fixes() -> Result<()> {
    let options = ["--gpu", "rtx-3060", "--vram", "2GiB", "--format", "json", "--max-time", "120s"];
    let finished = Run::command("fix")?.args(options).with(NUMBA).program(&[BODIES]).finish()?;
    let report: Value = finished.report()?;
    let fixes = report["fixes"].as_array().context("there are no fixes")?;
    let remedies: Vec<&str> = fixes.iter().filter_map(|fix| fix["remedies"][0].as_str()).collect();
    finished.ensure(
        remedies.first() == Some(&"free-before-next") && remedies.len() >= 2,
        format!("the fixes are {remedies:?}"),
    )
}
