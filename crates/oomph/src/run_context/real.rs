//! Real runs: on this machine's own GPU, or on a virtual one instead, with writes that are kept.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use oomph_launch::{
    Batches, Guard, HookConfig, HookReports, Launch, Network, Output, Pools, Routing, RunFolder, Stop, StopMode,
    UnknownSizes, Values, missing_libraries,
};
use oomph_ledger::{DeviceDescription, Ledger};

use super::{CUDNN_VARIABLE, RunContext};
use crate::cards::Card;
use crate::changes::Changes;
use crate::recordings;

/// Events that PyTorch's recording keeps per card in a run that may take days. One with its stack takes some kilobytes.
const RING: u32 = 100_000;

/// How long a program has, once it was asked to end: trainers save a checkpoint then.
const TIME_TO_SAVE: Duration = Duration::from_secs(120);

/// How closely a run is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recording {
    /// Not at all.
    Off,
    /// PyTorch's own history of its allocator.
    Light,
    /// That, and whose each block is.
    Full,
}

/// A run whose results count: its writes and uploads go where the program says, and it runs to its end.
#[derive(Clone, Copy)]
pub struct RealRun<'a> {
    /// What is different from the program as it was typed.
    pub changes: &'a Changes,
    /// Where the program's output goes.
    pub output: Output,
    /// Virtual cards in place of the machine's own.
    pub stand_in: Option<&'a [Card]>,
    /// How closely it is recorded.
    pub recording: Recording,
    /// What the hook does in addition to observing.
    pub guard: &'a Guard,
    /// Where the recordings are copied to, if it dies.
    pub keep: Option<&'a Path>,
    /// What is done at the same time in a thread of its own.
    pub meanwhile: Option<Meanwhile<'a>>,
}

/// Work that goes on while a program runs, with the run's folder. The run is over when both have ended.
pub type Meanwhile<'a> = &'a (dyn Fn(&RunFolder, &Ending) + Sync);

/// Whether a running program has ended, for the work done at the same time.
#[derive(Debug, Default)]
pub struct Ending {
    /// It has ended.
    pub has_ended: AtomicBool,
}

/// What became of a run that counts.
#[derive(Debug)]
pub struct RealOutcome {
    /// As a shell would say it.
    pub exit_status: i32,
    /// The signal to oomph that ended it.
    pub interrupted: Option<i32>,
    /// What the hook saw.
    pub hooks: HookReports,
    /// How long it ran.
    pub elapsed: Duration,
    /// Whether a recording was kept.
    pub kept: bool,
}

impl RunContext {
    /// Runs the program for real.
    ///
    /// # Errors
    /// When the run cannot be set up.
    pub fn perform_for_real(&self, run: &RealRun<'_>) -> Result<RealOutcome> {
        let RealRun { changes, output, stand_in, recording, guard, keep, meanwhile } = *run;
        let folder = RunFolder::create(&HookConfig {
            schema: Default::default(),
            stop: Stop { mode: StopMode::Exit, steps: 0, budget_seconds: None },
            follow: false,
            values: if stand_in.is_some() { self.program.values } else { Values::Off },
            allow_writes: true,
            network: Network::All,
            random_weights: stand_in.is_some() && self.program.random_weights,
            program_root: self.prepared.directory.clone(),
            history: recording != Recording::Off,
            history_entries: Some(RING),
            names: recording == Recording::Full,
            remedies: changes.remedies.clone(),
            edited: changes.edited.clone(),
            ranks: Some("all".into()),
            routing: Routing::Balanced,
            batches: Batches::Seen,
            unknown_sizes: UnknownSizes::Most,
            pools: Pools::AsOnACard,
            guard: Some(guard.clone()),
            reads: false,
            bytecode: None,
            compare: None,
        })?;
        let prepared = self.prepared_with(changes, &folder)?;
        let mut launch = Launch::prepared(&prepared);
        launch = match stand_in {
            None => launch.hook_only(&self.runtime, &folder),
            Some(cards) => {
                let cards = cards.iter().enumerate().map(|(index, card)| card.description(index));
                let devices: Vec<DeviceDescription> = cards.collect();
                let path = folder.ledger();
                Ledger::create(&path, &devices).with_context(|| format!("cannot write {}", path.display()))?;
                let libraries = missing_libraries(&self.prepared.kind, self.prepared.python.as_ref());
                let launch = launch.virtual_gpu(&self.runtime, &folder, &libraries)?;
                match (&self.cudnn, std::env::var_os(CUDNN_VARIABLE)) {
                    (Some(cudnn), None) => launch.env(CUDNN_VARIABLE, cudnn),
                    _ => launch,
                }
            }
        }
        .output(output)
        .grace(TIME_TO_SAVE);
        for (name, value) in &changes.env {
            launch = launch.env(name, value);
        }
        let ending = Ending::default();
        let outcome = std::thread::scope(|scope| {
            if let Some(meanwhile) = meanwhile {
                scope.spawn(|| meanwhile(&folder, &ending));
            }
            let outcome = launch.run();
            ending.has_ended.store(true, Ordering::Relaxed);
            outcome
        })?;
        // The program has run for real: what its hook said is not understood, and its exit status counts all the same.
        if let Err(error) = folder.check_versions() {
            crate::output::say(&format!("oomph: warning: {error}"));
        }
        let hooks = folder.reports();
        let histories = folder.histories();
        let kept = match keep {
            Some(path) if !histories.is_empty() => {
                let ranks = hooks.reports.iter().filter_map(|hook| Some((hook.pid, hook.rank?))).collect();
                recordings::keep(&histories, &ranks, path).is_ok()
            }
            _ => false,
        };
        Ok(RealOutcome {
            exit_status: outcome.exit.shell_status(),
            interrupted: outcome.interrupted,
            hooks,
            elapsed: outcome.elapsed,
            kept,
        })
    }
}
