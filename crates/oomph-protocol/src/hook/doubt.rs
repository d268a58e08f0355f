//! The parts of the hook's report that make an answer doubtful or void: sizes that were not computed, a host whose memory
//! ran out, and what died in oomph's own code.

use serde::{Deserialize, Serialize};

use super::HookSite;

/// Which end is taken of a size that depends on values that were never computed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum UnknownSizes {
    /// The most that there can be.
    #[default]
    Most,
    /// Next to the least that there can be.
    Least,
}

impl UnknownSizes {
    pub(super) fn are_most(&self) -> bool {
        *self == Self::Most
    }
}

/// A size that depends on values that were never computed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookUnknownSize {
    /// The operation, like `nonzero`.
    pub operation: String,
    /// The line that called it.
    pub site: Option<HookSite>,
    /// The fewest elements that there can be.
    pub low: u64,
    /// The most elements that there can be.
    pub high: u64,
    /// What was taken for it.
    pub taken: u64,
}

/// Something that died in oomph's own code.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookFault {
    /// The exception's class.
    pub kind: String,
    /// Its words.
    pub message: String,
    /// The line of oomph's own, with the file's name in oomph's sources.
    pub site: HookSite,
    /// Whether the answer hangs on what died, or the program met it.
    pub voids: bool,
}

/// The host's memory that ran out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookHostShortage {
    /// What was requested, in bytes; 0 where the error does not say.
    pub requested_bytes: u64,
    /// The line of the user's program.
    pub site: Option<HookSite>,
    /// The error's words.
    pub message: String,
}
