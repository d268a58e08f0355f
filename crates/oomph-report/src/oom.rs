//! The result types for out-of-memory errors.

use oomph_protocol::Phase;
use serde::{Deserialize, Serialize};

use crate::site::Site;

/// An out-of-memory error, as the framework raised it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Oom {
    /// What was requested, in bytes; 0 where the error does not say.
    pub requested_bytes: u64,
    /// What the framework had allocated at that moment, in bytes.
    pub allocated_bytes: Option<u64>,
    /// What the framework had reserved at that moment, in bytes.
    pub reserved_bytes: Option<u64>,
    /// What was free on the card at that moment, in bytes.
    pub free_bytes: Option<u64>,
    /// The framework's own words.
    pub message: String,
    /// The optimizer step in which it happened, from 1; `null` where nobody counted.
    pub step: Option<u64>,
    /// The part of the program in which it happened.
    pub phase: Phase,
    /// The user's innermost line.
    pub site: Option<Site>,
    /// What the card would have to hold for the program to run, contexts included, in bytes; `null` where it was not
    /// tried.
    pub would_need_bytes: Option<u64>,
    /// Whether the error was not run into but follows from memory that grows with each iteration.
    #[serde(default)]
    pub forecast: bool,
    /// The innermost line of a library below the user's that computes something.
    #[serde(default)]
    pub library_site: Option<Site>,
    /// The module at work by its path in the model, such as `model.layers.17.mlp`; `null` for the model itself.
    #[serde(default)]
    pub module: Option<String>,
    /// The class of the model that was called; `null` outside of any.
    #[serde(default)]
    pub model: Option<String>,
    /// What a program that caught the error did instead, as far as that is known.
    #[serde(default)]
    pub instead: Option<Instead>,
}

/// What a program did after an out-of-memory error that it caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Instead {
    /// What the line that failed first requested, in bytes.
    pub requested_bytes: u64,
    /// The most that the same line was granted after the last error, in bytes.
    pub granted_bytes: u64,
    /// How many errors there were at that line.
    pub errors: u32,
}
