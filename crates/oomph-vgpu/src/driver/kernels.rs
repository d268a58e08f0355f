//! Modules, libraries, kernels, launches and occupancy.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::boundary::{Out, Text};
use crate::driver::{answer, attributes, hand_out};
use crate::gpu::gpu;
use crate::module::{self, Attributes};
use crate::status::{INVALID_VALUE, SUCCESS};
use crate::{capture, device};

const NULL: *mut c_void = std::ptr::null_mut();

pub unsafe fn cuModuleLoadData(to: Out<'_, *mut c_void>, image: *const c_void) -> u32 {
    // SAFETY: CUDA's contract: the image of a module, or null.
    unsafe { hand_out(to, module::load(image), NULL) }
}

pub unsafe fn cuModuleLoadDataEx(
    to: Out<'_, *mut c_void>,
    image: *const c_void,
    _count: c_uint,
    _options: *mut c_int,
    _values: *mut *mut c_void,
) -> u32 {
    // SAFETY: CUDA's contract: the image of a module, or null.
    unsafe { hand_out(to, module::load(image), NULL) }
}

pub unsafe fn cuModuleLoadFatBinary(to: Out<'_, *mut c_void>, image: *const c_void) -> u32 {
    // SAFETY: CUDA's contract: the image of a module, or null.
    unsafe { hand_out(to, module::load(image), NULL) }
}

pub fn cuModuleLoad(to: Out<'_, *mut c_void>, _file: *const c_char) -> u32 {
    hand_out(to, Ok(module::opaque()), NULL)
}

pub fn cuModuleUnload(handle: *mut c_void) -> u32 {
    answer(module::unload(handle))
}

pub fn cuModuleGetFunction(to: Out<'_, *mut c_void>, handle: *mut c_void, name: Text<'_>) -> u32 {
    let Some(name) = name.get() else { return INVALID_VALUE };
    hand_out(to, module::function(handle, name), NULL)
}

pub fn cuModuleGetFunctionCount(count: Out<'_, c_uint>, handle: *mut c_void) -> u32 {
    count.set(module::names(handle).len() as c_uint);
    SUCCESS
}

pub fn cuModuleGetGlobal_v2(
    address: Out<'_, *mut c_void>,
    size: Out<'_, usize>,
    handle: *mut c_void,
    name: Text<'_>,
) -> u32 {
    let Some(name) = name.get() else { return INVALID_VALUE };
    let found = module::global(handle, name);
    let (at, bytes) = found.unwrap_or((NULL, 0));
    address.set(at);
    size.set(bytes);
    answer(found.map(drop))
}

pub unsafe fn cuLibraryLoadData(
    to: Out<'_, *mut c_void>,
    image: *const c_void,
    _jit_options: *mut c_int,
    _jit_values: *mut *mut c_void,
    _jit_count: c_uint,
    _options: *mut c_int,
    _values: *mut *mut c_void,
    _count: c_uint,
) -> u32 {
    // SAFETY: CUDA's contract: the image of a module, or null.
    unsafe { hand_out(to, module::load(image), NULL) }
}

pub fn cuLibraryLoadFromFile(
    to: Out<'_, *mut c_void>,
    _file: *const c_char,
    _jit_options: *mut c_int,
    _jit_values: *mut *mut c_void,
    _jit_count: c_uint,
    _options: *mut c_int,
    _values: *mut *mut c_void,
    _count: c_uint,
) -> u32 {
    hand_out(to, Ok(module::opaque()), NULL)
}

pub fn cuLibraryUnload(handle: *mut c_void) -> u32 {
    answer(module::unload(handle))
}

pub fn cuLibraryGetKernel(to: Out<'_, *mut c_void>, handle: *mut c_void, name: Text<'_>) -> u32 {
    cuModuleGetFunction(to, handle, name)
}

pub fn cuLibraryGetModule(to: Out<'_, *mut c_void>, handle: *mut c_void) -> u32 {
    to.set(handle);
    SUCCESS
}

pub fn cuLibraryGetGlobal(
    address: Out<'_, *mut c_void>,
    size: Out<'_, usize>,
    handle: *mut c_void,
    name: Text<'_>,
) -> u32 {
    cuModuleGetGlobal_v2(address, size, handle, name)
}

