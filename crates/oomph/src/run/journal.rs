//! The journal of guarded runs: an append-only file with one JSON object per line.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use chrono::{SecondsFormat, Utc};
use oomph_protocol::JOURNAL;
use oomph_report::Phase;
use serde::Serialize;

/// The journal of one command; a file may hold many.
pub struct Journal {
    file: File,
    folder: PathBuf,
    /// The command's name in the file: when it began, and its process.
    run: String,
}

/// One line: what happened, when, in which run.
#[derive(Serialize)]
struct Line<'a> {
    schema: &'static str,
    run: &'a str,
    at: String,
    #[serde(flatten)]
    event: &'a Event,
}

/// What happened.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The command began.
    Start {
        /// The program, without what is secret.
        command: Vec<String>,
        /// The card, and whether it is a virtual one.
        gpu: String,
        rehearsal: bool,
        /// What is free on it, or what it may take, in bytes.
        free_bytes: Option<u64>,
    },
    /// The program was started.
    Attempt {
        number: usize,
        /// The remedies that it runs with, by their ids; empty for the unmodified program.
        remedies: Vec<String>,
        /// The checkpoint that it resumes from, and its step.
        checkpoint: Option<PathBuf>,
        step: Option<u64>,
        /// The optimizer steps that were made before and are made again.
        repeated_steps: u64,
        /// The peak that the dry run foretold, in bytes.
        predicted_peak_bytes: Option<u64>,
    },
    /// The program ended.
    End {
        number: usize,
        exit_status: i32,
        seconds: f64,
        /// What PyTorch reserved at most, in bytes.
        reserved_peak_bytes: Option<u64>,
        /// The optimizer steps of the whole training, where the trainer counts them; else of this attempt.
        steps: u64,
        /// The step that it resumed at, as the trainer counted.
        resumed_at_step: Option<u64>,
        /// The samples of one optimizer step, where the trainer says so.
        effective_batch: Option<u64>,
        /// The warnings about memory that runs out, while it ran.
        signs: Vec<String>,
        out_of_memory: Option<Death>,
    },
    /// What happens next, or why nothing does.
    Decision {
        /// The remedies that come next; empty where the run ends.
        remedies: Vec<String>,
        reason: String,
        /// The dry runs' time, in seconds.
        searched_seconds: f64,
    },
}

/// An out-of-memory error that ended the program.
#[derive(Clone, Debug, Serialize)]
pub struct Death {
    pub requested_bytes: u64,
    pub reserved_bytes: Option<u64>,
    pub phase: Phase,
    pub step: u64,
    pub file: Option<String>,
    pub line: Option<u32>,
    pub rank: Option<u32>,
    /// The recording, for `oomph explain`.
    pub recording: Option<PathBuf>,
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
    pub fn add(&mut self, event: &Event) {
        let at = Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true);
        let line = Line { schema: JOURNAL.text, run: &self.run, at, event };
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
