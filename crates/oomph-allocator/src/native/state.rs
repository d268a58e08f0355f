//! The contents of an allocator at one moment, as data.

use oomph_trace::{Action, PoolId};

use super::block::{Block, BlockId, NATIVE, Use};
use super::expandable::Reservation;
use super::{Native, key};
use crate::driver::{Card, Driver};

pub use oomph_trace::BlockState as BlockUse;

/// Segments and blocks at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// In the order of addresses.
    pub segments: Vec<SegmentState>,
}

/// One segment: a `cudaMalloc`, or one mapped range of an expandable segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentState {
    /// Where it starts.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The stream that it serves.
    pub stream: u64,
    /// Whether it belongs to the pool of blocks above 1 MiB.
    pub large: bool,
    /// The pool.
    pub pool: PoolId,
    /// Where its range of reserved addresses starts; `None` for a native segment.
    pub reservation: Option<u64>,
    /// Its blocks in the order of addresses. Together they are the segment.
    pub blocks: Vec<BlockState>,
}

/// One block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockState {
    /// Where it starts.
    pub address: u64,
    /// Its size in bytes, rounding and slack included.
    pub size: u64,
    /// What the program asked for, in bytes; 0 for a free block.
    pub requested: u64,
    /// Whether it is in use.
    pub state: BlockUse,
}

impl State {
    /// Bytes in all segments.
    pub fn reserved(&self) -> u64 {
        self.segments.iter().map(|segment| segment.size).fold(0, u64::saturating_add)
    }

    /// The blocks that are in use, in the order of addresses.
    pub fn active(&self) -> impl Iterator<Item = (&SegmentState, &BlockState)> {
        self.segments
            .iter()
            .flat_map(|segment| segment.blocks.iter().map(move |block| (segment, block)))
            .filter(|(_, block)| block.state != BlockUse::Inactive)
    }
}

/// Address space of an expandable segment whose size nobody recorded: more than any card has.
const UNKNOWN_RESERVATION: u64 = 1 << 42;

impl<D: Driver> Native<D> {
    /// What it holds, in the order of addresses.
    pub fn state(&self) -> State {
        let mut heads: Vec<(u64, BlockId)> = self
            .blocks
            .iter()
            .filter(|(_, block)| block.is_mapped())
            .filter(|(_, block)| block.previous.some().is_none_or(|previous| !self.blocks.at(previous).is_mapped()))
            .map(|(id, block)| (block.address, id))
            .collect();
        heads.sort_unstable();
        let segments = heads.into_iter().map(|(_, head)| self.segment_of(head)).collect();
        State { segments }
    }

    fn segment_of(&self, head: BlockId) -> SegmentState {
        let first = *self.blocks.at(head);
        let pool = &self.pools[first.pool as usize];
        let mut segment = SegmentState {
            address: first.address,
            size: 0,
            stream: self.streams[first.stream as usize],
            large: !pool.small,
            pool: pool.id,
            reservation: self.reservations.get(first.reservation as usize).map(|reservation| reservation.base),
            blocks: Vec::new(),
        };
        let mut at = Some(head);
        while let Some(id) = at
            && self.blocks.at(id).is_mapped()
        {
            let block = self.blocks.at(id);
            segment.size += block.size;
            let (state, requested) = match block.state {
                Use::Allocated => (BlockUse::ActiveAllocated, block.requested),
                Use::Pending => (BlockUse::ActivePendingFree, block.requested),
                _ => (BlockUse::Inactive, 0),
            };
            segment.blocks.push(BlockState { address: block.address, size: block.size, requested, state });
            at = block.next.some();
        }
        segment
    }

