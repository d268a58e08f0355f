//! A program, the virtual cards it runs on, and the rule by which its run ends: what the options that `dry-run`, `fix`
//! and `tune` share mean together.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::Result;
use oomph_gpu::nvml::{self, InstalledGpu};
use oomph_launch::{Batches, Network, Routing, Stop, StopMode, Values, masked, masked_text};

use crate::cards::{Card, cards};
use crate::cli::{self, ProgramArgs};
use crate::failure::hinted;
use crate::shell_words::quoted;
use crate::syntax::{NamedCards, Ranks};

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
    /// Which ranks of a job run; `None` is the hook's default.
    pub ranks: Option<Ranks>,
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
    /// When there are too many cards, or options contradict each other.
    pub fn new(args: ProgramArgs) -> Result<Self> {
        Self::on(args, || Ok(nvml::installed()?))
    }

    /// As [`Self::new`], with the question for the installed cards apart, so that it can be tested.
    fn on(args: ProgramArgs, installed: impl FnOnce() -> Result<Vec<InstalledGpu>>) -> Result<Self> {
        let named: Vec<NamedCards> = args.gpu.iter().map(|cards| cards.value).collect();
        let cards = cards(&named, args.vram.as_ref().map(|vram| vram.value.0), installed)?;
        let mut card_options = Vec::new();
        if !args.gpu.is_empty() {
            let names: Vec<&str> = args.gpu.iter().map(|cards| cards.text.as_str()).collect();
            card_options.extend(["--gpu".into(), quoted(&names.join(","))]);
        }
        if let Some(vram) = &args.vram {
            card_options.extend(["--vram".into(), quoted(&vram.text)]);
        }
        let stop = match (args.steps, args.until_exit) {
            (Some(steps), _) => Stop { mode: StopMode::Steps, steps, budget_seconds: None },
            (None, true) => Stop { mode: StopMode::Exit, steps: STABLE_STEPS, budget_seconds: None },
            (None, false) => {
                let budget_seconds = args.budget.map(|budget| u32::try_from(budget.as_secs()).unwrap_or(u32::MAX));
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
            timeout: args.timeout,
            values: match args.values {
                cli::Values::Off => Values::Off,
                cli::Values::Small => Values::Small,
                cli::Values::AllHost => Values::AllHost,
            },
            ranks: args.ranks,
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
            words.extend(["--ranks".into(), ranks.to_string()]);
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

    /// The options that name as many of this run's cards: the last one is repeated.
    pub fn with_cards(&self, count: usize) -> Vec<String> {
        let mut groups: Vec<(&str, usize)> = Vec::new();
        for index in 0..count {
            let Some(card) = self.cards.get(index).or(self.cards.last()) else { break };
            match groups.last_mut() {
                Some((id, times)) if *id == card.gpu.id => *times += 1,
                _ => groups.push((&card.gpu.id, 1)),
            }
        }
        let names =
            groups.into_iter().map(|(id, times)| if times > 1 { format!("{id}:{times}") } else { id.to_owned() });
        let mut options = vec!["--gpu".into(), names.collect::<Vec<_>>().join(",")];
        // What the user typed for their size stays.
        options.extend(self.card_options.iter().skip_while(|option| *option != "--vram").cloned());
        options
    }

    /// The options that name as many of a catalogue's card as this run has cards.
    pub fn as_many_of(&self, gpu: &str) -> Vec<String> {
        let count = self.cards.len();
        vec!["--gpu".into(), if count > 1 { format!("{gpu}:{count}") } else { gpu.to_owned() }]
    }
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
