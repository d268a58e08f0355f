//! Tries combinations of remedies on the virtual GPU, and checks that each took effect.

use std::collections::BTreeMap;
use std::sync::{OnceLock, PoisonError};
use std::time::Instant;

use oomph_gpu::roofline::Counted;
use oomph_launch::{AppliedRemedy, HookReports, RemedyState};
use oomph_remedy::search::{Bench, Mix, Ran};
use oomph_report::{DeviceReport, DryRunReport, Peak, Verdict};

use super::applier::Applier;
use super::budget::Budget;
use crate::assemble::assemble;
use crate::cards::Card;
use crate::changes::Changes;
use crate::observation::Observation;
use crate::run_context::Ended;
use crate::trial::{Runner, Stop};
use crate::{pool, whole_pool};

/// A bench of virtual cards.
pub struct VirtualBench<'a> {
    /// Where trials run.
    pub runner: &'a dyn Runner,
    /// How remedies are applied.
    pub applier: &'a Applier<'a>,
    /// The cards, with no more memory than the program may take.
    pub cards: &'a [Card],
    /// The most that may run at a time.
    pub jobs: usize,
    /// How much may still be tried.
    pub budget: &'a Budget,
    /// The signal that asked oomph to end: nothing new is begun then, and what was found is reported.
    pub stopped: OnceLock<i32>,
    /// Whether a program fits that runs out of memory, catches the error and goes on.
    pub accept_recovered: bool,
    /// What of the program was not run without any change either, by what [`oomph_report::Unreached::phase`] calls it.
    pub unreached: Vec<String>,
    /// How the program died before anything was changed.
    pub before: &'a DryRunReport,
    /// What was seen of the remedies in each trial, by the key of the mix.
    pub seen: BTreeMap<Vec<String>, Sight>,
    /// What became of each trial, for a search that begins again with more candidates.
    pub ran: BTreeMap<Vec<String>, Ran>,
    /// What every trial needs in addition to what is searched for: what makes the evaluation fit.
    pub always: Mix<'a>,
    /// Receives what is tried.
    pub tell: &'a (dyn Fn(&str) + Sync),
}

impl VirtualBench<'_> {
    /// Runs one mix on these cards and says what became of it.
    fn trial(&self, mix: &Mix<'_>) -> Result<Tried, Stop> {
        let changes = match self.applier.changes(mix) {
            Ok(changes) => changes,
            Err(refused) => {
                return Ok(Tried {
                    ran: Ran::NotApplied(vec![refused], None),
                    seen: Vec::new(),
                    no_effect: false,
                    work: None,
                });
            }
        };
        self.budget.begin();
        let (own, whole) = (self.budget.longest_try(), whole_pool::was_whole(self.before));
        let limits = self.budget.limits(&own);
        match whole_pool::run(self.runner, &changes, self.cards, limits, whole).map_err(Stop::Failed)? {
            Ended::Interrupted(signal, _) => {
                self.stopped.get_or_init(|| signal);
                Ok(Tried { ran: Ran::Failed("it was stopped".into()), seen: Vec::new(), no_effect: false, work: None })
            }
            Ended::Observed(run) => {
                let report = assemble(self.cards, &run, None);
                let mut tried = judge(&changes, &report, &run, self.accept_recovered);
                tried.work = work_of(&run.hooks);
                tried.ran = self.as_far_as_before(tried.ran, &report);
                tried.no_effect = matches!(tried.ran, Ran::TooMuch) && dies_alike(self.before, &report);
                if let Ran::Failed(why) = &tried.ran
                    && let Some((remedy, why)) = self.applier.refused_word(mix, &changes, why)
                {
                    let refused = &self.applier.refused;
                    refused.lock().unwrap_or_else(PoisonError::into_inner).insert(remedy.id.clone());
                    // What its options cannot do may be done from inside.
                    if self.applier.can_apply(remedy) && self.has_time() {
                        return self.trial(mix);
                    }
                    tried.ran = Ran::NotApplied(vec![(remedy.id.clone(), why)], None);
                }
                Ok(tried)
            }
        }
    }

    /// A trial fits only where it came as far as the program without a change: of a list that a longer loop fills, what
    /// is made after it may be the peak.
    fn as_far_as_before(&self, ran: Ran, report: &DryRunReport) -> Ran {
        let missing = report.unreached.iter().find(|part| !self.unreached.contains(&part.part));
        match (ran, missing) {
            (Ran::Fits(_) | Ran::Tight(_), Some(part)) => {
                Ran::Failed(format!("{} was not run with it: {}", part.part, part.why))
            }
            (ran, _) => ran,
        }
    }
}

/// What a trial has shown of its remedies.
#[derive(Clone)]
pub struct Sight {
    /// What was seen of each of them.
    pub remedies: Vec<AppliedRemedy>,
    /// Whether the program died as it does without them: of the same request, with as much allocated.
    pub no_effect: bool,
    /// When the trial ended.
    pub when: Instant,
    /// What one of its optimizer steps computes and moves.
    pub work: Option<Counted>,
}

/// What became of a trial.
pub struct Tried {
    /// What became of it.
    pub ran: Ran,
    seen: Vec<AppliedRemedy>,
    no_effect: bool,
    work: Option<Counted>,
}

/// Whether two runs died at the same line of the same request, with as much allocated.
pub fn dies_alike(one: &DryRunReport, other: &DryRunReport) -> bool {
    let deaths = |report: &DryRunReport| -> Vec<_> {
        let died = report.devices.iter().filter_map(|device| device.oom.as_ref());
        died.map(|oom| {
            // An edit moves lines.
            let site = oom.site.as_ref().map(|site| (site.file.clone(), site.function.clone()));
            (oom.requested_bytes, oom.allocated_bytes, oom.reserved_bytes, site)
        })
        .collect()
    };
    let (one, other) = (deaths(one), deaths(other));
    !one.is_empty() && one == other && one.iter().all(|death| death.1.is_some())
}

