//! Modules, kernels and what is known of them.

use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};

pub use crate::cubin::Attributes;
use oomph_ledger::Kind;

use crate::boundary::Memory;
use crate::cubin::Globals;
pub use crate::gpu::Kernel;
use crate::gpu::{LoadedVariables, Module, gpu};
use crate::registered::code_architecture;
use crate::status::CudaStatus;
use crate::{device, image, memory, transfer};

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

/// Global variables that take less than this together, in bytes, are part of what a context takes.
const SMALL_GLOBALS: usize = 1 << 20;

/// Loads an image: a cubin, a fat binary or PTX. An image that holds nothing is loaded like any other, and so is PTX that
/// a driver could not compile: its text is not looked at.
pub fn load(image: Memory<'_>) -> Result<*mut c_void, CudaStatus> {
    let image = NonNull::new(image.address().cast::<u8>()).ok_or(CudaStatus::INVALID_VALUE)?;
    // SAFETY: a program passes a whole image, as CUDA requires; the reader looks at headers first and at no more than they
    // announce.
    let module = match unsafe { image::code(image) } {
        // SAFETY: as above; a text ends with a zero byte.
        None if unsafe { image::is_other_text(image) } => return Err(CudaStatus::INVALID_IMAGE),
        None => Module { kernels: None, globals: None },
        Some(code) => Module { globals: Some(LoadedVariables::of(code.globals)?), kernels: Some(code.kernels) },
    };
    Ok(keep(module))
}

/// Makes a module whose contents are unknown.
pub fn opaque() -> *mut c_void {
    keep(Module { kernels: None, globals: None })
}

fn keep(module: Module) -> *mut c_void {
    let handle = gpu().handles.fresh();
    gpu().modules.images.lock().insert(handle as usize, module);
    handle
}

/// Forgets a module, and gives back what its variables took.
pub fn unload(module: *mut c_void) -> Result<(), CudaStatus> {
    let removed = gpu().modules.images.lock().remove(&(module as usize));
    if let Some(LoadedVariables { globals, start }) = removed.ok_or(CudaStatus::INVALID_HANDLE)?.globals {
        let start = start as *mut c_void;
        if globals.size < SMALL_GLOBALS {
            memory::free_within_context(start);
        } else {
            let _ = memory::free(start);
        }
    }
    Ok(())
}

impl LoadedVariables {
    /// Takes memory for variables.
    fn of(globals: Globals) -> Result<Self, CudaStatus> {
        let start = match globals.size {
            0 => ptr::null_mut(),
            size if size < SMALL_GLOBALS => memory::allocate_within_context(size)?,
            size => {
                let device = device::activate_current()?;
                memory::allocate_on(device, device::current_ordinal(), size, Kind::Malloc)
                    .inspect_err(|status| memory::note_refusal(*status, device.card, size))?
            }
        };
        for (at, bytes) in &globals.contents {
            // SAFETY: the contents of a section lie within the room for all sections, which is writable and new.
            unsafe { transfer::copy(start.byte_add(*at), bytes.as_ptr().cast(), bytes.len()) };
        }
        Ok(Self { globals, start: start as usize })
    }

    /// The address and the size of a variable.
    fn find(&self, name: &[u8]) -> Option<(usize, usize)> {
        self.globals.named.get(name).map(|&(at, size)| (self.start + at, size))
    }
}

/// The kernel of a name. In an image that could be read, an unknown name is an error.
pub fn function(module: *mut c_void, name: &CStr) -> Result<*mut c_void, CudaStatus> {
    let attributes = {
        let modules = gpu().modules.images.lock();
        match &modules.get(&(module as usize)).ok_or(CudaStatus::INVALID_HANDLE)?.kernels {
            Some(kernels) => *kernels.get(name.to_bytes()).ok_or(CudaStatus::NOT_FOUND)?,
            None => Attributes::ordinary(ptr::null()),
        }
    };
    let mut kernels = gpu().modules.kernels.lock();
    let kernel: &'static Kernel = kernels
        .entry((module as usize, name.to_bytes().to_vec()))
        .or_insert_with(|| Box::leak(Box::new(Kernel { name: name.to_owned(), attributes, module: module as usize })));
    Ok(ptr::from_ref(kernel).cast_mut().cast())
}

/// Names of the kernels of a module, where its image could be read.
pub fn names(module: *mut c_void) -> Vec<Vec<u8>> {
    let modules = gpu().modules.images.lock();
    let kernels = modules.get(&(module as usize)).and_then(|module| module.kernels.as_ref());
    kernels.map_or_else(Vec::new, |kernels| kernels.keys().cloned().collect())
}

/// The kernel behind a handle, if it is one of this module's; the runtime's kernels are host functions.
pub fn kernel(handle: *mut c_void) -> Option<&'static Kernel> {
    gpu().modules.kernels.lock().values().copied().find(|kernel| ptr::eq(*kernel, handle.cast()))
}

impl Kernel {
    /// The module that it came from.
    pub fn module(&self) -> *mut c_void {
        self.module as *mut c_void
    }
}

/// A global variable of a module: its address and size. A name that is not in an image that could be read is an error;
/// in others every name has room for what hosts copy there.
pub fn global(module: *mut c_void, name: &CStr) -> Result<(*mut c_void, usize), CudaStatus> {
    const ROOM: usize = 64 << 10;
    let known = {
        let modules = gpu().modules.images.lock();
        let loaded = modules.get(&(module as usize)).and_then(|module| module.globals.as_ref());
        loaded.map(|loaded| loaded.find(name.to_bytes()))
    };
    if let Some(found) = known {
        return found.map(|(address, size)| (address as *mut c_void, size)).ok_or(CudaStatus::NOT_FOUND);
    }
    let mut globals = gpu().modules.variables.lock();
    let address = *globals
        .entry((module as usize, name.to_bytes().to_vec()))
        .or_insert_with(|| Box::leak(vec![0_u64; ROOM / size_of::<u64>()].into_boxed_slice()).as_ptr() as usize);
    Ok((address as *mut c_void, ROOM))
}
