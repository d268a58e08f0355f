//! Estimates workloads near one whose need is known: what would fit instead, and what would change it.

use crate::answer::{CardCost, Estimate};
use crate::estimate::{self, Runs, Subject};
use crate::known::Known;
use crate::tape::TapeOwner;
use crate::workload::Workload;

/// Looks around a workload on a card. An answer nearby is several times faster than the first one: the allocator is not
/// followed, but as much is taken to be reserved beyond what is allocated as there, and what was run once is known.
pub struct Nearby<'a> {
    pub(crate) subject: &'a Subject,
    pub(crate) workload: &'a Workload,
    pub(crate) answer: &'a Estimate,
    card: CardCost,
    runs: Runs,
}

impl<'a> Nearby<'a> {
    /// Around `workload`, whose estimate on the card is `answer`.
    #[must_use]
    pub fn new(subject: &'a Subject, workload: &'a Workload, card: CardCost, answer: &'a Estimate) -> Self {
        let runs = Runs { slack: reserved_share(answer), transformers: Known::nothing(), pipelines: Known::nothing() };
        Self { subject, workload, answer, card, runs }
    }

    /// What another workload needs.
    pub(crate) fn estimate(&self, workload: &Workload) -> Estimate {
        estimate::estimate_near(self.subject, workload, self.card, Some(&self.runs))
    }
}

/// Reserved over allocated bytes of an estimate.
fn reserved_share(estimate: &Estimate) -> f64 {
    let sum = |except: &[TapeOwner]| {
        let counted = TapeOwner::ALL.into_iter().filter(|owner| !except.contains(owner));
        counted.fold(0_u64, |sum, owner| sum.saturating_add(estimate.owners[owner as usize]))
    };
    sum(&[TapeOwner::Context]) as f64 / sum(&[TapeOwner::Context, TapeOwner::Slack]).max(1) as f64
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_workload_is_run_once() {
        let (runs, made) = (Known::nothing(), Cell::new(0));
        let of = |batch: u64| {
            runs.of(&Workload { batch, ..Workload::default() }, || {
                made.set(made.get() + 1);
                batch
            })
        };
        assert_eq!([of(1), of(2), of(1), of(2)], [1, 2, 1, 2]);
        assert_eq!(made.get(), 2);
    }
}
