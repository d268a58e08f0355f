//! Reads what the hook left of a run: its reports and recordings.

use std::path::PathBuf;

use oomph_protocol::hook::HookReport;

/// What the hook left of one process for the explanation: see "What the hook leaves for the explanation" in
/// `docs/internals/run-folder.md`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookHistory {
    /// The process.
    pub pid: u32,
    /// `PID.snapshot.pickle`: the allocator's own snapshot, in PyTorch's format.
    pub snapshot: PathBuf,
    /// `PID.names.json`: what the hook knows about the blocks, where it wrote it.
    pub names: Option<PathBuf>,
}

/// What all processes of a run left behind.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HookReports {
    /// The reports that could be read, ordered by rank and then by process.
    pub reports: Vec<HookReport>,
    /// The files that could not be read or were no reports.
    pub unreadable: Vec<PathBuf>,
    /// Where in oomph's own code a process died of a signal, as `owners/modules.py:372 in see_gradients`.
    pub crashed_at: Option<String>,
}
