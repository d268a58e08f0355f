//! Contexts. There is one for each card, its primary one; others that a program creates are the same.

use std::ffi::{c_int, c_uint, c_void};

use crate::device;
use crate::driver::put;
use crate::status::{INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, SUCCESS};
use crate::{capture, pool};

pub unsafe fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, ordinal: c_int) -> u32 {
    let Some(device) = device::get(ordinal) else { return INVALID_DEVICE };
    unsafe { put(context, device::context_handle(ordinal as usize)) };
    device::activate(device)
}

pub unsafe fn cuDevicePrimaryCtxRelease_v2(_ordinal: c_int) -> u32 {
    SUCCESS
}

pub unsafe fn cuDevicePrimaryCtxReset_v2(ordinal: c_int) -> u32 {
    let Some(device) = device::get(ordinal) else { return INVALID_DEVICE };
    device::deactivate(device);
    SUCCESS
}

pub unsafe fn cuDevicePrimaryCtxGetState(ordinal: c_int, flags: *mut c_uint, active: *mut c_int) -> u32 {
    let Some(device) = device::get(ordinal) else { return INVALID_DEVICE };
    unsafe {
        put(flags, 0);
        put(active, c_int::from(device::is_active(device)));
    }
    SUCCESS
}

pub unsafe fn cuDevicePrimaryCtxSetFlags_v2(_ordinal: c_int, _flags: c_uint) -> u32 {
    SUCCESS
}

pub unsafe fn cuCtxCreate(context: *mut *mut c_void, _flags: c_uint, ordinal: c_int) -> u32 {
    unsafe { put(context, device::context_handle(ordinal.max(0) as usize)) };
    device::push_context(ordinal)
}

pub unsafe fn cuCtxCreate_v2(context: *mut *mut c_void, flags: c_uint, ordinal: c_int) -> u32 {
    unsafe { cuCtxCreate(context, flags, ordinal) }
}

pub unsafe fn cuCtxCreate_v3(
    context: *mut *mut c_void,
    _affinity: *mut c_void,
    _count: c_int,
    flags: c_uint,
    ordinal: c_int,
) -> u32 {
    unsafe { cuCtxCreate(context, flags, ordinal) }
}

pub unsafe fn cuCtxCreate_v4(
    context: *mut *mut c_void,
    _parameters: *mut c_void,
    flags: c_uint,
    ordinal: c_int,
) -> u32 {
    unsafe { cuCtxCreate(context, flags, ordinal) }
}

pub unsafe fn cuCtxDestroy_v2(_context: *mut c_void) -> u32 {
    SUCCESS
}

pub unsafe fn cuCtxGetCurrent(context: *mut *mut c_void) -> u32 {
    unsafe { put(context, device::current_context()) };
    SUCCESS
}

pub unsafe fn cuCtxSetCurrent(context: *mut c_void) -> u32 {
    if context.is_null() {
        device::clear_context();
        return SUCCESS;
    }
    match device::ordinal_of(context) {
        Some(ordinal) => device::make_current(ordinal),
        None => INVALID_CONTEXT,
    }
}

pub unsafe fn cuCtxPushCurrent_v2(context: *mut c_void) -> u32 {
    match device::ordinal_of(context) {
        Some(ordinal) => device::push_context(ordinal),
        None => INVALID_CONTEXT,
    }
}

pub unsafe fn cuCtxPopCurrent_v2(context: *mut *mut c_void) -> u32 {
    unsafe { put(context, device::pop_context()) };
    SUCCESS
}

pub unsafe fn cuCtxGetDevice(ordinal: *mut c_int) -> u32 {
    if device::current_context().is_null() {
        return INVALID_CONTEXT;
    }
    unsafe { put(ordinal, device::current_ordinal() as c_int) };
    SUCCESS
}

pub unsafe fn cuCtxGetDevice_v2(ordinal: *mut c_int, context: *mut c_void) -> u32 {
    match device::ordinal_of(context) {
        Some(found) => {
            unsafe { put(ordinal, found) };
            SUCCESS
        }
        None => unsafe { cuCtxGetDevice(ordinal) },
    }
}

pub unsafe fn cuCtxGetApiVersion(_context: *mut c_void, version: *mut c_uint) -> u32 {
    unsafe { put(version, 3020) };
    SUCCESS
}

pub unsafe fn cuCtxGetId(context: *mut c_void, id: *mut u64) -> u32 {
    let context = if context.is_null() { device::current_context() } else { context };
    unsafe { put(id, context as u64) };
    SUCCESS
}

pub unsafe fn cuCtxGetLimit(value: *mut usize, limit: c_int) -> u32 {
    // Stack size, printf buffer, malloc heap, nesting depth, pending launches, fetch granularity, L2 persistence: the
    // defaults of a fresh context.
    let Some(default) = [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0].get(limit.max(0) as usize) else {
        return INVALID_VALUE;
    };
    unsafe { put(value, *default) };
    SUCCESS
}

pub unsafe fn cuCtxSetLimit(_limit: c_int, _value: usize) -> u32 {
    SUCCESS
}

pub unsafe fn cuCtxGetFlags(flags: *mut c_uint) -> u32 {
    unsafe { put(flags, 0) };
    SUCCESS
}

pub unsafe fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> u32 {
    unsafe {
        put(least, 0);
        put(greatest, -5);
    }
    SUCCESS
}

pub unsafe fn cuCtxSynchronize() -> u32 {
    if let Err(status) = capture::check_unsafe_call() {
        return status;
    }
    pool::synchronized();
    SUCCESS
}

pub unsafe fn cuCtxSynchronize_v2(_context: *mut c_void) -> u32 {
    unsafe { cuCtxSynchronize() }
}

pub unsafe fn cuCtxEnablePeerAccess(context: *mut c_void, _flags: c_uint) -> u32 {
    device::ordinal_of(context).map_or(INVALID_CONTEXT, crate::driver::peers::enable)
}

pub unsafe fn cuCtxDisablePeerAccess(context: *mut c_void) -> u32 {
    device::ordinal_of(context).map_or(INVALID_CONTEXT, crate::driver::peers::disable)
}
