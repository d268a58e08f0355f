//! Reads the script's answer (`python/oomph/attached.py`).

use oomph_report::{AttachedDevice, Recorded};
use serde::Deserialize;

/// An answer. What a script of another action leaves out is absent.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// What went wrong in the script.
    pub error: Option<String>,
    /// The moment was wrong; the order is to be sent again.
    pub again: bool,
    /// Why there is nothing to see.
    pub why: Option<String>,
    /// Why it cannot be done now.
    pub busy: Option<String>,
    /// The version of Python.
    pub python: Option<String>,
    /// The version of PyTorch.
    pub torch: Option<String>,
    /// The cards.
    pub devices: Vec<Device>,
    /// Whether PyTorch records.
    pub recording: Option<String>,
    /// What a recording covers.
    pub recorded: Option<Covered>,
    /// Whether a snapshot was written.
    pub snapshot: bool,
    /// Where a snapshot will be written.
    pub watching: Option<Watching>,
    /// Whether something was ended.
    pub stopped: Option<bool>,
    /// How many snapshots a watch wrote.
    pub dumps: u64,
    /// How long the program was stopped.
    pub seconds: Option<f64>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// A card.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Device {
    index: u32,
    name: String,
    uuid: Option<String>,
    total_bytes: u64,
    free_bytes: Option<u64>,
    allocated_bytes: u64,
    reserved_bytes: u64,
    allocated_peak_bytes: u64,
    reserved_peak_bytes: u64,
    allocations: u64,
    retries: u64,
    refusals: u64,
}

impl From<&Device> for AttachedDevice {
    fn from(device: &Device) -> Self {
        let used = device.free_bytes.map(|free| device.total_bytes.saturating_sub(free));
        Self {
            index: device.index,
            name: device.name.clone(),
            uuid: device.uuid.clone(),
            total_bytes: device.total_bytes,
            free_bytes: device.free_bytes,
            allocated_bytes: device.allocated_bytes,
            reserved_bytes: device.reserved_bytes,
            allocated_peak_bytes: device.allocated_peak_bytes,
            reserved_peak_bytes: device.reserved_peak_bytes,
            outside_bytes: used.and_then(|used| used.checked_sub(device.reserved_bytes)),
            allocations: device.allocations,
            retries: device.retries,
            refusals: device.refusals,
        }
    }
}

/// What a recording covers.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Covered {
    steps: u64,
    seconds: f64,
    entries: u64,
    theirs: bool,
}

impl From<Covered> for Recorded {
    fn from(covered: Covered) -> Self {
        let Covered { steps, seconds, entries, theirs } = covered;
        Self { steps, seconds, entries, theirs }
    }
}

/// A watch.
#[derive(Debug, Deserialize)]
pub struct Watching {
    /// Where the snapshot goes.
    pub dump: String,
}

/// What a recording says once it has begun.
#[derive(Debug, Deserialize)]
pub struct Started {
    /// Whether this PyTorch says when an optimizer has made a step.
    pub counts_steps: bool,
}
