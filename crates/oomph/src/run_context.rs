//! Runs a program: the virtual cards, the run folder, and what is read from it when the program ends.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use oomph_launch::{
    Batches, CacheDir, Hold, HookConfig, InstallerOutput, Launch, Limits, Network, Outcome, Output, Pools, Prepared,
    Problem, ProgramKind, Request, RunFolder, Runtime, Stop as StopAt, StopMode, Values, Waits, handle_signals,
    host_memory_bytes, missing_libraries, nearest_cudnn, prepare,
};
use oomph_ledger::{DeviceDescription, Ledger};
use oomph_protocol::compared::Compared;
use oomph_report::{WriteFloor, Writes, WrittenFile};

use crate::cards::Card;
use crate::changes::Changes;
use crate::failure::hinted;
use crate::observation::{Cut, Observation};
use crate::program::Program;
use crate::{built, elsewhere, embedded, output, recordings, waits};

mod real;

pub use real::{Ending, Meanwhile, RealOutcome, RealRun, Recording};

/// Names a libcudnn that answers without a GPU, for programs whose own does not. A user may set it too.
const CUDNN_VARIABLE: &str = "OOMPH_CUDNN";

/// Everything that is the same in every run of one program.
pub struct RunContext {
    /// The program as it was meant.
    pub program: Program,
    /// The folder it runs in.
    pub directory: PathBuf,
    /// The program, ready to start.
    prepared: Prepared,
    /// The virtual GPU and the hook.
    runtime: Runtime,
    /// Where environments and runtime files are kept.
    cache: CacheDir,
    /// A cuDNN of oomph's own environments, asked where the program's is too old to answer without a GPU.
    cudnn: Option<PathBuf>,
    /// Whether nothing is said on the way.
    quiet: bool,
    /// Keeps what runs share in the cache from being removed.
    _hold: Hold,
}

/// When a run that is compared ends: it goes as far as it was asked to.
const UNTIL_EXIT: StopAt = StopAt { mode: StopMode::Exit, steps: 0, budget_seconds: None };

/// What a run with real numbers left.
#[derive(Debug)]
pub struct Computed {
    /// What it computed, and the numbers of it.
    pub seen: Option<(Compared, Vec<f64>)>,
    /// The signal to oomph that ended it.
    pub interrupted: Option<i32>,
    /// How long it ran, without the time in which other work had its processors.
    pub own: Duration,
    /// Whether it was ended because its time was up.
    pub timed_out: bool,
    /// Whether it ended with another status than 0.
    pub failed: bool,
    /// The end of its standard error.
    pub stderr_tail: String,
}

/// One run of the program.
#[derive(Clone, Copy)]
pub struct RunRequest<'a> {
    /// What is different from the program as it was typed.
    pub changes: &'a Changes,
    /// The virtual cards.
    pub cards: &'a [Card],
    /// Where the program's output goes.
    pub output: Output,
    /// When the launcher ends the run.
    pub limits: Limits<'a>,
    /// Whether it is recorded whose memory it is.
    pub history: bool,
    /// Where the recordings are copied to.
    pub keep: Option<&'a Path>,
    /// Whether the program may write where it says, if the user allows it: only once, whatever else is tried.
    pub writes: bool,
}

/// How a run came to its end.
pub enum Ended {
    /// With something to tell.
    Observed(Box<Observation>),
    /// By a signal to oomph, with what was seen until then, where that could be read.
    Interrupted(i32, Option<Box<Observation>>),
}

impl RunContext {
    /// Prepares the program's Python, the virtual GPU and the signal handlers.
    ///
    /// # Errors
    /// When something that is needed is missing: the platform, the program, a torch that can use the virtual GPU.
    pub fn new(program: Program, quiet: bool) -> Result<Self> {
        let directory = std::env::current_dir().context("cannot find the current folder")?;
        Self::new_in(directory, program, quiet)
    }

    /// As [`Self::new`], for a program that runs in another folder than this process.
    ///
    /// # Errors
    /// As of [`Self::new`].
    pub fn new_in(directory: PathBuf, program: Program, quiet: bool) -> Result<Self> {
        let (context, problem) = Self::made_ready(directory, program, quiet)?;
        match problem {
            Some(problem) => Err(anyhow::anyhow!("{problem}")),
            None => Ok(context),
        }
    }

    /// As [`Self::new`], for a program that runs on a real GPU: returns also what keeps it from the virtual one.
    ///
    /// # Errors
    /// When something that is needed is missing: the platform, the program.
    pub fn new_for_real(program: Program, quiet: bool) -> Result<(Self, Option<Problem>)> {
        let directory = std::env::current_dir().context("cannot find the current folder")?;
        Self::made_ready(directory, program, quiet)
    }

