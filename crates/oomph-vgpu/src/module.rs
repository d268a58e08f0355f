//! Modules, kernels and what is known of them.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

pub use crate::cubin::Attributes;
use crate::cubin::Kernels;
use crate::device::{self, Device};
use crate::status::{INVALID_HANDLE, INVALID_IMAGE, INVALID_VALUE, NOT_FOUND};
use crate::{handle, image, trace};

const KERNEL_MAGIC: u64 = 0x6b65_726e_656c_6f6f;

impl Attributes {
    /// What is assumed of a kernel whose code cannot be read: nothing unusual.
    pub fn ordinary(function: *const c_void) -> Self {
        Self { max_threads: 1024, registers: 32, shared: 0, local: 0, arch: code_architecture(function) }
    }

    /// What is known of a kernel, or assumed of it.
    pub fn of(function: *const c_void) -> Self {
        kernel(function.cast_mut()).map_or_else(|| Self::ordinary(function), |kernel| kernel.attributes)
    }
}

/// A kernel handle's object.
pub struct Kernel {
    magic: u64,
    /// Its name, for `cuFuncGetName`.
    pub name: CString,
    /// What is known of it.
    pub attributes: Attributes,
    module: usize,
}

/// Images that were loaded, by handle: their kernels, if the image could be read.
static MODULES: Mutex<BTreeMap<usize, Option<Kernels>>> = Mutex::new(BTreeMap::new());
/// Kernels handed out, by module and name, so that asking twice gives the same handle.
static KERNELS: Mutex<BTreeMap<(usize, Vec<u8>), usize>> = Mutex::new(BTreeMap::new());
/// Globals handed out, by module and name: address and size.
static GLOBALS: Mutex<BTreeMap<(usize, Vec<u8>), usize>> = Mutex::new(BTreeMap::new());

/// Loads an image: a cubin, a fat binary or PTX.
///
/// # Safety
/// `image` must point to a whole image, as CUDA requires.
pub unsafe fn load(image: *const c_void) -> Result<*mut c_void, u32> {
    let image = NonNull::new(image.cast_mut().cast::<u8>()).ok_or(INVALID_VALUE)?;
    // SAFETY: the caller's promise; the reader looks at headers first and at no more than they announce.
    let kernels = unsafe { image::kernels(image) };
    if kernels.as_ref().is_some_and(BTreeMap::is_empty) {
        return Err(INVALID_IMAGE);
    }
    let module = handle::fresh();
    MODULES.lock().unwrap_or_else(PoisonError::into_inner).insert(module as usize, kernels);
    Ok(module)
}

/// Makes a module whose contents are unknown.
pub fn opaque() -> *mut c_void {
    let module = handle::fresh();
    MODULES.lock().unwrap_or_else(PoisonError::into_inner).insert(module as usize, None);
    module
}

/// Forgets a module.
pub fn unload(module: *mut c_void) -> Result<(), u32> {
    MODULES.lock().unwrap_or_else(PoisonError::into_inner).remove(&(module as usize)).map(drop).ok_or(INVALID_HANDLE)
}

/// The kernel of a name. In an image that could be read, an unknown name is an error.
pub fn function(module: *mut c_void, name: &CStr) -> Result<*mut c_void, u32> {
    let attributes = {
        let modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
        match modules.get(&(module as usize)).ok_or(INVALID_HANDLE)? {
            Some(kernels) => *kernels.get(name.to_bytes()).ok_or(NOT_FOUND)?,
            None => Attributes::ordinary(ptr::null()),
        }
    };
    let mut kernels = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
    let address = *kernels.entry((module as usize, name.to_bytes().to_vec())).or_insert_with(|| {
        let kernel = Kernel { magic: KERNEL_MAGIC, name: name.to_owned(), attributes, module: module as usize };
        ptr::from_ref::<Kernel>(Box::leak(Box::new(kernel))) as usize
    });
    Ok(address as *mut c_void)
}

/// Names of the kernels of a module, where its image could be read.
pub fn names(module: *mut c_void) -> Vec<Vec<u8>> {
    let modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    modules.get(&(module as usize)).and_then(Option::as_ref).map_or_else(Vec::new, |map| map.keys().cloned().collect())
}

/// The kernel behind a handle, if it is one of this module's; the runtime's kernels are host functions.
pub fn kernel(handle: *mut c_void) -> Option<&'static Kernel> {
    let known =
        KERNELS.lock().unwrap_or_else(PoisonError::into_inner).values().any(|address| *address == handle as usize);
    if !known {
        return None;
    }
    // SAFETY: the address is one of the leaked kernels in the table.
    let kernel = unsafe { &*handle.cast::<Kernel>() };
    (kernel.magic == KERNEL_MAGIC).then_some(kernel)
}

impl Kernel {
    /// The module that it came from.
    pub fn module(&self) -> *mut c_void {
        self.module as *mut c_void
    }
}

/// A global variable of a module: an address with room for what hosts copy there.
pub fn global(module: *mut c_void, name: &CStr) -> (*mut c_void, usize) {
    const ROOM: usize = 64 << 10;
    let mut globals = GLOBALS.lock().unwrap_or_else(PoisonError::into_inner);
    let address = *globals
        .entry((module as usize, name.to_bytes().to_vec()))
        .or_insert_with(|| Box::leak(vec![0_u64; ROOM / size_of::<u64>()].into_boxed_slice()).as_ptr() as usize);
    (address as *mut c_void, ROOM)
}

