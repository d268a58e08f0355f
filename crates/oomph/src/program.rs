//! A program, the virtual cards it runs on, and the rule by which its run ends: what the options that `dry-run`, `fix`
//! and `tune` share mean.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::Result;
use oomph_gpu::nvml::{self, InstalledGpu};
use oomph_launch::{Batches, Network, Routing, Stop, StopMode, Values, masked, masked_text};

use crate::cards::{Card, capacity, cards};
use crate::cli::{self, ProgramArgs};
use crate::duration::duration;
use crate::failure::hinted;
use crate::shell_words::quoted;

/// How many steps the peak must not move by default.
const STABLE_STEPS: u32 = 3;

/// A program and how it is to be run.
#[derive(Clone, Debug)]
pub struct Program {
    /// The virtual cards, by CUDA index; never empty.
    pub cards: Vec<Card>,
    /// The options that named them, as typed, ready for a shell.
    pub card_options: Vec<String>,
    /// The program and its arguments; never empty.
    pub command: Vec<OsString>,
    /// Packages to run it with; empty for the user's own Python.
    pub with: Vec<String>,
    /// When the hook ends the run.
    pub stop: Stop,
    /// When the launcher ends the run.
    pub timeout: Option<Duration>,
    /// Which results are computed for real.
    pub values: Values,
    /// Which ranks of a job run, as the hook takes it; `None` is its default.
    pub ranks: Option<String>,
    /// Where tokens go whose expert was not computed.
    pub routing: Routing,
    /// Which batches are seen, where they differ in size.
    pub batches: Batches,
    /// Whether missing weights are made up.
    pub random_weights: bool,
    /// Whether the program's writes go where it says.
    pub allow_writes: bool,
    /// What the program may do on the network.
    pub network: Network,
    /// Whether it is recorded whose memory it is.
    pub history: bool,
    /// Whether the virtual GPU logs what each process takes of it, for those that leave no recording of their own.
    pub device_log: bool,
    /// Whether the hook lists which files of its own the program reads.
    pub reads: bool,
}

impl Program {
    /// Works out what was meant.
    ///
    /// # Errors
    /// When a card, a size, a count or a duration cannot be understood.
    pub fn new(args: ProgramArgs) -> Result<Self> {
        Self::on(args, || Ok(nvml::installed()?))
    }

    /// As [`Self::new`], with the question for the installed cards apart, so that it can be tested.
    fn on(args: ProgramArgs, installed: impl FnOnce() -> Result<Vec<InstalledGpu>>) -> Result<Self> {
        let vram = args.vram.as_deref().map(capacity).transpose()?;
        let cards = cards(&args.gpu, vram, installed)?;
        let mut card_options = Vec::new();
        if !args.gpu.is_empty() {
            card_options.extend(["--gpu".into(), quoted(&args.gpu.join(","))]);
        }
        if let Some(vram) = &args.vram {
            card_options.extend(["--vram".into(), quoted(vram)]);
        }
        let stop = match (args.steps, args.until_exit) {
            (Some(0), _) => {
                return Err(hinted("--steps 0 would stop before anything happened", "the least is --steps 1"));
            }
            (Some(steps), _) => Stop { mode: StopMode::Steps, steps, budget_seconds: None },
            (None, true) => Stop { mode: StopMode::Exit, steps: STABLE_STEPS, budget_seconds: None },
            (None, false) => {
                let budget = args.budget.as_deref().map(|text| duration("--budget", text)).transpose()?;
                let budget_seconds = budget.map(|budget| u32::try_from(budget.as_secs()).unwrap_or(u32::MAX));
                Stop { mode: StopMode::PeakStable, steps: STABLE_STEPS, budget_seconds }
            }
        };
        let network = match (args.network, args.allow_writes) {
            (Some(cli::Network::None), true) => {
                return Err(hinted(
                    "--network none does not go with --allow-writes: the network is cut off with the private view of files",
                    "leave one of them out",
                ));
            }
            (Some(cli::Network::None), false) => Network::None,
            (Some(cli::Network::Read), _) | (None, false) => Network::Read,
            (Some(cli::Network::All), _) | (None, true) => Network::All,
        };
        Ok(Self {
            cards,
            card_options,
            command: args.command,
            with: args.with,
            stop,
            timeout: args.timeout.as_deref().map(|text| duration("--timeout", text)).transpose()?,
            values: match args.values {
                cli::Values::Off => Values::Off,
                cli::Values::Small => Values::Small,
                cli::Values::AllHost => Values::AllHost,
            },
            ranks: args.ranks.as_deref().map(ranks).transpose()?,
            routing: match args.routing {
                cli::Routing::Balanced => Routing::Balanced,
                cli::Routing::Worst => Routing::Worst,
            },
            batches: match args.batches {
                cli::Batches::Longest => Batches::Longest,
                cli::Batches::Seen => Batches::Seen,
            },
            random_weights: args.random_weights,
            allow_writes: args.allow_writes,
            network,
            history: true,
            device_log: false,
            reads: false,
        })
    }

