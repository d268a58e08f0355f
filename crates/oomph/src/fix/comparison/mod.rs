//! Finds what a fix does to the result: the program and the changed program are run with real numbers, and compared.
//!
//! Both run on the virtual card with every value computed on the host's processor, with fewer samples and fewer equal blocks, for a
//! few optimizer steps over a last batch that is not full. How far rounding alone drives the program apart is measured as well: it is
//! run again with weights that differ in their last digit.

mod measure;
mod words;

use std::collections::BTreeMap;
use std::time::Duration;

use oomph_edit::reweighed;
use oomph_launch::{Limits, OwnLimit, host_memory_bytes};
use oomph_protocol::compared::Compare;
use oomph_report::{Compared, Comparison, FixRow, ResultChange, Verdict};

use super::answer::Answer;
use super::applied::Applied;
use super::baseline::observed;
use super::bench::peak;
use super::wanted::Wanted;
use crate::assemble::assemble;
use crate::cards::Card;
use crate::changes::Changes;
use crate::run_context::{Computed, RunContext};
use crate::trial::{Runner, Stop};
use measure::{Difference, Tolerance, Trace};

/// How many steps of an optimizer are compared: an epoch of three, and two of the next.
const STEPS: u64 = 5;
/// Of fewer nothing is said.
const LEAST_STEPS: usize = 2;
/// How much of its own time a run may take, which the user waits for.
const LONGEST: Duration = Duration::from_secs(25);
/// The changed program may take this many times as long as the program.
const LONGER: u32 = 2;
/// Once all runs of an answer have taken so much of their own time, no other fix is compared.
const ALL: Duration = Duration::from_secs(75);
/// Samples of a micro-batch.
const MICRO: u64 = 2;
/// How many other shares of a batch's parts are tried.
const MOST_SHARES: usize = 5;
/// The share of the host's memory that real numbers may take.
const SHARE: u64 = 3;

/// Compares programs.
struct Comparer<'s> {
    context: &'s RunContext,
    cards: Vec<Card>,
    /// The cards that it has to fit.
    on: &'s [Card],
    /// The program as it was typed.
    program: Changes,
    /// Samples of its batch, where that is known.
    batch: Option<u64>,
    /// Samples that it makes at a time without a loader, once that was seen.
    made: u64,
    /// The own time of all runs.
    spent: Duration,
    /// What the program computed, by how it was run.
    seen: BTreeMap<Setting, Result<Trace, String>>,
    tell: &'s (dyn Fn(&str) + Sync),
}

/// How a program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Setting {
    /// What batches are divided by.
    divide: u64,
    /// Samples of a batch that no loader gives.
    few: u64,
    /// With weights that differ in their last digit.
    perturbed: bool,
    /// With the same random numbers for each sample.
    still: bool,
    /// With all blocks, and in the program's own precision.
    untouched: bool,
}

/// Puts what was found by comparing in place of what the catalogue says of the results; what changes less comes first then.
///
/// # Errors
/// When a signal ended a run.
pub fn complete(
    context: &RunContext,
    wanted: &Wanted,
    answer: &mut Answer,
    (compares, tell): (bool, &(dyn Fn(&str) + Sync)),
) -> Result<(), Stop> {
    let claims = |row: &FixRow| matches!(row.result, ResultChange::Same | ResultChange::Equivalent);
    if !answer.report.fixes.iter().any(claims) {
        return Ok(());
    }
    let program = Changes::none(&context.program.command);
    let limit = host_memory_bytes().map_or(u64::MAX, |bytes| bytes / SHARE);
    let cards = wanted.cards.iter().map(|card| card.with_capacity(limit)).collect();
    let batch = answer.batch;
    let mut comparer = Comparer {
        context,
        cards,
        on: &wanted.cards,
        program,
        batch,
        made: 0,
        spent: Duration::ZERO,
        seen: BTreeMap::new(),
        tell,
    };
    let is_late = || wanted.max_time.is_some_and(|most| answer.start.elapsed() > most);
    let both = answer.report.fixes.iter_mut().zip(&mut answer.changes);
    for (row, applied) in both.filter(|(row, _)| claims(row)) {
        if !compares {
            row.result = ResultChange::NotCompared;
            continue;
        }
        let is_late = is_late() || comparer.spent > ALL;
        let mut found = match (answer.has_torch, is_late) {
            (true, false) => comparer.compare(row, applied)?,
            (true, true) => words::not_compared("the time for comparisons was up"),
            (false, _) => words::not_compared("numbers are computed for PyTorch alone"),
        };
        if found.outcome == Compared::Other
            && let Some(better) = comparer.reweighed(row, applied)?
        {
            found = better;
        }
        row.result = match found.outcome {
            Compared::Equal if found.difference == Some(0.0) => ResultChange::Same,
            Compared::Equal => ResultChange::Equivalent,
            Compared::SameInDistribution => ResultChange::SameInDistribution,
            Compared::Other => ResultChange::Changed,
            Compared::NotCompared => ResultChange::NotCompared,
        };
        row.comparison = Some(found);
    }
    let (rows, changes) = (std::mem::take(&mut answer.report.fixes), std::mem::take(&mut answer.changes));
    let mut both: Vec<(FixRow, Applied)> = rows.into_iter().zip(changes).collect();
    let is_other = |row: &FixRow| row.comparison.as_ref().is_some_and(|found| found.outcome == Compared::Other);
    both.sort_by_key(|(row, _)| is_other(row));
    (answer.report.fixes, answer.changes) = both.into_iter().unzip();
    Ok(())
}

