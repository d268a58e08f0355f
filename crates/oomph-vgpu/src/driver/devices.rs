//! Devices, versions and error texts.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use oomph_ledger::NoteKind;

use crate::activity::site;
use crate::books;
use crate::cudnn::namespace;
use crate::device;
use crate::driver::{attributes, peers, procedures, put, version};
use crate::status::{INVALID_DEVICE, INVALID_VALUE, NO_DEVICE, NOT_FOUND, SUCCESS};

pub unsafe fn cuInit(_flags: c_uint) -> u32 {
    if device::visible().is_empty() { NO_DEVICE } else { SUCCESS }
}

pub unsafe fn cuDriverGetVersion(to: *mut c_int) -> u32 {
    unsafe { put(to, version()) };
    SUCCESS
}

pub unsafe fn cuDeviceGetCount(count: *mut c_int) -> u32 {
    unsafe { put(count, device::visible().len() as c_int) };
    SUCCESS
}

pub unsafe fn cuDeviceGet(handle: *mut c_int, ordinal: c_int) -> u32 {
    if device::get(ordinal).is_none() {
        return INVALID_DEVICE;
    }
    unsafe { put(handle, ordinal) };
    SUCCESS
}

/// Copies a text into a buffer, cut to fit and terminated.
unsafe fn put_text(to: *mut c_char, length: c_int, text: &str) {
    let Ok(room) = usize::try_from(length) else { return };
    if to.is_null() || room == 0 {
        return;
    }
    let count = text.len().min(room - 1);
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), count);
        to.add(count).write(0);
    }
}

pub unsafe fn cuDeviceGetName(name: *mut c_char, length: c_int, ordinal: c_int) -> u32 {
    let Some(device) = device::get(ordinal) else { return INVALID_DEVICE };
    unsafe { put_text(name, length, &device.description.name) };
    SUCCESS
}

pub unsafe fn cuDeviceGetUuid(uuid: *mut [u8; 16], ordinal: c_int) -> u32 {
    let Some(device) = device::get(ordinal) else { return INVALID_DEVICE };
    unsafe { put(uuid, device.description.uuid) };
    SUCCESS
}

pub unsafe fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], ordinal: c_int) -> u32 {
    unsafe { cuDeviceGetUuid(uuid, ordinal) }
}

pub unsafe fn cuDeviceTotalMem(bytes: *mut c_uint, ordinal: c_int) -> u32 {
    let Some(device) = device::get(ordinal) else { return INVALID_DEVICE };
    unsafe { put(bytes, c_uint::try_from(device.capacity_bytes()).unwrap_or(c_uint::MAX)) };
    SUCCESS
}

pub unsafe fn cuDeviceTotalMem_v2(bytes: *mut usize, ordinal: c_int) -> u32 {
    let Some(device) = device::get(ordinal) else { return INVALID_DEVICE };
    unsafe { put(bytes, device.capacity_bytes() as usize) };
    SUCCESS
}

pub unsafe fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, ordinal: c_int) -> u32 {
    let Some(device) = device::get(ordinal) else { return INVALID_DEVICE };
    unsafe { put(value, attributes::of(device, ordinal, attribute)) };
    SUCCESS
}

pub unsafe fn cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, ordinal: c_int) -> u32 {
    let Some(device) = device::get(ordinal) else { return INVALID_DEVICE };
    unsafe {
        put(major, device.description.cc_major as c_int);
        put(minor, device.description.cc_minor as c_int);
    }
    SUCCESS
}

/// The PCI address of a card: buses are numbered from 1 in the order of the cards.
pub fn pci_bus_id(ordinal: usize) -> String {
    format!("0000:{:02X}:00.0", ordinal + 1)
}

pub unsafe fn cuDeviceGetPCIBusId(text: *mut c_char, length: c_int, ordinal: c_int) -> u32 {
    let Some(device) = device::get(ordinal) else { return INVALID_DEVICE };
    unsafe { put_text(text, length, &pci_bus_id(device.card)) };
    SUCCESS
}

pub unsafe fn cuDeviceGetByPCIBusId(ordinal: *mut c_int, text: *const c_char) -> u32 {
    if text.is_null() {
        return INVALID_VALUE;
    }
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().to_uppercase();
    let found =
        device::visible().iter().position(|device| text.ends_with(pci_bus_id(device.card).trim_start_matches('0')));
    match found {
        Some(found) => {
            unsafe { put(ordinal, found as c_int) };
            SUCCESS
        }
        None => INVALID_DEVICE,
    }
}