    /// The command line of a dry run of this program on other cards: `cards` are the options that name them, ready for a
    /// shell.
    pub fn dry_run(&self, cards: &[String]) -> String {
        let owners = if self.history { Vec::new() } else { vec!["--no-owners".into()] };
        self.line("dry-run", &[cards, &owners].concat())
    }

    /// The command line of `oomph fix` for this program on its cards, with options of its own, ready for a shell.
    pub fn fix(&self, own: &[String]) -> String {
        self.line("fix", &[&self.card_options, own].concat())
    }

    /// The program and its arguments as they are shown: without what is secret.
    pub fn shown(&self) -> Vec<String> {
        masked(&self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>())
    }

    /// A command line of `oomph` for this program: `own` are the options that only this command takes, ready for a shell.
    fn line(&self, command: &str, own: &[String]) -> String {
        let mut words: Vec<String> = vec!["oomph".into(), command.into()];
        words.extend_from_slice(own);
        for requirement in &self.with {
            words.extend(["--with".into(), quoted(&masked_text(requirement))]);
        }
        match self.stop.mode {
            StopMode::PeakStable => {
                if let Some(seconds) = self.stop.budget_seconds {
                    words.extend(["--budget".into(), format!("{seconds}s")]);
                }
            }
            StopMode::Steps => words.extend(["--steps".into(), self.stop.steps.to_string()]),
            StopMode::Exit => words.push("--until-exit".into()),
        }
        if let Some(timeout) = self.timeout {
            words.extend(["--timeout".into(), format!("{}s", timeout.as_secs_f64())]);
        }
        match self.values {
            Values::Small => {}
            Values::Off => words.extend(["--values".into(), "off".into()]),
            Values::AllHost => words.extend(["--values".into(), "all-host".into()]),
        }
        if let Some(ranks) = &self.ranks {
            words.extend(["--ranks".into(), ranks.clone()]);
        }
        if self.routing == Routing::Worst {
            words.extend(["--routing".into(), "worst".into()]);
        }
        if self.batches == Batches::Seen {
            words.extend(["--batches".into(), "seen".into()]);
        }
        if self.random_weights {
            words.push("--random-weights".into());
        }
        if self.allow_writes {
            words.push("--allow-writes".into());
        }
        match (self.network, self.allow_writes) {
            (Network::Read, false) | (Network::All, true) => {}
            (Network::None, _) => words.extend(["--network".into(), "none".into()]),
            (Network::Read, true) => words.extend(["--network".into(), "read".into()]),
            (Network::All, false) => words.extend(["--network".into(), "all".into()]),
        }
        words.push("--".into());
        words.extend(self.shown().iter().map(|word| quoted(word)));
        words.join(" ")
    }

    /// The options that name as many of a catalogue's card as this run has cards.
    pub fn as_many_of(&self, gpu: &str) -> Vec<String> {
        let count = self.cards.len();
        vec!["--gpu".into(), if count > 1 { format!("{gpu}:{count}") } else { gpu.to_owned() }]
    }
}

/// The ranks of a job that run: "0,1,last", "0-3", "all".
fn ranks(text: &str) -> Result<String> {
    let text: String = text.chars().filter(|character| !character.is_whitespace()).collect();
    let number = |text: &str| text.parse::<u32>().ok();
    let is_known = |name: &str| match name.split_once('-') {
        Some((first, last)) => number(first).zip(number(last)).is_some_and(|(first, last)| first <= last),
        None => matches!(name, "last" | "all") || number(name).is_some(),
    };
    if text.split(',').all(is_known) {
        return Ok(text);
    }
    Err(hinted(
        format!("--ranks `{}` does not name ranks", oomph_report::clean(&text)),
        "write numbers, ranges and `last` with commas, like 0,1,last or 0-3, or `all`",
    ))
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
