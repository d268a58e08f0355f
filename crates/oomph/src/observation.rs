//! Reads into memory what a run left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use oomph_launch::{HookFailure, HookReport, HookReports, Waits};
use oomph_ledger::Ledger;
use oomph_report::Writes;
use tempfile::TempDir;

use crate::recordings::ProcessMemory;

/// What a run left behind.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The books.
    pub ledger: Ledger,
    /// What the hook saw.
    pub hooks: HookReports,
    /// The memory over time of the processes that left a recording.
    pub memory: Vec<ProcessMemory>,
    /// The memory calls of the processes that ended in good order.
    pub activities: Vec<oomph_launch::activity::Activity>,
    /// What the cards refused last to each process, as far as the calls that led to it are known.
    pub refusals: Vec<oomph_launch::activity::Refusal>,
    /// Copies of what the program built and ran, which these calls name.
    #[expect(dead_code, reason = "the copies last as long as it does")]
    pub built: Option<Arc<TempDir>>,
    /// What could not be read of what was left.
    pub warnings: Vec<String>,
    /// The exit status, as a shell shows it.
    pub exit_status: i32,
    /// What ended it before it was done.
    pub cut: Option<Cut>,
    /// It waited for something when it was ended.
    pub waits: Option<Waits>,
    /// How long it ran.
    pub elapsed: Duration,
    /// The same without the time in which other work had its processors.
    pub own: Duration,
    /// The end of its standard error, where that was captured.
    pub stderr_tail: String,
    /// How many processes the host's kernel has killed meanwhile to get memory.
    pub host_kills: u64,
    /// What the host has in all, in bytes; `None` where that is not known.
    pub host_bytes: Option<u64>,
    /// What it wrote that was kept away from the user's files; `None` where it was free to write.
    pub writes: Option<Writes>,
    /// Why its recordings could not be kept, where they were to be.
    pub unkept: Option<String>,
}

impl Observation {
    /// Whether the program takes a share of whatever card it gets, as vLLM does: its use of a card without a limit says
    /// nothing of what it needs.
    pub fn takes_a_share(&self) -> bool {
        self.hooks.reports.iter().any(|hook| hook.frameworks.contains_key("vllm"))
    }

    /// Whether the program did all that it does on its own: a server then waits for requests.
    pub fn is_done(&self) -> bool {
        matches!(self.cut, None | Some(Cut::Listening))
    }

    /// The exception that ended the program, in one line; `None` where it is not known.
    pub fn exception(&self) -> Option<String> {
        // A program says of an engine's error that it is above.
        let points = |failure: &&HookFailure| POINTERS.iter().any(|words| failure.message.contains(words));
        let all = || self.hooks.reports.iter().filter_map(|hook| hook.failure.as_ref());
        let failure = all().find(|failure| !points(failure)).or_else(|| all().next())?;
        let line = failure.message.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        Some(format!("{}: {line}", failure.kind).chars().take(400).collect())
    }

    /// What a program that failed said last: its exception, or else the last line that it wrote to stderr.
    pub fn last_words(&self) -> String {
        let last = || self.stderr_tail.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned);
        self.exception().or_else(last).unwrap_or_else(|| format!("exit status {}", self.exit_status))
    }
}

/// What vLLM says in a program whose engine, a process of its own, has failed.
const POINTERS: &[&str] = &["See root cause above", "See stack trace (above) for the root cause"];

/// Why a run was ended before it was done. What it took until then is known all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Its time was up.
    TimeUp,
    /// The user, or the system, sent a signal: a server goes on until somebody does.
    Interrupted,
    /// It had started, and waited for requests: a server does so until somebody ends it.
    Listening,
    /// It waited for something that never came.
    Waiting,
}

/// Which card of the ledger each device of a process is. The two count alike unless the process was shown only some of
/// the cards (`CUDA_VISIBLE_DEVICES`); then the cards that it used are matched in order.
pub fn device_map(hook: &HookReport, ledger: &Ledger) -> BTreeMap<u32, usize> {
    let seen: BTreeSet<u32> =
        hook.devices.iter().filter(|device| device.allocated_peak_bytes > 0).map(|d| d.index).collect();
    let used: Vec<usize> = ledger
        .processes()
        .iter()
        .filter(|process| process.pid == hook.pid)
        .flat_map(|process| process.devices.iter().enumerate())
        .filter(|(_, books)| books.peak_bytes > 0)
        .map(|(index, _)| index)
        .collect();
    let alike = used.is_empty() || seen.iter().all(|index| used.contains(&(*index as usize)));
    if alike {
        return hook.devices.iter().map(|device| (device.index, device.index as usize)).collect();
    }
    seen.into_iter().zip(used).collect()
}
