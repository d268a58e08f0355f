//! The parts of the hook's report about a program that was followed to its end: phases, loops, and what it did not
//! reach.

use serde::{Deserialize, Serialize};

use super::HookDevice;
use crate::{LoopKind, Phase};

/// The peaks of one phase of the program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookPhase {
    /// Which.
    pub phase: Phase,
    /// How often it was entered.
    pub times: u64,
    /// Its peaks on each device that was in use.
    pub devices: Vec<HookDevice>,
}

/// A loop that was shortened, or whose memory grows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookFollowedLoop {
    /// The file that it is in; empty where that is not known.
    pub file: String,
    /// Its line, counted from 1.
    pub line: u32,
    /// What it does.
    pub kind: LoopKind,
    /// The iterations that were run.
    pub iterations: u64,
    /// The iterations that there are; `None` where that is not known.
    pub of: Option<u64>,
    /// Whether some were left out.
    pub shortened: bool,
    /// How its memory grows, if it does.
    pub growth: Option<HookGrowth>,
}

/// Memory that grows with each iteration of a loop, summed over the devices of the process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookGrowth {
    /// How much an iteration adds.
    pub bytes_per_iteration: u64,
    /// What was allocated at the end of the last iteration that was run.
    pub held_bytes: u64,
    /// The peak of allocated memory within that iteration.
    pub peak_bytes: u64,
    /// What the peak would be in the last iteration of the loop; `None` where its length is not known.
    pub at_end_bytes: Option<u64>,
    /// The optimizer steps that had been made by then.
    pub steps: u64,
    /// How many iterations make one optimizer step: more than one where the loop accumulates. 0 from older hooks.
    pub iterations_of_step: u64,
    /// How many further iterations it grows for, until the buffer that it fills is full; `None` for growth without an end.
    pub grows_for: Option<u64>,
    /// What holds the memory, as far as it was found.
    pub holders: Vec<HookHolder>,
    /// Allocations that had been made on the fullest device at the ends of three iterations in a row: what was allocated
    /// between the first two and is still there at the third is what grows.
    pub allocations: Vec<u64>,
    /// That device.
    pub device: u32,
}

/// A thing in the program that holds on to memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookHolder {
    /// Its name, such as `losses` or `self.history`.
    pub name: String,
    /// What is held: `loss-history`, `graph-history`, `results`, `running-total`, `carried-state`, `hook` or
    /// `retained-graph`.
    pub kind: String,
    /// Where the program adds to it: the file.
    pub file: String,
    /// The line, counted from 1; 0 where it is not known.
    pub line: u32,
}

/// Something that the program would do and the run did not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookUnreached {
    /// Whether it was left out whatever ended the run; else it is of interest only where the run ended early.
    pub certain: bool,
    /// What of the program it is, such as `evaluation` or `a loader`. These are words for people and no [`Phase`], although
    /// documents have called the field so from the beginning.
    #[serde(rename = "phase")]
    pub part: String,
    /// What shows that the program has it, in a clause.
    pub why: String,
}
