//! Writes remedies into a user's own Python files, as small edits that keep every other byte.
//!
//! [`Program`] is what a user starts: a script, the modules of its folder that it imports, and its arguments.
//! [`Program::apply`] places one remedy in it: by an option that the program has, by an argument of a library's class, or
//! by an edit of its code. It refuses where the place is not certain. Nothing here starts a process; whether an edit
//! helps is measured by running the edited program.
//!
//! The script's own option is found, so that no code has to change:
//!
//! ```
//! use std::path::Path;
//! use oomph_edit::Program;
//!
//! let script = "\
//! import argparse
//! parser = argparse.ArgumentParser()
//! parser.add_argument('--batch-size', type=int, default=64)
//! arguments = parser.parse_args()
//! ";
//! let read = |path: &Path| (path == Path::new("/home/me/train.py")).then(|| script.to_owned());
//! let program = Program::reading(Path::new("/home/me/train.py"), Path::new("/home/me"), Vec::new(), read).unwrap();
//!
//! assert_eq!(program.takes("--batch-size"), Some(true));
//! assert_eq!(program.options().len(), 1);
//! ```
#![forbid(unsafe_code)]

mod calls;
mod diff;
mod documents;
mod draft;
mod edit;
mod error;
mod facts;
mod hydra;
mod literals;
mod loaders;
mod loops;
mod models;
mod names;
mod notebook;
mod opt;
mod options;
mod program;
mod recipes;
mod scopes;
mod settings;
mod sizes;
mod source;
mod trainers;

pub use diff::patch;
pub use draft::{Placed, Way};
pub use error::CannotPlace;
pub use facts::{Amount, Facts, KeptAt, ModelFacts, With8Bits};
pub use opt::{Opt, OptKind, Written};
pub use program::Program;
pub use recipes::shares::{Reweighed, reweighed};
pub use recipes::{has_recipe, ids};
pub use sizes::{Size, is_size};
