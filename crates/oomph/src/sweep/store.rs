//! The folder of a sweep, which holds the answers of its cells.
//!
//! `results.jsonl` has a line per answer and is only added to, by the one process that holds `lock`; of two lines of a cell
//! the later counts. `reports/ID.json` is the answer of the dry run. Tasks on other machines, whose file system may not
//! know how to append from several, leave each record as a file of its own in `arrived`, which the next `oomph sweep` takes
//! over.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use oomph_report::{DryRunReport, SweepCell, clean_json};
use serde::{Deserialize, Serialize};

use super::sources::ReadFile;
use crate::failure::hinted;
use crate::output;

/// What is known of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its answer.
    pub cell: SweepCell,
    /// The version of oomph that gave it.
    pub oomph: String,
    /// The command that was run.
    pub command: Vec<String>,
    /// The versions of its Python and torch, in words; `null` of a program without Python.
    pub environment: Option<String>,
    /// The commit that was run.
    pub commit: Option<String>,
    /// The files below the program's folder that it read.
    pub files: Vec<ReadFile>,
}

/// The folder.
#[derive(Clone, Debug)]
pub struct Store {
    path: PathBuf,
}

impl Store {
    /// The folder of a file: `FILE.sweep` next to it. Nothing is made.
    pub fn of(file: &Path) -> Self {
        Self { path: file.with_extension("sweep") }
    }

    /// Where commits are written out.
    pub fn sources(&self) -> PathBuf {
        self.path.join("sources")
    }

    /// Where the answer of a cell is.
    pub fn report(&self, id: &str) -> PathBuf {
        self.path.join("reports").join(format!("{id}.json"))
    }

    fn arrived(&self) -> PathBuf {
        self.path.join("arrived")
    }

    fn results(&self) -> PathBuf {
        self.path.join("results.jsonl")
    }

    /// Makes the folder.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn make(&self) -> Result<()> {
        for folder in [self.path.clone(), self.path.join("reports"), self.arrived()] {
            fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        Ok(())
    }

