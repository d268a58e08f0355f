//! The line that allocates what grows: what was allocated in one iteration of a loop and still there at the end of the next.

use std::collections::HashMap;

use oomph_trace::{Action, FrameId, Trace};

use super::names::Names;
use super::stacks::Facts;

/// A line of the program and what it allocated of what grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrownAt {
    /// The file, as it was recorded.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The function.
    pub function: String,
    /// What it allocated in one iteration and that was still there after the next, in bytes.
    pub bytes: u64,
}

/// The events with which three iterations in a row ended, given as the numbers of allocations that had been made on the card
/// since the process began. What is given back before the next allocation belongs to an iteration. `None` where the recording
/// does not reach so far back.
pub fn ends_of_iterations(trace: &Trace, names: &Names, device: u32, moments: &[u64]) -> Option<[usize; 3]> {
    let events = &trace.devices.iter().find(|one| one.index == device)?.events;
    let allocations: Vec<usize> =
        events.iter().enumerate().filter(|(_, event)| event.action == Action::Alloc).map(|(index, _)| index).collect();
    let before = names.allocations_before(device, allocations.len())?;
    let last_of = |moment: u64| {
        let recorded = usize::try_from(moment.checked_sub(before)?).ok()?;
        let next = allocations.get(recorded).copied().or((recorded == allocations.len()).then_some(events.len()));
        next?.checked_sub(1)
    };
    let &[first, second, third] = moments else { return None };
    Some([last_of(first)?, last_of(second)?, last_of(third)?])
}

/// The line that allocated most of what was allocated on a card between two moments and was still there at a third. A
/// moment is the number of allocations that had been made on the card since the process began. `None` where the
/// recording does not reach so far back, or where nothing stayed.
pub fn grown_at(trace: &Trace, names: &Names, device: u32, moments: &[u64]) -> Option<GrownAt> {
    let &[begin, end, later] = moments else { return None };
    let events = &trace.devices.iter().find(|one| one.index == device)?.events;
    let recorded = events.iter().filter(|event| event.action == Action::Alloc).count();
    let before = names.allocations_before(device, recorded)?;
    let mut number = before;
    let mut live: HashMap<u64, (oomph_trace::StackId, u64)> = HashMap::new();
    // An iteration that began before the recording would lack what it allocated first.
    if begin < before {
        return None;
    }
    for event in events.iter() {
        match event.action {
            Action::Alloc => {
                if number >= later {
                    break;
                }
                number += 1;
                live.remove(&event.address);
                if number > begin && number <= end {
                    live.insert(event.address, (event.stack, event.size));
                }
            }
            Action::FreeRequested | Action::FreeCompleted => {
                live.remove(&event.address);
            }
            _ => {}
        }
    }
    let facts = Facts::of(trace);
    let mut by_line: HashMap<FrameId, u64> = HashMap::new();
    for (stack, bytes) in live.into_values() {
        if let Some(line) = facts.get(stack).line {
            *by_line.entry(line).or_default() += bytes;
        }
    }
    let (frame, bytes) = by_line.into_iter().max_by_key(|&(frame, bytes)| (bytes, std::cmp::Reverse(frame)))?;
    let frame = trace.frames.get(frame)?;
    let text = |id| trace.strings.get(id).to_owned();
    Some(GrownAt { file: text(frame.file), line: frame.line, function: text(frame.name), bytes })
}
