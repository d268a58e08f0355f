//! Builds the virtual GPU and puts it where `embedded.rs` includes it from.

use std::path::PathBuf;
use std::{env, fs};

use oomph_vgpu::source;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo::rerun-if-changed=build.rs");
    let library = if env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        for folder in source::folders() {
            println!("cargo::rerun-if-changed={}", folder.display());
        }
        let target = env::var("TARGET").expect("cargo sets TARGET");
        let library = source::build(&out, &target).unwrap_or_else(|error| panic!("{error}"));
        format!("Some(include_bytes!({library:?}))")
    } else {
        "None".to_owned()
    };
    let code = format!("/// The library to preload.\npub const VGPU_LIBRARY: Option<&[u8]> = {library};\n");
    fs::write(out.join("embedded.rs"), code).expect("OUT_DIR can be written");
}
