//! Applies an answer: runs the program with a fix, or writes the fix to a file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use oomph_gpu::nvml;
use oomph_launch::{Guard, Limits, Output};
use oomph_remedy::rewrite::{self, Format, Line};
use oomph_report::{FixRow, Verdict};

use super::answer::Answer;
use super::applied::Applied;
use super::applier::{Said, line_of};
use super::bench::peak;
use crate::assemble::assemble;
use crate::cli::FixFile;
use crate::failure::hinted;
use crate::output;
use crate::run_context::{Ended, RealRun, Recording, RunContext, RunRequest};
use crate::shell_words::quoted;
use crate::status::{self, interrupted};

/// Finds out whether a fix of a program can be written to a file, before there is one. The file must not exist, and what ends
/// like a configuration file is one.
///
/// # Errors
/// When it cannot.
pub fn writable(path: &Path, command: &[OsString]) -> Result<()> {
    // A link that leads nowhere is something too.
    if path.symlink_metadata().is_ok() {
        return Err(hinted(format!("{} exists already", path.display()), "name a new file; nothing is written over"));
    }
    let directory = std::env::current_dir().context("cannot find the current folder")?;
    let has_file_of = |format| line_of(command, &directory).is_some_and(|line| can_be_written(&line, format));
    if let Some(format) = Format::of(&path.to_string_lossy())
        && !has_file_of(format)
    {
        return Err(hinted(
            format!("--write: the program takes no configuration file like {}", path.display()),
            "name a script, for example --write 1 fixed.sh",
        ));
    }
    output::writable(path)
}

