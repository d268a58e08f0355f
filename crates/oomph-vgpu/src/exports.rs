//! The exported functions, made by the build script from `api/*.api`.
#![allow(
    missing_docs,
    unused_variables,
    unused_unsafe,
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::undocumented_unsafe_blocks,
    reason = "the build script writes every function in one shape; `boundary` says why its conversions are sound"
)]

include!(concat!(env!("OUT_DIR"), "/exports.rs"));
