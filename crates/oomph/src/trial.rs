//! A trial: a run of the program with changes, to see their effect.

use anyhow::Result;
use oomph_launch::{Limits, Output};

use crate::cards::Card;
use crate::changes::Changes;
use crate::run_context::{Ended, RunContext, RunRequest};

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

    /// Runs the program with these changes on these cards, for no longer than `limits` say. Its output goes nowhere,
    /// but for the end of its standard error, and it is not recorded whose memory it is.
    ///
    /// # Errors
    /// As of [`Self::perform`].
    fn run(&self, changes: &Changes, cards: &[Card], limits: Limits<'_>) -> Result<Ended> {
        self.perform(&RunRequest {
            changes,
            cards,
            output: Output::Capture,
            limits,
            history: false,
            keep: None,
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
