//! What grew between two recordings: by owner, module, line and stack.

use std::collections::BTreeMap;

use serde::Serialize;

use super::explanation::{DeviceExplanation, Explanation, Group, Line};

/// What changed from one explanation to another.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Diff {
    /// One entry for each device of either.
    pub devices: Vec<DeviceDiff>,
}

/// What changed on one device; in bytes, from the first recording to the second.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceDiff {
    /// The device.
    pub index: u32,
    /// Reserved memory at the moments that were explained.
    pub reserved_growth_bytes: i64,
    /// Memory in use at these moments.
    pub allocated_growth_bytes: i64,
    /// By owner; what did not change is left out, and the largest change comes first, here and below.
    pub by_owner: Vec<DiffRow>,
    /// By module, where the hook recorded modules.
    pub by_module: Vec<DiffRow>,
    /// By the line that allocated.
    pub by_line: Vec<DiffRow>,
    /// By stack, among the stacks that each explanation lists.
    pub by_stack: Vec<DiffRow>,
}

/// One thing that takes more or less than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiffRow {
    /// What.
    pub name: String,
    /// Bytes in the first recording.
    pub before_bytes: u64,
    /// Bytes in the second.
    pub after_bytes: u64,
    /// The second less the first.
    pub growth_bytes: i64,
}

/// Compares two explanations, the earlier first. Explain with a large [`Options::top`](super::Options) to compare all
/// stacks.
pub fn diff(before: &Explanation, after: &Explanation) -> Diff {
    let mut indices: Vec<u32> = before.devices.iter().chain(&after.devices).map(|device| device.index).collect();
    indices.sort_unstable();
    indices.dedup();
    let find = |explanation: &'_ Explanation, index: u32| {
        explanation.devices.iter().find(|device| device.index == index).cloned()
    };
    let devices = indices
        .into_iter()
        .map(|index| device_diff(index, find(before, index).as_ref(), find(after, index).as_ref()))
        .collect();
    Diff { devices }
}

fn device_diff(index: u32, before: Option<&DeviceExplanation>, after: Option<&DeviceExplanation>) -> DeviceDiff {
    let both = |of: &dyn Fn(&DeviceExplanation) -> Vec<(String, u64)>| {
        rows(before.map(of).unwrap_or_default(), after.map(of).unwrap_or_default())
    };
    let bytes = |of: fn(&DeviceExplanation) -> u64| growth(before.map_or(0, of), after.map_or(0, of));
    DeviceDiff {
        index,
        reserved_growth_bytes: bytes(|device| device.peak.reserved_bytes),
        allocated_growth_bytes: bytes(|device| device.peak.allocated_bytes),
        by_owner: both(&|device| device.owners.iter().map(|row| (row.owner.name().to_owned(), row.bytes)).collect()),
        by_module: both(&|device| groups(&device.by_module)),
        by_line: both(&|device| groups(&device.by_line)),
        by_stack: both(&|device| {
            device.top_stacks.iter().map(|stack| (stack_name(&stack.frames), stack.bytes)).collect()
        }),
    }
}

fn groups(groups: &[Group]) -> Vec<(String, u64)> {
    groups.iter().map(|group| (group.name.clone(), group.bytes)).collect()
}

fn stack_name(frames: &[Line]) -> String {
    if frames.is_empty() {
        return "(no stack)".to_owned();
    }
    frames.iter().map(Line::to_string).collect::<Vec<_>>().join(" < ")
}

fn rows(before: Vec<(String, u64)>, after: Vec<(String, u64)>) -> Vec<DiffRow> {
    let mut sums = BTreeMap::<String, (u64, u64)>::new();
    for (name, bytes) in before {
        sums.entry(name).or_default().0 += bytes;
    }
    for (name, bytes) in after {
        sums.entry(name).or_default().1 += bytes;
    }
    let mut rows: Vec<DiffRow> = sums
        .into_iter()
        .filter(|(_, (before, after))| before != after)
        .map(|(name, (before, after))| DiffRow {
            name,
            before_bytes: before,
            after_bytes: after,
            growth_bytes: growth(before, after),
        })
        .collect();
    rows.sort_by(|a, b| b.growth_bytes.unsigned_abs().cmp(&a.growth_bytes.unsigned_abs()).then(a.name.cmp(&b.name)));
    rows
}

/// The second less the first; saturates.
pub(super) fn growth(before: u64, after: u64) -> i64 {
    let size = i64::try_from(after.abs_diff(before)).unwrap_or(i64::MAX);
    if after >= before { size } else { -size }
}
