//! From a log or a memory trace to owners, causes and a verdict.
#![forbid(unsafe_code)]

pub mod log;
pub mod snapshot;
