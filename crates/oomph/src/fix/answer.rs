//! Turns the result of a search into the answer, in the terms of the program's framework.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use oomph_gpu::Catalogue as Cards;
use oomph_launch::{AppliedRemedy, HookKept, RemedyState, masked};
use oomph_remedy::effect::{self, ZeroStage};
use oomph_remedy::rewrite::{self, Change, Into};
use oomph_remedy::search::{Dose, Fix, Found, Mix, Ran};
use oomph_remedy::{
    Catalogue, Cause, Fact, Framework, Kind, Operation, OwnerGroup, Remedy, Sameness, Situation, Task, Written,
};
use oomph_report::{
    Apply, Attempt, Baseline, CapacityKnown, DeviceReport, Dropped, DryRunReport, FixReport, FixRow, FixSchema,
    FixVerdict, Floor, Foretold, NextStep, ResultChange, Verdict,
};

use super::applied::{Applied, patch_of};
use super::applier::{Applier, Means, Ready, Said, dosed};
use super::bench::{Sight, peak};
use super::own::Own;
use super::phases::{AT_THE_LINE, is_batch};
use super::price::{self, Priced};
use super::situation::Known;
use super::unmodified::fullest;
use super::wanted::Wanted;
use crate::evidence::CLOSE;
use crate::observation::Observation;
use crate::run_context::RunContext;

/// Cards beyond this are no longer one machine.
const MOST_CARDS: u64 = 64;

/// The answer, and what it takes to act on it.
pub struct Answer {
    /// What is reported.
    pub report: FixReport,
    /// What each fix changes, in the order of the report.
    pub changes: Vec<Applied>,
    /// The end of what the program said, where it failed.
    pub messages: String,
    /// The signal that ended the search before its time.
    pub stopped: Option<i32>,
    /// Samples of the program's batch, where that is known.
    pub batch: Option<u64>,
    /// Whether PyTorch computes for the program.
    pub has_torch: bool,
    /// When the command began.
    pub start: Instant,
}

/// The answer for a program that fits already, or that fails for another reason.
pub fn without_fixes(
    context: &RunContext,
    wanted: &Wanted,
    baseline: &DryRunReport,
    run: &Observation,
    start: Instant,
) -> Answer {
    let verdict = match baseline.verdict {
        // What recovers comes here only where that was asked for.
        Verdict::Fits | Verdict::Recovered | Verdict::NoGpuUse => FixVerdict::FitsAlready,
        Verdict::Failed | Verdict::Unsure | Verdict::Oom => FixVerdict::Failed,
    };
    let fits = verdict == FixVerdict::FitsAlready;
    let report = FixReport {
        schema: FixSchema,
        verdict,
        baseline: Baseline { peak_bytes: fits.then(|| peak(baseline)), ..self::baseline(wanted, baseline) },
        fixes: Vec::new(),
        attempts: Vec::new(),
        dropped: Vec::new(),
        floor: None,
        tried: 0,
        elapsed_seconds: seconds(start),
        out_of_time: false,
        untried: Vec::new(),
        foretold: None,
        warnings: baseline.warnings.clone(),
        command: context.program.shown(),
        next: Vec::new(),
        order: wanted.wishes.prefer,
    };
    Answer {
        report,
        changes: Vec::new(),
        messages: run.stderr_tail.clone(),
        stopped: None,
        batch: None,
        has_torch: false,
        start,
    }
}

/// A command line as shown for a shell: without secrets.
fn shown(said: Said) -> String {
    Said { words: masked(&said.words), ..said }.shell(&BTreeMap::new())
}

