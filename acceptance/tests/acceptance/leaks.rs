//! Tests programs that leak: the first fix changes every line that holds on to tensors and no other, and what the
//! patched program has allocated does not grow over 100 steps.
//!
//! `acceptance/programs/leaks/programs.toml` has the programs. Those that are marked so run in CI; `OOMPH_ANSWERS` names an
//! interpreter in whose environment all of them run. With `OOMPH_LEAKS_READINGS=FILE` in addition the programs run without
//! their patches as well, on a card with room for the leak, and what was allocated is added to FILE.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use serde::Deserialize;
use serde_json::Value;

use crate::again::tried;
use crate::binary;
use crate::patches::apply;
use crate::run::{Finished, Run, TORCH_2_15, python_by_hand};

/// Names the file that readings are added to.
const READINGS: &str = "OOMPH_LEAKS_READINGS";

/// The card, whose memory the programs do not fill by themselves within their 101 steps.
const CARD: &str = "rtx-3060";

/// The steps after which a program that does not leak has everything that it needs.
const SETTLED: u64 = 5;

/// The first step of the second half.
const HALF: u64 = 51;

/// `programs.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Programs {
    program: Vec<Program>,
}

/// A program and what its patch has to change; `programs.toml` says what the fields are.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Program {
    program: String,
    vram: String,
    holders: Vec<String>,
    #[serde(default)]
    followed: bool,
    #[serde(default)]
    packages: Vec<String>,
    #[serde(default)]
    ci: bool,
}

/// One test for each program that can run here.
pub fn trials() -> Vec<Trial> {
    let all: Programs =
        toml::from_str(include_str!("../../programs/leaks/programs.toml")).expect("programs.toml lists programs");
    let python = python_by_hand();
    let forecast = tried("leaks::forecast", || forecast().map_err(|error| Failed::from(format!("{error:#}"))));
    let here = all.program.into_iter().filter(|program| python.is_some() || program.ci && program.packages.is_empty());
    here.map(|program| {
        let (name, python) = (format!("leaks::{}", program.program.trim_end_matches(".py")), python.clone());
        tried(name, move || holds(&program, python.as_deref()).map_err(|error| Failed::from(format!("{error:#}"))))
    })
    .chain([forecast])
    .collect()
}

/// A loop of 400 steps that is not run to the end: the step in which the card is full, and what the loop needs, are those of
/// the whole program.
fn forecast() -> Result<()> {
    let run = |options: &[&str]| -> Result<(Finished, Value)> {
        let run = Run::json(CARD, TORCH_2_15)?.args(["--no-probe"]).args(options);
        let finished = run.program(&["sums_errors.py"]).finish()?;
        let report = finished.report()?;
        Ok((finished, report))
    };
    let (finished, foreseen) = run(&["--vram", "2GiB", "--budget", "1s"])?;
    let oom = |report: &Value| report["devices"][0]["oom"].clone();
    finished.ensure(oom(&foreseen)["forecast"] == true, "it was run to its death")?;
    let step = |report: &Value| oom(report)["step"].as_u64().context("no step");
    let (_, whole) = run(&["--vram", "2GiB", "--until-exit"])?;
    let apart = step(&foreseen)?.abs_diff(step(&whole)?);
    finished.ensure(apart <= 1, format!("step {} is foreseen, and it is {}", step(&foreseen)?, step(&whole)?))?;

    let needed = oom(&foreseen)["would_need_bytes"].as_u64().context("no need")?;
    let (ran, report) = run(&["--vram", &format!("{}MiB", (needed >> 20) + 1), "--until-exit"])?;
    ran.ensure(report["verdict"] == "fits", format!("with the {needed} bytes that it needs: {}", report["verdict"]))
}

/// `oomph` on the program, in a folder that has a copy of all of them.
fn asked(command: &str, options: &[&str]) -> Result<Run> {
    let run = Run::command(command)?.args(["--gpu", CARD, "--format", "json"]).args(options);
    for entry in fs::read_dir(binary::root().join("acceptance/programs/leaks"))? {
        let path = entry?.path();
        if path.is_file() {
            fs::copy(&path, run.folder().join(path.file_name().context("no name")?))?;
        }
    }
    Ok(run)
}

