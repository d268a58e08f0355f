//! Modules, libraries, kernels, launches and occupancy.

use std::ffi::{OsStr, c_char, c_int, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::boundary::{Memory, Out, Record, Text};
use crate::cuda::{Opaque, attributes, hand_out};
use crate::device;
use crate::module::{self, Attributes};
use crate::status::CudaStatus;
use crate::stream::StreamHandle;

/// What is said of a card's shared memory without a card, in bytes.
const USUAL_SHARED: usize = 49_152;

/// Loads an image.
pub fn load(to: Out<'_, Opaque>, image: Memory<'_>) -> Result<(), CudaStatus> {
    hand_out(to, module::load(image))
}

/// Makes a module of a file, which has to be there and is not looked at.
pub fn load_file(to: Out<'_, Opaque>, file: Text<'_>) -> Result<(), CudaStatus> {
    let file = file.get().ok_or(CudaStatus::INVALID_VALUE)?;
    let is_there = Path::new(OsStr::from_bytes(file.to_bytes())).exists();
    hand_out(to, if is_there { Ok(module::opaque()) } else { Err(CudaStatus::FILE_NOT_FOUND) })
}

/// Finds a kernel by its name.
pub fn find(to: Out<'_, Opaque>, module: Opaque, name: Text<'_>) -> Result<(), CudaStatus> {
    let name = name.get().ok_or(CudaStatus::INVALID_VALUE)?;
    hand_out(to, module::function(module, name))
}

/// Writes how many kernels a module has.
pub fn count(count: Out<'_, c_uint>, module: Opaque) {
    count.set(module::names(module).len() as c_uint);
}

/// Finds a variable by its name: its address and its size in bytes.
pub fn variable(
    address: Out<'_, Opaque>,
    size: Out<'_, usize>,
    module: Opaque,
    name: Text<'_>,
) -> Result<(), CudaStatus> {
    let found = module::global(module, name.get().ok_or(CudaStatus::INVALID_VALUE)?);
    size.set(found.map_or(0, |(_, bytes)| bytes));
    hand_out(address, found.map(|(at, _)| at))
}

/// Writes a kernel's name; an empty one for a kernel of the program's own.
pub fn name(name: Out<'_, *const c_char>, kernel: Opaque) {
    name.set(module::kernel(kernel).map_or(c"".as_ptr(), |kernel| kernel.name.as_ptr()));
}

/// Writes the module that a kernel came from; null for a kernel of the program's own.
pub fn module_of(to: Out<'_, Opaque>, kernel: Opaque) {
    to.set(module::kernel(kernel).map_or(std::ptr::null_mut(), module::Kernel::module));
}

/// Writes an attribute by its number in `CUfunction_attribute`.
pub fn attribute(value: Out<'_, c_int>, attribute: c_int, kernel: Opaque) {
    let kernel = Attributes::of(kernel);
    let block = device::current().map_or(USUAL_SHARED, |device| device.description.shared_per_block_optin as usize);
    let found = match attribute {
        0 => kernel.max_threads,
        1 => kernel.shared,
        3 => kernel.local,
        4 => kernel.registers,
        5 | 6 => kernel.arch,
        8 => (block as u32).saturating_sub(kernel.shared),
        _ => 0,
    };
    value.set(found as c_int);
}

/// Size of the part of `CUlaunchConfig` and of `cudaLaunchConfig_t` that is looked at, in bytes.
pub const LAUNCH_CONFIGURATION: usize = 40;

/// How a kernel is launched.
pub struct LaunchConfiguration {
    /// Blocks in each direction.
    pub grid: [u32; 3],
    /// Threads of a block in each direction.
    pub block: [u32; 3],
    /// The stream.
    pub stream: StreamHandle,
}

/// Reads `CUlaunchConfig` or `cudaLaunchConfig_t`: grid, block and shared memory, whose size has 4 bytes and padding in the
/// one and 8 bytes in the other, then the stream.
pub fn configuration(of: Record<'_, LAUNCH_CONFIGURATION>) -> Result<LaunchConfiguration, CudaStatus> {
    let (Some(grid), Some(block), Some(stream)) = (of.read(0), of.read(12), of.read(32)) else {
        return Err(CudaStatus::INVALID_VALUE);
    };
    Ok(LaunchConfiguration { grid, block, stream })
}

/// Writes how many blocks of a kernel a multiprocessor holds.
pub fn resident_blocks(blocks: Out<'_, c_int>, kernel: Opaque, threads: c_int, shared: usize) {
    blocks.set(attributes::resident_blocks(&Attributes::of(kernel), threads, shared));
}

/// Writes the block and the grid that fill a card with a kernel.
pub fn best_block(grid: Out<'_, c_int>, block: Out<'_, c_int>, kernel: Opaque, shared: usize, limit: c_int) {
    let threads = if limit > 0 { limit.min(1024) } else { 1024 };
    let resident = attributes::resident_blocks(&Attributes::of(kernel), threads, shared);
    let multiprocessors = device::current().map_or(1, |device| device.description.sm_count as c_int);
    grid.set(resident * multiprocessors);
    block.set(threads);
}

/// Writes how many bytes of shared memory each of so many blocks on a multiprocessor has.
pub fn shared_of_each(bytes: Out<'_, usize>, blocks: c_int) {
    let shared = device::current().map_or(USUAL_SHARED, |device| device.description.shared_per_sm as usize);
    bytes.set(shared / blocks.max(1) as usize);
}

/// Writes how many blocks a cluster has at most.
pub fn cluster_size(size: Out<'_, c_int>) {
    size.set(8);
}

/// Writes how many clusters run at once.
pub fn active_clusters(clusters: Out<'_, c_int>) {
    clusters.set(attributes::max_clusters());
}
