//! Memory over time on one device: the sizes of all blocks, the totals after every event, and the moments of interest.

use std::collections::{HashMap, HashSet};

use oomph_allocator::{EventPools, Settings};
use oomph_trace::{Action, Device, Event, PoolId};

use super::lifetimes::{Lifetime, NEVER, Position, lifetimes};
use super::segments::{Direction, Ranges};
use super::{At, Moment};

/// In the large pool, what is left of a block after an allocation stays in it up to this many bytes.
const LARGEST_SLACK: u64 = 1 << 20;

/// A device's recording, replayed once.
pub(super) struct Timeline<'a> {
    pub device: &'a Device,
    /// Every allocation, in the order of birth.
    pub lifetimes: Vec<Lifetime>,
    /// Bytes in blocks in use, after each position.
    pub active: Vec<u64>,
    /// Bytes taken from the driver, after each position.
    pub reserved: Vec<u64>,
    /// The last position: the state when the file was written.
    pub end: Position,
    /// The positions just before each `alloc` event.
    pub allocations: Vec<Position>,
    /// The positions just before each allocation that failed.
    pub ooms: Vec<Position>,
    /// The last of them, if nothing was allocated after it: the program did not survive it.
    fatal: Option<Position>,
    /// The positions just before each event that changes segments.
    segment_events: Vec<Position>,
    pools: EventPools,
    start: Ranges,
}

impl<'a> Timeline<'a> {
    /// Replays the recording of a device that ran with `settings`.
    pub fn new(device: &'a Device, settings: &Settings) -> Self {
        let pools = EventPools::of(device);
        let mut lifetimes = lifetimes(device, &pools, |bytes| settings.round(bytes));
        let end = device.events.len().min(NEVER as usize - 1) as Position;
        let mut start = Ranges::of(&device.segments);
        let (mut allocations, mut ooms, mut segment_events) = (Vec::new(), Vec::new(), Vec::new());
        for (index, event) in device.events.iter().take(end as usize).enumerate() {
            match event.action {
                Action::Alloc => allocations.push(index as Position),
                Action::Oom => ooms.push(index as Position),
                Action::SegmentAlloc | Action::SegmentFree | Action::SegmentMap | Action::SegmentUnmap => {
                    segment_events.push(index as Position);
                }
                _ => {}
            }
        }
        for &index in segment_events.iter().rev() {
            change(&mut start, device, &pools, index, Direction::Backward);
        }
        let mut geometry = Geometry::new(&start, settings.max_split_size);
        let already = lifetimes.partition_point(|block| block.birth == 0);
        geometry.place_start(&start, &mut lifetimes[..already]);

        let mut deaths: Vec<(Position, u32)> = lifetimes
            .iter()
            .enumerate()
            .filter(|(_, block)| block.death <= end)
            .map(|(index, block)| (block.death, index as u32))
            .collect();
        deaths.sort_unstable();
        let mut deaths = deaths.into_iter().peekable();
        let mut born = already;
        let mut now: u64 = lifetimes[..already].iter().fold(0, |sum, block| sum.saturating_add(block.size));
        let (mut active, mut reserved) = (Vec::with_capacity(end as usize + 1), Vec::with_capacity(end as usize + 1));
        let mut segments = start.clone();
        let mut segment_at = segment_events.iter().copied().peekable();
        for position in 0..=end {
            let changes = segment_at.next_if(|&index| index + 1 == position);
            if let Some((index, event)) = changes.and_then(|index| Some((index, device.events.get(index as usize)?))) {
                segments.apply(&event, pools.pool(index as usize, &event), Direction::Forward);
                geometry.apply(event.action, event.address, event.size);
            }
            while let Some((_, index)) = deaths.next_if(|death| death.0 == position) {
                let block = &lifetimes[index as usize];
                now = now.saturating_sub(block.size);
                geometry.free(block);
            }
            while lifetimes.get(born).is_some_and(|block| block.birth == position) {
                let block = &mut lifetimes[born];
                geometry.take(block);
                now = now.saturating_add(block.size);
                born += 1;
            }
            active.push(now);
            reserved.push(segments.total());
        }
        let fatal = ooms.last().copied().filter(|&oom| allocations.last().is_none_or(|&last| last < oom));
        Self { device, lifetimes, active, reserved, end, allocations, ooms, fatal, segment_events, pools, start }
    }

    /// Takes note that the program caught the last failure, although it allocated nothing afterwards.
    pub fn caught_the_last(&mut self) {
        self.fatal = None;
    }