/// The architectures of a fat binary: a bit for each with machine code, and one for each with PTX.
#[derive(Clone, Copy, Default)]
struct Architectures {
    code: [u64; 4],
    ptx: [u64; 4],
}

impl Architectures {
    fn add(&mut self, arch: u32, is_code: bool) {
        let words = if is_code { &mut self.code } else { &mut self.ptx };
        if let Some(word) = words.get_mut(arch as usize / 64) {
            *word |= 1 << (arch % 64);
        }
    }

    fn has(words: &[u64; 4], arch: u32) -> bool {
        words.get(arch as usize / 64).is_some_and(|word| word >> (arch % 64) & 1 == 1)
    }

    /// What a card would run: machine code of its major version up to its minor one, else the newest PTX that is not
    /// newer than the card.
    fn for_card(&self, major: u32, minor: u32) -> Option<u32> {
        let code = (0..=minor).rev().map(|minor| major * 10 + minor).find(|arch| Self::has(&self.code, *arch));
        code.or_else(|| (30..=major * 10 + minor).rev().find(|arch| Self::has(&self.ptx, *arch)))
    }
}

/// What nvcc's start-up code registered: fat binaries, and which kernel of the program is in which.
struct Registered {
    binaries: Vec<Architectures>,
    /// Host functions that stand for kernels, with the index of their fat binary. Torch registers a hundred thousand
    /// while it loads and asks about a few, so they are sorted at the first question.
    kernels: Vec<(usize, u32)>,
    sorted: bool,
}

static REGISTERED: Mutex<Registered> =
    Mutex::new(Registered { binaries: Vec::new(), kernels: Vec::new(), sorted: true });

#[repr(C)]
struct FatBinaryWrapper {
    magic: u32,
    version: u32,
    data: *const u8,
    file: *const c_char,
}

const WRAPPER_MAGIC: u32 = 0x4662_43b1;

/// Notes for which architectures a fat binary holds code, and returns its handle.
///
/// # Safety
/// `wrapper` must be what nvcc passes to `__cudaRegisterFatBinary`.
pub unsafe fn register(wrapper: *const c_void) -> *mut c_void {
    let mut found = Architectures::default();
    if !wrapper.is_null() {
        // SAFETY: the caller's promise.
        let wrapper = unsafe { &*wrapper.cast::<FatBinaryWrapper>() };
        if wrapper.magic == WRAPPER_MAGIC {
            // SAFETY: the wrapper's data is a fat binary.
            for (arch, is_code) in unsafe { image::architectures(wrapper.data) } {
                found.add(arch, is_code);
            }
        }
    }
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    registered.binaries.push(found);
    // A handle is the binary's place, counted from 1 because null is no handle.
    registered.binaries.len() as *mut c_void
}

/// Notes that a host function stands for a kernel of a fat binary.
pub fn register_kernel(binary: *mut c_void, function: *const c_void) {
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(index) = (binary as usize).checked_sub(1).filter(|index| *index < registered.binaries.len()) else {
        return;
    };
    registered.kernels.push((function as usize, index as u32));
    registered.sorted = false;
}

/// The architectures of the fat binary that a host function's kernel is in.
fn architectures_of(function: *const c_void) -> Option<Architectures> {
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    if !registered.sorted {
        registered.kernels.sort_unstable();
        registered.sorted = true;
    }
    let place = registered.kernels.binary_search_by_key(&(function as usize), |(function, _)| *function).ok()?;
    let (_, binary) = registered.kernels.get(place)?;
    registered.binaries.get(*binary as usize).copied()
}

/// The architecture of the code that the current card would run for a kernel of the program. Templates of CUB and
/// others choose by it among what they were compiled for, so it must be one that the kernel's binary holds.
pub fn code_architecture(function: *const c_void) -> u32 {
    let Some(device) = device::current() else { return 80 };
    let (major, minor) = (device.description.cc_major as u32, device.description.cc_minor as u32);
    let Some(found) = architectures_of(function) else { return major * 10 + minor };
    found.for_card(major, minor).unwrap_or_else(|| {
        warn_of_missing_code(device);
        major * 10 + minor
    })
}

/// Says once that a real card would refuse to run the program.
fn warn_of_missing_code(device: Device) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        let card = device.description;
        trace::warn(&format!(
            "the program has no code for compute capability {}.{} ({}): a real card would refuse to run it",
            card.cc_major, card.cc_minor, card.name
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_runs_its_own_code_or_older_ptx() {
        let mut found = Architectures::default();
        for (arch, is_code) in [(75, true), (80, true), (86, true), (90, true), (90, false)] {
            found.add(arch, is_code);
        }
        assert_eq!(found.for_card(8, 9), Some(86), "code of a lower minor version runs");
        assert_eq!(found.for_card(7, 0), None, "code of a higher minor version does not");
        assert_eq!(found.for_card(12, 0), Some(90), "PTX is compiled for a newer card");
    }
}
