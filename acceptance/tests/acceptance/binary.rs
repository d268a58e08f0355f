//! Locates the `oomph` under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The repository's root folder.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace")
}

/// The folder of the test programs.
pub fn programs() -> PathBuf {
    root().join("acceptance/programs")
}

/// The `oomph` binary of the profile that this test was built with, built if it is missing or old.
///
/// `OOMPH_BIN` names another one, which is then used unchanged.
pub fn oomph() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("OOMPH_BIN") {
        Some(path) => path.into(),
        None => build(),
    })
}

/// What cargo sets for a test of its own package, in addition to `CARGO_PKG_*`.
const OF_THE_TEST: &[&str] = &[
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "CARGO_MANIFEST_LINKS",
    "CARGO_CRATE_NAME",
    "CARGO_TARGET_TMPDIR",
    "OUT_DIR",
];

/// Cargo does not build another package's binary for a test, nor the library that the binary preloads. It holds no
/// lock while tests run, so they can ask it to. After `cargo test --workspace` all is fresh, which takes a fraction of a
/// second; `--tests` is there because without it dependencies would have other features, and be built once more.
fn build() -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a path");
    // The test is `<target>/<profile>/deps/acceptance-<hash>`; with --target, <target> has one more level.
    let folder = test.ancestors().nth(2).expect("a test lies in <profile>/deps").to_owned();
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--quiet", "--workspace", "--bins", "--tests", "--profile", profile]).current_dir(root());
    // What cargo says of this test's package is not a setting of that build: `ring`, for one, would be built again, and with
    // it whatever depends on it.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || OF_THE_TEST.contains(&text.as_ref()) {
            command.env_remove(&name);
        }
    }
    let status = command.status().expect("cargo started this test, so it can be started");
    assert!(status.success(), "cargo build of the workspace failed");
    let binary = folder.join("oomph");
    assert!(binary.is_file(), "cargo built the workspace, but there is no {}", binary.display());
    binary
}
