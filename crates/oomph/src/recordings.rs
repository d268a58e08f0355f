//! The recordings of memory over time that a run's processes left: reads them, and keeps them for the user.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use oomph_explain::snapshot::Names;
use oomph_launch::HookHistory;
use oomph_trace::{ReadOptions, Trace};

use crate::{export, output};

/// The memory over time of one process.
#[derive(Clone, Debug)]
pub struct ProcessMemory {
    /// The process.
    pub pid: u32,
    /// What its allocator recorded.
    pub trace: Trace,
    /// What the hook named.
    pub names: Option<Names>,
}

/// Reads what the hook left. What cannot be read is named in a warning and left out: the answer does not depend on it.
pub fn load(histories: &[HookHistory], warnings: &mut Vec<String>) -> Vec<ProcessMemory> {
    let mut all = Vec::new();
    for history in histories {
        let trace = match oomph_trace::read(&history.snapshot, &ReadOptions { salvage: true, ..ReadOptions::default() })
        {
            Ok(trace) => trace,
            Err(error) => {
                warnings.push(format!("whose memory it was is not known for process {}: {}", history.pid, error.cause));
                continue;
            }
        };
        let names = history
            .names
            .as_deref()
            .and_then(|path| fs::read(path).ok())
            .and_then(|text| Names::parse(&text).map_err(|error| warnings.push(error.to_string())).ok());
        all.push(ProcessMemory { pid: history.pid, trace, names });
    }
    all
}

/// Keeps the recordings where the user wants them: the first under the name itself, the others with their rank or their
/// process; and what the hook named next to them, where [`names_path`] finds it.
///
/// # Errors
/// When a file cannot be written.
pub fn keep(histories: &[HookHistory], ranks: &BTreeMap<u32, u32>, path: &Path) -> Result<()> {
    let mut histories: Vec<&HookHistory> = histories.iter().collect();
    histories.sort_by_key(|history| (ranks.get(&history.pid), history.pid));
    let word = |history: &&HookHistory| match ranks.get(&history.pid) {
        Some(rank) => format!("rank{rank}"),
        None => history.pid.to_string(),
    };
    let targets = targets(path, histories.iter().map(word));
    for (history, target) in histories.iter().zip(targets) {
        let copy = |from: &Path, to: &Path| -> Result<()> {
            let mut from = fs::File::open(from).with_context(|| format!("cannot read {}", from.display()))?;
            output::replace(to, |to| io::copy(&mut from, to).map(drop))
                .with_context(|| format!("cannot write {}", to.display()))
        };
        copy(&history.snapshot, &target)?;
        if let Some(names) = &history.names {
            copy(names, &names_path(&target))?;
        }
    }
    Ok(())
}

/// Where the names of a recording are kept: `run.pickle` has them in `run.names.json`.
pub fn names_path(recording: &Path) -> PathBuf {
    recording.with_extension("names.json")
}

/// Writes the recordings for other tools.
///
/// # Errors
/// When a file cannot be written, or no tool is known for the name's ending.
pub fn export(memory: &[ProcessMemory], path: &Path) -> Result<()> {
    let words = memory.iter().map(|process| process.pid.to_string());
    for (process, target) in memory.iter().zip(targets(path, words)) {
        export::write(&process.trace, process.names.as_ref(), &target)?;
    }
    Ok(())
}

/// Where the recordings go: the first under the name itself, the others with a word of their own in it.
pub fn targets(path: &Path, words: impl Iterator<Item = String>) -> impl Iterator<Item = PathBuf> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    words.enumerate().map(move |(place, word)| {
        if place == 0 {
            return path.to_owned();
        }
        let ending = path.extension().map(|ending| format!(".{}", ending.to_string_lossy())).unwrap_or_default();
        path.with_file_name(format!("{stem}-{word}{ending}"))
    })
}