fn command(context: &RunContext) -> Vec<String> {
    context.program.command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

pub fn seconds(start: Instant) -> f64 {
    rounded(start.elapsed())
}

fn rounded(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}

/// The unmodified program; its owners are not known from the run on the card.
fn baseline(wanted: &Wanted, report: &DryRunReport) -> Baseline {
    let died = |device: &DeviceReport| device.oom.is_some() || !device.caught_ooms.is_empty();
    let place = report.devices.iter().position(died).unwrap_or(fullest(report));
    let device = report.devices.get(place);
    Baseline {
        verdict: report.verdict,
        gpu: device.map(|device| device.gpu.clone()).unwrap_or_default(),
        gpu_name: device.map(|device| device.gpu_name.clone()).unwrap_or_default(),
        capacity_bytes: device.and_then(|device| device.capacity_bytes),
        limit_bytes: wanted.cards.get(place).and_then(|card| card.capacity_bytes()),
        peak_bytes: device.and_then(|device| device.need()).map(|need| need.process_bytes).filter(|need| {
            // A run that left out most iterations of a loop whose memory grows has not seen what it needs.
            device.is_none_or(|device| *need >= device.peak.process_bytes)
        }),
        peak_is_minimum: device.is_some_and(|device| device.needed_is_minimum),
        died_with_bytes: device.and_then(died_with),
        owners: Vec::new(),
        oom: device.and_then(|device| device.oom.as_ref().or(device.caught_ooms.last()).cloned()),
    }
}

/// Whether runs on cards of a limited size say what the program needs.
fn need_was_run(report: &DryRunReport) -> bool {
    let mut found = report.devices.iter().filter_map(|device| device.smallest_capacity.as_ref());
    found.any(|found| found.how == CapacityKnown::Run)
}

/// What the program died with, in bytes, where the search for what it needs was cut short.
fn died_with(device: &DeviceReport) -> Option<u64> {
    let needed = device.needed.filter(|_| !device.needed_is_minimum)?.process_bytes;
    let fails = device.smallest_capacity.as_ref()?.fails_bytes?;
    (fails < needed - needed / CLOSE).then_some(fails)
}

/// Everything that an answer is made of.
pub struct Parts<'s, 'a> {
    /// What every run of the program shares.
    pub context: &'s RunContext,
    /// What was asked for.
    pub wanted: &'s Wanted,
    /// The unmodified program, with what it needs.
    pub full: &'s DryRunReport,
    /// The run on the card.
    pub first: &'s Observation,
    /// What is known of the program.
    pub known: &'s Known<'s>,
    /// How remedies are applied.
    pub applier: &'s Applier<'s>,
    /// What was seen of the remedies, by the key of the mix.
    pub seen: &'s BTreeMap<Vec<String>, Sight>,
    /// What the prices are computed from.
    pub priced: Priced<'s>,
    /// What the search found.
    pub found: Found<'a>,
    /// What was found with the program's own calls and sizes.
    pub own: Own,
    /// The least that it needs where nothing fits, in bytes.
    pub least: Option<u64>,
    /// When the command began.
    pub start: Instant,
    /// The signal that ended the search.
    pub stopped: Option<i32>,
}

impl<'a> Parts<'_, 'a> {
    /// The answer.
    pub fn answer(self) -> Answer {
        let mut base = Baseline { owners: self.known.owners.to_vec(), ..baseline(self.wanted, self.full) };
        // On a card without a limit no cache is given back: where a signal came before the search, that is not the need.
        base.peak_bytes = base.peak_bytes.filter(|_| self.stopped.is_none() || need_was_run(self.full));
        let fixes: Vec<FixRow> = self.found.fixes.iter().map(|fix| self.row(fix, &base)).collect();
        let changes = self.found.fixes.iter().filter_map(|fix| {
            let mix = &fix.mix;
            let changes = self.applier.changes(mix).ok()?;
            let (said, said_in_file) = (self.applier.said(mix, Into::Line), self.applier.said(mix, Into::File));
            let edits = self.applier.edits.as_ref();
            let originals = edits.map(|edits| edits.originals(changes.edited.keys())).unwrap_or_default();
            let shrinks_batch = self.applier.ready(mix).is_ok_and(|ready| ready.smaller_batch.is_some());
            Some(Applied { changes, said, said_in_file, shrinks_batch, originals, virtual_only: false })
        });
        let (own_rows, own_changes): (Vec<FixRow>, Vec<Applied>) = self.own.fixes.iter().cloned().unzip();
        let fixes: Vec<FixRow> = fixes.into_iter().chain(own_rows).collect();
        let changes = changes.chain(own_changes).collect();
        let is_fix = |mix: &Mix<'_>| self.found.fixes.iter().any(|fix| fix.mix.key() == mix.key());
        let attempts = self.found.tried.iter().filter(|(mix, _)| !is_fix(mix));
        let attempts = attempts.map(|(mix, ran)| {
            let mut attempt = attempt(mix, ran, base.peak_bytes);
            if self.seen.get(&mix.key()).is_some_and(|sight| sight.no_effect) {
                attempt.why = Some("it dies of the same request, with as much allocated".to_owned());
            }
            attempt
        });
        let attempts = attempts.chain(self.own.attempts.iter().cloned()).collect();
        let fixed = |id: &str| self.found.fixes.iter().any(|fix| fix.mix.holds(id));
        // What ran and was too little is not impossible.
        let ran = |id: &str| {
            let alone = |(mix, ran): &(Mix<'_>, Ran)| mix.doses.len() == 1 && mix.holds(id) && *ran == Ran::TooMuch;
            self.found.tried.iter().any(alone)
        };
        let dropped = self.found.dropped.iter().filter(|(id, _)| !fixed(id) && !ran(id));
        let dropped = dropped.map(|(id, why)| Dropped { remedy: id.clone(), why: why.clone() });
        let mut named = BTreeSet::new();
        let dropped =
            dropped.chain(self.of_one_batch()).filter(|row| named.insert(row.remedy.clone()) && !ran(&row.remedy));
        let dropped = dropped.collect();
        let report = FixReport {
            schema: FixSchema,
            verdict: if fixes.is_empty() { FixVerdict::NothingFits } else { FixVerdict::Fixed },
            floor: fixes.is_empty().then(|| self.floor()),
            next: self.next(),
            order: self.wanted.wishes.prefer,
            fixes,
            attempts,
            dropped,
            tried: self.found.tried.len() as u64 + self.own.tried,
            elapsed_seconds: seconds(self.start),
            out_of_time: self.found.out_of_time || self.own.out_of_time,
            untried: self.found.untried.iter().chain(&self.own.untried).cloned().collect(),
            foretold: self.foretold(),
            warnings: self.full.warnings.clone(),
            command: self.context.program.shown(),
            baseline: base,
        };
        let has_torch = self.full.frameworks.contains_key("torch");
        let (stopped, batch, start) = (self.stopped, self.applier.situation.settings.batch_size, self.start);
        Answer { report, changes, messages: self.first.stderr_tail.clone(), stopped, batch, has_torch, start }
    }

    /// The remedies that a loss over whole batches rules out.
    fn of_one_batch(&self) -> impl Iterator<Item = Dropped> {
        let is_one = self.applier.situation.settings.compares_samples == Some(true);
        let needs = |remedy: &&Remedy| remedy.when.plausible.contains(&Fact::SamplesAreIndependent);
        Catalogue::builtin().remedies().iter().filter(needs).filter(move |_| is_one).map(|remedy| Dropped {
            remedy: remedy.id.clone(),
            why: "the loss compares the samples of a batch with each other, so splitting a batch changes the loss"
                .to_owned(),
        })
    }

    /// What one would run next. Only the remedies of the first fix are tried then, which takes a part of the time.
    fn next(&self) -> Vec<NextStep> {
        let program = &self.context.program;
        let step = |why: &str, own: &[&str]| {
            let own: Vec<String> = own.iter().map(|&word| word.to_owned()).collect();
            NextStep { why: why.into(), command: program.fix(&[&self.wanted.options, own.as_slice()].concat()) }
        };
        let Some(fix) = self.found.fixes.first() else {
            if let Some((row, applied)) = self.own.fixes.first().filter(|(_, applied)| !applied.virtual_only) {
                let id = row.remedies.iter().map(|name| name.split('/').next().unwrap_or(name));
                let ids = id.collect::<Vec<_>>().join(",");
                let file = if applied.changes.edited.is_empty() { "fixed.sh" } else { "fix.patch" };
                return vec![step("keep the first fix as a file", &["--allow", &ids, "--write", "1", file])];
            }
            let ids = |(mix, _): &(Mix<'_>, u64)| {
                mix.doses.iter().map(|dose| dose.remedy.id.clone()).collect::<Vec<_>>().join(",")
            };
            let foretold = self.found.foretold.as_ref().map(ids);
            let tried = foretold.map(|ids| step("try what should fit", &["--allow", &ids]));
            let more = if self.start.elapsed() < Duration::from_secs(400) { "10m" } else { "1h" };
            let longer = self.found.out_of_time.then(|| step("look further", &["--max-time", more]));
            return tried.into_iter().chain(longer).collect();
        };
        let ids: Vec<&str> = fix.mix.doses.iter().map(|dose| dose.remedy.id.as_str()).collect();
        let ids = ids.join(",");
        let mut next = vec![step("run the program with the first fix", &["--allow", &ids, "--apply", "1"])];
        let ready = self.applier.ready(&fix.mix).ok();
        if ready.is_some_and(|ready| ready.means != Means::Hook && !ready.changes.edited.is_empty()) {
            next.push(step("keep it as a patch", &["--allow", &ids, "--write", "1", "fix.patch"]));
        } else if let Some(said) = self.applier.said(&fix.mix, Into::Line) {
            // A file that is all there is to it is what one keeps.
            let (what, name) = match said.files.keys().next() {
                Some(file) if said.environment.is_empty() => ("file", format!("fixed.{}", ending(file))),
                _ => ("script", "fixed.sh".to_owned()),
            };
            next.push(step(&format!("keep it as a {what}"), &["--allow", &ids, "--write", "1", &name]));
        }
        next
    }

    fn row(&self, fix: &Fix<'a>, base: &Baseline) -> FixRow {
        let sight = self.seen.get(&fix.mix.key());
        let dearest = fix.mix.doses.iter().max_by_key(|dose| dose.remedy.time.class);
        let quality: Vec<&str> =
            fix.mix.doses.iter().filter_map(|dose| dose.remedy.quality_in(self.applier.situation)).collect();
        let limit = base.limit_bytes;
        let ready = self.applier.ready(&fix.mix).ok();
        let by_hand = ready.as_ref().is_none_or(|ready| ready.means == Means::Hook);
        // Of a fix that needs hands, what was placed in the code is still printed as a patch.
        let placed = ready.as_ref().and_then(|ready| self.patch(ready));
        let (placed, folder) = placed.unzip();
        let patch = placed.clone().filter(|_| !by_hand);
        let price = self.priced.of(fix, self.seen, self.applier);
        FixRow {
            remedies: fix.mix.doses.iter().map(Dose::name).collect(),
            titles: fix.mix.doses.iter().map(|dose| self.title(dose)).collect(),
            verified: true,
            verdict: Verdict::Fits,
            peak_bytes: fix.peak_bytes,
            saves_bytes: base.peak_bytes.map(|before| difference(before, fix.peak_bytes)),
            room_bytes: limit.map(|limit| limit.saturating_sub(fix.peak_bytes)),
            result: match fix.mix.sameness() {
                Sameness::Exact => ResultChange::Same,
                Sameness::Equivalent => ResultChange::Equivalent,
                Sameness::Approximate => ResultChange::Approximate,
                Sameness::ChangesTheResult => ResultChange::Changed,
            },
            comparison: None,
            time_cost: dearest.map(|dose| dose.remedy.time.text.clone()).unwrap_or_default(),
            slowdown: price.as_ref().ok().copied().map(price::time_ratio),
            slowdown_unknown: price.err(),
            quality_cost: (!quality.is_empty()).then(|| quality.join("; ")),
            evidence: sight.map(|sight| evidence(fix, sight)).unwrap_or_default(),
            apply: match &patch {
                Some(patch) => {
                    let remedies: Vec<String> = fix.mix.doses.iter().map(Dose::name).collect();
                    vec![Apply { kind: "patch".to_owned(), text: patch.clone(), remedy: remedies.join(",") }]
                }
                None => self.by_hand(fix, placed),
            },
            command: ready.as_ref().and_then(|ready| self.command(&fix.mix, ready)),
            patch,
            by_hand,
            tight: fix.tight,
            found_after_seconds: sight.map(|sight| rounded(sight.when.duration_since(self.start))),
            notes: self.notes(fix, ready.as_ref(), folder.flatten()),
        }
    }

    /// What the user should know of a fix, one sentence each; `folder` is where its patch is to be applied, if not here.
    fn notes(&self, fix: &Fix<'_>, ready: Option<&Ready>, folder: Option<PathBuf>) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        if let Some((before, after)) = ready.and_then(|ready| ready.smaller_batch) {
            notes.push(format!(
                "The effective batch shrinks from {before} to {after}: the program accumulates no gradients."
            ));
        }
        for dose in &fix.mix.doses {
            notes.extend(dose.remedy.note_for(&self.applier.situation.frameworks));
            // The line is reported with the remedy that changes what it keeps.
            if dose.remedy.when.causes.contains(&Cause::Leak) {
                let results = dose.remedy.aims.contains(&Operation::Evaluation);
                // A module of a trainer's is reached by more than one name.
                let mut places = BTreeSet::new();
                let kept = self.known.program.kept.iter().filter(|kept| kept.is_results() == results);
                let kept = kept.filter(|kept| places.insert((&kept.file, kept.line)));
                notes.extend(kept.filter_map(place_of));
            }
        }
        notes.extend(folder.map(|folder| format!("Apply the patch in {}.", folder.display())));
        notes.extend(ready.into_iter().flat_map(|ready| ready.notes.iter().cloned()));
        let mut seen = BTreeSet::new();
        notes.retain(|note| seen.insert(note.clone()));
        notes
    }

    /// What a user has to do for a fix that is not a patch: the part of it that was placed in the code, and words for the rest.
    fn by_hand(&self, fix: &Fix<'_>, placed: Option<String>) -> Vec<Apply> {
        let in_patch = |dose: &&Dose<'_>| placed.is_some() && self.applier.is_edited(dose.remedy);
        let (edited, rest): (Vec<&Dose<'_>>, Vec<&Dose<'_>>) = fix.mix.doses.iter().partition(in_patch);
        let names: Vec<String> = edited.into_iter().map(Dose::name).collect();
        let patch = placed.map(|text| Apply { kind: "patch".to_owned(), text, remedy: names.join(",") });
        patch.into_iter().chain(rest.into_iter().filter_map(|dose| self.words(dose))).collect()
    }

    /// The remedy's title, with the batch where it has one.
    fn title(&self, dose: &Dose<'_>) -> String {
        let settings = &self.applier.situation.settings;
        match (dose.option(settings), settings.batch_size) {
            (Some(("divide_by", by)), Some(batch)) if is_batch(&dose.remedy.id) => {
                format!("{} ({batch} to {})", dose.remedy.title, batch.div_ceil(by.max(1)))
            }
            (Some(("divide_by", by)), _) if dose.remedy.id == AT_THE_LINE => {
                dose.remedy.title.replace("in pieces", &format!("in {by} pieces"))
            }
            (Some(("length", length)), _) => format!("{} ({length})", dose.remedy.title),
            _ => dose.remedy.title.clone(),
        }
    }

    /// The words that apply one remedy to this program.
    fn words(&self, dose: &Dose<'_>) -> Option<Apply> {
        let rewritten = self.applier.alone(dose);
        if let Some(rewritten) =
            rewritten.filter(|rewritten| rewritten.changes.iter().any(|change| change.file.is_some()))
        {
            let text: Vec<String> = rewritten.changes.iter().filter_map(change_in_words).collect();
            return Some(Apply { kind: "config".to_owned(), text: text.join("\n"), remedy: dose.name() });
        }
        let situation = dosed(self.applier.situation, dose);
        let (written, text) = dose.remedy.words_for(&situation)?;
        let (kind, text) = match written.kind {
            Kind::Flag if self.applier.was_refused(dose.remedy) || !self.takes_flags(&text) => {
                ("code", arguments(written, &text, &situation))
            }
            kind => (kind_name(kind), text),
        };
        Some(Apply { kind: kind.to_owned(), text, remedy: dose.name() })
    }

    /// Whether the program takes these flags: it is known, or one of them is on its line.
    fn takes_flags(&self, text: &str) -> bool {
        let Some(line) = self.known.line else { return false };
        let mut flags = text.split_whitespace().filter(|word| word.starts_with("--"));
        let refuses =
            |flag: &str| self.applier.edits.as_ref().is_some_and(|edits| edits.program.takes(flag) == Some(false));
        if rewrite::program(line).is_some() {
            return !flags.any(refuses);
        }
        flags.any(|flag| line.words.iter().any(|word| word == flag || word.starts_with(&format!("{flag}="))))
    }

    /// The change of the program's files, where a remedy was placed in them, and the folder to apply it in, where that is
    /// not the present one.
    fn patch(&self, ready: &Ready) -> Option<(String, Option<PathBuf>)> {
        let (program, edits) = (ready.program.as_ref()?, self.applier.edits.as_ref()?);
        patch_of(program, &edits.program, &self.context.directory)
    }

    /// The whole command line, where flags and variables say it all, or where a patch needs another one.
    fn command(&self, mix: &Mix<'_>, ready: &Ready) -> Option<String> {
        if !ready.changes.edited.is_empty() && ready.means != Means::Hook {
            let changes = &ready.changes;
            let words: Vec<String> = changes.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            let same = words == command(self.context) && changes.env.is_empty();
            let said = Said { words, environment: changes.env.clone(), files: BTreeMap::new() };
            return (!same && changes.files.is_empty()).then(|| shown(said));
        }
        let said = self.applier.said(mix, Into::Line)?;
        said.files.is_empty().then(|| shown(said))
    }

    /// What should fit and was not tried, because the time was up.
    fn foretold(&self) -> Option<Foretold> {
        let (mix, peak_bytes) = self.found.foretold.as_ref()?;
        Some(Foretold { remedies: mix.doses.iter().map(Dose::name).collect(), peak_bytes: *peak_bytes })
    }

    /// What is left when nothing fits.
    fn floor(&self) -> Floor {
        let strongest = self.found.strongest.as_ref();
        // What was seen of a run that did not come to its end is no need.
        let whole = self.full.devices.iter().filter(|device| !device.needed_is_minimum);
        let unchanged = whole.filter_map(|device| device.need()).map(|need| need.process_bytes).max();
        // A pool that doubles may take more with everything applied than the unmodified program needs.
        let strongest =
            strongest.filter(|_| self.least.is_none_or(|least| unchanged.is_none_or(|bytes| least < bytes)));
        let need = if strongest.is_some() { self.least.or(unchanged) } else { unchanged.or(self.least) };
        let smallest = need.and_then(|bytes| {
            Cards::builtin().smallest_that_hold(bytes).find(|gpu| gpu.kind.is_card()).map(|gpu| gpu.id.clone())
        });
        let (cards, each) = self.split().unzip();
        Floor {
            remedies: strongest.map(|mix| mix.doses.iter().map(Dose::name).collect()).unwrap_or_default(),
            peak_bytes: need,
            smallest_gpu: smallest,
            cards_when_split: cards,
            bytes_per_card: each,
        }
    }

    /// How many of the card would hold the training with weights, gradients and states split over them, and what each
    /// holds then: the bytes of ZeRO 3, and the whole of what is not split.
    fn split(&self) -> Option<(u32, u64)> {
        let situation = self.applier.situation;
        if situation.task != Some(Task::Training) {
            return None;
        }
        let owners = situation.owners.as_ref()?;
        let of = |owner: OwnerGroup| owners.get(&owner).copied().unwrap_or(0);
        let fixed = of(OwnerGroup::Parameters)
            .saturating_add(of(OwnerGroup::Gradients))
            .saturating_add(of(OwnerGroup::OptimizerState));
        let rest = self.known.peak_bytes.saturating_sub(fixed);
        let parameters = situation.settings.trainable_parameters.or(situation.settings.model_parameters)?;
        let blocks = self.known.program.models.iter().flat_map(|model| &model.blocks).map(|block| block.count).max();
        let context = ZeroStage::Three { largest_layer: parameters / blocks.unwrap_or(1).max(1) };
        (2..=MOST_CARDS).find_map(|cards| {
            let each = effect::zero_states(parameters, cards, context).saturating_add(rest);
            (each <= self.known.limit_bytes).then_some((u32::try_from(cards).ok()?, each))
        })
    }
}

