//! The result type for a program's own calls to allocate, free and copy.

use serde::{Deserialize, Serialize};

/// The memory calls of a run, all processes together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Activity {
    /// `cudaMalloc`, `cudaFree` and their kin.
    pub allocations: Allocations,
    /// `cudaMallocAsync`, `cudaFreeAsync` and their kin, which a pool answers.
    #[serde(default)]
    pub pooled: Pooled,
    /// Copies between host and card.
    pub transfers: Transfers,
    /// What is worth changing, one sentence each, with its figures. Empty where nothing is.
    pub remarks: Vec<String>,
}

/// Allocations and frees that stream-ordered pools answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pooled {
    /// The calls. What a further pool would save is not asked: 0.
    #[serde(flatten)]
    pub allocations: Allocations,
    /// How often a pool took memory of the card.
    pub grew: u64,
    /// How often it took what it had given back at a synchronisation, as it does unless its release threshold is set.
    pub regrew: u64,
}

/// Allocations and frees of device memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Allocations {
    /// Allocations.
    pub calls: u64,
    /// Frees.
    pub frees: u64,
    /// The most that was held at once, in bytes as the program asked for them.
    pub most_held_bytes: u64,
    /// Blocks that were held when the program ended.
    pub never_freed_blocks: u64,
    /// Their bytes.
    pub never_freed_bytes: u64,
    /// Allocations that a pool would have answered without the driver, by keeping what was freed.
    pub pool_saves_calls: u64,
    /// What such a pool would have held at its peak, in bytes.
    pub pool_peak_bytes: u64,
    /// By line of the program, those with the most bytes first.
    pub sites: Vec<AllocationSite>,
}

/// What was allocated at one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AllocationSite {
    /// The place: `file:line` where the program has debug information, else a function or an address.
    pub place: String,
    /// Allocations.
    pub calls: u64,
    /// How many of them were freed again.
    pub freed: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Bytes that were held when the program ended.
    pub held_bytes: u64,
    /// The most that was held at once, in bytes; no more than this, where several calls of the line led there.
    pub most_held_bytes: u64,
    /// Sizes, and how often each was asked for.
    pub sizes: Vec<Sized>,
}

/// How often a size was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sized {
    /// The size in bytes.
    pub bytes: u64,
    /// How often.
    pub calls: u64,
}

/// Copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Transfers {
    /// From the host to the card.
    pub to_card: Traffic,
    /// From the card to the host.
    pub to_host: Traffic,
    /// From card to card.
    pub on_card: Traffic,
    /// The most bytes that lay on the card twice at once, as far as the host sent them.
    pub most_doubled_bytes: u64,
    /// By line of the program, those with the most bytes first.
    pub sites: Vec<TransferSite>,
}

/// Copies of one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Traffic {
    /// Copies.
    pub calls: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes whose host side is not page-locked, so that the driver copies them once more.
    pub pageable_bytes: u64,
    /// Copies of bytes that had been sent before, to whatever place.
    pub resent_calls: u64,
    /// Their bytes.
    pub resent_bytes: u64,
    /// The largest copy whose bytes lay elsewhere on the card as well.
    #[serde(default)]
    pub doubled_bytes: u64,
}

/// What was copied at one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TransferSite {
    /// The place.
    pub place: String,
    /// `to_card`, `to_host` or `on_card`.
    pub way: String,
    /// The copies.
    #[serde(flatten)]
    pub traffic: Traffic,
}
