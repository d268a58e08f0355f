//! Runs the command lines of README.md and docs that are this program's, as printed and in their order. Those of `oomph` itself
//! are run by `acceptance/tests/acceptance/docs.rs`.

#![cfg(unix)]

#[path = "../../oomph-explain/tests/recording/mod.rs"]
mod recording;

mod made;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use made::{fleet, leaking};
use oomph_pages::Place;

/// What stands for placeholders, and for folders that only a fleet's machines have.
const VALUES: [(&str, &str); 2] = [("/var/log/train", "logs"), ("NAME", "top_lines")];

/// What this program says of a line that is only the name of a command.
const UNFINISHED: [&str; 2] = ["required arguments were not provided", "a query needs a question and a dataset"];

/// Writes what the lines name, and a program called `oomph`: that is how `oomph` starts this one.
fn prepare(folder: &Path) {
    fleet(&folder.join("made"), 50);
    fs::rename(folder.join("made/logs"), folder.join("logs")).unwrap();
    fs::rename(folder.join("made/logs.tar.gz"), folder.join("archive.tar.gz")).unwrap();
    for (snapshots, steps) in [("snapshots", 8), ("runs/1/snapshots", 9)] {
        fs::create_dir_all(folder.join(snapshots)).unwrap();
        fs::write(folder.join(snapshots).join("leak.pickle"), leaking(steps)).unwrap();
    }
    fs::create_dir(folder.join("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_oomph-fleet"), folder.join("bin/oomph")).unwrap();
}

#[test]
fn the_lines_of_the_documentation_run() {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let path = format!("{}:/usr/bin:/bin", folder.path().join("bin").display());
    let pages = oomph_pages::pages(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
    let (mut problems, mut ran) = (Vec::new(), 0);
    for page in pages {
        for line in page.lines.iter().filter(|line| line.is_for_fleet()) {
            let text = VALUES.iter().fold(line.text.clone(), |text, (name, value)| text.replace(name, value));
            let mut shell = Command::new("sh");
            let out = shell.args(["-c", &text]).current_dir(folder.path()).env("PATH", &path).output().unwrap();
            let stderr = String::from_utf8_lossy(&out.stderr);
            if line.place == Place::Backquotes && UNFINISHED.iter().any(|words| stderr.contains(words)) {
                continue;
            }
            ran += 1;
            if !out.status.success() || out.stdout.is_empty() && out.stderr.is_empty() {
                problems.push(format!("{}:{}: `{text}`: {}\n{stderr}", page.path, line.number, out.status));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(ran >= 7, "only {ran} lines were found");
}
