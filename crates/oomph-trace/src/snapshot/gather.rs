//! Gathers the parts of a snapshot while it is read, and makes the trace of them.

use std::ops::Range;

use super::keys::{self, *};
use crate::intern::WholeStacks;
use crate::{
    Action, Annotation, Block, BlockState, Device, DeviceKind, Event, Events, Frame, FrameId, Frames, Note, PoolId,
    Segment, Settings, SourceKind, StackId, Stacks, StringId, Strings, Trace,
};

/// The records of a snapshot in the order of the file, whosever they are.
#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) strings: Strings,
    pub(super) frames: Frames,
    pub(super) stacks: Stacks,
    pub(super) whole_stacks: WholeStacks,
    pub(super) events: Events,
    pub(super) segments: Vec<GatheredSegment>,
    pub(super) blocks: Vec<GatheredBlock>,
    pub(super) annotations: Vec<Annotation>,
    pub(super) notes: Vec<Note>,
    /// Actions that were noted as unknown.
    unknown_actions: Vec<StringId>,
}

/// A segment, and whose it is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GatheredSegment {
    pub(super) device: u32,
    /// Its blocks are numbered as in [`Gathered::blocks`].
    pub(super) segment: Segment,
}

/// A block. PyTorch 2.0 and before wrote no addresses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GatheredBlock {
    pub(super) block: Block,
    pub(super) has_address: bool,
}

/// Which records are whose, by runs of their numbers.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) events: Vec<(DeviceKind, u32, Vec<Range<u32>>)>,
    pub(super) segments: Vec<Range<u32>>,
    pub(super) host_segments: Vec<Range<u32>>,
    pub(super) annotations: Vec<Range<u32>>,
    pub(super) settings: Settings,
}

/// The texts of an event, for its label.
#[derive(Clone, Copy, Default)]
pub(super) struct Labels {
    pub(super) user: Option<StringId>,
    pub(super) compile: Option<StringId>,
    pub(super) other: Option<StringId>,
}

impl Labels {
    /// What the program said goes before what the compiler or the allocator said.
    pub(super) fn chosen(self) -> StringId {
        let said = |id: &StringId| *id != StringId::EMPTY && *id != NOT_APPLICABLE;
        [self.user, self.compile, self.other].into_iter().flatten().find(said).unwrap_or(StringId::EMPTY)
    }
}

impl Gathered {
    pub(super) fn new() -> Self {
        Self {
            strings: keys::strings(),
            frames: Frames::default(),
            stacks: Stacks::default(),
            whole_stacks: WholeStacks::default(),
            events: Events::default(),
            segments: Vec::new(),
            blocks: Vec::new(),
            annotations: Vec::new(),
            notes: Vec::new(),
            unknown_actions: Vec::new(),
        }
    }

    /// The action of a name. A name that is not known is noted once.
    pub(super) fn action(&mut self, name: StringId) -> Action {
        match name {
            ALLOC => Action::Alloc,
            FREE_REQUESTED => Action::FreeRequested,
            FREE_COMPLETED => Action::FreeCompleted,
            SEGMENT_ALLOC => Action::SegmentAlloc,
            SEGMENT_FREE => Action::SegmentFree,
            SEGMENT_MAP => Action::SegmentMap,
            SEGMENT_UNMAP => Action::SegmentUnmap,
            OOM => Action::Oom,
            SNAPSHOT => Action::Snapshot,
            ANNOTATE => Action::Annotate,
            unknown => {
                // A file of nothing but new names is not PyTorch's; sixteen are enough to say so.
                if self.unknown_actions.len() < 16 && !self.unknown_actions.contains(&unknown) {
                    self.unknown_actions.push(unknown);
                    let text = format!("the action {:?} is not known and was passed over", self.strings.get(unknown));
                    self.notes.push(Note { offset: None, text });
                }
                Action::Other
            }
        }
    }

    pub(super) fn frame(&mut self, name: StringId, file: StringId, line: i64) -> FrameId {
        let line = u32::try_from(line.max(0)).unwrap_or(u32::MAX);
        self.frames.intern(Frame { name, file, line })
    }

    pub(super) fn stack(&mut self, innermost_first: &[FrameId]) -> StackId {
        self.whole_stacks.intern(&mut self.stacks, innermost_first)
    }

