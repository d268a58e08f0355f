//! A gate: whether a recording keeps within limits.

use serde::Serialize;

use super::diff::growth;
use super::explanation::{CauseKind, Explanation};

/// What a recording must keep to; nothing by default. Sizes in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The highest reserved memory.
    pub max_peak_reserved: Option<u64>,
    /// The highest memory in use.
    pub max_peak_allocated: Option<u64>,
    /// How much more may be in use than in an earlier recording. Needs one.
    pub max_growth: Option<u64>,
    /// No memory that grows with every step.
    pub no_leak: bool,
    /// No allocation that failed.
    pub no_oom: bool,
}

/// The outcome of a check.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckResult {
    /// Whether every limit was kept.
    pub passed: bool,
    /// The limits that were not.
    pub violations: Vec<Violation>,
}

/// A limit that was not kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Violation {
    /// The device.
    pub device: u32,
    /// The limit, as the command line calls it.
    pub limit: &'static str,
    /// What was allowed.
    pub allowed_bytes: u64,
    /// What was found.
    pub found_bytes: u64,
    /// What to look at, lowercase and without a full stop.
    pub says: String,
}

/// Checks an explanation against limits; `earlier` is the recording that growth is measured from.
pub fn check(explanation: &Explanation, earlier: Option<&Explanation>, limits: &Limits) -> CheckResult {
    let mut violations = Vec::new();
    for device in &explanation.devices {
        let mut violate = |limit, allowed_bytes, found_bytes, says: String| {
            violations.push(Violation { device: device.index, limit, allowed_bytes, found_bytes, says });
        };
        let most_owner =
            || device.owners.first().map_or(String::new(), |row| format!("the largest owner is {}", row.owner.name()));
        for (limit, allowed, found) in [
            ("max-peak", limits.max_peak_reserved, device.peak_reserved_bytes),
            ("max-allocated", limits.max_peak_allocated, device.peak_active_bytes),
        ] {
            if let Some(allowed) = allowed.filter(|&allowed| found > allowed) {
                violate(limit, allowed, found, most_owner());
            }
        }
        if let Some(allowed) = limits.max_growth {
            let before = earlier
                .and_then(|earlier| earlier.devices.iter().find(|before| before.index == device.index))
                .map_or(0, |before| before.peak_active_bytes);
            let grown = u64::try_from(growth(before, device.peak_active_bytes)).unwrap_or(0);
            if earlier.is_some() && grown > allowed {
                violate("max-growth", allowed, grown, "more is in use than in the earlier recording".to_owned());
            }
        }
        if limits.no_leak {
            for leak in device.causes.iter().filter(|cause| cause.cause == CauseKind::Leak) {
                violate("no-leak", 0, leak.bytes, leak.because.clone());
            }
        }
        if let Some(oom) = device.oom.as_ref().filter(|oom| limits.no_oom && oom.fatal) {
            violate("no-oom", 0, oom.requested_bytes, device.verdict.why.clone());
        }
    }
    CheckResult { passed: violations.is_empty(), violations }
}
