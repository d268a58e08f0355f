//! The CUDA runtime API (`cuda*`), over the same objects as the driver API.
//!
//! Every function here has the contract of the CUDA function whose name it bears: pointers are what that function
//! requires, and its results are CUDA's. Out-parameters may be null unless CUDA says otherwise, and are always written
//! on success.
#![allow(clippy::too_many_arguments, reason = "the parameters are those of CUDA's header")]

mod devices;
mod graphs;
mod kernels;
mod memory;
mod pools;
mod properties;
mod streams;

pub use devices::*;
pub use graphs::*;
pub use kernels::*;
pub use memory::*;
pub use pools::*;
pub use properties::*;
pub use streams::*;

use std::cell::Cell;

use crate::status::{NOT_INITIALIZED, SUCCESS};

thread_local! {
    static LAST_ERROR: Cell<u32> = const { Cell::new(SUCCESS) };
}

/// Turns a result into a status and remembers a failure for `cudaGetLastError`.
fn answer(result: Result<(), u32>) -> u32 {
    match result {
        Ok(()) => SUCCESS,
        Err(status) => fail(status),
    }
}

/// Remembers a failure for `cudaGetLastError`.
#[cold]
fn fail(status: u32) -> u32 {
    LAST_ERROR.set(status);
    status
}

/// Refuses a call in a child that was forked after CUDA was ready, and remembers that.
#[cold]
pub fn refuse() -> u32 {
    fail(NOT_INITIALIZED)
}

/// Passes a status on and remembers it if it is a failure.
fn status(status: u32) -> u32 {
    if status == SUCCESS { SUCCESS } else { fail(status) }
}

/// The last failure of this thread, which it forgets.
pub fn cudaGetLastError() -> u32 {
    LAST_ERROR.replace(SUCCESS)
}

/// The last failure of this thread.
pub fn cudaPeekAtLastError() -> u32 {
    LAST_ERROR.get()
}
