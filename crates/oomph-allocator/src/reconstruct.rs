//! Reconstructs the state before a trace's first event from the state at its end.

use std::collections::BTreeMap;

use oomph_trace::{Action, BlockState as BlockUse, Device, Event, PoolId};

use crate::addresses::AddressMap;
use crate::native::{BlockState, SegmentState, State};
use crate::settings::Settings;
use crate::size::{SMALL_SEGMENT, SMALL_SIZE};

/// The state of a device before its first event.
///
/// The events are undone one by one from the end state. That gives the segments and the blocks in use exactly, except
/// the size of a block that was there before the first event and was freed since: it is the rounded request, and a gap
/// of at most 1 MiB to the next block in a large native segment belongs to it as well, because PyTorch never splits off
/// so little there.
///
/// `settings` are those that the program ran with. Events that contradict what is known are passed over.
pub fn start_state(device: &Device, settings: &Settings) -> State {
    let mut rewind = Rewind::at_end(device);
    for event in device.events.iter().rev() {
        rewind.undo(&event);
    }
    rewind.state(settings)
}

#[derive(Clone, Copy)]
struct Segment {
    size: u64,
    stream: u64,
    /// `None` until a block shows it.
    large: Option<bool>,
    pool: PoolId,
    expandable: bool,
}

#[derive(Clone, Copy)]
struct Active {
    /// `None` for a block that the end state does not hold.
    size: Option<u64>,
    requested: u64,
    state: BlockUse,
}

/// The state before the event that was undone last.
struct Rewind {
    segments: BTreeMap<u64, Segment>,
    active: AddressMap<Active>,
}

impl Rewind {
    fn at_end(device: &Device) -> Self {
        let mut rewind = Self { segments: BTreeMap::new(), active: AddressMap::default() };
        for segment in &device.segments {
            rewind.segments.insert(
                segment.address,
                Segment {
                    size: segment.total_size,
                    stream: segment.stream,
                    large: Some(segment.large),
                    pool: segment.pool,
                    expandable: segment.expandable,
                },
            );
            for block in device.blocks_of(segment).iter().filter(|block| block.state != BlockUse::Inactive) {
                let active = Active { size: Some(block.size), requested: block.requested, state: block.state };
                rewind.active.insert(block.address, active);
            }
        }
        rewind
    }

    fn undo(&mut self, event: &Event) {
        match event.action {
            Action::Alloc => {
                self.active.remove(&event.address);
            }
            Action::FreeCompleted => {
                let state = BlockUse::ActivePendingFree;
                self.active.insert(event.address, Active { size: None, requested: event.size, state });
            }
            Action::FreeRequested => {
                let state = BlockUse::ActiveAllocated;
                self.active.entry(event.address).and_modify(|active| active.state = state).or_insert(Active {
                    size: None,
                    requested: event.size,
                    state,
                });
            }
            Action::SegmentAlloc => {
                self.segments.remove(&event.address);
            }
            Action::SegmentFree => {
                let large = Some(event.size != SMALL_SEGMENT);
                self.segments.insert(event.address, self.segment(event, large, false));
            }
            Action::SegmentMap => self.cut(event.address, event.size),
            Action::SegmentUnmap => self.join(event),
            Action::Oom | Action::Snapshot | Action::Annotate | Action::Other => {}
        }
    }

    fn segment(&self, event: &Event, large: Option<bool>, expandable: bool) -> Segment {
        let pool = event.pool.unwrap_or_default();
        Segment { size: event.size, stream: event.stream, large, pool, expandable }
    }

    /// Takes a range out of the expandable segment that it lies in.
    fn cut(&mut self, address: u64, size: u64) {
        let Some((&start, &segment)) = self.segments.range(..=address).next_back() else { return };
        let end = start.saturating_add(segment.size);
        let cut_end = address.saturating_add(size);
        if !segment.expandable || cut_end > end {
            return;
        }
        self.segments.remove(&start);
        if start < address {
            self.segments.insert(start, Segment { size: address - start, ..segment });
        }
        if cut_end < end {
            self.segments.insert(cut_end, Segment { size: end - cut_end, ..segment });
        }
    }

