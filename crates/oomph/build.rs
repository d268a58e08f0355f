//! Builds the virtual GPU and packs it, with the Python hook, where `embedded.rs` includes it from.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::{env, fs};

use flate2::Compression;
use flate2::write::DeflateEncoder;
use oomph_vgpu::source;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo::rerun-if-changed=build.rs");
    // Packed they take a quarter: they would be a seventh of the program otherwise.
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
    let mut unpacked = 0;
    let mut pack = |bytes: &[u8]| {
        packed.write_all(bytes).expect("a vector takes all that is written");
        unpacked += bytes.len();
        bytes.len()
    };

    let mut library = None;
    if env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        for folder in source::folders() {
            println!("cargo::rerun-if-changed={}", folder.display());
        }
        let target = env::var("TARGET").expect("cargo sets TARGET");
        let path = source::build(&out, &target).unwrap_or_else(|error| panic!("{error}"));
        library = Some(pack(&fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))));
    }
    let mut python = String::new();
    for (name, content) in oomph_hook::FILES {
        write!(python, "({name:?}, {}), ", pack(content)).expect("writing to a string cannot fail");
    }
    let code = format!(
        "const LIBRARY: Option<usize> = {library:?};\n\
         const PYTHON: &[(&str, usize)] = &[{python}];\n\
         const UNPACKED: usize = {unpacked};\n"
    );
    fs::write(out.join("embedded.rs"), code).expect("OUT_DIR can be written");
    let packed = packed.finish().expect("a vector takes all that is written");
    fs::write(out.join("embedded.deflate"), packed).expect("OUT_DIR can be written");
}
