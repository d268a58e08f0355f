//! Tries combinations of remedies on the virtual GPU, and checks that each took effect.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use oomph_edit::{Program, Way};
use oomph_gpu::roofline::Counted;
use oomph_launch::{AppliedRemedy, HookRemedy, RemedyState};
use oomph_remedy::rewrite::{self, CannotRewrite, Into, Line, Rewrite};
use oomph_remedy::search::{Bench, Dose, Mix, Ran};
use oomph_remedy::{DryRunKind, Kind, Remedy, Situation};
use oomph_report::{DeviceReport, DryRunReport, Verdict};

use super::edits::{self, Edits};
use super::price;
use crate::assemble::{Observation, assemble};
use crate::cards::Card;
use crate::program::quoted;
use crate::run_context::Ended;
use crate::trial::{Changes, Runner, Stop};

/// A file with more bytes is not a configuration.
const LONGEST_CONFIG: u64 = 1 << 20;

/// A try that has begun may run this much longer than the search.
const OVERTIME: Duration = Duration::from_secs(60);

/// How remedies become changes to one program.
pub struct Applier<'a> {
    /// The program as it was typed.
    pub command: &'a [OsString],
    /// The same as text, with the configuration files that it names; `None` where a word is not text.
    pub line: Option<Line>,
    /// What is known of it.
    pub situation: &'a Situation,
    /// Whether the hook runs in it.
    pub hook: bool,
    /// Its own code and options, where it is a Python program.
    pub edits: Option<Edits>,
    /// Remedies whose options it was seen not to take, by id.
    pub refused: Mutex<BTreeSet<String>>,
}

/// By what means a remedy is applied, the program's own first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Means {
    /// Options or configuration files of the program, or options that it declares itself.
    Own,
    /// An edit of its code.
    Edit,
    /// A variable of the environment.
    Environment,
    /// An intervention from inside: the user makes the change by hand.
    Hook,
}

/// A mix made ready for this program.
pub struct Ready {
    /// What a trial changes.
    pub changes: Changes,
    /// The program with its edits, where any remedy was placed in it.
    pub program: Option<Program>,
    /// The most intrusive of the means.
    pub means: Means,
    /// What the user should know, one sentence each.
    pub notes: Vec<String>,
    /// The effective batch before and after, where it shrinks.
    pub smaller_batch: Option<(u64, u64)>,
}

/// How a remedy is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Hook,
    Arguments,
    Edit,
    Environment,
}

