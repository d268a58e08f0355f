//! Where the sources of the virtual GPU are, and how the library is built from them.
//!
//! A checkout builds in place, with the workspace's lock file. A crate that cargo unpacked is copied first, because cargo
//! writes a lock file next to a manifest and folders of a registry are not to be written; oomph's own crates are then the
//! ones that cargo unpacked with it, so that nothing is looked up that the outer build did not need.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

/// The folders of what the library is built from; a change in one of them makes it another library.
pub fn folders() -> [&'static Path; 4] {
    [FOLDER, oomph_ledger::FOLDER, oomph_private::FOLDER, oomph_protocol::FOLDER].map(Path::new)
}

/// How the library is linked.
fn link_arguments() -> [&'static str; 3] {
    [
        // A program that links against libcuda.so.1 must find it in the preloaded library.
        "-Clink-arg=-Wl,-soname,libcuda.so.1",
        // The library holds state that outlives any handle to it, so it can never be unloaded.
        "-Clink-arg=-Wl,-z,nodelete",
        // Where the library finds itself under the toolkit's names when a program opens one of those (`loader.rs`). It is
        // an RPATH and no RUNPATH, because the real libraries may lie in a folder of `LD_LIBRARY_PATH`, which goes between.
        "-Clink-arg=-Wl,--disable-new-dtags,-rpath,$ORIGIN/toolkit",
    ]
}

/// A call of cargo that builds the library with this profile; options of cargo can be added.
///
/// # Errors
/// When there are no sources that can be copied to `out`.
pub fn cargo(out: &Path, profile: &str, options: &[&str]) -> io::Result<Command> {
    let unpacked = Path::new(FOLDER).join("Cargo.toml.orig").is_file();
    let folder = if unpacked { out.join("source") } else { FOLDER.into() };
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["rustc", "--package", "oomph-vgpu", "--lib", "--crate-type", "cdylib", "--profile", profile]);
    command.arg("--manifest-path").arg(folder.join("Cargo.toml")).args(options);
    if unpacked {
        copy(Path::new(FOLDER), &folder)?;
        // A workspace of its own, wherever the outer build keeps its files.
        let manifest = fs::read_to_string(folder.join("Cargo.toml"))?;
        fs::write(folder.join("Cargo.toml"), manifest + "\n[workspace]\n")?;
        for (name, path) in [
            ("oomph-ledger", oomph_ledger::FOLDER),
            ("oomph-private", oomph_private::FOLDER),
            ("oomph-protocol", oomph_protocol::FOLDER),
        ] {
            command.arg("--config").arg(format!("patch.crates-io.{name}.path={path:?}"));
        }
    }
    command.arg("--").args(link_arguments());
    Ok(command)
}

/// Builds the library below `out` for `target`, optimised whatever the profile of the outer build: it is on the path of
/// every call of the program, and a debug build of it would panic where a release wraps.
///
/// This is for build scripts: what cargo set for the crate of the script is kept from the inner build.
///
/// # Errors
/// When cargo cannot be started, or cannot build it; cargo has said why on stderr then.
pub fn build(out: &Path, target: &str) -> io::Result<PathBuf> {
    let target_dir = out.join("vgpu");
    let mut command = cargo(out, "release", &["--target", target])?;
    command.env("CARGO_TARGET_DIR", &target_dir);
    // What the outer build set for its crate, for clippy or for coverage must not leak into a library that lives in other
    // people's processes.
    for name in ["RUSTC_WORKSPACE_WRAPPER", "CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS", "CARGO_BUILD_TARGET"] {
        command.env_remove(name);
    }
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        let outer = ["CARGO_PKG_", "CARGO_CFG_", "CARGO_FEATURE_", "DEP_", "CARGO_PROFILE_"];
        if outer.iter().any(|prefix| name.starts_with(prefix))
            || name.starts_with("CARGO_MANIFEST")
            || name == "OUT_DIR"
        {
            command.env_remove(name.as_ref());
        }
    }
    // It must not unwind into the program, and what it carries for debuggers would be carried by every binary.
    command.env("CARGO_PROFILE_RELEASE_PANIC", "abort");
    command.env("CARGO_PROFILE_RELEASE_DEBUG", "false").env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
    let status = command.status()?;
    let library = target_dir.join(target).join("release").join("liboomph_vgpu.so");
    if status.success() && library.is_file() {
        return Ok(library);
    }
    Err(io::Error::other(format!("the virtual GPU ({FOLDER}) could not be built; see above")))
}

/// Copies a folder of sources, and nothing of a target folder in it.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if !entry.file_type()?.is_dir() {
            fs::copy(entry.path(), target)?;
        } else if entry.file_name() != "target" {
            copy(&entry.path(), &target)?;
        }
    }
    Ok(())
}