    fn made_ready(directory: PathBuf, program: Program, quiet: bool) -> Result<(Self, Option<Problem>)> {
        let Some(files) = embedded::runtime() else {
            return Err(elsewhere::refusal());
        };
        handle_signals()?;
        let cache = CacheDir::locate()?;
        let hold = cache.hold();
        let prepared = prepare(&Request {
            command: &program.command,
            with: &program.with,
            directory: &directory,
            cache: &cache,
            installer_output: if quiet { InstallerOutput::Quiet } else { InstallerOutput::of_stderr() },
            notify: &|line: &str| output::tell(line, quiet),
        })?;
        let problem = prepared.problem.clone();
        let runtime = files.unpack(&cache)?;
        let cudnn = nearest_cudnn(&cache);
        Ok((Self { program, directory, prepared, runtime, cache, cudnn, quiet, _hold: hold }, problem))
    }

    /// What kind of program it is.
    pub fn kind(&self) -> &ProgramKind {
        &self.prepared.kind
    }

    /// The versions of its Python and of what its Python has for GPUs, in words; `None` where it is not Python program.
    pub fn environment(&self) -> Option<String> {
        let python = self.prepared.python.as_ref()?;
        let torch = python.torch.as_ref().map(|torch| format!(", torch {}", torch.version)).unwrap_or_default();
        Some(format!("Python {}{torch}", python.version))
    }

    /// Runs the program as it was typed on these cards and reads what it left. The recordings are copied to `keep`.
    ///
    /// # Errors
    /// As of [`Self::perform`].
    pub fn observe(&self, cards: &[Card], output: Output, keep: Option<&Path>) -> Result<Ended> {
        let changes = Changes::none(&self.program.command);
        let (limits, history) = (Limits::of_user(self.program.timeout), self.program.history);
        self.perform(&RunRequest { changes: &changes, cards, output, limits, history, keep, writes: true })
    }

    /// Runs the program and reads what it left.
    ///
    /// # Errors
    /// When the run cannot be set up, or its books cannot be read.
    pub fn perform(&self, request: &RunRequest<'_>) -> Result<Ended> {
        let (folder, launch) = self.prepare_run(request)?;
        let outcome = launch.run_within(request.limits.own)?;
        Self::left_by(&folder, outcome, request.keep)
    }

    /// Runs the program with real numbers, as its changes say (`Changes::compare`), and gives what it computed, with the end of its
    /// standard error. `None` where nothing was recorded.
    ///
    /// # Errors
    /// As of [`Self::perform`].
    pub fn compute(&self, changes: &Changes, cards: &[Card], limits: Limits<'_>) -> Result<Computed> {
        let output = Output::Capture;
        let request = RunRequest { changes, cards, output, limits, history: false, keep: None, writes: false };
        let (folder, launch) = self.prepare_run(&request)?;
        let outcome = launch.run_within(limits.own)?;
        Ok(Computed {
            seen: folder.compared(),
            interrupted: outcome.interrupted,
            own: outcome.own,
            timed_out: outcome.timed_out || outcome.given_up,
            failed: outcome.exit.shell_status() != 0,
            stderr_tail: outcome.stderr_tail,
        })
    }