    /// The segments at a position.
    pub fn segments_at(&self, position: Position) -> Ranges {
        let mut segments = self.start.clone();
        let before = self.segment_events.iter().take_while(|&&index| index < position);
        for &index in before {
            change(&mut segments, self.device, &self.pools, index, Direction::Forward);
        }
        segments
    }

    /// Every event that changes segments: its index, the event, and its pool.
    pub fn segment_changes(&self) -> impl Iterator<Item = (Position, Event, PoolId)> + '_ {
        self.segment_events.iter().filter_map(|&index| {
            let event = self.device.events.get(index as usize)?;
            Some((index, event, self.pools.pool(index as usize, &event)))
        })
    }

    /// The position that `at` means, and what it turned out to be; the end where the recording has no such moment.
    pub fn find(&self, at: At) -> (Position, Moment) {
        match at {
            At::Peak => (self.fullest(), Moment::Peak),
            At::InUse => (self.busiest(), Moment::Peak),
            At::Death => self.fatal.map_or((self.fullest(), Moment::Peak), |oom| (oom, Moment::Oom)),
            At::Oom => self.last_oom().map_or((self.fullest(), Moment::Peak), |oom| (oom, Moment::Oom)),
            At::End => (self.end, Moment::End),
            At::Event(index) => (u32::try_from(index).unwrap_or(NEVER).min(self.end), Moment::Event),
            At::Time(time_us) => {
                let after = self.device.events.iter().rposition(|event| event.time_us <= time_us);
                (after.map_or(0, |index| index as Position + 1).min(self.end), Moment::Time)
            }
        }
    }

    /// The position at which the card was fullest: reserved memory is at its highest and, of these, the memory in use.
    pub fn fullest(&self) -> Position {
        let key = |position: &Position| (self.reserved[*position as usize], self.active[*position as usize]);
        // Of several such positions the first one: later ones are repetitions.
        (0..=self.end).rev().max_by_key(key).unwrap_or(0)
    }

    /// The position at which memory in use is at its highest; of several the first one.
    fn busiest(&self) -> Position {
        (0..=self.end).rev().max_by_key(|position| self.active[*position as usize]).unwrap_or(0)
    }

    /// The position just before the last allocation that failed.
    pub fn last_oom(&self) -> Option<Position> {
        self.ooms.last().copied()
    }

    /// The position just before the allocation that failed and after which nothing was allocated: the recording shows
    /// no way past it.
    pub fn fatal(&self) -> Option<Position> {
        self.fatal
    }

    /// The position from which the program no longer holds a block. What the error that ended the program set free on its
    /// way up, before the file was written, was held to the last.
    pub fn released(&self, block: &Lifetime) -> Position {
        match self.fatal {
            Some(oom) if block.birth <= oom && block.released > oom => NEVER,
            _ => block.released,
        }
    }

    /// The time after which a position holds: that of the event before it, or of the first event at the start.
    pub fn time_us(&self, position: Position) -> Option<i64> {
        let event = self.device.events.get(position.saturating_sub(1) as usize)?;
        (event.time_us != 0).then_some(event.time_us)
    }

    /// The lifetimes that live at a position, as indices in the order of birth.
    pub fn living_at(&self, position: Position) -> impl Iterator<Item = u32> + '_ {
        let born = self.lifetimes.partition_point(|block| block.birth <= position);
        self.lifetimes[..born]
            .iter()
            .enumerate()
            .filter(move |(_, block)| block.lives_at(position))
            .map(|(index, _)| index as u32)
    }
}

/// Does or undoes the event at `index`.
fn change(segments: &mut Ranges, device: &Device, pools: &EventPools, index: Position, direction: Direction) {
    if let Some(event) = device.events.get(index as usize) {
        segments.apply(&event, pools.pool(index as usize, &event), direction);
    }
}

/// The free blocks of native segments for large blocks. Only there can a block be larger than its rounded request: what
/// is left after an allocation is cut off only when it is more than 1 MiB, so that the size of a block follows from the
/// free block that it was made of.
struct Geometry {
    max_split: u64,
    /// Free blocks: start to size.
    free: HashMap<u64, u64>,
    /// The same: end to start.
    ends: HashMap<u64, u64>,
    /// Where segments start. Free blocks never grow across one, even where the driver put segments side by side.
    segment_starts: HashSet<u64>,
}

impl Geometry {
    fn new(start: &Ranges, max_split: u64) -> Self {
        let mut geometry =
            Self { max_split, free: HashMap::new(), ends: HashMap::new(), segment_starts: HashSet::new() };
        for range in start.iter().filter(|range| !range.expandable && range.large) {
            geometry.segment_starts.insert(range.address);
        }
        geometry
    }

