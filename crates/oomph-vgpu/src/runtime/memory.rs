//! Allocation, copies and fills.

use std::ffi::{c_int, c_uint, c_void};

use oomph_ledger::Kind;

use crate::abi::Bytes64;
use crate::boundary::Out;
use crate::gpu::gpu;
use crate::runtime::{answer, fail, status};
use crate::space::{Block, Place};
use crate::status::{INVALID_VALUE, SUCCESS};
use crate::{device, driver, ipc, memory, transfer, virtual_memory};

/// Writes an allocation's address, or null with its failure.
fn hand_out(to: Out<'_, *mut c_void>, allocated: Result<*mut c_void, u32>) -> u32 {
    if to.is_null() {
        return fail(INVALID_VALUE);
    }
    to.set(allocated.unwrap_or(std::ptr::null_mut()));
    answer(allocated.map(drop))
}

pub fn cudaMalloc(to: Out<'_, *mut c_void>, size: usize) -> u32 {
    hand_out(to, memory::allocate(size, Kind::Malloc))
}

pub fn cudaMallocManaged(to: Out<'_, *mut c_void>, size: usize, _flags: c_uint) -> u32 {
    hand_out(to, memory::allocate(size, Kind::Managed))
}

pub fn cudaMallocPitch(to: Out<'_, *mut c_void>, pitch: Out<'_, usize>, width: usize, height: usize) -> u32 {
    let row = width.next_multiple_of(512);
    pitch.set(row);
    hand_out(to, memory::allocate(row.saturating_mul(height), Kind::Malloc))
}

pub fn cudaFree(pointer: *mut c_void) -> u32 {
    if let Err(failure) = device::activate_current() {
        return fail(failure);
    }
    status(memory::free(pointer))
}

pub fn cudaHostAlloc(to: Out<'_, *mut c_void>, size: usize, _flags: c_uint) -> u32 {
    hand_out(to, memory::allocate_host(size))
}

pub fn cudaMallocHost(to: Out<'_, *mut c_void>, size: usize) -> u32 {
    hand_out(to, memory::allocate_host(size))
}

pub fn cudaFreeHost(pointer: *mut c_void) -> u32 {
    status(memory::free_host(pointer))
}

pub fn cudaHostRegister(pointer: *mut c_void, size: usize, _flags: c_uint) -> u32 {
    status(memory::register_host(pointer, size))
}

pub fn cudaHostUnregister(pointer: *mut c_void) -> u32 {
    status(memory::unregister_host(pointer))
}

pub fn cudaHostGetDevicePointer(to: Out<'_, *mut c_void>, host: *mut c_void, _flags: c_uint) -> u32 {
    to.set(host);
    SUCCESS
}

pub fn cudaHostGetFlags(flags: Out<'_, c_uint>, _host: *mut c_void) -> u32 {
    flags.set(0);
    SUCCESS
}

