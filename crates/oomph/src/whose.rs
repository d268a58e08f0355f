//! Finds the owners of the memory from the recordings that a run's processes left.

use std::collections::BTreeMap;

use oomph_explain::snapshot::{self, At, DeviceExplanation, Group, Options, Owner, OwnerRow, Source};
use oomph_report::{DeviceReport, Whose};
use oomph_trace::SourceKind;

use crate::observation::{Observation, device_map};
use crate::recordings::ProcessMemory;

/// Rows of the breakdowns that go into the document.
const MOST_GROUPS: usize = 50;

/// The owners of a card's memory at the peak of a run, or when it died there. They add up, to the byte, to what the
/// card held then; `None` where no process left a recording.
pub fn owners(device: &DeviceReport, run: &Observation) -> Option<Whose> {
    match device.oom {
        Some(_) => owners_at(device, run, At::Oom),
        None => owners_at(device, run, At::Peak),
    }
}

/// As [`owners`], at a moment of one's own.
pub fn owners_at(device: &DeviceReport, run: &Observation, at: At) -> Option<Whose> {
    let reserved = match &device.oom {
        Some(oom) => oom.reserved_bytes?,
        None => device.peak.reserved_bytes?,
    };
    let options = Options { at, what_if: false, ..Options::default() };
    // What the virtual GPU logged says nothing of owners.
    let recorded = run.memory.iter().filter(|process| process.trace.source != SourceKind::VirtualGpu);
    let mut found: Vec<DeviceExplanation> =
        recorded.flat_map(|process| of_process(process, device.index, run, &options)).collect();
    // Those that were on the card together, by the same rule as the card's peak: the largest ones that add up.
    found.sort_by_key(|explanation| std::cmp::Reverse(explanation.peak.reserved_bytes));
    let mut total = 0_u64;
    found.retain(|explanation| {
        let sum = total.saturating_add(explanation.peak.reserved_bytes);
        let fits = sum <= reserved;
        if fits {
            total = sum;
        }
        fits
    });
    // Recordings of processes that held nothing of this card say nothing of it.
    if found.is_empty() || total == 0 {
        return None;
    }
    let mut rows: BTreeMap<Owner, OwnerRow> = BTreeMap::new();
    // What is outside the framework is better known from the books than from the recording.
    let from_books = |owner| matches!(owner, Owner::Free | Owner::Context | Owner::OtherProcesses);
    let all = found.iter().flat_map(|explanation| &explanation.owners);
    for row in all.filter(|row| row.bytes > 0 && !from_books(row.owner)) {
        rows.entry(row.owner).and_modify(|sum| add(sum, row)).or_insert(*row);
    }
    let modelled =
        |owner, bytes| OwnerRow { owner, bytes, blocks: 0, confidence: 1.0, source: Source::Recorded, named_bytes: 0 };
    for row in [
        modelled(Owner::Unattributed, reserved - total),
        modelled(Owner::Context, device.peak.context_bytes),
        modelled(Owner::Workspace, device.peak.other_bytes),
    ] {
        if row.bytes > 0 {
            rows.entry(row.owner).and_modify(|sum| add(sum, &row)).or_insert(row);
        }
    }
    let mut owners: Vec<OwnerRow> = rows.into_values().collect();
    owners.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    let groups = |of: fn(&DeviceExplanation) -> &Vec<Group>| merged(found.iter().flat_map(of));
    Some(Whose {
        at: if device.oom.is_some() { "oom" } else { "peak" }.into(),
        owners,
        by_line: groups(|explanation| &explanation.by_line),
        by_module: groups(|explanation| &explanation.by_module),
        by_dtype: groups(|explanation| &explanation.by_dtype),
        by_phase: groups(|explanation| &explanation.by_phase),
    })
}

/// What one process says of one of the run's cards.
fn of_process(process: &ProcessMemory, card: u32, run: &Observation, options: &Options) -> Vec<DeviceExplanation> {
    let map = run.hooks.reports.iter().find(|hook| hook.pid == process.pid).map(|hook| device_map(hook, &run.ledger));
    let is_card = |index: u32| match map.as_ref().and_then(|map| map.get(&index)) {
        Some(mapped) => *mapped == card as usize,
        None => index == card,
    };
    let explanation = snapshot::explain(&process.trace, options, process.names.as_ref());
    explanation.devices.into_iter().filter(|device| is_card(device.index)).collect()
}

fn add(sum: &mut OwnerRow, row: &OwnerRow) {
    let weight = |row: &OwnerRow| row.confidence * row.bytes as f64;
    let weighted = weight(sum) + weight(row);
    sum.bytes = sum.bytes.saturating_add(row.bytes);
    sum.blocks = sum.blocks.saturating_add(row.blocks);
    sum.named_bytes = sum.named_bytes.saturating_add(row.named_bytes);
    sum.confidence = if sum.bytes > 0 { weighted / sum.bytes as f64 } else { 1.0 };
}

/// The groups of several processes, those of one name together, the largest first.
fn merged<'a>(groups: impl Iterator<Item = &'a Group>) -> Vec<Group> {
    let mut by_name: BTreeMap<&str, Group> = BTreeMap::new();
    for group in groups {
        by_name
            .entry(&group.name)
            .and_modify(|sum| {
                sum.bytes = sum.bytes.saturating_add(group.bytes);
                sum.blocks = sum.blocks.saturating_add(group.blocks);
            })
            .or_insert_with(|| group.clone());
    }
    let mut all: Vec<Group> = by_name.into_values().collect();
    all.sort_by_key(|group| std::cmp::Reverse(group.bytes));
    all.truncate(MOST_GROUPS);
    all
}
