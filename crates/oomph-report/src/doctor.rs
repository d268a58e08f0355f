//! The answer of `oomph doctor`, `oomph.doctor/1`: what works on a machine.

use serde::Serialize;

oomph_protocol::schema!(DoctorSchema, "oomph.doctor/1");

/// What was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DoctorReport {
    /// Name and version of this document.
    pub schema: DoctorSchema,
    /// The version of oomph.
    pub version: String,
    /// Whether everything works that dry-run, fix and tune need.
    pub works: bool,
    /// The checks, each with an id that stays.
    pub checks: Vec<Check>,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Check {
    /// Its id: `platform`, `python`, `torch`, `cuda-wheels`, `cuda-libraries`, `installer`, `files`, `network`, `run`,
    /// `gpus`, `cache`, `disk` or `memory`.
    pub id: String,
    /// How it is.
    pub state: CheckState,
    /// What was found, in a clause.
    pub found: String,
    /// Why it does not work, or what is less; `null` where all is well.
    pub why: Option<String>,
    /// What to do about it.
    pub todo: Option<String>,
}

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CheckState {
    /// It works.
    Works,
    /// It works with less than there could be.
    Limited,
    /// It does not work.
    Broken,
    /// It is not there, and nothing needs it.
    Absent,
}
