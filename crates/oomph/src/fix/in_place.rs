//! Applies a fix to the user's own files.

use std::fs;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::answer::Answer;
use super::apply::chosen;
use super::work_tree::work_tree;
use crate::failure::hinted;

/// Changes the files of a fix, after asking unless `yes` says not to, and says what was done. A file that git does not
/// track is first copied to the same folder.
///
/// # Errors
/// When there is no such fix, it changes no file, the user says no, or a file cannot be read or written or has changed.
pub fn change(answer: &Answer, number: usize, yes: bool) -> Result<String> {
    let (row, applied) = chosen(answer, number)?;
    let files = &applied.changes.edited;
    if files.is_empty() || row.by_hand {
        let hint = if row.command.is_some() { "type its command instead" } else { "make its changes by hand" };
        return Err(hinted(format!("fix {number} changes no file of the program"), hint));
    }
    let names: Vec<String> = files.keys().map(|path| path.display().to_string()).collect();
    if !yes && !asked(&names)? {
        return Ok("oomph: nothing was changed".to_owned());
    }
    for (path, text) in &applied.originals {
        let now = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        if now != *text {
            return Err(hinted(format!("{} changed during the search", path.display()), "run oomph fix again"));
        }
    }
    let mut copies = Vec::new();
    for path in files.keys().filter(|path| !is_kept_by_git(path)) {
        let copy = backup(path);
        fs::copy(path, &copy).with_context(|| format!("cannot write {}", copy.display()))?;
        copies.push(copy.display().to_string());
    }
    for (path, text) in files {
        write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let kept = if copies.is_empty() { String::new() } else { format!("; the old text is in {}", copies.join(", ")) };
    let then = row.command.as_ref().map(|command| format!("\n  run it as: {command}")).unwrap_or_default();
    Ok(format!("oomph: changed {}{kept}{then}", names.join(", ")))
}

/// Refuses before the search what would be refused after it: files are changed by somebody who can be asked.
///
/// # Errors
/// When nobody can answer.
pub fn can_ask(number: Option<usize>, yes: bool) -> Result<()> {
    if number.is_some() && !yes && !std::io::stdin().is_terminal() {
        return Err(hinted("--in-place asks before it changes files, and nobody can answer", "add --yes"));
    }
    Ok(())
}

fn asked(names: &[String]) -> Result<bool> {
    let mut stderr = std::io::stderr();
    write!(stderr, "oomph: change {}? [y/N] ", names.join(", ")).and_then(|()| stderr.flush())?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// Whether a file is in a git work tree.
fn is_kept_by_git(path: &Path) -> bool {
    path.parent().is_some_and(|folder| work_tree(folder).is_some())
}

/// The first free name for a copy of a file.
fn backup(path: &Path) -> PathBuf {
    let named = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(if number == 0 { ".orig".to_owned() } else { format!(".orig{number}") });
        PathBuf::from(name)
    };
    (0..u32::MAX).map(named).find(|name| !name.exists()).unwrap_or_else(|| named(0))
}

/// Writes a file in one step, with the permissions that it had.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(fs::metadata(path)?.permissions())?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_gets_a_free_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.py");
        assert_eq!(backup(&path), folder.path().join("a.py.orig"));
        fs::write(folder.path().join("a.py.orig"), "").unwrap();
        assert_eq!(backup(&path), folder.path().join("a.py.orig1"));
        fs::write(&path, "x").unwrap();
        write(&path, "y").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "y");
    }
}
