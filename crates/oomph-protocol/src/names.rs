//! `hook/PID.names.json`: what the hook knows of the blocks of a recording. `docs/internals/run-folder.md` says how to place it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Document, NamedOwner, Phase, Schema};

crate::schema!(NamesSchema, crate::NAMES.text);

/// The hook's observations of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Names {
    /// Name and version of this document.
    pub schema: NamesSchema,
    /// The process.
    pub pid: u32,
    /// How many allocations there had been, by the device's index as text.
    pub devices: BTreeMap<String, Allocations>,
    /// Tensors, in the order in which they were seen.
    pub names: Vec<Observation>,
    /// Calls of modules.
    pub modules: Vec<ModuleEvent>,
    /// Phases.
    pub phases: Vec<PhaseEvent>,
    /// What is whole.
    pub complete: Complete,
    /// The program caught its last out-of-memory error, whether or not it allocated anything afterwards.
    #[serde(skip_serializing_if = "is_no")]
    pub oom_caught: bool,
}

impl Document for Names {
    const SCHEMA: Schema = crate::NAMES;
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over references")]
fn is_no(value: &bool) -> bool {
    !*value
}

/// How many allocations a device had made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Allocations {
    /// When the recording began.
    pub allocations_at_start: i64,
    /// When the snapshot was made.
    pub allocations_at_snapshot: Option<i64>,
}

/// A tensor, seen at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Observation {
    /// The device's index as the process sees it.
    #[serde(default)]
    pub device: u32,
    /// How many allocations the device had made.
    pub at: i64,
    /// Where the tensor's storage begins.
    pub address: u64,
    /// Bytes of the tensor's storage.
    #[serde(default)]
    pub size: u64,
    /// What it is.
    #[serde(default)]
    pub owner: NamedOwner,
    /// What it is called.
    #[serde(default)]
    pub name: Option<String>,
    /// Its shape.
    #[serde(default)]
    pub shape: Option<Vec<u64>>,
    /// Its type, without `torch.`.
    #[serde(default)]
    pub dtype: Option<String>,
}

/// A module's call begins or ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModuleEvent {
    /// The device's index as the process sees it.
    #[serde(default)]
    pub device: u32,
    /// How many allocations the device had made.
    pub at: i64,
    /// The module that is entered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enter: Option<String>,
    /// The module that is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leave: Option<String>,
}

/// A phase begins or ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PhaseEvent {
    /// The device's index as the process sees it.
    #[serde(default)]
    pub device: u32,
    /// How many allocations the device had made.
    pub at: i64,
    /// Which.
    pub phase: Phase,
    /// The optimizer step under way, from 1.
    #[serde(default)]
    pub step: u32,
    /// Whether it begins.
    #[serde(default)]
    pub begin: bool,
}

/// What of the observations is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Complete {
    /// False when observations of steps away from the peak were dropped.
    pub names: bool,
    /// False when some calls were not followed.
    pub modules: bool,
}

impl Default for Complete {
    fn default() -> Self {
        Self { names: true, modules: true }
    }
}