pub fn cuLibraryGetKernelCount(count: Out<'_, c_uint>, handle: *mut c_void) -> u32 {
    cuModuleGetFunctionCount(count, handle)
}

/// A kernel and its function in a context are the same here.
pub fn cuKernelGetFunction(to: Out<'_, *mut c_void>, kernel: *mut c_void) -> u32 {
    to.set(kernel);
    SUCCESS
}

pub fn cuKernelGetName(name: Out<'_, *const c_char>, kernel: *mut c_void) -> u32 {
    cuFuncGetName(name, kernel)
}

pub fn cuFuncGetName(name: Out<'_, *const c_char>, function: *mut c_void) -> u32 {
    name.set(module::kernel(function).map_or(c"".as_ptr(), |kernel| kernel.name.as_ptr()));
    SUCCESS
}

pub fn cuFuncGetModule(to: Out<'_, *mut c_void>, function: *mut c_void) -> u32 {
    to.set(module::kernel(function).map_or(NULL, module::Kernel::module));
    SUCCESS
}

fn known(function: *mut c_void) -> Attributes {
    Attributes::of(function)
}

/// Attributes by their number in `CUfunction_attribute`.
pub fn cuFuncGetAttribute(value: Out<'_, c_int>, attribute: c_int, function: *mut c_void) -> u32 {
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
    value.set(found as c_int);
    SUCCESS
}

pub fn cuKernelGetAttribute(value: Out<'_, c_int>, attribute: c_int, kernel: *mut c_void, _device: c_int) -> u32 {
    cuFuncGetAttribute(value, attribute, kernel)
}

pub fn cuLaunchKernel(
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
    gpu().work.by_threads([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
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
    gpu().work.by_threads(*grid, *block);
    capture::launched(*stream);
    SUCCESS
}

pub fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: Out<'_, c_int>,
    function: *mut c_void,
    threads: c_int,
    shared: usize,
) -> u32 {
    blocks.set(attributes::resident_blocks(&known(function), threads, shared));
    SUCCESS
}

pub fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: Out<'_, c_int>,
    function: *mut c_void,
    threads: c_int,
    shared: usize,
    _flags: c_uint,
) -> u32 {
    cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared)
}

pub fn cuOccupancyMaxPotentialBlockSize(
    grid: Out<'_, c_int>,
    block: Out<'_, c_int>,
    function: *mut c_void,
    _shared_of: *const c_void,
    shared: usize,
    limit: c_int,
) -> u32 {
    let threads = if limit > 0 { limit.min(1024) } else { 1024 };
    let resident = attributes::resident_blocks(&known(function), threads, shared);
    let multiprocessors = device::current().map_or(1, |device| device.description.sm_count as c_int);
    grid.set(resident * multiprocessors);
    block.set(threads);
    SUCCESS
}

pub fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    grid: Out<'_, c_int>,
    block: Out<'_, c_int>,
    function: *mut c_void,
    shared_of: *const c_void,
    shared: usize,
    limit: c_int,
    _flags: c_uint,
) -> u32 {
    cuOccupancyMaxPotentialBlockSize(grid, block, function, shared_of, shared, limit)
}

pub fn cuOccupancyAvailableDynamicSMemPerBlock(
    bytes: Out<'_, usize>,
    _function: *mut c_void,
    blocks: c_int,
    _threads: c_int,
) -> u32 {
    let shared = device::current().map_or(49_152, |device| device.description.shared_per_sm as usize);
    bytes.set(shared / blocks.max(1) as usize);
    SUCCESS
}

pub fn cuOccupancyMaxPotentialClusterSize(
    size: Out<'_, c_int>,
    _function: *mut c_void,
    _configuration: *const c_void,
) -> u32 {
    size.set(8);
    SUCCESS
}

pub fn cuOccupancyMaxActiveClusters(
    clusters: Out<'_, c_int>,
    _function: *mut c_void,
    _configuration: *const c_void,
) -> u32 {
    clusters.set(attributes::max_clusters());
    SUCCESS
}
