//! Modules, libraries, kernels, launches and occupancy.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::boundary::{Memory, Out, Record, Text};
use crate::cuda::kernels::{self, LAUNCH_CONFIGURATION};
use crate::cuda::{Opaque, functions};
use crate::gpu::gpu;
use crate::module;
use crate::status::DriverStatus;
use crate::stream::{self, StreamHandle};

functions! { DriverStatus:
    cuModuleLoadData(to: Out<'_, Opaque>, image: Memory<'_>) = kernels::load(to, image);
    cuModuleLoadDataEx(
        to: Out<'_, Opaque>, image: Memory<'_>, _count: c_uint, _options: *mut c_int, _values: *mut *mut c_void
    ) = kernels::load(to, image);
    cuModuleLoadFatBinary(to: Out<'_, Opaque>, image: Memory<'_>) = kernels::load(to, image);
    cuModuleLoad(to: Out<'_, Opaque>, file: Text<'_>) = kernels::load_file(to, file);
    cuModuleUnload(handle: Opaque) = module::unload(handle);
    cuModuleGetFunction(to: Out<'_, Opaque>, handle: Opaque, name: Text<'_>) = kernels::find(to, handle, name);
    cuModuleGetFunctionCount(count: Out<'_, c_uint>, handle: Opaque) = kernels::count(count, handle);
    cuModuleGetGlobal_v2(address: Out<'_, Opaque>, size: Out<'_, usize>, handle: Opaque, name: Text<'_>)
        = kernels::variable(address, size, handle, name);

    cuLibraryLoadData(
        to: Out<'_, Opaque>, image: Memory<'_>, _jit_options: *mut c_int, _jit_values: *mut *mut c_void,
        _jit_count: c_uint, _options: *mut c_int, _values: *mut *mut c_void, _count: c_uint
    ) = kernels::load(to, image);
    cuLibraryLoadFromFile(
        to: Out<'_, Opaque>, file: Text<'_>, _jit_options: *mut c_int, _jit_values: *mut *mut c_void,
        _jit_count: c_uint, _options: *mut c_int, _values: *mut *mut c_void, _count: c_uint
    ) = kernels::load_file(to, file);
    cuLibraryUnload(handle: Opaque) = module::unload(handle);
    cuLibraryGetKernel(to: Out<'_, Opaque>, handle: Opaque, name: Text<'_>) = kernels::find(to, handle, name);
    /// A library and its module are the same here.
    cuLibraryGetModule(to: Out<'_, Opaque>, handle: Opaque) = to.set(handle);
    cuLibraryGetGlobal(address: Out<'_, Opaque>, size: Out<'_, usize>, handle: Opaque, name: Text<'_>)
        = kernels::variable(address, size, handle, name);
    cuLibraryGetKernelCount(count: Out<'_, c_uint>, handle: Opaque) = kernels::count(count, handle);

    /// A kernel and its function in a context are the same here.
    cuKernelGetFunction(to: Out<'_, Opaque>, kernel: Opaque) = to.set(kernel);
    cuKernelGetName(name: Out<'_, *const c_char>, kernel: Opaque) = kernels::name(name, kernel);
    cuFuncGetName(name: Out<'_, *const c_char>, function: Opaque) = kernels::name(name, function);
    cuFuncGetModule(to: Out<'_, Opaque>, function: Opaque) = kernels::module_of(to, function);
    cuFuncGetAttribute(value: Out<'_, c_int>, attribute: c_int, function: Opaque)
        = kernels::attribute(value, attribute, function);
    cuKernelGetAttribute(value: Out<'_, c_int>, attribute: c_int, kernel: Opaque, _device: c_int)
        = kernels::attribute(value, attribute, kernel);

    cuLaunchKernel(
        _function: Opaque, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, _shared: c_uint, stream: StreamHandle, _parameters: *mut *mut c_void, _extra: *mut *mut c_void
    ) = launch([grid_x, grid_y, grid_z], [block_x, block_y, block_z], stream);
    cuLaunchKernelEx(
        configuration: Record<'_, LAUNCH_CONFIGURATION>, _function: Opaque, _parameters: *mut *mut c_void,
        _extra: *mut *mut c_void
    ) = {
        let configuration = kernels::configuration(configuration)?;
        launch(configuration.grid, configuration.block, configuration.stream);
    };

    cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Out<'_, c_int>, function: Opaque, threads: c_int, shared: usize
    ) = kernels::resident_blocks(blocks, function, threads, shared);
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: Out<'_, c_int>, function: Opaque, threads: c_int, shared: usize, _flags: c_uint
    ) = kernels::resident_blocks(blocks, function, threads, shared);
    cuOccupancyMaxPotentialBlockSize(
        grid: Out<'_, c_int>, block: Out<'_, c_int>, function: Opaque, _shared_of: *const c_void, shared: usize,
        limit: c_int
    ) = kernels::best_block(grid, block, function, shared, limit);
    cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: Out<'_, c_int>, block: Out<'_, c_int>, function: Opaque, _shared_of: *const c_void, shared: usize,
        limit: c_int, _flags: c_uint
    ) = kernels::best_block(grid, block, function, shared, limit);
    cuOccupancyAvailableDynamicSMemPerBlock(
        bytes: Out<'_, usize>, _function: Opaque, blocks: c_int, _threads: c_int
    ) = kernels::shared_of_each(bytes, blocks);
    cuOccupancyMaxPotentialClusterSize(size: Out<'_, c_int>, _function: Opaque, _configuration: *const c_void)
        = kernels::cluster_size(size);
    cuOccupancyMaxActiveClusters(clusters: Out<'_, c_int>, _function: Opaque, _configuration: *const c_void)
        = kernels::active_clusters(clusters);
}

/// Counts a launch. Nothing is known of the kernel's arguments, which its caller passes in one of two ways.
fn launch(grid: [u32; 3], block: [u32; 3], stream: StreamHandle) {
    gpu().work.by_threads(grid, block);
    stream::launched(stream);
}
