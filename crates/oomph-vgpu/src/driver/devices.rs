//! Devices, versions and error texts.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use oomph_ledger::NoteKind;

use crate::boundary::{Out, Room, Text};
use crate::cuda::{Opaque, devices, driver_version, functions, procedures};
use crate::errors;
use crate::gpu::gpu;
use crate::libcudnn::namespace;
use crate::status::{CudaStatus, DriverStatus};

functions! { DriverStatus:
    cuInit(_flags: c_uint) = if gpu().visible().is_empty() { Err(CudaStatus::NO_DEVICE) } else { Ok(()) };
    cuDriverGetVersion(to: Out<'_, c_int>) = to.set(driver_version());
    cuDeviceGetCount(count: Out<'_, c_int>) = count.set(gpu().visible().len() as c_int);
    cuDeviceGet(handle: Out<'_, c_int>, ordinal: c_int) = {
        devices::get(ordinal)?;
        handle.set(ordinal);
    };
    cuDeviceGetName(name: Room<'_, u8>, _length: c_int, ordinal: c_int)
        = devices::put_text(name, &devices::get(ordinal)?.description.name);
    cuDeviceGetUuid(uuid: Out<'_, [u8; 16]>, ordinal: c_int) = uuid.set(devices::get(ordinal)?.description.uuid);
    cuDeviceGetUuid_v2(uuid: Out<'_, [u8; 16]>, ordinal: c_int) = uuid.set(devices::get(ordinal)?.description.uuid);
    cuDeviceTotalMem(bytes: Out<'_, c_uint>, ordinal: c_int)
        = bytes.set(c_uint::try_from(devices::get(ordinal)?.capacity_bytes()).unwrap_or(c_uint::MAX));
    cuDeviceTotalMem_v2(bytes: Out<'_, usize>, ordinal: c_int)
        = bytes.set(devices::get(ordinal)?.capacity_bytes() as usize);
    cuDeviceGetAttribute(value: Out<'_, c_int>, attribute: c_int, ordinal: c_int)
        = devices::attribute(value, attribute, ordinal);
    cuDeviceComputeCapability(major: Out<'_, c_int>, minor: Out<'_, c_int>, ordinal: c_int) = {
        let card = devices::get(ordinal)?.description;
        major.set(card.cc_major as c_int);
        minor.set(card.cc_minor as c_int);
    };
    cuDeviceGetPCIBusId(text: Room<'_, u8>, _length: c_int, ordinal: c_int)
        = devices::write_pci_bus_id(text, ordinal);
    cuDeviceGetByPCIBusId(ordinal: Out<'_, c_int>, text: Text<'_>) = devices::by_pci_bus_id(ordinal, text);
    cuDeviceCanAccessPeer(can: Out<'_, c_int>, ordinal: c_int, peer: c_int)
        = devices::can_access_peer(can, ordinal, peer);
    cuDeviceGetP2PAttribute(value: Out<'_, c_int>, attribute: c_int, source: c_int, target: c_int)
        = devices::link_attribute(value, attribute, source, target);
    cuGetErrorString(code: c_int, text: Out<'_, *const c_char>)
        = write_of_code(text, errors::of_driver(code).map(|(_, text)| text));
    cuGetErrorName(code: c_int, text: Out<'_, *const c_char>)
        = write_of_code(text, errors::of_driver(code).map(|(name, _)| name));
    /// CUDA 12's signature, with the reason why a symbol was not found.
    cuGetProcAddress_v2(
        symbol: Text<'_>, function: Out<'_, Opaque>, version: c_int, _flags: u64, result: Out<'_, c_int>
    ) = procedure(symbol, function, version, result);
    cuGetProcAddress(symbol: Text<'_>, function: Out<'_, Opaque>, version: c_int, _flags: u64)
        = procedure(symbol, function, version, Out::null());
    /// The tables that a statically linked runtime asks for are private to NVIDIA. Without them it reports an unknown
    /// error to the program, so the report says what it was.
    cuGetExportTable(table: Out<'_, *const c_void>, _id: *const c_void) = {
        table.set(std::ptr::null());
        // NVIDIA's own libraries carry a static runtime as well. Those that are asked in a namespace do without it.
        if !namespace::is_inside() {
            warn_of_static_runtime();
        }
        Err(CudaStatus::NOT_FOUND)
    };
}

/// Writes a text about an error code; null for a number that is none.
fn write_of_code(to: Out<'_, *const c_char>, found: Option<&'static CStr>) -> Result<(), CudaStatus> {
    to.set(found.map_or(std::ptr::null(), CStr::as_ptr));
    found.map(drop).ok_or(CudaStatus::INVALID_VALUE)
}

/// Writes a function's address, and why there is none: 0 for success, 1 for an unknown symbol.
fn procedure(
    symbol: Text<'_>,
    function: Out<'_, Opaque>,
    version: c_int,
    result: Out<'_, c_int>,
) -> Result<(), CudaStatus> {
    let symbol = symbol.get().ok_or(CudaStatus::INVALID_VALUE)?;
    let address = procedures::find(symbol, version as u32);
    function.set(address.unwrap_or(std::ptr::null_mut()));
    match (address, result.given()) {
        // Who asks why there is none learns it there, and the call succeeds.
        (_, Some(result)) => result.set(c_int::from(address.is_none())),
        (None, None) => return Err(CudaStatus::NOT_FOUND),
        (Some(_), None) => {}
    }
    Ok(())
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
