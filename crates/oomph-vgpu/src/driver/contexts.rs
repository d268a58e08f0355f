//! Contexts. There is one for each card, its primary one; others that a program creates are the same.

use std::ffi::{c_int, c_uint, c_void};

use crate::boundary::Out;
use crate::cuda::{Opaque, devices, functions, peers};
use crate::status::{CudaStatus, DriverStatus};
use crate::{capture, device, pool};

functions! { DriverStatus:
    cuDevicePrimaryCtxRetain(context: Out<'_, Opaque>, ordinal: c_int) = {
        let device = devices::get(ordinal)?;
        context.set(device::context_handle(ordinal as usize));
        device::activate(device)
    };
    cuDevicePrimaryCtxRelease_v2(_ordinal: c_int) = ();
    cuDevicePrimaryCtxReset_v2(ordinal: c_int) = device::deactivate(devices::get(ordinal)?);
    cuDevicePrimaryCtxGetState(ordinal: c_int, flags: Out<'_, c_uint>, active: Out<'_, c_int>) = {
        let device = devices::get(ordinal)?;
        flags.set(0);
        active.set(c_int::from(device::is_active(device)));
    };
    cuDevicePrimaryCtxSetFlags_v2(_ordinal: c_int, _flags: c_uint) = ();

    cuCtxCreate(context: Out<'_, Opaque>, _flags: c_uint, ordinal: c_int) = create(context, ordinal);
    cuCtxCreate_v2(context: Out<'_, Opaque>, _flags: c_uint, ordinal: c_int) = create(context, ordinal);
    cuCtxCreate_v3(
        context: Out<'_, Opaque>, _affinity: *mut c_void, _count: c_int, _flags: c_uint, ordinal: c_int
    ) = create(context, ordinal);
    cuCtxCreate_v4(context: Out<'_, Opaque>, _parameters: *mut c_void, _flags: c_uint, ordinal: c_int)
        = create(context, ordinal);
    cuCtxDestroy_v2(_context: Opaque) = ();
    cuCtxGetCurrent(context: Out<'_, Opaque>) = context.set(device::current_context());
    cuCtxSetCurrent(context: Opaque) = set_current(context);
    cuCtxPushCurrent_v2(context: Opaque) = device::push_context(ordinal_of(context)?);
    cuCtxPopCurrent_v2(context: Out<'_, Opaque>) = context.set(device::pop_context());
    cuCtxGetDevice(ordinal: Out<'_, c_int>) = current(ordinal);
    cuCtxGetDevice_v2(ordinal: Out<'_, c_int>, context: Opaque) = match device::ordinal_of(context) {
        Some(found) => {
            ordinal.set(found);
            Ok(())
        }
        None => current(ordinal),
    };
    cuCtxGetApiVersion(_context: Opaque, version: Out<'_, c_uint>) = version.set(3020);
    cuCtxGetId(context: Opaque, id: Out<'_, u64>) = {
        let context = if context.is_null() { device::current_context() } else { context };
        id.set(context as u64);
    };
    cuCtxGetLimit(value: Out<'_, usize>, limit: c_int) = devices::limit(value, limit);
    cuCtxSetLimit(limit: c_int, value: usize) = devices::set_limit(device::require_context()?, limit, value);
    cuCtxGetFlags(flags: Out<'_, c_uint>) = flags.set(0);
    cuCtxGetStreamPriorityRange(least: Out<'_, c_int>, greatest: Out<'_, c_int>)
        = devices::priorities(least, greatest);
    cuCtxSynchronize() = {
        device::require_context()?;
        synchronize()
    };
    cuCtxSynchronize_v2(_context: Opaque) = synchronize();
    cuCtxEnablePeerAccess(context: Opaque, _flags: c_uint) = peers::enable(ordinal_of(context)?);
    cuCtxDisablePeerAccess(context: Opaque) = peers::disable(ordinal_of(context)?);
}

/// The ordinal of the card that a context is of.
fn ordinal_of(context: Opaque) -> Result<c_int, CudaStatus> {
    device::ordinal_of(context).ok_or(CudaStatus::INVALID_CONTEXT)
}

/// Hands out a card's context and makes it current. The place is written even where there is no such card.
fn create(context: Out<'_, Opaque>, ordinal: c_int) -> Result<(), CudaStatus> {
    context.set(device::context_handle(ordinal.max(0) as usize));
    device::push_context(ordinal)
}

fn set_current(context: Opaque) -> Result<(), CudaStatus> {
    if context.is_null() {
        device::clear_context();
        return Ok(());
    }
    device::make_current(ordinal_of(context)?)
}

/// Writes the ordinal of the current context's card.
fn current(ordinal: Out<'_, c_int>) -> Result<(), CudaStatus> {
    if device::current_context().is_null() {
        return Err(CudaStatus::INVALID_CONTEXT);
    }
    ordinal.set(device::current_ordinal() as c_int);
    Ok(())
}

fn synchronize() -> Result<(), CudaStatus> {
    capture::check_unsafe_call()?;
    pool::synchronized();
    Ok(())
}
