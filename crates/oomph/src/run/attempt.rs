//! Evaluates one start of the program.

use std::path::Path;

use oomph_gpu::size;
use oomph_launch::{HookCheckpoint, HookOom, HookProgress, HookReport, Phase};
use oomph_protocol::journal::Death;

use crate::run_context::RealOutcome;

/// What one start came to.
pub struct Attempt {
    /// The out-of-memory error that ended it.
    pub death: Option<Death>,
    /// Whether it saved a checkpoint and ended because it was asked to.
    pub left: bool,
    /// What its trainer finished.
    pub checkpoints: Vec<HookCheckpoint>,
    /// The optimizer steps of the whole training, where the trainer counts them; else those of this start.
    pub steps: u64,
    /// The step that it resumed at, as its trainer counted.
    pub resumed_at_step: Option<u64>,
    /// The samples of an optimizer step, where the trainer says so.
    pub effective_batch: Option<u64>,
    /// What was noticed before it died, a sentence each.
    pub signs: Vec<String>,
    /// What PyTorch reserved at most on one card, in bytes.
    pub reserved_peak_bytes: Option<u64>,
    /// What is not as it was meant, a sentence each.
    pub warnings: Vec<String>,
}

impl Attempt {
    /// Reads what the hook left. `recording` is where one was kept, if it was; `from` is what the program was to resume from.
    pub fn of(outcome: &RealOutcome, recording: &Path, from: Option<&HookCheckpoint>) -> Self {
        let hooks = &outcome.hooks.reports;
        let progress: Vec<&HookProgress> = hooks.iter().filter_map(|hook| hook.progress.as_ref()).collect();
        let mut checkpoints: Vec<HookCheckpoint> = Vec::new();
        for checkpoint in progress.iter().flat_map(|one| &one.checkpoints) {
            // Several ranks name the same.
            if !checkpoints.contains(checkpoint) {
                checkpoints.push(checkpoint.clone());
            }
        }
        let of_trainer = progress.iter().find(|one| one.step.is_some());
        let counted = hooks.iter().map(|hook| hook.optimizer_steps).max().unwrap_or(0);
        let resumed_at_step = from.and(of_trainer.and_then(|one| one.started_at_step));
        let dead = if outcome.exit_status == 0 { None } else { hooks.iter().find_map(fatal) };
        let kept = outcome.kept.then(|| recording.to_owned());
        Self {
            death: dead.map(|(hook, oom)| Death {
                requested_bytes: oom.requested_bytes,
                reserved_bytes: oom.reserved_bytes,
                phase: oom.phase,
                step: oom.step,
                file: oom.site.as_ref().map(|site| site.file.clone()),
                line: oom.site.as_ref().map(|site| site.line),
                rank: hook.world_size.is_some_and(|size| size > 1).then_some(hook.rank).flatten(),
                recording: kept,
            }),
            left: progress.iter().any(|one| one.left),
            steps: of_trainer.and_then(|one| one.step).unwrap_or(counted),
            effective_batch: progress.iter().find_map(|one| one.batch).map(|batch| batch.effective()),
            reserved_peak_bytes: hooks
                .iter()
                .flat_map(|hook| &hook.devices)
                .filter_map(|device| device.reserved_peak_bytes)
                .max(),
            warnings: from.map(|from| amiss(from, &progress, resumed_at_step)).unwrap_or_default(),
            signs: progress.iter().flat_map(|one| one.signs.iter().cloned()).collect(),
            checkpoints,
            resumed_at_step,
        }
    }
}

/// The out-of-memory error that ended a process.
fn fatal(hook: &HookReport) -> Option<(&HookReport, &HookOom)> {
    hook.oom.as_ref().filter(|oom| oom.fatal).map(|oom| (hook, oom))
}

/// What speaks against the program's having resumed where it was meant to.
fn amiss(from: &HookCheckpoint, progress: &[&HookProgress], at: Option<u64>) -> Vec<String> {
    let mut warnings = Vec::new();
    let resumed = progress.iter().any(|one| one.resumed.as_ref().is_some_and(|path| *path == from.path));
    if !resumed {
        warnings.push(format!("the program did not resume from {}", from.path.display()));
    }
    if let Some(at) = at.filter(|at| *at != from.step) {
        warnings.push(format!("it resumed at step {at}, and the checkpoint is of step {}", from.step));
    }
    warnings
}

/// A death in one line.
pub fn described(death: &Death) -> String {
    let place = match (&death.file, death.line) {
        (Some(file), Some(line)) => {
            let name = Path::new(file).file_name().map_or(file.clone(), |name| name.to_string_lossy().into_owned());
            format!(" at {}:{line}", oomph_report::clean(&name))
        }
        _ => String::new(),
    };
    let rank = death.rank.map_or(String::new(), |rank| format!(" on rank {rank}"));
    let phase = if death.phase == Phase::Other { String::new() } else { format!(", {}", death.phase) };
    let requested = if death.requested_bytes == 0 {
        String::new()
    } else {
        format!(": {} requested", size::format(death.requested_bytes))
    };
    let reserved = death.reserved_bytes.map_or(String::new(), |bytes| format!(", {} reserved", size::format(bytes)));
    format!("the program ran out of GPU memory{rank}{place} in step {}{phase}{requested}{reserved}", death.step)
}
