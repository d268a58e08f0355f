//! Tracks what an answer depends on: commits, and the files of the program that a run read.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result};
use oomph_report::clean;
use serde::{Deserialize, Serialize};

use super::cells::{Cell, digest};
use crate::failure::hinted;
use crate::observation::Observation;

/// A larger file is known by its size and the time of its last change: reading it would take longer than the run.
const LARGEST_READ: u64 = 8 << 20;

/// A file that a run read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadFile {
    /// Below the folder that the program ran in.
    pub path: String,
    /// Its content as it was.
    pub digest: String,
}

/// The files below the program's folder that a run read: what the hook saw, and files that the command names.
pub fn read_by(cell: &Cell, run: &Observation) -> Vec<ReadFile> {
    if cell.commit.is_some() {
        // The commit names them all.
        return Vec::new();
    }
    let root = fs::canonicalize(&cell.directory).unwrap_or_else(|_| cell.directory.clone());
    let hooks = run.hooks.reports.iter().filter_map(|hook| hook.reads.as_ref()).flatten().cloned();
    let named = cell.program.command.iter().map(|word| {
        let text = word.to_string_lossy();
        root.join(text.rsplit_once('=').map_or(&*text, |(_, value)| value))
    });
    let paths: BTreeSet<PathBuf> = hooks.chain(named.filter(|path| path.is_file())).collect();
    paths
        .iter()
        .filter_map(|path| {
            let below = path.strip_prefix(&root).ok()?.to_str()?;
            Some(ReadFile { path: below.to_owned(), digest: content(path)? })
        })
        .collect()
}

/// Whether the files are as they were.
pub fn are_same(files: &[ReadFile], directory: &Path) -> bool {
    files.iter().all(|file| content(&directory.join(&file.path)).is_some_and(|digest| digest == file.digest))
}

/// A file's content as a word: its digest or, of a large one, its size and the time of its last change.
fn content(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    if metadata.len() > LARGEST_READ {
        let changed = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        return Some(format!("{} bytes, changed {}", metadata.len(), changed.as_nanos()));
    }
    Some(digest(&fs::read(path).ok()?))
}

/// The full name of a commit.
///
/// # Errors
/// When there is no git, no repository, or no such commit.
pub fn resolved(folder: &Path, commit: &str) -> Result<String> {
    let word = format!("{commit}^{{commit}}");
    git(folder, None, &["rev-parse", "--verify", "--quiet", "--end-of-options", &word]).map_err(|_| {
        hinted(
            format!("git knows no commit `{}` in {}", clean(commit), folder.display()),
            "`commits` takes what `git show` takes: branches, tags, HEAD~2",
        )
    })
}

/// Writes a commit's files below `sources`, unless they are there, and gives the folder in it that corresponds to `folder`.
/// The user's working tree, index and repository stay as they are.
///
/// # Errors
/// When git fails, or the disk is full.
pub fn written_out(folder: &Path, commit: &str, sources: &Path) -> Result<PathBuf> {
    let top = PathBuf::from(git(folder, None, &["rev-parse", "--show-toplevel"])?);
    let prefix = git(folder, None, &["rev-parse", "--show-prefix"])?;
    let place = sources.join(commit);
    if !place.is_dir() {
        fs::create_dir_all(sources).with_context(|| format!("cannot make {}", sources.display()))?;
        let part = tempfile::Builder::new().prefix(".part-").tempdir_in(sources).context("cannot make a folder")?;
        let part_path = fs::canonicalize(part.path()).context("cannot find a folder that was made")?;
        let index = part_path.join("index");
        let tree = part_path.join("tree");
        git(&top, Some(&index), &["read-tree", commit])?;
        git(&top, Some(&index), &["checkout-index", "--all", &format!("--prefix={}/", tree.display())])?;
        fs::create_dir_all(&tree).context("cannot make a folder")?;
        // Another process may have been faster.
        if let Err(error) = fs::rename(&tree, &place)
            && !place.is_dir()
        {
            return Err(error).with_context(|| format!("cannot write {}", place.display()));
        }
    }
    Ok(place.join(prefix))
}

fn git(folder: &Path, index: Option<&Path>, words: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(words);
    if let Some(index) = index {
        command.env("GIT_INDEX_FILE", index);
    }
    let output = command.output().context("cannot start git")?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        anyhow::bail!("git {}: {}", words.first().unwrap_or(&""), stderr.lines().next().unwrap_or("it failed"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        fs::write(&path, "width: 1\n").unwrap();
        let files = [ReadFile { path: "config.yaml".into(), digest: content(&path).unwrap() }];
        assert!(are_same(&files, folder.path()));
        fs::write(&path, "width: 2\n").unwrap();
        assert!(!are_same(&files, folder.path()));
        fs::remove_file(&path).unwrap();
        assert!(!are_same(&files, folder.path()));
    }

    #[test]
    fn a_commit_is_written_out_and_the_repository_stays() {
        let folder = tempfile::tempdir().unwrap();
        let run = |words: &[&str]| {
            let identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"];
            git(folder.path(), None, &[&identity[..], words].concat())
        };
        if run(&["init", "--quiet"]).is_err() {
            // There is no git here.
            return;
        }
        let below = folder.path().join("below");
        fs::create_dir(&below).unwrap();
        fs::write(below.join("train.py"), "first").unwrap();
        run(&["add", "."]).unwrap();
        run(&["commit", "--quiet", "-m", "first"]).unwrap();
        fs::write(below.join("train.py"), "second").unwrap();
        let status = run(&["status", "--porcelain"]).unwrap();
        let name = resolved(&below, "HEAD").unwrap();
        let place = written_out(&below, &name, &folder.path().join("out")).unwrap();
        assert_eq!(fs::read_to_string(place.join("train.py")).unwrap(), "first");
        assert_eq!(fs::read_to_string(below.join("train.py")).unwrap(), "second");
        assert!(run(&["status", "--porcelain"]).unwrap().starts_with(&status));
        assert_eq!(run(&["worktree", "list"]).unwrap().lines().count(), 1);
        assert!(resolved(&below, "--help").is_err());
    }
}
