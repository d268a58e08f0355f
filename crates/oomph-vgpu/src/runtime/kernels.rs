//! Fat binaries, kernels, launches and occupancy.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::abi::Bytes12;
use crate::boundary::{Out, Text};
use crate::driver::attributes;
use crate::module::{self, Attributes};
use crate::runtime::{answer, fail};
use crate::status::{INVALID_VALUE, SUCCESS};
use crate::work::kernel::Launch;
use crate::{capture, device, registered};

/// What `<<<...>>>` pushed and the stub of the kernel pops.
#[derive(Clone, Copy)]
struct Configuration {
    grid: Bytes12,
    block: Bytes12,
    shared: usize,
    stream: *mut c_void,
}

thread_local! {
    static CONFIGURATION: Cell<Configuration> = const {
        Cell::new(Configuration { grid: Bytes12([0; 3]), block: Bytes12([0; 3]), shared: 0, stream: std::ptr::null_mut() })
    };
}

pub fn __cudaPushCallConfiguration(grid: Bytes12, block: Bytes12, shared: usize, stream: *mut c_void) -> c_uint {
    CONFIGURATION.set(Configuration { grid, block, shared, stream });
    0
}

pub fn __cudaPopCallConfiguration(
    grid: Out<'_, Bytes12>,
    block: Out<'_, Bytes12>,
    shared: Out<'_, usize>,
    stream: Out<'_, *mut c_void>,
) -> u32 {
    let configuration = CONFIGURATION.get();
    grid.set(configuration.grid);
    block.set(configuration.block);
    shared.set(configuration.shared);
    stream.set(configuration.stream);
    SUCCESS
}

pub unsafe fn __cudaRegisterFatBinary(wrapper: *mut c_void) -> *mut c_void {
    // SAFETY: the contract of nvcc's start-up code: the wrapper of a fat binary.
    unsafe { registered::register(wrapper) }
}

pub fn __cudaRegisterFunction(
    binary: *mut c_void,
    function: *const c_char,
    _device_function: *mut c_char,
    name: *const c_char,
    _thread_limit: c_int,
    _thread_id: *mut c_void,
    _block_id: *mut c_void,
    _block: *mut c_void,
    _grid: *mut c_void,
    _warp_size: *mut c_int,
) {
    registered::register_kernel(binary, function.cast(), name);
}

pub fn __cudaGetKernel(kernel: Out<'_, *mut c_void>, function: *const c_void) -> u32 {
    kernel.set(function.cast_mut());
    SUCCESS
}

pub unsafe fn __cudaLaunchKernel(
    kernel: *mut c_void,
    grid: Bytes12,
    block: Bytes12,
    arguments: *mut *mut c_void,
    _shared: usize,
    stream: *mut c_void,
) -> u32 {
    device::bind_thread();
    // SAFETY: CUDA's contract.
    unsafe { registered::launched(kernel, &Launch { grid: grid.0, block: block.0, arguments }) };
    capture::launched(stream);
    SUCCESS
}

pub unsafe fn cudaLaunchKernel(
    function: *const c_void,
    grid: Bytes12,
    block: Bytes12,
    arguments: *mut *mut c_void,
    _shared: usize,
    stream: *mut c_void,
) -> u32 {
    device::bind_thread();
    // SAFETY: CUDA's contract.
    unsafe { registered::launched(function, &Launch { grid: grid.0, block: block.0, arguments }) };
    capture::launched(stream);
    SUCCESS
}

pub unsafe fn cudaLaunchCooperativeKernel(
    function: *const c_void,
    grid: Bytes12,
    block: Bytes12,
    arguments: *mut *mut c_void,
    shared: usize,
    stream: *mut c_void,
) -> u32 {
    // SAFETY: the contract is that of the plain launch.
    unsafe { cudaLaunchKernel(function, grid, block, arguments, shared, stream) }
}

/// The beginning of `cudaLaunchConfig_t`.
#[repr(C)]
pub struct LaunchConfiguration {
    grid: Bytes12,
    block: Bytes12,
    shared: usize,
    stream: *mut c_void,
}

pub unsafe fn cudaLaunchKernelExC(
    configuration: *const LaunchConfiguration,
    function: *const c_void,
    arguments: *mut *mut c_void,
) -> u32 {
    if configuration.is_null() {
        return fail(INVALID_VALUE);
    }
    // SAFETY: CUDA's contract: the configuration can be read.
    let LaunchConfiguration { grid, block, stream, .. } = unsafe { &*configuration };
    // SAFETY: CUDA's contract.
    unsafe { registered::launched(function, &Launch { grid: grid.0, block: block.0, arguments }) };
    capture::launched(*stream);
    SUCCESS
}

/// `cudaFuncAttributes`, up to the members that all versions share.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FunctionAttributes {
    shared: usize,
    constant: usize,
    local: usize,
    max_threads: c_int,
    registers: c_int,
    ptx_version: c_int,
    binary_version: c_int,
    cache_mode: c_int,
    max_dynamic_shared: c_int,
    preferred_carveout: c_int,
}

