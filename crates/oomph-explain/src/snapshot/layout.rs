//! What lies where at one moment: segments, the live blocks in them, and the gaps between these.
//!
//! Whatever a file says, the bytes of the pieces and of the gaps of a segment add up to the segment: overlapping blocks
//! are cut, and blocks outside of every segment get one of their own.

use super::lifetimes::Position;
use super::segments::Range;
use super::timeline::Timeline;

/// A part of a segment that one live block takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Index of the lifetime.
    pub block: u32,
    /// Bytes taken.
    pub bytes: u64,
    /// Of these, bytes that the program asked for.
    pub requested: u64,
}

/// A segment at one moment.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub range: Range,
    /// Bytes in no block.
    pub free: u64,
    /// The largest gap.
    pub largest_gap: u64,
    pub first_piece: usize,
    pub end_piece: usize,
}

/// All segments at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    pub segments: Vec<Held>,
    pub pieces: Vec<Piece>,
}

impl Layout {
    /// The state of a device at a position.
    pub fn at(timeline: &Timeline, position: Position) -> Self {
        let mut live: Vec<u32> = timeline.living_at(position).collect();
        let block = |index: u32| &timeline.lifetimes[index as usize];
        live.sort_unstable_by_key(|&index| block(index).address);
        let segments = timeline.segments_at(position);
        let mut layout = Layout::default();
        let mut next = 0;
        for range in segments.iter() {
            while next < live.len() && block(live[next]).address < range.address {
                layout.outside(timeline, live[next], range.address);
                next += 1;
            }
            let first = next;
            while next < live.len() && block(live[next]).address < range.end() {
                next += 1;
            }
            layout.fill(timeline, *range, &live[first..next]);
        }
        for &index in &live[next..] {
            layout.outside(timeline, index, u64::MAX);
        }
        layout
    }

    /// A block that starts in no segment: the file records none, or contradicts itself. It ends where the next segment
    /// begins.
    fn outside(&mut self, timeline: &Timeline, index: u32, limit: u64) {
        let block = &timeline.lifetimes[index as usize];
        let from = self.segments.last().map_or(0, |held| held.range.end()).max(block.address);
        let range = Range {
            address: from,
            size: block.address.saturating_add(block.size).min(limit).saturating_sub(from),
            stream: block.stream,
            large: block.size > 1 << 20,
            pool: block.pool,
            expandable: false,
        };
        self.fill(timeline, range, &[index]);
    }

    fn fill(&mut self, timeline: &Timeline, range: Range, live: &[u32]) {
        let first_piece = self.pieces.len();
        let (mut free, mut largest_gap, mut cursor) = (0, 0, range.address);
        for &index in live {
            let block = &timeline.lifetimes[index as usize];
            let start = block.address.max(cursor);
            let end = block.address.saturating_add(block.size).min(range.end());
            if end <= start {
                continue;
            }
            let (gap, bytes) = (start - cursor, end - start);
            free += gap;
            largest_gap = gap.max(largest_gap);
            self.pieces.push(Piece { block: index, bytes, requested: block.requested.min(bytes) });
            cursor = end;
        }
        free += range.end() - cursor;
        largest_gap = largest_gap.max(range.end() - cursor);
        let end_piece = self.pieces.len();
        if range.size > 0 {
            self.segments.push(Held { range, free, largest_gap, first_piece, end_piece });
        }
    }

    /// Bytes taken from the driver.
    pub fn reserved(&self) -> u64 {
        self.segments.iter().fold(0, |sum: u64, held| sum.saturating_add(held.range.size))
    }

    /// The pieces of a segment.
    pub fn pieces_of(&self, held: &Held) -> &[Piece] {
        self.pieces.get(held.first_piece..held.end_piece).unwrap_or(&[])
    }
}
