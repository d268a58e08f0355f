//! The CUDA driver API (`cu*`), over the same objects as the runtime API.
//!
//! Every function here has the contract of the CUDA function whose name it bears: pointers are what that function
//! requires, and its results are CUDA's. What a function does that the runtime has as well is in `cuda`.
#![deny(unsafe_code)]
#![allow(clippy::too_many_arguments, reason = "the parameters are those of CUDA's header")]

mod contexts;
mod devices;
mod graphs;
mod kernels;
mod linking;
mod memory;
mod streams;
mod virtual_ranges;

pub use contexts::*;
pub use devices::*;
pub use graphs::*;
pub use kernels::*;
pub use linking::*;
pub use memory::*;
pub use streams::*;
pub use virtual_ranges::*;

use crate::boundary::Status;
use crate::status::{CudaStatus, RuntimeStatus};

/// Keeps a failure for `cudaGetLastError`, too. These functions and the runtime's of the same effect have it in common.
fn known_to_runtime(result: Result<(), CudaStatus>) -> Result<(), CudaStatus> {
    result.inspect_err(|status| RuntimeStatus::from(*status).remember())
}
