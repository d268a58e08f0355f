//! Devices, versions, limits and error texts.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::boundary::{Out, Room, Text};
use crate::device;
use crate::driver::attributes;
use crate::gpu::gpu;
use crate::runtime::{answer, fail, status};
use crate::status::{INVALID_VALUE, NO_DEVICE, SUCCESS};
use crate::{capture, driver, loader, pool, stream};

pub fn cudaGetDeviceCount(count: Out<'_, c_int>) -> u32 {
    let devices = device::visible().len();
    count.set(devices as c_int);
    if devices == 0 { fail(NO_DEVICE) } else { SUCCESS }
}

pub fn cudaGetDevice(ordinal: Out<'_, c_int>) -> u32 {
    if device::visible().is_empty() {
        return fail(NO_DEVICE);
    }
    ordinal.set(device::current_ordinal() as c_int);
    SUCCESS
}

pub fn cudaSetDevice(ordinal: c_int) -> u32 {
    status(device::make_current(ordinal))
}

pub fn cudaInitDevice(ordinal: c_int, _device_flags: c_uint, _flags: c_uint) -> u32 {
    match device::get(ordinal) {
        Some(device) => status(device::activate(device)),
        None => fail(device::missing()),
    }
}

pub fn cudaSetValidDevices(_devices: *const c_int, _count: c_int) -> u32 {
    SUCCESS
}

pub fn cudaChooseDevice(ordinal: Out<'_, c_int>, _properties: *const c_void) -> u32 {
    ordinal.set(0);
    if device::visible().is_empty() { fail(NO_DEVICE) } else { SUCCESS }
}

pub fn cudaDeviceGetAttribute(value: Out<'_, c_int>, attribute: c_int, ordinal: c_int) -> u32 {
    let Some(device) = device::get(ordinal) else { return fail(device::missing()) };
    value.set(attributes::of(device, ordinal, attribute));
    SUCCESS
}

pub fn cudaDeviceGetPCIBusId(text: Room<'_, u8>, length: c_int, ordinal: c_int) -> u32 {
    status(driver::cuDeviceGetPCIBusId(text, length, ordinal))
}

pub fn cudaDeviceGetByPCIBusId(ordinal: Out<'_, c_int>, text: Text<'_>) -> u32 {
    status(driver::cuDeviceGetByPCIBusId(ordinal, text))
}

pub fn cudaDeviceCanAccessPeer(can: Out<'_, c_int>, ordinal: c_int, peer: c_int) -> u32 {
    status(driver::cuDeviceCanAccessPeer(can, ordinal, peer))
}

pub fn cudaDeviceEnablePeerAccess(peer: c_int, _flags: c_uint) -> u32 {
    status(driver::peers::enable(peer))
}

pub fn cudaDeviceDisablePeerAccess(peer: c_int) -> u32 {
    status(driver::peers::disable(peer))
}

pub fn cudaDeviceGetP2PAttribute(value: Out<'_, c_int>, attribute: c_int, source: c_int, target: c_int) -> u32 {
    status(driver::cuDeviceGetP2PAttribute(value, attribute, source, target))
}

pub fn cudaDeviceGetLimit(value: Out<'_, usize>, limit: c_int) -> u32 {
    status(driver::cuCtxGetLimit(value, limit))
}

pub fn cudaDeviceSetLimit(_limit: c_int, _value: usize) -> u32 {
    SUCCESS
}

pub fn cudaDeviceGetStreamPriorityRange(least: Out<'_, c_int>, greatest: Out<'_, c_int>) -> u32 {
    status(driver::cuCtxGetStreamPriorityRange(least, greatest))
}

pub unsafe fn cudaDeviceSynchronize() -> u32 {
    answer(device::activate_current().and_then(|_| capture::check_unsafe_call()).map(|()| pool::synchronized()))
}

pub fn cudaDeviceReset() -> u32 {
    if let Some(device) = device::current() {
        device::deactivate(device);
    }
    SUCCESS
}

pub fn cudaDriverGetVersion(version: Out<'_, c_int>) -> u32 {
    version.set(driver::version());
    SUCCESS
}

pub fn cudaRuntimeGetVersion(version: Out<'_, c_int>) -> u32 {
    version.set(runtime_version());
    SUCCESS
}

/// The version of the runtime that the program is linked against: the library's own word if it is mapped.
fn runtime_version() -> c_int {
    *gpu().libraries.runtime_version.get_or_init(|| {
        let asked = loader::mapped_library("libcudart.so.").and_then(|path| {
            let path = std::ffi::CString::new(path).ok()?;
            // SAFETY: the library is mapped already, `RTLD_NOLOAD` only finds it, and the function it exports by this
            // name has this type. It needs no card: it returns a constant.
            unsafe {
                let library = libc::dlmopen(libc::LM_ID_BASE, path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
                if library.is_null() {
                    return None;
                }
                let function = libc::dlsym(library, c"cudaRuntimeGetVersion".as_ptr());
                if function.is_null() {
                    return None;
                }
                let function: unsafe extern "C" fn(*mut c_int) -> u32 = std::mem::transmute(function);
                let mut version = 0;
                (function(&raw mut version) == SUCCESS && version > 0).then_some(version)
            }
        });
        asked.unwrap_or(loader::runtime_major() as c_int * 1000)
    })
}

pub fn cudaGetErrorString(code: c_int) -> *const c_char {
    crate::status::text(code as u32).as_ptr().cast()
}

pub fn cudaGetErrorName(code: c_int) -> *const c_char {
    crate::status::runtime_name(code as u32).as_ptr().cast()
}

pub fn cudaGetDriverEntryPoint(
    symbol: Text<'_>,
    function: Out<'_, *mut c_void>,
    _flags: u64,
    found: Out<'_, c_int>,
) -> u32 {
    entry_point(symbol, function, runtime_version(), found)
}

pub fn cudaGetDriverEntryPointByVersion(
    symbol: Text<'_>,
    function: Out<'_, *mut c_void>,
    version: c_uint,
    _flags: u64,
    found: Out<'_, c_int>,
) -> u32 {
    entry_point(symbol, function, version as c_int, found)
}

fn entry_point(symbol: Text<'_>, function: Out<'_, *mut c_void>, version: c_int, found: Out<'_, c_int>) -> u32 {
    let (Some(symbol), false) = (symbol.get(), function.is_null()) else { return fail(INVALID_VALUE) };
    let address = driver::procedures::find(symbol, version as u32);
    function.set(address.unwrap_or(std::ptr::null_mut()));
    // 0 is success, 1 is "symbol not found".
    found.set(c_int::from(address.is_none()));
    SUCCESS
}

pub fn cudaCtxResetPersistingL2Cache() -> u32 {
    SUCCESS
}

pub fn cudaStreamGetDevice(stream: *mut c_void, ordinal: Out<'_, c_int>) -> u32 {
    match stream::get(stream) {
        Ok(stream) => {
            ordinal.set(stream.ordinal.load(std::sync::atomic::Ordering::Relaxed) as c_int);
            SUCCESS
        }
        Err(status) => fail(status),
    }
}
