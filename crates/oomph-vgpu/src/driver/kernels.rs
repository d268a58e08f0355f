//! Modules, libraries, kernels, launches and occupancy.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::driver::{answer, attributes, hand_out, put};
use crate::module::{self, Attributes};
use crate::status::{INVALID_VALUE, SUCCESS};
use crate::{capture, device, work};

const NULL: *mut c_void = std::ptr::null_mut();

pub unsafe fn cuModuleLoadData(to: *mut *mut c_void, image: *const c_void) -> u32 {
    unsafe { hand_out(to, module::load(image), NULL) }
}

pub unsafe fn cuModuleLoadDataEx(
    to: *mut *mut c_void,
    image: *const c_void,
    _count: c_uint,
    _options: *mut c_int,
    _values: *mut *mut c_void,
) -> u32 {
    unsafe { hand_out(to, module::load(image), NULL) }
}

pub unsafe fn cuModuleLoadFatBinary(to: *mut *mut c_void, image: *const c_void) -> u32 {
    unsafe { hand_out(to, module::load(image), NULL) }
}

pub unsafe fn cuModuleLoad(to: *mut *mut c_void, _file: *const c_char) -> u32 {
    unsafe { hand_out(to, Ok(module::opaque()), NULL) }
}

pub unsafe fn cuModuleUnload(handle: *mut c_void) -> u32 {
    answer(module::unload(handle))
}

pub unsafe fn cuModuleGetFunction(to: *mut *mut c_void, handle: *mut c_void, name: *const c_char) -> u32 {
    if name.is_null() {
        return INVALID_VALUE;
    }
    unsafe { hand_out(to, module::function(handle, CStr::from_ptr(name)), NULL) }
}

pub unsafe fn cuModuleGetFunctionCount(count: *mut c_uint, handle: *mut c_void) -> u32 {
    unsafe { put(count, module::names(handle).len() as c_uint) };
    SUCCESS
}

pub unsafe fn cuModuleGetGlobal_v2(
    address: *mut *mut c_void,
    size: *mut usize,
    handle: *mut c_void,
    name: *const c_char,
) -> u32 {
    if name.is_null() {
        return INVALID_VALUE;
    }
    let found = module::global(handle, unsafe { CStr::from_ptr(name) });
    let (at, bytes) = found.unwrap_or((NULL, 0));
    unsafe {
        put(address, at);
        put(size, bytes);
    }
    answer(found.map(drop))
}

pub unsafe fn cuLibraryLoadData(
    to: *mut *mut c_void,
    image: *const c_void,
    _jit_options: *mut c_int,
    _jit_values: *mut *mut c_void,
    _jit_count: c_uint,
    _options: *mut c_int,
    _values: *mut *mut c_void,
    _count: c_uint,
) -> u32 {
    unsafe { hand_out(to, module::load(image), NULL) }
}

pub unsafe fn cuLibraryLoadFromFile(
    to: *mut *mut c_void,
    _file: *const c_char,
    _jit_options: *mut c_int,
    _jit_values: *mut *mut c_void,
    _jit_count: c_uint,
    _options: *mut c_int,
    _values: *mut *mut c_void,
    _count: c_uint,
) -> u32 {
    unsafe { hand_out(to, Ok(module::opaque()), NULL) }
}

pub unsafe fn cuLibraryUnload(handle: *mut c_void) -> u32 {
    answer(module::unload(handle))
}

pub unsafe fn cuLibraryGetKernel(to: *mut *mut c_void, handle: *mut c_void, name: *const c_char) -> u32 {
    unsafe { cuModuleGetFunction(to, handle, name) }
}

pub unsafe fn cuLibraryGetModule(to: *mut *mut c_void, handle: *mut c_void) -> u32 {
    unsafe { put(to, handle) };
    SUCCESS
}

pub unsafe fn cuLibraryGetGlobal(
    address: *mut *mut c_void,
    size: *mut usize,
    handle: *mut c_void,
    name: *const c_char,
) -> u32 {
    unsafe { cuModuleGetGlobal_v2(address, size, handle, name) }
}

pub unsafe fn cuLibraryGetKernelCount(count: *mut c_uint, handle: *mut c_void) -> u32 {
    unsafe { cuModuleGetFunctionCount(count, handle) }
}

/// A kernel and its function in a context are the same here.
pub unsafe fn cuKernelGetFunction(to: *mut *mut c_void, kernel: *mut c_void) -> u32 {
    unsafe { put(to, kernel) };
    SUCCESS
}

pub unsafe fn cuKernelGetName(name: *mut *const c_char, kernel: *mut c_void) -> u32 {
    unsafe { cuFuncGetName(name, kernel) }
}

