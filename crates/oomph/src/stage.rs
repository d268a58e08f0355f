//! The stage on which a program runs: virtual cards, a run folder, and what is left when it ends.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use oomph_launch::{HookConfig, Launch, Output, Prepared, ProgramKind, RunFolder, Runtime};
use oomph_ledger::{DeviceDescription, Ledger};

use crate::assemble::Observation;
use crate::plan::{Card, DryRunPlan};
use crate::whose;

/// Names a libcudnn that answers without a GPU, for programs whose own does not. A user may set it too.
const CUDNN_VARIABLE: &str = "OOMPH_CUDNN";

/// Everything that is the same in every run of one program.
pub struct Stage<'a> {
    /// What was meant.
    pub plan: &'a DryRunPlan,
    /// The program, ready to start.
    pub prepared: &'a Prepared,
    /// The virtual GPU and the hook.
    pub runtime: &'a Runtime,
    /// A cuDNN of oomph's own environments, asked where the program's is too old to answer without a GPU.
    pub cudnn: Option<PathBuf>,
}

/// How a run came to its end.
pub enum Ended {
    /// With something to tell.
    Observed(Observation),
    /// By a signal to oomph.
    Interrupted(i32),
}

impl Stage<'_> {
    /// Runs the program on these cards and reads what it left. The recordings are copied to `keep`.
    ///
    /// # Errors
    /// When the run cannot be set up, or its books cannot be read.
    pub fn observe(&self, cards: &[Card], output: Output, keep: Option<&Path>) -> Result<Ended> {
        let plan = self.plan;
        let folder = RunFolder::create(&HookConfig {
            stop: plan.stop,
            values: plan.values,
            allow_writes: plan.allow_writes,
            random_weights: plan.random_weights,
            program_root: self.prepared.directory.clone(),
            history: plan.history,
        })?;
        let devices: Vec<DeviceDescription> =
            cards.iter().enumerate().map(|(index, card)| card.description(index)).collect();
        let path = folder.ledger();
        Ledger::create(&path, &devices).with_context(|| format!("cannot write {}", path.display()))?;
        // Python packages bring the CUDA libraries along; a program of machine code may rely on the toolkit's.
        let absent = !matches!(self.prepared.kind, ProgramKind::Python { .. });
        let mut launch = Launch::prepared(self.prepared)
            .virtual_gpu(self.runtime, &folder, absent)?
            .output(output)
            .timeout(plan.timeout);
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
        if histories.is_empty() && (keep.is_some() || plan.trace.is_some()) {
            warnings.push(
                "no process left a recording of its memory, so none was written: only PyTorch programs that use the GPU, \
                 and do not record by themselves, leave one"
                    .into(),
            );
        }
        Ok(Ended::Observed(Observation {
            ledger,
            hooks: folder.reports(),
            memory,
            warnings,
            exit_status: outcome.exit.shell_status(),
            timed_out: outcome.timed_out,
            elapsed: outcome.elapsed,
        }))
    }
}
