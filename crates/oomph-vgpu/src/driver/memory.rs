//! Allocation, pools, copies, fills and what is known of a pointer.

use std::ffi::{c_int, c_uint, c_void};

use oomph_ledger::Kind;

use crate::abi::Bytes64;
use crate::boundary::{In, Items, Memory, Out, Untyped};
use crate::cuda::memory::AllocationProperties;
use crate::cuda::rectangles::Rectangle;
use crate::cuda::{Opaque, copies, functions, hand_out};
use crate::status::{CudaStatus, DriverStatus};
use crate::stream::{self, StreamHandle};
use crate::{cuda, device, ipc, memory, pool};

const NULL: Opaque = std::ptr::null_mut();

functions! { DriverStatus:
    cuMemAlloc_v2(to: Out<'_, Opaque>, size: usize) = allocate(to, size);
    cuMemAllocPitch_v2(
        to: Out<'_, Opaque>, pitch: Out<'_, usize>, width: usize, height: usize, _element: c_uint
    ) = {
        let row = cuda::memory::pitch(width);
        pitch.set(row);
        allocate(to, row.saturating_mul(height))
    };
    cuMemAllocManaged(to: Out<'_, Opaque>, size: usize, _flags: c_uint)
        = taken(to, || memory::allocate(size, Kind::Managed));
    cuMemFree_v2(pointer: Memory<'_>) = memory::free(pointer.address());
    cuMemAllocAsync(to: Out<'_, Opaque>, size: usize, _stream: StreamHandle) = taken(to, || pool::allocate(NULL, size));
    cuMemAllocFromPoolAsync(to: Out<'_, Opaque>, size: usize, pool: Opaque, _stream: StreamHandle)
        = taken(to, || pool::allocate(pool, size));
    cuMemFreeAsync(pointer: Memory<'_>, _stream: StreamHandle) = memory::free(pointer.address());
    cuMemAllocHost_v2(to: Out<'_, Opaque>, size: usize) = taken(to, || memory::allocate_host(size));
    cuMemHostAlloc(to: Out<'_, Opaque>, size: usize, _flags: c_uint) = taken(to, || memory::allocate_host(size));
    cuMemFreeHost(pointer: *mut c_void) = memory::free_host(pointer);
    cuMemHostRegister_v2(pointer: *mut c_void, size: usize, _flags: c_uint) = memory::register_host(pointer, size);
    cuMemHostUnregister(pointer: *mut c_void) = memory::unregister_host(pointer);
    cuMemHostGetDevicePointer_v2(to: Out<'_, Opaque>, host: *mut c_void, _flags: c_uint) = to.set(host);
    cuMemHostGetFlags(flags: Out<'_, c_uint>, _host: *mut c_void) = flags.set(0);
    cuMemGetInfo_v2(free: Out<'_, usize>, total: Out<'_, usize>) = {
        device::require_context()?;
        cuda::memory::info(free, total)
    };
    cuMemGetAddressRange_v2(base: Out<'_, u64>, size: Out<'_, usize>, pointer: Memory<'_>) = {
        let block = memory::find(pointer.address()).ok_or(CudaStatus::NOT_FOUND)?;
        base.set(block.start as u64);
        size.set(block.size);
    };

    cuPointerGetAttribute(value: Untyped<'_>, attribute: c_int, pointer: Memory<'_>)
        = cuda::memory::pointer_attribute(value, attribute, pointer.address());
    cuPointerGetAttributes(
        _count: c_uint, attributes: Items<'_, c_int>, values: Items<'_, Untyped<'_>>, pointer: Memory<'_>
    ) = cuda::memory::pointer_attributes(attributes, values, pointer.address());
    cuPointerSetAttribute(_value: *const c_void, _attribute: c_int, _pointer: u64) = ();

    cuDeviceGetDefaultMemPool(to: Out<'_, Opaque>, ordinal: c_int) = cuda::memory::default_pool(to, ordinal);
    cuDeviceGetMemPool(to: Out<'_, Opaque>, ordinal: c_int) = cuda::memory::default_pool(to, ordinal);
    cuMemPoolCreate(to: Out<'_, Opaque>, properties: In<'_, AllocationProperties>)
        = cuda::memory::create_pool(to, properties);
    cuMemPoolDestroy(pool: Opaque) = pool::destroy(pool);
    cuMemPoolTrimTo(pool: Opaque, keep: usize) = pool::trim(pool, keep);
    cuMemPoolGetAttribute(pool: Opaque, attribute: c_int, value: Untyped<'_>)
        = cuda::memory::pool_attribute(pool, attribute, value);
    cuMemPoolSetAttribute(pool: Opaque, attribute: c_int, value: Untyped<'_>)
        = pool::set_attribute(pool, attribute, cuda::memory::given_pool_attribute(attribute, value)?);
    cuMemPoolSetAccess(_pool: Opaque, _map: *const c_void, _count: usize) = ();

    cuMemcpy(to: Memory<'_>, from: Memory<'_>, size: usize) = copies::copy(to, from, size);
    cuMemcpyAsync(to: Memory<'_>, from: Memory<'_>, size: usize, stream: StreamHandle)
        = copies::copy_on(stream, to, from, size);
    cuMemcpyHtoD_v2(to: Memory<'_>, from: Memory<'_>, size: usize) = copies::copy_on(StreamHandle::DEFAULT, to, from, size);
    cuMemcpyDtoH_v2(to: Memory<'_>, from: Memory<'_>, size: usize) = copies::copy_on(StreamHandle::DEFAULT, to, from, size);
    cuMemcpyDtoD_v2(to: Memory<'_>, from: Memory<'_>, size: usize) = copies::copy_on(StreamHandle::DEFAULT, to, from, size);
    cuMemcpyHtoDAsync_v2(to: Memory<'_>, from: Memory<'_>, size: usize, stream: StreamHandle)
        = copies::copy_on(stream, to, from, size);
    cuMemcpyDtoHAsync_v2(to: Memory<'_>, from: Memory<'_>, size: usize, stream: StreamHandle)
        = copies::copy_on(stream, to, from, size);
    cuMemcpyDtoDAsync_v2(to: Memory<'_>, from: Memory<'_>, size: usize, stream: StreamHandle)
        = copies::copy_on(stream, to, from, size);
    cuMemcpyPeer(to: Memory<'_>, _to_context: Opaque, from: Memory<'_>, _from_context: Opaque, size: usize)
        = copies::copy_on(StreamHandle::DEFAULT, to, from, size);
    cuMemcpyPeerAsync(
        to: Memory<'_>, _to_context: Opaque, from: Memory<'_>, _from_context: Opaque, size: usize, stream: StreamHandle
    ) = copies::copy_on(stream, to, from, size);
    cuMemcpy2D_v2(rectangle: In<'_, Rectangle>) = copies::copy_rectangle(rectangle);
    cuMemcpy2DUnaligned_v2(rectangle: In<'_, Rectangle>) = copies::copy_rectangle(rectangle);
    cuMemcpy2DAsync_v2(rectangle: In<'_, Rectangle>, stream: StreamHandle) = {
        stream::launched(stream);
        copies::copy_rectangle(rectangle)
    };

    cuMemsetD8_v2(to: Memory<'_>, value: c_uint, count: usize) = copies::fill_on(StreamHandle::DEFAULT, to, value, 1, count);
    cuMemsetD16_v2(to: Memory<'_>, value: c_uint, count: usize) = copies::fill_on(StreamHandle::DEFAULT, to, value, 2, count);
    cuMemsetD32_v2(to: Memory<'_>, value: c_uint, count: usize) = copies::fill_on(StreamHandle::DEFAULT, to, value, 4, count);
    cuMemsetD8Async(to: Memory<'_>, value: c_uint, count: usize, stream: StreamHandle)
        = copies::fill_on(stream, to, value, 1, count);
    cuMemsetD16Async(to: Memory<'_>, value: c_uint, count: usize, stream: StreamHandle)
        = copies::fill_on(stream, to, value, 2, count);
    cuMemsetD32Async(to: Memory<'_>, value: c_uint, count: usize, stream: StreamHandle)
        = copies::fill_on(stream, to, value, 4, count);

    cuIpcGetMemHandle(handle: Out<'_, Bytes64>, pointer: Memory<'_>)
        = cuda::memory::share(handle, pointer.address());
    cuIpcOpenMemHandle_v2(to: Out<'_, Opaque>, handle: Bytes64, _flags: c_uint) = hand_out(to, ipc::open(handle));
    cuIpcCloseMemHandle(pointer: Memory<'_>) = ipc::close(pointer.address());
    cuIpcGetEventHandle(handle: Out<'_, Bytes64>, _event: Opaque) = handle.set(ipc::export_event());
    cuIpcOpenEventHandle(event: Out<'_, Opaque>, handle: Bytes64) = cuda::memory::open_event(event, handle);
}

/// Allocates on the current card. Unlike the runtime, the driver refuses a size of 0.
fn allocate(to: Out<'_, Opaque>, size: usize) -> Result<(), CudaStatus> {
    if size == 0 {
        return Err(CudaStatus::INVALID_VALUE);
    }
    taken(to, || memory::allocate(size, Kind::Malloc))
}

/// Writes the address of what is taken. Without a place for it, or a context, nothing is.
fn taken(to: Out<'_, Opaque>, take: impl FnOnce() -> Result<Opaque, CudaStatus>) -> Result<(), CudaStatus> {
    let to = to.given().ok_or(CudaStatus::INVALID_VALUE)?;
    hand_out(to, device::require_context().and_then(|_| take()))
}
