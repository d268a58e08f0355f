//! Turns `api/*.api` into the exported functions.
//!
//! `exports.rs` in `OUT_DIR` holds, for every declaration, a symbol of that name; their addresses by name (`ADDRESSES`); and
//! what `cuGetProcAddress` must answer for which CUDA version (`PROC_VERSIONS`). `abi.rs` holds the structures that cross the
//! boundary by value, `functions.rs` the list of functions by id.

#[path = "build/generate.rs"]
mod generate;
#[path = "build/table.rs"]
#[allow(dead_code, reason = "xtask writes tables with the rest of the module")]
mod table;

use std::path::PathBuf;
use std::{env, fs};

use table::LIBRARIES;

fn main() {
    // Without the library there is nothing to export.
    if env::var_os("CARGO_FEATURE_DEVICE").is_none() {
        return;
    }
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let api = root.join("api");
    println!("cargo::rerun-if-changed=api");
    println!("cargo::rerun-if-changed=build");

    let mut tables = Vec::new();
    for library in LIBRARIES {
        let path = api.join(format!("{library}.api"));
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let lines = table::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        tables.push((*library, lines));
    }
    let path = api.join("driver-versions.txt");
    let versions = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let code = generate::exports(&tables, &versions).unwrap_or_else(|error| panic!("{error}"));
    fs::write(out.join("exports.rs"), code).expect("the exports can be written to OUT_DIR");
    fs::write(out.join("abi.rs"), generate::abi(&tables)).expect("the structures can be written to OUT_DIR");
    fs::write(out.join("functions.rs"), generate::functions(&tables)).expect("the list can be written to OUT_DIR");
}
