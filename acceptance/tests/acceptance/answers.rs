//! Checks the answer to programs as people write them: verdict, phase and step of death, and the smallest card that
//! holds them.
//!
//! `acceptance/answers/programs.toml` has the programs and `runs.csv` what is true of them: rows of whole runs on cards of many
//! sizes, made by `truth.py`. Here `oomph dry-run` is started as a user types it, and must say the same. Programs that need
//! no more than PyTorch's environment run always. `OOMPH_ANSWERS` names an interpreter whose environment has what the others
//! import; then all of them run in it. With `OOMPH_ANSWERS_READINGS=FILE` in addition each program runs with `--until-exit` as
//! well, and what both answered is added to FILE.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use serde::Deserialize;
use serde_json::Value;

use crate::again::tried;
use crate::binary;
use crate::check;
use crate::run::{Finished, PYTHON_BY_HAND, Run, TORCH_2_15, Turn, python_by_hand};

/// Names the file that readings are added to.
const READINGS: &str = "OOMPH_ANSWERS_READINGS";

/// How far above the smallest capacity that was seen to hold a program the answer may lie.
const ABOVE: f64 = 1.01;

/// `programs.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Programs {
    program: Vec<Program>,
}

/// A program and the card that it is asked about; `programs.toml` says what the fields are.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Program {
    name: String,
    program: Vec<String>,
    gpu: String,
    vram: Option<String>,
    phase: Option<String>,
    #[serde(default)]
    packages: Vec<String>,
    #[serde(default)]
    ci: bool,
    #[serde(default)]
    models: bool,
    #[serde(default)]
    options: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

/// What whole runs have shown of one program.
#[derive(Clone, Debug)]
struct Truth {
    /// On the card that is asked about.
    verdict: String,
    phase: String,
    step: Option<u64>,
    /// The largest capacity on which the program was seen to die.
    dies_at: u64,
    /// The smallest capacity above that on which it was seen to end.
    fits_at: Option<u64>,
}

/// What `oomph dry-run` answered.
#[derive(Clone, Debug)]
struct Answer {
    verdict: String,
    phase: Option<String>,
    step: Option<u64>,
    needs: Option<u64>,
    /// Whether it died on a batch of the longest samples.
    on_the_longest: bool,
    seconds: f64,
}

/// One test for each program that can run here.
pub fn trials() -> Vec<Trial> {
    let all: Programs =
        toml::from_str(include_str!("../../answers/programs.toml")).expect("programs.toml lists programs");
    let python = python_by_hand();
    let (here, elsewhere): (Vec<_>, Vec<_>) =
        all.program.into_iter().partition(|program| python.is_some() || program.ci);
    if !elsewhere.is_empty() {
        let packages: BTreeSet<&str> =
            elsewhere.iter().flat_map(|program| &program.packages).map(String::as_str).collect();
        let packages = packages.into_iter().collect::<Vec<_>>().join(", ");
        eprintln!(
            "acceptance: the answers for {} programs are not asked for; {PYTHON_BY_HAND}=PYTHON does so, with {packages} installed",
            elsewhere.len()
        );
    }
    let trial = |program: Program| {
        let (name, python) = (format!("answers::{}", program.name), python.clone());
        tried(name, move || hold(&program, python.as_deref()).map_err(|error| Failed::from(format!("{error:#}"))))
    };
    here.into_iter().map(trial).collect()
}

fn hold(program: &Program, python: Option<&str>) -> Result<()> {
    let truth = truth(program)?.context("runs.csv has no run on this card: truth.py makes one")?;
    let finished = run(program, python, &[])?;
    let answer = answer(&finished)?;
    let held = compare(&truth, &answer);
    if let Ok(path) = std::env::var(READINGS) {
        let whole = run(program, python, &["--until-exit"]).and_then(|finished| self::answer(&finished))?;
        record(Path::new(&path), program, &finished, &answer, &whole, &held)?;
    }
    held.with_context(|| format!("{answer:?}\n{truth:?}\n{}", finished.story()))
}

/// What `runs.csv` has of a program; nothing where it was not run on the card that is asked about.
fn truth(program: &Program) -> Result<Option<Truth>> {
    let mut on_the_card = None;
    let (mut dies_at, mut held) = (0, Vec::new());
    let asked = capacity(program)?;
    for row in include_str!("../../answers/runs.csv").lines().skip(1) {
        let fields: Vec<&str> = row.splitn(14, ',').collect();
        let [name, vram, verdict, steps, step, phase, ..] = fields[..] else { continue };
        if name != program.name {
            continue;
        }
        let vram: u64 = vram.parse().with_context(|| format!("the capacity of {row}"))?;
        if vram == asked {
            let phase = program.phase.clone().unwrap_or_else(|| phase.to_owned());
            // Where no optimizer of PyTorch took a step, nobody counted.
            let step = step.parse().ok().filter(|_| steps != "0");
            on_the_card = Some((verdict.to_owned(), phase, step));
        }
        if verdict == "fits" {
            held.push(vram);
        } else {
            dies_at = dies_at.max(vram);
        }
    }
    // Fragmentation now and then lets a program end on a card smaller than one on which it dies.
    let fits_at = held.into_iter().filter(|vram| *vram > dies_at).min();
    Ok(on_the_card.map(|(verdict, phase, step)| Truth { verdict, phase, step, dies_at, fits_at }))
}

