//! Allocation, copies and fills.

use std::ffi::{c_int, c_uint, c_void};

use oomph_ledger::Kind;

use crate::abi::Bytes64;
use crate::runtime::{answer, fail, put, status};
use crate::space::{Block, Place};
use crate::status::{INVALID_VALUE, SUCCESS};
use crate::{device, driver, handle, ipc, memory, transfer, virtual_memory};

/// Writes an allocation's address, or null with its failure.
unsafe fn hand_out(to: *mut *mut c_void, allocated: Result<*mut c_void, u32>) -> u32 {
    if to.is_null() {
        return fail(INVALID_VALUE);
    }
    unsafe { put(to, allocated.unwrap_or(std::ptr::null_mut())) };
    answer(allocated.map(drop))
}

pub unsafe fn cudaMalloc(to: *mut *mut c_void, size: usize) -> u32 {
    unsafe { hand_out(to, memory::allocate(size, Kind::Malloc)) }
}

pub unsafe fn cudaMallocManaged(to: *mut *mut c_void, size: usize, _flags: c_uint) -> u32 {
    unsafe { hand_out(to, memory::allocate(size, Kind::Managed)) }
}

pub unsafe fn cudaMallocPitch(to: *mut *mut c_void, pitch: *mut usize, width: usize, height: usize) -> u32 {
    let row = width.next_multiple_of(512);
    unsafe { put(pitch, row) };
    unsafe { hand_out(to, memory::allocate(row.saturating_mul(height), Kind::Malloc)) }
}

pub unsafe fn cudaFree(pointer: *mut c_void) -> u32 {
    if let Err(failure) = device::activate_current() {
        return fail(failure);
    }
    status(memory::free(pointer))
}

pub unsafe fn cudaHostAlloc(to: *mut *mut c_void, size: usize, _flags: c_uint) -> u32 {
    unsafe { hand_out(to, memory::allocate_host(size)) }
}

pub unsafe fn cudaMallocHost(to: *mut *mut c_void, size: usize) -> u32 {
    unsafe { hand_out(to, memory::allocate_host(size)) }
}

pub unsafe fn cudaFreeHost(pointer: *mut c_void) -> u32 {
    status(memory::free_host(pointer))
}

pub unsafe fn cudaHostRegister(pointer: *mut c_void, size: usize, _flags: c_uint) -> u32 {
    status(memory::register_host(pointer, size))
}

pub unsafe fn cudaHostUnregister(pointer: *mut c_void) -> u32 {
    status(memory::unregister_host(pointer))
}

pub unsafe fn cudaHostGetDevicePointer(to: *mut *mut c_void, host: *mut c_void, _flags: c_uint) -> u32 {
    unsafe { put(to, host) };
    SUCCESS
}

pub unsafe fn cudaHostGetFlags(flags: *mut c_uint, _host: *mut c_void) -> u32 {
    unsafe { put(flags, 0) };
    SUCCESS
}

pub unsafe fn cudaMemGetInfo(free: *mut usize, total: *mut usize) -> u32 {
    match memory::info() {
        Ok((free_bytes, total_bytes)) => {
            unsafe {
                put(free, free_bytes);
                put(total, total_bytes);
            }
            SUCCESS
        }
        Err(failure) => fail(failure),
    }
}

/// `cudaPointerAttributes`, the same in all versions.
#[repr(C)]
pub struct PointerAttributes {
    kind: c_int,
    device: c_int,
    device_pointer: *mut c_void,
    host_pointer: *mut c_void,
}

pub unsafe fn cudaPointerGetAttributes(attributes: *mut PointerAttributes, pointer: *const c_void) -> u32 {
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
    unsafe { attributes.write(found) };
    SUCCESS
}

pub unsafe fn cudaMemcpy(to: *mut c_void, from: *const c_void, size: usize, _kind: c_int) -> u32 {
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
    unsafe { transfer::requested_2d(to, to_pitch, from, from_pitch, width, height) };
    SUCCESS
}

/// The address of a device symbol: what the host's own variable of that name is, since no device code ever reads it.
pub unsafe fn cudaGetSymbolAddress(address: *mut *mut c_void, symbol: *const c_void) -> u32 {
    unsafe { put(address, symbol.cast_mut()) };
    SUCCESS
}

pub unsafe fn cudaGetSymbolSize(size: *mut usize, _symbol: *const c_void) -> u32 {
    unsafe { put(size, size_of::<u64>()) };
    SUCCESS
}

pub unsafe fn cudaMemset(to: *mut c_void, value: c_int, count: usize) -> u32 {
    unsafe { transfer::fill(to, value as u32 & 0xff, 1, count) };
    SUCCESS
}

pub unsafe fn cudaMemsetAsync(to: *mut c_void, value: c_int, count: usize, stream: *mut c_void) -> u32 {
    crate::capture::launched(stream);
    unsafe { transfer::fill(to, value as u32 & 0xff, 1, count) };
    SUCCESS
}

pub unsafe fn cudaMemset2D(to: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize) -> u32 {
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
        unsafe { transfer::fill(to.cast::<u8>().wrapping_add(row * pitch).cast(), value as u32 & 0xff, 1, width) };
    }
    SUCCESS
}

/// An array of CUDA has no address that a program could use, so a handle is all it gets; its bytes are not charged.
pub unsafe fn cudaMallocArray(
    array: *mut *mut c_void,
    _description: *const c_void,
    _width: usize,
    _height: usize,
    _flags: c_uint,
) -> u32 {
    unsafe { put(array, handle::fresh()) };
    SUCCESS
}

pub unsafe fn cudaIpcGetMemHandle(handle: *mut Bytes64, pointer: *mut c_void) -> u32 {
    status(unsafe { driver::cuIpcGetMemHandle(handle, pointer as u64) })
}

pub unsafe fn cudaIpcOpenMemHandle(to: *mut *mut c_void, handle: Bytes64, _flags: u32) -> u32 {
    let opened = ipc::open(handle);
    unsafe { put(to, opened.unwrap_or(std::ptr::null_mut())) };
    answer(opened.map(drop))
}

pub unsafe fn cudaIpcCloseMemHandle(pointer: *mut c_void) -> u32 {
    answer(ipc::close(pointer))
}

pub unsafe fn cudaIpcGetEventHandle(handle: *mut Bytes64, event: *mut c_void) -> u32 {
    status(unsafe { driver::cuIpcGetEventHandle(handle, event) })
}

pub unsafe fn cudaIpcOpenEventHandle(event: *mut *mut c_void, handle: Bytes64) -> u32 {
    status(unsafe { driver::cuIpcOpenEventHandle(event, handle) })
}
