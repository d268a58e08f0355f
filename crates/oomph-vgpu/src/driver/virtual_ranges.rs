//! Virtual memory management: addresses, physical memory and the mappings between them.

use std::ffi::{c_int, c_void};

use crate::boundary::{In, Memory, Out};
use crate::cuda::memory::{AllocationProperties, located};
use crate::cuda::{functions, hand_out_or};
use crate::space::GRANULE;
use crate::status::{CudaStatus, DriverStatus};
use crate::{device, virtual_memory};

functions! { DriverStatus:
    cuMemAddressReserve(to: Out<'_, u64>, size: usize, alignment: usize, _address: u64, _flags: u64)
        = hand_out_or(to, virtual_memory::reserve(size, alignment).map(|start| start as u64), 0);
    cuMemAddressFree(start: u64, _size: usize) = virtual_memory::unreserve(start as usize);
    cuMemCreate(handle: Out<'_, u64>, size: usize, properties: In<'_, AllocationProperties>, _flags: u64)
        = hand_out_or(handle, create(size, properties), 0);
    cuMemRelease(handle: u64) = virtual_memory::release(handle);
    cuMemRetainAllocationHandle(handle: Out<'_, u64>, address: Memory<'_>)
        = hand_out_or(handle, virtual_memory::retain(address.address() as usize), 0);
    cuMemMap(start: u64, size: usize, _offset: usize, handle: u64, _flags: u64)
        = virtual_memory::map(start as usize, size, handle);
    cuMemUnmap(start: u64, size: usize) = virtual_memory::unmap(start as usize, size);
    cuMemSetAccess(_start: u64, _size: usize, _access: *const c_void, _count: usize) = ();
    /// 3 is "read and write".
    cuMemGetAccess(flags: Out<'_, u64>, _location: *const c_void, _start: u64) = flags.set(3);
    cuMemGetAllocationGranularity(bytes: Out<'_, usize>, _properties: *const c_void, _option: c_int)
        = bytes.set(GRANULE);
    cuMulticastGetGranularity(bytes: Out<'_, usize>, _properties: *const c_void, _option: c_int)
        = bytes.set(GRANULE);
}

/// Makes physical memory where the properties say.
fn create(size: usize, properties: In<'_, AllocationProperties>) -> Result<u64, CudaStatus> {
    let device = located(properties)?.map(|(device, _)| device);
    if let Some(device) = device {
        // A card that has no room for a context refuses the memory as well, or takes it from what is left.
        let _ = device::activate(device);
    }
    virtual_memory::create(device, size)
}
