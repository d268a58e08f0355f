//! What an explanation holds. The names of the fields are those of the JSON document; every size is in bytes.

pub use oomph_protocol::{Owner, Phase};
use serde::{Deserialize, Serialize};

/// The explanation of one recording.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Explanation {
    /// One entry for each card of the recording, by index.
    pub devices: Vec<DeviceExplanation>,
    /// The host memory that PyTorch has pinned, where the recording holds any (PyTorch 2.15). It lies on no card.
    pub pinned_host: Option<PinnedHost>,
    /// The allocator's settings as `PYTORCH_CUDA_ALLOC_CONF` would say them; empty for the defaults.
    pub settings: String,
    /// What the reader of the file wants the user to know, a sentence each.
    pub notes: Vec<String>,
}

/// The explanation of one card.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceExplanation {
    /// The index as the program counts.
    pub index: u32,
    /// The answer.
    pub verdict: Verdict,
    /// The moment that everything below speaks of, unless it says otherwise.
    pub peak: Peak,
    /// The highest that memory in use ever was.
    pub peak_active_bytes: u64,
    /// The highest that memory taken from the driver ever was.
    pub peak_reserved_bytes: u64,
    /// The allocation that failed, where one was recorded: the last one. [`OomEvent::fatal`] says whether it ended the
    /// recording.
    pub oom: Option<OomEvent>,
    /// The allocations that failed and that the program got past.
    pub got_past: Option<GotPast>,
    /// What the program would have gone on to take, as far as the recording shows it. Only where it ends in a failure.
    pub beyond: Option<Beyond>,
    /// The card, where its size is known.
    pub card: Option<CardBytes>,
    /// Whose bytes. With a known card they add up to its capacity, otherwise to the reserved memory.
    pub owners: Vec<OwnerRow>,
    /// The live bytes by module, where the hook recorded modules. Largest first.
    pub by_module: Vec<Group>,
    /// The live bytes by the line of the program (outside of PyTorch) that allocated them. Largest first.
    pub by_line: Vec<Group>,
    /// The live bytes by data type, where the hook recorded them. Largest first.
    pub by_dtype: Vec<Group>,
    /// The live bytes by the part of the program that allocated them. Largest first.
    pub by_phase: Vec<Group>,
    /// Why the card was that full. Their bytes add up to the same as those of the owners.
    pub causes: Vec<Cause>,
    /// The same program under other settings and on other cards, by replay.
    pub what_if: Vec<WhatIf>,
    /// The smallest card that the recording survives on, by replay.
    pub smallest_card: Option<SmallestCard>,
    /// The stacks that hold the most live bytes.
    pub top_stacks: Vec<StackGroup>,
    /// The segments with the most memory that nothing can use, and the blocks that keep them from being given back.
    pub pinned: Vec<PinnedSegment>,
    /// The live bytes by the size of their blocks. Largest first.
    pub by_size: Vec<Group>,
    /// What the program asked for over the whole recording.
    pub churn: Churn,
    /// Training steps (or repetitions) that were recognised.
    pub steps: u32,
    /// Tensors that the hook named and that no block of the recording holds.
    pub unmatched_names: u64,
}

/// Host memory that the driver keeps in place so that cards can read it directly. What PyTorch has pinned it keeps, in
/// powers of two, for the next tensor of that size.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PinnedHost {
    /// Pinned when the recording ended.
    pub reserved_bytes: u64,
    /// Of these, in tensors, or still being copied.
    pub in_use_bytes: u64,
    /// The highest that pinned memory ever was.
    pub peak_reserved_bytes: u64,
    /// What is in use, by the line of the program that asked for it. Largest first.
    pub by_line: Vec<PinnedLine>,
}

/// Pinned memory that one line of the program asked for.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PinnedLine {
    /// How much of it is in use.
    pub bytes: u64,
    /// The line; `None` where no stack was recorded.
    pub site: Option<Line>,
}

/// How a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The recording ends with an allocation that failed.
    Oom,
    /// The program got past every allocation, and the card is known to be large enough.
    Fits,
    /// The program got past every allocation, and nothing is known of the card.
    NoOom,
}

/// The answer in one sentence, and what it is made of.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verdict {
    /// How the recording ended.
    pub outcome: Outcome,
    /// The first of the causes.
    pub cause: Option<CauseKind>,
    /// What happened, lowercase and without a full stop.
    pub happened: String,
    /// Why, lowercase and without a full stop; empty where there is nothing to say.
    pub why: String,
    /// Which setting gets past the failure or takes less, or that none does; empty where nothing was tried.
    pub what_helps: String,
}

/// Which moment was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Moment {
    /// Reserved memory was at its highest and, of these moments, memory in use.
    Peak,
    /// Just before the last allocation that failed.
    Oom,
    /// When the file was written.
    End,
    /// A time that the user named.
    Time,
    /// A place in the recording that the user named.
    Event,
}

