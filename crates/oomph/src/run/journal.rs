//! Writes the journal of guarded runs: an append-only file with one JSON object per line.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use chrono::{SecondsFormat, Utc};
use oomph_protocol::journal::{JournalEvent, JournalLine, JournalSchema};

/// The journal of one command; a file may hold many.
pub struct Journal {
    file: File,
    folder: PathBuf,
    /// The command's name in the file: when it began, and its process.
    run: String,
}

impl Journal {
    /// Opens the journal in a folder, which is made where it is missing.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn open(folder: &Path) -> Result<Self> {
        let failed = || format!("cannot write to {}", folder.display());
        fs::create_dir_all(folder).with_context(failed)?;
        let file = OpenOptions::new().append(true).create(true).open(folder.join("journal.jsonl"));
        let run = format!("{}-{}", Utc::now().format("%Y%m%d-%H%M%S"), std::process::id());
        Ok(Self { file: file.with_context(failed)?, folder: folder.to_owned(), run })
    }

    /// Adds a line. A full disk must not end the program's run, so nothing is said of it.
    pub fn add(&mut self, event: JournalEvent) {
        let at = Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true);
        let line = JournalLine { schema: JournalSchema, run: self.run.clone(), at, event };
        if let Ok(text) = serde_json::to_string(&line) {
            // In one call, so that two runs that share a file do not mix their lines.
            let _ = self.file.write_all(format!("{text}\n").as_bytes());
        }
    }

    /// Where the recording of an attempt's death is kept.
    pub fn recording(&self, attempt: usize) -> PathBuf {
        self.folder.join(format!("{}.attempt-{attempt}.pickle", self.run))
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.folder.join("journal.jsonl")
    }
}
