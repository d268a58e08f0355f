//! Guarded runs (`oomph run`): what the hook does for one, and what it saw of the program's trainer.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Moment;

/// What the hook does in a run that counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Guard {
    /// Where the trainer resumes; `None` where it starts as the program says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<HookCheckpoint>,
    /// Whether nothing is said of memory that runs out; `oomph.watch(quiet=True)`.
    #[serde(skip_serializing_if = "super::is_no")]
    pub quiet: bool,
    /// What each card would hold if it were smaller, in bytes: PyTorch takes no more, less the context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
}

/// A checkpoint that the program's own trainer finished.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookCheckpoint {
    /// Who wrote it: `transformers`, `lightning` or `accelerate`.
    pub kind: String,
    /// The file or folder.
    pub path: PathBuf,
    /// The optimizer steps that were made until then.
    pub step: u64,
}

/// How far a program's trainer is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookProgress {
    /// `transformers`, `lightning` or `accelerate`; `None` for a loop of the program's own.
    pub trainer: Option<String>,
    /// How many optimizer steps the training had behind it when this process made its first.
    pub started_at_step: Option<u64>,
    /// How many it has now.
    pub step: Option<u64>,
    /// How much the trainer takes at once.
    pub batch: Option<HookBatchSize>,
    /// The checkpoint that it resumed from.
    pub resumed: Option<PathBuf>,
    /// What was noticed before a death, a sentence each.
    pub signs: Vec<String>,
    /// Whether it saved a checkpoint and ended because it was asked to (`RunFolder::ask_to_leave`).
    pub left: bool,
    /// Those that it finished, the oldest first.
    pub checkpoints: Vec<HookCheckpoint>,
}

/// How many samples a trainer takes for one optimizer step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookBatchSize {
    /// In one pass of one process.
    pub micro: u64,
    /// Passes for a step.
    pub accumulation: u64,
    /// Processes.
    pub processes: u64,
}

impl HookBatchSize {
    /// The samples of an optimizer step.
    pub fn effective(self) -> u64 {
        self.micro.saturating_mul(self.accumulation).saturating_mul(self.processes)
    }
}

/// What a framework's allocator held at a moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookMemoryNow {
    /// Where in the program.
    pub moment: Moment,
    /// When, in seconds since 1970.
    pub time: f64,
    /// How many optimizer steps this process had made.
    pub step: u64,
    /// Each device that it used.
    pub devices: Vec<HookHeld>,
}

/// What is held of one device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookHeld {
    /// The device's index as the process sees it.
    pub index: u32,
    /// The card's identifier, where the framework reports it.
    pub uuid: Option<String>,
    /// Live tensors.
    pub allocated_bytes: u64,
    /// What the allocator took from the card.
    pub reserved_bytes: u64,
    /// Free pieces of segments that also hold live tensors: they cannot be given back to the card.
    pub fragments_bytes: Option<u64>,
    /// How often the allocator had to give its cache back before the card had room.
    pub retries: Option<u64>,
    /// What the allocator could still take, as CUDA and the limit say; only at the end of a step.
    pub free_bytes: Option<u64>,
}
