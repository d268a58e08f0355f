//! The parts of a trace.

use crate::{Events, Frames, PoolId, StackId, Stacks, StringId, Strings};

/// Memory over time on every device that a file speaks of.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// What was read.
    pub source: SourceKind,
    /// Every string of the trace.
    pub strings: Strings,
    /// Every frame of the trace.
    pub frames: Frames,
    /// Every stack of the trace.
    pub stacks: Stacks,
    /// One entry for each device that has events or segments, by kind and index.
    pub devices: Vec<Device>,
    /// The allocator's settings, where the file holds them.
    pub settings: Settings,
    /// Named ranges of the program (`record_function`, optimizer steps, the hook's phases), in the order of time.
    pub annotations: Vec<Annotation>,
    /// What a reader had to leave out or repair; one sentence each.
    pub notes: Vec<Note>,
}

/// What a trace was read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceKind {
    /// `torch.cuda.memory._snapshot()`, of any generation.
    #[default]
    Snapshot,
    /// The virtual GPU's own log of device calls.
    VirtualGpu,
    /// A Kineto or Chrome profiler trace with `[memory]` instants.
    Profiler,
    /// `torch.profiler.export_memory_timeline`.
    Timeline,
}

/// Something that the reader wants the user to know about the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Offset in the (decompressed) file, in bytes, where there is one.
    pub offset: Option<u64>,
    /// One sentence, lowercase, without a full stop.
    pub text: String,
}

/// Whose memory a [`Device`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeviceKind {
    /// A CUDA card.
    #[default]
    Cuda,
    /// Pinned host memory (`host_segments` and `host_traces`, PyTorch 2.15).
    PinnedHost,
    /// Ordinary host memory, in profiler traces.
    Host,
}

/// One device: what happened, and what was live at the end.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// Card or host memory.
    pub kind: DeviceKind,
    /// The index as the program counts (`cuda:0` is 0).
    pub index: u32,
    /// What happened, oldest first. Empty when the history was not recorded.
    pub events: Events,
    /// What was allocated when the file was written, in the file's order.
    pub segments: Vec<Segment>,
    /// The blocks of all segments, in the order of their segments and addresses.
    pub blocks: Vec<Block>,
}

impl Device {
    /// The blocks of a segment of this device.
    pub fn blocks_of(&self, segment: &Segment) -> &[Block] {
        self.blocks.get(segment.first_block as usize..segment.end_block as usize).unwrap_or(&[])
    }
}

/// A segment as it was at the end: one `cudaMalloc`, or one mapped range of an expandable segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Where it starts.
    pub address: u64,
    /// Its size in bytes.
    pub total_size: u64,
    /// The stream that it serves.
    pub stream: u64,
    /// Whether it belongs to the pool of blocks above 1 MiB.
    pub large: bool,
    /// The pool; [`PoolId::DEFAULT`] in files that do not say.
    pub pool: PoolId,
    /// Whether it is part of an expandable segment.
    pub expandable: bool,
    /// Where in the program it was taken.
    pub stack: StackId,
    /// Its first block in [`Device::blocks`].
    pub first_block: u32,
    /// One past its last block in [`Device::blocks`].
    pub end_block: u32,
}

/// A block as it was at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Where it starts.
    pub address: u64,
    /// Its size in bytes, rounding and slack included.
    pub size: u64,
    /// What the program asked for, in bytes. Stale, and not to be used, in an inactive block.
    pub requested: u64,
    /// Whether it is in use.
    pub state: BlockState,
    /// Where in the program it was allocated.
    pub stack: StackId,
}

/// Whether a block is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BlockState {
    /// The program holds it.
    ActiveAllocated,
    /// The program gave it back, but another stream has not finished with it.
    ActivePendingFree,
    /// Free, and cached.
    #[default]
    Inactive,
}

/// One end of a named range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// Whether the range starts or ends here.
    pub stage: Stage,
    /// The range's name.
    pub name: StringId,
    /// The device that was current.
    pub device: u32,
    /// Microseconds, on the clock of the events.
    pub time_us: i64,
}

/// Which end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The beginning.
    Start,
    /// The end.
    End,
}

/// The allocator's settings as a snapshot records them. `None` where the file does not say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The text of `PYTORCH_CUDA_ALLOC_CONF`.
    pub conf: Option<String>,
    /// `max_split_size_mb` in bytes; `u64::MAX` is unlimited.
    pub max_split_size: Option<u64>,
    /// `garbage_collection_threshold`, a fraction; 0 is off.
    pub garbage_collection_threshold: Option<f64>,
    /// `expandable_segments`.
    pub expandable_segments: Option<bool>,
    /// `roundup_power2_divisions`: (interval's lower end in MiB, divisions), in the order of the intervals.
    pub roundup_power2_divisions: Vec<(u64, u64)>,
    /// Every other setting, by name, as text.
    pub others: Vec<(String, String)>,
}