impl Applier<'_> {
    /// Whether a trial can apply a remedy.
    pub fn can_apply(&self, remedy: &Remedy) -> bool {
        self.door(remedy).is_some()
    }

    /// By what means a remedy would be applied alone.
    pub fn means(&self, remedy: &Remedy) -> Option<Means> {
        let dose = Dose::of(remedy);
        self.ready(&Mix::single(Dose { amount: remedy.knob.as_ref().map(|_| 2), ..dose })).ok().map(|ready| ready.means)
    }

    /// A program that is known by name gets what its user would type, and others an edit where its place is certain. From
    /// inside it is seen whether a change took effect, but the user has to make it by hand.
    fn door(&self, remedy: &Remedy) -> Option<Door> {
        if self.has_options_for(remedy) {
            return Some(Door::Arguments);
        }
        if !self.was_refused(remedy) && self.places(remedy) {
            return Some(Door::Edit);
        }
        if self.hook && remedy.dry_run.by_hook() {
            return Some(Door::Hook);
        }
        match remedy.dry_run.kind {
            DryRunKind::Argv if !self.was_refused(remedy) => {
                let line = self.line.as_ref()?;
                let rewritten = self.rewritten(line, &Dose::of(remedy), Into::Line).ok()?;
                self.takes(&rewritten.line, line).then_some(Door::Arguments)
            }
            DryRunKind::Env => self.variables(remedy).map(|_| Door::Environment),
            _ => None,
        }
    }

    /// Whether a remedy can be placed in the program's code or set by its options.
    pub fn places(&self, remedy: &Remedy) -> bool {
        self.edits.as_ref().is_some_and(|edits| edits.place(&edits.program, &Dose::of(remedy)).is_ok())
    }

    /// Whether a remedy is applied as an edit of the program's code or options.
    pub fn is_edited(&self, remedy: &Remedy) -> bool {
        matches!(self.door(remedy), Some(Door::Edit))
    }

    /// Whether the program is one whose options are known, has some for this remedy, and was not seen to refuse them.
    ///
    /// What a dry run cannot show, such as kernels that are compiled, is not tried.
    fn has_options_for(&self, remedy: &Remedy) -> bool {
        if remedy.dry_run.kind == DryRunKind::None {
            return false;
        }
        let known = self.line.as_ref().filter(|line| !self.was_refused(remedy) && rewrite::program(line).is_some());
        known.is_some_and(|line| {
            let rewritten = self.rewritten(line, &Dose::of(remedy), Into::Line);
            rewritten.is_ok_and(|rewritten| rewritten.line != *line && self.takes(&rewritten.line, line))
        })
    }

    /// Whether the program takes the options that one line has and another has not. A script may be called as one of a
    /// library's examples are, and have a parser of its own.
    fn takes(&self, line: &Line, before: &Line) -> bool {
        self.edits.as_ref().is_none_or(|edits| edits.takes(&line.words, &before.words))
    }

    /// A line with one dose of a remedy.
    fn rewritten(&self, line: &Line, dose: &Dose<'_>, into: Into) -> Result<Rewrite, CannotRewrite> {
        rewrite::rewrite(line, dose.remedy, &dosed(self.situation, dose), into)
    }

    /// What one dose changes on the unmodified line and in its files; `None` where it cannot be expressed there.
    pub fn alone(&self, dose: &Dose<'_>) -> Option<Rewrite> {
        self.rewritten(self.line.as_ref()?, dose, Into::Line).ok()
    }

    /// The whole mix in words, variables and files, with nothing done from inside and no code changed; `None` where that
    /// cannot be.
    pub fn said(&self, mix: &Mix<'_>, into: Into) -> Option<Said> {
        let before = self.line.as_ref()?;
        if let Ok(Ready { changes, program: Some(_), means, .. }) = self.ready(mix)
            && means != Means::Hook
            && changes.edited.is_empty()
        {
            let words = changes.command.iter().map(|word| word.to_str().map(str::to_owned)).collect::<Option<_>>()?;
            return Some(Said { words, environment: changes.env, files: changes.files });
        }
        let mut line = before.clone();
        let mut environment = Vec::new();
        for dose in &mix.doses {
            if self.was_refused(dose.remedy) || self.door(dose.remedy) == Some(Door::Edit) {
                return None;
            }
            let rewritten = self.rewritten(&line, dose, into).ok()?;
            line = rewritten.line;
            environment.extend(rewritten.environment);
        }
        let files = changed(&line, before);
        Some(Said { words: line.words, environment, files })
    }

    /// Whether the program was seen not to take the options for this remedy.
    pub fn was_refused(&self, remedy: &Remedy) -> bool {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).contains(&remedy.id)
    }

    /// The variables that a remedy sets.
    fn variables(&self, remedy: &Remedy) -> Option<Vec<(String, String)>> {
        let (written, words) = remedy.words_for(self.situation)?;
        if written.kind != Kind::Env {
            return None;
        }
        words.split_whitespace().map(|word| word.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned()))).collect()
    }

    /// The remedy whose option on the command line is one that a program ended over, and how that is reported.
    fn refused_word<'r>(&self, mix: &Mix<'r>, changes: &Changes, message: &str) -> Option<(&'r Remedy, String)> {
        let is_new = |word: &&str| word.starts_with("--") && !self.command.iter().any(|known| known == *word);
        let words: Vec<&str> = changes.command.iter().filter_map(|word| word.to_str()).filter(is_new).collect();
        let named = |word: &&&str| {
            let option = word.split('=').next().unwrap_or(word);
            message
                .split(|letter: char| letter.is_whitespace() || "=,;:'\"`".contains(letter))
                .any(|part| part == option)
        };
        let word = words.iter().find(named)?;
        let brings = |dose: &&Dose<'_>| {
            let alone = self.changes(&Mix::single(**dose));
            alone.is_ok_and(|alone| alone.command.iter().any(|known| known.to_str() == Some(word)))
        };
        let dose = mix.doses.iter().find(brings)?;
        let option = word.split('=').next().unwrap_or(word);
        Some((dose.remedy, format!("the program does not take {option}")))
    }

    /// What a trial of this mix changes; the remedy that cannot be applied and the reason otherwise.
    pub fn changes(&self, mix: &Mix<'_>) -> Result<Changes, (String, String)> {
        self.ready(mix).map(|ready| ready.changes)
    }

    /// A mix made ready; the remedy that cannot be applied and the reason otherwise.
    pub fn ready(&self, mix: &Mix<'_>) -> Result<Ready, (String, String)> {
        let mut changes = Changes::none(self.command);
        let mut line = None;
        let mut program: Option<Program> = None;
        let (mut means, mut notes, mut smaller_batch) = (Means::Own, Vec::new(), None);
        for dose in &mix.doses {
            let remedy = dose.remedy;
            let refuse = |why: &str| (remedy.id.clone(), why.to_owned());
            let words = || line.as_ref().or(self.line.as_ref()).ok_or_else(|| refuse("a word is not text"));
            match self.door(remedy).ok_or_else(|| refuse("it cannot be applied to this program in a dry run"))? {
                Door::Hook => {
                    let option = dose.option(&self.situation.settings);
                    if remedy.knob.is_some() && option.is_none() {
                        return Err(refuse("the setting that it divides is not known"));
                    }
                    let options = option.map(|(name, value)| (name.to_owned(), value.into())).into_iter().collect();
                    changes.remedies.push(HookRemedy { id: remedy.id.clone(), options });
                    means = Means::Hook;
                }
                Door::Edit => {
                    let edits = self.edits.as_ref().ok_or_else(|| refuse("the program's code was not read"))?;
                    let before: Line = words()?.clone();
                    let now = program.as_ref().unwrap_or(&edits.program);
                    let now = now.with_arguments(edits.arguments(&before.words).to_vec());
                    let placed = edits.place(&now, dose).map_err(|error| refuse(&error.to_string()))?;
                    let way = if placed.way == Way::Option { Means::Own } else { Means::Edit };
                    means = means.max(way);
                    notes.extend(placed.notes);
                    smaller_batch = placed.smaller_batch.or(smaller_batch);
                    let mut after = before.clone();
                    after.words = edits.command(&before.words, &placed.program);
                    line = Some(after);
                    program = Some(placed.program);
                }
                Door::Arguments => {
                    let rewritten =
                        self.rewritten(words()?, dose, Into::Line).map_err(|error| refuse(&error.to_string()))?;
                    changes.env.extend(rewritten.environment);
                    line = Some(rewritten.line);
                }
                Door::Environment => {
                    changes.env.extend(self.variables(remedy).ok_or_else(|| refuse("it sets no variable"))?);
                    means = means.max(Means::Environment);
                }
            }
        }
        if let (Some(line), Some(before)) = (line, &self.line) {
            changes.files = changed(&line, before);
            changes.command = line.words.into_iter().map(OsString::from).collect();
        }
        if let (Some(program), Some(edits)) = (&program, &self.edits) {
            changes.edited = program.changed_since(&edits.program);
        }
        Ok(Ready { changes, program, means, notes, smaller_batch })
    }
}

