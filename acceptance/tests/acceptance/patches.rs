//! Tests fixes as a user gets them: the first one's patch is applied with `git apply`, and the patched program runs to
//! the promised peak without further changes.
//!
//! `acceptance/patches/programs.toml` has the programs, written as people write them. Those that need no more than PyTorch's
//! environment run in CI where they are marked so; `OOMPH_ANSWERS` names an interpreter in whose environment all of them
//! run.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use serde::Deserialize;
use serde_json::Value;

use crate::again::tried;
use crate::answers;
use crate::binary;
use crate::run::{Finished, Run, TORCH_2_15, python_by_hand};

/// A machine that is shared needs longer; the bound on time is measured elsewhere.
const MAX_TIME: &str = "400s";

/// `programs.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Programs {
    program: Vec<Program>,
}

/// A program and what is asked about it; `programs.toml` says what the fields are.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Program {
    name: String,
    program: Vec<String>,
    #[serde(default = "usual_card")]
    gpu: String,
    vram: Option<String>,
    first: Vec<String>,
    outcome: Option<String>,
    #[serde(default)]
    options: Vec<String>,
    #[serde(default)]
    packages: Vec<String>,
    #[serde(default)]
    ci: bool,
    #[serde(default = "own_suite")]
    suite: String,
    #[serde(default)]
    models: bool,
}

impl Program {
    /// The folder of its script.
    fn folder(&self) -> PathBuf {
        binary::root().join("acceptance").join(&self.suite).join("programs")
    }
}

fn own_suite() -> String {
    "patches".into()
}

fn usual_card() -> String {
    "rtx-3060".into()
}

/// One test for each program that can run here.
pub fn trials() -> Vec<Trial> {
    let all: Programs =
        toml::from_str(include_str!("../../patches/programs.toml")).expect("programs.toml lists programs");
    let python = python_by_hand();
    let here = all.program.into_iter().filter(|program| python.is_some() || program.ci && program.packages.is_empty());
    here.map(|program| {
        let (name, python) = (format!("patches::{}", program.name), python.clone());
        tried(name, move || holds(&program, python.as_deref()).map_err(|error| Failed::from(format!("{error:#}"))))
    })
    .collect()
}

/// The program's folder in the folder that `oomph` is started in, with what models it reads.
fn copied(run: &Run, program: &Program, python: Option<&str>) -> Result<()> {
    if program.models {
        for name in ["models", "data"] {
            std::os::unix::fs::symlink(answers::models(python)?.join(name), run.folder().join(name))?;
        }
    }
    for entry in fs::read_dir(program.folder())? {
        let path = entry?.path();
        if path.is_file() {
            fs::copy(&path, run.folder().join(path.file_name().context("no name")?))?;
        }
    }
    Ok(())
}

/// `oomph` on a program with the card that is asked about.
fn asked(command: &str, program: &Program, python: Option<&str>, options: &[&str]) -> Result<Run> {
    let mut run = Run::command(command)?.args(["--gpu", &program.gpu, "--format", "json"]).args(options);
    if let Some(vram) = &program.vram {
        run = run.args(["--vram", vram]);
    }
    copied(&run, program, python)?;
    Ok(run)
}

fn started(run: Run, python: Option<&str>, words: &[String]) -> Result<Finished> {
    let run = match python {
        Some(python) => run.args(["--", python]),
        None => run.with(TORCH_2_15).args(["--", "python"]),
    };
    run.args(words).finish()
}

fn holds(program: &Program, python: Option<&str>) -> Result<()> {
    let mut run = asked("fix", program, python, &["--max-time", MAX_TIME, "--fixes", "1"])?.args(&program.options);
    if program.outcome.is_none() {
        // Numbers take longer than the search, and are compared where the outcome is asked for.
        run = run.args(["--no-compare"]);
    }
    let finished = started(run, python, &program.program)?;
    let report = finished.report()?;
    let fix = &report["fixes"][0];
    finished.ensure(fix["by_hand"] == false && fix["tight"] == false, format!("not a fix to apply: {fix:#}"))?;
    let names = fix["remedies"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let ids: Vec<&str> = names.map(|name| name.split('/').next().unwrap_or(name)).collect();
    let ids = ids.join(" + ");
    finished.ensure(program.first.contains(&ids), format!("another first fix: {ids}"))?;

    if let Some(outcome) = &program.outcome {
        let found = &fix["comparison"];
        finished.ensure(found["outcome"] == outcome.as_str(), format!("compared with the program: {found:#}"))?;
    }

    let by_itself = asked("dry-run", program, python, &[])?;
    if let Some(patch) = fix["patch"].as_str() {
        apply(patch, by_itself.folder())?;
        only(patch, &program.folder(), by_itself.folder())?;
    }
    let words = match fix["command"].as_str() {
        Some(command) => after_script(command, &program.program[0])?,
        None => program.program.clone(),
    };
    let alone = started(by_itself, python, &words)?;
    let report = alone.report()?;
    alone.ensure(
        report["verdict"] == "fits",
        format!("the changed program does not fit on its own: {}", report["verdict"]),
    )?;
    let peak =
        report["devices"].as_array().into_iter().flatten().filter_map(|card| card["peak"]["process_bytes"].as_u64());
    alone.ensure(peak.max() == fix["peak_bytes"].as_u64(), format!("another peak than {}", fix["peak_bytes"]))
}

/// The words of a command from the script on. Those of these programs need no quotes.
fn after_script(command: &str, script: &str) -> Result<Vec<String>> {
    let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    let place = words.iter().position(|word| word == script).context("the command does not name the script")?;
    Ok(words[place..].to_vec())
}

/// Applies a patch with `git apply`.
pub fn apply(patch: &str, folder: &Path) -> Result<()> {
    let mut git = Command::new("git").args(["apply", "-"]).current_dir(folder).stdin(Stdio::piped()).spawn()?;
    git.stdin.take().context("no stdin")?.write_all(patch.as_bytes())?;
    ensure!(git.wait()?.success(), "git does not take the patch:\n{patch}");
    Ok(())
}

/// The files differ from the originals in the patch's lines and nowhere else.
fn only(patch: &str, originals: &Path, folder: &Path) -> Result<()> {
    let lines = |sign: char| {
        let headers = ["+++ ", "--- "];
        patch
            .lines()
            .filter(move |line| line.starts_with(sign) && !headers.iter().any(|header| line.starts_with(header)))
    };
    let (mut added, mut removed) = (0, 0);
    for entry in fs::read_dir(originals)? {
        let path = entry?.path();
        let (Ok(before), Some(name)) = (fs::read_to_string(&path), path.file_name()) else { continue };
        let after = fs::read_to_string(folder.join(name))?;
        let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
        if old == new {
            continue;
        }
        added += new.len();
        removed += old.len();
    }
    let (plus, minus) = (lines('+').count(), lines('-').count());
    ensure!(added + minus == removed + plus, "the files differ elsewhere than in the patch");
    Ok(())
}
