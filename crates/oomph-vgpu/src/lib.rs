//! The virtual GPU: a library that is preloaded into the user's program and answers CUDA's public APIs.
//!
//! Design constraints:
//! - It lives inside somebody else's process. It never prints, never panics across the boundary, keeps no thread-local
//!   with a destructor, and holds no lock while it calls back into the program.
//! - It never lies silently. Every exported function has one line in `api/*.api` with its class: *answered* by a
//!   function in this crate, *compute* (success, nothing moves), or *unsupported* (refused, and named in the report).
//! - Device memory is address space. A pointer that it hands out can be read and written by the host, which is what
//!   makes small copies and the hook's values real; pages that nobody touches cost nothing.
//! - Without a ledger (see `oomph_ledger`) there are no cards, and every call says so as CUDA does.
//!
//! A program that linked this library would have its own libc calls answered by it. So without the feature `device` the
//! crate is only [`source`]: what a build script needs to build the library from here and carry it.

#![allow(non_snake_case, reason = "the functions that programs call carry CUDA's names")]
#![deny(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc, clippy::allow_attributes_without_reason)]
#![cfg_attr(
    test,
    allow(dead_code, reason = "in a test build the exported symbols are ordinary functions that nothing calls")
)]

pub mod source;

/// The library. Its modules are known by their names below the crate, as if this module were not there.
#[cfg(feature = "device")]
#[path = "."]
mod library {
    pub(crate) mod abi;
    pub(crate) mod activity;
    pub(crate) mod attributes;
    pub(crate) mod books;
    pub(crate) mod boundary;
    pub(crate) mod capture;
    pub(crate) mod changed;
    pub(crate) mod changed_call;
    pub(crate) mod context;
    pub(crate) mod cubin;
    pub(crate) mod cublas;
    pub(crate) mod cublaslt;
    pub(crate) mod cuda;
    pub(crate) mod cudnn;
    pub(crate) mod cufft;
    pub(crate) mod cupti;
    pub(crate) mod curand;
    pub(crate) mod cusolver;
    pub(crate) mod cusparse;
    pub(crate) mod cusparselt;
    pub(crate) mod device;
    pub(crate) mod device_log;
    pub(crate) mod driver;
    pub(crate) mod errors;
    pub(crate) mod exports;
    pub(crate) mod flags;
    pub(crate) mod followed;
    pub(crate) mod fork;
    pub(crate) mod gpu;
    pub(crate) mod graph_memory;
    pub(crate) mod handed;
    pub(crate) mod handle;
    pub(crate) mod holdings;
    mod hook;
    pub(crate) mod image;
    pub(crate) mod ipc;
    pub(crate) mod latecomers;
    pub(crate) mod libcudnn;
    pub(crate) mod loaded;
    pub(crate) mod loader;
    pub(crate) mod lock;
    pub(crate) mod memory;
    pub(crate) mod module;
    pub(crate) mod nccl;
    pub(crate) mod nvml;
    pub(crate) mod pool;
    pub(crate) mod prefetch;
    pub(crate) mod private;
    pub(crate) mod registered;
    pub(crate) mod runtime;
    pub(crate) mod space;
    pub(crate) mod status;
    pub(crate) mod stream;
    pub(crate) mod trace;
    pub(crate) mod transfer;
    pub(crate) mod twister;
    pub(crate) mod virtual_memory;
    pub(crate) mod work;
}
#[cfg(feature = "device")]
use library::*;