/// A mix without the hook: what its user would type and write.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// The command line.
    pub words: Vec<String>,
    /// Variables to set.
    pub environment: Vec<(String, String)>,
    /// What is to be in the configuration files that change, by the words that name them.
    pub files: BTreeMap<String, String>,
}

impl Said {
    /// The command for a shell, with other names for some files.
    pub fn shell(&self, names: &BTreeMap<String, String>) -> String {
        let set = self.environment.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
        let words = self.words.iter().map(|word| quoted(&rewrite::renamed(word, names)));
        set.chain(words).collect::<Vec<_>>().join(" ")
    }
}

/// The files of a line that say something else than before.
fn changed(line: &Line, before: &Line) -> BTreeMap<String, String> {
    line.files_changed_since(before).map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
}

/// The command as text with the configuration files that it names, as they are in the folder it runs in.
pub fn line_of(command: &[OsString], directory: &Path) -> Option<Line> {
    let words: Vec<String> = command.iter().map(|word| word.to_str().map(str::to_owned)).collect::<Option<_>>()?;
    let read = |path: &Path| {
        // A pipe would wait for somebody to write.
        let is_file = fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() <= LONGEST_CONFIG);
        is_file.then(|| fs::read_to_string(path).ok()).flatten()
    };
    let spelled: Vec<&str> = words.iter().map(String::as_str).collect();
    let code = edits::script(&spelled, directory).and_then(|(_, path, _)| read(&path));
    Some(Line::reading(words, |name| read(&directory.join(name))).with_code(code))
}

