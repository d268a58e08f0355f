//! Searches for what fits among a program's own memory calls and sizes, where no framework allocates for it.
//!
//! A call is changed by its author, so the virtual GPU answers it as the changed program would make it
//! (`oomph_protocol::calls`). A size is set on the command line or in the code, as a user would.

mod sizes;
mod words;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::path::Path;
use std::time::Instant;

use oomph_edit::Program;
use oomph_protocol::calls::{self, Change, Rule};
use oomph_remedy::search::Ran;
use oomph_remedy::{Catalogue, Remedy};
use oomph_report::{Apply, Attempt, DryRunReport, FixRow, KERNELS_UNKNOWN, ResultChange, Verdict};

use super::applied::{Applied, patch_of};
use super::applier::{Applier, Said};
use super::bench::{dies_alike, judge, peak};
use super::budget::Budget;
use super::wanted::Wanted;
use crate::activity::places::Allocating;
use crate::assemble::assemble;
use crate::changes::Changes;
use crate::run_context::Ended;
use crate::trial::{Runner, Stop};
use crate::whole_pool;
use sizes::{Sized, between};

/// Into how many parts the work of a line is divided.
const PARTS: [u64; 5] = [2, 4, 8, 16, 32];

/// How often a larger value is tried of a size that fits.
const REFINED: usize = 3;

/// Lines that are changed together at most.
const MOST_LINES: usize = 4;

/// Lines that hold less than one part in so many of what all hold are left as they are.
const SMALL: u64 = 20;

/// What was found.
#[derive(Default)]
pub struct Own {
    /// What fits, the first to try first.
    pub fixes: Vec<(FixRow, Applied)>,
    /// What was tried and does not.
    pub attempts: Vec<Attempt>,
    /// How many changes were tried.
    pub tried: u64,
    /// Whether there was no time, or no run, left before everything was tried.
    pub out_of_time: bool,
    /// The changes that were next then, by name.
    pub untried: BTreeSet<String>,
    /// The signal that ended the search before its time.
    pub stopped: Option<i32>,
}

/// What such a search works with.
pub struct Search<'s> {
    /// Where trials run.
    pub runner: &'s dyn Runner,
    /// The program and its code.
    pub applier: &'s Applier<'s>,
    /// The remedies.
    pub catalogue: &'s Catalogue,
    /// What was asked for.
    pub wanted: &'s Wanted,
    /// How the program died before anything was changed.
    pub before: &'s DryRunReport,
    /// The folder that the program runs in.
    pub directory: &'s Path,
    /// How much may still be tried.
    pub budget: &'s Budget,
    /// When the command began.
    pub start: Instant,
    /// How many fixes are looked for.
    pub most: usize,
    /// The remedies of the catalogue's, by id, that fit; what they change is not tried again.
    pub found: BTreeSet<&'s str>,
    /// Receives what is tried.
    pub tell: &'s (dyn Fn(&str) + Sync),
}

/// A change that may help.
struct Idea {
    /// The remedy's id, with the amount where there is one.
    name: String,
    title: String,
    changes: Changes,
    /// The program with it, where its files are edited.
    program: Option<Program>,
    /// The size that it sets, where that is what it does.
    size: Option<Sized>,
    /// What the author has to do, where the program cannot be started with it.
    by_hand: Option<Vec<String>>,
    result: ResultChange,
    evidence: String,
    notes: Vec<String>,
}

