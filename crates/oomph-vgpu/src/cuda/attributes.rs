//! Device attributes, which both APIs number alike, and what follows from them.

use std::ffi::c_int;

use oomph_ledger::DeviceDescription;

use crate::device::{self, Device};
use crate::module::Attributes;

/// Single to double precision speed; consumer cards differ, but nobody sizes memory by it.
pub const DOUBLE_RATIO: u64 = 32;

/// NVIDIA's vendor id.
const VENDOR: u64 = 0x10de;

/// The combined PCI id as NVML and CUDA 13 report it: device in the upper half, vendor in the lower.
pub fn pci_device_id(card: &DeviceDescription) -> u64 {
    card.pci_device_id << 16 | VENDOR
}

/// The value of an attribute, by its number in `CUdevice_attribute`. Attributes that are not listed are 0: features
/// that the card lacks or that the virtual GPU does not offer.
pub fn of(device: Device, ordinal: c_int, attribute: c_int) -> c_int {
    let card = device.description;
    let value: u64 = match attribute {
        1..=3 => 1024,                         // MAX_THREADS_PER_BLOCK, MAX_BLOCK_DIM_X, _Y
        4 => 64,                               // MAX_BLOCK_DIM_Z
        5 => 0x7fff_ffff,                      // MAX_GRID_DIM_X
        6 | 7 => 65_535,                       // MAX_GRID_DIM_Y, _Z
        8 => card.shared_per_block,            // MAX_SHARED_MEMORY_PER_BLOCK
        9 => 64 << 10,                         // TOTAL_CONSTANT_MEMORY
        10 => 32,                              // WARP_SIZE
        11 => 0x7fff_ffff,                     // MAX_PITCH
        12 => card.regs_per_block,             // MAX_REGISTERS_PER_BLOCK
        13 => card.clock_khz,                  // CLOCK_RATE
        14 => 512,                             // TEXTURE_ALIGNMENT
        15 => 1,                               // GPU_OVERLAP
        16 => card.sm_count,                   // MULTIPROCESSOR_COUNT
        18 => card.integrated,                 // INTEGRATED
        19 => 1,                               // CAN_MAP_HOST_MEMORY
        31 => 1,                               // CONCURRENT_KERNELS
        33 => 1 + ordinal as u64,              // PCI_BUS_ID
        36 => card.memory_clock_khz,           // MEMORY_CLOCK_RATE
        37 => card.bus_width_bits,             // GLOBAL_MEMORY_BUS_WIDTH
        38 => card.l2_bytes,                   // L2_CACHE_SIZE
        39 => card.max_threads_per_sm,         // MAX_THREADS_PER_MULTIPROCESSOR
        40 => 2,                               // ASYNC_ENGINE_COUNT
        41 => 1,                               // UNIFIED_ADDRESSING
        75 => card.cc_major,                   // COMPUTE_CAPABILITY_MAJOR
        76 => card.cc_minor,                   // COMPUTE_CAPABILITY_MINOR
        78..=80 => 1,                          // STREAM_PRIORITIES, GLOBAL_L1, LOCAL_L1
        81 => card.shared_per_sm,              // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
        82 => card.regs_per_sm,                // MAX_REGISTERS_PER_MULTIPROCESSOR
        83 => 1,                               // MANAGED_MEMORY
        87 => DOUBLE_RATIO,                    // SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO
        89..=91 => 1,                          // CONCURRENT_MANAGED_ACCESS, PREEMPTION, HOST_POINTER
        95 | 96 => 1,                          // COOPERATIVE_LAUNCH and on several devices
        97 => card.shared_per_block_optin,     // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        99 => 1,                               // HOST_REGISTER_SUPPORTED
        102 | 103 => 1,                        // VIRTUAL_MEMORY_MANAGEMENT, POSIX handles
        106 => card.max_blocks_per_sm,         // MAX_BLOCKS_PER_MULTIPROCESSOR
        111 => card.reserved_shared_per_block, // RESERVED_SHARED_MEMORY_PER_BLOCK
        115 => 1,                              // MEMORY_POOLS_SUPPORTED
        120 => u64::from(card.cc_major >= 9),  // CLUSTER_LAUNCH
        _ => 0,
    };
    c_int::try_from(value).unwrap_or(c_int::MAX)
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
