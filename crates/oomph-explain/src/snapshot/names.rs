//! What the hook named while the program ran (`hook/PID.names.json`; the contract is in docs/internals/run-folder.md).

use std::collections::HashMap;

use serde::Deserialize;

use super::explanation::{Owner, PhaseKind};

/// The hook's observations of one process.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Names {
    /// `oomph.names/1`.
    #[serde(default)]
    pub schema: String,
    /// How many allocations there had been, by the device's index as text.
    #[serde(default)]
    devices: HashMap<String, Allocations>,
    #[serde(default)]
    names: Vec<Observation>,
    #[serde(default)]
    modules: Vec<ModuleEvent>,
    #[serde(default)]
    phases: Vec<PhaseEvent>,
    /// The program caught the last out-of-memory error, whether or not it allocated anything afterwards.
    #[serde(default)]
    pub(super) oom_caught: bool,
}

/// Why a file of names cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NamesError {
    /// Not JSON of the right shape.
    #[error("the names of the blocks cannot be read: {0}; explain the snapshot without them")]
    Json(#[from] serde_json::Error),
    /// Another version.
    #[error("the names of the blocks are of version {0:?}, and this program reads \"oomph.names/1\"")]
    Schema(String),
}

impl Names {
    /// Reads the text of a `names.json`.
    ///
    /// # Errors
    /// When it is not JSON of the documented shape, or of another version.
    pub fn parse(text: &[u8]) -> Result<Self, NamesError> {
        let names: Names = serde_json::from_slice(text)?;
        if names.schema != "oomph.names/1" {
            return Err(NamesError::Schema(names.schema));
        }
        Ok(names)
    }

    /// How many allocations were made on a device before the first of a trace with so many `alloc` events; `None` where
    /// that was not counted.
    pub(super) fn allocations_before(&self, device: u32, recorded: usize) -> Option<u64> {
        let count = self.devices.get(&device.to_string())?.allocations_at_snapshot?;
        u64::try_from(count).ok()?.checked_sub(u64::try_from(recorded).ok()?)
    }

    /// The observations of one device, with places counted from the first `alloc` event of a trace that has
    /// `recorded` of them: -3 is four allocations before it, 0 is after the first.
    pub(super) fn of_device(&self, device: u32, recorded: usize) -> DeviceNames<'_> {
        let counts = self.devices.get(&device.to_string()).copied().unwrap_or_default();
        let recorded = i64::try_from(recorded).unwrap_or(i64::MAX);
        let before = match counts.allocations_at_snapshot {
            Some(count) => count.saturating_sub(recorded),
            None => counts.allocations_at_start,
        };
        let place = move |at: i64| at.saturating_sub(before);
        DeviceNames {
            names: self.names.iter().filter(|name| name.device == device).map(|name| (place(name.at), name)).collect(),
            modules: self
                .modules
                .iter()
                .filter(|event| event.device == device)
                .map(|event| (place(event.at), event))
                .collect(),
            phases: self
                .phases
                .iter()
                .filter(|event| event.device == device)
                .map(|event| (place(event.at), event))
                .collect(),
        }
    }
}

/// What was observed on one device; each with how many `alloc` events of the trace came before it.
pub(super) struct DeviceNames<'a> {
    pub names: Vec<(i64, &'a Observation)>,
    pub modules: Vec<(i64, &'a ModuleEvent)>,
    pub phases: Vec<(i64, &'a PhaseEvent)>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Allocations {
    #[serde(default)]
    allocations_at_start: i64,
    #[serde(default)]
    allocations_at_snapshot: Option<i64>,
}

/// A tensor, seen at one moment.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Observation {
    #[serde(default)]
    pub device: u32,
    pub at: i64,
    pub address: u64,
    /// Bytes of the tensor's storage.
    #[serde(default)]
    pub size: u64,
    #[serde(default)]
    owner: String,
    pub name: Option<String>,
    pub dtype: Option<String>,
}

impl Observation {
    /// The owner; `None` where the hook knows only a name.
    pub fn owner(&self) -> Option<Owner> {
        Some(match self.owner.as_str() {
            "parameter" => Owner::Parameters,
            "buffer" => Owner::Buffers,
            "gradient" => Owner::Gradients,
            "optimizer-state" => Owner::OptimizerState,
            "activation" => Owner::Activations,
            "input" => Owner::Inputs,
            "kv-cache" => Owner::KvCache,
            "workspace" => Owner::Workspace,
            _ => return None,
        })
    }

    /// Which of several observations of one block counts: the one with the lowest rank.
    pub fn rank(&self) -> u8 {
        match self.owner.as_str() {
            "parameter" => 0,
            "buffer" => 1,
            "optimizer-state" => 2,
            "gradient" => 3,
            "kv-cache" => 4,
            "input" => 5,
            "activation" => 6,
            "workspace" => 7,
            _ => 8,
        }
    }
}

/// A module's call begins or ends.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ModuleEvent {
    #[serde(default)]
    device: u32,
    at: i64,
    pub enter: Option<String>,
    pub leave: Option<String>,
}

/// A phase begins or ends.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PhaseEvent {
    #[serde(default)]
    device: u32,
    at: i64,
    phase: String,
    #[serde(default)]
    pub step: u32,
    #[serde(default)]
    pub begin: bool,
}

impl PhaseEvent {
    pub fn kind(&self) -> PhaseKind {
        match self.phase.as_str() {
            "load" => PhaseKind::Load,
            "forward" => PhaseKind::Forward,
            "backward" => PhaseKind::Backward,
            "optimizer" => PhaseKind::Optimizer,
            "eval" => PhaseKind::Eval,
            "generate" => PhaseKind::Generate,
            _ => PhaseKind::Other,
        }
    }
}
