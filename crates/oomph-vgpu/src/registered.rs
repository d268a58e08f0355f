//! What nvcc's start-up code registers of a program: fat binaries, and the host functions that stand for their kernels.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::Ordering;

use oomph_ledger::NoteKind;

use crate::boundary::Record;
use crate::gpu::{Architectures, Binaries, Binary, REMEMBERED, gpu};
use crate::loaded::{self, File};
use crate::lock::MutexGuard;
use crate::work::kernel::{Launch, Recipe};
use crate::{device, image};

/// Size of the wrapper in which nvcc's start-up code passes a fat binary, in bytes, and where its members lie.
pub const WRAPPER: usize = 24;
const MAGIC: usize = 0;
const DATA: usize = 8;
const WRAPPER_MAGIC: u32 = 0x4662_43b1;

/// Notes for which architectures a fat binary holds code, and returns its handle.
pub fn register(wrapper: Record<'_, WRAPPER>) -> *mut c_void {
    let mut found = Architectures::default();
    if wrapper.read(MAGIC) == Some(WRAPPER_MAGIC)
        && let Some(data) = wrapper.read::<*const u8>(DATA)
    {
        // SAFETY: nvcc's start-up code passes the wrapper of a whole fat binary, as its magic number says.
        for (arch, is_code) in unsafe { image::architectures(data) } {
            found.add(arch, is_code);
        }
    }
    let mut registered = registered();
    registered.binaries.push(Binary { architectures: found, at: wrapper.address() });
    // A handle is the binary's place, counted from 1 because null is not a handle.
    registered.binaries.len() as *mut c_void
}

/// Notes that a host function stands for a kernel of a fat binary.
///
/// The name is kept by its address: it lies in the program, which is never unloaded as long as it launches the kernel.
pub fn register_kernel(binary: *mut c_void, function: *const c_void, name: *const c_char) {
    let mut registered = registered();
    let Some(index) = (binary as usize).checked_sub(1).filter(|index| *index < registered.binaries.len()) else {
        return;
    };
    registered.add_kernel(function as usize, index as u32, name as usize);
}

fn registered() -> MutexGuard<'static, Binaries> {
    gpu().registered.binaries.lock()
}

/// Counts a launch, and notes for the report what the file was compiled for that a kernel of the program is in.
#[inline]
pub fn launched(function: *const c_void, launch: &Launch<'_>) {
    let gpu = gpu();
    let place = &gpu.registered.launched[(function as usize >> 4) % REMEMBERED];
    let mut known = place.function.load(Ordering::Relaxed);
    if known & !15 != function as usize & !15 {
        let recipe = recipe_of(function);
        place.recipe.store(recipe.0, Ordering::Relaxed);
        known = function as usize & !15 | recipe.tag();
        place.function.store(known, Ordering::Relaxed);
        first_launch(function);
    }
    let recipe = Recipe(place.recipe.load(Ordering::Relaxed) & !15 | (known & 15) as u64);
    // SAFETY: a program launches a kernel with an address for each of its parameters; which of them are read was found for
    // this very kernel.
    unsafe { gpu.work.launched(recipe, launch) };
}

#[cold]
fn recipe_of(function: *const c_void) -> Recipe {
    let Some((_, _, name)) = registered().find(function).filter(|(_, _, name)| *name != 0) else {
        return Recipe::of("");
    };
    // SAFETY: nvcc's start-up code registered a text that ends with a zero byte, in the file that launches the kernel.
    let name = unsafe { CStr::from_ptr(name as *const c_char) };
    Recipe::of(&name.to_string_lossy())
}

#[cold]
fn first_launch(function: *const c_void) {
    let at = {
        let mut registered = registered();
        let Some(at) = registered.binary_of(function).map(|binary| binary.at) else { return };
        if registered.reported.iter().any(|file| file.contains(&at)) {
            return;
        }
        at
    };
    // Without the lock: the loader may wait for a thread that is loading a library, whose start-up code registers here.
    let Some(File { name, range }) = loaded::file_of(at) else { return };
    let mut registered = registered();
    // A library has many binaries, and some are for one card alone, next to others for the rest.
    let mut all = Architectures::default();
    for binary in registered.binaries.iter().filter(|binary| range.contains(&binary.at)) {
        all.join(&binary.architectures);
    }
    registered.reported.push(range);
    drop(registered);
    let names = all.names();
    if !names.is_empty() {
        gpu().note(NoteKind::Code, &format!("{} in {name}", names.join(" ")));
    }
}

/// The architecture of the code that the current card would run for a kernel of the program. Templates of CUB and
/// others choose by it among what they were compiled for, so it must be one that the kernel's binary holds.
pub fn code_architecture(function: *const c_void) -> u32 {
    let Some(device) = device::current() else { return 80 };
    let (major, minor) = (device.description.cc_major as u32, device.description.cc_minor as u32);
    let found = registered().binary_of(function).map(|binary| binary.architectures);
    // Where there is none, the report says so of the file.
    found.and_then(|found| found.for_card(major, minor)).unwrap_or(major * 10 + minor)
}
