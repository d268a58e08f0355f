//! Invents addresses for recordings that have none: each free goes with the latest allocation of its size and label.
//!
//! Without addresses every allocation would seem to replace the one before it. The sums over time do not depend on which
//! of two blocks of the same size a free belongs to; how long a block lives does, which makes it a guess.

use std::collections::HashMap;

use crate::{Action, Event, StringId};

/// What is said of a recording whose frees were paired so.
pub(crate) const PAIRED: &str =
    "this profiler recorded no addresses: sizes over time are exact, which block was freed is inferred from its size";

/// Where the made-up addresses begin.
const FIRST: u64 = 1 << 40;

/// Blocks lie at multiples of this.
const ALIGNMENT: u64 = 512;

/// An allocation, and whether it is still live.
struct Open {
    event: Event,
    live: bool,
}

/// The allocations with one label.
#[derive(Default)]
struct Group {
    open: Vec<Open>,
    /// Indices into `open` by size. Those of blocks that have gone are skipped.
    by_size: HashMap<u64, Vec<u32>>,
}

/// Gives events without addresses one each.
#[derive(Default)]
pub(crate) struct Pairing {
    next: u64,
    /// Addresses that have been given back, by size.
    free: HashMap<u64, Vec<u64>>,
    groups: HashMap<StringId, Group>,
    held: usize,
}

impl Pairing {
    /// Takes an event, and hands on what replaces it: usually the event with its address. A free that no single block
    /// matches ends the latest blocks that hold as much; one that none match was there before the recording.
    pub fn place(&mut self, event: Event, group: StringId, mut emit: impl FnMut(Event)) {
        match event.action {
            Action::Alloc => emit(self.open(event, group)),
            Action::FreeCompleted => {
                if let Some(known) = self.close(event.size, group) {
                    emit(Event { address: known.address, ..event });
                    return;
                }
                let mut left = event.size;
                while left > 0
                    && let Some(known) = self.close_latest(group)
                {
                    emit(Event { address: known.address, size: known.size, ..event });
                    let rest = known.size.saturating_sub(left);
                    left = left.saturating_sub(known.size);
                    if rest > 0 {
                        emit(self.open(Event { size: rest, time_us: event.time_us, ..known }, group));
                    }
                }
                if left > 0 {
                    let address = self.address(left);
                    emit(Event { address, size: left, ..event });
                }
            }
            _ => emit(event),
        }
    }

    /// Bytes of memory that this takes.
    pub fn held(&self) -> usize {
        self.held
    }

    fn open(&mut self, event: Event, group: StringId) -> Event {
        let event = Event { address: self.address(event.size), ..event };
        let group = self.groups.entry(group).or_default();
        group.by_size.entry(event.size).or_default().push(group.open.len() as u32);
        group.open.push(Open { event, live: true });
        self.held += size_of::<Open>() + size_of::<u32>();
        event
    }

    fn address(&mut self, size: u64) -> u64 {
        if let Some(address) = self.free.get_mut(&size).and_then(Vec::pop) {
            return address;
        }
        let address = FIRST.saturating_add(self.next);
        self.next = self.next.saturating_add(size.max(1).checked_next_multiple_of(ALIGNMENT).unwrap_or(size));
        address
    }

    fn close(&mut self, size: u64, group: StringId) -> Option<Event> {
        let group = self.groups.get_mut(&group)?;
        let of_size = group.by_size.get_mut(&size)?;
        while let Some(index) = of_size.pop() {
            let Some(open) = group.open.get_mut(index as usize) else { continue };
            // What the other way of closing took from the list may since be another block.
            if open.live && open.event.size == size {
                open.live = false;
                let event = open.event;
                while group.open.last().is_some_and(|open| !open.live) {
                    group.open.pop();
                }
                self.free.entry(size).or_default().push(event.address);
                return Some(event);
            }
        }
        None
    }

    fn close_latest(&mut self, group: StringId) -> Option<Event> {
        let group = self.groups.get_mut(&group)?;
        while let Some(open) = group.open.pop() {
            if open.live {
                self.free.entry(open.event.size).or_default().push(open.event.address);
                return Some(open.event);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StackId;

    fn event(size: i64) -> Event {
        Event {
            action: if size > 0 { Action::Alloc } else { Action::FreeCompleted },
            address: 0,
            size: size.unsigned_abs(),
            stream: 0,
            pool: None,
            stack: StackId::NONE,
            time_us: 1,
            label: StringId::EMPTY,
        }
    }

    /// The changes that come out, with which block each is of: a letter for each address.
    fn placed(sizes: &[i64]) -> String {
        let (mut pairing, mut out, mut letters) = (Pairing::default(), String::new(), Vec::new());
        for &size in sizes {
            pairing.place(event(size), StringId::EMPTY, |event| {
                assert!(event.address >= FIRST);
                let known = letters.iter().position(|&address| address == event.address);
                let letter = known.unwrap_or_else(|| {
                    letters.push(event.address);
                    letters.len() - 1
                });
                let sign = if event.action == Action::Alloc { '+' } else { '-' };
                out.push_str(&format!("{sign}{}{} ", event.size, (b'a' + letter as u8) as char));
            });
        }
        out
    }

    #[test]
    fn a_free_ends_the_latest_block_of_its_size() {
        assert_eq!(placed(&[10, 20, 10, -10, -20, -10]), "+10a +20b +10c -10c -20b -10a ");
    }

    #[test]
    fn a_free_that_matches_no_block_ends_as_many_bytes() {
        assert_eq!(placed(&[10, 20, -25]), "+10a +20b -20b -10a +5c ");
    }

    #[test]
    fn a_free_of_what_was_there_before_ends_nothing_else() {
        assert_eq!(placed(&[-40, 40]), "-40a +40b ");
    }

    /// The blocks that the sizes list still names are gone from the other list.
    #[test]
    fn both_ways_of_ending_blocks_agree() {
        assert_eq!(placed(&[8, 8, 9, -17, 8, -8, -8]), "+8a +8b +9c -9c -8b +8b -8b -8a ");
    }
}