    /// Adopts segments and blocks, and returns the blocks in use with their addresses. Segments that lie inside
    /// another one, and blocks that do not fit into theirs, are left out.
    pub fn adopt(&mut self, state: &State) -> Vec<(u64, BlockId)> {
        let mut active = Vec::new();
        let mut end = 0;
        let mut ordered: Vec<&SegmentState> = state.segments.iter().collect();
        ordered.sort_by_key(|segment| segment.address);
        let mut open: Option<(u64, BlockId)> = None;
        for (index, segment) in ordered.iter().enumerate() {
            let segment_end = segment.address.checked_add(segment.size);
            let Some(segment_end) = segment_end.filter(|_| segment.size > 0 && segment.address >= end) else {
                continue;
            };
            let stream = self.stream_index(segment.stream);
            let pool = self.pool_index(segment.pool) + u16::from(segment.large);
            let page = self.settings.page(!segment.large);
            let id = match segment.reservation {
                None => {
                    open = None;
                    self.statistics.segments.add(1);
                    let order = self.next_order();
                    self.blocks.insert(blank(segment, stream, pool, order, NATIVE))
                }
                Some(base) => {
                    let tail = match open {
                        Some((known, tail)) if known == base => tail,
                        _ => {
                            let base = base.min(segment.address).max(end);
                            // Nothing may begin inside the range that another segment has.
                            let next = ordered[index + 1..].iter().find(|next| next.reservation != segment.reservation);
                            let room = next.map_or(UNKNOWN_RESERVATION, |next| next.address.saturating_sub(base));
                            let full = self.total.saturating_add(self.total / 8).div_ceil(page).saturating_mul(page);
                            let least = segment_end - base;
                            let size = full.min(UNKNOWN_RESERVATION).min(room).max(least);
                            self.add_reservation(Reservation { base, size, page }, stream, pool)
                        }
                    };
                    let (id, tail) = self.carve(tail, segment);
                    open = tail.map(|tail| (base, tail));
                    id
                }
            };
            end = segment_end;
            self.statistics.reserve(segment.size);
            self.cut(id, segment, &mut active);
        }
        self.statistics.look_for_peak();
        active
    }

    /// Cuts a mapped range out of the unmapped block that ends its reservation. Returns the range, and the unmapped
    /// block after it where one is left.
    fn carve(&mut self, tail: BlockId, segment: &SegmentState) -> (BlockId, Option<BlockId>) {
        let whole = *self.blocks.at(tail);
        let shelf = |native: &mut Self, id: BlockId, address: u64| {
            native.pools[whole.pool as usize].shelf_mut(whole.stream).unmapped.insert((address, id));
        };
        self.pools[whole.pool as usize].shelf_mut(whole.stream).unmapped.remove(&(whole.address, tail));
        // A later range can lie outside a reservation whose size was a guess; the reservation then grows.
        let end = whole.end().max(segment.address.saturating_add(segment.size));
        let mut middle = Block { address: segment.address, size: segment.size, state: Use::Free, ..whole };
        let id = if segment.address > whole.address {
            let id = self.blocks.insert(middle);
            let before = self.blocks.at_mut(tail);
            before.size = segment.address - whole.address;
            before.next = id;
            middle.previous = tail;
            shelf(self, tail, whole.address);
            id
        } else {
            tail
        };
        let after = (end > middle.end()).then(|| {
            let after = Block { address: middle.end(), size: end - middle.end(), previous: id, ..whole };
            let after_id = self.blocks.insert(after);
            shelf(self, after_id, after.address);
            after_id
        });
        middle.next = after.unwrap_or(BlockId::NONE);
        *self.blocks.at_mut(id) = middle;
        (id, after)
    }

    /// Cuts a block that is a whole segment into the segment's blocks.
    fn cut(&mut self, whole: BlockId, segment: &SegmentState, active: &mut Vec<(u64, BlockId)>) {
        let template = *self.blocks.at(whole);
        let mut pieces: Vec<(u64, u64, Use, u64)> = Vec::new();
        let mut at = segment.address;
        let free = |pieces: &mut Vec<_>, from: u64, to: u64| {
            if to > from {
                pieces.push((from, to - from, Use::Free, 0));
            }
        };
        for block in &segment.blocks {
            let state = match block.state {
                BlockUse::ActiveAllocated => Use::Allocated,
                BlockUse::ActivePendingFree => Use::Pending,
                BlockUse::Inactive => continue,
            };
            let Some(end) = block.address.checked_add(block.size) else { continue };
            if block.size == 0 || block.address < at || end > template.end() {
                continue;
            }
            free(&mut pieces, at, block.address);
            pieces.push((block.address, block.size, state, block.requested));
            at = end;
        }
        free(&mut pieces, at, template.end());
        let (mut previous, mut id) = (template.previous, whole);
        let count = pieces.len();
        for (index, (address, size, state, requested)) in pieces.into_iter().enumerate() {
            let block = Block { address, size, state, requested, previous, next: BlockId::NONE, ..template };
            if index > 0 {
                id = self.blocks.insert(block);
                self.blocks.at_mut(previous).next = id;
            } else {
                *self.blocks.at_mut(id) = block;
            }
            if index + 1 == count {
                self.blocks.at_mut(id).next = template.next;
                if let Some(next) = template.next.some() {
                    self.blocks.at_mut(next).previous = id;
                }
            }
            match state {
                Use::Free => {
                    let key = key(id, self.blocks.at(id));
                    self.pools[template.pool as usize].shelf_mut(template.stream).free.insert(key);
                }
                Use::Allocated => self.statistics.allocate(size, requested),
                _ => {
                    self.statistics.active.add(size);
                    self.statistics.requested.add(requested);
                    self.pending.push(id);
                }
            }
            if state != Use::Free {
                active.push((address, id));
            }
            previous = id;
        }
    }

