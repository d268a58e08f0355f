//! Tests `oomph run`: programs that die of GPU memory come to their end without help, with the optimizer steps and the
//! samples of a run that never died, and the journal says what happened.
//!
//! `acceptance/programs/guarded/programs.toml` has the programs. Those that are marked so run in CI; `OOMPH_ANSWERS` names
//! an interpreter in whose environment all of them run. The virtual GPU replaces the real one (`--rehearse`).

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use oomph_protocol::journal::JournalLine;
use serde::Deserialize;
use serde_json::Value;

use crate::again::tried;
use crate::binary;
use crate::run::{Finished, Run, TORCH_2_15, processes_with, python_by_hand, send, tree};

/// The card, with the memory that a row says.
const CARD: &str = "rtx-3060";

/// Holds every program unchanged.
const LARGE: &str = "80GiB";

/// Names how often a guarded run is killed.
const KILLS: &str = "OOMPH_GUARD_KILLS";

/// A guarded run is killed within so many milliseconds; it takes about twice as long with an idle machine.
const LONGEST_DELAY: u64 = 25_000;

/// `programs.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Programs {
    program: Vec<Program>,
}

/// A program and how it dies; `programs.toml` says what the fields are.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Program {
    program: String,
    vram: String,
    phase: String,
    #[serde(default)]
    resumes: bool,
    #[serde(default)]
    order: Order,
    gpus: Option<u32>,
    #[serde(default)]
    packages: Vec<String>,
    #[serde(default)]
    ci: bool,
}

/// In which order the samples are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Order {
    #[default]
    Same,
    Epochs,
}

/// One test for each program that can run here.
pub fn trials() -> Vec<Trial> {
    let all: Programs =
        toml::from_str(include_str!("../../programs/guarded/programs.toml")).expect("programs.toml lists programs");
    let python = python_by_hand();
    let here = all.program.into_iter().filter(|program| python.is_some() || program.ci && program.packages.is_empty());
    let mut trials: Vec<Trial> = here
        .map(|program| {
            let gpus = program.gpus.map(|gpus| format!("-{gpus}")).unwrap_or_default();
            let name = format!("guarded::{}{gpus}", program.program.trim_end_matches(".py"));
            let python = python.clone();
            tried(name, move || ends(&program, python.as_deref()).map_err(failed))
        })
        .collect();
    trials.push(tried("guarded::another-failure-is-not-retried", || other_failure().map_err(failed)));
    trials.push(tried("guarded::a-larger-batch-is-announced-before-it-comes", || {
        larger_batch_announced().map_err(failed)
    }));
    // It takes minutes.
    if python_by_hand().is_some() {
        trials.push(tried("guarded::a-sign-is-acted-on-before-the-death", || acted_on().map_err(failed)));
    }
    trials.push(tried("guarded::nothing-is-left-of-a-killed-run", || killed().map_err(failed)));
    trials
}

fn failed(error: anyhow::Error) -> Failed {
    Failed::from(format!("{error:#}"))
}

/// A guarded run in a folder that has a copy of the programs.
fn guarded(vram: &str, gpus: Option<u32>, options: &[&str]) -> Result<Run> {
    let card = gpus.map_or(CARD.to_owned(), |gpus| format!("{CARD}:{gpus}"));
    let run = Run::command("run")?.args(["--rehearse", &card, "--vram", vram]).args(options);
    for entry in fs::read_dir(binary::root().join("acceptance/programs/guarded"))? {
        let path = entry?.path();
        if path.is_file() {
            fs::copy(&path, run.folder().join(path.file_name().context("no name")?))?;
        }
    }
    Ok(run)
}

