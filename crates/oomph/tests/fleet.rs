//! `oomph collect` and `oomph query` hand their words over to `oomph-fleet`, and say what to do where it is not installed.

#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

/// A process that another test starts meanwhile would hold the program that is written here open, and Linux refuses to run a
/// file that somebody may write to.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn oomph(path: &str, words: &[&str]) -> std::io::Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_oomph")).args(words).env("PATH", path).env("NO_COLOR", "1").output()
}

#[test]
fn words_and_status_are_passed_on() -> std::io::Result<()> {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("oomph-fleet");
    fs::write(&program, "#!/bin/sh\nfor word in \"$@\"; do echo \"<$word>\"; done\nexit 7\n")?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let path = format!("{}:/usr/bin:/bin", folder.path().display());

    let answered = oomph(&path, &["query", "SELECT 1 AS one", "--format", "csv", "my fleet"])?;
    assert_eq!(answered.status.code(), Some(7));
    let passed = "<query>\n<SELECT 1 AS one>\n<--format>\n<csv>\n<my fleet>\n";
    assert_eq!(String::from_utf8_lossy(&answered.stdout), passed);
    let helped = oomph(&path, &["--quiet", "collect", "--help"])?;
    assert_eq!(String::from_utf8_lossy(&helped.stdout), "<collect>\n<--quiet>\n<--help>\n");
    Ok(())
}

#[test]
fn without_it_the_way_to_get_it_is_named() -> std::io::Result<()> {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let answered = oomph("/usr/bin:/bin", &["collect", "logs", "--into", "fleet"])?;
    assert_eq!(answered.status.code(), Some(2));
    assert_eq!(
        String::from_utf8_lossy(&answered.stderr),
        "error: oomph collect needs oomph-fleet, which is neither next to oomph nor on PATH\n\
         hint: build it in oomph's repository: cargo install --locked --path crates/oomph-fleet\n"
    );
    let helped = oomph("/usr/bin:/bin", &["query", "--help"])?;
    assert!(helped.status.success());
    assert!(String::from_utf8_lossy(&helped.stdout).contains("oomph query top_lines fleet"));
    Ok(())
}
