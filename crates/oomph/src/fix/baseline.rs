//! Runs the unmodified program: on the cards, and on cards without a limit, which shows all that it needs.

use std::time::Duration;

use oomph_launch::{Limits, Output, OwnLimit};
use oomph_report::Verdict;

use crate::assemble::assemble;
use crate::cards::Card;
use crate::changes::Changes;
use crate::observation::Observation;
use crate::run_context::{Ended, RunRequest};
use crate::trial::{Runner, Stop};
use crate::whole_pool;

/// How much of its own time a program may take on cards without a limit, where a leak goes on forever: this much, or so many
/// times as much as it took to die on the card. Cut short it says nothing of owners, so it is given time.
const LONGEST_PROBE: Duration = Duration::from_secs(150);
/// See [`LONGEST_PROBE`].
const PROBE_TIMES: u32 = 4;

/// A program before anything is changed.
pub struct Baseline<'a> {
    /// Where it runs.
    pub runner: &'a dyn Runner,
    /// The program.
    pub changes: &'a Changes,
    /// The cards with what the program may take of them.
    pub cards: &'a [Card],
    /// The same without a limit.
    pub unlimited: &'a [Card],
    /// How long it may run by the clock, where the user said so.
    pub timeout: Option<Duration>,
    /// Whether a program fits that runs out of memory, catches the error and goes on.
    pub accept_recovered: bool,
}

/// What was seen of it.
pub struct Seen {
    /// The run on the cards.
    pub first: Observation,
    /// The run on cards without a limit, with the owners of its memory; only where the program does not fit.
    pub probe: Option<Observation>,
    /// How much of its own time such a run may take.
    pub longest: Duration,
}

impl Baseline<'_> {
    /// Runs the program on the cards, and on cards without a limit: at the same time where two runs may go on in
    /// parallel, because most programs that are brought here do not fit.
    ///
    /// # Errors
    /// When a run cannot be set up.
    pub fn see(&self, tell: &(dyn Fn(&str) + Sync)) -> Result<Seen, Stop> {
        self.runner.prepare(self.cards);
        if self.runner.jobs() > 1 {
            tell("the unmodified program");
            return self.at_the_same_time(tell);
        }
        tell("the unmodified program");
        let first = self.settled(self.on_the_cards()?, tell)?;
        let longest = longest(first.own);
        let mut probe = None;
        if self.is_too_much(&first) {
            tell("what it needs on a card without a limit");
            let own = OwnLimit::of(longest);
            probe = Some(observed(self.runner.perform(&self.probe(Some(&own))).map_err(Stop::Failed)?)?);
        }
        Ok(Seen { first, probe, longest })
    }

    fn at_the_same_time(&self, tell: &(dyn Fn(&str) + Sync)) -> Result<Seen, Stop> {
        let own = OwnLimit::none();
        let (first, probe) = std::thread::scope(|scope| {
            let probing = scope.spawn(|| self.runner.perform(&self.probe(Some(&own))));
            let first = self.on_the_cards();
            own.set(match &first {
                Ok(first) if self.is_too_much(first) => longest(first.own),
                _ => Duration::ZERO,
            });
            let lost = || Err(anyhow::anyhow!("a run ended without an answer"));
            (first, probing.join().unwrap_or_else(|_| lost()))
        });
        let first = self.settled(first?, tell)?;
        let longest = longest(first.own);
        let probe = if self.is_too_much(&first) { Some(observed(probe.map_err(Stop::Failed)?)?) } else { None };
        Ok(Seen { first, probe, longest })
    }

    fn on_the_cards(&self) -> Result<Observation, Stop> {
        observed(self.runner.perform(&self.plain()).map_err(Stop::Failed)?)
    }

    fn settled(&self, first: Observation, tell: &(dyn Fn(&str) + Sync)) -> Result<Observation, Stop> {
        Ok(whole_pool::instead_of(&first, self.runner, &self.plain(), tell)?.unwrap_or(first))
    }

    fn plain(&self) -> RunRequest<'_> {
        RunRequest { cards: self.cards, history: false, ..self.probe(None) }
    }

    fn probe<'a>(&'a self, own: Option<&'a OwnLimit>) -> RunRequest<'a> {
        let (changes, cards, limits) = (self.changes, self.unlimited, Limits { clock: self.timeout, own });
        RunRequest { changes, cards, output: Output::Capture, limits, history: true, keep: None, writes: false }
    }

    fn is_too_much(&self, first: &Observation) -> bool {
        let report = assemble(self.cards, first, None);
        match report.verdict {
            // What it would do is not known, and no remedy makes it go on.
            Verdict::Unsure if report.waits.is_some() => false,
            Verdict::Oom | Verdict::Unsure => true,
            Verdict::Recovered => !self.accept_recovered,
            Verdict::Fits | Verdict::Failed | Verdict::NoGpuUse => false,
        }
    }
}

/// How much of its own time a run without a limit may take, by that of the first run.
fn longest(first: Duration) -> Duration {
    LONGEST_PROBE.max(first.saturating_mul(PROBE_TIMES))
}

/// What a run left.
///
/// # Errors
/// When a signal ended it.
pub fn observed(ended: Ended) -> Result<Observation, Stop> {
    match ended {
        Ended::Observed(run) => Ok(*run),
        Ended::Interrupted(signal, _) => Err(Stop::Interrupted(signal)),
    }
}