/// What a trial has shown of the remedies of its fix that took effect.
fn evidence(fix: &Fix<'_>, sight: &Sight) -> Vec<String> {
    let of = |dose: &Dose<'_>| {
        let is = |seen: &&AppliedRemedy| seen.id == dose.remedy.id && seen.state == RemedyState::Applied;
        let seen = sight.remedies.iter().find(is)?;
        Some(match &seen.evidence {
            Some(evidence) => format!("{}: {}; {evidence}", seen.id, seen.what),
            None => format!("{}: {}", seen.id, seen.what),
        })
    };
    fix.mix.doses.iter().filter_map(of).collect()
}

/// The line that keeps tensors, in a sentence.
fn place_of(kept: &HookKept) -> Option<String> {
    let file = kept.file.as_ref()?;
    let name = kept.name.as_ref().map(|name| format!(" in `{name}`")).unwrap_or_default();
    let line = kept.line.map(|line| format!(":{line}")).unwrap_or_default();
    // The kernel runs a cell as a file of its own, whose name says nothing.
    let place = if file.contains("/ipykernel_") { "the notebook".to_owned() } else { format!("{file}{line}") };
    let what = if kept.is_results() { "the results of every batch on the card" } else { "a tensor with its graph" };
    let when = if kept.is_results() { "" } else { " at every step" };
    Some(format!("{place} keeps {what}{name}{when}"))
}

