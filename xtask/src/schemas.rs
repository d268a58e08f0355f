//! Writes the JSON Schemas under `schemas/`: those of what the processes of a run exchange, and `python/oomph/_protocol.py`
//! with its stub, from `oomph-protocol`; those of the reports from `oomph-report`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use oomph_protocol::{published, python};

/// The folder of the schemas that are for oomph's own processes, from the workspace's root.
const FOLDER: &str = "schemas";

/// The folder of the reports' schemas, which are for everybody.
const REPORTS: &str = "schemas/reports";

/// Writes the files; with `check` changes nothing and fails where one would change.
///
/// # Errors
/// When a file cannot be written, or differs from what would be written.
pub fn run(check: bool) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let files = files();
    let stale = stale(&root, &files)?;
    if check {
        if stale.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = stale.iter().map(|path| path.display().to_string()).collect();
        bail!("these differ from the declarations: {}; run `cargo run -p xtask -- schemas`", names.join(", "));
    }
    for path in stale {
        let at = root.join(&path);
        let written = match files.get(&path) {
            Some(text) => fs::create_dir_all(root.join(REPORTS)).and_then(|()| fs::write(&at, text)),
            None => fs::remove_file(&at),
        };
        written.with_context(|| format!("cannot write {}", at.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// What is to be there, by path from the workspace's root.
fn files() -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    for (schema, value) in published::documents().into_iter().chain([published::journal()]) {
        files.insert(Path::new(FOLDER).join(published::file_name(schema.text)), published::text(&value));
    }
    for (schema, value) in oomph_report::published::reports() {
        files.insert(Path::new(REPORTS).join(published::file_name(schema)), published::text(&value));
    }
    files.insert("python/oomph/_protocol.py".into(), python::module());
    files.insert("python/oomph/_protocol.pyi".into(), python::stub());
    files
}

/// The files that differ from what is to be there, and those that nothing declares.
fn stale(root: &Path, files: &BTreeMap<PathBuf, String>) -> Result<Vec<PathBuf>> {
    let mut stale: Vec<PathBuf> = Vec::new();
    for (path, text) in files {
        if fs::read_to_string(root.join(path)).ok().as_ref() != Some(text) {
            stale.push(path.clone());
        }
    }
    let entries = [FOLDER, REPORTS].map(|folder| {
        fs::read_dir(root.join(folder))
            .into_iter()
            .flatten()
            .map(move |entry| entry.map(|entry| Path::new(folder).join(entry.file_name())))
    });
    for path in entries.into_iter().flatten() {
        let path = path?;
        if path.extension().is_some_and(|end| end == "json") && !files.contains_key(&path) {
            stale.push(path);
        }
    }
    Ok(stale)
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_committed_is_what_is_declared() {
        super::run(true).unwrap();
    }
}