/// What a kernel of the program is like. Its code is not looked at: CUB and others ask only for the architecture, to
/// choose among what they were compiled for.
pub fn cudaFuncGetAttributes(to: Out<'_, FunctionAttributes>, function: *const c_void) -> u32 {
    let Some(to) = to.given() else { return fail(INVALID_VALUE) };
    let Attributes { max_threads, registers, shared, local, arch } = Attributes::of(function);
    let block = device::current().map_or(49_152, |device| device.description.shared_per_block);
    to.set(FunctionAttributes {
        shared: shared as usize,
        constant: 0,
        local: local as usize,
        max_threads: max_threads as c_int,
        registers: registers as c_int,
        ptx_version: arch as c_int,
        binary_version: arch as c_int,
        cache_mode: 0,
        max_dynamic_shared: block as c_int - shared as c_int,
        preferred_carveout: -1,
    });
    SUCCESS
}

pub fn cudaGetFuncBySymbol(function: Out<'_, *mut c_void>, symbol: *const c_void) -> u32 {
    function.set(symbol.cast_mut());
    SUCCESS
}

pub fn cudaFuncGetName(name: Out<'_, *const c_char>, function: *const c_void) -> u32 {
    let known = module::kernel(function.cast_mut());
    name.set(known.map_or(c"".as_ptr(), |kernel| kernel.name.as_ptr()));
    SUCCESS
}

pub fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: Out<'_, c_int>,
    function: *const c_void,
    threads: c_int,
    shared: usize,
) -> u32 {
    cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, 0)
}

pub fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: Out<'_, c_int>,
    function: *const c_void,
    threads: c_int,
    shared: usize,
    _flags: c_uint,
) -> u32 {
    let kernel = Attributes::of(function);
    blocks.set(attributes::resident_blocks(&kernel, threads, shared));
    SUCCESS
}

pub fn cudaOccupancyAvailableDynamicSMemPerBlock(
    bytes: Out<'_, usize>,
    _function: *const c_void,
    blocks: c_int,
    _threads: c_int,
) -> u32 {
    let shared = device::current().map_or(49_152, |device| device.description.shared_per_sm as usize);
    bytes.set(shared / blocks.max(1) as usize);
    SUCCESS
}

pub fn cudaOccupancyMaxPotentialClusterSize(
    size: Out<'_, c_int>,
    _function: *const c_void,
    _configuration: *const c_void,
) -> u32 {
    size.set(8);
    SUCCESS
}

pub fn cudaOccupancyMaxActiveClusters(
    clusters: Out<'_, c_int>,
    _function: *const c_void,
    _configuration: *const c_void,
) -> u32 {
    clusters.set(attributes::max_clusters());
    SUCCESS
}

pub unsafe fn cudaLibraryLoadData(
    library: Out<'_, *mut c_void>,
    code: *const c_void,
    _jit_options: *mut c_void,
    _jit_values: *mut *mut c_void,
    _jit_count: c_uint,
    _options: *mut c_void,
    _values: *mut *mut c_void,
    _count: c_uint,
) -> u32 {
    // SAFETY: CUDA's contract: the image of a module, or null.
    let loaded = unsafe { module::load(code) };
    library.set(loaded.unwrap_or(std::ptr::null_mut()));
    answer(loaded.map(drop))
}

pub fn cudaLibraryLoadFromFile(
    library: Out<'_, *mut c_void>,
    _file: *const c_char,
    _jit_options: *mut c_void,
    _jit_values: *mut *mut c_void,
    _jit_count: c_uint,
    _options: *mut c_void,
    _values: *mut *mut c_void,
    _count: c_uint,
) -> u32 {
    library.set(module::opaque());
    SUCCESS
}

pub fn cudaLibraryUnload(library: *mut c_void) -> u32 {
    answer(module::unload(library))
}

pub fn cudaLibraryGetKernel(kernel: Out<'_, *mut c_void>, library: *mut c_void, name: Text<'_>) -> u32 {
    let Some(name) = name.get() else { return fail(INVALID_VALUE) };
    let found = module::function(library, name);
    kernel.set(found.unwrap_or(std::ptr::null_mut()));
    answer(found.map(drop))
}

pub fn cudaLibraryGetKernelCount(count: Out<'_, c_uint>, library: *mut c_void) -> u32 {
    count.set(module::names(library).len() as c_uint);
    SUCCESS
}

pub fn cudaLibraryGetGlobal(
    address: Out<'_, *mut c_void>,
    size: Out<'_, usize>,
    library: *mut c_void,
    name: Text<'_>,
) -> u32 {
    let Some(name) = name.get() else { return fail(INVALID_VALUE) };
    let found = module::global(library, name);
    let (at, bytes) = found.unwrap_or((std::ptr::null_mut(), 0));
    address.set(at);
    size.set(bytes);
    answer(found.map(drop))
}
