//! `cuGetProcAddress`: a base name and a CUDA version to the function of that time.

use std::ffi::{CStr, c_void};

use crate::exports::{PROC_VERSIONS, address};

/// The address of an exported function.
pub fn exported(name: &str) -> Option<*mut c_void> {
    address(name).map(|address| address.cast_mut().cast())
}

/// The newest variant of a driver function that the asked version knows.
pub fn find(name: &CStr, version: u32) -> Option<*mut c_void> {
    let name = name.to_str().ok()?;
    let first = PROC_VERSIONS.partition_point(|(base, _, _)| *base < name);
    let variants = PROC_VERSIONS.get(first..)?.iter().take_while(|(base, _, _)| *base == name);
    let mut chosen = None;
    for (_, since, symbol) in variants {
        // A version older than the oldest variant still gets that one, as the driver gives it.
        if *since <= version || chosen.is_none() {
            chosen = Some(*symbol);
        }
    }
    chosen.and_then(exported).or_else(|| exported(name))
}
