//! `oomph run`: runs the program on the real GPU, and restarts it with a verified change if GPU memory runs out.
//!
//! The loop is [`Guarded::go`]: an attempt ([`RunContext::perform_for_real`]), what became of it ([`attempt`]), and, where it
//! died of GPU memory, what comes next ([`remedy`]) and from where ([`checkpoint`]). Each turn leaves lines in the
//! [`journal`]. With `--act` a remedy is looked for while the program still runs ([`act`]). No configuration is started twice, and no other failure is retried.

mod act;
mod attempt;
mod checkpoint;
mod device;
mod journal;
mod remedy;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use oomph_gpu::size;
use oomph_launch::{Guard, HookCheckpoint, Limits, Output, OwnLimit, RunFolder, Stop as LaunchStop, StopMode};
use oomph_protocol::journal::{self as events, JournalEvent};
use oomph_remedy::Catalogue;

use crate::assemble::assemble;
use crate::cards::{self, Card};
use crate::changes::Changes;
use crate::cli::{ProgramArgs, Record, RunArgs};
use crate::fix::{self, list};
use crate::output;
use crate::program::Program;
use crate::progress::Progress;
use crate::run_context::{Ended, Ending, Meanwhile, RealOutcome, RealRun, Recording, RunContext};
use crate::shell_words::quoted;
use crate::status::{self, interrupted};
use crate::syntax::Amount;
use crate::trial::{Runner, Stop};

use act::Found;
use attempt::Attempt;
use device::Devices;
use journal::Journal;
use remedy::{Configuration, Next, Rules};

/// How long a check may take that nobody asked for.
const QUICK_CHECK: Duration = Duration::from_secs(10);

/// A death in a step beyond this is too far away for dry runs that make every step.
const FARTHEST: u32 = 400;

/// Runs the program under guard.
///
/// # Errors
/// When an option makes no sense, or something that is needed is missing.
pub fn run(args: RunArgs, quiet: bool) -> Result<ExitCode> {
    let catalogue = Catalogue::builtin();
    let rules = Rules {
        allow: list::allowed(catalogue, &args.allow)?,
        forbid: list::ids(catalogue, "--forbid", &args.forbid)?,
        max_time: args.max_time,
        only: None,
    };
    let rehearsed = args.rehearse.as_ref().map(|cards| cards.value);
    let devices = Devices::new(rehearsed, args.vram.as_ref().map(|vram| vram.value.0))?;
    // The program as dry runs see it.
    let program = Program::new(ProgramArgs {
        gpu: args.rehearse.iter().cloned().collect(),
        vram: args.vram.clone(),
        with: args.with.clone(),
        ..ProgramArgs::of(args.command.clone())
    })?;
    let program = Program { cards: devices.twins()?, history: false, ..program };
    let cards = fix::limited(&program.cards, None)?;
    let margin = args.margin.as_ref().map_or(Amount::NONE, |margin| margin.value);
    cards::less(&cards, margin)?;
    let (context, problem) = RunContext::new_for_real(program, quiet)?;
    if let Some(problem) = problem.as_ref().filter(|_| args.rehearse.is_some()) {
        return Err(anyhow::anyhow!("{problem}"));
    }
    if let Some(problem) = &problem {
        output::say(&format!("oomph: warning: it runs unguarded, because no remedy can be tried: {problem}"));
    }
    let journal = Journal::open(&args.keep)?;
    let check = if args.no_check || problem.is_some() {
        None
    } else {
        Some(if args.check { Duration::MAX } else { QUICK_CHECK })
    };
    let recording = match args.record {
        Record::Off => Recording::Off,
        Record::Light => Recording::Light,
        Record::Full => Recording::Full,
    };
    let guarded = Guarded {
        context: &context,
        search_arguments: act::search_arguments(&args, &context.program.cards),
        devices,
        rules,
        margin,
        recording,
        attempts: args.attempts,
        act: args.act,
        quiet,
        journal,
        untried: problem.map(|problem| format!("no remedy can be tried: {problem}")),
        checkpoints: Vec::new(),
        steps: 0,
        died: Vec::new(),
    };
    match args.search_beside {
        Some(steps) => act::look(&guarded, steps),
        None => guarded.go(check),
    }
}

/// A program under guard.
struct Guarded<'a> {
    context: &'a RunContext,
    /// The arguments of a search that runs next to the program.
    search_arguments: Vec<OsString>,
    devices: Devices,
    rules: Rules,
    margin: Amount,
    recording: Recording,
    /// How often the program is started at most.
    attempts: usize,
    /// Whether a sign of a death is acted on before it.
    act: bool,
    quiet: bool,
    journal: Journal,
    /// Why the program cannot run on the virtual GPU, if so.
    untried: Option<String>,
    /// What the program's trainer finished so far, in all attempts.
    checkpoints: Vec<HookCheckpoint>,
    /// The optimizer steps that were made so far.
    steps: u64,
    /// The configurations that died.
    died: Vec<Configuration>,
}