    /// Puts a range back and joins it with the adjacent mapped ranges.
    fn join(&mut self, event: &Event) {
        let mut joined = self.segment(event, None, true);
        let mut start = event.address;
        if event.address.checked_add(event.size).is_none() {
            return;
        }
        let alike = |segment: &Segment| segment.expandable && segment.stream == event.stream;
        if let Some((&before, segment)) = self.segments.range(..start).next_back()
            && alike(segment)
            && before.saturating_add(segment.size) == start
        {
            joined = Segment { size: segment.size.saturating_add(joined.size), ..*segment };
            self.segments.remove(&before);
            start = before;
        }
        let end = start.saturating_add(joined.size);
        if let Some(segment) = self.segments.get(&end).copied()
            && alike(&segment)
        {
            let size = joined.size.saturating_add(segment.size);
            joined = Segment { size, large: joined.large.or(segment.large), pool: segment.pool, ..joined };
            self.segments.remove(&end);
        }
        self.segments.insert(start, joined);
    }

    fn state(self, settings: &Settings) -> State {
        let mut active: Vec<(u64, Active)> = self.active.into_iter().collect();
        active.sort_unstable_by_key(|(address, _)| *address);
        let mut active = active.into_iter().peekable();
        let mut segments: Vec<SegmentState> = Vec::with_capacity(self.segments.len());
        for (address, segment) in self.segments {
            let Some(end) = address.checked_add(segment.size) else { continue };
            if segments.last().is_some_and(|last| last.address + last.size > address) {
                continue;
            }
            let mut blocks: Vec<(u64, Active)> = Vec::new();
            while let Some(block) = active.next_if(|(at, _)| *at < end) {
                if block.0 >= address {
                    blocks.push(block);
                }
            }
            let large = segment.large.unwrap_or_else(|| {
                let shown = blocks.first().map(|(_, block)| settings.round(block.requested) > SMALL_SIZE);
                shown.unwrap_or(segment.size.is_multiple_of(settings.large_segment_size))
            });
            segments.push(SegmentState {
                address,
                size: segment.size,
                stream: segment.stream,
                large,
                pool: segment.pool,
                reservation: segment.expandable.then_some(address),
                blocks: lay_out(address, end, &blocks, large && !segment.expandable, settings),
            });
        }
        share_reservations(&mut segments);
        State { segments }
    }
}

/// The blocks of a segment, with the free ones between those in use.
fn lay_out(start: u64, end: u64, active: &[(u64, Active)], slack: bool, settings: &Settings) -> Vec<BlockState> {
    let mut blocks = Vec::with_capacity(active.len() * 2 + 1);
    let mut at = start;
    let free = |blocks: &mut Vec<BlockState>, from: u64, to: u64| {
        if to > from {
            blocks.push(BlockState { address: from, size: to - from, requested: 0, state: BlockUse::Inactive });
        }
    };
    for (index, &(address, block)) in active.iter().enumerate() {
        if address < at {
            continue;
        }
        let room = active.get(index + 1).map_or(end, |next| next.0).max(address) - address;
        let size = block.size.unwrap_or_else(|| {
            let size = settings.round(block.requested);
            // Above the limit a block is never split: it has its segment to itself.
            let unsplit = size >= settings.max_split_size;
            if slack && (unsplit || room.saturating_sub(size) <= SMALL_SIZE) { room } else { size }
        });
        let size = size.min(room);
        if size == 0 {
            continue;
        }
        free(&mut blocks, at, address);
        blocks.push(BlockState { address, size, requested: block.requested, state: block.state });
        at = address + size;
    }
    free(&mut blocks, at, end);
    blocks
}

/// Mapped ranges of one stream, pool and size class lie in one range of reserved addresses, because PyTorch opens
/// another only when the first is full.
fn share_reservations(segments: &mut [SegmentState]) {
    let mut bases: BTreeMap<(u64, PoolId, bool), u64> = BTreeMap::new();
    for segment in segments.iter_mut().filter(|segment| segment.reservation.is_some()) {
        let base = *bases.entry((segment.stream, segment.pool, segment.large)).or_insert(segment.address);
        segment.reservation = Some(base);
    }
}
