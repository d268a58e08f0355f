//! Runs the whole search: the unmodified program, what it needs, and what makes it fit.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use oomph_launch::{HookProgram, Limits, OwnLimit, ProgramKind};
use oomph_remedy::search::{Bench, Candidate, Dose, Fix, Forecast, Found, Mix, Ran, search};
use oomph_remedy::{Catalogue, Operation, Remedy, Task};
use oomph_report::{DryRunReport, Verdict};

use super::answer::{self, Answer};
use super::applier::{Applier, line_of};
use super::baseline::{Baseline, Seen, observed};
use super::bench::{VirtualBench, peak, work_of};
use super::budget::Budget;
use super::engine::{self, Lack};
use super::evaluation::{self, Evaluation};
use super::own::{self, Own};
use super::phases;
use super::price::Priced;
use super::question::Question;
use super::situation::Known;
use super::unmodified::Unmodified;
use super::wanted::Wanted;
use crate::activity::places::allocating;
use crate::assemble::assemble;
use crate::cards::Card;
use crate::changes::Changes;
use crate::needs;
use crate::pool;
use crate::run_context::RunContext;
use crate::trial::{Runner, Stop};
use crate::whole_pool;

/// How many fixes are looked for at least where those that answer the cause are fewer: one alone may not suit.
const FEWEST: usize = 2;

/// What a search works with.
pub struct Search<'s, 'a> {
    /// What every run of the program shares.
    pub context: &'s RunContext,
    /// Where trials run.
    pub runner: &'s dyn Runner,
    /// The remedies.
    pub catalogue: &'a Catalogue,
    /// What was asked for.
    pub wanted: &'s Wanted,
    /// When the command began.
    pub start: Instant,
    /// Receives what is tried.
    pub tell: &'s (dyn Fn(&str) + Sync),
}

/// Finds what the program needs. Where a signal ends that, the answers that are known by then are not lost: gives the signal.
fn find_need(unmodified: &mut Unmodified<'_>, has_answers: bool) -> Result<Option<i32>, Stop> {
    match unmodified.find_need() {
        Err(Stop::Interrupted(signal)) if has_answers => Ok(Some(signal)),
        done => done.map(|()| None),
    }
}

/// Cards without a limit, and how much of its own time a run on them may take.
#[derive(Clone, Copy)]
struct Unlimited<'s> {
    cards: &'s [Card],
    longest: Duration,
}

/// What is tried.
struct Tried<'t, 'a> {
    candidates: &'t [Candidate<'a>],
    /// Those that answer the cause.
    causes: &'t [Candidate<'a>],
    /// What an engine lacks that runs out.
    lack: Option<Lack>,
    /// Whether the card has enough for what the pool may not take of it.
    pool_is_small: bool,
}

/// What the trials have found.
struct Searched<'a> {
    found: Found<'a>,
    /// The signal that ended the search before its time.
    stopped: Option<i32>,
}

