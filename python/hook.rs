//! The Python hook as files that a program carries: `sitecustomize.py` and the package `oomph`.
#![forbid(unsafe_code)]

include!(concat!(env!("OUT_DIR"), "/files.rs"));