fn difference(before: u64, after: u64) -> i64 {
    i64::try_from(i128::from(before) - i128::from(after)).unwrap_or(i64::MAX)
}

fn attempt(mix: &Mix<'_>, ran: &Ran, before: Option<u64>) -> Attempt {
    let (verdict, peak_bytes, why) = match ran {
        Ran::Fits(peak) | Ran::Tight(peak) => (Verdict::Fits, Some(*peak), None),
        Ran::TooMuch => (Verdict::Oom, None, None),
        Ran::NotApplied(ids, _) => {
            let ids: Vec<String> = ids.iter().map(|(id, why)| format!("{id} was not applied: {why}")).collect();
            (Verdict::Failed, None, Some(ids.join("; ")))
        }
        Ran::Failed(why) => (Verdict::Failed, None, Some(why.clone())),
    };
    Attempt {
        remedies: mix.doses.iter().map(Dose::name).collect(),
        verdict,
        peak_bytes,
        saves_bytes: before.zip(peak_bytes).map(|(before, after)| difference(before, after)),
        why,
    }
}

/// A change, with the name of the file for the reader where it is one in a file.
fn change_in_words(change: &Change) -> Option<String> {
    let after = change.after.as_ref()?;
    Some(change.file.as_ref().map_or_else(|| after.clone(), |file| format!("{after}   # in {file}")))
}