/// What comes after a death.
enum Decision {
    Again(Configuration),
    End(String),
}

impl Guarded<'_> {
    /// Starts the program until it ends for a reason other than GPU memory, or nothing is left to try.
    fn go(mut self, check: Option<Duration>) -> Result<ExitCode> {
        self.journal.add(JournalEvent::Start(events::Start {
            command: self.context.program.shown(),
            gpu: self.devices.shown(),
            rehearsal: self.devices.stand_in.is_some(),
            free_bytes: self.context.program.cards.iter().filter_map(Card::capacity_bytes).min(),
        }));
        let mut spare: Vec<Configuration> = Vec::new();
        let mut configuration = Configuration::unchanged(self.context);
        if let Some(time) = check {
            let (checked, seconds) = remedy::timed(|| self.checked(time));
            match checked {
                Ok(fixes) => {
                    spare = fixes;
                    if !spare.is_empty() {
                        configuration = spare.remove(0);
                        self.decided(&configuration.remedies, "the dry run before the start does not fit", seconds);
                    }
                }
                Err(Stop::Interrupted(signal)) => return Ok(interrupted(signal)),
                Err(Stop::Failed(error)) => return Err(error),
            }
        }
        for number in 1.. {
            let (outcome, attempt, found) = self.attempt(number, &configuration)?;
            if let Some(signal) = outcome.interrupted {
                return Ok(interrupted(signal));
            }
            if attempt.left {
                match self.after_leaving(&configuration, attempt.steps, &found) {
                    Ok(next) => configuration = next,
                    Err(Stop::Interrupted(signal)) => return Ok(interrupted(signal)),
                    Err(Stop::Failed(error)) => return Err(error),
                }
                continue;
            }
            let own = status::of_program(outcome.exit_status);
            let Some(death) = &attempt.death else { return Ok(own) };
            output::say(&format!("oomph: {}", attempt::described(death)));
            self.died.push(configuration.clone());
            let (decision, seconds) = remedy::timed(|| {
                if number >= self.attempts {
                    let word = if number == 1 { "time" } else { "times" };
                    return Ok(Decision::End(format!("it was started {number} {word} (--attempts)")));
                }
                self.devices.wait_until_free();
                // The death may lie beyond what a dry run with shortened loops reaches.
                let cards = self.cards().map_err(Stop::Failed)?;
                self.decide(&configuration, attempt.steps, &cards, death.requested_bytes, &mut spare)
            });
            let decision = match decision {
                Ok(decision) => decision,
                Err(Stop::Interrupted(signal)) => return Ok(interrupted(signal)),
                // The search must not cost the program its own exit status.
                Err(Stop::Failed(error)) => Decision::End(format!("the search failed: {error:#}")),
            };
            match decision {
                Decision::Again(next) => {
                    self.decided(&next.remedies, &next.titles.join(" + "), seconds);
                    configuration = next;
                }
                Decision::End(reason) => {
                    self.decided(&[], &reason, seconds);
                    output::say(&format!("oomph: not started again: {reason}"));
                    self.point_to(death);
                    let changed = self.died.iter().any(|died| !died.remedies.is_empty());
                    return Ok(if changed { ExitCode::from(status::NO_REMEDY_LEFT) } else { own });
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The fixes that a dry run asks for before the start; none where it fits, or where that is not known in time.
    fn checked(&self, time: Duration) -> Result<Vec<Configuration>, Stop> {
        let cards = self.cards().map_err(Stop::Failed)?;
        self.tell("checking whether it fits what is free on the card");
        let changes = Changes::none(&self.context.program.command);
        let own = OwnLimit::of(time);
        let limits = Limits { clock: None, own: Some(&own) };
        let run = match self.context.run(&changes, &cards, limits).map_err(Stop::Failed)? {
            Ended::Interrupted(signal, _) => return Err(Stop::Interrupted(signal)),
            Ended::Observed(run) => run,
        };
        let report = assemble(&cards, &run, None);
        match report.verdict {
            oomph_report::Verdict::Oom => {}
            oomph_report::Verdict::Fits if run.is_done() => {
                let peak = report.devices.iter().map(|device| device.peak.process_bytes).max().unwrap_or(0);
                self.tell(&format!("the dry run fits: its peak is {}", size::format(peak)));
                return Ok(Vec::new());
            }
            _ => {
                self.tell("the dry run gives no answer; the program starts");
                return Ok(Vec::new());
            }
        }
        output::say("oomph: the dry run does not fit; looking for a fix before the start");
        match self.search(self.context, &cards)? {
            Next::Fixes(fixes) => Ok(fixes),
            Next::Fits { .. } => Ok(Vec::new()),
            Next::Nothing(reason) => {
                output::say(&format!("oomph: no fix: {reason}; the program starts unchanged"));
                Ok(Vec::new())
            }
        }
    }

    /// Starts the program once.
    fn attempt(&mut self, number: usize, configuration: &Configuration) -> Result<(RealOutcome, Attempt, Found)> {
        let resume = checkpoint::newest_whole(&self.checkpoints).cloned();
        let mut changes = configuration.changes.clone();
        let mut from = resume.clone();
        match &resume {
            Some(checkpoint) if checkpoint.kind == "accelerate" => {
                match checkpoint::resuming(&changes.command, &self.context.directory, checkpoint) {
                    Some(command) => changes.command = command,
                    None => from = None,
                }
            }
            // The hook hands it to the trainer.
            _ => {}
        }
        self.journal.add(JournalEvent::Attempt(events::Attempt {
            number: number as u64,
            remedies: configuration.remedies.clone(),
            checkpoint: from.as_ref().map(|checkpoint| checkpoint.path.clone()),
            step: from.as_ref().map(|checkpoint| checkpoint.step),
            repeated_steps: self.repeated(from.as_ref()),
            predicted_peak_bytes: configuration.peak_bytes,
        }));
        if number > 1 || !configuration.remedies.is_empty() {
            output::say(&format!("oomph: {}", self.announced(number, configuration, from.as_ref())));
        }
        let recording = self.journal.recording(number);
        let guard = Guard { resume: from.clone(), limit_bytes: self.devices.limit_bytes, ..Guard::default() };
        let found = Mutex::new(Found::default());
        let look = |folder: &RunFolder, ending: &Ending| self.act_on_signs(folder, ending, &found);
        // A search for a program that is changed already would not know what died.
        let acts = self.act && self.untried.is_none() && number < self.attempts && configuration.remedies.is_empty();
        let outcome = self.context.perform_for_real(&RealRun {
            changes: &changes,
            output: Output::Inherit,
            stand_in: self.devices.stand_in.as_deref(),
            recording: self.recording,
            guard: &guard,
            keep: Some(&recording),
            meanwhile: acts.then_some(&look as Meanwhile<'_>),
        })?;
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        let attempt = Attempt::of(&outcome, &recording, from.as_ref());
        for warning in &attempt.warnings {
            output::say(&format!("oomph: warning: {warning}"));
        }
        self.steps = self.steps.max(attempt.steps);
        self.checkpoints.extend(attempt.checkpoints.iter().cloned());
        self.journal.add(JournalEvent::End(events::End {
            number: number as u64,
            exit_status: outcome.exit_status,
            seconds: (outcome.elapsed.as_secs_f64() * 1000.0).round() / 1000.0,
            reserved_peak_bytes: attempt.reserved_peak_bytes,
            steps: attempt.steps,
            resumed_at_step: attempt.resumed_at_step,
            effective_batch: attempt.effective_batch,
            signs: attempt.signs.clone(),
            out_of_memory: attempt.death.clone(),
        }));
        Ok((outcome, attempt, found))
    }

    /// How many steps are made again.
    fn repeated(&self, from: Option<&HookCheckpoint>) -> u64 {
        self.steps.saturating_sub(from.map_or(0, |checkpoint| checkpoint.step))
    }

    /// The line of an attempt.
    fn announced(&self, number: usize, configuration: &Configuration, from: Option<&HookCheckpoint>) -> String {
        let again = match self.repeated(from) {
            0 => String::new(),
            1 => "; 1 step is made again".to_owned(),
            steps => format!("; {steps} steps are made again"),
        };
        let start = match from {
            Some(checkpoint) => format!("from {} (step {}{again})", checkpoint.path.display(), checkpoint.step),
            None if number > 1 => {
                format!("from the beginning (no checkpoint to resume from{again})")
            }
            None => "from the beginning".to_owned(),
        };
        let with = configuration.titles.join(" + ");
        let peak = configuration.peak_bytes.map_or(String::new(), |peak| format!(", peak {}", size::format(peak)));
        format!("start {number} of at most {}, {start}, with: {with}{peak}", self.attempts)
    }

    /// What comes after the program saved and left for a remedy: the remedy, or where it no longer holds the program as it
    /// was, which has lost nothing but time.
    fn after_leaving(&mut self, left: &Configuration, steps: u64, found: &Found) -> Result<Configuration, Stop> {
        self.devices.wait_until_free();
        let cards = self.cards().map_err(Stop::Failed)?;
        self.rules.only = Some(remedy::ids(&found.remedies));
        let (decision, seconds) = remedy::timed(|| self.decide(left, steps, &cards, 0, &mut Vec::new()));
        self.rules.only = None;
        self.act = false;
        match decision? {
            Decision::Again(next) => {
                self.died.push(left.clone());
                self.decided(&next.remedies, "a sign that memory would run out (--act)", seconds);
                Ok(next)
            }
            Decision::End(reason) => {
                let reason = format!("it goes on as it was: {reason}");
                output::say(&format!("oomph: {reason}"));
                self.decided(&left.remedies, &reason, seconds);
                Ok(left.clone())
            }
        }
    }

    /// What comes after a death. `spare` are fixes that an earlier search found.
    fn decide(
        &self,
        died: &Configuration,
        steps: u64,
        cards: &[Card],
        requested_bytes: u64,
        spare: &mut Vec<Configuration>,
    ) -> Result<Decision, Stop> {
        if let Some(reason) = &self.untried {
            return Ok(Decision::End(reason.clone()));
        }
        if let Some(next) = self.lower(died, spare) {
            return Ok(Decision::Again(next));
        }
        let mut cards = cards.to_vec();
        if let Some(peak) = died.peak_bytes {
            // What was promised of it did not hold on this card.
            cards = remedy::below(&cards, peak, requested_bytes);
        }
        output::say("oomph: looking for a fix");
        let mut found = self.search(self.context, &cards)?;
        if let (Next::Fits { .. }, Some(context)) = (&found, self.as_far_as(steps).map_err(Stop::Failed)?) {
            self.tell(&format!("the dry run fits, the real run did not: following the program to step {}", steps + 1));
            found = self.search(&context, &cards)?;
        }
        if let Next::Fits { peak_bytes: Some(peak) } = found {
            self.tell(&format!("the dry run fits ({}): looking for what needs less than that", size::format(peak)));
            found = self.search(self.context, &remedy::below(&cards, peak, requested_bytes))?;
        }
        Ok(match found {
            Next::Fixes(fixes) => {
                *spare = fixes;
                match self.lower(died, spare) {
                    Some(next) => Decision::Again(next),
                    None => Decision::End("each remedy that fits was tried".into()),
                }
            }
            Next::Fits { .. } => Decision::End("its dry run fits; what it lacks on this card is not known".into()),
            Next::Nothing(reason) => Decision::End(reason),
        })
    }

    /// The first of the fixes that was not tried and needs less than what died.
    fn lower(&self, died: &Configuration, spare: &mut Vec<Configuration>) -> Option<Configuration> {
        let needs_less = |one: &Configuration| match (one.peak_bytes, died.peak_bytes) {
            (Some(peak), Some(before)) => peak < before,
            _ => true,
        };
        let is_new = |one: &Configuration| self.died.iter().all(|before| before.changes != one.changes);
        let place = spare.iter().position(|one| needs_less(one) && is_new(one))?;
        Some(spare.remove(place))
    }

    /// The program with dry runs that go on to the step of a death, where that is not far.
    fn as_far_as(&self, steps: u64) -> Result<Option<RunContext>> {
        let steps = u32::try_from(steps).ok().filter(|steps| *steps <= FARTHEST);
        let Some(steps) = steps else { return Ok(None) };
        // One more than died, because an evaluation comes after the step.
        let stop = LaunchStop { mode: StopMode::Steps, steps: steps + 2, budget_seconds: None };
        RunContext::new(Program { stop, ..self.context.program.clone() }, true).map(Some)
    }

    fn search(&self, context: &RunContext, cards: &[Card]) -> Result<Next, Stop> {
        let progress = Progress::new(self.quiet);
        let found = remedy::search(context, cards, &self.rules, &|what| progress.tell(what));
        progress.finish();
        found
    }

    /// The cards with what is free on them now, less the margin.
    fn cards(&self) -> Result<Vec<Card>> {
        cards::less(&fix::limited(&self.devices.twins()?, None)?, self.margin)
    }

    fn decided(&mut self, remedies: &[String], reason: &str, seconds: f64) {
        self.journal.add(JournalEvent::Decision(events::Decision {
            remedies: remedies.to_vec(),
            reason: reason.to_owned(),
            searched_seconds: (seconds * 1000.0).round() / 1000.0,
        }));
    }

    /// Where the explanation is found.
    fn point_to(&self, death: &events::Death) {
        self.tell(&format!("the journal is {}", self.journal.path().display()));
        if let Some(recording) = &death.recording {
            self.tell(&format!("why it died: oomph explain {}", quoted(&recording.to_string_lossy())));
        }
    }

    fn tell(&self, line: &str) {
        output::tell(&format!("oomph: {line}"), self.quiet);
    }
}
