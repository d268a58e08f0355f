//! From a log or a memory trace to owners, causes and a verdict.
//!
//! What a log says about its failure:
//!
//! ```
//! use oomph_explain::log::{Options, explain};
//!
//! let log = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total capacity; \
//!            13.20 GiB already allocated; 1.10 GiB free; 13.90 GiB reserved in total by PyTorch)";
//! let report = explain(log.as_bytes(), &Options::default())?;
//!
//! assert!(report.is_gpu_oom());
//! let failure = &report.failures[0];
//! assert_eq!(failure.framework.as_deref(), Some("pytorch"));
//! assert_eq!(failure.facts.requested_bytes, Some(2 << 30));
//! # Ok::<(), std::io::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod log;
pub mod snapshot;
