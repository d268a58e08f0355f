//! What the driver API and the runtime API have in common: each function once, without the names and the status type that
//! an API gives it.
//!
//! The folders `driver` and `runtime` list the functions of their API by name, and say with an expression what each does.
#![deny(unsafe_code)]

pub mod attributes;
#[allow(unsafe_code, reason = "the extents of a copy follow from several parameters")]
pub mod copies;
pub mod devices;
pub mod graphs;
pub mod kernels;
pub mod memory;
pub mod peers;
pub mod procedures;
#[allow(unsafe_code, reason = "a structure of the header is read as a whole")]
pub mod rectangles;
pub mod streams;

use std::ffi::{c_int, c_void};

use crate::boundary::Out;
use crate::gpu::gpu;
use crate::loader;
use crate::status::CudaStatus;

/// The handle of a context, graph, module or the like. It is looked up, and nothing is read there.
pub type Opaque = *mut c_void;

/// The CUDA version of the virtual driver: at least that of any runtime in use, so that none refuses to start.
const VERSION: c_int = 13_020;

/// The CUDA version that the driver claims.
pub fn driver_version() -> c_int {
    VERSION.max(loader::runtime_major() as c_int * 1000)
}

/// The ordinal in this process of a card of the ledger.
pub fn ordinal_of_card(card: usize) -> Option<c_int> {
    gpu().visible().iter().position(|device| device.card == card).map(|ordinal| ordinal as c_int)
}

/// Writes a handle or an address, null where it was not to be had.
pub fn hand_out(to: Out<'_, Opaque>, made: Result<Opaque, CudaStatus>) -> Result<(), CudaStatus> {
    hand_out_or(to, made, std::ptr::null_mut())
}

/// Writes what was made, or what stands for nothing.
pub fn hand_out_or<T: Copy>(to: Out<'_, T>, made: Result<T, CudaStatus>, nothing: T) -> Result<(), CudaStatus> {
    let (value, done) = match made {
        Ok(value) => (value, Ok(())),
        Err(status) => (nothing, Err(status)),
    };
    to.set(value);
    done
}

/// What a function of either API comes to: some cannot fail.
pub trait Outcome {
    /// Success, or the status that the program gets.
    fn done(self) -> Result<(), CudaStatus>;
}

impl Outcome for () {
    fn done(self) -> Result<(), CudaStatus> {
        Ok(())
    }
}

impl Outcome for Result<(), CudaStatus> {
    fn done(self) -> Result<(), CudaStatus> {
        self
    }
}

/// Defines functions of an API: `NAME(parameters) = what it does;`. A failure becomes a status of the API.
macro_rules! functions {
    ($status:ident: $(
        $(#[$doc:meta])* $name:ident($($parameter:ident: $kind:ty),* $(,)?) = $does:expr;
    )*) => {$(
        $(#[$doc])*
        pub fn $name($($parameter: $kind),*) -> Result<(), $status> {
            $crate::cuda::Outcome::done($does).map_err($status::from)
        }
    )*};
}
pub(crate) use functions;
