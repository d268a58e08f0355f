//! `cudaDeviceProp`, whose layout differs between CUDA 11, 12 and 13.

use std::ffi::c_int;

use crate::boundary::Memory;
use crate::cuda::{attributes, functions};
use crate::device::Device;
use crate::loader;
use crate::runtime::get;
use crate::status::{CudaStatus, RuntimeStatus};

/// Which layout a caller expects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Layout {
    Cuda11,
    Cuda12,
    Cuda13,
}

/// Builds the structure member by member, with C's alignment.
struct Members {
    bytes: Vec<u8>,
}

impl Members {
    fn text(&mut self, text: &str, size: usize) {
        let start = self.bytes.len();
        self.bytes.extend(text.bytes().take(size - 1));
        self.bytes.resize(start + size, 0);
    }

    fn int(&mut self, value: u64) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self.bytes.extend_from_slice(&(value as u32).to_le_bytes());
    }

    fn ints(&mut self, values: &[u64]) {
        values.iter().for_each(|value| self.int(*value));
    }

    fn size(&mut self, value: u64) {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }
}

/// An attribute as a member holds it, whose low 32 bits count.
fn value_of(device: Device, ordinal: usize, attribute: c_int) -> u64 {
    attributes::of(device, ordinal as c_int, attribute).map_or(0, |value| i64::from(value) as u64)
}

/// The members in the order of the public header. What only CUDA 11 and 12 have is marked `old`.
fn build(device: Device, ordinal: usize, layout: Layout) -> Vec<u8> {
    let card = device.description;
    let old = layout < Layout::Cuda13;
    let attribute = |number| value_of(device, ordinal, number);
    let mut members = Members { bytes: Vec::with_capacity(1024) };
    let m = &mut members;
    m.text(&card.name, 256);
    m.bytes.extend_from_slice(&card.uuid);
    m.text("", 8); // luid
    m.int(0); // luidDeviceNodeMask
    m.size(device.capacity_bytes()); // totalGlobalMem
    m.size(card.shared_per_block);
    m.ints(&[card.regs_per_block, 32]); // regsPerBlock, warpSize
    m.size(0x7fff_ffff); // memPitch
    m.int(1024); // maxThreadsPerBlock
    m.ints(&[1024, 1024, 64]); // maxThreadsDim
    m.ints(&[0x7fff_ffff, 65_535, 65_535]); // maxGridSize
    if old {
        m.int(card.clock_khz);
    }
    m.size(64 << 10); // totalConstMem
    m.ints(&[card.cc_major, card.cc_minor]);
    m.size(512); // textureAlignment
    m.size(32); // texturePitchAlignment
    if old {
        m.int(1); // deviceOverlap
    }
    m.int(card.sm_count);
    if old {
        m.int(0); // kernelExecTimeoutEnabled
    }
    m.ints(&[card.integrated, 1]); // integrated, canMapHostMemory
    if old {
        m.int(0); // computeMode
    }
    m.ints(&[131_072, 32_768]); // maxTexture1D, maxTexture1DMipmap
    if old {
        m.int(268_435_456); // maxTexture1DLinear
    }
    m.ints(&[131_072, 65_536, 32_768, 32_768]); // maxTexture2D, maxTexture2DMipmap
    m.ints(&[131_072, 65_000, 2_097_120, 32_768, 32_768]); // maxTexture2DLinear, maxTexture2DGather
    m.ints(&[16_384, 16_384, 16_384, 8_192, 8_192, 32_768]); // maxTexture3D, maxTexture3DAlt
    m.ints(&[32_768, 32_768, 2_048, 32_768, 32_768, 2_048]); // cubemap, 1D and 2D layered
    m.ints(&[32_768, 2_046]); // maxTextureCubemapLayered
    m.ints(&[32_768, 131_072, 65_536, 16_384, 16_384, 16_384]); // surfaces 1D, 2D, 3D
    m.ints(&[32_768, 2_048, 32_768, 32_768, 2_048]); // surfaces layered
    m.ints(&[32_768, 32_768, 2_046]); // surface cubemaps
    m.size(512); // surfaceAlignment
    m.ints(&[1, attribute(32)]); // concurrentKernels, ECCEnabled
    m.ints(&[33, 34, 50].map(attribute)); // PCI bus, device, domain
    m.ints(&[0, attribute(40), 1]); // tccDriver, asyncEngineCount, unifiedAddressing
    if old {
        m.int(card.memory_clock_khz);
    }
    m.ints(&[card.bus_width_bits, card.l2_bytes, attribute(108)]); // and persistingL2CacheMaxSize
    m.ints(&[card.max_threads_per_sm, 1, 1, 1]); // and stream priorities, L1 caching of globals and locals
    m.size(card.shared_per_sm);
    m.ints(&[card.regs_per_sm, 1, 0, 0]); // and managedMemory, isMultiGpuBoard, its group
    m.int(0); // hostNativeAtomicSupported
    if old {
        m.int(attribute(87)); // singleToDoublePrecisionPerfRatio
    }
    m.ints(&[0, 1, 1, 1, 1]); // pageable access, concurrent managed, preemption, host pointer, cooperative launch
    if old {
        m.int(1); // cooperativeMultiDeviceLaunch
    }
    m.size(card.shared_per_block_optin);
    m.ints(&[0, 0, card.max_blocks_per_sm, attribute(109)]); // page tables, direct access, blocks, access window
    m.size(card.reserved_shared_per_block);
    if layout != Layout::Cuda11 {
        add_what_is_newer(m, attribute, layout);
    }
    members.bytes
}

