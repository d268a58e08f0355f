//! A trial: a run of the program with changes, to see their effect.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use anyhow::Result;
use oomph_launch::{HookRemedy, Output, UnknownSizes};
use oomph_remedy::rewrite;

use crate::cards::Card;
use crate::run_context::{Ended, RunContext, RunRequest};

/// What is different from the program as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The whole command line, the program first. The program itself stays the same.
    pub command: Vec<OsString>,
    /// Variables that are set, over those of this process.
    pub env: Vec<(String, String)>,
    /// What the hook changes from inside.
    pub remedies: Vec<HookRemedy>,
    /// Configuration files that say something else, by the words of the command that name them. The user's stay as
    /// they are: a run gets copies.
    pub files: BTreeMap<String, String>,
    /// Which end is taken of sizes that were not computed.
    pub unknown_sizes: UnknownSizes,
    /// Files of the program's code that are run with another text, by their absolute paths.
    pub edited: BTreeMap<PathBuf, String>,
}

impl Changes {
    /// The program as it was typed.
    pub fn none(command: &[OsString]) -> Self {
        Self {
            command: command.to_vec(),
            env: Vec::new(),
            remedies: Vec::new(),
            files: BTreeMap::new(),
            unknown_sizes: UnknownSizes::Most,
            edited: BTreeMap::new(),
        }
    }

    /// The command with its changed files in a folder.
    pub fn command_in(&self, folder: &Path) -> Vec<OsString> {
        let names = self.names_in(folder);
        let word = |word: &OsString| match word.to_str() {
            Some(text) => rewrite::renamed(text, &names).into(),
            None => word.clone(),
        };
        self.command.iter().map(word).collect()
    }

    /// Writes the changed files into a folder.
    ///
    /// # Errors
    /// When it cannot be written to.
    pub fn write_files(&self, folder: &Path) -> io::Result<()> {
        let names = self.names_in(folder);
        self.files.iter().try_for_each(|(name, text)| fs::write(&names[name], text))
    }

    /// Where the changed files lie in a folder, by their own names.
    fn names_in(&self, folder: &Path) -> BTreeMap<String, String> {
        let place = |(number, name): (usize, &String)| {
            let last = Path::new(name).file_name().unwrap_or_default().to_string_lossy();
            (name.clone(), folder.join(format!("{number}-{last}")).to_string_lossy().into_owned())
        };
        self.files.keys().enumerate().map(place).collect()
    }
}

/// Why trials end without an answer.
#[derive(Debug)]
pub enum Stop {
    /// A signal to oomph.
    Interrupted(i32),
    /// A run could not be set up.
    Failed(anyhow::Error),
}

/// Where trials run. They share nothing, so several may run at a time where [`Runner::jobs`] says so.
pub trait Runner: Sync {
    /// Runs the program once.
    ///
    /// # Errors
    /// When the run cannot be set up, or its books cannot be read.
    fn perform(&self, request: &RunRequest<'_>) -> Result<Ended>;

    /// Runs the program with these changes on these cards, for no longer than `timeout` says. Its output goes nowhere,
    /// but for the end of its standard error, and it is not recorded whose memory it is.
    ///
    /// # Errors
    /// As of [`Self::perform`].
    fn run(&self, changes: &Changes, cards: &[Card], timeout: Option<Duration>) -> Result<Ended> {
        self.perform(&RunRequest {
            changes,
            cards,
            output: Output::Capture,
            timeout,
            history: false,
            keep: None,
            give_up: None,
            writes: false,
        })
    }

    /// Makes ready what runs on cards like these have in common, so that [`Self::jobs`] is known.
    fn prepare(&self, _cards: &[Card]) {}

    /// How many trials may run at the same time.
    fn jobs(&self) -> usize {
        1
    }
}

/// Every trial is a process of its own, from its first import on. The launcher supervises one run at a time.
impl Runner for RunContext {
    fn perform(&self, request: &RunRequest<'_>) -> Result<Ended> {
        RunContext::perform(self, request)
    }
}