fn started(run: Run, python: Option<&str>, program: &Program) -> Result<Finished> {
    let run = match python {
        Some(python) => run.args(["--", python]),
        None => run.with(TORCH_2_15).args(["--", "python"]),
    };
    run.args([&program.program]).finish()
}

fn holds(program: &Program, python: Option<&str>) -> Result<()> {
    let options = ["--vram", &program.vram, "--fixes", "1", "--max-time", "400s"];
    let finished = started(asked("fix", &options)?, python, program)?;
    let report = finished.report()?;
    let fix = &report["fixes"][0];
    finished.ensure(fix["by_hand"] == false && fix["tight"] == false, format!("not a fix to apply: {fix:#}"))?;
    let patch = fix["patch"].as_str().with_context(|| format!("no patch\n{}", finished.story()))?;
    let changed = changed(patch, program.followed);
    let mut holders = program.holders.clone();
    holders.sort_unstable();
    finished.ensure(changed == holders, format!("the holders are {holders:?}\n{patch}"))?;

    let whole = asked("dry-run", &["--until-exit"])?;
    apply(patch, whole.folder())?;
    let patched = started(whole, python, program)?;
    let verdict = patched.report()?["verdict"].clone();
    patched.ensure(verdict == "fits", format!("the patched program: {verdict}"))?;
    let after = allocated(&patched)?;
    let (early, late) = halves(&after)?;
    if let Ok(path) = std::env::var(READINGS) {
        let unpatched = started(asked("dry-run", &["--until-exit"])?, python, program)?;
        let before = allocated(&unpatched)?;
        let row = [
            program.program.clone(),
            program.vram.clone(),
            names(fix),
            program.holders.len().to_string(),
            at(&before, 20)?,
            at(&before, 100)?,
            early.1.to_string(),
            late.1.to_string(),
        ];
        let mut file = fs::File::options().append(true).create(true).open(path)?;
        writeln!(file, "{}", row.join(","))?;
        let (early, late) = halves(&before)?;
        unpatched.ensure(late.1 > early.1, "the program does not leak without its patch")?;
    }
    let grows = late.0 > early.0 || late.1 > early.1;
    patched.ensure(!grows, format!("allocated in the first half {early:?}, in the second {late:?}"))
}

/// The lines of the program that a patch takes out, or after which it adds some, in order of their text.
fn changed(patch: &str, followed: bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut last = "";
    for line in patch.lines().filter(|line| !line.starts_with("---") && !line.starts_with("+++")) {
        if let Some(text) = line.strip_prefix('-').filter(|_| !followed) {
            found.push(text.trim().to_owned());
        } else if followed && line.starts_with('+') && !last.starts_with('+') {
            found.push(last.get(1..).unwrap_or_default().trim().to_owned());
        }
        last = line;
    }
    found.sort_unstable();
    found
}

/// What the program said of its allocated bytes, by step.
fn allocated(finished: &Finished) -> Result<BTreeMap<u64, u64>> {
    let text = String::from_utf8_lossy(&finished.stderr);
    let rows = text.lines().filter_map(|line| {
        let rest = line.split_once("step ")?.1;
        let (step, rest) = rest.split_once(": ")?;
        let (bytes, _) = rest.split_once(" bytes allocated")?;
        Some((step.parse().ok()?, bytes.parse().ok()?))
    });
    let rows: BTreeMap<u64, u64> = rows.collect();
    ensure!(rows.contains_key(&100), "the program did not come to step 100\n{}", finished.story());
    Ok(rows)
}

/// The least and the most that was allocated in the first half of the steps and in the second. Blocks that are cut from
/// larger ones or taken whole make the same step a little larger or smaller, so one step with another says little.
fn halves(rows: &BTreeMap<u64, u64>) -> Result<((u64, u64), (u64, u64))> {
    let range = |from: u64, to: u64| {
        let values = || rows.range(from..to).map(|(_, bytes)| *bytes);
        Some((values().min()?, values().max()?))
    };
    Ok((range(SETTLED, HALF).context("no first half")?, range(HALF, u64::MAX).context("no second half")?))
}

fn at(rows: &BTreeMap<u64, u64>, step: u64) -> Result<String> {
    rows.get(&step).map(u64::to_string).with_context(|| format!("the program printed nothing at step {step}"))
}

fn names(fix: &Value) -> String {
    let names: Vec<&str> = fix["remedies"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    names.join(" + ")
}