    /// The run folder of a run, and the program ready to start in it.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn prepare_run(&self, request: &RunRequest<'_>) -> Result<(RunFolder, Launch)> {
        let RunRequest { changes, cards, output, limits, history, keep: _, writes } = *request;
        let program = &self.program;
        let folder = RunFolder::create(&HookConfig {
            schema: Default::default(),
            stop: if changes.compare.is_some() { UNTIL_EXIT } else { program.stop },
            follow: changes.compare.is_none(),
            values: if changes.compare.is_some() { Values::AllHost } else { program.values },
            allow_writes: program.allow_writes && writes,
            network: program.network,
            random_weights: program.random_weights,
            program_root: self.prepared.directory.clone(),
            history,
            history_entries: None,
            names: true,
            remedies: changes.remedies.clone(),
            edited: changes.edited.clone(),
            ranks: program.ranks.as_ref().map(ToString::to_string),
            routing: program.routing,
            batches: if changes.compare.is_some() { Batches::Seen } else { program.batches },
            unknown_sizes: changes.unknown_sizes,
            pools: if cards.iter().all(|card| card.unbounded) { Pools::AlwaysAsNeeded } else { changes.pools },
            guard: None,
            reads: program.reads,
            bytecode: self.cache.bytecode(),
            compare: changes.compare.as_deref().cloned(),
        })?;
        if program.device_log {
            folder.log_devices()?;
        }
        let devices: Vec<DeviceDescription> =
            cards.iter().enumerate().map(|(index, card)| card.description(index)).collect();
        let path = folder.ledger();
        Ledger::create(&path, &devices).with_context(|| format!("cannot write {}", path.display()))?;
        let libraries = missing_libraries(&self.prepared.kind, self.prepared.python.as_ref());
        let prepared = self.prepared_with(changes, &folder)?;
        let shown = !self.quiet && matches!(output, Output::Inherit | Output::StdoutToStderr);
        let says = shown.then_some(waits::tell as fn(&Waits));
        let mut launch = Launch::prepared(&prepared)
            .virtual_gpu(&self.runtime, &folder, &libraries)?
            .output(output)
            .ends_servers(program.stop.mode != StopMode::Exit)
            .reports_waits(says)
            .timeout(limits.clock);
        if !(program.allow_writes && writes) {
            launch = launch.private(&folder, &self.cache);
        }
        if program.network == Network::None {
            launch = launch.without_network();
        }
        if let (Some(cudnn), None) = (&self.cudnn, std::env::var_os(CUDNN_VARIABLE)) {
            launch = launch.env(CUDNN_VARIABLE, cudnn);
        }
        for (name, value) in &changes.env {
            launch = launch.env(name, value);
        }
        Ok((folder, launch))
    }

    /// The program with the words of a run, whose changed files are written into its folder.
    fn prepared_with(&self, changes: &Changes, folder: &RunFolder) -> Result<Prepared> {
        let path = folder.path();
        changes.write_files(path).with_context(|| format!("cannot write to {}", path.display()))?;
        Ok(Prepared { arguments: changes.command_in(path).split_off(1), ..self.prepared.clone() })
    }

    /// Reads what a run left. The recordings are copied to `keep`.
    ///
    /// # Errors
    /// When its books cannot be read.
    pub fn left_by(folder: &RunFolder, outcome: Outcome, keep: Option<&Path>) -> Result<Ended> {
        let interrupted = outcome.interrupted;
        match (interrupted, Self::observed_in(folder, outcome, keep)) {
            (Some(signal), seen) => Ok(Ended::Interrupted(signal, seen.ok().map(Box::new))),
            (None, seen) => Ok(Ended::Observed(Box::new(seen?))),
        }
    }

    fn observed_in(folder: &RunFolder, outcome: Outcome, keep: Option<&Path>) -> Result<Observation> {
        let path = folder.ledger();
        let ledger = Ledger::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if let Some(limit) = ledger.host_limits().first() {
            return Err(hinted(
                format!("the host refused addresses for memory that the card could hold: {limit}"),
                "the virtual GPU needs as many addresses as the card has bytes, though hardly any memory; raise the limit",
            ));
        }
        folder.check_versions()?;
        let histories = folder.histories();
        let mut warnings = Vec::new();
        let memory = recordings::load(&histories, &mut warnings);
        if let Some(card) = folder.write_floor().real_cards_in_reach().first() {
            warnings.push(format!(
                "this machine has a real GPU ({}) that oomph cannot hide here: a child process that clears LD_PRELOAD \
                 could use it",
                card.display()
            ));
        }
        let hooks = folder.reports();
        let mut unkept = None;
        if let Some(path) = keep {
            let ranks = hooks.reports.iter().filter_map(|hook| Some((hook.pid, hook.rank?))).collect();
            // The answer is worth more than the recording, and is given first.
            unkept = recordings::keep(&histories, &ranks, path).err().map(|error| format!("{error:#}"));
        }
        // Who trains, or is one rank of many, listens for its own kind and not for requests.
        let serves = |hook: &oomph_launch::HookReport| hook.optimizer_steps == 0 && hook.world_size.unwrap_or(1) <= 1;
        let cut = match (outcome.interrupted, outcome.timed_out, outcome.waited) {
            (Some(_), ..) => Some(Cut::Interrupted),
            (None, false, true) if hooks.reports.iter().all(serves) => Some(Cut::Listening),
            (None, false, false) if outcome.given_up => Some(Cut::Waiting),
            (None, true, _) | (None, _, true) => Some(Cut::TimeUp),
            (None, false, false) => None,
        };
        let (mut activities, mut refusals) = (folder.activities(), folder.refusals());
        let built = built::keep(folder, &mut activities, &mut refusals);
        Ok(Observation {
            ledger,
            hooks,
            memory,
            activities,
            refusals,
            built,
            warnings,
            exit_status: outcome.exit.shell_status(),
            cut,
            waits: outcome.waits,
            elapsed: outcome.elapsed,
            own: outcome.own,
            stderr_tail: outcome.stderr_tail,
            host_kills: folder.host_kills(),
            host_bytes: host_memory_bytes(),
            writes: writes(folder),
            unkept,
        })
    }
}

/// What a run wrote that was kept away from the user's files.
fn writes(folder: &RunFolder) -> Option<Writes> {
    let written = folder.written()?;
    let (kept_away_by, reason) = match folder.write_floor() {
        oomph_launch::WriteFloor::Kernel { user_namespace: false, .. } => (WriteFloor::Kernel, None),
        oomph_launch::WriteFloor::Kernel { user_namespace: true, .. } => (WriteFloor::UserNamespace, None),
        oomph_launch::WriteFloor::Fence { reason } => (WriteFloor::Fence, Some(reason)),
        oomph_launch::WriteFloor::Hook { reason } => (WriteFloor::Hook, Some(reason)),
    };
    let files = written
        .files
        .iter()
        .map(|file| WrittenFile { path: file.path.to_string_lossy().into_owned(), bytes: file.bytes });
    Some(Writes { kept_away_by, reason, count: written.count, bytes: written.bytes, files: files.collect() })
}