/// Whether a fix of this program may be a file of this format: it names one, or can be given DeepSpeed's.
fn can_be_written(line: &Line, format: Format) -> bool {
    line.has_file_of(format)
        || format == Format::Json && rewrite::program(line).is_some_and(|program| program.is_distributed)
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
///
/// # Errors
/// When the answer has no such fix.
pub fn chosen(answer: &Answer, number: usize) -> Result<(&FixRow, &Applied)> {
    let place = number.checked_sub(1);
    let row = place.and_then(|place| answer.report.fixes.get(place));
    let applied = place.and_then(|place| answer.changes.get(place));
    row.zip(applied).ok_or_else(|| {
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
    context: &RunContext,
    answer: &Answer,
    number: usize,
    real: bool,
    (stdout_to_stderr, quiet): (bool, bool),
) -> Result<ExitCode> {
    let (row, Applied { changes, virtual_only, .. }) = chosen(answer, number)?;
    if real && *virtual_only {
        return Err(hinted(
            format!("fix {number} is a change of the program's own code, which --real cannot make"),
            "make it by hand as the answer says, then start the program",
        ));
    }
    let output = if stdout_to_stderr { Output::StdoutToStderr } else { Output::Inherit };
    if real {
        let run = RealRun {
            changes,
            output,
            stand_in: None,
            recording: Recording::Off,
            guard: &Guard::default(),
            keep: None,
            meanwhile: None,
        };
        let outcome = context.perform_for_real(&run)?;
        return Ok(match outcome.interrupted {
            Some(signal) => interrupted(signal),
            None => status::of_program(outcome.exit_status),
        });
    }
    let cards = &context.program.cards;
    let request = RunRequest {
        changes,
        cards,
        output,
        limits: Limits::of_user(context.program.timeout),
        history: false,
        keep: None,
        writes: true,
    };
    output::tell(&format!("oomph: the program with fix {number}: {}", row.titles.join(" + ")), quiet);
    let report = match context.perform(&request)? {
        Ended::Interrupted(signal, _) => return Ok(interrupted(signal)),
        Ended::Observed(run) => assemble(cards, &run, None),
    };
    let (word, status) = match report.verdict {
        Verdict::Fits | Verdict::NoGpuUse => ("fits", status::DONE),
        Verdict::Oom => ("does not fit", status::DOES_NOT_FIT),
        Verdict::Recovered => ("runs out of memory and recovers", status::DOES_NOT_FIT),
        Verdict::Unsure => ("may or may not fit", status::DOES_NOT_FIT),
        Verdict::Failed => ("failed for a reason other than memory", status::PROGRAM_FAILED),
    };
    let peak = oomph_gpu::size::format(peak(&report));
    output::tell(&format!("oomph: with fix {number} it {word}: its peak was {peak}"), quiet);
    Ok(ExitCode::from(status))
}

/// Writes a fix down, and says so: as the program's configuration file where the name ends like one, else as a shell
/// script. What has to be changed in the code is in a script as comments.
///
/// # Errors
/// When there is no such fix, it cannot be written so, or a file cannot be written or is there already.
pub fn write(answer: &Answer, file: &FixFile) -> Result<String> {
    let (number, path) = (file.number, file.path.as_path());
    let (row, applied) = chosen(answer, number)?;
    if is_patch(path) {
        return write_patch(row, number, path);
    }
    match Format::of(&path.to_string_lossy()) {
        Some(format) => write_config(applied.said_in_file.as_ref(), format, number, path),
        None => write_script(row, applied.said.as_ref(), &answer.report.command, path),
    }
}

/// Whether a file is to hold a patch, by its name.
fn is_patch(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "patch" || ending == "diff")
}

fn write_patch(row: &FixRow, number: usize, path: &Path) -> Result<String> {
    let Some(patch) = &row.patch else {
        let hint = match &row.command {
            Some(command) => format!("it is a command line: {command}"),
            None => "make its changes by hand".to_owned(),
        };
        return Err(hinted(format!("fix {number} is not a patch"), hint));
    };
    create(path, patch)?;
    let then = row.command.as_ref().map(|command| format!("\n  and run: {command}")).unwrap_or_default();
    Ok(format!(
        "oomph: wrote {}; apply it with:\n  git apply {}{then}",
        path.display(),
        quoted(&path.to_string_lossy())
    ))
}

fn write_config(said: Option<&Said>, format: Format, number: usize, path: &Path) -> Result<String> {
    let of_format = |(name, _): &(&String, &String)| Format::of(name) == Some(format);
    let Some((name, text)) = said.and_then(|said| said.files.iter().find(of_format)) else {
        return Err(hinted(
            format!("fix {number} cannot be expressed in a configuration file like {}", path.display()),
            "name a script, for example --write 1 fixed.sh",
        ));
    };
    let names = BTreeMap::from([(name.clone(), path.to_string_lossy().into_owned())]);
    create(path, text)?;
    let command = said.map(|said| said.shell(&names)).unwrap_or_default();
    Ok(format!("oomph: wrote {}; run the program with it:\n  {command}", path.display()))
}

fn write_script(row: &FixRow, said: Option<&Said>, command: &[String], path: &Path) -> Result<String> {
    let mut names = BTreeMap::new();
    for (name, text) in said.iter().flat_map(|said| &said.files) {
        let copy = copy_path(path, name);
        create(&copy, text)?;
        names.insert(name.clone(), copy.to_string_lossy().into_owned());
    }
    if let Some(patch) = &row.patch {
        let patch_path = path.with_extension("patch");
        create(&patch_path, patch)?;
        names.insert(String::new(), patch_path.to_string_lossy().into_owned());
    }
    create(path, &script(row, said, command, &names))?;
    executable(path);
    let files: String = names.values().map(|name| format!(" and {name}")).collect();
    let message = format!("oomph: wrote {}{files}", path.display());
    Ok(if said.is_some() || row.patch.is_some() {
        message
    } else {
        format!("{message}; the change to the program is in it as a comment")
    })
}

/// The name of a configuration file next to a script: that of both.
fn copy_path(script: &Path, config: &str) -> PathBuf {
    let stem = script.file_stem().unwrap_or_default().to_string_lossy();
    let config = Path::new(config).file_name().unwrap_or_default().to_string_lossy();
    script.with_file_name(format!("{stem}.{config}"))
}

fn create(path: &Path, text: &str) -> Result<()> {
    let failed = || format!("cannot write {}", path.display());
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(path).with_context(failed)?;
    file.write_all(text.as_bytes()).with_context(failed)
}

fn script(row: &FixRow, said: Option<&Said>, command: &[String], names: &BTreeMap<String, String>) -> String {
    let peak = oomph_gpu::size::format(row.peak_bytes);
    let mut text = format!("#!/bin/sh\n# {}: peak {peak} on the virtual GPU.\n", row.titles.join(" + "));
    let mut variables = String::new();
    for apply in &row.apply {
        // What is said on the command line or in the patch is there already.
        if said.is_some() || apply.kind != "env" && row.patch.is_some() && !row.by_hand {
            continue;
        }
        if apply.kind == "env" {
            for (name, value) in apply.text.split_whitespace().filter_map(|word| word.split_once('=')) {
                // Writing to a string cannot fail.
                let _ = writeln!(variables, "export {name}={}", quoted(value));
            }
        } else {
            text.push_str("# Change this in the program first, or it runs out of memory as before:\n");
            for line in apply.text.lines() {
                let _ = writeln!(text, "#     {line}");
            }
        }
    }
    if let Some(patch) = names.get("").filter(|_| row.patch.is_some()) {
        let _ = writeln!(text, "# Needs the program's files changed once: git apply {}", quoted(patch));
    }
    text.push_str(&variables);
    if let (Some(command), None, true) = (&row.command, said, row.patch.is_some()) {
        let _ = writeln!(text, "exec env {command} \"$@\"");
        return text;
    }
    let words = || command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    // Variables in front of the command are for `env`, so that `exec` takes them.
    let line = said.map_or_else(|| format!("exec {}", words()), |said| format!("exec env {}", said.shell(names)));
    let _ = writeln!(text, "{line} \"$@\"");
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

#[cfg(test)]
mod tests {
    use oomph_report::{Apply, ResultChange};

    use super::*;

    fn row(kind: &str, text: &str) -> FixRow {
        FixRow {
            comparison: None,
            remedies: vec!["micro-batch/2".into()],
            titles: vec!["Smaller micro-batch (8 to 4)".into()],
            verified: true,
            verdict: Verdict::Fits,
            peak_bytes: 3 << 30,
            saves_bytes: None,
            room_bytes: None,
            result: ResultChange::Equivalent,
            time_cost: String::new(),
            slowdown: None,
            slowdown_unknown: None,
            quality_cost: None,
            evidence: Vec::new(),
            apply: vec![Apply { kind: kind.into(), text: text.into(), remedy: "micro-batch/2".into() }],
            command: None,
            found_after_seconds: None,
            notes: Vec::new(),
            patch: None,
            by_hand: false,
            tight: false,
        }
    }

    #[test]
    fn a_script_starts_the_program_with_a_copy_of_its_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("fixed.sh");
        let said = Said {
            words: ["axolotl", "train", "configs/my run.yml"].map(String::from).into(),
            environment: vec![("A".into(), "1 2".into())],
            files: BTreeMap::from([("configs/my run.yml".to_owned(), "micro_batch_size: 4\n".to_owned())]),
        };
        let message = write_script(&row("config", "micro_batch_size: 4"), Some(&said), &[], &script).unwrap();
        let copy = folder.path().join("fixed.my run.yml");
        assert_eq!(message, format!("oomph: wrote {} and {}", script.display(), copy.display()));
        assert_eq!(fs::read_to_string(&copy).unwrap(), "micro_batch_size: 4\n");
        let text = fs::read_to_string(&script).unwrap();
        let last = format!("exec env A='1 2' axolotl train '{}' \"$@\"\n", copy.display());
        assert!(text.starts_with("#!/bin/sh\n# Smaller micro-batch (8 to 4): peak 3.00 GiB") && text.ends_with(&last));
        assert!(write_script(&row("config", ""), Some(&said), &[], &script).is_err(), "nothing is written over");
    }

    #[test]
    fn what_a_script_cannot_do_is_in_it_for_its_reader() {
        let text = script(&row("code", "a()\nb()"), None, &["python".into(), "my train.py".into()], &BTreeMap::new());
        assert!(
            text.contains("#     a()\n#     b()\n") && text.ends_with("exec python 'my train.py' \"$@\"\n"),
            "{text}"
        );
        let text = script(&row("env", "X=1"), None, &["python".into()], &BTreeMap::new());
        assert!(text.contains("export X=1\n"), "{text}");
    }
}
