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
//! let read = |path: &Path| (path == Path::new("/work/train.py")).then(|| script.to_owned());
//! let program = Program::reading(Path::new("/work/train.py"), Path::new("/work"), Vec::new(), read).unwrap();
//!
//! assert_eq!(program.takes("--batch-size"), Some(true));
//! assert_eq!(program.options().len(), 1);
//! ```
#![forbid(unsafe_code)]

mod calls;
mod diff;
mod edit;
mod facts;
mod hydra;
mod loaders;
mod loops;
mod models;
mod names;
mod notebook;
mod options;
mod program;
mod recipes;
mod settings;
mod source;

pub use diff::patch;
pub use facts::{Amount, Facts, KeptAt, ModelFacts};
pub use options::{Opt, OptKind};
pub use program::{CannotPlace, Placed, Program, Way};
pub use recipes::{has_recipe, ids};
pub use settings::Written;
