//! Runs cells: those of a program, an environment and a kind of card share one fork server, which forks one at a time
//! per core. What cannot be forked is run by an oomph of its own for each cell.
//!
//! Groups come one after another, because each has a server of its own and a signal goes to the server that runs. A cell is
//! begun only where the host has memory for it.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use oomph_launch::{Limits, PythonProgram, available_host_memory_bytes};
use oomph_report::{DryRunReport, SweepCell, Verdict};

use super::cells::Cell;
use super::sources;
use super::store::Record;
use crate::assemble::assemble;
use crate::dry_run;
use crate::fork_runner::ForkRunner;
use crate::observation::Observation;
use crate::program::Program;
use crate::run_context::{Ended, RunContext};
use crate::trial::Runner;
use crate::whole_pool;

/// A second cell is begun only while the host has so many bytes to spare: programs that load weights use that much of it.
const SPARE_MEMORY: u64 = 2 << 30;

/// How often the host's memory is looked at while a cell waits for it.
const LOOK: Duration = Duration::from_millis(500);

/// Variables that libraries read while they are loaded begin so: a server that has loaded them needs them from its start
/// (`python/oomph/server/environment.py` refuses a child that would set one later).
const BEFORE_PYTHON: [&str; 24] = [
    "PYTORCH_",
    "TORCH",
    "CUDA",
    "NVIDIA_",
    "CUDNN_",
    "CUBLAS_",
    "NCCL_",
    "GLOO_",
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "OPENBLAS_",
    "BLIS_",
    "NUMEXPR_",
    "LD_",
    "MALLOC_",
    "GLIBC_",
    "PYTHON",
    "AT_",
    "C10_",
    "TRITON_",
    "OOMPH_",
    "HF_",
];

/// What runs a cell by a process of its own.
pub type Apart<'a> = dyn Fn(&Cell) -> Result<()> + Sync + 'a;

/// How cells are run.
pub struct Running<'a> {
    /// How many at a time; `None` is one per core.
    pub jobs: Option<usize>,
    /// Whether nothing is said of the making of environments.
    pub quiet: bool,
    /// Called before a cell is run, as it begins: whether it is still wanted.
    pub begin: &'a (dyn Fn(&Cell) -> bool + Sync),
    /// Runs a cell by a process of its own and keeps its answer; `None` where cells that cannot be forked run here, one
    /// at a time.
    pub apart: Option<&'a Apart<'a>>,
    /// Called with what became of a cell. Its error ends the sweep.
    pub done: &'a (dyn Fn(&Cell, Record, &DryRunReport) -> Result<()> + Sync),
}

/// How a sweep came to its end.
#[derive(Default)]
pub struct Performed {
    /// Whether runs shared their imports.
    pub forked: bool,
    /// The signal that ended it.
    pub interrupted: Option<i32>,
}

