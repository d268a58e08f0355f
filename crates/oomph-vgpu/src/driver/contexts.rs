//! Contexts. There is one for each card, its primary one; others that a program creates are the same.

use std::ffi::{c_int, c_uint, c_void};

use crate::boundary::Out;
use crate::device;
use crate::status::{INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, SUCCESS};
use crate::{capture, pool};

pub fn cuDevicePrimaryCtxRetain(context: Out<'_, *mut c_void>, ordinal: c_int) -> u32 {
    let Some(device) = device::get(ordinal) else { return INVALID_DEVICE };
    context.set(device::context_handle(ordinal as usize));
    device::activate(device)
}

pub fn cuDevicePrimaryCtxRelease_v2(_ordinal: c_int) -> u32 {
    SUCCESS
}

pub fn cuDevicePrimaryCtxReset_v2(ordinal: c_int) -> u32 {
    let Some(device) = device::get(ordinal) else { return INVALID_DEVICE };
    device::deactivate(device);
    SUCCESS
}

pub fn cuDevicePrimaryCtxGetState(ordinal: c_int, flags: Out<'_, c_uint>, active: Out<'_, c_int>) -> u32 {
    let Some(device) = device::get(ordinal) else { return INVALID_DEVICE };
    flags.set(0);
    active.set(c_int::from(device::is_active(device)));
    SUCCESS
}

pub fn cuDevicePrimaryCtxSetFlags_v2(_ordinal: c_int, _flags: c_uint) -> u32 {
    SUCCESS
}

pub fn cuCtxCreate(context: Out<'_, *mut c_void>, _flags: c_uint, ordinal: c_int) -> u32 {
    context.set(device::context_handle(ordinal.max(0) as usize));
    device::push_context(ordinal)
}

pub fn cuCtxCreate_v2(context: Out<'_, *mut c_void>, flags: c_uint, ordinal: c_int) -> u32 {
    cuCtxCreate(context, flags, ordinal)
}

pub fn cuCtxCreate_v3(
    context: Out<'_, *mut c_void>,
    _affinity: *mut c_void,
    _count: c_int,
    flags: c_uint,
    ordinal: c_int,
) -> u32 {
    cuCtxCreate(context, flags, ordinal)
}

pub fn cuCtxCreate_v4(context: Out<'_, *mut c_void>, _parameters: *mut c_void, flags: c_uint, ordinal: c_int) -> u32 {
    cuCtxCreate(context, flags, ordinal)
}

pub fn cuCtxDestroy_v2(_context: *mut c_void) -> u32 {
    SUCCESS
}

pub fn cuCtxGetCurrent(context: Out<'_, *mut c_void>) -> u32 {
    context.set(device::current_context());
    SUCCESS
}

pub fn cuCtxSetCurrent(context: *mut c_void) -> u32 {
    if context.is_null() {
        device::clear_context();
        return SUCCESS;
    }
    match device::ordinal_of(context) {
        Some(ordinal) => device::make_current(ordinal),
        None => INVALID_CONTEXT,
    }
}

pub fn cuCtxPushCurrent_v2(context: *mut c_void) -> u32 {
    match device::ordinal_of(context) {
        Some(ordinal) => device::push_context(ordinal),
        None => INVALID_CONTEXT,
    }
}

pub fn cuCtxPopCurrent_v2(context: Out<'_, *mut c_void>) -> u32 {
    context.set(device::pop_context());
    SUCCESS
}

pub fn cuCtxGetDevice(ordinal: Out<'_, c_int>) -> u32 {
    if device::current_context().is_null() {
        return INVALID_CONTEXT;
    }
    ordinal.set(device::current_ordinal() as c_int);
    SUCCESS
}

pub fn cuCtxGetDevice_v2(ordinal: Out<'_, c_int>, context: *mut c_void) -> u32 {
    match device::ordinal_of(context) {
        Some(found) => {
            ordinal.set(found);
            SUCCESS
        }
        None => cuCtxGetDevice(ordinal),
    }
}

pub fn cuCtxGetApiVersion(_context: *mut c_void, version: Out<'_, c_uint>) -> u32 {
    version.set(3020);
    SUCCESS
}

pub fn cuCtxGetId(context: *mut c_void, id: Out<'_, u64>) -> u32 {
    let context = if context.is_null() { device::current_context() } else { context };
    id.set(context as u64);
    SUCCESS
}

pub fn cuCtxGetLimit(value: Out<'_, usize>, limit: c_int) -> u32 {
    // Stack size, printf buffer, malloc heap, nesting depth, pending launches, fetch granularity, L2 persistence: the
    // defaults of a fresh context.
    let Some(default) = [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0].get(limit.max(0) as usize) else {
        return INVALID_VALUE;
    };
    value.set(*default);
    SUCCESS
}

pub fn cuCtxSetLimit(_limit: c_int, _value: usize) -> u32 {
    SUCCESS
}

pub fn cuCtxGetFlags(flags: Out<'_, c_uint>) -> u32 {
    flags.set(0);
    SUCCESS
}

pub fn cuCtxGetStreamPriorityRange(least: Out<'_, c_int>, greatest: Out<'_, c_int>) -> u32 {
    least.set(0);
    greatest.set(-5);
    SUCCESS
}

pub fn cuCtxSynchronize() -> u32 {
    if let Err(status) = capture::check_unsafe_call() {
        return status;
    }
    pool::synchronized();
    SUCCESS
}

pub fn cuCtxSynchronize_v2(_context: *mut c_void) -> u32 {
    cuCtxSynchronize()
}

pub fn cuCtxEnablePeerAccess(context: *mut c_void, _flags: c_uint) -> u32 {
    device::ordinal_of(context).map_or(INVALID_CONTEXT, crate::driver::peers::enable)
}

pub fn cuCtxDisablePeerAccess(context: *mut c_void) -> u32 {
    device::ordinal_of(context).map_or(INVALID_CONTEXT, crate::driver::peers::disable)
}