pub fn cudaMemGetInfo(free: Out<'_, usize>, total: Out<'_, usize>) -> u32 {
    match memory::info() {
        Ok((free_bytes, total_bytes)) => {
            free.set(free_bytes);
            total.set(total_bytes);
            SUCCESS
        }
        Err(failure) => fail(failure),
    }
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

pub fn cudaPointerGetAttributes(attributes: Out<'_, PointerAttributes>, pointer: *const c_void) -> u32 {
    const UNREGISTERED: c_int = 0;
    const HOST: c_int = 1;
    const DEVICE: c_int = 2;
    const MANAGED: c_int = 3;
    if attributes.is_null() {
        return fail(INVALID_VALUE);
    }
    let pointer = pointer.cast_mut();
    let none = std::ptr::null_mut();
    let found = match memory::find(pointer) {
        None => PointerAttributes { kind: UNREGISTERED, device: -2, device_pointer: none, host_pointer: none },
        Some(Block { place, ordinal, start, .. }) => {
            let device = match place {
                Place::Reserved => {
                    virtual_memory::card_of(start).and_then(driver::ordinal_of_card).unwrap_or(ordinal as c_int)
                }
                _ => ordinal as c_int,
            };
            match place {
                Place::Device(Kind::Managed) => {
                    PointerAttributes { kind: MANAGED, device, device_pointer: pointer, host_pointer: pointer }
                }
                Place::Device(_) | Place::Pool(_) | Place::Shared | Place::Reserved => {
                    PointerAttributes { kind: DEVICE, device, device_pointer: pointer, host_pointer: none }
                }
                Place::Host | Place::Registered => {
                    PointerAttributes { kind: HOST, device, device_pointer: pointer, host_pointer: pointer }
                }
            }
        }
    };
    attributes.set(found);
    SUCCESS
}

pub unsafe fn cudaMemcpy(to: *mut c_void, from: *const c_void, size: usize, _kind: c_int) -> u32 {
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { transfer::requested(to, from, size) };
    SUCCESS
}

pub unsafe fn cudaMemcpyAsync(
    to: *mut c_void,
    from: *const c_void,
    size: usize,
    _kind: c_int,
    stream: *mut c_void,
) -> u32 {
    crate::capture::launched(stream);
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { transfer::requested(to, from, size) };
    SUCCESS
}

pub unsafe fn cudaMemcpyPeer(
    to: *mut c_void,
    _to_device: c_int,
    from: *const c_void,
    _from_device: c_int,
    size: usize,
) -> u32 {
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { transfer::requested(to, from, size) };
    SUCCESS
}

pub unsafe fn cudaMemcpyPeerAsync(
    to: *mut c_void,
    _to_device: c_int,
    from: *const c_void,
    _from_device: c_int,
    size: usize,
    stream: *mut c_void,
) -> u32 {
    crate::capture::launched(stream);
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { transfer::requested(to, from, size) };
    SUCCESS
}

pub unsafe fn cudaMemcpy2D(
    to: *mut c_void,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    height: usize,
    _kind: c_int,
) -> u32 {
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { transfer::requested_2d(to, to_pitch, from, from_pitch, width, height) };
    SUCCESS
}

pub unsafe fn cudaMemcpy2DAsync(
    to: *mut c_void,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    height: usize,
    _kind: c_int,
    stream: *mut c_void,
) -> u32 {
    crate::capture::launched(stream);
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { transfer::requested_2d(to, to_pitch, from, from_pitch, width, height) };
    SUCCESS
}

/// The address of a device symbol: what the host's own variable of that name is, since no device code ever reads it.
pub fn cudaGetSymbolAddress(address: Out<'_, *mut c_void>, symbol: *const c_void) -> u32 {
    address.set(symbol.cast_mut());
    SUCCESS
}

pub fn cudaGetSymbolSize(size: Out<'_, usize>, _symbol: *const c_void) -> u32 {
    size.set(size_of::<u64>());
    SUCCESS
}

pub unsafe fn cudaMemset(to: *mut c_void, value: c_int, count: usize) -> u32 {
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { transfer::fill(to, value as u32 & 0xff, 1, count) };
    SUCCESS
}

pub unsafe fn cudaMemsetAsync(to: *mut c_void, value: c_int, count: usize, stream: *mut c_void) -> u32 {
    crate::capture::launched(stream);
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { transfer::fill(to, value as u32 & 0xff, 1, count) };
    SUCCESS
}

pub unsafe fn cudaMemset2D(to: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize) -> u32 {
    // SAFETY: the contract is that of the function with a stream.
    unsafe { cudaMemset2DAsync(to, pitch, value, width, height, std::ptr::null_mut()) }
}

pub unsafe fn cudaMemset2DAsync(
    to: *mut c_void,
    pitch: usize,
    value: c_int,
    width: usize,
    height: usize,
    stream: *mut c_void,
) -> u32 {
    crate::capture::launched(stream);
    for row in 0..height {
        // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
        unsafe { transfer::fill(to.cast::<u8>().wrapping_add(row * pitch).cast(), value as u32 & 0xff, 1, width) };
    }
    SUCCESS
}

/// An array of CUDA has no address that a program could use, so a handle is all it gets; its bytes are not charged.
pub fn cudaMallocArray(
    array: Out<'_, *mut c_void>,
    _description: *const c_void,
    _width: usize,
    _height: usize,
    _flags: c_uint,
) -> u32 {
    array.set(gpu().handles.fresh());
    SUCCESS
}

pub fn cudaIpcGetMemHandle(handle: Out<'_, Bytes64>, pointer: *mut c_void) -> u32 {
    status(driver::cuIpcGetMemHandle(handle, pointer as u64))
}

pub fn cudaIpcOpenMemHandle(to: Out<'_, *mut c_void>, handle: Bytes64, _flags: u32) -> u32 {
    let opened = ipc::open(handle);
    to.set(opened.unwrap_or(std::ptr::null_mut()));
    answer(opened.map(drop))
}

pub fn cudaIpcCloseMemHandle(pointer: *mut c_void) -> u32 {
    answer(ipc::close(pointer))
}

pub fn cudaIpcGetEventHandle(handle: Out<'_, Bytes64>, event: *mut c_void) -> u32 {
    status(driver::cuIpcGetEventHandle(handle, event))
}

pub fn cudaIpcOpenEventHandle(event: Out<'_, *mut c_void>, handle: Bytes64) -> u32 {
    status(driver::cuIpcOpenEventHandle(event, handle))
}
