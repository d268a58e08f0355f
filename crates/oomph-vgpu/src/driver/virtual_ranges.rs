//! Virtual memory management: addresses, physical memory and the mappings between them.

use std::ffi::{c_int, c_void};

use crate::boundary::Out;
use crate::driver::memory::{AllocationProperties, located};
use crate::driver::{DevicePointer, hand_out};
use crate::space::GRANULE;
use crate::status::SUCCESS;
use crate::{device, virtual_memory};

pub fn cuMemAddressReserve(
    to: Out<'_, DevicePointer>,
    size: usize,
    alignment: usize,
    _address: DevicePointer,
    _flags: u64,
) -> u32 {
    hand_out(to, virtual_memory::reserve(size, alignment).map(|start| start as DevicePointer), 0)
}

pub fn cuMemAddressFree(start: DevicePointer, _size: usize) -> u32 {
    virtual_memory::unreserve(start as usize)
}

pub unsafe fn cuMemCreate(
    handle: Out<'_, u64>,
    size: usize,
    properties: *const AllocationProperties,
    _flags: u64,
) -> u32 {
    // SAFETY: CUDA's contract: properties that may be read, or null.
    let made = unsafe { located(properties) }.and_then(|place| {
        if let Some((device, _)) = place {
            device::activate(device);
        }
        virtual_memory::create(place.map(|(device, _)| device), size)
    });
    hand_out(handle, made, 0)
}

pub fn cuMemRelease(handle: u64) -> u32 {
    virtual_memory::release(handle)
}

pub fn cuMemRetainAllocationHandle(handle: Out<'_, u64>, address: *mut c_void) -> u32 {
    hand_out(handle, virtual_memory::retain(address as usize), 0)
}

pub fn cuMemMap(start: DevicePointer, size: usize, _offset: usize, handle: u64, _flags: u64) -> u32 {
    virtual_memory::map(start as usize, size, handle)
}

pub fn cuMemUnmap(start: DevicePointer, size: usize) -> u32 {
    virtual_memory::unmap(start as usize, size)
}

pub fn cuMemSetAccess(_start: DevicePointer, _size: usize, _access: *const c_void, _count: usize) -> u32 {
    SUCCESS
}

pub fn cuMemGetAccess(flags: Out<'_, u64>, _location: *const c_void, _start: DevicePointer) -> u32 {
    // 3 is "read and write".
    flags.set(3);
    SUCCESS
}

pub fn cuMemGetAllocationGranularity(bytes: Out<'_, usize>, _properties: *const c_void, _option: c_int) -> u32 {
    bytes.set(GRANULE);
    SUCCESS
}

pub fn cuMulticastGetGranularity(bytes: Out<'_, usize>, _properties: *const c_void, _option: c_int) -> u32 {
    bytes.set(GRANULE);
    SUCCESS
}
