//! The exported functions, made by the build script from `api/*.api`.
#![allow(missing_docs, unused_variables, clippy::all)]

include!(concat!(env!("OUT_DIR"), "/exports.rs"));
