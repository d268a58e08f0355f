//! Plans for the evaluation of a program that dies before it: a fix for training alone would die there.

use std::time::Duration;

use oomph_launch::OwnLimit;
use oomph_remedy::search::{Candidate, Found, Mix, Wishes};
use oomph_remedy::{Catalogue, Operation, Situation};
use oomph_report::{DryRunReport, Phase};

use crate::assemble::assemble;
use crate::cards::Card;
use crate::run_context::Ended;
use crate::trial::{Runner, Stop};

use super::applier::Applier;
use super::budget::Budget;
use super::phases;

/// How many remedies are tried.
const MOST: usize = 3;

/// The question what makes the evaluation fit.
pub struct Evaluation<'s, 'a> {
    /// The remedies.
    pub catalogue: &'a Catalogue,
    /// What is known of the program.
    pub situation: &'s Situation,
    /// What the user wishes.
    pub wishes: &'s Wishes,
    /// Places remedies in the program.
    pub applier: &'s Applier<'s>,
    /// Runs it.
    pub runner: &'s dyn Runner,
    /// Cards without a limit, on which training does not die before the evaluation.
    pub unlimited: &'s [Card],
    /// What the card may hold, in bytes.
    pub limit_bytes: u64,
    /// How much of its own time a run may take.
    pub longest: Duration,
    /// How much may still be tried.
    pub budget: &'s Budget,
    /// Receives what is tried.
    pub tell: &'s (dyn Fn(&str) + Sync),
}

impl<'a> Evaluation<'_, 'a> {
    /// The cheapest remedy with which the evaluation fits, seen in runs on cards without a limit, where the program's
    /// evaluation does not fit in `needed`, a run there; an empty mix where it does, or where none helps.
    ///
    /// # Errors
    /// When a run cannot be started, or is interrupted.
    pub fn answer(&self, needed: &DryRunReport) -> Result<Mix<'a>, Stop> {
        if !self.exceeds(needed) {
            return Ok(Mix::default());
        }
        for candidate in self.candidates().into_iter().take(MOST) {
            let mix = Mix::single(candidate.strongest());
            let Ok(changes) = self.applier.changes(&mix) else { continue };
            if !self.budget.has_more() {
                break;
            }
            self.budget.begin();
            (self.tell)(&format!("{}, for the evaluation", mix.key().join(" + ")));
            let own = OwnLimit::of(self.longest);
            let limits = self.budget.limits(&own);
            match self.runner.run(&changes, self.unlimited, limits).map_err(Stop::Failed)? {
                Ended::Interrupted(signal, _) => return Err(Stop::Interrupted(signal)),
                Ended::Observed(run) => {
                    let report = assemble(self.unlimited, &run, None);
                    if evaluated(&report).is_some() && !self.exceeds(&report) {
                        return Ok(mix);
                    }
                }
            }
        }
        Ok(Mix::default())
    }

    /// Whether what the evaluation allocates is more than the card may hold.
    fn exceeds(&self, report: &DryRunReport) -> bool {
        evaluated(report).is_some_and(|bytes| bytes > self.limit_bytes)
    }

    /// The remedies of an evaluation, the cheapest first.
    fn candidates(&self) -> Vec<Candidate<'a>> {
        let moments = [Operation::Evaluation];
        let found = self.catalogue.candidates(self.situation, &moments, self.wishes, |remedy| {
            remedy.aims.contains(&Operation::Evaluation) && self.applier.can_apply(remedy)
        });
        // An evaluation that keeps its graph is answered by no graph, before anything that makes it smaller.
        let without = phases::evaluation_without_graph(self.catalogue, self.situation, self.wishes, self.applier);
        let rest = phases::ordered(found, self.applier);
        let is_new = |candidate: &Candidate<'_>| !without.iter().any(|first| first.remedy.id == candidate.remedy.id);
        let rest: Vec<_> = rest.into_iter().filter(is_new).collect();
        without.into_iter().chain(rest).collect()
    }
}

/// The most that a process takes of a card in its evaluation, without what is only cached, in bytes; `None` where none was
/// seen.
fn evaluated(report: &DryRunReport) -> Option<u64> {
    let of = |device: &oomph_report::DeviceReport| {
        let outside = device.peak.process_bytes.saturating_sub(device.peak.reserved_bytes.unwrap_or(0));
        let phase = device.phases.iter().find(|one| one.phase == Phase::Eval)?;
        Some(phase.allocated_bytes.saturating_add(outside))
    };
    report.devices.iter().filter_map(of).max()
}

/// Names what every trial had in addition, once the search is done.
pub fn named<'a>(always: &Mix<'a>, found: &mut Found<'a>) {
    let fixes = found.fixes.iter_mut().map(|fix| &mut fix.mix);
    let tried = found.tried.iter_mut().map(|(mix, _)| mix);
    let foretold = found.foretold.iter_mut().map(|(mix, _)| mix);
    for mix in fixes.chain(tried).chain(foretold).chain(&mut found.strongest) {
        *mix = mix.and(always);
    }
    // Alone it did not get past training, where the program dies first; that is not a verdict on it.
    if !always.doses.is_empty() {
        found.tried.retain(|(mix, _)| mix.key() != always.key());
    }
}
