//! Devices, versions, limits and error texts.

use std::ffi::{CStr, c_int, c_uint, c_void};

use crate::boundary::{Out, Room, Text};
use crate::cuda::{Opaque, devices, driver_version, functions, peers, procedures};
use crate::device::{self, Device};
use crate::gpu::gpu;
use crate::status::{CudaStatus, RuntimeStatus};
use crate::{capture, errors, loader, pool};

functions! { RuntimeStatus:
    cudaGetDeviceCount(count: Out<'_, c_int>) = {
        count.set(gpu().visible().len() as c_int);
        any_device()
    };
    cudaGetDevice(ordinal: Out<'_, c_int>) = {
        any_device()?;
        ordinal.set(device::current_ordinal() as c_int);
    };
    cudaSetDevice(ordinal: c_int) = device::make_current(ordinal);
    cudaInitDevice(ordinal: c_int, _device_flags: c_uint, _flags: c_uint) = device::activate(get(ordinal)?);
    cudaSetValidDevices(_devices: *const c_int, _count: c_int) = ();
    cudaChooseDevice(ordinal: Out<'_, c_int>, _properties: *const c_void) = {
        ordinal.set(0);
        any_device()
    };
    cudaDeviceGetAttribute(value: Out<'_, c_int>, attribute: c_int, ordinal: c_int)
        = devices::write_attribute(value, get(ordinal)?, ordinal, attribute);
    cudaDeviceGetPCIBusId(text: Room<'_, u8>, _length: c_int, ordinal: c_int)
        = devices::write_pci_bus_id(text, ordinal);
    cudaDeviceGetByPCIBusId(ordinal: Out<'_, c_int>, text: Text<'_>) = devices::by_pci_bus_id(ordinal, text);
    cudaDeviceCanAccessPeer(can: Out<'_, c_int>, ordinal: c_int, peer: c_int)
        = devices::can_access_peer(can, ordinal, peer);
    cudaDeviceEnablePeerAccess(peer: c_int, _flags: c_uint) = peers::enable(peer);
    cudaDeviceDisablePeerAccess(peer: c_int) = peers::disable(peer);
    cudaDeviceGetP2PAttribute(value: Out<'_, c_int>, attribute: c_int, source: c_int, target: c_int)
        = devices::link_attribute(value, attribute, source, target);
    cudaDeviceGetLimit(value: Out<'_, usize>, limit: c_int) = devices::limit(value, limit);
    cudaDeviceSetLimit(limit: c_int, value: usize) = devices::set_limit(device::activate_current()?, limit, value);
    cudaDeviceGetStreamPriorityRange(least: Out<'_, c_int>, greatest: Out<'_, c_int>)
        = devices::priorities(least, greatest);
    cudaDeviceSynchronize() = synchronize();
    cudaDeviceReset() = {
        if let Some(device) = device::current() {
            device::deactivate(device);
        }
    };
    cudaDriverGetVersion(version: Out<'_, c_int>) = version.set(driver_version());
    cudaRuntimeGetVersion(version: Out<'_, c_int>) = version.set(runtime_version());
    cudaGetDriverEntryPoint(symbol: Text<'_>, function: Out<'_, Opaque>, _flags: u64, found: Out<'_, c_int>)
        = entry_point(symbol, function, runtime_version(), found);
    cudaGetDriverEntryPointByVersion(
        symbol: Text<'_>, function: Out<'_, Opaque>, version: c_uint, _flags: u64, found: Out<'_, c_int>
    ) = entry_point(symbol, function, version as c_int, found);
    cudaCtxResetPersistingL2Cache() = ();
}

/// What an error code means.
pub fn cudaGetErrorString(code: c_int) -> &'static CStr {
    errors::of_runtime(code).1
}

/// The runtime's name of an error code.
pub fn cudaGetErrorName(code: c_int) -> &'static CStr {
    errors::of_runtime(code).0
}

/// The card with an ordinal of this process, as the runtime answers for one that is not there.
pub fn get(ordinal: c_int) -> Result<Device, CudaStatus> {
    device::get(ordinal).ok_or_else(|| {
        gpu().note_missing(ordinal);
        device::missing()
    })
}

/// Refuses a call where there is no card at all.
fn any_device() -> Result<(), CudaStatus> {
    if gpu().visible().is_empty() { Err(CudaStatus::NO_DEVICE) } else { Ok(()) }
}

fn synchronize() -> Result<(), CudaStatus> {
    device::activate_current()?;
    capture::check_unsafe_call()?;
    pool::synchronized();
    Ok(())
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
                (function(&raw mut version) == 0 && version > 0).then_some(version)
            }
        });
        asked.unwrap_or(loader::runtime_major() as c_int * 1000)
    })
}

/// Writes the address of a driver function, and why there is none: 0 is success, 1 is an unknown symbol.
fn entry_point(
    symbol: Text<'_>,
    function: Out<'_, Opaque>,
    version: c_int,
    found: Out<'_, c_int>,
) -> Result<(), CudaStatus> {
    let (Some(symbol), Some(function)) = (symbol.get(), function.given()) else {
        return Err(CudaStatus::INVALID_VALUE);
    };
    let address = procedures::find(symbol, version as u32);
    function.set(address.unwrap_or(std::ptr::null_mut()));
    found.set(c_int::from(address.is_none()));
    Ok(())
}
