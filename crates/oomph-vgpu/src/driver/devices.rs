//! Devices, versions and error texts.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use oomph_ledger::NoteKind;

use crate::boundary::{Out, Room, Text};
use crate::device;
use crate::driver::{attributes, peers, procedures, version};
use crate::gpu::gpu;
use crate::libcudnn::namespace;
use crate::status::{INVALID_DEVICE, INVALID_VALUE, NO_DEVICE, NOT_FOUND, SUCCESS};

pub fn cuInit(_flags: c_uint) -> u32 {
    if device::visible().is_empty() { NO_DEVICE } else { SUCCESS }
}

pub fn cuDriverGetVersion(to: Out<'_, c_int>) -> u32 {
    to.set(version());
    SUCCESS
}

pub fn cuDeviceGetCount(count: Out<'_, c_int>) -> u32 {
    count.set(device::visible().len() as c_int);
    SUCCESS
}

pub fn cuDeviceGet(handle: Out<'_, c_int>, ordinal: c_int) -> u32 {
    if device::get(ordinal).is_none() {
        return INVALID_DEVICE;
    }
    handle.set(ordinal);
    SUCCESS
}

/// Copies a text into a buffer, cut to fit and terminated.
fn put_text(to: Room<'_, u8>, text: &str) {
    if let Some(room) = to.count().checked_sub(1) {
        to.fill(text.bytes().take(room).chain([0]));
    }
}

pub fn cuDeviceGetName(name: Room<'_, u8>, _length: c_int, ordinal: c_int) -> u32 {
    let Some(device) = device::get(ordinal) else { return INVALID_DEVICE };
    put_text(name, &device.description.name);
    SUCCESS
}

pub fn cuDeviceGetUuid(uuid: Out<'_, [u8; 16]>, ordinal: c_int) -> u32 {
    let Some(device) = device::get(ordinal) else { return INVALID_DEVICE };
    uuid.set(device.description.uuid);
    SUCCESS
}

pub fn cuDeviceGetUuid_v2(uuid: Out<'_, [u8; 16]>, ordinal: c_int) -> u32 {
    cuDeviceGetUuid(uuid, ordinal)
}

pub fn cuDeviceTotalMem(bytes: Out<'_, c_uint>, ordinal: c_int) -> u32 {
    let Some(device) = device::get(ordinal) else { return INVALID_DEVICE };
    bytes.set(c_uint::try_from(device.capacity_bytes()).unwrap_or(c_uint::MAX));
    SUCCESS
}

pub fn cuDeviceTotalMem_v2(bytes: Out<'_, usize>, ordinal: c_int) -> u32 {
    let Some(device) = device::get(ordinal) else { return INVALID_DEVICE };
    bytes.set(device.capacity_bytes() as usize);
    SUCCESS
}

pub fn cuDeviceGetAttribute(value: Out<'_, c_int>, attribute: c_int, ordinal: c_int) -> u32 {
    let Some(device) = device::get(ordinal) else { return INVALID_DEVICE };
    value.set(attributes::of(device, ordinal, attribute));
    SUCCESS
}

pub fn cuDeviceComputeCapability(major: Out<'_, c_int>, minor: Out<'_, c_int>, ordinal: c_int) -> u32 {
    let Some(device) = device::get(ordinal) else { return INVALID_DEVICE };
    major.set(device.description.cc_major as c_int);
    minor.set(device.description.cc_minor as c_int);
    SUCCESS
}

/// The PCI address of a card: buses are numbered from 1 in the order of the cards.
pub fn pci_bus_id(ordinal: usize) -> String {
    format!("0000:{:02X}:00.0", ordinal + 1)
}

pub fn cuDeviceGetPCIBusId(text: Room<'_, u8>, _length: c_int, ordinal: c_int) -> u32 {
    let Some(device) = device::get(ordinal) else { return INVALID_DEVICE };
    put_text(text, &pci_bus_id(device.card));
    SUCCESS
}

pub fn cuDeviceGetByPCIBusId(ordinal: Out<'_, c_int>, text: Text<'_>) -> u32 {
    let Some(text) = text.get() else { return INVALID_VALUE };
    let text = text.to_string_lossy().to_uppercase();
    let found =
        device::visible().iter().position(|device| text.ends_with(pci_bus_id(device.card).trim_start_matches('0')));
    match found {
        Some(found) => {
            ordinal.set(found as c_int);
            SUCCESS
        }
        None => INVALID_DEVICE,
    }
}

pub fn cuDeviceCanAccessPeer(can: Out<'_, c_int>, ordinal: c_int, peer: c_int) -> u32 {
    let (Some(one), Some(other)) = (device::get(ordinal), device::get(peer)) else { return INVALID_DEVICE };
    can.set(c_int::from(peers::reach(one, other)));
    SUCCESS
}

pub fn cuDeviceGetP2PAttribute(value: Out<'_, c_int>, attribute: c_int, source: c_int, target: c_int) -> u32 {
    let (Some(one), Some(other)) = (device::get(source), device::get(target)) else { return INVALID_DEVICE };
    // 2 is "access supported"; performance rank, native atomics and array access are 0.
    value.set(c_int::from(attribute == 2 && peers::reach(one, other)));
    SUCCESS
}

pub fn cuGetErrorString(code: c_int, text: Out<'_, *const c_char>) -> u32 {
    text.set(crate::status::text(code as u32).as_ptr().cast());
    SUCCESS
}

pub fn cuGetErrorName(code: c_int, text: Out<'_, *const c_char>) -> u32 {
    text.set(crate::status::driver_name(code as u32).as_ptr().cast());
    SUCCESS
}

/// CUDA 12's signature, with the reason why a symbol was not found: 0 for success, 1 for an unknown one.
pub fn cuGetProcAddress_v2(
    symbol: Text<'_>,
    function: Out<'_, *mut c_void>,
    version: c_int,
    _flags: u64,
    result: Out<'_, c_int>,
) -> u32 {
    let Some(symbol) = symbol.get() else { return INVALID_VALUE };
    let address = procedures::find(symbol, version as u32);
    function.set(address.unwrap_or(std::ptr::null_mut()));
    result.set(c_int::from(address.is_none()));
    if address.is_some() { SUCCESS } else { NOT_FOUND }
}

/// CUDA 11's signature.
pub fn cuGetProcAddress(symbol: Text<'_>, function: Out<'_, *mut c_void>, version: c_int, flags: u64) -> u32 {
    cuGetProcAddress_v2(symbol, function, version, flags, Out::null())
}

/// The tables that a statically linked runtime asks for are private to NVIDIA. Without them it reports an unknown error
/// to the program, so the report says what it was.
pub fn cuGetExportTable(table: Out<'_, *const c_void>, _id: *const c_void) -> u32 {
    table.set(std::ptr::null());
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
    if gpu().static_runtime_looks.fetch_add(1, Ordering::Relaxed) >= MOST_LOOKS {
        return;
    }
    let place = gpu().activity.innermost_outside();
    let path = place.as_ref().map_or("a library of the program", |place| place.module.as_str());
    let file = path.rsplit('/').next().unwrap_or(path);
    if !COMPILERS.iter().any(|compiler| file.starts_with(compiler)) {
        gpu().note(NoteKind::StaticRuntime, known_as(path));
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
