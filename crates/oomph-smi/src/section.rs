//! The sections of `nvidia-smi -q` that `-d` chooses from.

/// A section, by the words of `-d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Memory,
    Utilization,
    Ecc,
    Temperature,
    Power,
    Clock,
    Compute,
    Processes,
    Performance,
    SupportedClocks,
    PageRetirement,
    Accounting,
    EncoderStats,
    RowRemapper,
    Voltage,
    Fabric,
}

impl Section {
    /// The section of a word, which may be in small letters.
    pub(crate) fn of(word: &str) -> Option<Self> {
        Some(match word.trim().to_ascii_uppercase().as_str() {
            "MEMORY" => Self::Memory,
            "UTILIZATION" => Self::Utilization,
            "ECC" => Self::Ecc,
            "TEMPERATURE" => Self::Temperature,
            "POWER" => Self::Power,
            "CLOCK" => Self::Clock,
            "COMPUTE" => Self::Compute,
            "PIDS" => Self::Processes,
            "PERFORMANCE" => Self::Performance,
            "SUPPORTED_CLOCKS" => Self::SupportedClocks,
            "PAGE_RETIREMENT" => Self::PageRetirement,
            "ACCOUNTING" => Self::Accounting,
            "ENCODER_STATS" | "FBC_STATS" => Self::EncoderStats,
            "ROW_REMAPPER" => Self::RowRemapper,
            "VOLTAGE" => Self::Voltage,
            "FABRIC" | "GSP_FIRMWARE" => Self::Fabric,
            _ => return None,
        })
    }
}
