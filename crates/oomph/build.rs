//! Builds the virtual GPU and puts it, with the Python hook, where `embedded.rs` includes them from.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let root = root.ancestors().nth(2).expect("the crate lies in crates/oomph").to_owned();
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));

    let mut code = String::new();
    let library = (env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux")).then(|| build_library(&root, &out));
    code += "/// The library to preload.\npub const VGPU_LIBRARY: Option<&[u8]> = ";
    match library {
        Some(path) => writeln!(code, "Some(include_bytes!({path:?}));"),
        None => writeln!(code, "None;"),
    }
    .expect("writing to a string cannot fail");

    let python = root.join("python");
    println!("cargo::rerun-if-changed={}", python.display());
    let mut files = Vec::new();
    if python.join("sitecustomize.py").is_file() {
        files.push(python.join("sitecustomize.py"));
    }
    collect(&python.join("oomph"), &mut files);
    files.sort();
    code += "/// The hook's files, by their path below the folder that goes on PYTHONPATH.\n";
    code += "pub const PYTHON: &[(&str, &[u8])] = &[\n";
    for path in &files {
        let name = path.strip_prefix(&python).expect("the files were found below python/");
        // Paths of the archive have forward slashes on every host.
        let name: Vec<_> = name.iter().map(|part| part.to_string_lossy()).collect();
        writeln!(code, "    ({:?}, include_bytes!({path:?})),", name.join("/"))
            .expect("writing to a string cannot fail");
    }
    code += "];\n";
    fs::write(out.join("embedded.rs"), code).expect("OUT_DIR can be written");
}

/// Builds `oomph-vgpu` as an optimised library, whatever the profile of this build: it is on the path of every call of
/// the program, and a debug build of it would panic where a release wraps.
fn build_library(root: &Path, out: &Path) -> PathBuf {
    for part in ["Cargo.toml", "Cargo.lock", "crates/oomph-vgpu", "crates/oomph-ledger", "crates/oomph-private"] {
        println!("cargo::rerun-if-changed={}", root.join(part).display());
    }
    let target_dir = out.join("vgpu");
    let target = env::var("TARGET").expect("cargo sets TARGET");
    let mut command = Command::new(env::var_os("CARGO").expect("cargo sets CARGO"));
    command
        .current_dir(root)
        .args(["build", "--release", "--package", "oomph-vgpu", "--lib", "--target", &target])
        .arg("--target-dir")
        .arg(&target_dir);
    // The inner build is one of its own: what the outer one set for this crate, for clippy or for coverage must not
    // leak into a library that lives in other people's processes.
    for name in ["RUSTC_WORKSPACE_WRAPPER", "CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS", "CARGO_TARGET_DIR"] {
        command.env_remove(name);
    }
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        let ours = ["CARGO_PKG_", "CARGO_CFG_", "CARGO_FEATURE_", "DEP_", "CARGO_PROFILE_"];
        if ours.iter().any(|prefix| name.starts_with(prefix)) || name == "CARGO_MANIFEST_DIR" || name == "OUT_DIR" {
            command.env_remove(name.as_ref());
        }
    }
    // It must not unwind into the program, and what it carries for debuggers would be carried by every binary.
    command.env("CARGO_PROFILE_RELEASE_PANIC", "abort");
    command.env("CARGO_PROFILE_RELEASE_DEBUG", "false").env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
    let status = command.status().expect("cargo started this build script, so it can be started");
    assert!(status.success(), "the virtual GPU (crates/oomph-vgpu) could not be built; see above");
    let library = target_dir.join(&target).join("release").join("liboomph_vgpu.so");
    assert!(library.is_file(), "cargo built the virtual GPU, but there is no {}", library.display());
    library
}

/// Finds the hook's modules; tests and what Python leaves behind are not part of it.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if path.is_dir() {
            if name != "__pycache__" && name != "tests" {
                collect(&path, files);
            }
        } else if name.ends_with(".py") && !name.starts_with("test_") {
            files.push(path);
        }
    }
}
