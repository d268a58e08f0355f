//! What the host limits is an error in one line, never a signal.
#![cfg(target_os = "linux")]

use std::process::Command;

/// `ulimit -f`: the file of a report cannot be written.
#[test]
fn a_limit_of_files_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log.txt");
    std::fs::write(&log, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
        .expect("it is written");
    let line = r#"ulimit -f 0; exec "$0" explain "$1" --html "$2""#;
    let mut shell = Command::new("bash");
    let page = folder.path().join("page.html");
    let output =
        shell.args(["-c", line, env!("CARGO_BIN_EXE_oomph")]).args([&log, &page]).output().expect("bash starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("File too large") && said.contains("ulimit -f"), "{said}");
}
