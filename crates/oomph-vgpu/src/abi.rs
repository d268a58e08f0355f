//! Structures that cross the boundary by value, made by the build script from `api/*.api`.
#![allow(dead_code, missing_docs, reason = "the tables have structures that only generated code passes on")]

include!(concat!(env!("OUT_DIR"), "/abi.rs"));