pub unsafe fn cuFuncGetName(name: *mut *const c_char, function: *mut c_void) -> u32 {
    unsafe { put(name, module::kernel(function).map_or(c"".as_ptr(), |kernel| kernel.name.as_ptr())) };
    SUCCESS
}

pub unsafe fn cuFuncGetModule(to: *mut *mut c_void, function: *mut c_void) -> u32 {
    unsafe { put(to, module::kernel(function).map_or(NULL, module::Kernel::module)) };
    SUCCESS
}

fn known(function: *mut c_void) -> Attributes {
    Attributes::of(function)
}

/// Attributes by their number in `CUfunction_attribute`.
pub unsafe fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: *mut c_void) -> u32 {
    let kernel = known(function);
    let block = device::current().map_or(49_152, |device| device.description.shared_per_block_optin as u32);
    let found = match attribute {
        0 => kernel.max_threads,
        1 => kernel.shared,
        3 => kernel.local,
        4 => kernel.registers,
        5 | 6 => kernel.arch,
        8 => block.saturating_sub(kernel.shared),
        _ => 0,
    };
    unsafe { put(value, found as c_int) };
    SUCCESS
}

pub unsafe fn cuKernelGetAttribute(value: *mut c_int, attribute: c_int, kernel: *mut c_void, _device: c_int) -> u32 {
    unsafe { cuFuncGetAttribute(value, attribute, kernel) }
}

pub unsafe fn cuLaunchKernel(
    _function: *mut c_void,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    _shared: c_uint,
    stream: *mut c_void,
    _parameters: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> u32 {
    work::kernel::by_threads([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    capture::launched(stream);
    SUCCESS
}

/// The beginning of `CUlaunchConfig`.
#[repr(C)]
pub struct LaunchConfiguration {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: *mut c_void,
}

pub unsafe fn cuLaunchKernelEx(
    configuration: *const LaunchConfiguration,
    _function: *mut c_void,
    _parameters: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> u32 {
    if configuration.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: CUDA's contract: the configuration can be read.
    let LaunchConfiguration { grid, block, stream, .. } = unsafe { &*configuration };
    work::kernel::by_threads(*grid, *block);
    capture::launched(*stream);
    SUCCESS
}

pub unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    function: *mut c_void,
    threads: c_int,
    shared: usize,
) -> u32 {
    unsafe { put(blocks, attributes::resident_blocks(&known(function), threads, shared)) };
    SUCCESS
}

pub unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: *mut c_int,
    function: *mut c_void,
    threads: c_int,
    shared: usize,
    _flags: c_uint,
) -> u32 {
    unsafe { cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared) }
}

pub unsafe fn cuOccupancyMaxPotentialBlockSize(
    grid: *mut c_int,
    block: *mut c_int,
    function: *mut c_void,
    _shared_of: *const c_void,
    shared: usize,
    limit: c_int,
) -> u32 {
    let threads = if limit > 0 { limit.min(1024) } else { 1024 };
    let resident = attributes::resident_blocks(&known(function), threads, shared);
    let multiprocessors = device::current().map_or(1, |device| device.description.sm_count as c_int);
    unsafe {
        put(grid, resident * multiprocessors);
        put(block, threads);
    }
    SUCCESS
}

pub unsafe fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    grid: *mut c_int,
    block: *mut c_int,
    function: *mut c_void,
    shared_of: *const c_void,
    shared: usize,
    limit: c_int,
    _flags: c_uint,
) -> u32 {
    unsafe { cuOccupancyMaxPotentialBlockSize(grid, block, function, shared_of, shared, limit) }
}

pub unsafe fn cuOccupancyAvailableDynamicSMemPerBlock(
    bytes: *mut usize,
    _function: *mut c_void,
    blocks: c_int,
    _threads: c_int,
) -> u32 {
    let shared = device::current().map_or(49_152, |device| device.description.shared_per_sm as usize);
    unsafe { put(bytes, shared / blocks.max(1) as usize) };
    SUCCESS
}

pub unsafe fn cuOccupancyMaxPotentialClusterSize(
    size: *mut c_int,
    _function: *mut c_void,
    _configuration: *const c_void,
) -> u32 {
    unsafe { put(size, 8) };
    SUCCESS
}

pub unsafe fn cuOccupancyMaxActiveClusters(
    clusters: *mut c_int,
    _function: *mut c_void,
    _configuration: *const c_void,
) -> u32 {
    unsafe { put(clusters, attributes::max_clusters()) };
    SUCCESS
}
