//! The answers of `oomph diff` and `oomph check`, `oomph.diff/1` and `oomph.check/1`.

use oomph_explain::snapshot::{CheckResult, Diff};
use serde::Serialize;

oomph_protocol::schema!(DiffSchema, "oomph.diff/1");

oomph_protocol::schema!(CheckSchema, "oomph.check/1");

/// What changed from one recording to another, at the peak of each.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiffReport {
    /// Name and version of this document.
    pub schema: DiffSchema,
    /// The earlier file.
    pub before: String,
    /// The later file.
    pub after: String,
    /// What changed.
    #[serde(flatten)]
    pub diff: Diff,
}

/// Whether a recording keeps within limits.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckReport {
    /// Name and version of this document.
    pub schema: CheckSchema,
    /// The file.
    pub file: String,
    /// The outcome.
    #[serde(flatten)]
    pub result: CheckResult,
}