/// A trial counts only with what was seen to take effect.
pub fn judge(changes: &Changes, report: &DryRunReport, run: &Observation, accept_recovered: bool) -> Tried {
    let seen: Vec<AppliedRemedy> = run.hooks.reports.iter().flat_map(|hook| hook.remedies.iter().cloned()).collect();
    let ended_early = matches!(report.verdict, Verdict::Oom | Verdict::Recovered | Verdict::Failed);
    let mut refused = Vec::new();
    for wanted in &changes.remedies {
        let reported: Vec<&AppliedRemedy> = seen.iter().filter(|remedy| remedy.id == wanted.id).collect();
        if reported.iter().any(|remedy| remedy.state == RemedyState::Applied) {
            continue;
        }
        // Who died may not have come to the place where it would have been applied.
        let unused = reported.iter().all(|remedy| remedy.state == RemedyState::Unused);
        if ended_early && unused {
            continue;
        }
        let why = match reported.first() {
            Some(remedy) if remedy.state == RemedyState::Already => format!("it is so already: {}", remedy.what),
            Some(remedy) => remedy.what.clone(),
            None => "there is no sign that it was applied".to_owned(),
        };
        refused.push((wanted.id.clone(), why));
    }
    let ran = match report.verdict {
        // What was cut off says nothing, whatever it looks like.
        Verdict::Fits | Verdict::Failed | Verdict::NoGpuUse if !run.is_done() => Ran::Failed("it timed out".into()),
        Verdict::Fits if report.tight => Ran::Tight(peak(report)),
        Verdict::Fits => Ran::Fits(peak(report)),
        Verdict::Recovered if accept_recovered && run.is_done() => Ran::Fits(peak(report)),
        Verdict::Oom | Verdict::Recovered | Verdict::Unsure => Ran::TooMuch,
        Verdict::Failed => {
            Ran::Failed(format!("the program ended with status {}: {}", report.exit_status, run.last_words()))
        }
        Verdict::NoGpuUse => Ran::Failed("the program did not use the GPU".into()),
    };
    // What was not applied changed nothing, so the run was one of the others.
    let ran = if refused.is_empty() { ran } else { Ran::NotApplied(refused, Some(Box::new(ran))) };
    Tried { ran, seen, no_effect: false, work: None }
}

/// The peak of the fullest card in the whole program, in bytes: with what iterations that were left out would have added, and
/// without what a pool took at the start and nothing used.
pub fn peak(report: &DryRunReport) -> u64 {
    let whole = |device: &DeviceReport| {
        let preallocated = device.pool.as_ref().is_some_and(|pool| pool.preallocated);
        let used = |peak: Peak| if preallocated { pool::without_slack(&peak) } else { peak }.process_bytes;
        device.need().map_or(0, used).max(used(device.peak))
    };
    report.devices.iter().map(whole).max().unwrap_or(0)
}

impl Bench for VirtualBench<'_> {
    type Error = Stop;

    fn run(&mut self, mixes: &[Mix<'_>]) -> Result<Vec<Ran>, Stop> {
        let jobs = self.jobs();
        let mut all = Vec::new();
        let whole: Vec<Mix<'_>> = mixes.iter().map(|mix| mix.and(&self.always)).collect();
        let mixes = whole.as_slice();
        if let Some(known) = mixes.iter().map(|mix| self.ran.get(&mix.key()).cloned()).collect::<Option<Vec<Ran>>>() {
            return Ok(known);
        }
        for some in mixes.chunks(jobs) {
            let names: Vec<String> = some.iter().map(|mix| mix.key().join(" + ")).collect();
            (self.tell)(&names.join("; "));
            let bench = &*self;
            let tried: Vec<Result<Tried, Stop>> = if let [mix] = some {
                vec![bench.trial(mix)]
            } else {
                std::thread::scope(|scope| {
                    let running: Vec<_> = some.iter().map(|mix| scope.spawn(move || bench.trial(mix))).collect();
                    let lost = || Err(Stop::Failed(anyhow::anyhow!("a trial ended without an answer")));
                    running.into_iter().map(|trial| trial.join().unwrap_or_else(|_| lost())).collect()
                })
            };
            for (mix, tried) in some.iter().zip(tried) {
                let tried = tried?;
                let Tried { ran, seen: remedies, no_effect, work } = tried;
                let sight = Sight { remedies, no_effect, when: Instant::now(), work };
                if let Ran::NotApplied(refused, Some(_)) = &ran {
                    // It was the trial of the others.
                    let rest = refused.iter().fold(mix.clone(), |mix, (id, _)| mix.without(id));
                    self.seen.entry(rest.key()).or_insert_with(|| sight.clone());
                }
                self.seen.insert(mix.key(), sight);
                self.ran.insert(mix.key(), ran.clone());
                all.push(ran);
            }
        }
        Ok(all)
    }

    fn jobs(&self) -> usize {
        self.jobs.min(self.runner.jobs()).max(1)
    }

    fn has_time(&self) -> bool {
        self.stopped.get().is_none() && self.budget.has_more()
    }
}

/// The work of the process of a run that computes most.
pub fn work_of(hooks: &HookReports) -> Option<Counted> {
    let works = hooks.reports.iter().filter_map(|hook| hook.work.as_ref());
    works
        .max_by_key(|work| work.products.iter().map(|(_, operations, _, times)| operations * times).sum::<u64>())
        .cloned()
}
