//! The records of modules, kernels and variables.

use std::collections::BTreeMap;
use std::ffi::CString;

use crate::cubin::{Attributes, Globals, Kernels};
use crate::lock::{Mutex, Rank};

/// A kernel handle's object.
pub struct Kernel {
    /// Its name, for `cuFuncGetName`.
    pub name: CString,
    /// What is known of it.
    pub attributes: Attributes,
    /// The module that it came from.
    pub module: usize,
}

/// An image that was loaded.
pub struct Module {
    /// Its kernels, if it could be read.
    pub kernels: Option<Kernels>,
    /// Its variables, if it could be read.
    pub globals: Option<LoadedVariables>,
}

/// Global variables, and where they are.
pub struct LoadedVariables {
    /// Their names and contents.
    pub globals: Globals,
    /// The address of the first; 0 where there is none.
    pub start: usize,
}

/// Something of a module, by the module's handle and a name.
type Named<T> = BTreeMap<(usize, Vec<u8>), T>;

/// Modules and their kernels.
pub struct Modules {
    /// Images that were loaded, by handle.
    pub images: Mutex<BTreeMap<usize, Module>>,
    /// Kernels handed out, so that asking twice gives the same handle.
    pub kernels: Mutex<Named<&'static Kernel>>,
    /// Addresses of variables of images that could not be read.
    pub variables: Mutex<Named<usize>>,
}

impl Modules {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self {
            images: Mutex::new(Rank::Images, BTreeMap::new()),
            kernels: Mutex::new(Rank::Kernels, BTreeMap::new()),
            variables: Mutex::new(Rank::ImageVariables, BTreeMap::new()),
        }
    }
}
