//! The memory taken from the driver, as disjoint ranges that change with the segment events.

use std::collections::BTreeMap;

use oomph_trace::{Action, Event, PoolId, Segment};

/// A range taken from the driver: a native segment, or a mapped range of an expandable one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub address: u64,
    /// Bytes.
    pub size: u64,
    pub stream: u64,
    /// Whether it serves blocks above 1 MiB.
    pub large: bool,
    pub pool: PoolId,
    pub expandable: bool,
}

impl Range {
    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.size)
    }
}

impl From<&Segment> for Range {
    fn from(segment: &Segment) -> Self {
        Self {
            address: segment.address,
            size: segment.total_size,
            stream: segment.stream,
            large: segment.large,
            pool: segment.pool,
            expandable: segment.expandable,
        }
    }
}

/// Which way through the events.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Backward,
}

/// Disjoint ranges by address.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges {
    by_address: BTreeMap<u64, Range>,
    total: u64,
}

impl Ranges {
    /// The segments that were there at the end.
    pub fn of(segments: &[Segment]) -> Self {
        let mut ranges = Self::default();
        for segment in segments {
            ranges.add(Range::from(segment));
        }
        ranges
    }

    /// Does or undoes what a segment event of this pool did; other events change nothing.
    pub fn apply(&mut self, event: &Event, pool: PoolId, direction: Direction) {
        let forward = direction == Direction::Forward;
        let expandable = matches!(event.action, Action::SegmentMap | Action::SegmentUnmap);
        let adds = match event.action {
            Action::SegmentAlloc | Action::SegmentMap => forward,
            Action::SegmentFree | Action::SegmentUnmap => !forward,
            _ => return,
        };
        if adds {
            // Segments of small blocks are 2 MiB, and those of large ones never less than 10 MiB; the pages of
            // expandable segments are 2 MiB and 20 MiB.
            self.add(Range {
                address: event.address,
                size: event.size,
                stream: event.stream,
                large: event.size > 2 << 20,
                pool,
                expandable,
            });
        } else {
            self.cut(event.address, event.address.saturating_add(event.size));
        }
    }

    /// Adds a range; where it overlaps what is there, the new one wins, so that the ranges stay disjoint whatever a file
    /// says. Mapped ranges that touch become one.
    fn add(&mut self, mut range: Range) {
        range.size = range.size.min(u64::MAX - range.address);
        if range.size == 0 {
            return;
        }
        self.cut(range.address, range.end());
        if range.expandable {
            let (stream, pool) = (range.stream, range.pool);
            let joins = |other: &Range| other.expandable && other.stream == stream && other.pool == pool;
            let before = self.by_address.range(..range.address).next_back().map(|(_, range)| *range);
            if let Some(before) = before.filter(|before| before.end() == range.address && joins(before)) {
                self.by_address.remove(&before.address);
                range = Range { size: before.size + range.size, large: before.large, ..before };
                self.total -= before.size;
            }
            if let Some(after) = self.by_address.get(&range.end()).copied().filter(joins) {
                self.by_address.remove(&after.address);
                range.size += after.size;
                self.total -= after.size;
            }
        }
        self.total = self.total.saturating_add(range.size);
        self.by_address.insert(range.address, range);
    }

    /// Takes away whatever lies from `start` up to `end`.
    fn cut(&mut self, start: u64, end: u64) {
        while let Some(range) = self.by_address.range(..end).next_back().map(|(_, range)| *range) {
            if range.end() <= start {
                return;
            }
            self.by_address.remove(&range.address);
            self.total -= range.size;
            for (from, to) in [(range.address, start), (end, range.end())] {
                if from < to {
                    self.total += to - from;
                    self.by_address.insert(from, Range { address: from, size: to - from, ..range });
                }
            }
        }
    }

    /// Bytes in all ranges.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// All ranges by address.
    pub fn iter(&self) -> impl Iterator<Item = &Range> {
        self.by_address.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oomph_trace::{StackId, StringId};

    fn event(action: Action, address: u64, size: u64) -> Event {
        Event { action, address, size, stream: 0, pool: None, stack: StackId::NONE, time_us: 0, label: StringId::EMPTY }
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_is_undone_is_as_before() {
        let mut ranges = Ranges::default();
        let events = [
            event(Action::SegmentAlloc, 100 * MIB, 20 * MIB),
            event(Action::SegmentMap, 200 * MIB, 20 * MIB),
            event(Action::SegmentMap, 220 * MIB, 40 * MIB),
            event(Action::SegmentUnmap, 220 * MIB, 20 * MIB),
            event(Action::SegmentFree, 100 * MIB, 20 * MIB),
        ];
        let mut states = Vec::new();
        for event in &events {
            states.push(ranges.iter().copied().collect::<Vec<_>>());
            ranges.apply(event, PoolId::DEFAULT, Direction::Forward);
        }
        assert_eq!(ranges.total(), 40 * MIB);
        assert_eq!(ranges.iter().map(|range| range.address / MIB).collect::<Vec<_>>(), [200, 240]);
        for event in events.iter().rev() {
            ranges.apply(event, PoolId::DEFAULT, Direction::Backward);
            assert_eq!(ranges.iter().copied().collect::<Vec<_>>(), states.pop().unwrap());
        }
        assert_eq!(ranges.total(), 0);
    }

    #[test]
    fn overlapping_segments_never_count_twice() {
        let mut ranges = Ranges::default();
        ranges.apply(&event(Action::SegmentAlloc, 0, 40 * MIB), PoolId::DEFAULT, Direction::Forward);
        ranges.apply(&event(Action::SegmentAlloc, 10 * MIB, 20 * MIB), PoolId::DEFAULT, Direction::Forward);
        ranges.apply(&event(Action::SegmentAlloc, u64::MAX - MIB, 20 * MIB), PoolId::DEFAULT, Direction::Forward);
        assert_eq!(ranges.total(), 41 * MIB);
        assert_eq!(ranges.iter().map(|range| range.size / MIB).collect::<Vec<_>>(), [10, 20, 10, 1]);
    }
}
