//! Talks to one process.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use oomph_attach::{AttachError, Errand, Ladder, Target};
use oomph_explain::snapshot::{self, At, Names, Options};
use oomph_gpu::Catalogue;
use oomph_report::{AttachedDevice, AttachedProcess, WayIn};
use oomph_trace::ReadOptions;
use serde_json::json;

use super::answer::{Answer, Started};
use super::files::files;
use crate::failure::Hinted;
use crate::recordings::names_path;
use crate::{explain, output};

/// How long a program that counts no steps is recorded.
const WITHOUT_STEPS: Duration = Duration::from_secs(10);
/// How long a script that runs may take to write its answer.
const WRITING: Duration = Duration::from_secs(120);
/// How often a moment may be wrong: when an optimizer goes through its hooks, none can be added.
const TRIES: usize = 200;
/// Between two such tries.
const PAUSE: Duration = Duration::from_millis(7);

/// What is done in a process.
#[derive(Clone, Debug)]
pub enum Action {
    /// Nothing; only the ways in are asked.
    Check,
    /// See what is there.
    Look,
    /// Record so many steps.
    Record(u64),
    /// Leave it recording, and write a snapshot here when memory runs out.
    Watch(PathBuf),
    /// End that.
    Stop,
}

impl Action {
    /// The name in documents.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Look => "look",
            Self::Record(_) => "record",
            Self::Watch(_) => "watch",
            Self::Stop => "stop",
        }
    }
}

/// A process and what is wanted of it.
#[derive(Clone, Debug)]
pub struct Visit {
    /// The process.
    pub pid: u32,
    /// What is done.
    pub action: Action,
    /// Where the snapshot is kept.
    pub snapshot: Option<PathBuf>,
    /// Events that a recording keeps.
    pub entries: u64,
    /// For all of it.
    pub timeout: Duration,
}

/// The rank of a process by its variables.
pub fn rank(pid: u32) -> Option<u32> {
    oomph_attach::environment(pid).get("RANK").and_then(|rank| rank.parse().ok())
}

/// What distinguishes a process's files from those of the others.
pub fn word(pid: u32) -> String {
    rank(pid).map_or_else(|| pid.to_string(), |rank| format!("rank{rank}"))
}

/// A process that was found.
struct Met<'a> {
    visit: &'a Visit,
    target: Target,
    ladder: Ladder,
    end: Instant,
}

impl Visit {
    /// Makes the visit; what goes wrong is in the answer. Says also whether the time was over.
    pub fn made(&self) -> (AttachedProcess, bool) {
        let mut process = AttachedProcess { pid: self.pid, ..AttachedProcess::default() };
        let Err(error) = self.attempt(&mut process) else { return (process, false) };
        let attach = error.downcast_ref::<AttachError>();
        process.failed = true;
        process.hint = attach
            .and_then(AttachError::hint)
            .or_else(|| error.downcast_ref::<Hinted>().map(|hinted| hinted.hint().to_owned()));
        process.reason = Some(format!("{error:#}"));
        (process, matches!(attach, Some(AttachError::TimedOut { .. })))
    }

    fn attempt(&self, process: &mut AttachedProcess) -> Result<()> {
        let end = Instant::now() + self.timeout;
        let target = Target::look(self.pid)?;
        process.command = Some(target.command.clone());
        process.user = Some(target.uid);
        process.rank = target.rank;
        process.threads = Some(target.threads);
        process.python = target.python.filter(|python| python.minor > 0).map(|python| format!("3.{}", python.minor));
        let ladder = Ladder::of(&target);
        process.ways = ladder
            .checked
            .iter()
            .map(|checked| WayIn {
                id: checked.rung.id(),
                name: checked.rung.to_string(),
                closed: checked.closed.clone(),
                hint: checked.hint.clone(),
            })
            .collect();
        if ladder.best().is_none() {
            return Err(ladder.refusal(&target).into());
        }
        let met = Met { visit: self, target, ladder, end };
        match &self.action {
            Action::Check => Ok(()),
            Action::Look => {
                let (errand, answer) = met.asked(process, &json!({"action": "look"}))?;
                met.seen(process, &errand, &answer, At::End)
            }
            Action::Record(steps) => met.recorded(process, *steps),
            Action::Watch(dump) => {
                let order = json!({"action": "watch", "entries": self.entries, "dump": dump});
                let (mut errand, answer) = met.asked(process, &order)?;
                if let Some(watching) = &answer.watching {
                    // The folder is the program's for as long as it watches, and small.
                    fs::write(errand.folder().join("in-use"), "")
                        .with_context(|| format!("cannot write to {}", errand.folder().display()))?;
                    errand.keep();
                    process.dump = Some(watching.dump.clone());
                }
                Ok(())
            }
            Action::Stop => {
                let answer = met.stopped(process)?;
                let words = match (answer.stopped, answer.dumps) {
                    (Some(true), 0) => "recording and watching have stopped".to_owned(),
                    (Some(true), dumps) => format!("watching has stopped; it wrote {dumps} snapshots"),
                    _ => "no oomph attach had left anything running".to_owned(),
                };
                process.notes.push(words);
                Ok(())
            }
        }
    }
}