    pub(super) fn push_event(&mut self, event: Event) -> u32 {
        self.events.push(event);
        (self.events.len() - 1) as u32
    }

    pub(super) fn push_block(&mut self, block: GatheredBlock) -> u32 {
        self.blocks.push(block);
        (self.blocks.len() - 1) as u32
    }

    pub(super) fn state(name: StringId) -> BlockState {
        match name {
            ACTIVE_ALLOCATED => BlockState::ActiveAllocated,
            ACTIVE_PENDING_FREE | ACTIVE_AWAITING_FREE => BlockState::ActivePendingFree,
            _ => BlockState::Inactive,
        }
    }

    /// About how many bytes of memory the records hold.
    pub(super) fn held(&self) -> usize {
        self.strings.held()
            + self.frames.held()
            + self.stacks.held()
            + self.whole_stacks.held()
            + self.events.held()
            + self.segments.capacity() * size_of::<GatheredSegment>()
            + self.blocks.capacity() * size_of::<GatheredBlock>()
            + self.annotations.capacity() * size_of::<Annotation>()
    }

    /// The trace.
    pub(super) fn into_trace(mut self, layout: Layout) -> Trace {
        let mut devices: Vec<Device> = Vec::new();
        for (kind, index, runs) in layout.events {
            let events = self.take_events(&runs);
            if !events.is_empty() {
                device(&mut devices, kind, index).events = events;
            }
        }
        for (kind, runs) in [(DeviceKind::Cuda, layout.segments), (DeviceKind::PinnedHost, layout.host_segments)] {
            for segment in records(&self.segments, &runs) {
                let index = if kind == DeviceKind::PinnedHost { 0 } else { segment.device };
                let blocks = &self.blocks[segment.segment.first_block as usize..segment.segment.end_block as usize];
                place(device(&mut devices, kind, index), segment.segment, blocks);
            }
        }
        devices.sort_by_key(|device| (device.kind, device.index));
        let mut annotations: Vec<Annotation> = records(&self.annotations, &layout.annotations).copied().collect();
        annotations.sort_by_key(|annotation| annotation.time_us);
        Trace {
            source: SourceKind::Snapshot,
            strings: self.strings,
            frames: self.frames,
            stacks: self.stacks,
            devices,
            settings: layout.settings,
            annotations,
            notes: self.notes,
        }
    }

    /// The events of some runs: moved where they are all there are, copied otherwise.
    fn take_events(&mut self, runs: &[Range<u32>]) -> Events {
        match runs {
            [all] if all.start == 0 && all.end as usize == self.events.len() => std::mem::take(&mut self.events),
            _ => self.events.select(runs),
        }
    }
}

/// The records of some runs.
fn records<'a, T>(all: &'a [T], runs: &'a [Range<u32>]) -> impl Iterator<Item = &'a T> {
    runs.iter().filter_map(|run| all.get(run.start as usize..run.end as usize)).flatten()
}

/// The device of this kind and index, which is made if it is new.
fn device(devices: &mut Vec<Device>, kind: DeviceKind, index: u32) -> &mut Device {
    // Segments come device by device, so that the one looked for is nearly always the last.
    let found = devices.iter().rposition(|device| device.kind == kind && device.index == index);
    let at = found.unwrap_or_else(|| {
        devices.push(Device { kind, index, ..Device::default() });
        devices.len() - 1
    });
    &mut devices[at]
}

/// Adds a segment and its blocks to a device.
fn place(device: &mut Device, mut segment: Segment, blocks: &[GatheredBlock]) {
    segment.first_block = device.blocks.len() as u32;
    let mut next = segment.address;
    for gathered in blocks {
        let mut block = gathered.block;
        if !gathered.has_address {
            // Blocks follow each other without gaps, so that the sizes before one give its address.
            block.address = next;
        }
        next = block.address.saturating_add(block.size);
        device.blocks.push(block);
    }
    segment.end_block = device.blocks.len() as u32;
    device.segments.push(segment);
}

/// What an event's pool is called in the file: a pair of numbers.
pub(super) fn pool(pair: Option<(u64, u64)>) -> Option<PoolId> {
    pair.map(|(capture, user)| PoolId(capture, user))
}
