//! Plans of jobs against dry runs of the same jobs (`calibration/jobs.csv`): the dry run lies in the plan's interval.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

const TABLE: &str = include_str!("../../../calibration/jobs.csv");

#[test]
fn dry_runs_lie_between_the_plans_bounds() -> Result<()> {
    let mut lines = TABLE.lines();
    let names: Vec<&str> = lines.next().context("the table is empty")?.split(',').collect();
    let mut beyond = Vec::new();
    let mut compared = 0;
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        let cell =
            |name: &str| names.iter().position(|known| *known == name).and_then(|place| cells.get(place).copied());
        let [job, gpu, plan] = ["job", "gpu", "plan"].map(|name| cell(name).unwrap_or_default());
        let [allocated, reserved, process] = ["allocated", "reserved", "process"]
            .map(|name| cell(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or_default());
        // An evaluation joins what it gathers and leaves a cache behind, which is given back on a smaller card: the plan
        // is of what the job needs there.
        let cache = if plan.contains("--task evaluate") { reserved.saturating_sub(allocated) } else { 0 };
        let truth = process.saturating_sub(cache);
        ensure!(truth > 0, "{job}: no figures");
        let output = Command::new(env!("CARGO_BIN_EXE_oomph"))
            .arg("plan")
            .args(plan.split(' '))
            .args(["--gpu", gpu, "--format", "json"])
            .env("HF_HUB_OFFLINE", "1")
            .output()?;
        let report: Value = serde_json::from_slice(&output.stdout).with_context(|| format!("{job}: no report"))?;
        let devices = report["devices"].as_array().context("no devices")?;
        let fullest = devices.iter().max_by_key(|device| device["expected_bytes"].as_u64()).context("no device")?;
        let [low, high] = ["low_bytes", "high_bytes"].map(|name| fullest[name].as_u64().unwrap_or_default());
        if !(low..=high).contains(&truth) {
            beyond.push(format!("{job}: {truth} is not between {low} and {high}"));
        }
        compared += 1;
    }
    ensure!(compared >= 12, "{compared} jobs");
    ensure!(beyond.is_empty(), "{beyond:#?}");
    Ok(())
}