/// The bytes of the card that is asked about.
fn capacity(program: &Program) -> Result<u64> {
    match &program.vram {
        Some(vram) => {
            let (number, unit) = vram.split_at(vram.find(|c: char| c.is_alphabetic()).unwrap_or(vram.len()));
            let unit = match unit {
                "GiB" => 1_u64 << 30,
                "MiB" => 1 << 20,
                _ => anyhow::bail!("{vram} is not a number of MiB or GiB"),
            };
            Ok((number.parse::<f64>()? * unit as f64) as u64)
        }
        None => Ok(oomph_gpu::Catalogue::builtin().find(&program.gpu)?.capacity_bytes),
    }
}

fn compare(truth: &Truth, answer: &Answer) -> Result<()> {
    let mut wrong = String::new();
    let mut differs = |what: &str, said: &str, is: &str| {
        if said != is {
            write!(wrong, "{what} is {said}, not {is}; ").ok();
        }
    };
    differs("the verdict", &answer.verdict, &truth.verdict);
    if truth.verdict == "oom" {
        differs("the phase", answer.phase.as_deref().unwrap_or("unknown"), &truth.phase);
        // A batch of the longest samples was put there: when it comes, the order of the samples decides.
        if let Some(step) = truth.step.filter(|_| !answer.on_the_longest) {
            let said = answer.step.map_or_else(|| "unknown".to_owned(), |step| step.to_string());
            differs("the step", &said, &step.to_string());
        }
    }
    // Of a program that recovers, the capacity at which it has nothing to recover from is not what it needs.
    if truth.verdict != "recovered" {
        let most = truth.fits_at.map_or(u64::MAX, |bytes| (bytes as f64 * ABOVE) as u64);
        if !answer.needs.is_some_and(|needs| needs > truth.dies_at && needs <= most) {
            let (needs, Truth { dies_at, fits_at, .. }) = (answer.needs, truth);
            write!(wrong, "needs is {needs:?}, and the program dies at {dies_at} and ends at {fits_at:?}").ok();
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.trim_end_matches("; "));
    Ok(())
}

fn answer(finished: &Finished) -> Result<Answer> {
    let report = finished.report()?;
    check::contract(&report).with_context(|| finished.story())?;
    let device = check::device(&report, 0)?;
    let oom = &device["oom"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Ok(Answer {
        verdict: text(&report["verdict"]).unwrap_or_default(),
        phase: text(&oom["phase"]),
        step: oom["step"].as_u64(),
        on_the_longest: oom["step"].is_u64() && oom["step"] == report["batches"]["longest"]["step"],
        needs: [
            &oom["would_need_bytes"],
            &device["smallest_capacity"]["capacity_bytes"],
            &device["needed"]["process_bytes"],
            &device["peak"]["process_bytes"],
        ]
        .into_iter()
        .find_map(Value::as_u64),
        seconds: finished.wall.as_secs_f64(),
    })
}

fn run(program: &Program, python: Option<&str>, options: &[&str]) -> Result<Finished> {
    let mut run =
        Run::dry_run()?.args(["--gpu", &program.gpu, "--format", "json"]).args(options).args(&program.options);
    if let Some(vram) = &program.vram {
        run = run.args(["--vram", vram]);
    }
    for (name, value) in &program.env {
        run = run.env(name, value);
    }
    if program.models {
        for name in ["models", "data"] {
            std::os::unix::fs::symlink(models(python)?.join(name), run.folder().join(name))?;
        }
    }
    let script = folder().join(&program.program[0]);
    let run = match python {
        Some(python) => run.args(["--", python]).args([script]),
        None => run.with(TORCH_2_15).args(["--", "python"]).args([script]),
    };
    run.args(&program.program[1..]).turn(Turn::Shared).finish()
}

fn folder() -> PathBuf {
    binary::root().join("acceptance/answers")
}

/// The folder with what `models.py` makes, made once.
pub fn models(python: Option<&str>) -> Result<&'static Path> {
    static MADE: OnceLock<Option<tempfile::TempDir>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let folder = tempfile::tempdir().ok()?;
        let status = Command::new(python?).arg(self::folder().join("models.py")).arg(folder.path()).status().ok()?;
        status.success().then_some(folder)
    });
    made.as_ref().map(tempfile::TempDir::path).context("models.py made no models")
}

/// Adds what was answered to the readings.
fn record(
    path: &Path,
    program: &Program,
    finished: &Finished,
    short: &Answer,
    whole: &Answer,
    held: &Result<()>,
) -> Result<()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let fresh = !path.exists();
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    if fresh {
        writeln!(
            file,
            "date,oomph,torch,program,gpu,vram,verdict,phase,step,needs_bytes,seconds,verdict_until_exit,needs_bytes_until_exit,\
             seconds_until_exit,same_verdict,wrong"
        )?;
    }
    let number = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
    let torch = finished.report()?["frameworks"]["torch"].as_str().unwrap_or_default().to_owned();
    let date = Command::new("date").arg("+%F").output()?.stdout;
    let commit =
        Command::new("git").args(["rev-parse", "--short", "HEAD"]).current_dir(binary::root()).output()?.stdout;
    let word = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    writeln!(
        file,
        "{},{},{torch},{},{},{},{},{},{},{},{:.1},{},{},{:.1},{},{}",
        word(&date),
        word(&commit),
        program.name,
        program.gpu,
        program.vram.as_deref().unwrap_or_default(),
        short.verdict,
        short.phase.as_deref().unwrap_or_default(),
        number(short.step),
        number(short.needs),
        short.seconds,
        whole.verdict,
        number(whole.needs),
        whole.seconds,
        if short.verdict == whole.verdict { "yes" } else { "no" },
        held.as_ref().err().map(|error| error.to_string().replace(',', ";")).unwrap_or_default(),
    )?;
    Ok(())
}