    /// Keeps other sweeps out of the folder until the value is dropped, or this process ends however it may.
    ///
    /// # Errors
    /// When another one has it.
    pub fn lock(&self) -> Result<File> {
        let path = self.path.join("lock");
        let context = || format!("cannot lock {}", path.display());
        let file = File::options().create(true).append(true).open(&path).with_context(context)?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(hinted(
                format!("another `oomph sweep` works in {}", self.path.display()),
                "wait for it, or end it; what it has done so far is kept",
            )),
            // A file system without locks: then nobody is kept out.
            Err(TryLockError::Error(error)) if error.kind() == std::io::ErrorKind::Unsupported => Ok(file),
            Err(TryLockError::Error(error)) => Err(error).with_context(context),
        }
    }

    /// The last record of each cell, by its name. A line that a killed process left half-written is passed over.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn records(&self) -> Result<BTreeMap<String, Record>> {
        let path = self.results();
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let lines = text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Record>(line).ok());
        Ok(lines.map(|record| (record.cell.id.clone(), record)).collect())
    }

    /// Adds an answer: first its report, then its line, so that a line has its report whenever the process is killed.
    ///
    /// # Errors
    /// When the disk is full.
    pub fn add(&self, record: &Record, report: Option<&DryRunReport>) -> Result<()> {
        if let Some(report) = report {
            self.write_report(&record.cell.id, report)?;
        }
        let path = self.results();
        let context = || format!("cannot write {}", path.display());
        let mut file = File::options().create(true).read(true).append(true).open(&path).with_context(context)?;
        let mut line = serde_json::to_vec(record).context("cannot write an answer as JSON")?;
        line.push(b'\n');
        if !ends_a_line(&mut file).with_context(context)? {
            line.insert(0, b'\n');
        }
        file.write_all(&line).with_context(context)
    }

    /// Leaves an answer for the next `oomph sweep` to take over.
    ///
    /// # Errors
    /// When the disk is full.
    pub fn leave(&self, record: &Record, report: &DryRunReport) -> Result<()> {
        self.write_report(&record.cell.id, report)?;
        let path = self.arrived().join(format!("{}.json", record.cell.id));
        let text = serde_json::to_vec(record).context("cannot write an answer as JSON")?;
        output::replace(&path, |file| file.write_all(&text)).with_context(|| format!("cannot write {}", path.display()))
    }

    /// What tasks have left, by name of cell.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn left(&self) -> Result<Vec<(PathBuf, Record)>> {
        let folder = self.arrived();
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", folder.display())),
        };
        let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.retain(|path| path.extension().is_some_and(|end| end == "json"));
        paths.sort();
        Ok(paths
            .into_iter()
            .filter_map(|path| Some((path.clone(), serde_json::from_slice(&fs::read(&path).ok()?).ok()?)))
            .collect())
    }

    /// Takes over what tasks have left.
    ///
    /// # Errors
    /// When the disk is full.
    pub fn take_over(&self) -> Result<()> {
        for (path, record) in self.left()? {
            self.add(&record, None)?;
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(())
    }

    /// Takes over what the task of one cell has left.
    ///
    /// # Errors
    /// When it has left nothing, or the disk is full.
    pub fn take_over_one(&self, id: &str) -> Result<Record> {
        let path = self.arrived().join(format!("{id}.json"));
        let context = || format!("cannot read {}", path.display());
        let record = serde_json::from_slice(&fs::read(&path).with_context(context)?).with_context(context)?;
        self.add(&record, None)?;
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        Ok(record)
    }

    fn write_report(&self, id: &str, report: &DryRunReport) -> Result<()> {
        let path = self.report(id);
        let text = serde_json::to_string_pretty(report).context("cannot write the answer as JSON")?;
        let text = clean_json(&text).into_owned() + "\n";
        output::replace(&path, |file| file.write_all(text.as_bytes()))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Whether a file is empty or ends with a line.
fn ends_a_line(file: &mut File) -> std::io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: &str, index: usize) -> Record {
        Record {
            cell: SweepCell { id: id.into(), index, ..SweepCell::default() },
            oomph: "0.1.0".into(),
            command: vec!["python".into()],
            environment: None,
            commit: None,
            files: Vec::new(),
        }
    }

    #[test]
    fn a_line_that_was_cut_off_costs_only_itself() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::of(&folder.path().join("a.yaml"));
        assert_eq!(store.path, folder.path().join("a.sweep"));
        store.make().unwrap();
        store.add(&record("a", 1), None).unwrap();
        let whole = fs::read(store.results()).unwrap();
        // A process that was killed in the middle of its second line.
        fs::write(store.results(), [&whole[..], &whole[..20]].concat()).unwrap();
        store.add(&record("b", 2), None).unwrap();
        store.add(&record("a", 3), None).unwrap();
        let records = store.records().unwrap();
        assert_eq!(records.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(records["a"].cell.index, 3);
    }

    #[test]
    fn what_tasks_leave_is_taken_over_once() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::of(&folder.path().join("a.yaml"));
        store.make().unwrap();
        let path = store.arrived().join("c.json");
        fs::write(&path, serde_json::to_vec(&record("c", 4)).unwrap()).unwrap();
        fs::write(store.arrived().join("d.json"), "{").unwrap();
        store.take_over().unwrap();
        assert!(!path.exists());
        assert_eq!(store.records().unwrap()["c"].cell.index, 4);
        assert_eq!(store.left().unwrap().len(), 0);
    }

    #[test]
    fn one_sweep_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::of(&folder.path().join("a.yaml"));
        store.make().unwrap();
        let lock = store.lock().unwrap();
        assert!(store.lock().is_err());
        drop(lock);
        store.lock().unwrap();
    }
}
