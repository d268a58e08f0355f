//! Recordings made by hand, with the end state that follows from their events.

// Each test file uses some of it.
#![allow(dead_code)]

pub mod programs;

use std::collections::BTreeMap;

use oomph_explain::snapshot::{CauseKind, DeviceExplanation, Options, Owner, explain};
use oomph_trace::{
    Action, Annotation, Block, BlockState, Device, Event, Frame, PoolId, Segment, StackId, Stage, StringId, Trace,
};

/// One mebibyte.
pub const MIB: u64 = 1 << 20;

/// The outermost frame of a program.
pub const MAIN: (&str, &str) = ("train.py", "<module>");
/// A file of PyTorch, as a stack has it.
pub const MODULE: &str = "/v/site-packages/torch/nn/modules/module.py";
/// Another one.
pub const OPTIMIZER: &str = "/v/site-packages/torch/optim/optimizer.py";

/// The explanation of the only card, whose owners and causes add up.
pub fn device(trace: &Trace, options: &Options) -> DeviceExplanation {
    let device = explain(trace, options, None).devices.remove(0);
    let total = device.card.map_or(device.peak.reserved_bytes, |card| card.capacity_bytes);
    assert_eq!(device.owners.iter().map(|row| row.bytes).sum::<u64>(), total, "the owners add up");
    assert_eq!(device.causes.iter().map(|cause| cause.bytes).sum::<u64>(), total, "the causes add up");
    device
}

/// What an owner holds.
pub fn owned(device: &DeviceExplanation, owner: Owner) -> u64 {
    device.owners.iter().find(|row| row.owner == owner).map_or(0, |row| row.bytes)
}

/// What a cause accounts for.
pub fn caused(device: &DeviceExplanation, cause: CauseKind) -> Option<u64> {
    device.causes.iter().find(|row| row.cause == cause).map(|cause| cause.bytes)
}

/// Writes a recording of one device.
#[derive(Default)]
pub struct Recording {
    trace: Trace,
    device: Device,
    time_us: i64,
    live: BTreeMap<u64, (u64, StackId)>,
    segments: BTreeMap<u64, (u64, u64)>,
    /// The stream of what follows.
    pub stream: u64,
}

impl Recording {
    /// A stack of frames (file, function), the outermost first.
    pub fn stack(&mut self, frames: &[(&str, &str)]) -> StackId {
        let trace = &mut self.trace;
        let ids: Vec<_> = frames
            .iter()
            .enumerate()
            .map(|(line, (file, name))| {
                let (name, file) = (trace.strings.intern(name), trace.strings.intern(file));
                trace.frames.intern(Frame { name, file, line: line as u32 + 1 })
            })
            .collect();
        trace.stacks.intern(ids)
    }

    fn event(&mut self, action: Action, address: u64, size: u64, stack: StackId) {
        self.time_us += 1;
        self.device.events.push(Event {
            action,
            address,
            size,
            stream: self.stream,
            pool: Some(PoolId::DEFAULT),
            stack,
            time_us: self.time_us,
            label: StringId::EMPTY,
        });
    }

    /// Takes a segment from the driver.
    pub fn segment(&mut self, address: u64, size: u64) {
        self.segments.insert(address, (size, self.stream));
        self.event(Action::SegmentAlloc, address, size, StackId::NONE);
    }

    /// Allocates a block.
    pub fn alloc(&mut self, address: u64, size: u64, stack: StackId) {
        self.live.insert(address, (size, stack));
        self.event(Action::Alloc, address, size, stack);
    }

    /// Takes a segment for one block, which fills it.
    pub fn hold(&mut self, address: u64, size: u64, stack: StackId) {
        self.segment(address, size);
        self.alloc(address, size, stack);
    }

    /// A block that was there before the recording.
    pub fn already(&mut self, segment: u64, segment_size: u64, size: u64) {
        self.segments.insert(segment, (segment_size, self.stream));
        self.live.insert(segment, (size, StackId::NONE));
    }

    /// Frees a block.
    pub fn free(&mut self, address: u64) {
        let (size, _) = self.live.remove(&address).expect("the block lives");
        self.event(Action::FreeRequested, address, size, StackId::NONE);
        self.event(Action::FreeCompleted, address, size, StackId::NONE);
    }

    /// Fails to allocate, with so much free on the card.
    pub fn oom(&mut self, size: u64, free: u64, stack: StackId) {
        self.event(Action::Oom, free, size, stack);
    }

    /// An end of a range that the program marked.
    pub fn mark(&mut self, name: &str, stage: Stage) {
        let name = self.trace.strings.intern(name);
        self.trace.annotations.push(Annotation { stage, name, device: 0, time_us: self.time_us });
    }

    /// How many events there are.
    pub fn len(&self) -> u64 {
        self.device.events.len() as u64
    }

    /// The recording, with the end state that its events lead to. A block takes what is left of its segment when that is
    /// at most 1 MiB.
    pub fn finish(mut self) -> Trace {
        for (&address, &(total_size, stream)) in &self.segments {
            let first_block = self.device.blocks.len() as u32;
            let mut cursor = address;
            let end = address + total_size;
            let inside: Vec<_> = self.live.range(address..end).map(|(&at, &block)| (at, block)).collect();
            for (index, &(at, (requested, stack))) in inside.iter().enumerate() {
                if cursor < at {
                    self.device.blocks.push(Block { address: cursor, size: at - cursor, ..Block::default() });
                }
                let next = inside.get(index + 1).map_or(end, |(next, _)| *next);
                let rounded = requested.div_ceil(512) * 512;
                let large = total_size > 2 * MIB && rounded > MIB;
                let size = if large && next - at - rounded <= MIB { next - at } else { rounded };
                let state = BlockState::ActiveAllocated;
                self.device.blocks.push(Block { address: at, size, requested, state, stack });
                cursor = at + size;
            }
            if cursor < end {
                self.device.blocks.push(Block { address: cursor, size: end - cursor, ..Block::default() });
            }
            self.device.segments.push(Segment {
                address,
                total_size,
                stream,
                large: total_size > 2 * MIB,
                first_block,
                end_block: self.device.blocks.len() as u32,
                ..Segment::default()
            });
        }
        self.trace.devices.push(self.device);
        self.trace
    }
}
