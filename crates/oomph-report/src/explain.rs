//! The answer of `oomph explain`, `oomph.explain/1`.

use oomph_explain::log::{Failure, RunSettings};
use oomph_explain::snapshot::{DeviceExplanation, PinnedHost, RankComparison};
use serde::Serialize;

oomph_protocol::schema!(ExplainSchema, "oomph.explain/1");

/// Why memory ran out, from what a crash left behind.
///
/// The fields of failures and devices are those of `oomph_explain`, whose names are therefore part of the contract.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExplainReport {
    /// Name and version of this document.
    pub schema: ExplainSchema,
    /// What was read.
    pub kind: ExplainKind,
    /// The files, as the user named them.
    pub files: Vec<String>,
    /// The failures of the logs, the root one first; absent where no log was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failures: Option<Vec<Failure>>,
    /// What the logs say about the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunSettings>,
    /// The file that `devices` speak of: the last one, or the one of the worst rank; absent where no snapshot was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// The cards of that file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<Vec<DeviceExplanation>>,
    /// The host memory that PyTorch had pinned, where that file says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned_host: Option<PinnedHost>,
    /// The allocator's settings of that file, as `PYTORCH_CUDA_ALLOC_CONF` would say them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<String>,
    /// Several snapshots side by side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<RankComparison>,
    /// What the readers want the user to know, one sentence each.
    pub notes: Vec<String>,
}

/// What an explanation was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ExplainKind {
    /// Logs alone.
    #[serde(rename = "log")]
    Log,
    /// Recordings of memory alone.
    #[serde(rename = "snapshot")]
    Snapshot,
    /// Both, of one crash.
    #[serde(rename = "log+snapshot")]
    LogAndSnapshot,
}
