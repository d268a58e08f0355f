//! The result type for a virtual card: what a program had on it, what it needs, and who owned the memory.

use oomph_explain::snapshot::{Group, OwnerRow};
use serde::{Deserialize, Serialize};

use crate::followed::PhasePeak;
use crate::oom::Oom;

/// The `gpu` of a device that had no limit.
pub const UNBOUNDED: &str = "unbounded";

/// The `gpu` of a device that was given a capacity and no name.
pub const CUSTOM: &str = "custom";

/// One virtual card and what the program did on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceReport {
    /// The card's CUDA index.
    pub index: u32,
    /// The card's identifier in the catalogue, [`UNBOUNDED`] or [`CUSTOM`].
    pub gpu: String,
    /// What CUDA reports as the card's total, in bytes; `null` for a card without a limit.
    pub capacity_bytes: Option<u64>,
    /// The program's peak on this card. After an OOM: up to then.
    pub peak: Peak,
    /// The out-of-memory error that ended the program, if it arose on this card.
    pub oom: Option<Oom>,
    /// The card's name as CUDA printed it to the program. For [`UNBOUNDED`] and [`CUSTOM`] it is the card whose
    /// properties were used.
    #[serde(default)]
    pub gpu_name: String,
    /// The identifier of the card that was named, where it was given another capacity (`--vram`) or none.
    #[serde(default)]
    pub like: Option<String>,
    /// The card that this one is like: its rank of the job was not run but answered for.
    #[serde(default)]
    pub as_device: Option<u32>,
    /// What of the card's figures was measured here by `oomph calibrate` and differs from the catalogue.
    #[serde(default)]
    pub correction: Option<crate::CardCorrection>,
    /// How many processes had a context on this card.
    #[serde(default)]
    pub processes: u32,
    /// What the card has to hold, where that was looked for: the peak on the smallest card that holds the program,
    /// or the peak without a limit where `smallest_capacity` says so.
    #[serde(default)]
    pub needed: Option<Peak>,
    /// The smallest capacity that holds the program, and how that is known.
    #[serde(default)]
    pub smallest_capacity: Option<SmallestCapacity>,
    /// Whether the second run ended early for another reason, so that `needed` is the least that it needs.
    #[serde(default)]
    pub needed_is_minimum: bool,
    /// Whether a size that was not computed was taken as the most that there can be, so that the peak is no more than this
    /// and nothing is said of how little it may be: `low_bytes` is 0.
    #[serde(default)]
    pub peak_is_maximum: bool,
    /// The parts of the peak that were modelled and not executed, with their bounds.
    #[serde(default)]
    pub modelled: Vec<ModelledTerm>,
    /// Out-of-memory errors that the program caught and survived, the last of each process.
    #[serde(default)]
    pub caught_ooms: Vec<Oom>,
    /// Whose memory it was; `null` where that was not recorded.
    #[serde(default)]
    pub whose: Option<Whose>,
    /// The framework's pool, where it keeps one that is not PyTorch's: JAX, TensorFlow.
    #[serde(default)]
    pub pool: Option<Pool>,
    /// What the program lets PyTorch's allocator take of the card, where that is less than all of it.
    #[serde(default)]
    pub allowed: Option<Allowed>,
    /// The phases of the program with their peaks, in the order in which they came first.
    #[serde(default)]
    pub phases: Vec<PhasePeak>,
}

/// The smallest card of a kind that holds a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SmallestCapacity {
    /// The capacity in bytes, as CUDA reports a card's total.
    pub capacity_bytes: u64,
    /// How it is known.
    pub how: CapacityKnown,
    /// The largest smaller capacity on which the program was seen to run out of memory, in bytes.
    pub fails_bytes: Option<u64>,
    /// What the framework reserved in the run that the search began with, in bytes.
    pub reserved_bytes: Option<u64>,
    /// The part of that which is cache and would be given back on a smaller card, in bytes.
    pub given_back_bytes: u64,
    /// A smaller capacity on which the program may run as well, in bytes: cuDNN's convolutions do with less workspace where
    /// there is less. It was not run there. `null` where that makes no difference, or runs have shown it.
    #[serde(default)]
    pub may_hold_bytes: Option<u64>,
    /// How many runs the search took.
    pub runs: u32,
    /// The capacities that the program was run on, where it adapts to the card; empty where one run stands for others.
    #[serde(default)]
    pub ran_on: Vec<RanOn>,
}