impl Search<'_> {
    /// Tries the changes, one series after the other; of a series the first that fits counts.
    ///
    /// # Errors
    /// When a run cannot be set up, or a signal ends one.
    pub fn answer(&self, lines: &[Allocating]) -> Result<Own, Stop> {
        let mut own = Own::default();
        // A size that the request does not follow is none of it, unless the card is filled step by step.
        let one_request = !lines.is_empty() && lines.iter().all(|line| !line.grows);
        for series in self.series(lines) {
            let Some(first) = series.first() else { continue };
            // What was edited in is not asked of the author as well.
            let is_known =
                first.by_hand.is_some() && own.fixes.iter().any(|(row, _)| row.remedies == [first.name.clone()]);
            if own.fixes.len() >= self.most {
                break;
            }
            if !is_known {
                self.first_that_fits(series, one_request, &mut own)?;
            }
        }
        Ok(own)
    }

    /// Tries less data and a smaller model, for a program whose memory a framework manages.
    ///
    /// # Errors
    /// When a run cannot be set up, or a signal ends one.
    pub fn less_work_fits(&self) -> Result<Own, Stop> {
        let mut own = Own::default();
        for series in self.less_work() {
            if own.fixes.len() >= self.most {
                break;
            }
            self.first_that_fits(series, false, &mut own)?;
        }
        Ok(own)
    }

    /// What is tried: the cause first, then what leaves the result unchanged, then smaller problems.
    fn series(&self, lines: &[Allocating]) -> Vec<Vec<Idea>> {
        let all: u64 = lines.iter().map(|line| line.most_held_bytes).sum();
        let large: Vec<&Allocating> =
            lines.iter().filter(|line| line.most_held_bytes.saturating_mul(SMALL) >= all).take(MOST_LINES).collect();
        let growing: Vec<&Allocating> = lines.iter().filter(|line| line.grows).collect();
        let (same, others): (Vec<Vec<Idea>>, Vec<Vec<Idea>>) = self.sizes();
        let mut series = Vec::new();
        if !growing.is_empty() {
            series.push(self.newest(&growing).into_iter().collect());
        }
        series.extend(same);
        if growing.is_empty() {
            series.push(self.in_parts(&large));
        }
        series.push(self.all_managed(&large, true));
        let (typed, code): (Vec<Vec<Idea>>, Vec<Vec<Idea>>) =
            others.into_iter().partition(|series| series.first().is_some_and(|idea| idea.program.is_none()));
        series.extend(typed);
        series.push(self.all_managed(&large, false));
        series.extend(code);
        series
    }

    /// Runs the changes of a series until one fits, or one has no effect. Of a size that fits, larger values are tried.
    fn first_that_fits(&self, series: Vec<Idea>, one_request: bool, own: &mut Own) -> Result<(), Stop> {
        let mut last: Option<Attempt> = None;
        let mut tight: Option<(FixRow, Applied)> = None;
        let mut too_large = series.first().and_then(|idea| idea.size.as_ref()?.too_large());
        let mut series = VecDeque::from(series);
        while let Some(idea) = series.pop_front() {
            let Some((ran, report)) = self.run(&idea, own)? else {
                last = None;
                break;
            };
            if let Ran::Fits(_) = ran {
                let found = self.larger(idea, too_large, peak(&report), own)?;
                own.fixes.push(found);
                return Ok(());
            }
            if let Ran::Tight(peak_bytes) = ran {
                // A smaller one may leave room.
                let (row, applied) = self.fix(idea, peak_bytes);
                tight = tight.or(Some((FixRow { tight: true, ..row }, applied)));
                last = None;
                continue;
            }
            let no_effect = dies_alike(self.before, &report);
            let same_request = one_request && idea.size.is_some() && request(&report) == request(self.before);
            too_large = idea.size.as_ref().map(|size| size.value).or(too_large);
            last = Some(attempt(&idea, &ran, no_effect || same_request));
            if matches!(ran, Ran::Failed(_)) {
                // The program may not take so small a size, such as that of an image.
                series = idea.size.as_ref().map(|size| self.gentler(size)).unwrap_or_default();
            } else if no_effect || same_request {
                break;
            }
        }
        own.fixes.extend(tight);
        own.attempts.extend(last);
        Ok(())
    }

    /// A trial of a change; `None` where the time is up, or a signal ended the search.
    fn run(&self, idea: &Idea, own: &mut Own) -> Result<Option<(Ran, DryRunReport)>, Stop> {
        if own.stopped.is_some() {
            return Ok(None);
        }
        if !self.budget.has_more() {
            own.out_of_time = true;
            own.untried.insert(idea.name.clone());
            return Ok(None);
        }
        (self.tell)(&idea.title);
        self.budget.begin();
        let (cards, whole) = (&self.wanted.cards, whole_pool::was_whole(self.before));
        let own_limit = self.budget.longest_try();
        let limits = self.budget.limits(&own_limit);
        let ended = whole_pool::run(self.runner, &idea.changes, cards, limits, whole).map_err(Stop::Failed)?;
        let run = match ended {
            Ended::Interrupted(signal, _) => {
                own.stopped = Some(signal);
                return Ok(None);
            }
            Ended::Observed(run) => run,
        };
        own.tried += 1;
        let report = assemble(&self.wanted.cards, &run, None);
        Ok(Some((judge(&idea.changes, &report, &run, self.wanted.accept_recovered).ran, report)))
    }

    /// Of a size that fits the largest value that was seen to, below one that does not.
    fn larger(
        &self,
        idea: Idea,
        too_large: Option<u64>,
        peak_bytes: u64,
        own: &mut Own,
    ) -> Result<(FixRow, Applied), Stop> {
        let (mut best, mut peak_bytes, mut above) = (idea, peak_bytes, too_large);
        for _ in 0..REFINED {
            let Some((size, above_it)) = best.size.clone().zip(above) else { break };
            let middle = between(size.value, above_it);
            let next = if middle > size.value && middle < above_it { self.resized(&size, middle) } else { None };
            let Some(next) = next else { break };
            let Some((ran, report)) = self.run(&next, own)? else { break };
            match ran {
                Ran::Fits(_) => (best, peak_bytes) = (next, peak(&report)),
                _ => above = Some(middle),
            }
        }
        Ok(self.fix(best, peak_bytes))
    }

    /// A remedy of the catalogue, if it was not ruled out.
    fn remedy(&self, id: &str) -> Option<&Remedy> {
        let wishes = &self.wanted.wishes;
        let wanted = wishes.allow.is_empty() || wishes.allow.contains(id);
        self.catalogue.get(id).filter(|_| wanted && !wishes.forbid.contains(id))
    }

    /// Each of these lines gives back what it allocated before.
    fn newest(&self, lines: &[&Allocating]) -> Option<Idea> {
        let remedy = self.remedy("free-before-next")?;
        Some(Idea {
            name: remedy.id.clone(),
            title: remedy.title.clone(),
            changes: self.calls(lines, Change::Newest),
            program: None,
            size: None,
            by_hand: Some(words::newest(lines)),
            result: ResultChange::Same,
            evidence: format!("the virtual GPU freed the block before at each allocation at {}", words::places(lines)),
            notes: Vec::new(),
        })
    }

    /// What the program needs in all and what the fullest card may hold, in bytes, where both are known.
    fn need_and_limit(&self) -> Option<(u64, u64)> {
        let needs = self.before.devices.iter().filter_map(|device| device.need()).map(|need| need.process_bytes);
        let limit = self.wanted.cards.iter().filter_map(|card| card.capacity_bytes()).min()?;
        Some((needs.max()?, limit))
    }

    /// The work of the largest lines is done in more and more parts, from the number on that the figures ask for.
    fn in_parts(&self, large: &[&Allocating]) -> Vec<Idea> {
        let most = large.iter().map(|line| line.largest_bytes).max().unwrap_or(0);
        let alike: Vec<&Allocating> = large.iter().copied().filter(|line| line.largest_bytes >= most / 2).collect();
        let held: u64 = alike.iter().map(|line| line.most_held_bytes).sum();
        let least = match self.need_and_limit() {
            Some((need, limit)) => {
                let Some(room) = limit.checked_sub(need.saturating_sub(held)).filter(|room| *room > 0) else {
                    return Vec::new();
                };
                held.div_ceil(room)
            }
            None => 2,
        };
        PARTS.iter().filter(|parts| **parts >= least).filter_map(|parts| self.parts(&alike, *parts)).collect()
    }

    /// The work of these lines is done in parts.
    fn parts(&self, lines: &[&Allocating], parts: u64) -> Option<Idea> {
        let remedy = self.remedy("work-in-parts").filter(|_| !lines.is_empty())?;
        Some(Idea {
            name: format!("{}/{parts}", remedy.id),
            title: remedy.title.replace("parts", &format!("{parts} parts")),
            changes: self.calls(lines, Change::Parts(parts)),
            program: None,
            size: None,
            by_hand: Some(words::parts(lines, parts)),
            result: ResultChange::Same,
            evidence: format!("the virtual GPU charged one part in {parts} of what {} allocates", words::places(lines)),
            notes: Vec::new(),
        })
    }

    /// More and more of the largest lines allocate managed memory, from the number on that the figures ask for.
    fn all_managed(&self, large: &[&Allocating], by_edit: bool) -> Vec<Idea> {
        let counts = 1..=large.len();
        let suffices = |count: &usize| {
            let held: u64 = large.iter().take(*count).map(|line| line.most_held_bytes).sum();
            let room = self.need_and_limit().is_none_or(|(need, limit)| need.saturating_sub(held) <= limit);
            room || *count == large.len()
        };
        counts.filter(suffices).filter_map(|count| self.managed(large.get(..count)?, by_edit)).collect()
    }

    /// What these lines allocate may lie in host memory.
    fn managed(&self, lines: &[&Allocating], by_edit: bool) -> Option<Idea> {
        let remedy = self.remedy("managed-buffers")?;
        let program = if by_edit { Some(self.managed_arrays(lines)?) } else { None };
        let (changes, by_hand) = match &program {
            Some(program) => (self.with(program), None),
            None => (self.calls(lines, Change::Managed), Some(words::managed(lines))),
        };
        Some(Idea {
            name: remedy.id.clone(),
            title: remedy.title.clone(),
            changes,
            program,
            size: None,
            by_hand,
            result: ResultChange::Same,
            evidence: format!("what {} allocates was managed memory", words::places(lines)),
            notes: remedy.note.clone().into_iter().collect(),
        })
    }

    /// The program with managed arrays of Numba at these lines.
    fn managed_arrays(&self, lines: &[&Allocating]) -> Option<Program> {
        let before = &self.applier.edits.as_ref()?.program;
        let at = |line: &&Allocating| {
            let (file, number) = line.python.clone()?;
            Some((file.canonicalize().unwrap_or(file), number))
        };
        let places: Vec<_> = lines.iter().map(at).collect::<Option<_>>()?;
        before.with_managed_arrays(&places).ok()
    }

    /// The program with every call that comes from these lines changed.
    fn calls(&self, lines: &[&Allocating], change: Change) -> Changes {
        let codes: BTreeSet<&(String, u64)> = lines.iter().flat_map(|line| &line.codes).collect();
        let rules: Vec<Rule> = codes
            .into_iter()
            .map(|(module, offset)| Rule { change, module: module.clone(), offset: *offset })
            .collect();
        let env = vec![(calls::VARIABLE.to_owned(), calls::write(&rules))];
        Changes { env, ..Changes::none(self.applier.command) }
    }

    /// The program with other code or other words.
    fn with(&self, program: &Program) -> Changes {
        let mut changes = Changes::none(self.applier.command);
        if let (Some(edits), Some(line)) = (&self.applier.edits, &self.applier.line) {
            changes.edited = program.changed_since(&edits.program);
            changes.command = edits.command(&line.words, program).into_iter().map(OsString::from).collect();
        }
        changes
    }

    /// The row of what fits, and what it takes to act on it.
    fn fix(&self, idea: Idea, peak_bytes: u64) -> (FixRow, Applied) {
        let id = idea.name.split('/').next().unwrap_or_default();
        let remedy = self.catalogue.get(id);
        let device = self.before.devices.iter().max_by_key(|device| device.peak.process_bytes);
        let needed = device.and_then(|device| device.need()).map(|need| need.process_bytes);
        let limit = self.wanted.cards.iter().filter_map(|card| card.capacity_bytes()).min();
        let edits = self.applier.edits.as_ref();
        let before = edits.map(|edits| &edits.program);
        let patch = idea.program.as_ref().zip(before).and_then(|(new, old)| patch_of(new, old, self.directory));
        let (patch, folder) = patch.unzip();
        let typed = idea.by_hand.is_none() && patch.is_none();
        let said = typed.then(|| Said {
            words: idea.changes.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            environment: Vec::new(),
            files: BTreeMap::new(),
        });
        let apply = match (&patch, &idea.by_hand) {
            (Some(patch), _) => vec![Apply { kind: "patch".into(), text: patch.clone(), remedy: idea.name.clone() }],
            (None, Some(lines)) => {
                vec![Apply { kind: "action".into(), text: lines.join("\n"), remedy: idea.name.clone() }]
            }
            (None, None) => Vec::new(),
        };
        let mut notes = idea.notes;
        let title = idea.title;
        notes.extend(folder.flatten().map(|folder| format!("Apply the patch in {}.", folder.display())));
        let row = FixRow {
            comparison: None,
            remedies: vec![idea.name],
            titles: vec![title.clone()],
            verified: true,
            verdict: Verdict::Fits,
            peak_bytes,
            saves_bytes: needed.map(|needed| needed as i64 - peak_bytes as i64),
            room_bytes: limit.map(|limit| limit.saturating_sub(peak_bytes)),
            result: idea.result,
            time_cost: words::time(&idea.size.as_ref().map(|_| title.as_str()), remedy),
            slowdown: None,
            slowdown_unknown: Some(KERNELS_UNKNOWN.to_owned()),
            quality_cost: None,
            evidence: vec![idea.evidence],
            apply,
            command: said.clone().map(|said| said.shell(&BTreeMap::new())),
            notes,
            found_after_seconds: Some((self.start.elapsed().as_secs_f64() * 1000.0).round() / 1000.0),
            patch,
            by_hand: idea.by_hand.is_some(),
            tight: false,
        };
        let originals = edits.map(|edits| edits.originals(idea.changes.edited.keys())).unwrap_or_default();
        let applied = Applied {
            shrinks_batch: idea.result == ResultChange::Changed,
            said_in_file: None,
            said,
            originals,
            virtual_only: idea.by_hand.is_some(),
            changes: idea.changes,
        };
        (row, applied)
    }
}

/// What the cards refused, in bytes.
fn request(report: &DryRunReport) -> Vec<u64> {
    report.devices.iter().filter_map(|device| device.oom.as_ref()).map(|oom| oom.requested_bytes).collect()
}

/// What does not fit.
fn attempt(idea: &Idea, ran: &Ran, no_effect: bool) -> Attempt {
    let why = match ran {
        Ran::Failed(why) => Some(why.clone()),
        _ if no_effect => Some("it dies of the same request".to_owned()),
        _ => None,
    };
    let verdict = if matches!(ran, Ran::Failed(_)) { Verdict::Failed } else { Verdict::Oom };
    let name = match &idea.size {
        Some(_) => format!("{} ({})", idea.name, idea.title),
        None => idea.name.clone(),
    };
    Attempt { remedies: vec![name], verdict, peak_bytes: None, saves_bytes: None, why }
}
