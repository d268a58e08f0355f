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

// The functions that programs call carry CUDA's names, and their contracts are CUDA's.
#![allow(non_snake_case)]
// In a test build the exported symbols are ordinary functions that nothing calls.
#![cfg_attr(test, allow(dead_code))]

mod activity;
mod attributes;
mod books;
mod capture;
mod cubin;
mod cublas;
mod cublaslt;
mod cudnn;
mod cufft;
mod cupti;
mod curand;
mod cusolver;
mod cusparse;
mod cusparselt;
mod device;
mod device_log;
mod driver;
mod exports;
mod fork;
mod graph_memory;
mod handle;
mod image;
mod ipc;
mod loaded;
mod loader;
mod memory;
mod module;
mod nccl;
mod nvml;
mod pool;
mod prefetch;
mod private;
mod registered;
mod runtime;
mod space;
mod status;
mod stream;
mod trace;
mod transfer;
mod twister;
mod virtual_memory;
mod work;

use exports::abi;
