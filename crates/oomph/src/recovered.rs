//! Reports how a program recovered from an out-of-memory error: how much less the same line requested later.

use oomph_report::{DryRunReport, Instead, Verdict};
use oomph_trace::{Action, Device, StackId};

use crate::observation::{Observation, device_map};

/// Adds to each error that was caught what the program did instead, where its memory was recorded.
pub fn tell(report: &mut DryRunReport, run: &Observation) {
    if report.verdict != Verdict::Recovered {
        return;
    }
    for process in &run.memory {
        let map = run.hooks.reports.iter().find(|hook| hook.pid == process.pid);
        let map = map.map(|hook| device_map(hook, &run.ledger)).unwrap_or_default();
        for device in &process.trace.devices {
            let card = map.get(&device.index).copied().unwrap_or(device.index as usize);
            let caught = report.devices.get_mut(card).and_then(|device| device.caught_ooms.last_mut());
            if let Some(oom) = caught {
                oom.instead = oom.instead.or(instead(device));
            }
        }
    }
}

/// Whether the line of a process that was refused memory was given some after its last error.
pub fn was_granted_less(run: &Observation, pid: u32) -> bool {
    let of_process = run.memory.iter().filter(|memory| memory.pid == pid);
    of_process.flat_map(|memory| &memory.trace.devices).any(|device| instead(device).is_some())
}

/// What the line that failed first was granted after the last error.
fn instead(device: &Device) -> Option<Instead> {
    let errors = || device.events.iter().enumerate().filter(|(_, event)| event.action == Action::Oom);
    let (_, first) = errors().find(|(_, event)| event.stack != StackId::NONE)?;
    let (last, _) = errors().next_back()?;
    let same = |event: &oomph_trace::Event| event.stack == first.stack;
    let granted = device.events.iter().skip(last + 1).filter(|event| event.action == Action::Alloc && same(event));
    let granted_bytes = granted.map(|event| event.size).max()?;
    let errors = u32::try_from(errors().filter(|(_, event)| same(event)).count()).unwrap_or(u32::MAX);
    Some(Instead { requested_bytes: first.size, granted_bytes, errors })
}
