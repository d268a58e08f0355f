//! Declares once what oomph's processes and languages exchange.
//!
//! A run has at least three parties: the launcher, the Python hook and the virtual GPU. They meet in the run folder and
//! share nothing but files. This crate declares
//!
//! - [`paths`]: where those files are;
//! - [`Schema`]: the name and version that each document carries, and who can read whom;
//! - [`Phase`], [`Owner`], [`Stopped`], [`RemedyState`], [`Verdict`] and others: the words that documents use;
//! - [`hook`], [`names`], [`compared`], [`device`], [`device_log`] and [`journal`]: the documents themselves;
//! - [`strict`]: reading that accepts no unknown and no missing field, for tests of whoever writes them.
//!
//! With the feature `schema` it also writes the JSON Schemas in `schemas/` and the Python module
//! `python/oomph/_protocol.py`; `cargo run -p xtask -- schemas --check` fails where they differ from this crate.
//!
//! A document of another version is refused by name, not by whatever field happens to differ:
//!
//! ```
//! # #[cfg(feature = "documents")] {
//! use oomph_protocol::{ReadError, read};
//! use oomph_protocol::hook::HookReport;
//!
//! let refused = read::<HookReport>(br#"{"schema": "oomph.hook-report/999"}"#);
//! assert!(matches!(refused, Err(ReadError::Mismatch(_))));
//! # }
//! ```
//!
//! Design constraints:
//!
//! - Nothing is declared twice. A word or a path that another crate or the hook needs is taken from here.
//! - Without the feature `documents` the crate has no dependencies: the virtual GPU uses it inside other people's processes.

#![forbid(unsafe_code)]

/// The folder of this crate's sources, for whoever builds the virtual GPU from them.
pub const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

#[macro_use]
mod words;
#[macro_use]
mod version;

pub mod calls;
#[cfg(feature = "documents")]
pub mod compared;
#[cfg(feature = "documents")]
pub mod device;
pub mod device_log;
#[cfg(feature = "documents")]
pub mod hook;
#[cfg(feature = "documents")]
pub mod journal;
#[cfg(feature = "documents")]
pub mod names;
pub mod paths;
#[cfg(feature = "schema")]
pub mod published;
#[cfg(feature = "schema")]
pub mod python;
#[cfg(feature = "documents")]
pub mod strict;
mod vocabulary;
#[cfg(feature = "documents")]
pub mod work;

/// For the macros of this crate.
#[doc(hidden)]
#[cfg(feature = "documents")]
pub use serde as __serde;
pub use version::{ALL as SCHEMAS, Mismatch, Schema};
pub use version::{COMPARED, DEVICE_ACTIVITY, DEVICE_LOG, DEVICE_REFUSAL, HOOK_CONFIG, HOOK_REPORT, JOURNAL, NAMES};
#[cfg(feature = "documents")]
pub use version::{Document, ReadError, read};
#[cfg(feature = "documents")]
pub use vocabulary::spelled_out;
pub use vocabulary::{
    LimitScales, LoopKind, Moment, NamedOwner, Owner, Phase, RemedyState, Stopped, TapePhase, Verdict,
};
