//! The CUDA runtime API (`cuda*`), over the same objects as the driver API.
//!
//! Every function here has the contract of the CUDA function whose name it bears: pointers are what that function
//! requires, and its results are CUDA's. Out-parameters may be null unless CUDA says otherwise, and are always written
//! on success. What a function does that the driver has as well is in `cuda`.
#![deny(unsafe_code)]
#![allow(clippy::too_many_arguments, reason = "the parameters are those of CUDA's header")]

#[allow(unsafe_code, reason = "the version is that of the runtime that the program links")]
mod devices;
mod graphs;
mod kernels;
mod memory;
mod pools;
#[allow(unsafe_code, reason = "how large the structure is depends on the version of CUDA")]
mod properties;
mod streams;

pub use devices::*;
pub use graphs::*;
pub use kernels::*;
pub use memory::*;
pub use pools::*;
pub use properties::*;
pub use streams::*;

use crate::status::{self, RuntimeStatus};

/// The last failure of this thread, which it forgets.
pub fn cudaGetLastError() -> Option<RuntimeStatus> {
    status::take_last_failure()
}

/// The last failure of this thread.
pub fn cudaPeekAtLastError() -> Option<RuntimeStatus> {
    status::last_failure()
}