impl<'a> Search<'_, 'a> {
    /// Runs the unmodified program, and searches for changes where it does not fit.
    ///
    /// # Errors
    /// When a run cannot be set up, or a signal ends the search before anything is found.
    pub fn answer(&self) -> Result<Answer, Stop> {
        let Self { context, runner, wanted, tell, .. } = *self;
        let changes = Changes::none(&context.program.command);
        let (cards, timeout) = (wanted.cards.as_slice(), context.program.timeout);
        let unlimited: Vec<Card> = cards.iter().map(Card::without_limit).collect();
        let on_cards = whole_pool::as_on_a_card(&changes);
        let accept_recovered = wanted.accept_recovered;
        let baseline = Baseline { runner, changes: &changes, cards, unlimited: &unlimited, timeout, accept_recovered };
        let Seen { first, probe, longest } = baseline.see(tell)?;
        let Some(probe) = probe else {
            let baseline = assemble(cards, &first, None);
            return Ok(answer::without_fixes(context, wanted, &baseline, &first, self.start));
        };
        let needs = needs::Search {
            runner,
            changes: &on_cards,
            cards,
            unlimited: &probe,
            died: true,
            timeout,
            hurry: true,
            tell,
        };
        let unmodified = Unmodified::of(&first, needs, &unlimited)?;
        self.answer_for(unmodified, Unlimited { cards: &unlimited, longest })
    }

    /// Searches for changes that make a program fit.
    fn answer_for(&self, mut unmodified: Unmodified<'_>, unlimited: Unlimited<'_>) -> Result<Answer, Stop> {
        let Self { context, wanted, start, .. } = *self;
        let (command, full) = (&context.program.command, unmodified.report());
        let (owners, program) = (unmodified.owners(&full), unmodified.program());
        let fullest = unmodified.fullest();
        let card = wanted.cards.get(fullest).or(wanted.cards.first());
        let card = card.ok_or_else(|| Stop::Failed(anyhow::anyhow!("there is no card")))?;
        let limit_bytes = card.gpu.capacity_bytes;
        let line = line_of(command, &context.directory);
        let capability = card.gpu.compute_capability();
        let known = Known {
            line: line.as_ref(),
            program: &program,
            versions: &full.frameworks,
            oom: unmodified.error(),
            owners: &owners,
            peak_bytes: unmodified.peak_bytes(&full, card),
            limit_bytes,
            capability: (capability.major, capability.minor),
            cards: wanted.cards.len(),
            own_limit: full.devices.get(fullest).and_then(|device| pool::own_limit(device, limit_bytes)),
        };
        let Question { situation, moments, edits } = Question::of(&known, command, &context.directory, &card.gpu);
        let applier = Applier {
            command,
            line: line.clone(),
            situation: &situation,
            // From inside the hook changes programs of PyTorch only.
            hook: matches!(context.kind(), ProgramKind::Python { .. }) && !known.is_without_torch(),
            edits,
            refused: self.lacking_a_package(&program).into(),
        };
        let candidates = self.candidates(&known, &moments, &applier);
        let forecast = if unmodified.is_seen_whole() {
            Forecast::new(situation.clone(), known.peak_bytes.max(limit_bytes), limit_bytes)
        } else {
            Forecast::new(situation.clone(), unmodified.at_death(card), limit_bytes).at_least()
        };
        // The program itself may take long, and is not part of the search.
        let budget = Budget::new(wanted.max_time, unmodified.probe.own, wanted.jobs.min(self.runner.jobs()));
        let mut bench = self.bench(&applier, &unmodified, &full, &budget);
        let evaluates = moments.contains(&Operation::Evaluation);
        let always = if evaluates {
            Mix::default()
        } else {
            self.for_the_evaluation(&applier, &unmodified.needed, unlimited, (limit_bytes, &budget))?
        };
        bench.always = always.clone();
        let causes = phases::first(&candidates, &situation, evaluates && known.oom.is_some());
        let lack = engine::lack(unmodified.first, &known, &situation);
        let pool_is_small = unmodified.pool_is_small(&full, limit_bytes);
        let tried = Tried { candidates: &candidates, causes: &causes, lack, pool_is_small };
        let mut searched = self.search(&tried, &forecast, &mut bench)?;
        evaluation::named(&always, &mut searched.found);
        let priced = Priced { gpu: &card.gpu, before: work_of(&unmodified.probe.hooks) };
        priced.order(&mut searched.found.fixes, wanted.wishes.prefer, &bench.seen, &applier);
        let own = self.own_or_stopped(&applier, &unmodified, &full, &mut searched, &budget)?;
        let least = if own.fixes.is_empty() { self.least(&applier, &searched.found, unlimited)? } else { None };
        let Searched { found, mut stopped } = searched;
        if stopped.is_none() {
            stopped = find_need(&mut unmodified, !found.fixes.is_empty() || !own.fixes.is_empty())?;
        }
        let (full, first, seen) = (&unmodified.report(), unmodified.first, &bench.seen);
        let (known, applier) = (&known, &applier);
        let parts = answer::Parts {
            context,
            wanted,
            full,
            first,
            known,
            applier,
            seen,
            priced,
            found,
            own,
            least,
            start,
            stopped,
        };
        Ok(parts.answer())
    }

    /// The remedies whose package the program's Python does not have, by id.
    fn lacking_a_package(&self, program: &HookProgram) -> BTreeSet<String> {
        let lacks = |remedy: &&Remedy| remedy.package.as_ref().is_some_and(|name| program.missing.contains(name));
        self.catalogue.remedies().iter().filter(lacks).map(|remedy| remedy.id.clone()).collect()
    }

    /// The remedies that may help and can be applied, in the order in which they are tried.
    fn candidates(&self, known: &Known<'_>, moments: &[Operation], applier: &Applier<'_>) -> Vec<Candidate<'a>> {
        let Self { catalogue, wanted, .. } = *self;
        let situation = applier.situation;
        // Only trainers that cut what is longer have an argument for it.
        let cuts = known.program.trainer.as_ref().is_some_and(|trainer| trainer.arguments.max_length.is_some());
        let mut candidates = catalogue.candidates(situation, moments, &wanted.wishes, |remedy| {
            applier.can_apply(remedy) && (cuts || remedy.knob.as_ref().is_none_or(|knob| knob.of.is_none()))
        });
        if !candidates.iter().any(|candidate| candidate.remedy.id == "no-grad") && known.task() == Some(Task::Training)
        {
            candidates.extend(phases::evaluation_without_graph(catalogue, situation, &wanted.wishes, applier));
        }
        if known.task() == Some(Task::Training) {
            candidates.extend(phases::share_of_an_engine(catalogue, situation, &wanted.wishes, applier));
        }
        // It is searched last, unless it is asked for.
        if wanted.wishes.allow.contains(phases::PART_OF_THE_EVALUATION) {
            candidates.extend(phases::part_of_the_evaluation(catalogue, situation, &wanted.wishes, applier));
        }
        phases::ordered(candidates, applier)
    }

    /// [`Self::own`], unless a signal has ended the search; the answers that are known by then are not lost.
    fn own_or_stopped(
        &self,
        applier: &Applier<'_>,
        unmodified: &Unmodified<'_>,
        before: &DryRunReport,
        searched: &mut Searched<'a>,
        budget: &Budget,
    ) -> Result<Own, Stop> {
        if searched.stopped.is_some() {
            return Ok(Own::default());
        }
        let own = self.own(applier, unmodified, before, (&searched.found.fixes, budget))?;
        searched.stopped = own.stopped;
        match own.stopped {
            Some(signal) if searched.found.fixes.is_empty() && own.fixes.is_empty() => Err(Stop::Interrupted(signal)),
            _ => Ok(own),
        }
    }

    /// What is found with the calls and sizes of a program that no framework allocates for, or with less data where the
    /// remedies for a framework leave fewer answers than a user can choose from.
    fn own(
        &self,
        applier: &Applier<'_>,
        unmodified: &Unmodified<'_>,
        before: &DryRunReport,
        (fixes, budget): (&[Fix<'_>], &Budget),
    ) -> Result<Own, Stop> {
        let Self { context, runner, wanted, catalogue, start, tell, .. } = *self;
        let found = fixes.len();
        let allocates = |name: &&str| before.frameworks.contains_key(*name);
        // PyTorch's programs have remedies enough, but few of them help next to an engine. Where none fits, less data is better
        // than no answer.
        let has_enough = found > 0 && allocates(&"torch") && !allocates(&"vllm");
        if found >= FEWEST.min(wanted.fixes) || has_enough {
            return Ok(Own::default());
        }
        let search = own::Search {
            runner,
            applier,
            catalogue,
            wanted,
            before,
            directory: &context.directory,
            budget,
            start,
            most: FEWEST.min(wanted.fixes).saturating_sub(found),
            found: fixes.iter().flat_map(|fix| &fix.mix.doses).map(|dose| dose.remedy.id.as_str()).collect(),
            tell,
        };
        if ["torch", "tensorflow", "jax", "onnxruntime"].iter().any(allocates) {
            budget.add_a_few();
            return search.less_work_fits();
        }
        let search = own::Search { most: wanted.fixes.saturating_sub(found), ..search };
        // Of llama.cpp's bindings the line is one that calls the library, which makes more than one request.
        let own_lines = before.frameworks.is_empty() || before.frameworks.contains_key("numba");
        let oom = before.devices.iter().find_map(|device| device.oom.as_ref()).filter(|_| own_lines);
        let refused = oom.and_then(|oom| Some((oom.site.as_ref()?, oom.requested_bytes)));
        search.answer(&allocating(&unmodified.first.activities, &unmodified.probe.activities, refused))
    }

    /// The bench that mixes of remedies are tried on.
    fn bench<'b>(
        &'b self,
        applier: &'b Applier<'b>,
        unmodified: &Unmodified<'_>,
        before: &'b DryRunReport,
        budget: &'b Budget,
    ) -> VirtualBench<'b> {
        let wanted = self.wanted;
        VirtualBench {
            runner: self.runner,
            applier,
            cards: &wanted.cards,
            jobs: wanted.jobs,
            budget,
            stopped: OnceLock::new(),
            accept_recovered: wanted.accept_recovered,
            unreached: unmodified.needed.unreached.iter().map(|part| part.part.clone()).collect(),
            before,
            seen: Default::default(),
            ran: Default::default(),
            always: Mix::default(),
            tell: self.tell,
        }
    }

    /// What makes the evaluation fit of a program that dies before it: no trial of the training shows that.
    fn for_the_evaluation(
        &self,
        applier: &Applier<'_>,
        needed: &DryRunReport,
        unlimited: Unlimited<'_>,
        (limit_bytes, budget): (u64, &Budget),
    ) -> Result<Mix<'a>, Stop> {
        let evaluation = Evaluation {
            catalogue: self.catalogue,
            situation: applier.situation,
            wishes: &self.wanted.wishes,
            applier,
            runner: self.runner,
            unlimited: unlimited.cards,
            limit_bytes,
            longest: unlimited.longest,
            budget,
            tell: self.tell,
        };
        evaluation.answer(needed)
    }

    /// Tries what answers the cause, with one answer more where an evaluation has a single one; where that is not enough all
    /// candidates; and, if none of those lowers the batch, also
    /// what lowers it by the program's own options.
    fn search(
        &self,
        tried: &Tried<'_, 'a>,
        forecast: &Forecast,
        bench: &mut VirtualBench<'_>,
    ) -> Result<Searched<'a>, Stop> {
        let (catalogue, fixes) = (self.catalogue, self.wanted.fixes);
        let Tried { candidates: all, causes, lack, pool_is_small } = *tried;
        let helps = |candidate: &&Candidate<'a>| lack.is_none_or(|lack| lack.is_helped_by(candidate.remedy));
        let candidates = &*all.iter().filter(helps).cloned().collect::<Vec<_>>();
        let mut found = Found::default();
        let mut free = Found::default();
        if pool_is_small {
            // It costs nothing, and changes nothing of the program.
            let larger = phases::larger_pool(catalogue, bench.applier.situation, &self.wanted.wishes, bench.applier);
            let mixes: Vec<Mix<'_>> = larger.iter().map(|one| Mix::single(Dose::of(one.remedy))).collect();
            self.first_that_fits(&mixes, &mut free, bench)?;
        }
        if !causes.is_empty() {
            found = search(catalogue, causes, forecast, fixes, bench)?;
        }
        let by_cause = found.fixes.iter().any(|fix| !fix.tight);
        if by_cause && phases::computes(&found) && found.fixes.len() < FEWEST.min(fixes) && !found.out_of_time {
            // What makes all of the program smaller makes its evaluation smaller, too. It does nothing for results that are
            // kept.
            let rest = phases::second_answers(candidates, &found);
            let more = search(catalogue, &rest, forecast, FEWEST.min(fixes) - found.fixes.len(), bench)?;
            phases::add(&mut found, more);
            if found.fixes.len() < FEWEST.min(fixes) && !found.out_of_time {
                // Nothing else is enough alone. With it, less of the first answer may be.
                let gentler = phases::gentler(candidates, &found);
                let more = search(catalogue, &gentler, forecast, FEWEST.min(fixes) - found.fixes.len(), bench)?;
                phases::add(&mut found, more);
            }
        }
        if by_cause && found.fixes.len() < FEWEST.min(fixes) && !found.out_of_time {
            let situation = bench.applier.situation;
            let part = phases::part_of_the_evaluation(catalogue, situation, &self.wanted.wishes, bench.applier);
            let more = search(catalogue, &part, forecast, 1, bench)?;
            phases::add(&mut found, more);
        }
        if !by_cause && (causes.is_empty() || !found.out_of_time) {
            found = search(catalogue, candidates, forecast, fixes, bench)?;
        }
        phases::add(&mut found, free);
        let stopped = bench.stopped.get().copied();
        if let Some(signal) = stopped {
            if found.fixes.is_empty() {
                return Err(Stop::Interrupted(signal));
            }
            found.out_of_time = true;
        }
        let lowers = |fix: &Fix<'_>| fix.mix.doses.iter().any(|dose| phases::is_batch(&dose.remedy.id));
        if !by_cause && !found.out_of_time && !found.fixes.iter().any(lowers) {
            let batch = phases::own_batch(candidates, bench.applier);
            let more = search(catalogue, &batch, forecast, 1, bench)?;
            found.fixes.extend(more.fixes.into_iter().filter(|fix| !fix.tight));
        }
        if found.fixes.len() < FEWEST.min(fixes) && stopped.is_none() {
            let together = lack.map(|lack| lack.together(all, &found)).unwrap_or_default();
            self.first_that_fits(&together, &mut found, bench)?;
        }
        // One answer leaves no choice, and this one is nearly certain.
        let plain = phases::plain_batch(candidates, &found);
        if found.fixes.len() < FEWEST.min(fixes) && stopped.is_none() && !plain.is_empty() {
            bench.budget.add_a_few();
            let more = search(catalogue, &plain, forecast, 1, bench)?;
            phases::add(&mut found, more);
        }
        Ok(Searched { found, stopped })
    }

    /// Tries mixes that were put together in advance, one after the other until one fits.
    fn first_that_fits(
        &self,
        mixes: &[Mix<'a>],
        found: &mut Found<'a>,
        bench: &mut VirtualBench<'_>,
    ) -> Result<(), Stop> {
        for mix in mixes {
            bench.budget.add_a_few();
            if !bench.has_time() {
                found.out_of_time = true;
                return Ok(());
            }
            let ran = bench.run(std::slice::from_ref(mix))?;
            let Some(ran) = ran.into_iter().next() else { continue };
            let fits = matches!(ran, Ran::Fits(_));
            if let Ran::Fits(peak_bytes) = ran {
                found.fixes.push(Fix { mix: mix.clone(), peak_bytes, tight: false });
            }
            found.tried.push((mix.clone(), ran));
            if fits {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The peak of the strongest mix on cards without a limit, in bytes, where nothing fits.
    fn least(&self, applier: &Applier<'_>, found: &Found<'_>, unlimited: Unlimited<'_>) -> Result<Option<u64>, Stop> {
        let strongest: &Mix<'_> = match &found.strongest {
            Some(mix) if found.fixes.is_empty() => mix,
            _ => return Ok(None),
        };
        let Ok(changes) = applier.changes(strongest) else { return Ok(None) };
        (self.tell)("the least that it needs with everything applied");
        let own = OwnLimit::of(unlimited.longest);
        let ended = self.runner.run(&changes, unlimited.cards, Limits { clock: None, own: Some(&own) });
        let run = observed(ended.map_err(Stop::Failed)?)?;
        let report = assemble(unlimited.cards, &run, None);
        Ok((report.verdict == Verdict::Fits && run.is_done()).then(|| peak(&report)))
    }
}