/// The state of the allocator at one moment.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Peak {
    /// Which moment this is.
    pub at: Moment,
    /// How many events had happened.
    pub event: u64,
    /// Microseconds since the epoch of the recording.
    pub time_us: Option<i64>,
    /// Blocks that the program holds, rounding and slack included.
    pub allocated_bytes: u64,
    /// Taken from the driver.
    pub reserved_bytes: u64,
    /// What the program asked for in the active blocks.
    pub requested_bytes: u64,
    /// Blocks that the program holds or that wait for another stream.
    pub active_bytes: u64,
}

/// An allocation that failed for good.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OomEvent {
    /// Its place among the events of the device.
    pub event: u64,
    /// Microseconds since the epoch of the recording.
    pub time_us: Option<i64>,
    /// What the program asked for, rounded to blocks.
    pub requested_bytes: u64,
    /// What the driver said was free on the card, after the cache had been given back.
    pub free_bytes: u64,
    /// How many allocations failed in the whole recording.
    pub count: u64,
    /// Whether the recording ends with it: nothing was allocated afterwards.
    pub fatal: bool,
    /// The line of the program.
    pub site: Option<Line>,
    /// The part of the program that was running.
    pub phase: Phase,
}

/// Allocations that failed without ending the recording: none of them is an out-of-memory error of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GotPast {
    /// How many failed and were followed by others that succeeded.
    pub count: u64,
    /// How many of them were workspaces of cuDNN, which goes on with another algorithm.
    pub workspaces: u64,
    /// The largest of them.
    pub largest_bytes: u64,
    /// The line of the program that asked for the largest.
    pub site: Option<Line>,
}

/// Why memory would have gone on growing after the failure that a recording ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum BeyondKind {
    /// Every step leaves memory behind.
    Leak,
    /// Every round of a loop without a backward pass does, such as an evaluation.
    Loop,
    /// The optimizer has made only part of its state.
    OptimizerState,
    /// An earlier step took more after the same allocation.
    Step,
}

/// What a program would have gone on to take after the failure that its recording ends with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Beyond {
    /// Why.
    pub kind: BeyondKind,
    /// How much more than was in use when it failed, the refused request included; `None` where it has no end.
    pub bytes: Option<u64>,
    /// How much each further step or round takes, where it does not end.
    pub each_bytes: Option<u64>,
    /// The reason in one sentence, lowercase and without a full stop.
    pub because: String,
}

/// A line of the program.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Line {
    /// The file as recorded.
    pub file: String,
    /// From 1.
    pub line: u32,
    /// The function.
    pub function: String,
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{} in {}", self.file, self.line, self.function)
    }
}

/// What the card's memory is divided into.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CardBytes {
    /// All of it, as CUDA reports it.
    pub capacity_bytes: u64,
    /// Taken by this process outside of PyTorch's allocator, the CUDA context above all.
    pub context_bytes: u64,
    /// Taken by other processes, or by nobody that is known.
    pub other_bytes: u64,
    /// Neither taken nor reserved.
    pub free_bytes: u64,
}

impl CardBytes {
    /// What is left for PyTorch's allocator.
    pub fn usable(&self) -> u64 {
        self.capacity_bytes.saturating_sub(self.context_bytes).saturating_sub(self.other_bytes)
    }
}

/// How an owner is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The hook named the blocks while the program ran.
    Named,
    /// Concluded from stacks, lifetimes and sizes.
    Inferred,
    /// The recording itself says so.
    Recorded,
}

/// The bytes of one owner.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OwnerRow {
    /// Whose.
    pub owner: Owner,
    /// How many bytes.
    pub bytes: u64,
    /// In how many blocks.
    pub blocks: u64,
    /// How sure this is, from 0 to 1, weighted by bytes.
    pub confidence: f64,
    /// How the greater part of it is known.
    pub source: Source,
    /// How many of the bytes the hook named.
    pub named_bytes: u64,
}

/// Live bytes with something in common.
#[derive(Clone, Debug, Serialize, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Group {
    /// What they have in common.
    pub name: String,
    /// What the program asked for.
    pub bytes: u64,
    /// In how many blocks.
    pub blocks: u64,
    /// The owner of most of the bytes.
    pub owner: Owner,
}

/// How much was asked for in all.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Churn {
    /// How many allocations were recorded.
    pub allocations: u64,
    /// What they asked for, added up.
    pub bytes: u64,
}

/// Live bytes of one stack.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StackGroup {
    /// What the program asked for.
    pub bytes: u64,
    /// In how many blocks.
    pub blocks: u64,
    /// The owner of most of the bytes.
    pub owner: Owner,
    /// The stack, innermost frame first; empty where none was recorded.
    pub frames: Vec<Line>,
}

/// A segment that cannot be given back although most of it may be free.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PinnedSegment {
    /// Where it starts.
    pub address: u64,
    /// Its size.
    pub total_bytes: u64,
    /// How much of it is free.
    pub free_bytes: u64,
    /// The largest block that could still be made in it.
    pub largest_free_bytes: u64,
    /// How many live blocks there are in it.
    pub live_blocks: u64,
    /// The stream that it serves.
    pub stream: u64,
    /// The longest-living of the live blocks, which pins it.
    pub pinned_by: PinningBlock,
}

