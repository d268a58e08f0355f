//! Device attributes, which both APIs number alike, and what follows from them.
//!
//! What depends on the compute capability alone is in the CUDA C++ programming guide. Where it says nothing, the values of
//! compute capability 9 are those of an H100 SXM (driver 580.159.04, CUDA 13.0), and other cards are said to lack the feature.

use std::ffi::c_int;

use oomph_ledger::DeviceDescription;

use crate::device::{self, Device, PCI_SLOT};
use crate::module::Attributes;

/// NVIDIA's vendor id.
const VENDOR: u64 = 0x10de;

/// The last attribute of CUDA 13.0. Others are errors.
const LAST: c_int = 147;
/// `CU_DEVICE_ATTRIBUTE_NUMA_ID`, the one that is negative: no card here is a NUMA node of its own.
const NUMA_ID: c_int = 131;

/// The combined PCI id as NVML and CUDA 13 report it: device in the upper half, vendor in the lower.
pub fn pci_device_id(card: &DeviceDescription) -> u64 {
    card.pci_device_id << 16 | VENDOR
}

/// Whether cards of this name protect their memory by default: those of data centres.
pub fn has_error_correction(name: &str) -> bool {
    !["GeForce", "TITAN", "RTX", "Quadro", "Orin"].iter().any(|known| name.contains(known))
}

/// Whether a card is of the generation whose values were read on an H100.
pub fn is_hopper(card: &DeviceDescription) -> bool {
    card.cc_major == 9
}

/// The most of the level-2 cache that can be set aside for accesses that persist, in bytes.
pub fn most_persisting_l2(card: &DeviceDescription) -> u64 {
    if is_hopper(card) { card.l2_bytes / 8 * 5 } else { 0 }
}

/// The value of an attribute, by its number in `CUdevice_attribute`; `None` for a number that names none. Attributes that
/// are not listed are 0: features that the card lacks or that the virtual GPU does not offer.
pub fn of(device: Device, ordinal: c_int, attribute: c_int) -> Option<c_int> {
    let card = device.description;
    match attribute {
        NUMA_ID => Some(-1),
        1..=LAST => {
            let value = texture(attribute).or_else(|| feature(card, attribute));
            let value = value.unwrap_or_else(|| figure(card, ordinal, attribute));
            Some(c_int::try_from(value).unwrap_or(c_int::MAX))
        }
        _ => None,
    }
}

/// Sizes of textures and surfaces in elements, and how they are aligned: the same for all cards since Pascal.
fn texture(attribute: c_int) -> Option<u64> {
    Some(match attribute {
        14 | 30 => 512,               // TEXTURE_ALIGNMENT, SURFACE_ALIGNMENT
        51 => 32,                     // TEXTURE_PITCH_ALIGNMENT
        21 | 22 | 56 | 70 => 131_072, // TEXTURE1D, TEXTURE2D, SURFACE2D and TEXTURE2D_LINEAR width
        23 | 57 => 65_536,            // TEXTURE2D and SURFACE2D height
        71 => 65_000,                 // TEXTURE2D_LINEAR height
        72 => 2_097_120,              // TEXTURE2D_LINEAR pitch
        69 => 1 << 28,                // TEXTURE1D_LINEAR width
        24..=26 | 58..=60 => 16_384,  // TEXTURE3D and SURFACE3D
        47 | 48 => 8_192,             // TEXTURE3D width and height, the alternates
        49 => 32_768,                 // TEXTURE3D depth, the alternate
        27 | 28 | 42 => 32_768,       // TEXTURE2D_LAYERED, TEXTURE1D_LAYERED width
        45 | 46 => 32_768,            // TEXTURE2D_GATHER
        52 | 53 | 66 | 67 => 32_768,  // TEXTURECUBEMAP, SURFACECUBEMAP and layered ones
        55 | 61 | 63 | 64 => 32_768,  // SURFACE1D, SURFACE1D_LAYERED, SURFACE2D_LAYERED
        73 | 74 | 77 => 32_768,       // TEXTURE2D_MIPMAPPED, TEXTURE1D_MIPMAPPED
        29 | 43 | 62 | 65 => 2_048,   // layers of one and two dimensions
        54 | 68 => 2_046,             // layers of cubemaps
        44 => 1,                      // CAN_TEX2D_GATHER
        _ => return None,
    })
}