impl Running<'_> {
    /// Runs cells. Cells that are done when it fails or is interrupted have been reported.
    ///
    /// # Errors
    /// When a run cannot be set up, or an answer cannot be kept.
    pub fn all(&self, cells: &[&Cell]) -> Result<Performed> {
        let mut performed = Performed::default();
        for group in groups(cells) {
            self.group(&group, &mut performed)?;
            if performed.interrupted.is_some() {
                break;
            }
        }
        Ok(performed)
    }

    fn group(&self, cells: &[&Cell], performed: &mut Performed) -> Result<()> {
        let Some(first) = cells.first() else { return Ok(()) };
        let context = RunContext::new_in(first.directory.clone(), first.program.clone(), self.quiet)?;
        let runner = ForkRunner::new(&context, self.jobs).with_env(early(first));
        // One cell alone takes no longer as a process of its own.
        let several = cells.len() > 1;
        if several {
            runner.prepare(&first.program.cards);
        }
        let runner: &dyn Runner = if several { &runner } else { &context };
        // The launcher watches over one program at a time, so that others have launchers of their own.
        let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let wanted = self.jobs.unwrap_or_else(cores);
        let apart = self.apart.filter(|_| several && runner.jobs() == 1 && wanted > 1);
        let queue = Mutex::new(cells.iter().copied().collect::<VecDeque<&Cell>>());
        let (busy, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let ended: Mutex<(Option<i32>, Option<anyhow::Error>)> = Mutex::default();
        let work = || {
            while !over.load(Ordering::Relaxed) {
                wait_for_memory(&busy);
                let Some(cell) = locked(&queue).pop_front() else { break };
                if !(self.begin)(cell) {
                    continue;
                }
                busy.fetch_add(1, Ordering::Relaxed);
                let result = match apart {
                    Some(apart) => apart(cell).map(|()| None),
                    None => self.one(&context, runner, cell),
                };
                busy.fetch_sub(1, Ordering::Relaxed);
                match result {
                    Ok(None) => {}
                    Ok(Some(signal)) => {
                        over.store(true, Ordering::Relaxed);
                        locked(&ended).0 = Some(signal);
                    }
                    Err(error) => {
                        over.store(true, Ordering::Relaxed);
                        locked(&ended).1.get_or_insert(error);
                    }
                }
            }
        };
        let jobs = if apart.is_some() { wanted } else { runner.jobs() }.min(cells.len());
        std::thread::scope(|scope| {
            for _ in 1..jobs {
                scope.spawn(work);
            }
            work();
        });
        performed.forked |= several && runner.jobs() > 1;
        let (interrupted, failed) = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        performed.interrupted = interrupted;
        // A signal is why the other runs failed.
        match (interrupted, failed) {
            (None, Some(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Runs one cell; the signal that ended it, if one did.
    fn one(&self, context: &RunContext, runner: &dyn Runner, cell: &Cell) -> Result<Option<i32>> {
        let Program { cards, timeout, .. } = &cell.program;
        let ended = whole_pool::run(runner, &cell.changes(), cards, Limits::of_user(*timeout), false)
            .with_context(|| format!("cannot run cell {}", cell.index))?;
        let run = match ended {
            Ended::Observed(run) => run,
            Ended::Interrupted(signal, _) => return Ok(Some(signal)),
        };
        let mut report = assemble(&cell.program.cards, &run, None);
        dry_run::complete(&mut report, &run, &cell.program, &cell.directory, false);
        let record = Record {
            cell: answered(cell, &report, &run),
            oomph: env!("CARGO_PKG_VERSION").to_owned(),
            command: cell.program.shown(),
            environment: context.environment(),
            commit: cell.commit.clone(),
            files: sources::read_by(cell, &run),
        };
        (self.done)(cell, record, &report).map(|()| None)
    }
}

/// Cells that one fork server can run, in the order of their first.
fn groups<'a>(cells: &[&'a Cell]) -> Vec<Vec<&'a Cell>> {
    let mut groups: Vec<Vec<&Cell>> = Vec::new();
    for cell in cells {
        match groups.iter_mut().find(|group| are_alike(group[0], cell)) {
            Some(group) => group.push(cell),
            None => groups.push(vec![cell]),
        }
    }
    groups
}

fn are_alike(one: &Cell, other: &Cell) -> bool {
    let program = |cell: &Cell| PythonProgram::of(&cell.program.command);
    let same_program = match (program(one), program(other)) {
        (Some(one), Some(other)) => one.is_same_program(&other),
        (None, None) => one.program.command.first() == other.program.command.first(),
        _ => false,
    };
    // A server's children may have cards of other capacities.
    let options = |cell: &Cell| -> Vec<String> {
        cell.options.iter().filter(|option| !option.starts_with("--vram=")).cloned().collect()
    };
    same_program && options(one) == options(other) && one.directory == other.directory && early(one) == early(other)
}

fn early(cell: &Cell) -> Vec<(String, String)> {
    let is_early = |(name, _): &&(String, String)| BEFORE_PYTHON.iter().any(|start| name.starts_with(start));
    cell.env.iter().filter(is_early).cloned().collect()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the host has memory for one more run; the only one that runs never waits.
fn wait_for_memory(busy: &AtomicUsize) {
    while busy.load(Ordering::Relaxed) > 0 && available_host_memory_bytes().is_some_and(|bytes| bytes < SPARE_MEMORY) {
        std::thread::sleep(LOOK);
    }
}

/// What a dry run says of its cell.
fn answered(cell: &Cell, report: &DryRunReport, run: &Observation) -> SweepCell {
    let left = |device: &&oomph_report::DeviceReport| {
        device.capacity_bytes.map_or(i128::MAX, i128::from).saturating_sub(i128::from(device.peak.process_bytes))
    };
    let fullest = report.devices.iter().min_by_key(left);
    let caught = || report.devices.iter().find_map(|device| device.caught_ooms.last());
    let died = report.oom_device().map(|(_, oom)| oom).or_else(caught);
    let last_line = || run.stderr_tail.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned);
    SweepCell {
        index: cell.index,
        id: cell.id.clone(),
        values: cell.values.clone(),
        verdict: Some(report.verdict),
        pending: None,
        gpu: fullest.map(|device| device.gpu.clone()),
        capacity_bytes: fullest.and_then(|device| device.capacity_bytes),
        peak_bytes: fullest.map(|device| device.peak.process_bytes),
        high_bytes: fullest.map(|device| device.peak.high_bytes),
        phase: died.map(|oom| oom.phase),
        step: died.and_then(|oom| oom.step),
        exit_status: Some(report.exit_status),
        message: last_line().filter(|_| report.verdict == Verdict::Failed),
        elapsed_seconds: report.elapsed_seconds,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::cells::{Places, expand};
    use std::path::PathBuf;

    use super::super::file::SweepFile;
    use super::*;

    #[test]
    fn a_server_is_shared_by_what_differs_in_arguments_capacity_and_late_variables() {
        let folder = tempfile::tempdir().unwrap();
        let path: PathBuf = folder.path().join("sweep.yaml");
        let text = "program: python {script} {n}\n\
                    matrix: {script: [a.py, b.py], gpu: [t4, l4], vram: [2GiB, 4GiB], conf: ['x:1', 'x:2'], n: [1, 2]}\n\
                    env: {PYTORCH_ALLOC_CONF: '{conf}', MY_SIZE: '{n}'}\n";
        std::fs::write(&path, text).unwrap();
        let places = Places { folder: folder.path(), commits: &BTreeMap::new() };
        let cells = expand(&SweepFile::read(&path).unwrap(), &places).unwrap();
        let groups = groups(&cells.iter().collect::<Vec<_>>());
        assert_eq!(cells.len(), 32);
        assert_eq!(groups.len(), 8, "script, card and allocator's settings");
        assert!(groups.iter().all(|group| group.len() == 4));
    }
}