/// Runs a program under guard on a card of this size; what it saw, and its journal.
fn seen(program: &Program, vram: &str, python: Option<&str>) -> Result<(Finished, Seen, Vec<Value>)> {
    let run = guarded(vram, program.gpus, &["--no-check", "--max-time", "400s"])?;
    let folder = run.folder().to_owned();
    let run = match python {
        Some(_) => run.args(["--"]),
        None => run.with(TORCH_2_15).args(["--"]),
    };
    let run = match (program.gpus, python) {
        (None, python) => run.args([python.unwrap_or("python")]),
        (Some(gpus), python) => {
            let torchrun = python.map(|python| Path::new(python).with_file_name("torchrun"));
            let torchrun = torchrun.map_or("torchrun".to_owned(), |path| path.to_string_lossy().into_owned());
            run.args([torchrun, "--nproc-per-node".to_owned(), gpus.to_string()])
        }
    };
    let mut run = run.args([&program.program]);
    let finished = run.finish()?;
    let seen = Seen::read(&folder.join("seen.txt")).with_context(|| finished.story())?;
    Ok((finished, seen, journal(&folder)?))
}

/// The lines of the journal in a folder. Each is what `oomph-protocol` declares, no field more and no field less.
fn journal(folder: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(folder.join("oomph-run/journal.jsonl"))?;
    let line = |line| -> Result<Value> {
        let declared: JournalLine = serde_json::from_str(line)?;
        let written: Value = serde_json::from_str(line)?;
        ensure!(serde_json::to_value(&declared)? == written, "not as declared: {line}");
        Ok(written)
    };
    text.lines().map(line).collect()
}

/// What a program noted of itself (`seen.py`).
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// The samples of the last start, in the order in which they were taken.
    samples: Vec<u64>,
    /// How many optimizer steps the program says that it made; `None` where it came to no end.
    steps: Option<u64>,
    /// How often it was started.
    starts: usize,
}

impl Seen {
    fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("no {}", path.display()))?;
        let mut seen = Self { samples: Vec::new(), steps: None, starts: 0 };
        for line in text.lines() {
            if line == "start" {
                seen.samples.clear();
                seen.starts += 1;
            } else if let Some(steps) = line.strip_prefix("steps ") {
                seen.steps = Some(steps.parse()?);
            } else {
                for word in line.split_whitespace() {
                    seen.samples.push(word.parse()?);
                }
            }
        }
        Ok(seen)
    }
}

fn ends(program: &Program, python: Option<&str>) -> Result<()> {
    let (large, whole, journal) = seen(program, LARGE, python)?;
    large.ensure(large.status.success() && whole.starts == 1, "the program does not run on a large card")?;
    ensure!(journal.len() == 3, "a run that does not die has a start, an attempt and an end: {journal:?}");
    let (small, last, journal) = seen(program, &program.vram, python)?;
    small.ensure(small.status.success(), "the program did not end on its own")?;
    small.ensure(last.starts > 1, "the program did not die")?;
    small.ensure(last.steps == whole.steps, format!("steps: {:?}, not {:?}", last.steps, whole.steps))?;

    let of = |event: &str| journal.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    let (attempts, ends) = (of("attempt"), of("end"));
    let story = || format!("{journal:#?}");
    let death = &ends[0]["out_of_memory"];
    small.ensure(death["phase"] == program.phase.as_str(), story())?;
    small.ensure(attempts.len() == last.starts && ends.len() == last.starts, story())?;
    let (attempt, end) = (attempts[attempts.len() - 1], ends[ends.len() - 1]);
    let step = attempt["step"].as_u64();
    small.ensure(step.is_some() == program.resumes, story())?;
    small.ensure(end["exit_status"] == 0 && end["out_of_memory"].is_null(), story())?;
    // What the dry run foretold of the process holds for what PyTorch reserves in it.
    let (peak, reserved) = (attempt["predicted_peak_bytes"].as_u64(), end["reserved_peak_bytes"].as_u64());
    small.ensure(peak.zip(reserved).is_some_and(|(peak, reserved)| reserved <= peak), story())?;

    match program.order {
        // The last batches may have been fetched and not trained on.
        Order::Same => {
            let begin =
                whole.samples.windows(last.samples.len().min(8)).position(|part| last.samples.starts_with(part));
            let begin = begin.with_context(|| format!("other samples\n{whole:?}\n{last:?}"))?;
            let both = whole.samples[begin..].iter().zip(&last.samples);
            small
                .ensure(both.clone().all(|(one, other)| one == other), format!("another order\n{whole:?}\n{last:?}"))?;
            small.ensure(step.is_some() || begin == 0, "it did not begin at the first sample")?;
            if let (Some(step), Some(batch)) = (step, end["effective_batch"].as_u64()) {
                small.ensure(
                    begin as u64 == step * batch,
                    format!("it went on from sample {begin} after step {step}"),
                )?;
            }
        }
        Order::Epochs => {
            let mut distinct = last.samples.clone();
            distinct.sort_unstable();
            distinct.dedup();
            let epochs = last.samples.len() / distinct.len();
            let each_once = |epoch: &[u64]| {
                let mut epoch = epoch.to_vec();
                epoch.sort_unstable();
                epoch == distinct
            };
            small.ensure(epochs > 0 && last.samples.chunks(distinct.len()).all(each_once), format!("{last:?}"))?;
        }
    }
    Ok(())
}