/// Features and figures of a generation.
fn feature(card: &DeviceDescription, attribute: c_int) -> Option<u64> {
    let (since_hopper, hopper) = (u64::from(card.cc_major >= 9), u64::from(is_hopper(card)));
    Some(match attribute {
        40 => 2 + hopper,                // ASYNC_ENGINE_COUNT
        87 => double_ratio(card),        // SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO
        107 => hopper,                   // GENERIC_COMPRESSION
        108 => most_persisting_l2(card), // MAX_PERSISTING_L2_CACHE_SIZE
        109 => hopper * (128 << 20),     // MAX_ACCESS_POLICY_WINDOW_SIZE
        110 | 116 | 117 => hopper,       // GPU_DIRECT_RDMA with VMM, itself, how writes are flushed (by the host)
        118 => hopper * 100,             // GPU_DIRECT_RDMA_WRITES_ORDERING: for this card and its peers
        112 => hopper,                   // SPARSE_CUDA_ARRAY
        113 => hopper,                   // READ_ONLY_HOST_REGISTER
        114 => hopper,                   // TIMELINE_SEMAPHORE_INTEROP
        119 => 1 + 8 * hopper,           // MEMPOOL_SUPPORTED_HANDLE_TYPES: POSIX, fabric
        120 => since_hopper,             // CLUSTER_LAUNCH
        121 => hopper,                   // DEFERRED_MAPPING_CUDA_ARRAY
        122 | 123 => hopper,             // CAN_USE_64_BIT_STREAM_MEM_OPS, CAN_USE_STREAM_WAIT_VALUE_NOR
        124 | 125 => hopper,             // DMA_BUF, IPC_EVENT
        126 => 1 + 3 * since_hopper,     // MEM_SYNC_DOMAIN_COUNT
        127 => since_hopper,             // TENSOR_MAP_ACCESS
        128 | 129 => hopper,             // HANDLE_TYPE_FABRIC, UNIFIED_FUNCTION_POINTERS
        141 | 142 => hopper,             // HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT and its MEMORY_POOLS
        144 | 145 => hopper,             // HOST_MEMORY_POOLS, HOST_VIRTUAL_MEMORY_MANAGEMENT
        _ => return None,
    })
}

/// Everything else.
fn figure(card: &DeviceDescription, ordinal: c_int, attribute: c_int) -> u64 {
    match attribute {
        1..=3 => 1024,                                     // MAX_THREADS_PER_BLOCK, MAX_BLOCK_DIM_X, _Y
        4 => 64,                                           // MAX_BLOCK_DIM_Z
        5 => 0x7fff_ffff,                                  // MAX_GRID_DIM_X
        6 | 7 => 65_535,                                   // MAX_GRID_DIM_Y, _Z
        8 => card.shared_per_block,                        // MAX_SHARED_MEMORY_PER_BLOCK
        9 => 64 << 10,                                     // TOTAL_CONSTANT_MEMORY
        10 => 32,                                          // WARP_SIZE
        11 => 0x7fff_ffff,                                 // MAX_PITCH
        12 => card.regs_per_block,                         // MAX_REGISTERS_PER_BLOCK
        13 => card.clock_khz,                              // CLOCK_RATE
        15 => 1,                                           // GPU_OVERLAP
        16 => card.sm_count,                               // MULTIPROCESSOR_COUNT
        18 => card.integrated,                             // INTEGRATED
        19 => 1,                                           // CAN_MAP_HOST_MEMORY
        31 => 1,                                           // CONCURRENT_KERNELS
        32 => u64::from(has_error_correction(&card.name)), // ECC_ENABLED
        33 => 1 + ordinal as u64,                          // PCI_BUS_ID
        34 => PCI_SLOT,                                    // PCI_DEVICE_ID
        36 => card.memory_clock_khz,                       // MEMORY_CLOCK_RATE
        37 => card.bus_width_bits,                         // GLOBAL_MEMORY_BUS_WIDTH
        38 => card.l2_bytes,                               // L2_CACHE_SIZE
        39 => card.max_threads_per_sm,                     // MAX_THREADS_PER_MULTIPROCESSOR
        41 => 1,                                           // UNIFIED_ADDRESSING
        75 => card.cc_major,                               // COMPUTE_CAPABILITY_MAJOR
        76 => card.cc_minor,                               // COMPUTE_CAPABILITY_MINOR
        78..=80 => 1,                                      // STREAM_PRIORITIES, GLOBAL_L1, LOCAL_L1
        81 => card.shared_per_sm,                          // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
        82 => card.regs_per_sm,                            // MAX_REGISTERS_PER_MULTIPROCESSOR
        83 => 1,                                           // MANAGED_MEMORY
        89..=91 => 1,                                      // CONCURRENT_MANAGED_ACCESS, PREEMPTION, HOST_POINTER
        95 | 96 => 1,                                      // COOPERATIVE_LAUNCH and on several devices
        97 => card.shared_per_block_optin,                 // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        99 => 1,                                           // HOST_REGISTER_SUPPORTED
        102 | 103 => 1,                                    // VIRTUAL_MEMORY_MANAGEMENT, POSIX handles
        106 => card.max_blocks_per_sm,                     // MAX_BLOCKS_PER_MULTIPROCESSOR
        111 => card.reserved_shared_per_block,             // RESERVED_SHARED_MEMORY_PER_BLOCK
        115 => 1,                                          // MEMORY_POOLS_SUPPORTED
        139 => pci_device_id(card),                        // GPU_PCI_DEVICE_ID
        _ => 0,
    }
}

/// How many times as fast single precision is as double precision, by the throughput of their additions in the
/// programming guide.
fn double_ratio(card: &DeviceDescription) -> u64 {
    match (card.cc_major, card.cc_minor) {
        (6..=10, 0) => 2,
        (..=7, _) => 32,
        _ => 64,
    }
}

