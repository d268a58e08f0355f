//! What the hook named while the program ran (`hook/PID.names.json`; the contract is in docs/internals/run-folder.md).

use oomph_protocol::ReadError;
use oomph_protocol::names as said;
pub(super) use oomph_protocol::names::{ModuleEvent, Observation, PhaseEvent};

/// The hook's observations of one process.
#[derive(Clone, Debug, Default)]
pub struct Names(said::Names);

/// Why a file of names cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NamesError {
    /// Not JSON of the right shape.
    #[error("the names of the blocks cannot be read: {0}; explain the snapshot without them")]
    Json(#[from] serde_json::Error),
    /// Another version.
    #[error("the names of the blocks are of version {0:?}, and this program reads {ours:?}", ours = oomph_protocol::NAMES.text)]
    Schema(String),
}

impl Names {
    /// Reads the text of a `names.json`.
    ///
    /// # Errors
    /// When it is not JSON of the documented shape, or of another version.
    pub fn parse(text: &[u8]) -> Result<Self, NamesError> {
        oomph_protocol::read(text).map(Self).map_err(|error| match error {
            ReadError::Json(error) => NamesError::Json(error),
            ReadError::Mismatch(mismatch) => NamesError::Schema(mismatch.found.unwrap_or_default()),
        })
    }

    /// Whether the program caught the last out-of-memory error, whether or not it allocated anything afterwards.
    pub(super) fn oom_caught(&self) -> bool {
        self.0.oom_caught
    }

    /// How many allocations were made on a device before the first of a trace with so many `alloc` events; `None` where
    /// that was not counted.
    pub(super) fn allocations_before(&self, device: u32, recorded: usize) -> Option<u64> {
        let count = self.0.devices.get(&device.to_string())?.allocations_at_snapshot?;
        u64::try_from(count).ok()?.checked_sub(u64::try_from(recorded).ok()?)
    }

    /// The observations of one device, with places counted from the first `alloc` event of a trace that has
    /// `recorded` of them: -3 is four allocations before it, 0 is after the first.
    pub(super) fn of_device(&self, device: u32, recorded: usize) -> DeviceNames<'_> {
        let counts = self.0.devices.get(&device.to_string()).copied().unwrap_or_default();
        let recorded = i64::try_from(recorded).unwrap_or(i64::MAX);
        let before = match counts.allocations_at_snapshot {
            Some(count) => count.saturating_sub(recorded),
            None => counts.allocations_at_start,
        };
        let place = move |at: i64| at.saturating_sub(before);
        DeviceNames {
            names: self
                .0
                .names
                .iter()
                .filter(|name| name.device == device)
                .map(|name| (place(name.at), name))
                .collect(),
            modules: self
                .0
                .modules
                .iter()
                .filter(|event| event.device == device)
                .map(|event| (place(event.at), event))
                .collect(),
            phases: self
                .0
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

/// Which of several observations of one block counts: the one with the lowest rank. The vocabulary is in that order.
pub(super) fn rank(seen: &Observation) -> u8 {
    seen.owner as u8
}