/// The members that CUDA 12 added.
fn add_what_is_newer(m: &mut Members, attribute: impl Fn(c_int) -> u64, layout: Layout) {
    m.ints(&[99, 112, 113, 114, 115].map(&attribute)); // host registration, sparse arrays, read-only registration, semaphores, pools
    m.ints(&[116, 117, 118, 119, 121].map(&attribute)); // RDMA, its flush and ordering, pool handle types, deferred arrays
    m.ints(&[125, 120, 129].map(&attribute)); // IPC events, clusters, unified function pointers
    if layout == Layout::Cuda13 {
        m.ints(&[130, 131, 133, 134].map(&attribute)); // NUMA configuration and node, MPS, node of the host
        m.ints(&[139, 140, 143].map(&attribute)); // gpuPciDeviceID, subsystem, multinode IPC
        m.ints(&[0; 56]);
    } else {
        m.ints(&[0; 63]);
    }
    m.bytes.resize(m.bytes.len().next_multiple_of(8), 0);
}

functions! { RuntimeStatus:
    /// CUDA 13 gave this name a new layout; before, it was CUDA 11's.
    cudaGetDeviceProperties(to: Memory<'_>, ordinal: c_int) = {
        write(to, ordinal, if loader::runtime_major() >= 13 { Layout::Cuda13 } else { Layout::Cuda11 })
    };
    /// CUDA 12's name for its own layout.
    cudaGetDeviceProperties_v2(to: Memory<'_>, ordinal: c_int) = write(to, ordinal, Layout::Cuda12);
}

fn write(to: Memory<'_>, ordinal: c_int, layout: Layout) -> Result<(), CudaStatus> {
    let device = get(ordinal)?;
    if to.is_null() {
        return Err(CudaStatus::INVALID_VALUE);
    }
    let bytes = build(device, ordinal as usize, layout);
    // SAFETY: the program passes the structure of its own CUDA version, which is at least as large as what was built.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.address().cast(), bytes.len()) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use oomph_ledger::DeviceDescription;

    use super::*;

    fn built(layout: Layout) -> Vec<u8> {
        let description = DeviceDescription {
            name: "card".into(),
            capacity_bytes: 0x1122_3344_5566,
            shared_per_block_optin: 0xabcd,
            reserved_shared_per_block: 0x400,
            ..DeviceDescription::default()
        };
        let description: &'static DeviceDescription = Box::leak(Box::new(description));
        build(Device { card: 0, description }, 0, layout)
    }

    /// `sizeof(cudaDeviceProp)` and offsets as a C compiler gives them for the public headers of 12.4 and 13.2.
    #[test]
    fn the_layouts_are_those_of_the_headers() {
        let word = |bytes: &[u8], at: usize| {
            bytes.get(at..at + 8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
        };
        let twelve = built(Layout::Cuda12);
        let thirteen = built(Layout::Cuda13);
        assert_eq!((twelve.len(), thirteen.len()), (1032, 1008));
        for bytes in [&twelve, &thirteen] {
            assert_eq!(word(bytes, 288), Some(0x1122_3344_5566));
        }
        assert_eq!(word(&twelve, 696), Some(0xabcd));
        assert_eq!(word(&thirteen, 672), Some(0xabcd));
    }
}
