//! Reads the installed cards through NVML, the library behind `nvidia-smi`.
//!
//! A computer without NVML or without a driver is an ordinary answer: it has no cards.
//!
//! NVML has two functions for the memory of a card. The wrapper that is used here knows only the newer one, which
//! drivers before 510 and some WSL installations lack. The older one cannot be reached without unsafe code, so
//! then the card is listed with the reason why its memory is not known.

mod monitor;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use crate::catalogue::Catalogue;
use crate::gpu::{ComputeCapability, Gpu};

pub use monitor::{DriverCost, GpuProcess, Monitor, WatchedCard};

/// One installed card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledGpu {
    /// The number that NVML gives it, from 0. It follows the PCI bus and need not be CUDA's number.
    pub index: u32,
    /// The name, for example `NVIDIA GeForce RTX 4090`.
    pub name: String,
    /// The identifier that never changes, for example `GPU-8f2a...`, where NVML reports it.
    pub uuid: Option<String>,
    /// The compute capability, where NVML reports it.
    pub compute_capability: Option<ComputeCapability>,
    /// The memory, or one sentence that says why it cannot be read.
    pub memory: Result<InstalledMemory, String>,
}

/// The memory of an installed card at the moment of asking, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstalledMemory {
    /// What NVML calls the total. It includes what the driver reserves, so CUDA's total is up to 3 % less.
    pub total_bytes: u64,
    /// What processes use, without what the driver reserves.
    pub used_bytes: u64,
    /// What is free.
    pub free_bytes: u64,
}

/// Installed cards that cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum InstalledError {
    /// NVML is there but did not start.
    #[error("cannot start NVML: {0}; see whether nvidia-smi works")]
    Start(#[source] NvmlError),
    /// NVML did not tell how many cards there are.
    #[error("cannot count the GPUs through NVML: {0}; see whether nvidia-smi works")]
    Count(#[source] NvmlError),
    /// NVML counted a card that it then did not name.
    #[error("cannot read GPU {index} through NVML: {source}; see whether nvidia-smi works")]
    Card {
        /// The card's number.
        index: u32,
        /// What NVML said.
        source: NvmlError,
    },
}

impl InstalledGpu {
    /// The catalogue's entry for this card, by its name and, where it is known, its memory.
    pub fn entry<'a>(&self, catalogue: &'a Catalogue) -> Option<&'a Gpu> {
        match &self.memory {
            Ok(memory) => catalogue.matching(&self.name, memory.total_bytes),
            Err(_) => catalogue.find(&self.name).ok(),
        }
    }
}

/// The installed cards in NVML's order; none where there is no NVML or no driver.
pub fn installed() -> Result<Vec<InstalledGpu>, InstalledError> {
    let nvml = match Nvml::init() {
        Ok(nvml) => nvml,
        Err(problem) if is_absence(&problem) => return Ok(Vec::new()),
        Err(problem) => return Err(InstalledError::Start(problem)),
    };
    let count = nvml.device_count().map_err(InstalledError::Count)?;
    (0..count).map(|index| read(&nvml, index).map_err(|source| InstalledError::Card { index, source })).collect()
}

/// The version of the installed driver, for example `580.95.05`; `None` where there is no driver.
pub fn driver_version() -> Option<String> {
    Nvml::init().ok()?.sys_driver_version().ok()
}

/// Whether a problem at the start means that there is nothing to list, rather than that something is broken.
fn is_absence(problem: &NvmlError) -> bool {
    matches!(
        problem,
        NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound | NvmlError::DriverNotLoaded | NvmlError::NotFound
    )
}

fn read(nvml: &Nvml, index: u32) -> Result<InstalledGpu, NvmlError> {
    let device = nvml.device_by_index(index)?;
    let compute_capability = device.cuda_compute_capability().ok().and_then(|capability| {
        Some(ComputeCapability {
            major: u32::try_from(capability.major).ok()?,
            minor: u32::try_from(capability.minor).ok()?,
        })
    });
    let memory = device
        .memory_info()
        .map(|memory| InstalledMemory { total_bytes: memory.total, used_bytes: memory.used, free_bytes: memory.free })
        .map_err(|problem| unreadable_memory(&problem));
    Ok(InstalledGpu { index, name: device.name()?, uuid: device.uuid().ok(), compute_capability, memory })
}

fn unreadable_memory(problem: &NvmlError) -> String {
    match problem {
        NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound => {
            "the driver is too old to tell its memory; update it to 510 or later".into()
        }
        _ => format!("the memory cannot be read through NVML: {problem}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_computer_with_or_without_cards_is_listed() {
        // Where there is a card this reads it; where there is none, the list is empty rather than an error.
        for gpu in installed().unwrap() {
            assert!(!gpu.name.is_empty());
            if let Ok(memory) = gpu.memory {
                assert!(memory.used_bytes <= memory.total_bytes);
            }
        }
    }

    #[test]
    fn no_library_and_no_driver_are_ordinary() {
        assert!(is_absence(&NvmlError::LibraryNotFound));
        assert!(is_absence(&NvmlError::DriverNotLoaded));
        assert!(!is_absence(&NvmlError::NoPermission));
        assert!(!is_absence(&NvmlError::Unknown));
    }

    #[test]
    fn an_old_driver_is_named_as_the_reason() {
        let missing = NvmlError::FailedToLoadSymbol("nvmlDeviceGetMemoryInfo_v2".into());
        assert!(unreadable_memory(&missing).contains("too old"));
        assert!(unreadable_memory(&NvmlError::Unknown).contains("NVML"));
    }

    #[test]
    fn an_installed_card_is_matched_to_the_catalogue() {
        let mut gpu = InstalledGpu {
            index: 0,
            name: "NVIDIA GeForce RTX 3060".into(),
            uuid: None,
            compute_capability: None,
            memory: Ok(InstalledMemory { total_bytes: 8192 << 20, used_bytes: 0, free_bytes: 8192 << 20 }),
        };
        let catalogue = Catalogue::builtin();
        assert_eq!(gpu.entry(catalogue).unwrap().id, "rtx-3060-8gb");
        gpu.memory = Err("unknown".into());
        assert_eq!(gpu.entry(catalogue).unwrap().id, "rtx-3060");
        gpu.name = "Some other card".into();
        assert!(gpu.entry(catalogue).is_none());
    }
}