/// A run on a card of some capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RanOn {
    /// What the card had, in bytes.
    pub bytes: u64,
    /// Whether it held the program.
    pub held: bool,
}

/// How the smallest capacity is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CapacityKnown {
    /// The program was run on it.
    Run,
    /// What it requested was replayed through the allocator's model.
    Replayed,
    /// It is the peak on a card without a limit, where the cache is never given back.
    Peak,
    /// It is computed from what an engine that takes a share of its card says that it needs.
    Computed,
}

/// The memory of a card that a framework itself divides up. It grows by doubling, and may be taken whole at the start,
/// so it is larger than what the program needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pool {
    /// The most that it may take of this card, in bytes; `null` where that is not known.
    pub limit_bytes: Option<u64>,
    /// What the limit would be on another card.
    pub scales: PoolScale,
    /// Whether it was taken whole at the start.
    pub preallocated: bool,
}

/// What a program lets PyTorch's allocator take of a card (`set_per_process_memory_fraction`). Of several processes it is that of
/// the one that came closest to its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Allowed {
    /// The most that the process may reserve on this card, in bytes.
    pub bytes: u64,
    /// What that would be on another card.
    pub scales: PoolScale,
    /// The most that it reserved, in bytes.
    pub reserved_bytes: u64,
    /// Whether its allocator gave its cache back to come that far.
    pub gave_back: bool,
}

/// How a pool's limit follows the size of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PoolScale {
    /// A part of the card: JAX takes at most three quarters unless it is configured otherwise.
    Share,
    /// All of the card but so many bytes: TensorFlow leaves some to the system.
    Reserve,
    /// So many bytes on any card.
    Fixed,
}

/// Whose memory it was, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Whose {
    /// The moment: `peak`, or `oom` where the program died on this card.
    pub at: String,
    /// The owners, largest first. They add up to what was reserved at that moment, the contexts and what libraries took
    /// outside of the framework.
    pub owners: Vec<OwnerRow>,
    /// Live bytes by the line of the program, largest first.
    pub by_line: Vec<Group>,
    /// Live bytes by module, where modules were seen.
    pub by_module: Vec<Group>,
    /// Live bytes by data type.
    pub by_dtype: Vec<Group>,
    /// Live bytes by the part of the program that allocated them.
    pub by_phase: Vec<Group>,
}

/// The most memory that was in use on a card, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Peak {
    /// Everything on the card at the card's fullest moment, contexts included: what `nvidia-smi` would show. With
    /// one process on the card this is the process's peak; with several, the peak of their sum.
    pub process_bytes: u64,
    /// The framework's own peak of reserved memory; with several processes on the card, their sum. `null` where no
    /// framework reported it.
    pub reserved_bytes: Option<u64>,
    /// The framework's own peak of allocated memory, likewise.
    pub allocated_bytes: Option<u64>,
    /// The CUDA contexts with their modules (modelled).
    pub context_bytes: u64,
    /// What is left: libraries that take memory outside the framework's allocator, and other allocators.
    pub other_bytes: u64,
    /// The least that `process_bytes` may be on a real card; 0 where nothing is said of it (`peak_is_maximum`).
    pub low_bytes: u64,
    /// The most that `process_bytes` may be on a real card.
    pub high_bytes: u64,
}

/// A part of the peak that comes from a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelledTerm {
    /// What it is: `"context"`, for example.
    pub what: String,
    /// The figure that was used, in bytes.
    pub bytes: u64,
    /// The least that it may be, in bytes.
    pub low_bytes: u64,
    /// The most that it may be, in bytes.
    pub high_bytes: u64,
    /// Where the figures come from.
    pub source: String,
}

impl DeviceReport {
    /// What this card has to hold for the program to run, as far as that is known: the peak of the second run where
    /// there was one, else the peak where nothing was refused.
    #[must_use]
    pub fn need(&self) -> Option<Peak> {
        match (self.needed, &self.oom) {
            (Some(needed), _) => Some(needed),
            (None, Some(_)) => None,
            (None, None) => Some(self.peak),
        }
    }
}

impl Peak {
    /// What the framework reserved beyond what was allocated, in bytes; 0 where no framework reported it.
    #[must_use]
    pub fn cached_bytes(&self) -> u64 {
        self.reserved_bytes.unwrap_or(0).saturating_sub(self.allocated_bytes.unwrap_or(0))
    }
}
