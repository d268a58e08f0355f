//! The answer of `oomph watch`, `oomph.watch/1`: what is on the cards now.
//!
//! Three layers lie side by side: the card and each process as the driver counts them, and what the process's own
//! framework says. A figure that is not available is `null`, and the field next to it that ends in `_reason` says why.

use oomph_protocol::Moment;
use serde::Serialize;

oomph_protocol::schema!(WatchSchema, "oomph.watch/1");

/// One look at the cards.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WatchReport {
    /// Name and version of this document.
    pub schema: WatchSchema,
    /// When, in seconds since 1970.
    pub time: f64,
    /// The cards: this machine's in NVML's order, then the virtual ones of rehearsals.
    pub cards: Vec<WatchedGpu>,
    /// What the looks have cost so far.
    pub driver: WatchCost,
}

/// The time spent inside the driver, which programs on the card may have to wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WatchCost {
    /// Calls of NVML since the watch began.
    pub calls: u64,
    /// The seconds that they took together.
    pub seconds: f64,
}

/// A card, or a MIG device of one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WatchedGpu {
    /// Its place in this document, from 0: what `--gpu` takes.
    pub place: usize,
    /// NVML's number of the card, or the number among a rehearsal's cards.
    pub index: u32,
    /// The number of the MIG device on the card.
    pub mig: Option<u32>,
    /// The name.
    pub name: String,
    /// The identifier.
    pub uuid: Option<String>,
    /// Of a virtual card: the process id of the `oomph run --rehearse` that it belongs to.
    pub rehearsal: Option<u32>,
    /// The total.
    pub total_bytes: Option<u64>,
    /// What is in use.
    pub used_bytes: Option<u64>,
    /// What is free.
    pub free_bytes: Option<u64>,
    /// Why these three are not known.
    pub memory_reason: Option<String>,
    /// The processes that are known to be on it, by id.
    pub processes: Vec<WatchedProcess>,
    /// Why the driver's list of processes is not known.
    pub processes_reason: Option<String>,
}

/// A process on a card.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WatchedProcess {
    /// Its id.
    pub pid: u32,
    /// Its command line.
    pub command: Option<String>,
    /// Its rank in a distributed run.
    pub rank: Option<u32>,
    /// Its part in NVIDIA's Multi-Process Service (MPS), where it has one.
    pub mps: Option<MpsRole>,
    /// What it holds of the card, as the driver counts.
    pub driver_bytes: Option<u64>,
    /// Why that is not known.
    pub driver_reason: Option<String>,
    /// What its framework says.
    pub framework: Option<WatchedFramework>,
    /// Why that is not known.
    pub framework_reason: Option<String>,
    /// What it holds outside the framework: the driver's figure less what is reserved.
    pub outside_bytes: Option<u64>,
    /// Why that is not known.
    pub outside_reason: Option<String>,
}

/// The part of a process in NVIDIA's Multi-Process Service (MPS).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum MpsRole {
    /// It computes through the service.
    Client,
    /// It is `nvidia-cuda-mps-server`, through which clients reach the card.
    Server,
}

/// What a framework's allocator holds of a card.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WatchedFramework {
    /// Live tensors.
    pub allocated_bytes: u64,
    /// What the allocator took from the card.
    pub reserved_bytes: u64,
    /// Reserved and not allocated.
    pub cached_bytes: u64,
    /// Cached pieces of segments that also hold live tensors, and so cannot be given back to the card.
    pub fragments_bytes: Option<u64>,
    /// The peak of the live tensors.
    pub allocated_peak_bytes: u64,
    /// The peak of what was reserved.
    pub reserved_peak_bytes: Option<u64>,
    /// What it can reserve at most: what it has, and what was free on the card at that moment.
    pub room_bytes: Option<u64>,
    /// How often the allocator had to give back its cache before the card had room.
    pub retries: Option<u64>,
    /// The optimizer steps of the training, with those before a checkpoint that was resumed.
    pub step: u64,
    /// Those that this process made.
    pub process_steps: u64,
    /// Where in the program this was read.
    pub moment: Moment,
    /// How many seconds ago.
    pub age_seconds: f64,
    /// Where it is heading; `null` in a single look.
    pub outlook: Option<WatchedOutlook>,
}

/// What the memory of a process does from step to step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Trend {
    /// Too few steps were seen.
    #[default]
    Unknown,
    /// It does not change.
    Steady,
    /// Allocated bytes at the ends of steps grow.
    Leak,
    /// The peak grows, and what is allocated at the ends of steps does not.
    GrowingInputs,
    /// Reserved bytes grow, and allocated ones do not.
    Fragmentation,
    /// It changes, and not in a line that could be drawn on.
    Fluctuating,
}

/// Where the memory of a process is heading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WatchedOutlook {
    /// What it does from step to step.
    pub trend: Trend,
    /// How much what grows grows with each step, in bytes.
    pub bytes_per_step: Option<f64>,
    /// What the framework can still allocate above its peak.
    pub headroom_bytes: Option<u64>,
    /// The step at which the card will be full, if a forecast is possible.
    pub full_at_step: Option<u64>,
    /// In how many seconds that is.
    pub full_in_seconds: Option<f64>,
    /// How long a step takes.
    pub seconds_per_step: Option<f64>,
    /// The steps that were seen: from the first to the last.
    pub steps_seen: u64,
}