    /// The block that the trace says was allocated at an address, forced out of whatever free block it lies in: what a
    /// check does after a mismatch, to go on from the recorded state. `None` if nothing free lies there.
    pub(crate) fn force(&mut self, address: u64, bytes: u64) -> Option<BlockId> {
        let end = address.checked_add(self.settings.round(bytes))?;
        let lies_there = |block: &Block| block.state == Use::Free && block.address <= address && end <= block.end();
        let (id, _) = self.blocks.iter().find(|(_, block)| lies_there(block))?;
        self.force_in(id, address, bytes)
    }

    /// [`force`](Self::force) out of a block that is known.
    pub(crate) fn force_in(&mut self, id: BlockId, address: u64, bytes: u64) -> Option<BlockId> {
        let size = self.settings.round(bytes);
        let block = self.blocks.get(id).filter(|block| block.state == Use::Free && block.address <= address)?;
        address.checked_add(size).filter(|&end| end <= block.end())?;
        let whole = *self.blocks.at(id);
        self.pools[whole.pool as usize].remove(id, &whole);
        let mut id = id;
        if whole.address < address {
            let upper = Block { address, size: whole.end() - address, previous: id, ..whole };
            let upper_id = self.blocks.insert(upper);
            let lower = self.blocks.at_mut(id);
            lower.size = address - whole.address;
            lower.next = upper_id;
            self.pools[whole.pool as usize].insert(id, self.blocks.at_mut(id));
            if let Some(next) = whole.next.some() {
                self.blocks.at_mut(next).previous = upper_id;
            }
            id = upper_id;
        }
        let expandable = whole.is_expandable();
        let (stream, pool) = (whole.stream, whole.pool);
        let request = super::Request { bytes, size, segment: 0, stream, pool, expandable, grows: expandable };
        Some(self.hand_out(id, &request))
    }

    /// A segment that the trace took and the model did not ask for, as one free block.
    pub(crate) fn force_segment(&mut self, segment: &SegmentState) -> Option<BlockId> {
        segment.address.checked_add(segment.size).filter(|_| segment.size > 0)?;
        let stream = self.stream_index(segment.stream);
        let pool = self.pool_index(segment.pool) + u16::from(segment.large);
        let order = self.next_order();
        let id = self.blocks.insert(blank(segment, stream, pool, order, NATIVE));
        let block = self.blocks.at_mut(id);
        self.pools[pool as usize].insert(id, block);
        self.statistics.reserve(segment.size);
        self.statistics.segments.add(1);
        self.emit(Action::SegmentAlloc, segment.address, segment.size, stream, pool);
        Some(id)
    }
}

impl Native<Card> {
    /// Begins with a recorded state, on a card that holds nothing else. Returns the blocks in use and their addresses.
    pub fn resume(&mut self, state: &State) -> Vec<(u64, BlockId)> {
        let active = self.adopt(state);
        let end = self.blocks.iter().map(|(_, block)| block.end()).max().unwrap_or(0);
        self.driver.take_recorded(self.statistics.reserved.current, end);
        active
    }
}

fn blank(segment: &SegmentState, stream: u16, pool: u16, order: u32, reservation: u32) -> Block {
    Block {
        address: segment.address,
        size: segment.size,
        requested: 0,
        searches: 0,
        previous: BlockId::NONE,
        next: BlockId::NONE,
        order,
        reservation,
        stream,
        pool,
        state: Use::Free,
        used_elsewhere: false,
    }
}