impl Met<'_> {
    /// Sends an order, and reads the answer. A moment that was wrong is tried again.
    fn asked(&self, process: &mut AttachedProcess, order: &serde_json::Value) -> Result<(Errand, Answer)> {
        for _ in 0..TRIES {
            let errand = self.sent(process, order)?;
            let answer = self.answer(&errand, Instant::now() + WRITING)?;
            if !answer.again {
                self.noted(process, &answer)?;
                return Ok((errand, answer));
            }
            std::thread::sleep(PAUSE);
        }
        Err(Hinted::new(format!("process {} was in an optimizer's step each time", self.visit.pid), "try again").into())
    }

    fn sent(&self, process: &mut AttachedProcess, order: &serde_json::Value) -> Result<Errand> {
        let carried = files();
        let files: Vec<(&str, &[u8])> =
            carried.files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
        let errand = Errand::create(&self.target, &carried.script, &files, order.to_string().as_bytes())?;
        let left = self.end.saturating_duration_since(Instant::now()).max(Duration::from_secs(1));
        let rung = self.ladder.send(&self.target, &errand, left)?;
        process.way = Some(rung.id());
        Ok(errand)
    }

    fn answer(&self, errand: &Errand, end: Instant) -> Result<Answer> {
        let Some(text) = errand.wait(end)? else {
            let hint = "the process may be stopped, or its disk is full; look at it with `oomph attach --check`";
            return Err(
                Hinted::new(format!("process {} began the script and did not answer", self.visit.pid), hint).into()
            );
        };
        serde_json::from_slice(&text).with_context(|| format!("cannot read the answer of process {}", self.visit.pid))
    }

    /// Takes over what every answer has.
    fn noted(&self, process: &mut AttachedProcess, answer: &Answer) -> Result<()> {
        if let Some(error) = &answer.error {
            return Err(
                Hinted::new(format!("the script failed in process {}: {error}", self.visit.pid), "try again").into()
            );
        }
        if let Some(busy) = &answer.busy {
            let hint = format!("oomph attach --stop {}", self.visit.pid);
            return Err(Hinted::new(format!("process {}: {busy}", self.visit.pid), hint).into());
        }
        process.python = answer.python.clone().or(process.python.take());
        process.torch.clone_from(&answer.torch);
        process.reason.clone_from(&answer.why);
        process.seconds = answer.seconds;
        process.devices = answer.devices.iter().map(AttachedDevice::from).collect();
        process.recording.clone_from(&answer.recording);
        process.recorded = answer.recorded.map(Into::into);
        process.notes.extend(answer.notes.iter().cloned());
        Ok(())
    }

    /// Records, waits for the steps, and sees to it that nothing stays behind.
    fn recorded(&self, process: &mut AttachedProcess, steps: u64) -> Result<()> {
        let order = json!({"action": "record", "steps": steps, "entries": self.visit.entries});
        for _ in 0..TRIES {
            let errand = self.sent(process, &order)?;
            let started = self.started(&errand)?;
            let end = match &started {
                Some(started) if !started.counts_steps => self.end.min(Instant::now() + WITHOUT_STEPS),
                _ => self.end,
            };
            let answer = match errand.wait(end)? {
                Some(_) => self.answer(&errand, Instant::now())?,
                None => {
                    let (finished, answer) = self.finished(process, steps, started.as_ref())?;
                    return self.seen(process, &finished, &answer, At::default());
                }
            };
            if answer.again {
                std::thread::sleep(PAUSE);
                continue;
            }
            self.noted(process, &answer)?;
            if answer.why.is_none() {
                // What hung on the optimizers does nothing any more; now it is taken off.
                self.stopped(&mut AttachedProcess::default())?;
            }
            return self.seen(process, &errand, &answer, At::default());
        }
        Err(Hinted::new(format!("process {} was in an optimizer's step each time", self.visit.pid), "try again").into())
    }

    /// What the script says once it records; `None` where it answered instead.
    fn started(&self, errand: &Errand) -> Result<Option<Started>> {
        let path = errand.folder().join("started.json");
        let end = Instant::now() + WRITING;
        while Instant::now() < end {
            if let Some(started) = fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok()) {
                return Ok(Some(started));
            }
            if errand.wait(Instant::now())?.is_some() {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(4));
        }
        Ok(None)
    }

    /// Ends a recording whose steps did not come.
    fn finished(
        &self,
        process: &mut AttachedProcess,
        steps: u64,
        started: Option<&Started>,
    ) -> Result<(Errand, Answer)> {
        let late = Met {
            end: Instant::now() + Duration::from_secs(30),
            target: self.target.clone(),
            ladder: self.ladder.clone(),
            ..*self
        };
        let errand = late.sent(process, &json!({"action": "finish"}))?;
        let mut answer = late.answer(&errand, Instant::now() + WRITING)?;
        if answer.again {
            late.stopped(&mut AttachedProcess::default())?;
            answer.again = false;
        }
        self.noted(process, &answer)?;
        let came = process.recorded.map_or(0, |recorded| recorded.steps);
        process.notes.push(if started.is_some_and(|started| !started.counts_steps) {
            "this PyTorch does not say when an optimizer has made a step; the recording ended with its time".to_owned()
        } else {
            format!("{came} of {steps} optimizer steps came within {} s", self.visit.timeout.as_secs())
        });
        Ok((errand, answer))
    }

    fn stopped(&self, process: &mut AttachedProcess) -> Result<Answer> {
        let mut first = None;
        for _ in 0..TRIES {
            let errand = self.sent(process, &json!({"action": "stop"}))?;
            let answer = self.answer(&errand, Instant::now() + WRITING)?;
            let is_over = !answer.again;
            first.get_or_insert(answer);
            if is_over {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        let answer = first.unwrap_or_default();
        self.noted(process, &answer)?;
        Ok(answer)
    }

    /// Explains the snapshot of an answer, and keeps it where the user wants it.
    fn seen(&self, process: &mut AttachedProcess, errand: &Errand, answer: &Answer, at: At) -> Result<()> {
        if !answer.snapshot {
            return Ok(());
        }
        let file = errand.folder().join("snapshot.pickle");
        let trace = oomph_trace::read(&file, &ReadOptions::default()).context("cannot read the snapshot")?;
        let names = fs::read(names_path(&file)).ok().and_then(|text| Names::parse(&text).ok());
        let is_recorded = process.recorded.is_some();
        let options = Options {
            at,
            capacity: process.devices.first().map(|device| device.total_bytes),
            context_bytes: process.devices.first().and_then(|device| device.outside_bytes),
            what_if: is_recorded,
            cards: if is_recorded { explain::ladder(Catalogue::builtin(), None) } else { Vec::new() },
            ..Options::default()
        };
        let explanation = snapshot::explain(&trace, &options, names.as_ref());
        process.explanation = explanation.devices;
        process.notes.extend(explanation.notes);
        if let Some(to) = &self.visit.snapshot {
            copy(&file, to)?;
            let names = names_path(&file);
            if names.is_file() {
                copy(&names, &names_path(to))?;
            }
            process.snapshot = Some(to.display().to_string());
        }
        Ok(())
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut from = fs::File::open(from).with_context(|| format!("cannot read {}", from.display()))?;
    output::replace(to, |to| io::copy(&mut from, to).map(drop))
        .with_context(|| format!("cannot write {}", to.display()))
}
