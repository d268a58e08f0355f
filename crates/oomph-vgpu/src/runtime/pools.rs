//! Stream-ordered allocation.

use std::ffi::{c_int, c_void};

use crate::boundary::Out;
use crate::runtime::{answer, fail, status};
use crate::status::SUCCESS;
use crate::{device, driver, memory, pool};

pub fn cudaMallocAsync(to: Out<'_, *mut c_void>, size: usize, _stream: *mut c_void) -> u32 {
    cudaMallocFromPoolAsync(to, size, std::ptr::null_mut(), std::ptr::null_mut())
}

pub fn cudaMallocFromPoolAsync(to: Out<'_, *mut c_void>, size: usize, pool: *mut c_void, _stream: *mut c_void) -> u32 {
    let allocated = pool::allocate(pool, size);
    to.set(allocated.unwrap_or(std::ptr::null_mut()));
    answer(allocated.map(drop))
}

pub fn cudaFreeAsync(pointer: *mut c_void, _stream: *mut c_void) -> u32 {
    status(memory::free(pointer))
}

pub fn cudaDeviceGetDefaultMemPool(to: Out<'_, *mut c_void>, ordinal: c_int) -> u32 {
    let Some(device) = device::get(ordinal) else { return fail(device::missing()) };
    to.set(pool::default_of(device, ordinal as usize));
    SUCCESS
}

pub fn cudaDeviceGetMemPool(to: Out<'_, *mut c_void>, ordinal: c_int) -> u32 {
    cudaDeviceGetDefaultMemPool(to, ordinal)
}

pub fn cudaDeviceSetMemPool(_ordinal: c_int, _pool: *mut c_void) -> u32 {
    SUCCESS
}

pub unsafe fn cudaMemPoolCreate(to: Out<'_, *mut c_void>, properties: *const c_void) -> u32 {
    // SAFETY: the contract is that of the driver's function.
    status(unsafe { driver::cuMemPoolCreate(to, properties) })
}

pub fn cudaMemPoolDestroy(pool: *mut c_void) -> u32 {
    status(pool::destroy(pool))
}

pub fn cudaMemPoolTrimTo(pool: *mut c_void, keep: usize) -> u32 {
    status(pool::trim(pool, keep))
}

pub unsafe fn cudaMemPoolGetAttribute(pool: *mut c_void, attribute: c_int, value: *mut c_void) -> u32 {
    // SAFETY: the contract is that of the driver's function.
    status(unsafe { driver::cuMemPoolGetAttribute(pool, attribute, value) })
}

pub unsafe fn cudaMemPoolSetAttribute(pool: *mut c_void, attribute: c_int, value: *mut c_void) -> u32 {
    // SAFETY: the contract is that of the driver's function.
    status(unsafe { driver::cuMemPoolSetAttribute(pool, attribute, value) })
}

pub fn cudaMemPoolSetAccess(_pool: *mut c_void, _map: *const c_void, _count: usize) -> u32 {
    SUCCESS
}

pub fn cudaMemPoolGetAccess(flags: Out<'_, c_int>, _pool: *mut c_void, _location: *mut c_void) -> u32 {
    // 3 is "read and write".
    flags.set(3);
    SUCCESS
}