/// The situation with the amount of a dose.
pub fn dosed(situation: &Situation, dose: &Dose<'_>) -> Situation {
    let mut situation = situation.clone();
    situation.settings.divide_by = dose.amount.map(u64::from).or(situation.settings.divide_by);
    situation
}

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
    /// When nothing new is begun.
    pub deadline: Instant,
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
        let left = self.deadline.saturating_duration_since(Instant::now()) + OVERTIME;
        match self.runner.run(&changes, self.cards, Some(left)).map_err(Stop::Failed)? {
            Ended::Interrupted(signal, _) => {
                self.stopped.get_or_init(|| signal);
                Ok(Tried { ran: Ran::Failed("it was stopped".into()), seen: Vec::new(), no_effect: false, work: None })
            }
            Ended::Observed(run) => {
                let report = assemble(self.cards, &run, None);
                let mut tried = judge(&changes, &report, &run, self.accept_recovered);
                tried.work = price::of_run(&run.hooks);
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
struct Tried {
    ran: Ran,
    seen: Vec<AppliedRemedy>,
    no_effect: bool,
    work: Option<Counted>,
}

/// Whether two runs died at the same line of the same request, with as much allocated.
fn dies_alike(one: &DryRunReport, other: &DryRunReport) -> bool {
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
fn judge(changes: &Changes, report: &DryRunReport, run: &Observation, accept_recovered: bool) -> Tried {
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
        Verdict::Fits if run.is_done() && report.tight => Ran::Tight(peak(report)),
        Verdict::Fits if run.is_done() => Ran::Fits(peak(report)),
        Verdict::Recovered if accept_recovered && run.is_done() => Ran::Fits(peak(report)),
        Verdict::Oom | Verdict::Recovered | Verdict::Unsure => Ran::TooMuch,
        Verdict::Fits => Ran::Failed("it timed out".into()),
        Verdict::Failed => {
            let last = run.stderr_tail.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
            Ran::Failed(format!("the program ended with status {}: {}", report.exit_status, last.trim()))
        }
        Verdict::NoGpuUse => Ran::Failed("the program did not use the GPU".into()),
    };
    // What was not applied changed nothing, so the run was one of the others.
    let ran = if refused.is_empty() { ran } else { Ran::NotApplied(refused, Some(Box::new(ran))) };
    Tried { ran, seen, no_effect: false, work: None }
}

/// The peak of the fullest card in the whole program, in bytes: with what iterations that were left out would have added.
pub fn peak(report: &DryRunReport) -> u64 {
    let whole = |device: &DeviceReport| {
        let seen = device.peak.process_bytes;
        device.need().map_or(seen, |need| need.process_bytes.max(seen))
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
        self.stopped.get().is_none() && Instant::now() < self.deadline
    }
}

#[cfg(test)]
mod tests {
    use oomph_remedy::{Catalogue, Cause, Framework};

    use super::*;

    #[test]
    fn an_option_that_a_script_refuses_is_distinguished_from_other_failures_and_not_tried_again() {
        let command: Vec<OsString> =
            ["python", "train_text_to_image_lora.py", "--train_batch_size=16"].map(OsString::from).into();
        let situation = Situation::of([Framework::DiffusersScripts, Framework::Pytorch], Cause::Full);
        let line = line_of(&command, Path::new("."));
        let applier = Applier {
            command: &command,
            line,
            situation: &situation,
            hook: true,
            edits: None,
            refused: Default::default(),
        };
        let remedy = Catalogue::builtin().get("cached-latents").expect("the catalogue has it");
        let mix = Mix::single(Dose::of(remedy));
        let changes = applier.changes(&mix).expect("the script is known");
        assert!(changes.command.iter().any(|word| word == "--cache_latents"), "{:?}", changes.command);
        let message = "train.py: error: unrecognized arguments: --cache_latents";
        let (refused, why) = applier.refused_word(&mix, &changes, message).expect("it is named");
        assert_eq!(
            (refused.id.as_str(), why.as_str()),
            ("cached-latents", "the program does not take --cache_latents")
        );
        for other in ["RuntimeError: no latents", "error: argument --train_batch_size: expected one argument"] {
            assert!(applier.refused_word(&mix, &changes, other).is_none(), "{other}");
        }
        applier.refused.lock().unwrap().insert(refused.id.clone());
        assert!(!applier.can_apply(remedy));
    }
}
