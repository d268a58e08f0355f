//! The stage on which a program runs: virtual cards, a run folder, and what is left when it ends.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use oomph_launch::{
    CacheDir, HookConfig, InstallerOutput, Launch, Output, Prepared, ProgramKind, Request, RunFolder, Runtime,
    handle_signals, newest_cudnn, prepare,
};
use oomph_ledger::{DeviceDescription, Ledger};

use crate::assemble::Observation;
use crate::cards::Card;
use crate::failure::hinted;
use crate::program::Program;
use crate::{embedded, output, whose};

/// Names a libcudnn that answers without a GPU, for programs whose own does not. A user may set it too.
const CUDNN_VARIABLE: &str = "OOMPH_CUDNN";

/// Everything that is the same in every run of one program.
pub struct Stage {
    /// The program as it was meant.
    pub program: Program,
    /// The folder it runs in.
    pub directory: PathBuf,
    /// The program, ready to start.
    prepared: Prepared,
    /// The virtual GPU and the hook.
    runtime: Runtime,
    /// A cuDNN of oomph's own environments, asked where the program's is too old to answer without a GPU.
    cudnn: Option<PathBuf>,
}

/// How a run came to its end.
pub enum Ended {
    /// With something to tell.
    Observed(Box<Observation>),
    /// By a signal to oomph.
    Interrupted(i32),
}

impl Stage {
    /// Makes everything ready: the program's Python, the virtual GPU, and the handlers of signals.
    ///
    /// # Errors
    /// When something that is needed is missing: the platform, the program, a torch that can use the virtual GPU.
    pub fn set(program: Program, quiet: bool) -> Result<Self> {
        let Some(files) = embedded::runtime() else {
            return Err(hinted(
                "programs can be run on the virtual GPU on Linux only",
                "use WSL2 on Windows, or a Linux container elsewhere",
            ));
        };
        handle_signals()?;
        let directory = std::env::current_dir().context("cannot tell the current folder")?;
        let cache = CacheDir::locate()?;
        let prepared = prepare(&Request {
            command: &program.command,
            with: &program.with,
            directory: &directory,
            cache: &cache,
            installer_output: if quiet { InstallerOutput::Quiet } else { InstallerOutput::of_stderr() },
            notify: &|line: &str| output::tell(line, quiet),
        })?;
        if let Some(problem) = &prepared.problem {
            return Err(anyhow::anyhow!("{problem}"));
        }
        let runtime = files.unpack(&cache)?;
        Ok(Self { program, directory, prepared, runtime, cudnn: newest_cudnn(&cache) })
    }

    /// Runs the program on these cards and reads what it left. The recordings are copied to `keep`.
    ///
    /// # Errors
    /// When the run cannot be set up, or its books cannot be read.
    pub fn observe(&self, cards: &[Card], output: Output, keep: Option<&Path>) -> Result<Ended> {
        let program = &self.program;
        let folder = RunFolder::create(&HookConfig {
            stop: program.stop,
            values: program.values,
            allow_writes: program.allow_writes,
            random_weights: program.random_weights,
            program_root: self.prepared.directory.clone(),
            history: program.history,
        })?;
        let devices: Vec<DeviceDescription> =
            cards.iter().enumerate().map(|(index, card)| card.description(index)).collect();
        let path = folder.ledger();
        Ledger::create(&path, &devices).with_context(|| format!("cannot write {}", path.display()))?;
        // Python packages bring the CUDA libraries along; a program of machine code may rely on the toolkit's.
        let absent = !matches!(self.prepared.kind, ProgramKind::Python { .. });
        let mut launch = Launch::prepared(&self.prepared)
            .virtual_gpu(&self.runtime, &folder, absent)?
            .output(output)
            .timeout(program.timeout);
        if let (Some(cudnn), None) = (&self.cudnn, std::env::var_os(CUDNN_VARIABLE)) {
            launch = launch.env(CUDNN_VARIABLE, cudnn);
        }
        let outcome = launch.run()?;
        if let Some(signal) = outcome.interrupted {
            return Ok(Ended::Interrupted(signal));
        }
        let ledger = Ledger::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let histories = folder.histories();
        let mut warnings = Vec::new();
        let memory = whose::load(&histories, &mut warnings);
        if let Some(path) = keep {
            whose::keep(&histories, path)?;
        }
        Ok(Ended::Observed(Box::new(Observation {
            ledger,
            hooks: folder.reports(),
            memory,
            warnings,
            exit_status: outcome.exit.shell_status(),
            timed_out: outcome.timed_out,
            elapsed: outcome.elapsed,
        })))
    }
}
