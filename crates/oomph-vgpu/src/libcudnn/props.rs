//! The description of a card, as the deviceless mode of cuDNN reads it.
#![deny(unsafe_code)]

use std::fmt::Write as _;

/// What cuDNN asks about a card.
#[derive(Clone, Debug, Default)]
pub struct Props {
    /// The name as CUDA prints it.
    pub name: String,
    /// Compute capability, 900 for 9.0.
    pub version: u64,
    /// Streaming multiprocessors.
    pub sm_count: u64,
    /// Resident threads per multiprocessor.
    pub max_threads_per_sm: u64,
    /// Resident blocks per multiprocessor.
    pub max_blocks_per_sm: u64,
    /// Registers per block.
    pub regs_per_block: u64,
    /// Registers per multiprocessor.
    pub regs_per_sm: u64,
    /// Shared memory per block without opting in, in bytes.
    pub shared_per_block: u64,
    /// Shared memory per block after opting in, in bytes.
    pub shared_per_block_optin: u64,
    /// Shared memory per block that the system keeps, in bytes.
    pub reserved_shared_per_block: u64,
    /// Level-2 cache, in bytes.
    pub l2_bytes: u64,
    /// Multiprocessor clock, in kHz.
    pub clock_khz: u64,
    /// Memory clock, in kHz.
    pub memory_clock_khz: u64,
    /// Width of the memory bus, in bits.
    pub bus_width_bits: u64,
    /// Number of the slot on the PCI bus, as in `cudaDeviceProp::pciDeviceID`; not the id of the product.
    pub pci_device_id: u64,
    /// Memory, in bytes.
    pub capacity_bytes: u64,
    /// The ordinal that the program knows the card by.
    pub ordinal: usize,
}

/// The driver that the virtual GPU stands for. cuDNN asks only whether it is new enough for the kernels it would build.
const DRIVER_VERSION: u64 = 13_020;

/// The JSON that `CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION` takes. Its members are those that cuDNN demands up to
/// 9.28, by the names that 9.26 gives in its error messages; `memoryBusWidth` came later, and older ones pass over it. Truth
/// values are numbers there.
pub fn props_json(props: &Props) -> String {
    let mut json = String::from("{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64]");
    let numbers = [
        ("deviceVer", props.version),
        ("driverVer", DRIVER_VERSION),
        ("regsPerBlock", props.regs_per_block),
        ("multiProcessorCount", props.sm_count),
        // Where the number of multiprocessors comes from: 0 is "the whole card", 1 would be a green context.
        ("smCountOrigin", 0),
        ("warpSize", 32),
        ("maxSharedMemoryPerBlock", props.shared_per_block),
        ("maxSharedMemoryPerBlockOptin", props.shared_per_block_optin),
        ("oversizedSharedMemoryPerBlock", 0),
        ("reservedSharedMemoryPerBlock", props.reserved_shared_per_block),
        ("maxRegistersPerSM", props.regs_per_sm),
        ("maxCtasPerSM", props.max_blocks_per_sm),
        ("maxThreadsPerBlock", 1024),
        ("maxThreadsPerSM", props.max_threads_per_sm),
        ("pciDeviceId", props.pci_device_id),
        ("isTccDriver", 0),
        ("supportCoopLaunch", 1),
        ("smClockRateKHz", props.clock_khz),
        ("memClockRateKHz", props.memory_clock_khz),
        ("memoryBusWidth", props.bus_width_bits),
        ("l2CacheSize", props.l2_bytes),
        ("totalGlobalMem", props.capacity_bytes),
        ("cudaDeviceId", props.ordinal as u64),
    ];
    for (name, value) in numbers {
        // Writing to a string cannot fail.
        let _ = write!(json, ",\"{name}\":{value}");
    }
    json.push_str(",\"deviceName\":\"");
    // A name of the catalogue is plain text; anything that JSON would have to escape is left out.
    json.extend(props.name.chars().filter(|letter| !letter.is_control() && !matches!(letter, '"' | '\\')));
    json.push_str("\"}");
    json
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// An H100 SXM, for the tests that ask the real library.
    pub fn h100() -> Props {
        Props {
            name: "NVIDIA H100 80GB HBM3".into(),
            version: 900,
            sm_count: 132,
            max_threads_per_sm: 2048,
            max_blocks_per_sm: 32,
            regs_per_block: 65_536,
            regs_per_sm: 65_536,
            shared_per_block: 49_152,
            shared_per_block_optin: 232_448,
            reserved_shared_per_block: 1024,
            l2_bytes: 52_428_800,
            clock_khz: 1_980_000,
            memory_clock_khz: 2_619_000,
            bus_width_bits: 5120,
            pci_device_id: 0,
            capacity_bytes: 85_017_493_504,
            ordinal: 0,
        }
    }

    #[test]
    fn the_json_holds_what_cudnn_demands() {
        let json = props_json(&h100());
        for member in ["deviceVer\":900", "multiProcessorCount\":132", "smCountOrigin\":0", "maxCtasPerSM\":32"] {
            assert!(json.contains(member), "{member} is missing from {json}");
        }
        assert!(json.ends_with("\"deviceName\":\"NVIDIA H100 80GB HBM3\"}"));
        assert_eq!(json.matches('{').count(), 1);
        assert_eq!(json.matches(':').count(), 26, "the number of members that cuDNN 9.28 reads");
    }

    #[test]
    fn a_hostile_name_stays_inside_its_quotes() {
        let json = props_json(&Props { name: "a\"b\\c\nd".into(), ..h100() });
        assert!(json.ends_with("\"deviceName\":\"abcd\"}"));
    }
}
