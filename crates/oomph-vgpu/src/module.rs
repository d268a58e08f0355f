//! Modules, kernels and what is known of them.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_void};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

pub use crate::cubin::Attributes;
use crate::cubin::Kernels;
use crate::registered::code_architecture;
use crate::status::{INVALID_HANDLE, INVALID_IMAGE, INVALID_VALUE, NOT_FOUND};
use crate::{handle, image};

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
