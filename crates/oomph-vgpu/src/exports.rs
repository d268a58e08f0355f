//! The exported functions, made by the build script from `api/*.api`.
#![allow(
    missing_docs,
    unused_variables,
    unused_unsafe,
    clippy::all,
    reason = "the build script writes every function in one shape, whatever its line declares"
)]

include!(concat!(env!("OUT_DIR"), "/exports.rs"));