/// With `--act` a program that fills the card step by step is saved before it dies, and ends with the steps and the samples of a
/// run that never did; no step is made again.
fn acted_on() -> Result<()> {
    let python = python_by_hand();
    let start = |vram: &str, options: &[&str]| -> Result<(Finished, Seen, Vec<Value>)> {
        let run = guarded(vram, None, &[&["--no-check"], options].concat())?;
        let folder = run.folder().to_owned();
        let run = match &python {
            Some(python) => run.args(["--", python]),
            None => run.with(TORCH_2_15).args(["--", "python"]),
        };
        let mut run = run.args(["trainer_keeping.py"]);
        let finished = run.finish()?;
        let seen = Seen::read(&folder.join("seen.txt")).with_context(|| finished.story())?;
        Ok((finished, seen, journal(&folder)?))
    };
    let (large, whole, _) = start(LARGE, &[])?;
    large.ensure(large.status.success() && whole.starts == 1, "the program does not run on a large card")?;
    let (small, last, journal) = start("5GiB", &["--act"])?;
    small.ensure(small.status.success() && last.starts == 2, format!("{} starts", last.starts))?;
    small.ensure(last.steps == whole.steps, format!("steps: {:?}, not {:?}", last.steps, whole.steps))?;
    let story = || format!("{journal:#?}");
    let of = |event: &str| journal.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    let (attempts, ends) = (of("attempt"), of("end"));
    small.ensure(ends.iter().all(|end| end["out_of_memory"].is_null()), story())?;
    small.ensure(attempts[1]["repeated_steps"] == 0 && ends[0]["steps"] == attempts[1]["step"], story())?;
    let step = attempts[1]["step"].as_u64().with_context(story)?;
    let rest = whole.samples.get(usize::try_from(step * 8)?..).with_context(story)?;
    small.ensure(rest == last.samples, format!("other samples after step {step}\n{whole:?}\n{last:?}"))
}

/// The warning of a batch that will not fit comes before the death, and there is none where it fits.
fn larger_batch_announced() -> Result<()> {
    let start = |vram: &str| {
        let run = guarded(vram, None, &["--no-check", "--attempts", "1"])?.with(TORCH_2_15);
        run.args(["--", "python", "larger_batch.py"]).finish()
    };
    let small = start("2GiB")?;
    let said = String::from_utf8_lossy(&small.stderr).into_owned();
    let warned = said.find("batches of up to 32768 tokens are still to come");
    let died = said.find("the program ran out of GPU memory");
    small.ensure(warned.is_some() && warned < died, "no warning before the death")?;
    // Where the same batch fits, there is nothing to say.
    let large = start(LARGE)?;
    let quiet = !String::from_utf8_lossy(&large.stderr).contains("still to come");
    large.ensure(large.status.success() && quiet, "a warning of what fits")
}

/// A program that fails for another reason is started once, and has its own exit status. Its weights are drawn: leaving them
/// at zero is for dry runs.
fn other_failure() -> Result<()> {
    let run = guarded("4GiB", None, &["--no-check"])?.with(TORCH_2_15);
    let folder = run.folder().to_owned();
    let text = "import sys, torch\ntorch.ones(1, device='cuda')\nweight = torch.nn.Linear(2048, 2048).weight.detach()\n\
                print('started', 'drawn' if weight.any() else 'zero')\nsys.exit(9)\n";
    fs::write(folder.join("fails.py"), text)?;
    let mut run = run.args(["--", "python", "fails.py"]);
    let finished = run.finish()?;
    let journal = fs::read_to_string(folder.join("oomph-run/journal.jsonl"))?;
    finished.ensure(finished.status.code() == Some(9), "not the program's own exit status")?;
    let started = String::from_utf8_lossy(&finished.stdout).matches("started drawn").count();
    finished.ensure(started == 1 && journal.lines().count() == 3, journal)
}

