//! The data model of one card.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A CUDA compute capability, for example 8.9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct ComputeCapability {
    /// The part before the dot.
    pub major: u32,
    /// The part after the dot.
    pub minor: u32,
}

/// A text that is not a compute capability.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not a compute capability; write it as 8.9")]
pub struct UnknownComputeCapability {
    /// What was given.
    pub text: String,
}

impl FromStr for ComputeCapability {
    type Err = UnknownComputeCapability;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text
            .split_once('.')
            .and_then(|(major, minor)| Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? }));
        parsed.ok_or_else(|| UnknownComputeCapability { text: text.into() })
    }
}

impl TryFrom<String> for ComputeCapability {
    type Error = UnknownComputeCapability;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ComputeCapability> for String {
    fn from(capability: ComputeCapability) -> Self {
        capability.to_string()
    }
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

/// What a card is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// GeForce and Titan cards for desktop computers.
    Consumer,
    /// RTX, RTX PRO and Quadro cards for workstations.
    Professional,
    /// Tesla, A, L, H and B cards for servers.
    Datacenter,
    /// GeForce GPUs built into laptops.
    Laptop,
    /// A slice of a data-centre card (Multi-Instance GPU).
    Mig,
    /// A Jetson module, whose GPU shares the memory of the whole computer.
    Jetson,
}

impl Kind {
    /// Whether it is a card that can be bought or rented on its own: not a laptop's GPU, a slice or a module.
    #[must_use]
    pub fn is_card(self) -> bool {
        matches!(self, Self::Consumer | Self::Professional | Self::Datacenter)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Consumer => "consumer",
            Self::Professional => "professional",
            Self::Datacenter => "datacenter",
            Self::Laptop => "laptop",
            Self::Mig => "mig",
            Self::Jetson => "jetson",
        })
    }
}

/// The limits that every card of one compute capability has.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Architecture {
    /// The compute capability that these limits belong to.
    pub compute_capability: ComputeCapability,
    /// The name of the architecture, for example "Ada Lovelace".
    pub name: String,
    /// Threads that can be resident on one SM.
    pub max_threads_per_sm: u32,
    /// Blocks that can be resident on one SM.
    pub max_blocks_per_sm: u32,
    /// 32-bit registers of one SM, which is also the most that one block may use.
    pub registers_per_sm: u32,
    /// Shared memory, in bytes, that a block may use without asking.
    pub shared_memory_per_block_bytes: u32,
    /// Shared memory, in bytes, that a block may use when the kernel opts in.
    pub shared_memory_per_block_optin_bytes: u32,
    /// Shared memory, in bytes, of one SM.
    pub shared_memory_per_sm_bytes: u32,
    /// Shared memory, in bytes, that CUDA keeps for itself in each block.
    pub shared_memory_reserved_per_block_bytes: u32,
    /// What one SM computes in a clock.
    pub operations_per_clock: OperationsPerClock,
}

/// Dense additions and multiplications of one SM in a clock, by the type of numbers, with sums of 32 bits.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OperationsPerClock {
    /// 64-bit floating point.
    pub f64: u32,
    /// 32-bit floating point without tensor cores.
    pub f32: u32,
    /// 32-bit floating point in tensor cores.
    pub tf32: u32,
    /// 16-bit floating point in tensor cores.
    pub f16: u32,
    /// 8-bit floating point in tensor cores.
    pub f8: u32,
    /// 8-bit integers.
    pub i8: u32,
    /// Whether tensor cores of GeForce cards make half as many.
    pub geforce_halves: bool,
    /// Where these figures came from.
    pub source: String,
}

/// What one process holds on a card outside the framework's own allocator, in bytes.
///
/// It is the CUDA context, the loaded modules and the handles of cuBLAS and cuDNN in a PyTorch 2 process. It depends
/// on the CUDA version and on which libraries a program touches, which is why it is an interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContextCost {
    /// The least that was seen or that is plausible, in bytes.
    pub low_bytes: u64,
    /// The most likely cost, in bytes.
    pub expected_bytes: u64,
    /// The most that was seen or that is plausible, in bytes.
    pub high_bytes: u64,
    /// Where these figures came from.
    pub source: String,
}

/// One card of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gpu {
    /// The short name that oomph uses, in kebab case, for example `rtx-4090`. Unique.
    pub id: String,
    /// The name as CUDA prints it, for example `NVIDIA GeForce RTX 4090`. Cards with two memory sizes share it.
    pub name: String,
    /// Other names that people use. They are matched as loosely as the id is.
    pub aliases: Vec<String>,
    /// What the card is made for.
    pub kind: Kind,
    /// The limits that follow from the compute capability.
    pub architecture: Architecture,
    /// The memory size on the box, in GB. It is larger than what a program gets.
    pub memory_gb: u32,
    /// The capacity in bytes: the total of `cudaMemGetInfo` on Linux, in the figure most often seen.
    pub capacity_bytes: u64,
    /// The lowest capacity seen over the driver versions in use, in bytes.
    ///
    /// GeForce and workstation cards are near it with drivers from about 570 on.
    pub capacity_low_bytes: u64,
    /// The highest capacity seen over the driver versions in use, in bytes.
    pub capacity_high_bytes: u64,
    /// Where the capacity came from.
    pub capacity_source: String,
    /// The number of streaming multiprocessors.
    pub sm_count: u32,
    /// The L2 cache in bytes, as CUDA reports it.
    pub l2_bytes: u64,
    /// The maximum SM clock in kHz.
    pub sm_clock_khz: u32,
    /// The maximum memory clock in kHz, as CUDA reports it.
    pub memory_clock_khz: u32,
    /// The width of the memory bus in bits.
    pub memory_bus_bits: u32,
    /// The device part of the PCI id (the vendor part is always 10de), where the card sits on PCI.
    pub pci_device_id: Option<u16>,
    /// Whether the GPU shares the memory of the host, as a Jetson does.
    pub integrated: bool,
    /// The id of the whole card, for a MIG slice.
    pub mig_parent: Option<String>,
    /// Where the SM count, clocks, bus width and L2 size came from.
    pub silicon_source: String,
    /// What a process takes on this card before the framework allocates anything.
    pub context: ContextCost,
    /// What else there is to know, as a sentence.
    pub note: Option<String>,
}

impl Gpu {
    /// The compute capability.
    pub fn compute_capability(&self) -> ComputeCapability {
        self.architecture.compute_capability
    }

    /// The bytes left for a framework's allocator: the capacity less the expected cost of one context.
    pub fn usable_bytes(&self) -> u64 {
        self.capacity_bytes.saturating_sub(self.context.expected_bytes)
    }

    /// The same card with another capacity, in bytes, for questions such as "what if it had 12 GiB".
    ///
    /// The id and the name stay, so that programs that look at them behave as on the real card.
    #[must_use]
    pub fn with_capacity(&self, capacity_bytes: u64) -> Self {
        Self {
            capacity_bytes,
            capacity_low_bytes: capacity_bytes,
            capacity_high_bytes: capacity_bytes,
            capacity_source: "given by the user".into(),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compute_capabilities_are_read_and_written() {
        let parsed: ComputeCapability = "12.0".parse().unwrap();
        assert_eq!((parsed.major, parsed.minor), (12, 0));
        assert_eq!(parsed.to_string(), "12.0");
        for wrong in ["", "8", "8.", ".9", "8.9a", "-8.9"] {
            assert!(wrong.parse::<ComputeCapability>().is_err(), "{wrong}");
        }
        assert!("10.0".parse::<ComputeCapability>().unwrap() > "9.0".parse::<ComputeCapability>().unwrap());
    }
}