impl Comparer<'_> {
    /// Compares the program with one of its fixes.
    fn compare(&mut self, row: &FixRow, applied: &Applied) -> Result<Comparison, Stop> {
        let changes = &applied.changes;
        if applied.virtual_only {
            return Ok(words::not_compared("its author has to write it"));
        }
        (self.tell)(&format!("{} compared with the program, in numbers", row.remedies.join(" + ")));
        let few = self.few(row);
        let divide = self.batch.map_or(1, |batch| batch / few).max(1);
        let setting = Setting { divide, few, perturbed: false, still: false, untouched: false };
        let (setting, original) = match self.original(setting)? {
            Ok(trace) => (setting, trace),
            Err(first) if first == too_long() => return Ok(words::not_compared(&first)),
            Err(first) => {
                let setting = Setting { untouched: true, ..setting };
                match self.original(setting)? {
                    Ok(trace) => (setting, trace),
                    Err(_) => return Ok(words::not_compared(&first)),
                }
            }
        };
        let changed = match self.changed(changes, setting, &original)? {
            Ok(trace) => trace,
            Err(why) => return Ok(words::not_compared(&format!("with the change, {why}"))),
        };
        let found = Difference::between(&original, &changed);
        if found.is_empty() {
            return Ok(words::not_compared("the two have no step, result or line of output in common"));
        }
        if found.is_within(&Tolerance::none()) {
            return Ok(words::equal(&original, &found, None));
        }
        let tolerance = match self.original(Setting { perturbed: true, ..setting })? {
            Ok(control) => Tolerance::of(&Difference::between(&original, &control)),
            Err(_) => Tolerance::none(),
        };
        if found.is_within(&tolerance) {
            return Ok(words::equal(&original, &found, Some(&tolerance)));
        }
        if original.draws() || changed.draws() {
            let setting = Setting { still: true, ..setting };
            if let Ok(original) = self.original(setting)?
                && let Ok(changed) = self.changed(changes, setting, &original)?
                && Difference::between(&original, &changed).is_within(&tolerance)
            {
                return Ok(words::same_in_distribution(&original, &found));
            }
        }
        Ok(words::other(&original, &found, &tolerance))
    }

    /// Looks for the shares of a batch's parts with which a fix that cuts it computes the same, and changes the fix.
    fn reweighed(&mut self, row: &mut FixRow, applied: &mut Applied) -> Result<Option<Comparison>, Stop> {
        let edited = applied.changes.edited.clone();
        for (path, text) in &edited {
            for other in reweighed(text).into_iter().take(MOST_SHARES) {
                if self.spent > ALL {
                    return Ok(None);
                }
                let mut changed = applied.clone();
                changed.changes.edited.insert(path.clone(), other.text);
                let mut found = self.compare(row, &changed)?;
                if found.outcome != Compared::Equal {
                    continue;
                }
                // What is printed is what was run.
                let Some(peak_bytes) = self.peak(&changed.changes)? else { continue };
                row.room_bytes = row.room_bytes.map(|room| (room + row.peak_bytes).saturating_sub(peak_bytes));
                let more = i64::try_from(i128::from(peak_bytes) - i128::from(row.peak_bytes)).unwrap_or(0);
                row.saves_bytes = row.saves_bytes.map(|saves| saves.saturating_sub(more));
                row.peak_bytes = peak_bytes;
                found.reduced.push(format!("a part counts for its share of {}", other.share));
                let patched = |patch: &str| {
                    other.lines.iter().fold(patch.to_owned(), |patch, (before, after)| {
                        patch.replace(&format!("\n+{before}\n"), &format!("\n+{after}\n"))
                    })
                };
                row.patch = row.patch.as_deref().map(patched);
                for apply in row.apply.iter_mut().filter(|apply| apply.kind == "patch") {
                    apply.text = patched(&apply.text);
                }
                *applied = changed;
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The peak of a changed program on the cards, in bytes; `None` where it does not fit.
    fn peak(&self, changes: &Changes) -> Result<Option<u64>, Stop> {
        let ended = self.context.run(changes, self.on, Limits::default()).map_err(Stop::Failed)?;
        let report = assemble(self.on, &observed(ended)?, None);
        Ok((report.verdict == Verdict::Fits && !report.tight).then(|| peak(&report)))
    }

    /// The samples of a batch, so that a micro-batch has a few.
    fn few(&self, row: &FixRow) -> u64 {
        let part = |name: &String| name.split_once('/').and_then(|(_, by)| by.parse::<u64>().ok());
        let parts = row.remedies.iter().filter_map(part).max().unwrap_or(1).max(1);
        (MICRO * parts).max(2 * MICRO)
    }

    /// What the program computes.
    fn original(&mut self, setting: Setting) -> Result<Result<Trace, String>, Stop> {
        if let Some(known) = self.seen.get(&setting) {
            return Ok(known.clone());
        }
        let mut computed = self.compute(&self.program.clone(), setting, Vec::new(), LONGEST)?;
        let begins_again = computed.seen.as_ref().filter(|(seen, _)| seen.few.is_none());
        if let Some(batch) = begins_again.and_then(|(seen, _)| seen.batch) {
            self.made = batch;
            computed = self.compute(&self.program.clone(), setting, Vec::new(), LONGEST)?;
        }
        let trace = judged(computed);
        self.seen.insert(setting, trace.clone());
        Ok(trace)
    }

    /// What a changed program computes on the same samples.
    fn changed(
        &mut self,
        changes: &Changes,
        setting: Setting,
        original: &Trace,
    ) -> Result<Result<Trace, String>, Stop> {
        Ok(judged(self.compute(changes, setting, original.samples(), LONGEST * LONGER)?))
    }

    fn compute(
        &mut self,
        changes: &Changes,
        setting: Setting,
        samples: Vec<u64>,
        longest: Duration,
    ) -> Result<Computed, Stop> {
        let Setting { divide, few, perturbed, still, untouched } = setting;
        let (batch, few) = if untouched { (0, u64::from(u32::MAX)) } else { (self.made, few) };
        let compare = Compare {
            steps: STEPS,
            seed: 1,
            samples,
            divide,
            batch,
            few,
            perturbed,
            still,
            whole_precision: !untouched,
            fewer_blocks: !untouched,
        };
        let changes = Changes { compare: Some(Box::new(compare)), ..changes.clone() };
        let own = OwnLimit::of(longest);
        let limits = Limits { clock: None, own: Some(&own) };
        let computed = self.context.compute(&changes, &self.cards, limits).map_err(Stop::Failed)?;
        self.spent += computed.own;
        computed.interrupted.map_or(Ok(computed), |signal| Err(Stop::Interrupted(signal)))
    }
}

/// What was recorded, or why nothing can be said by it.
fn judged(computed: Computed) -> Result<Trace, String> {
    let Computed { seen, timed_out, failed, stderr_tail, .. } = computed;
    let last = || stderr_tail.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default().to_owned();
    let failure = || {
        let last = last();
        if last.is_empty() {
            "it failed on the processor".to_owned()
        } else {
            format!("it failed on the processor: {last}")
        }
    };
    let Some((compared, numbers)) = seen else {
        return Err(if timed_out {
            too_long()
        } else if failed {
            failure()
        } else {
            "it makes no optimizer step of PyTorch's".into()
        });
    };
    if !compared.uncomputed.is_empty() {
        let names: Vec<&str> = compared.uncomputed.iter().take(3).map(String::as_str).collect();
        return Err(format!("not every kernel is computed on the processor ({})", names.join(", ")));
    }
    let trace = Trace::new(compared, numbers);
    match trace.steps() {
        // What died on its way was not compared, however far it came.
        _ if failed => Err(failure()),
        0 if timed_out => Err(too_long()),
        0 if !trace.has_results() => Err("it makes no optimizer step and keeps no result".to_owned()),
        0 => Ok(trace),
        _ if trace.steps() < LEAST_STEPS && timed_out => Err(too_long()),
        _ if trace.is_silent() => Err("all its gradients are zero or no numbers".to_owned()),
        _ => Ok(trace),
    }
}

fn too_long() -> String {
    format!("{LEAST_STEPS} optimizer steps take more than {} s on this machine's processor", LONGEST.as_secs())
}
