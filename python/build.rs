//! Lists the hook's files where `hook.rs` includes the list from.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo::rerun-if-changed=sitecustomize.py");
    println!("cargo::rerun-if-changed=oomph");

    let mut files = vec![root.join("sitecustomize.py")];
    collect(&root.join("oomph"), &mut files);
    files.sort();
    let mut code = String::from("/// The hook's files, by their path below the folder that goes on PYTHONPATH.\n");
    code += "pub const FILES: &[(&str, &[u8])] = &[\n";
    for path in &files {
        let name = path.strip_prefix(&root).expect("the files were found below the root");
        // The names have forward slashes on every host.
        let name: Vec<_> = name.iter().map(|part| part.to_string_lossy()).collect();
        writeln!(code, "    ({:?}, include_bytes!({path:?})),", name.join("/"))
            .expect("writing to a string cannot fail");
    }
    code += "];\n";
    fs::write(out.join("files.rs"), code).expect("OUT_DIR can be written");
}

/// Finds the hook's modules, and nothing of what Python leaves behind.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if entry.file_name() != "__pycache__" {
                collect(&path, files);
            }
        } else if path.extension().is_some_and(|end| end == "py") {
            files.push(path);
        }
    }
}
