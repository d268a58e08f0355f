//! A trial: the program once more, with changes, to see what they do.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::Result;
use oomph_launch::{HookRemedy, Output};

use crate::cards::Card;
use crate::stage::{Ended, Scene, Stage};

/// What is different from the program as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The whole command line, the program first. The program itself stays the same.
    pub command: Vec<OsString>,
    /// Variables that are set, over those of this process.
    pub env: Vec<(String, String)>,
    /// What the hook changes from inside.
    pub remedies: Vec<HookRemedy>,
}

impl Changes {
    /// The program as it was typed.
    pub fn none(command: &[OsString]) -> Self {
        Self { command: command.to_vec(), env: Vec::new(), remedies: Vec::new() }
    }
}

/// Where trials run. They share nothing, so several may run at a time where [`Runner::jobs`] says so.
pub trait Runner: Sync {
    /// Runs the program once.
    ///
    /// # Errors
    /// When the run cannot be set up, or its books cannot be read.
    fn perform(&self, scene: &Scene<'_>) -> Result<Ended>;

    /// Runs the program with these changes on these cards, for no longer than `timeout` says. Its output goes nowhere,
    /// but for the end of its standard error, and it is not recorded whose memory it is.
    ///
    /// # Errors
    /// As of [`Self::perform`].
    fn run(&self, changes: &Changes, cards: &[Card], timeout: Option<Duration>) -> Result<Ended> {
        self.perform(&Scene {
            changes,
            cards,
            output: Output::Capture,
            timeout,
            history: false,
            keep: None,
            give_up: None,
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
impl Runner for Stage {
    fn perform(&self, scene: &Scene<'_>) -> Result<Ended> {
        Stage::perform(self, scene)
    }
}