/// What a file's name ends in.
fn ending(name: &str) -> &str {
    name.rsplit_once('.').map_or("yaml", |(_, ending)| ending)
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Flag => "flag",
        Kind::Env => "env",
        Kind::Code => "code",
        Kind::Config => "config",
        Kind::Action => "action",
    }
}

/// Flags of the scripts that come with a library, as the arguments of its class: a program of the user's own takes no
/// such flags.
fn arguments(written: &Written, flags: &str, situation: &Situation) -> String {
    let class = match written.framework {
        Framework::Trl => "SFTConfig",
        Framework::Transformers if situation.frameworks.iter().any(|known| known.framework == Framework::Trl) => {
            "SFTConfig"
        }
        Framework::Transformers => "TrainingArguments",
        _ => return flags.to_owned(),
    };
    let flags = flags.split('#').next().unwrap_or(flags);
    let mut pairs: Vec<(String, Option<String>)> = Vec::new();
    for word in flags.split_whitespace() {
        match (word.strip_prefix("--"), pairs.last_mut()) {
            (Some(name), _) => {
                let (name, value) =
                    name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value.to_owned())));
                pairs.push((name.to_owned(), value));
            }
            (None, Some((_, value))) if value.is_none() => *value = Some(word.to_owned()),
            _ => return flags.trim().to_owned(),
        }
    }
    let spelled = pairs.iter().map(|(name, value)| match value.as_deref() {
        None => format!("{name}=True"),
        Some(value) if value.parse::<f64>().is_ok() || matches!(value, "True" | "False" | "None") => {
            format!("{name}={value}")
        }
        Some(value) => format!("{name}=\"{value}\""),
    });
    format!("{class}(..., {})", spelled.collect::<Vec<_>>().join(", "))
}
