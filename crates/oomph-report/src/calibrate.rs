//! The answer of `oomph calibrate`, `oomph.calibrate/1`: a real card next to its virtual twin, and the correction that
//! later dry runs use.

use serde::{Deserialize, Serialize};

oomph_protocol::schema!(CalibrateSchema, "oomph.calibrate/1");

/// What two runs of the same small programs showed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CalibrateReport {
    /// Name and version of this document.
    pub schema: CalibrateSchema,
    /// The card's identifier in the catalogue.
    pub gpu: String,
    /// The day, as `2026-11-25`.
    pub taken_on: String,
    /// Whether a virtual card replaced the real one.
    pub rehearsal: bool,
    /// What the virtual card should have had, if it is not the same.
    pub correction: Option<CardCorrection>,
    /// The real card.
    pub card: CardReadings,
    /// Its virtual twin, as the catalogue has it.
    pub twin: CardReadings,
}

/// What the programs read on one card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CardReadings {
    /// The name that CUDA prints.
    pub gpu_name: String,
    /// How many cards CUDA sees.
    pub gpus: u32,
    /// The driver's version, where NVML reports it.
    pub driver: Option<String>,
    /// PyTorch's version.
    pub torch: String,
    /// The version of CUDA that PyTorch was built for.
    pub cuda: Option<String>,
    /// cuDNN's version, as its own number.
    pub cudnn: Option<u64>,
    /// What CUDA reports as the total, in bytes.
    pub capacity_bytes: u64,
    /// The least size of a page of the driver, in bytes.
    pub page_bytes: Option<u64>,
    /// The size of a page that the driver recommends, in bytes.
    pub recommended_page_bytes: Option<u64>,
    /// How many ordered pairs of cards reach each other's memory.
    pub peers: u32,
    /// The programs, in the order in which they ran, all in one process.
    pub readings: Vec<ProgramReading>,
}

/// What one program took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProgramReading {
    /// Its name.
    pub program: String,
    /// The error that ended it, if one did.
    pub failure: Option<String>,
    /// The peak of live tensors, in bytes.
    pub allocated_peak_bytes: u64,
    /// The peak of what PyTorch's allocator took from the card, in bytes.
    pub reserved_peak_bytes: u64,
    /// What was still allocated at its end: workspaces that libraries keep, in bytes.
    pub workspaces_bytes: u64,
    /// What the process held at its end as the driver counts, in bytes, where NVML reports it.
    pub process_bytes: Option<u64>,
    /// What it held at its end outside what PyTorch had reserved: context, modules, handles, in bytes.
    pub outside_bytes: Option<u64>,
}

/// Figures of this machine's card that differ from the catalogue's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CardCorrection {
    /// The card's identifier in the catalogue.
    pub gpu: String,
    /// The version of the driver that was there.
    pub driver: Option<String>,
    /// The day, as `2026-11-25`.
    pub taken_on: String,
    /// What CUDA reports as the total, in bytes.
    pub capacity_bytes: u64,
    /// What a process holds outside PyTorch's allocator, in bytes.
    pub context_bytes: u64,
    /// What the catalogue has for the total, in bytes.
    pub catalogue_capacity_bytes: u64,
    /// What the catalogue has for a process, in bytes.
    pub catalogue_context_bytes: u64,
}
