//! Acting on an answer: running the program with a fix, and writing it down.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use oomph_gpu::nvml;
use oomph_launch::Output;
use oomph_report::{FixRow, Verdict};

use super::answer::Answer;
use super::bench::peak;
use crate::assemble::assemble;
use crate::dry_run::interrupted;
use crate::failure::{hinted, status};
use crate::output;
use crate::program::quoted;
use crate::stage::{Ended, Scene, Stage};
use crate::trial::Changes;

/// What `--write N FILE` means. The file must not exist.
pub fn target(write: &[String]) -> Result<Option<(usize, PathBuf)>> {
    let [number, path] = write else { return Ok(None) };
    let number = number.parse::<usize>().ok().filter(|number| *number > 0).ok_or_else(|| {
        hinted(format!("--write: `{}` is not the number of a fix", oomph_report::clean(number)), "write --write 1 FILE")
    })?;
    let path = PathBuf::from(path);
    // A link that leads nowhere is something too.
    if path.symlink_metadata().is_ok() {
        return Err(hinted(format!("{} exists already", path.display()), "name a new file; nothing is written over"));
    }
    output::writable(&path)?;
    Ok(Some((number, path)))
}

/// Finds out whether there is a GPU for `--real`, before anything is searched.
///
/// # Errors
/// When there is none.
pub fn needs_a_gpu() -> Result<()> {
    let found = nvml::installed().map(|cards| cards.len()).unwrap_or(0);
    if found > 0 {
        return Ok(());
    }
    Err(hinted("--real needs an NVIDIA GPU, and this machine has none", "leave --real out to run on the virtual card"))
}

/// A fix by its number in the answer.
fn chosen<'s>(answer: &'s Answer<'_>, number: usize) -> Result<(&'s FixRow, &'s Changes)> {
    let place = number.checked_sub(1);
    let row = place.and_then(|place| answer.report.fixes.get(place));
    let changes = place.and_then(|place| answer.changes.get(place)).map(|(_, changes)| changes);
    row.zip(changes).ok_or_else(|| {
        let found = answer.report.fixes.len();
        let number_of_fixes =
            if found == 1 { "the answer has one".to_owned() } else { format!("the answer has {found}") };
        hinted(format!("there is no fix {number}"), format!("{number_of_fixes}; a longer --max-time may find more"))
    })
}

/// Runs the program with a fix: on the virtual cards, or for real.
///
/// # Errors
/// When there is no such fix, or the run cannot be set up.
pub fn run(
    stage: &Stage,
    answer: &Answer<'_>,
    number: usize,
    real: bool,
    (stdout_to_stderr, quiet): (bool, bool),
) -> Result<ExitCode> {
    let (row, changes) = chosen(answer, number)?;
    let output = if stdout_to_stderr { Output::StdoutToStderr } else { Output::Inherit };
    if real {
        return stage.perform_for_real(changes, output);
    }
    let cards = &stage.program.cards;
    let scene =
        Scene { changes, cards, output, timeout: stage.program.timeout, history: false, keep: None, give_up: None };
    output::tell(&format!("oomph: the program with fix {number}: {}", row.titles.join(" + ")), quiet);
    let report = match stage.perform(&scene)? {
        Ended::Interrupted(signal) => return Ok(interrupted(signal)),
        Ended::Observed(run) => assemble(cards, &run, None),
    };
    let (word, status) = match report.verdict {
        Verdict::Fits | Verdict::NoGpuUse => ("fits", status::DONE),
        Verdict::Oom => ("does not fit", status::DOES_NOT_FIT),
        Verdict::Failed => ("failed for another reason than memory", status::PROGRAM_FAILED),
    };
    let peak = oomph_gpu::size::format(peak(&report));
    output::tell(&format!("oomph: with fix {number} it {word}: its peak was {peak}"), quiet);
    Ok(ExitCode::from(status))
}

/// Writes a shell script that runs the program with a fix, and says so. What has to be changed in the code stands in it
/// as comments.
///
/// # Errors
/// When there is no such fix, or the file cannot be written or is there already.
pub fn write(answer: &Answer<'_>, number: usize, path: &Path) -> Result<String> {
    let (row, _) = chosen(answer, number)?;
    let text = script(row, &answer.report.command);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    executable(path);
    let told = format!("oomph: wrote {}", path.display());
    Ok(if is_complete(row) { told } else { format!("{told}; the change to the program stands in it as a comment") })
}

/// Whether a script alone makes the fix: flags and variables say it all.
fn is_complete(row: &FixRow) -> bool {
    let by_script = |kind: &str| kind == "env" || kind == "flag" && row.command.is_some();
    row.apply.iter().all(|apply| by_script(&apply.kind))
}

fn script(row: &FixRow, command: &[String]) -> String {
    let mut text = String::from("#!/bin/sh\n");
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "# {}: peak {} on the virtual GPU.",
        row.titles.join(" + "),
        oomph_gpu::size::format(row.peak_bytes)
    );
    let mut variables = String::new();
    for apply in &row.apply {
        match apply.kind.as_str() {
            "env" => {
                for (name, value) in apply.text.split_whitespace().filter_map(|word| word.split_once('=')) {
                    let _ = writeln!(variables, "export {name}={}", quoted(value));
                }
            }
            "flag" if row.command.is_some() => {}
            _ => {
                let _ = writeln!(text, "# Change this in the program first, or it runs out of memory as before:");
                for line in apply.text.lines() {
                    let _ = writeln!(text, "#     {line}");
                }
            }
        }
    }
    text.push_str(&variables);
    let words = command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    let line = row.command.as_deref().unwrap_or(&words);
    // Variables in front of the command are for `env`, so that `exec` takes them.
    let env = if row.command.is_some() { "exec env " } else { "exec " };
    let _ = writeln!(text, "{env}{line} \"$@\"");
    text
}

#[cfg(unix)]
fn executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    // A script that is not executable can still be given to sh.
    if let Ok(found) = fs::metadata(path) {
        let mut permissions = found.permissions();
        permissions.set_mode(permissions.mode() | 0o111);
        let _ = fs::set_permissions(path, permissions);
    }
}

#[cfg(not(unix))]
fn executable(_path: &Path) {}
