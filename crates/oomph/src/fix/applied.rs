//! Defines what it takes to act on a fix.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use oomph_edit::Program;

use super::applier::Said;
use super::work_tree::work_tree;
use crate::changes::Changes;

/// A fix in the ways in which it can be acted on.
#[derive(Clone)]
pub struct Applied {
    /// As it was tried.
    pub changes: Changes,
    /// As one would type it, where that says it all.
    pub said: Option<Said>,
    /// The same with everything in the program's configuration file that can be there.
    pub said_in_file: Option<Said>,
    /// Whether an optimizer step sees fewer samples than before: the program accumulates no gradients.
    pub shrinks_batch: bool,
    /// The files that it changes, as they were read.
    pub originals: BTreeMap<PathBuf, String>,
    /// Whether only the virtual GPU does it: for a real run its author has to change the code.
    pub virtual_only: bool,
}

/// The change of a program's files as a patch, and the folder to apply it in, where that is not `directory`.
pub fn patch_of(program: &Program, before: &Program, directory: &Path) -> Option<(String, Option<PathBuf>)> {
    let base = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let folder = program.patch_folder(before, &base);
    // `git apply` takes paths from the top of the work tree, and passes over others without a word.
    let top = work_tree(folder).unwrap_or(folder);
    let patch = program.patch_since(before, top);
    (!patch.is_empty()).then(|| (patch, (folder != base).then(|| top.to_owned())))
}
