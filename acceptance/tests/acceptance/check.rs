//! Checks what is true of every report.

use anyhow::{Context, Result, ensure};
use oomph_protocol::{Stopped, Verdict};
use serde_json::Value;

/// Bytes in a GiB.
pub const GIB: f64 = (1_u64 << 30) as f64;

const MEMBERS: [&str; 10] = [
    "schema",
    "verdict",
    "exit_status",
    "stopped",
    "steps",
    "elapsed_seconds",
    "frameworks",
    "devices",
    "fits_on",
    "warnings",
];
const DEVICE_MEMBERS: [&str; 5] = ["index", "gpu", "capacity_bytes", "peak", "oom"];
const PEAK_MEMBERS: [&str; 7] =
    ["process_bytes", "reserved_bytes", "allocated_bytes", "context_bytes", "other_bytes", "low_bytes", "high_bytes"];
const OOM_MEMBERS: [&str; 9] = [
    "requested_bytes",
    "allocated_bytes",
    "reserved_bytes",
    "free_bytes",
    "message",
    "step",
    "phase",
    "site",
    "would_need_bytes",
];

/// A report has all members that are documented, and its figures do not contradict each other.
pub fn contract(report: &Value) -> Result<()> {
    has(report, &MEMBERS)?;
    ensure!(report["schema"] == "oomph.dry-run/1", "schema is {}", report["schema"]);
    let word = |member: &str| report[member].as_str().unwrap_or_default();
    ensure!(Verdict::named(word("verdict")).is_some(), "verdict is {}", report["verdict"]);
    ensure!(Stopped::named(word("stopped")).is_some(), "stopped is {}", report["stopped"]);
    for device in report["devices"].as_array().context("devices is a list")? {
        has(device, &DEVICE_MEMBERS)?;
        has(&device["peak"], &PEAK_MEMBERS)?;
        let peak = |name: &str| device["peak"][name].as_u64().unwrap_or(0);
        ensure!(peak("low_bytes") <= peak("process_bytes"), "low is above the peak: {}", device["peak"]);
        ensure!(peak("process_bytes") <= peak("high_bytes"), "high is below the peak: {}", device["peak"]);
        let is_whole = device["peak"]["reserved_bytes"].is_null() || peak("allocated_bytes") <= peak("reserved_bytes");
        ensure!(is_whole, "more allocated than reserved: {}", device["peak"]);
        ensure!(peak("reserved_bytes") <= peak("process_bytes"), "more reserved than used: {}", device["peak"]);
        if let Some(capacity) = device["capacity_bytes"].as_u64() {
            ensure!(peak("process_bytes") <= capacity, "more was used than the card has: {}", device["peak"]);
        }
        if device["oom"].is_object() {
            has(&device["oom"], &OOM_MEMBERS)?;
        }
    }
    Ok(())
}

fn has(value: &Value, members: &[&str]) -> Result<()> {
    for member in members {
        ensure!(value.get(member).is_some(), "there is no {member} in {value}");
    }
    Ok(())
}

/// The report's device with this index.
pub fn device(report: &Value, index: usize) -> Result<&Value> {
    report["devices"].get(index).with_context(|| format!("the report has no device {index}: {report}"))
}

/// `bytes` lies within `percent` of `gib`.
pub fn near(what: &str, bytes: u64, gib: f64, percent: f64) -> Result<()> {
    let got = bytes as f64 / GIB;
    let off = (got / gib - 1.0) * 100.0;
    ensure!(off.abs() <= percent, "{what} is {got:.3} GiB, {off:+.2} % from {gib} GiB (at most {percent} % allowed)");
    Ok(())
}
