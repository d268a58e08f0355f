//! The CUDA driver API (`cu*`), over the same objects as the runtime API.
//!
//! Every function here has the contract of the CUDA function whose name it bears: pointers are what that function
//! requires, and its results are CUDA's.
#![allow(clippy::too_many_arguments, reason = "the parameters are those of CUDA's header")]

pub mod attributes;
mod contexts;
mod devices;
mod graphs;
mod kernels;
mod linking;
mod memory;
pub mod peers;
pub mod procedures;
mod rectangles;
mod streams;
mod virtual_ranges;

pub use contexts::*;
pub use devices::*;
pub use graphs::*;
pub use kernels::*;
pub use linking::*;
pub use memory::*;
pub use rectangles::*;
pub use streams::*;
pub use virtual_ranges::*;

use std::ffi::{c_int, c_void};

use crate::boundary::Out;
use crate::status::SUCCESS;
use crate::{device, loader};

/// The CUDA version of the virtual driver: at least that of any runtime in use, so that none refuses to start.
const VERSION: c_int = 13_020;

/// The CUDA version that the driver claims.
pub fn version() -> c_int {
    VERSION.max(loader::runtime_major() as c_int * 1000)
}

/// The ordinal in this process of a card of the ledger.
pub fn ordinal_of_card(card: usize) -> Option<c_int> {
    device::visible().iter().position(|device| device.card == card).map(|ordinal| ordinal as c_int)
}

/// A device address as the driver API passes it: a number.
pub type DevicePointer = u64;

/// The address that a number is.
fn address(pointer: DevicePointer) -> *mut c_void {
    pointer as *mut c_void
}

/// Turns a result into a status.
fn answer(result: Result<(), u32>) -> u32 {
    result.err().unwrap_or(SUCCESS)
}

/// Writes an allocation's address, or null with its failure.
fn hand_out<T: Copy>(to: Out<'_, T>, made: Result<T, u32>, none: T) -> u32 {
    match made {
        Ok(value) => {
            to.set(value);
            SUCCESS
        }
        Err(status) => {
            to.set(none);
            status
        }
    }
}