/// After a SIGKILL to oomph, to the program or to one of two ranks at any moment (the program runs, remedies are searched, it runs again) no process of the run is
/// left, no file of the program has changed, and the journal claims no step that was not made.
fn killed() -> Result<()> {
    let moments: u64 = std::env::var(KILLS).ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    // A different sequence in each process, and one that a failure names.
    let seed = u64::from(std::process::id());
    for number in 0..moments {
        let delay = Duration::from_millis(500 + (seed + number).wrapping_mul(2_654_435_761) % LONGEST_DELAY);
        let victim = [Victim::Oomph, Victim::Program, Victim::Rank][usize::try_from(number % 3)?];
        killed_after(delay, victim).with_context(|| format!("{victim:?} killed after {} ms", delay.as_millis()))?;
    }
    Ok(())
}

/// Whom a SIGKILL meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Oomph,
    /// Any process of the program's, of a dry run's as well, where there is one at that moment.
    Program,
    /// One of two ranks.
    Rank,
}

impl Victim {
    /// The program that is killed, or whose oomph is.
    fn program(self) -> &'static str {
        if self == Self::Rank { "ranks.py" } else { "trainer_longest_batch.py" }
    }

    /// A guarded run of it, on cards that are too small.
    fn run(self) -> Result<Run> {
        if self == Self::Rank {
            let run = guarded("800MiB", Some(2), &["--no-check"])?.with(TORCH_2_15);
            return Ok(run.args(["--", "torchrun", "--nproc-per-node", "2", self.program()]));
        }
        Ok(guarded("4GiB", None, &["--no-check"])?.with(TORCH_2_15).args(["--", "python", self.program()]))
    }
}

fn killed_after(delay: Duration, victim: Victim) -> Result<()> {
    let mark = format!("guarded-{}-{}", std::process::id(), delay.as_millis());
    let mut run = victim.run()?.env("OOMPH_ACCEPTANCE_MARKER", &mark);
    let folder = run.folder().to_owned();
    let programs = || -> Result<Vec<_>> {
        let files = tree(&folder)?.into_iter();
        Ok(files
            .filter(|(path, _)| path.extension().is_some_and(|ending| ending == "py" || ending == "toml"))
            .collect())
    };
    let before = programs()?;
    let started = run.start()?;
    std::thread::sleep(delay);
    match victim {
        Victim::Oomph => started.signal(libc::SIGKILL),
        Victim::Program | Victim::Rank => {
            let of_program = |line: &String| {
                line.contains(victim.program()) && !line.contains("oomph run") && !line.contains("torchrun")
            };
            let pid = processes_with(&mark).into_iter().find(of_program);
            match pid.and_then(|line| line.split([':', '/']).nth(2)?.parse::<i32>().ok()) {
                Some(pid) => send(pid, libc::SIGKILL),
                None => started.signal(libc::SIGKILL),
            }
        }
    }
    // Where the program was killed, oomph ends on its own.
    started.finish()?;
    let since = Instant::now();
    while !processes_with(&mark).is_empty() {
        ensure!(since.elapsed() < Duration::from_secs(120), "left: {:?}", processes_with(&mark));
        std::thread::sleep(Duration::from_millis(100));
    }
    ensure!(programs()? == before, "a file of the program has changed");
    let journal = fs::read_to_string(folder.join("oomph-run/journal.jsonl")).unwrap_or_default();
    let batches = fs::read_to_string(folder.join("seen.txt")).unwrap_or_default().lines().count() as u64;
    for line in journal.lines() {
        let line: Value = serde_json::from_str(line).with_context(|| format!("no line of a journal: {line}"))?;
        ensure!(line["steps"].as_u64().unwrap_or(0) <= batches, "{line} after {batches} batches");
    }
    Ok(())
}