/// How many blocks of a kernel a multiprocessor holds at once: limited by threads, blocks, registers and shared memory.
pub fn resident_blocks(kernel: &Attributes, threads: c_int, dynamic_shared: usize) -> c_int {
    let Some(device) = device::current() else { return 1 };
    let card = device.description;
    let threads = u64::try_from(threads).unwrap_or(0).clamp(1, 1024);
    let warps = threads.div_ceil(32);
    let mut blocks = (card.max_threads_per_sm / (warps * 32)).min(card.max_blocks_per_sm.max(1));
    // Registers are given to warps in units of 256, and shared memory to blocks in units of 1 KiB on Ampere and newer.
    let registers = (u64::from(kernel.registers.max(1)) * 32).next_multiple_of(256) * warps;
    blocks = blocks.min(card.regs_per_sm / registers.max(1));
    let shared = u64::from(kernel.shared) + dynamic_shared as u64;
    if shared > 0 {
        let each = shared.next_multiple_of(128) + card.reserved_shared_per_block;
        blocks = blocks.min(card.shared_per_sm / each.max(1));
    }
    c_int::try_from(blocks.max(1)).unwrap_or(1)
}

/// How many clusters of blocks run at once; a coarse answer that callers only need to be positive.
pub fn max_clusters() -> c_int {
    device::current().map_or(1, |device| (device.description.sm_count / 8).max(1) as c_int)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn h100() -> Device {
        let description = DeviceDescription {
            name: "NVIDIA H100 80GB HBM3".into(),
            cc_major: 9,
            sm_count: 132,
            l2_bytes: 52_428_800,
            clock_khz: 1_980_000,
            memory_clock_khz: 2_619_000,
            bus_width_bits: 5120,
            max_threads_per_sm: 2048,
            max_blocks_per_sm: 32,
            regs_per_block: 65_536,
            regs_per_sm: 65_536,
            shared_per_block: 49_152,
            shared_per_block_optin: 232_448,
            shared_per_sm: 233_472,
            reserved_shared_per_block: 1024,
            pci_device_id: 0x2330,
            ..DeviceDescription::default()
        };
        Device { card: 0, description: Box::leak(Box::new(description)) }
    }

    /// Attributes 1 to 147 as an H100 answers them, driver 580.159.04, 2026-11-26.
    #[rustfmt::skip]
    const READ: [c_int; 147] = [
        1024, 1024, 1024, 64, 2_147_483_647, 65535, 65535, 49152, 65536, 32, 2_147_483_647, 65536, 1_980_000, 512, 1,
        132, 0, 0, 1, 0, 131_072, 131_072, 65536, 16384, 16384, 16384, 32768, 32768, 2048, 512, 1, 1, 0, 6, 0,
        2_619_000, 5120, 52_428_800, 2048, 3, 1, 32768, 2048, 1, 32768, 32768, 8192, 8192, 32768, 0, 32, 32768, 32768,
        2046, 32768, 131_072, 65536, 16384, 16384, 16384, 32768, 2048, 32768, 32768, 2048, 32768, 32768, 2046,
        268_435_456, 131_072, 65000, 2_097_120, 32768, 32768, 9, 0, 32768, 1, 1, 1, 233_472, 65536, 1, 0, 0, 0, 2, 0,
        1, 1, 1, 0, 0, 0, 1, 1, 232_448, 0, 1, 0, 0, 1, 1, 0, 0, 32, 1, 32_768_000, 134_217_728, 1, 1024, 1, 1, 1, 1,
        1, 1, 100, 9, 1, 1, 1, 1, 1, 1, 4, 1, 1, 1, 0, -1, 0, 0, 0, 0, 0, 0, 0, 590_352_606, 381_751_518, 1, 1, 0, 1,
        1, 0, 0,
    ];
    /// What says where in its machine a card is: the bus and the slot, and the maker of the board.
    const OF_THE_MACHINE: [c_int; 3] = [33, 34, 140];

    #[test]
    fn an_h100_answers_as_a_real_one() {
        for (attribute, read) in (1..).zip(READ) {
            if !OF_THE_MACHINE.contains(&attribute) {
                assert_eq!(of(h100(), 0, attribute), Some(read), "attribute {attribute}");
            }
        }
        for unknown in [-1, 0, 148, 9999] {
            assert_eq!(of(h100(), 0, unknown), None);
        }
    }

    #[test]
    fn generations_differ_where_the_programming_guide_says_so() {
        let card = |cc_major, cc_minor| DeviceDescription { cc_major, cc_minor, ..DeviceDescription::default() };
        let ratios = [(6, 0), (6, 1), (7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)]
            .map(|(major, minor)| double_ratio(&card(major, minor)));
        assert_eq!(ratios, [2, 32, 2, 32, 2, 64, 64, 2, 2, 64]);
        assert_eq!([120, 126, 127].map(|attribute| feature(&card(8, 0), attribute)), [Some(0), Some(1), Some(0)]);
        assert_eq!([120, 126, 127].map(|attribute| feature(&card(12, 0), attribute)), [Some(1), Some(4), Some(1)]);
    }
}
