//! Stream-ordered allocation.

use std::ffi::{c_int, c_void};

use crate::runtime::{answer, fail, put, status};
use crate::status::SUCCESS;
use crate::{device, driver, memory, pool};

pub unsafe fn cudaMallocAsync(to: *mut *mut c_void, size: usize, _stream: *mut c_void) -> u32 {
    unsafe { cudaMallocFromPoolAsync(to, size, std::ptr::null_mut(), std::ptr::null_mut()) }
}

pub unsafe fn cudaMallocFromPoolAsync(
    to: *mut *mut c_void,
    size: usize,
    pool: *mut c_void,
    _stream: *mut c_void,
) -> u32 {
    let allocated = pool::allocate(pool, size);
    unsafe { put(to, allocated.unwrap_or(std::ptr::null_mut())) };
    answer(allocated.map(drop))
}

pub unsafe fn cudaFreeAsync(pointer: *mut c_void, _stream: *mut c_void) -> u32 {
    status(memory::free(pointer))
}

pub unsafe fn cudaDeviceGetDefaultMemPool(to: *mut *mut c_void, ordinal: c_int) -> u32 {
    let Some(device) = device::get(ordinal) else { return fail(device::missing()) };
    unsafe { put(to, pool::default_of(device, ordinal as usize)) };
    SUCCESS
}

pub unsafe fn cudaDeviceGetMemPool(to: *mut *mut c_void, ordinal: c_int) -> u32 {
    unsafe { cudaDeviceGetDefaultMemPool(to, ordinal) }
}

pub unsafe fn cudaDeviceSetMemPool(_ordinal: c_int, _pool: *mut c_void) -> u32 {
    SUCCESS
}

pub unsafe fn cudaMemPoolCreate(to: *mut *mut c_void, properties: *const c_void) -> u32 {
    status(unsafe { driver::cuMemPoolCreate(to, properties) })
}

pub unsafe fn cudaMemPoolDestroy(pool: *mut c_void) -> u32 {
    status(pool::destroy(pool))
}

pub unsafe fn cudaMemPoolTrimTo(pool: *mut c_void, keep: usize) -> u32 {
    status(pool::trim(pool, keep))
}

pub unsafe fn cudaMemPoolGetAttribute(pool: *mut c_void, attribute: c_int, value: *mut c_void) -> u32 {
    status(unsafe { driver::cuMemPoolGetAttribute(pool, attribute, value) })
}

pub unsafe fn cudaMemPoolSetAttribute(pool: *mut c_void, attribute: c_int, value: *mut c_void) -> u32 {
    status(unsafe { driver::cuMemPoolSetAttribute(pool, attribute, value) })
}

pub unsafe fn cudaMemPoolSetAccess(_pool: *mut c_void, _map: *const c_void, _count: usize) -> u32 {
    SUCCESS
}

pub unsafe fn cudaMemPoolGetAccess(flags: *mut c_int, _pool: *mut c_void, _location: *mut c_void) -> u32 {
    // 3 is "read and write".
    unsafe { put(flags, 3) };
    SUCCESS
}