pub unsafe fn cuDeviceCanAccessPeer(can: *mut c_int, ordinal: c_int, peer: c_int) -> u32 {
    let (Some(one), Some(other)) = (device::get(ordinal), device::get(peer)) else { return INVALID_DEVICE };
    unsafe { put(can, c_int::from(peers::reach(one, other))) };
    SUCCESS
}

pub unsafe fn cuDeviceGetP2PAttribute(value: *mut c_int, attribute: c_int, source: c_int, target: c_int) -> u32 {
    let (Some(one), Some(other)) = (device::get(source), device::get(target)) else { return INVALID_DEVICE };
    // 2 is "access supported"; performance rank, native atomics and array access are 0.
    unsafe { put(value, c_int::from(attribute == 2 && peers::reach(one, other))) };
    SUCCESS
}

pub unsafe fn cuGetErrorString(code: c_int, text: *mut *const c_char) -> u32 {
    unsafe { put(text, crate::status::text(code as u32).as_ptr().cast()) };
    SUCCESS
}

pub unsafe fn cuGetErrorName(code: c_int, text: *mut *const c_char) -> u32 {
    unsafe { put(text, crate::status::driver_name(code as u32).as_ptr().cast()) };
    SUCCESS
}

/// CUDA 12's signature, with the reason why a symbol was not found: 0 for success, 1 for an unknown one.
pub unsafe fn cuGetProcAddress_v2(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    _flags: u64,
    result: *mut c_int,
) -> u32 {
    if symbol.is_null() {
        return INVALID_VALUE;
    }
    let address = procedures::find(unsafe { CStr::from_ptr(symbol) }, version as u32);
    unsafe {
        put(function, address.unwrap_or(std::ptr::null_mut()));
        put(result, c_int::from(address.is_none()));
    }
    if address.is_some() { SUCCESS } else { NOT_FOUND }
}

/// CUDA 11's signature.
pub unsafe fn cuGetProcAddress(symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64) -> u32 {
    unsafe { cuGetProcAddress_v2(symbol, function, version, flags, std::ptr::null_mut()) }
}

/// The tables that a statically linked runtime asks for are private to NVIDIA. Without them it reports an unknown error
/// to the program, so the report says what it was.
pub unsafe fn cuGetExportTable(table: *mut *const c_void, _id: *const c_void) -> u32 {
    unsafe { put(table, std::ptr::null()) };
    // NVIDIA's own libraries carry a static runtime as well. Those that are asked in a namespace do without it.
    if !namespace::is_inside() {
        warn_of_static_runtime();
    }
    NOT_FOUND
}

/// Notes which files bring a runtime of their own.
fn warn_of_static_runtime() {
    // A runtime that got no table asks again with each of its calls, and looking at the stack takes time.
    const MOST_LOOKS: u32 = 1000;
    // NVIDIA's compilers carry one too, and do their work without a card.
    const COMPILERS: [&str; 4] = ["libnvrtc", "libnvJitLink", "libnvvm", "libnvptxcompiler"];
    static LOOKS: AtomicU32 = AtomicU32::new(0);
    if LOOKS.fetch_add(1, Ordering::Relaxed) >= MOST_LOOKS {
        return;
    }
    let place = site::innermost_outside();
    let path = place.as_ref().map_or("a library of the program", |place| place.module.as_str());
    let file = path.rsplit('/').next().unwrap_or(path);
    if !COMPILERS.iter().any(|compiler| file.starts_with(compiler)) {
        books::note(NoteKind::StaticRuntime, known_as(path));
    }
}

/// A file as its user knows it: by its place among Python's packages, where many are called `runtime`, else by its name.
fn known_as(path: &str) -> &str {
    let packages = ["/site-packages/", "/dist-packages/"];
    let inside = packages.iter().find_map(|folder| Some(path.rsplit_once(folder)?.1));
    // Wheels find the libraries that they bring by `package/../package.libs`.
    let inside = inside.map(|path| path.rsplit_once("/../").map_or(path, |(_, rest)| rest));
    inside.or_else(|| path.rsplit('/').next()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::known_as;

    #[test]
    fn files_are_known_by_their_package() {
        let runtime = "cupy_backends/cuda/api/runtime.cpython-312-x86_64-linux-gnu.so";
        assert_eq!(known_as(&format!("/home/me/venv/lib/python3.12/site-packages/{runtime}")), runtime);
        let brought = "/venv/lib/python3.12/site-packages/ctranslate2/../ctranslate2.libs/libctranslate2.so";
        assert_eq!(known_as(brought), "ctranslate2.libs/libctranslate2.so");
        assert_eq!(known_as("/opt/solver/bin/solver"), "solver");
        assert_eq!(known_as("a library of the program"), "a library of the program");
    }
}
