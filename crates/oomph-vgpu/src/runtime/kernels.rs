//! Fat binaries, kernels, launches and occupancy.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::abi::Bytes12;
use crate::boundary::{Memory, Out, Record, Text};
use crate::cuda::kernels::{self, LAUNCH_CONFIGURATION};
use crate::cuda::{Opaque, functions};
use crate::device;
use crate::module::{self, Attributes};
use crate::registered::{self, WRAPPER};
use crate::status::{CudaStatus, RuntimeStatus};
use crate::stream::{self, StreamHandle};
use crate::work::kernel::Launch;

/// What `<<<...>>>` pushed and the stub of the kernel pops.
#[derive(Clone, Copy)]
struct Configuration {
    grid: Bytes12,
    block: Bytes12,
    shared: usize,
    stream: StreamHandle,
}

thread_local! {
    // A launch is configured and made by one thread, in two calls.
    static CONFIGURATION: Cell<Configuration> = const {
        Cell::new(Configuration { grid: Bytes12([0; 3]), block: Bytes12([0; 3]), shared: 0, stream: StreamHandle::DEFAULT })
    };
}

/// Keeps the configuration of the launch that comes next; 0 says that it was kept.
pub fn __cudaPushCallConfiguration(grid: Bytes12, block: Bytes12, shared: usize, stream: StreamHandle) -> c_uint {
    CONFIGURATION.set(Configuration { grid, block, shared, stream });
    0
}

/// Notes a fat binary of the program's and returns its handle.
pub fn __cudaRegisterFatBinary(wrapper: Record<'_, WRAPPER>) -> Opaque {
    registered::register(wrapper)
}

/// Notes the host function that stands for a kernel of a fat binary.
pub fn __cudaRegisterFunction(
    binary: Opaque,
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

functions! { RuntimeStatus:
    __cudaPopCallConfiguration(
        grid: Out<'_, Bytes12>, block: Out<'_, Bytes12>, shared: Out<'_, usize>, stream: Out<'_, StreamHandle>
    ) = {
        let configuration = CONFIGURATION.get();
        grid.set(configuration.grid);
        block.set(configuration.block);
        shared.set(configuration.shared);
        stream.set(configuration.stream);
    };
    __cudaGetKernel(kernel: Out<'_, Opaque>, function: Opaque) = kernel.set(function);
    __cudaLaunchKernel(
        function: Opaque, grid: Bytes12, block: Bytes12, arguments: Memory<'_>, _shared: usize, stream: StreamHandle
    ) = launch(function, grid, block, arguments, stream);
    cudaLaunchKernel(
        function: Opaque, grid: Bytes12, block: Bytes12, arguments: Memory<'_>, _shared: usize, stream: StreamHandle
    ) = launch(function, grid, block, arguments, stream);
    cudaLaunchCooperativeKernel(
        function: Opaque, grid: Bytes12, block: Bytes12, arguments: Memory<'_>, _shared: usize, stream: StreamHandle
    ) = launch(function, grid, block, arguments, stream);
    cudaLaunchKernelExC(
        configuration: Record<'_, LAUNCH_CONFIGURATION>, function: Opaque, arguments: Memory<'_>
    ) = {
        let configuration = kernels::configuration(configuration)?;
        registered::launched(function, &Launch { grid: configuration.grid, block: configuration.block, arguments });
        stream::launched(configuration.stream);
    };
    cudaFuncGetAttributes(to: Out<'_, FunctionAttributes>, function: Opaque) = function_attributes(to, function);
    cudaGetFuncBySymbol(function: Out<'_, Opaque>, symbol: Opaque) = function.set(symbol);
    cudaFuncGetName(name: Out<'_, *const c_char>, function: Opaque) = kernels::name(name, function);

    cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Out<'_, c_int>, function: Opaque, threads: c_int, shared: usize
    ) = kernels::resident_blocks(blocks, function, threads, shared);
    cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: Out<'_, c_int>, function: Opaque, threads: c_int, shared: usize, _flags: c_uint
    ) = kernels::resident_blocks(blocks, function, threads, shared);
    cudaOccupancyAvailableDynamicSMemPerBlock(
        bytes: Out<'_, usize>, _function: Opaque, blocks: c_int, _threads: c_int
    ) = kernels::shared_of_each(bytes, blocks);
    cudaOccupancyMaxPotentialClusterSize(size: Out<'_, c_int>, _function: Opaque, _configuration: *const c_void)
        = kernels::cluster_size(size);
    cudaOccupancyMaxActiveClusters(clusters: Out<'_, c_int>, _function: Opaque, _configuration: *const c_void)
        = kernels::active_clusters(clusters);

    cudaLibraryLoadData(
        library: Out<'_, Opaque>, code: Memory<'_>, _jit_options: *mut c_void, _jit_values: *mut *mut c_void,
        _jit_count: c_uint, _options: *mut c_void, _values: *mut *mut c_void, _count: c_uint
    ) = kernels::load(library, code);
    cudaLibraryLoadFromFile(
        library: Out<'_, Opaque>, file: Text<'_>, _jit_options: *mut c_void, _jit_values: *mut *mut c_void,
        _jit_count: c_uint, _options: *mut c_void, _values: *mut *mut c_void, _count: c_uint
    ) = kernels::load_file(library, file);
    cudaLibraryUnload(library: Opaque) = module::unload(library);
    cudaLibraryGetKernel(kernel: Out<'_, Opaque>, library: Opaque, name: Text<'_>)
        = kernels::find(kernel, library, name);
    cudaLibraryGetKernelCount(count: Out<'_, c_uint>, library: Opaque) = kernels::count(count, library);
    cudaLibraryGetGlobal(address: Out<'_, Opaque>, size: Out<'_, usize>, library: Opaque, name: Text<'_>)
        = kernels::variable(address, size, library, name);
}

/// Counts a launch. It is the most frequent call of all.
#[inline]
fn launch(function: Opaque, grid: Bytes12, block: Bytes12, arguments: Memory<'_>, stream: StreamHandle) {
    device::bind_thread();
    registered::launched(function, &Launch { grid: grid.0, block: block.0, arguments });
    stream::launched(stream);
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
fn function_attributes(to: Out<'_, FunctionAttributes>, function: Opaque) -> Result<(), CudaStatus> {
    let to = to.given().ok_or(CudaStatus::INVALID_VALUE)?;
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
    Ok(())
}
