//! Allocation, copies and fills.

use std::ffi::{c_int, c_uint, c_void};

use oomph_ledger::Kind;

use crate::abi::Bytes64;
use crate::boundary::{Memory, Out};
use crate::cuda::copies::Rows;
use crate::cuda::{Opaque, copies, functions, hand_out};
use crate::gpu::gpu;
use crate::space::Place;
use crate::status::{CudaStatus, RuntimeStatus};
use crate::stream::StreamHandle;
use crate::{cuda, device, ipc, memory};

functions! { RuntimeStatus:
    cudaMalloc(to: Out<'_, Opaque>, size: usize) = allocated(to, memory::allocate(size, Kind::Malloc));
    cudaMallocManaged(to: Out<'_, Opaque>, size: usize, _flags: c_uint)
        = allocated(to, memory::allocate(size, Kind::Managed));
    cudaMallocPitch(to: Out<'_, Opaque>, pitch: Out<'_, usize>, width: usize, height: usize) = {
        let row = cuda::memory::pitch(width);
        pitch.set(row);
        allocated(to, memory::allocate(row.saturating_mul(height), Kind::Malloc))
    };
    cudaFree(pointer: *mut c_void) = {
        device::activate_current()?;
        memory::free(pointer)
    };
    cudaHostAlloc(to: Out<'_, Opaque>, size: usize, _flags: c_uint) = allocated(to, memory::allocate_host(size));
    cudaMallocHost(to: Out<'_, Opaque>, size: usize) = allocated(to, memory::allocate_host(size));
    cudaFreeHost(pointer: *mut c_void) = memory::free_host(pointer);
    cudaHostRegister(pointer: *mut c_void, size: usize, _flags: c_uint) = memory::register_host(pointer, size);
    cudaHostUnregister(pointer: *mut c_void) = memory::unregister_host(pointer);
    cudaHostGetDevicePointer(to: Out<'_, Opaque>, host: *mut c_void, _flags: c_uint) = to.set(host);
    cudaHostGetFlags(flags: Out<'_, c_uint>, _host: *mut c_void) = flags.set(0);
    cudaMemGetInfo(free: Out<'_, usize>, total: Out<'_, usize>) = cuda::memory::info(free, total);
    cudaPointerGetAttributes(attributes: Out<'_, PointerAttributes>, pointer: *mut c_void)
        = attributes.given().ok_or(CudaStatus::INVALID_VALUE)?.set(PointerAttributes::of(pointer));

    cudaMemcpy(to: Memory<'_>, from: Memory<'_>, size: usize, _kind: c_int) = copies::copy(to, from, size);
    cudaMemcpyAsync(to: Memory<'_>, from: Memory<'_>, size: usize, _kind: c_int, stream: StreamHandle)
        = copies::copy_on(stream, to, from, size);
    cudaMemcpyPeer(to: Memory<'_>, _to_device: c_int, from: Memory<'_>, _from_device: c_int, size: usize)
        = copies::copy(to, from, size);
    cudaMemcpyPeerAsync(
        to: Memory<'_>, _to_device: c_int, from: Memory<'_>, _from_device: c_int, size: usize, stream: StreamHandle
    ) = copies::copy_on(stream, to, from, size);
    cudaMemcpy2D(
        to: Memory<'_>, to_pitch: usize, from: Memory<'_>, from_pitch: usize, width: usize, height: usize,
        _kind: c_int
    ) = copies::copy_2d(to, to_pitch, from, from_pitch, Rows { width, height });
    cudaMemcpy2DAsync(
        to: Memory<'_>, to_pitch: usize, from: Memory<'_>, from_pitch: usize, width: usize, height: usize,
        _kind: c_int, stream: StreamHandle
    ) = {
        crate::stream::launched(stream);
        copies::copy_2d(to, to_pitch, from, from_pitch, Rows { width, height });
    };
    /// The address of a device symbol: what the host's own variable of that name is, since no device code ever reads it.
    cudaGetSymbolAddress(address: Out<'_, Opaque>, symbol: *mut c_void) = address.set(symbol);
    cudaGetSymbolSize(size: Out<'_, usize>, _symbol: *const c_void) = size.set(size_of::<u64>());
    cudaMemset(to: Memory<'_>, value: c_int, count: usize) = copies::fill(to, low_byte(value), 1, count);
    cudaMemsetAsync(to: Memory<'_>, value: c_int, count: usize, stream: StreamHandle)
        = copies::fill_on(stream, to, low_byte(value), 1, count);
    cudaMemset2D(to: Memory<'_>, pitch: usize, value: c_int, width: usize, height: usize)
        = copies::fill_2d(StreamHandle::DEFAULT, to, pitch, low_byte(value), Rows { width, height });
    cudaMemset2DAsync(
        to: Memory<'_>, pitch: usize, value: c_int, width: usize, height: usize, stream: StreamHandle
    ) = copies::fill_2d(stream, to, pitch, low_byte(value), Rows { width, height });
    /// An array of CUDA has no address that a program could use, so a handle is all it gets; its bytes are not charged.
    cudaMallocArray(
        array: Out<'_, Opaque>, _description: *const c_void, _width: usize, _height: usize, _flags: c_uint
    ) = array.set(gpu().handles.fresh());

    cudaIpcGetMemHandle(handle: Out<'_, Bytes64>, pointer: *mut c_void) = cuda::memory::share(handle, pointer);
    cudaIpcOpenMemHandle(to: Out<'_, Opaque>, handle: Bytes64, _flags: u32) = hand_out(to, ipc::open(handle));
    cudaIpcCloseMemHandle(pointer: *mut c_void) = ipc::close(pointer);
    cudaIpcGetEventHandle(handle: Out<'_, Bytes64>, _event: Opaque) = handle.set(ipc::export_event());
    cudaIpcOpenEventHandle(event: Out<'_, Opaque>, handle: Bytes64) = cuda::memory::open_event(event, handle);
}

/// Writes an allocation's address. Unlike the driver, the runtime refuses a call without a place for it.
fn allocated(to: Out<'_, Opaque>, made: Result<Opaque, CudaStatus>) -> Result<(), CudaStatus> {
    hand_out(to.given().ok_or(CudaStatus::INVALID_VALUE)?, made)
}

/// The byte that a fill writes.
fn low_byte(value: c_int) -> c_uint {
    value as c_uint & 0xff
}

/// `cudaPointerAttributes`, the same in all versions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PointerAttributes {
    kind: c_int,
    device: c_int,
    device_pointer: *mut c_void,
    host_pointer: *mut c_void,
}

impl PointerAttributes {
    /// What is known of a pointer.
    fn of(pointer: *mut c_void) -> PointerAttributes {
        const UNREGISTERED: c_int = 0;
        const HOST: c_int = 1;
        const DEVICE: c_int = 2;
        const MANAGED: c_int = 3;
        let none = std::ptr::null_mut();
        let Some(block) = memory::find(pointer) else {
            return PointerAttributes { kind: UNREGISTERED, device: -2, device_pointer: none, host_pointer: none };
        };
        let (kind, host_pointer) = match block.place {
            Place::Device(Kind::Managed) => (MANAGED, pointer),
            Place::Device(_) | Place::Pool(_) | Place::Shared | Place::Reserved => (DEVICE, none),
            Place::Host | Place::Registered => (HOST, pointer),
        };
        let device = cuda::memory::ordinal_of(&block, block.start);
        PointerAttributes { kind, device, device_pointer: pointer, host_pointer }
    }
}
