//! The result types for a program that was followed to its end: its phases, its loops, and what it did not reach.

use oomph_protocol::{LoopKind, Phase};
use serde::{Deserialize, Serialize};

/// The peaks of one phase of the program on one card, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PhasePeak {
    /// Which, in the words that people read.
    #[serde(with = "oomph_protocol::spelled_out")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "oomph_protocol::spelled_out::schema"))]
    pub phase: Phase,
    /// How often it was entered, the most of any process.
    pub times: u64,
    /// The framework's peak of allocated memory within the phase.
    pub allocated_bytes: u64,
    /// The framework's peak of reserved memory within the phase.
    pub reserved_bytes: u64,
}

/// A loop of the program that was shortened, or whose memory grows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FollowedLoop {
    /// The file, as the program named it; empty where it is not known.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// What it does.
    pub kind: LoopKind,
    /// The iterations that were run.
    pub iterations: u64,
    /// The iterations that there are; `null` where that is not known.
    pub of: Option<u64>,
    /// Whether some were left out.
    pub shortened: bool,
    /// How its memory grows with each iteration; `null` where it does not.
    pub growth: Option<Growth>,
}

/// Memory that grows with each iteration of a loop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Growth {
    /// The card's CUDA index.
    pub device: u32,
    /// What an iteration adds, in bytes.
    pub bytes_per_iteration: u64,
    /// The peak of allocated memory in the last iteration that was run, in bytes.
    pub peak_bytes: u64,
    /// What that peak would be in the loop's last iteration, in bytes; `null` where the loop's length is not known.
    pub at_end_bytes: Option<u64>,
    /// The iteration after which nothing grows, because the buffer that is filled holds no more; `null` for growth without
    /// an end.
    #[serde(default)]
    pub ends_in_iteration: Option<u64>,
    /// The iteration in which the card is full, counted from the loop's first; `null` for a card without a limit, and where
    /// the growth ends before.
    pub full_in_iteration: Option<u64>,
    /// The optimizer step in which the card is full, counted from the program's first; `null` where no step is made in
    /// the loop, or for a card without a limit.
    pub full_in_step: Option<u64>,
    /// What holds the memory, as far as it was found.
    #[serde(default)]
    pub holders: Vec<Holder>,
    /// The line that allocates most of what grows; `null` where no recording shows it.
    pub site: Option<crate::site::Site>,
}

/// A thing in the program that holds on to memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Holder {
    /// Its name, such as `losses` or `self.history`.
    pub name: String,
    /// What is held: `loss-history`, `graph-history`, `results`, `running-total`, `carried-state`, `hook` or
    /// `retained-graph`.
    pub kind: String,
    /// The file in which the program adds to it.
    pub file: String,
    /// The line, from 1; 0 where it is not known.
    pub line: u64,
}

/// Something that the program would do and the run did not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unreached {
    /// What of the program it is, such as `evaluation` or `a loader`: words for people and no [`Phase`], although the
    /// document calls the field so.
    #[serde(rename = "phase")]
    pub part: String,
    /// What shows that the program has it, in a clause.
    pub why: String,
}
