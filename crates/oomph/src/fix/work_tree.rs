//! Finds the git work tree that a file is in.

use std::path::Path;

/// The top of the git work tree that a folder is in. In a submodule or a linked work tree `.git` is a file.
pub fn work_tree(folder: &Path) -> Option<&Path> {
    folder.ancestors().find(|folder| folder.join(".git").exists())
}