/// The block that keeps a segment.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PinningBlock {
    /// Where it starts.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// Whose it is.
    pub owner: Owner,
    /// What the hook calls it.
    pub name: Option<String>,
    /// The line that allocated it.
    pub site: Option<Line>,
}

/// Why a card is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CauseKind {
    /// What is live, and the request, are more than the card has; no setting of the allocator changes that.
    DoesNotFit,
    /// One request is more than half of what the card has for PyTorch.
    SingleAllocationTooLarge,
    /// Free memory in segments that live blocks pin.
    Fragmentation,
    /// Free memory that belongs to another stream.
    CacheOfAnotherStream,
    /// Free memory that belongs to another pool.
    CacheOfAnotherPool,
    /// Memory that grows with every step.
    Leak,
    /// Memory of an earlier part of the program that is still held.
    KeptFromEarlierPhase,
    /// The optimizer makes its state in its first step, after the first forward and backward pass had passed.
    LazyOptimizerState,
    /// This step is larger than the usual one.
    LongestBatch,
    /// Live memory that was allocated before the recording, of which nothing is known.
    RecordedTooLate,
    /// Live memory of which the recording's ring buffer has dropped the beginning.
    RingTooShort,
    /// PyTorch failed although a block that fits had come back while it looked.
    SpuriousOom,
    /// Other processes on the card.
    OtherProcesses,
    /// A limit that the program set itself.
    MemoryLimit,
    /// Not a cause: what the program needs at this moment in any case.
    WorkingSet,
    /// Not a cause: free and cached, and given back when it is needed.
    Cache,
    /// Not a cause: the CUDA context and what libraries take for themselves.
    Context,
    /// Not a cause: free.
    Free,
}

impl CauseKind {
    /// Whether the row only completes the sum.
    pub fn is_background(self) -> bool {
        matches!(self, Self::WorkingSet | Self::Cache | Self::Context | Self::Free)
    }
}

/// One cause, or one of the rows that complete the sum.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cause {
    /// Why.
    pub cause: CauseKind,
    /// Whether this is only a row that completes the sum.
    pub background: bool,
    /// The bytes that are there because of it. No byte is counted twice.
    pub bytes: u64,
    /// How much each further step or round adds; only of a leak.
    pub each_bytes: Option<u64>,
    /// How sure this is, from 0 to 1.
    pub confidence: f64,
    /// The reason in one sentence, lowercase and without a full stop.
    pub because: String,
    /// What shows it.
    pub evidence: Vec<Evidence>,
}

/// Something that shows a cause.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Evidence {
    /// What it is, lowercase.
    pub what: String,
    /// Bytes, where it has any.
    pub bytes: u64,
    /// The line of the program, where there is one.
    pub site: Option<Line>,
}

/// One row of the what-if table.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WhatIf {
    /// The settings as `PYTORCH_CUDA_ALLOC_CONF` would say them; empty for PyTorch's defaults.
    pub settings: String,
    /// Whether these are the settings of the recording.
    pub as_recorded: bool,
    /// The card's name.
    pub card: String,
    /// The card's memory.
    pub capacity_bytes: u64,
    /// Whether the whole recording passes. A recording that ends with a failure passes when that allocation is met:
    /// what the program would have taken after it is not in it.
    pub survives: bool,
    /// Whether it passes, or can pass because all that fails are workspaces of convolutions: PyTorch then takes another
    /// of cuDNN's algorithms, and how much that one needs the recording does not know.
    pub may_survive: bool,
    /// How many workspaces fail, where that is all that fails.
    pub smaller_workspaces: u64,
    /// The highest reserved memory of the replay.
    pub peak_reserved_bytes: u64,
    /// The least and the most that replays reserved in which segments lie elsewhere and streams finish later, as on
    /// another machine. Both are the peak where no such replays were made, as on other cards.
    pub least_reserved_bytes: u64,
    /// See [`WhatIf::least_reserved_bytes`].
    pub most_reserved_bytes: u64,
    /// How many such replays were made.
    pub replays: u32,
    /// How many of them fail.
    pub replays_died: u32,
    /// The peak, less that of the recording's own settings on the same card.
    pub difference_bytes: i64,
    /// How often the cache had to be given back to go on.
    pub retries: u64,
    /// What it means.
    pub says: String,
}

/// The smallest card on which the whole recording passes. See [`WhatIf::survives`] for one that ends with a failure.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SmallestCard {
    /// The settings under which this holds.
    pub settings: String,
    /// The memory that PyTorch's allocator needs.
    pub allocator_bytes: u64,
    /// From this much memory on it may do, with smaller workspaces for cuDNN ([`WhatIf::may_survive`]); the same figure
    /// where there are none.
    pub least_allocator_bytes: u64,
    /// That and the context.
    pub capacity_bytes: u64,
    /// How much smaller the card may be at most: 0 where the search was taken to its end, more for a recording so long
    /// that only some sizes were replayed. The card itself was.
    pub unsearched_bytes: u64,
    /// The first card of the list that has as much.
    pub card: Option<String>,
}