    /// Sizes and places the blocks that were there before the recording, which are given in the order of addresses.
    fn place_start(&mut self, segments: &Ranges, blocks: &mut [Lifetime]) {
        let mut next = 0;
        for range in segments.iter().filter(|range| !range.expandable && range.large) {
            while blocks.get(next).is_some_and(|block| block.address < range.address) {
                next += 1;
            }
            let mut free_from = range.address;
            while blocks.get(next).is_some_and(|block| block.address < range.end()) {
                let follower = blocks.get(next + 1).map_or(range.end(), |block| block.address.min(range.end()));
                let block = &mut blocks[next];
                let gap = follower.saturating_sub(block.address.saturating_add(block.size));
                // No free block of the large pool is this small, so the gap is a part of the block.
                if !block.size_recorded && gap <= LARGEST_SLACK {
                    block.size = block.size.saturating_add(gap);
                }
                self.put(free_from, block.address.saturating_sub(free_from));
                free_from = free_from.max(block.address.saturating_add(block.size));
                next += 1;
            }
            self.put(free_from, range.end().saturating_sub(free_from));
        }
    }

    fn apply(&mut self, action: Action, address: u64, size: u64) {
        match action {
            Action::SegmentAlloc if size > 2 << 20 => {
                self.segment_starts.insert(address);
                self.put(address, size);
            }
            Action::SegmentFree if self.segment_starts.remove(&address) => self.remove(address),
            _ => {}
        }
    }

    fn put(&mut self, start: u64, size: u64) {
        if size > 0 {
            self.free.insert(start, size);
            self.ends.insert(start.saturating_add(size), start);
        }
    }

    fn remove(&mut self, start: u64) {
        if let Some(size) = self.free.remove(&start) {
            self.ends.remove(&start.saturating_add(size));
        }
    }

    /// Makes a block of the free block at its address, and sets its size.
    fn take(&mut self, block: &mut Lifetime) {
        if block.size <= LARGEST_SLACK {
            return;
        }
        let Some(&free) = self.free.get(&block.address) else { return };
        let rest = free.saturating_sub(block.size);
        if !block.size_recorded && (block.size >= self.max_split || rest <= LARGEST_SLACK) {
            block.size = block.size.max(free);
        }
        self.remove(block.address);
        self.put(block.address.saturating_add(block.size), free.saturating_sub(block.size));
    }

    /// Frees a block, together with the adjacent free blocks.
    fn free(&mut self, block: &Lifetime) {
        if block.size <= LARGEST_SLACK {
            return;
        }
        let (mut start, mut end) = (block.address, block.address.saturating_add(block.size));
        if !self.segment_starts.contains(&start)
            && let Some(&before) = self.ends.get(&start)
        {
            self.remove(before);
            start = before;
        }
        if !self.segment_starts.contains(&end)
            && let Some(&after) = self.free.get(&end)
        {
            self.remove(end);
            end = end.saturating_add(after);
        }
        self.put(start, end.saturating_sub(start));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use oomph_trace::{ReadOptions, read};

    use super::*;

    /// The sizes of blocks that the recording allocated and that are still there at its end are known from both sides:
    /// from the rules, and from the file.
    #[test]
    fn the_sizes_of_blocks_follow_from_the_rules() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/snapshots");
        let Ok(entries) = std::fs::read_dir(&folder) else {
            eprintln!("skipped: {} is not there", folder.display());
            return;
        };
        let mut compared = 0;
        for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
            // The synthetic file was not written by an allocator.
            if path.extension().is_none_or(|end| end != "pickle") || path.ends_with("mosaic_output.pickle") {
                continue;
            }
            let trace = read(&path, &ReadOptions::default()).expect("a real snapshot is read");
            let settings = Settings::recorded(&trace.settings);
            for device in &trace.devices {
                let known = Timeline::new(device, &settings);
                let mut blind = device.clone();
                // Without its blocks the end says nothing of sizes, except through what was there at the start.
                let recorded = |block: &oomph_trace::Block| {
                    let born = |life: &Lifetime| life.address == block.address && life.death == NEVER && life.birth > 0;
                    known.lifetimes.iter().any(born)
                };
                blind.blocks.iter_mut().filter(|block| recorded(block)).for_each(|block| block.size = 0);
                let guessed = Timeline::new(&blind, &settings);
                for (a, b) in known.lifetimes.iter().zip(&guessed.lifetimes).filter(|(a, _)| a.birth > 0) {
                    assert_eq!((a.address, a.birth), (b.address, b.birth));
                    assert_eq!(a.size, b.size, "{}: block born at {}", path.display(), a.birth);
                    compared += usize::from(a.death == NEVER);
                }
            }
        }
        assert!(compared > 1000, "only {compared} blocks were compared");
    }
}
