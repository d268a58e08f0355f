//! The catalogue of remedies: when each applies, what it changes and how it is written for each framework.
//!
//! - [`Situation`] is what is known about a run that ran out of memory; nearly everything in it may be unknown.
//! - [`suggest`] answers it with a handful of remedies, cheapest first, in the words of the user's framework, and with
//!   the popular advice that would not help.
//! - [`Catalogue`] holds the entries of `data/*.toml`, for a search that tries them.
//! - [`rewrite`] applies a remedy to a command line, word by word.
//! - [`effect`] holds the formulas, each with its source.
//!
//! A remedy is one entry in the file of its concept, with the fields of [`Remedy`]; `tests/catalogue.rs` says what must be
//! true of it, and `tests/situations` is the place for a crash in which it must, or must not, be offered.
//!
//! What a specialist would try for a Trainer whose activations fill the card:
//!
//! ```
//! use oomph_remedy::{Cause, Framework, Situation, suggest};
//!
//! let situation = Situation::of([Framework::Transformers], Cause::Full);
//! let offers = suggest(&situation).remedies;
//! assert!(offers.iter().any(|offer| offer.id == "gradient-checkpointing"));
//! ```
//!
//! Design constraints:
//!
//! - The knowledge is in the data files; the code knows no remedy by name.
//! - What the numbers show cannot help is never offered.
//! - Every flag, key and line exists in the releases that the entry names.

#![forbid(unsafe_code)]

mod advice;
mod catalogue;
mod condition;
pub mod effect;
mod framework;
mod remedy;
pub mod rewrite;
pub mod search;
mod seen;
mod situation;
mod suggest;
mod words;

pub use advice::Advice;
pub use catalogue::{Catalogue, CatalogueError};
pub use condition::{Doubt, Fact, When};
pub use framework::{BadVersion, Framework, Reach, UnknownFramework, Version};
pub use remedy::{
    ByDefault, Divided, DryRun, DryRunKind, Effect, Kind, Knob, QualityCost, Remedy, Sameness, Shown, TimeClass,
    TimeCost, Written,
};
pub use seen::Seen;
pub use situation::{Cause, Installed, Memory, Operation, OwnerGroup, Platform, Settings, Situation, Suspect, Task};
pub use suggest::{Avoid, MOST_AVOIDED, MOST_OFFERS, Offer, Suggestion, suggest};
pub use words::{lower_utilization, share_is_refused};
