//! `oomph tune`: finds the largest batch, length or resolution that fits, and runs both sides of the boundary.

mod knobs;
mod search;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use oomph_launch::Limits;
use oomph_report::{
    DeviceReport, DryRunReport, NextStep, TriedValue, TuneReport, TuneRow, TuneSchema, TuneVerdict, Verdict,
    render_tune,
};

use crate::assemble::assemble;
use crate::cards::Card;
use crate::cli::TuneArgs;
use crate::failure::hinted;
use crate::fork_runner::ForkRunner;
use crate::program::Program;
use crate::progress::Progress;
use crate::run_context::{Ended, RunContext};
use crate::shell_words::quoted;
use crate::status::{self, interrupted};
use crate::syntax::Amount;
use crate::trial::Runner;
use crate::{html, output, whole_pool};

use knobs::{Knobs, Setting};
use search::{Boundary, Trial};

/// A recommended value is not searched more closely than this part of it: the uncertainty is larger.
const CLOSE_ENOUGH: usize = 48;

/// Searches and answers.
///
/// # Errors
/// When an option makes no sense, or something that is needed is missing.
pub fn run(args: TuneArgs, quiet: bool) -> Result<ExitCode> {
    let start = Instant::now();
    let knobs = Knobs::new(&args)?;
    let program = Program { history: false, ..Program::new(args.program)? };
    let Some(capacity) = program.cards.iter().filter_map(Card::capacity_bytes).min() else {
        return Err(hinted(
            "on a card without a limit every value fits",
            "name a card with --gpu, or a size with --vram",
        ));
    };
    let margin = args.margin.unwrap_or(Amount::NONE).of(capacity);
    if let Some(path) = &args.report {
        output::writable(path)?;
    }
    html::writable(&args.page)?;
    let context = RunContext::new(program, quiet)?;
    let runner = ForkRunner::new(&context, args.jobs);
    runner.prepare(&context.program.cards);
    let progress = Progress::new(quiet);
    let mut bench = Bench {
        runner: &runner,
        program: &context.program,
        knobs: &knobs,
        margin,
        accept_recovered: args.accept_recovered,
        tell: &|what| progress.tell(&what),
    };
    let searched = bench.search();
    progress.finish();
    let rows = match searched {
        Ok(rows) => rows,
        Err(Stop::Interrupted(signal)) => return Ok(interrupted(signal)),
        Err(Stop::Failed(error)) => return Err(error),
    };
    let mut report = answer(rows, &knobs, &context.program, margin);
    report.forked = runner.forks();
    report.elapsed_seconds = (start.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
    html::answered(&args.page, format!("oomph tune: {} on {}", report.varied, report.gpu), || html::tune(&report))?;
    output::answer(&report, args.format.form(), args.report.as_deref(), || render_tune(&report, output::style()))?;
    Ok(ExitCode::from(match report.verdict {
        TuneVerdict::Found | TuneVerdict::AllFit => status::DONE,
        TuneVerdict::NoneFits => status::DOES_NOT_FIT,
        TuneVerdict::Failed => status::PROGRAM_FAILED,
    }))
}

/// Why a search ended without an answer.
enum Stop {
    Interrupted(i32),
    Failed(anyhow::Error),
}

/// Where values are tried.
struct Bench<'a> {
    runner: &'a dyn Runner,
    program: &'a Program,
    knobs: &'a Knobs,
    margin: u64,
    accept_recovered: bool,
    tell: &'a (dyn Fn(String) + Sync),
}

/// What came of one value.
struct Tried {
    setting: Setting,
    report: DryRunReport,
    messages: String,
    /// Whether it fits although it caught an out-of-memory error.
    accept_recovered: bool,
}

/// The search of the last knob at one setting of the others.
struct Row {
    tried: BTreeMap<usize, Tried>,
    boundary: Boundary,
    /// The largest value that fits at the upper end of its peak, with the margin.
    recommended: Option<usize>,
}

impl Bench<'_> {
    fn search(&mut self) -> Result<Vec<Row>, Stop> {
        self.knobs.outer().iter().map(|outer| self.row(outer)).collect()
    }

    fn row(&mut self, outer: &Setting) -> Result<Row, Stop> {
        let values = &self.knobs.inner().values;
        let mut tried = BTreeMap::new();
        loop {
            let known = tried.iter().map(|(index, tried)| (*index, peak_of(tried))).collect();
            let chosen = search::next(values, &known, self.runner.jobs());
            if chosen.is_empty() {
                break;
            }
            self.try_all(outer, &chosen, &mut tried)?;
        }
        let trials: BTreeMap<usize, Trial> = tried.iter().map(|(index, tried)| (*index, peak_of(tried))).collect();
        let boundary = search::boundary(&trials);
        // The same search among the same values, with what the peak may be on a real card for the peak.
        let margin = self.margin;
        loop {
            let known: BTreeMap<usize, Trial> =
                tried.iter().map(|(index, tried)| (*index, upper_of(tried, margin))).collect();
            let inner = search::boundary(&known);
            let gap = inner.best.zip(inner.fails).map(|(best, fails)| fails - best);
            // One at a time: most of its answers are known already.
            let chosen = search::next(values, &known, 1);
            if chosen.is_empty() || gap.is_some_and(|gap| gap <= inner.best.unwrap_or(0) / CLOSE_ENOUGH) {
                return Ok(Row { tried, boundary, recommended: inner.best });
            }
            self.try_all(outer, &chosen, &mut tried)?;
        }
    }

    fn try_all(&self, outer: &Setting, chosen: &[usize], tried: &mut BTreeMap<usize, Tried>) -> Result<(), Stop> {
        let settings: Vec<Setting> =
            chosen.iter().map(|index| self.knobs.with(outer, self.knobs.inner().values[*index])).collect();
        (self.tell)(settings.iter().map(words).collect::<Vec<_>>().join(" and "));
        let results: Vec<Result<Tried, Stop>> = std::thread::scope(|scope| {
            let runs: Vec<_> = settings.iter().map(|setting| scope.spawn(|| self.try_one(setting))).collect();
            runs.into_iter()
                .map(|run| run.join().unwrap_or_else(|_| Err(Stop::Failed(anyhow::anyhow!("a trial was lost")))))
                .collect()
        });
        for (index, result) in chosen.iter().zip(results) {
            tried.insert(*index, result?);
        }
        Ok(())
    }

    fn try_one(&self, setting: &Setting) -> Result<Tried, Stop> {
        let changes = self.knobs.changes(setting);
        let Program { cards, timeout, .. } = self.program;
        let limits = Limits::of_user(*timeout);
        let ended = whole_pool::run(self.runner, &changes, cards, limits, false).map_err(Stop::Failed)?;
        match ended {
            Ended::Interrupted(signal, _) => Err(Stop::Interrupted(signal)),
            Ended::Observed(run) => Ok(Tried {
                setting: setting.clone(),
                report: assemble(&self.program.cards, &run, None),
                messages: run.stderr_tail.clone(),
                accept_recovered: self.accept_recovered,
            }),
        }
    }
}

/// `batch=8, seq=512`.
fn words(setting: &Setting) -> String {
    setting.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(", ")
}

/// The card with the least left, by what is taken of it.
fn tightest(report: &DryRunReport, taken: impl Fn(&DeviceReport) -> u64) -> Option<(u64, u64)> {
    let devices = report.devices.iter().filter_map(|device| Some((taken(device), device.capacity_bytes?)));
    devices.min_by_key(|(taken, capacity)| i128::from(*capacity) - i128::from(*taken))
}

fn trial(tried: &Tried, taken: impl Fn(&DeviceReport) -> u64) -> Trial {
    match tried.report.verdict {
        Verdict::Recovered if !tried.accept_recovered => Trial::OutOfMemory,
        Verdict::Unsure if tried.report.waits.is_some() => Trial::Failed,
        Verdict::Oom | Verdict::Unsure => Trial::OutOfMemory,
        Verdict::Failed => Trial::Failed,
        Verdict::Fits | Verdict::Recovered | Verdict::NoGpuUse => {
            let (need, limit) = tightest(&tried.report, taken).unwrap_or((0, 0));
            Trial::Ran { need, limit }
        }
    }
}

/// Whether a value fits: it ran, and nothing is added to its peak.
fn peak_of(tried: &Tried) -> Trial {
    match trial(tried, |device| device.peak.process_bytes) {
        // A run that ended well has fitted, whatever the sum of its processes' peaks says.
        Trial::Ran { need, limit } => Trial::Ran { need: need.min(limit), limit },
        other => other,
    }
}

/// Whether a value fits at the upper end of its peak, with the margin.
fn upper_of(tried: &Tried, margin: u64) -> Trial {
    trial(tried, |device| device.peak.high_bytes.saturating_add(margin))
}

/// Makes the answer of all rows.
fn answer(rows: Vec<Row>, knobs: &Knobs, program: &Program, margin: u64) -> TuneReport {
    let values = &knobs.inner().values;
    let warnings = rows.iter().flat_map(warnings).collect();
    let has_failed = rows.iter().any(|row| row.boundary.best.is_none() && failed(row).is_some());
    let frontier: Vec<TuneRow> = rows.iter().map(|row| frontier_row(row, margin)).collect();
    // Of several settings the one that does most at once: the largest product of all values.
    let amount = |setting: &Option<Setting>| {
        let names = knobs.knobs.iter().map(|knob| &knob.name);
        let product = |setting: &Setting| {
            names.filter_map(|name| setting.get(name)).fold(1_u128, |all, value| all.saturating_mul(u128::from(*value)))
        };
        setting.as_ref().map(product)
    };
    let chosen = frontier.iter().rev().max_by_key(|row| (amount(&row.recommended), amount(&row.best))).cloned();
    let chosen = chosen.unwrap_or_default();
    let verdict = match (&chosen.best, &chosen.fails_at) {
        (Some(_), None) => TuneVerdict::AllFit,
        (Some(_), Some(_)) => TuneVerdict::Found,
        (None, _) if has_failed => TuneVerdict::Failed,
        (None, _) => TuneVerdict::NoneFits,
    };
    let tried = rows.iter().flat_map(|row| row.tried.values()).map(tried_value).collect();
    let card = program.cards.iter().min_by_key(|card| card.capacity_bytes().unwrap_or(u64::MAX));
    TuneReport {
        schema: TuneSchema,
        verdict,
        gpu: card.map(|card| card.label.clone()).unwrap_or_default(),
        capacity_bytes: card.and_then(Card::capacity_bytes).unwrap_or(0),
        next: next_steps(&chosen, knobs, program, verdict),
        best: chosen.best,
        peak_bytes: chosen.peak_bytes,
        fails_at: chosen.fails_at,
        recommended: chosen.recommended,
        recommended_peak_bytes: chosen.recommended_peak_bytes,
        margin_bytes: chosen.margin_bytes,
        varied: knobs.inner().name.clone(),
        range: (values.first().copied().unwrap_or(0), values.last().copied().unwrap_or(0)),
        frontier: if frontier.len() > 1 { frontier } else { Vec::new() },
        tried,
        forked: false,
        elapsed_seconds: 0.0,
        warnings,
    }
}

/// The value that does not fit because the program failed there, for a reason other than memory.
fn failed(row: &Row) -> Option<&Tried> {
    let tried = row.tried.get(&row.boundary.fails?)?;
    Some(tried).filter(|tried| tried.report.verdict == Verdict::Failed)
}

/// What weakens the answer of a row.
fn warnings(row: &Row) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(tried) = failed(row) {
        warnings.push(format!(
            "at {} the program did not run out of memory but failed with status {}{}",
            words(&tried.setting),
            tried.report.exit_status,
            last_line(&tried.messages).map(|line| format!(": {line}")).unwrap_or_default(),
        ));
    }
    let trials: BTreeMap<usize, Trial> = row.tried.iter().map(|(index, tried)| (*index, peak_of(tried))).collect();
    let setting = |index: usize| row.tried.get(&index).map(|tried| words(&tried.setting)).unwrap_or_default();
    for (low, high) in search::surprises(&trials) {
        warnings.push(format!(
            "{} does not fit, though {} does: the peak does not simply grow with the value",
            setting(low),
            setting(high),
        ));
    }
    warnings.extend(unmoved(row));
    warnings
}

/// The boundary of a row, with its peaks.
fn frontier_row(row: &Row, margin: u64) -> TuneRow {
    let setting = |index: usize| row.tried.get(&index).map(|tried| tried.setting.clone());
    let bytes = |index: usize, of: fn(&DeviceReport) -> u64| Some(tightest(&row.tried.get(&index)?.report, of)?.0);
    let peak = |index: usize| bytes(index, |device| device.peak.process_bytes);
    let high = |index: usize| bytes(index, |device| device.peak.high_bytes);
    let Boundary { best, fails } = row.boundary;
    TuneRow {
        best: best.and_then(setting),
        peak_bytes: best.and_then(peak),
        fails_at: fails.and_then(setting),
        recommended: row.recommended.and_then(setting),
        recommended_peak_bytes: row.recommended.and_then(peak),
        margin_bytes: row.recommended.and_then(|index| {
            let uncertain = high(index)?.saturating_sub(peak(index)?);
            Some(uncertain.saturating_add(margin))
        }),
    }
}

/// A warning where the peak does not follow the value.
fn unmoved(row: &Row) -> Option<String> {
    let mut peaks = row.tried.values().filter_map(|tried| {
        let fits = matches!(tried.report.verdict, Verdict::Fits | Verdict::NoGpuUse);
        Some((tried, tightest(&tried.report, |device| device.peak.process_bytes)?.0)).filter(|_| fits)
    });
    let mut before = peaks.next()?;
    let mut grew = false;
    for now in peaks {
        if now.1 < before.1 {
            return Some(format!(
                "the peak at {} is lower than at {}: perhaps there is too little data for a batch of that size",
                words(&now.0.setting),
                words(&before.0.setting)
            ));
        }
        grew |= now.1 > before.1;
        before = now;
    }
    let several = row.tried.len() > 1 && row.boundary.fails.is_none();
    (several && !grew).then(|| "the peak is the same at all values: does the program use it?".to_owned())
}

fn last_line(messages: &str) -> Option<&str> {
    messages.lines().map(str::trim).rfind(|line| !line.is_empty())
}

fn tried_value(tried: &Tried) -> TriedValue {
    let report = &tried.report;
    let caught = || report.devices.iter().find_map(|device| device.caught_ooms.last());
    let died = report.oom_device().map(|(_, oom)| oom).or_else(caught);
    let fits = match report.verdict {
        Verdict::Fits | Verdict::NoGpuUse => true,
        Verdict::Recovered => tried.accept_recovered,
        Verdict::Oom | Verdict::Unsure | Verdict::Failed => false,
    };
    TriedValue {
        values: tried.setting.clone(),
        verdict: report.verdict,
        peak_bytes: tightest(report, |device| device.peak.process_bytes).filter(|_| fits).map(|(bytes, _)| bytes),
        high_bytes: tightest(report, |device| device.peak.high_bytes).filter(|_| fits).map(|(bytes, _)| bytes),
        phase: died.map(|oom| oom.phase),
        step: died.and_then(|oom| oom.step),
        steps: report.steps,
        elapsed_seconds: report.elapsed_seconds,
    }
}

/// What one would run next.
fn next_steps(row: &TuneRow, knobs: &Knobs, program: &Program, verdict: TuneVerdict) -> Vec<NextStep> {
    let with = |setting: &Setting| {
        let changes = knobs.changes(setting);
        let program = Program { command: changes.command, history: true, ..program.clone() };
        let set = changes.env.iter().map(|(name, value)| format!("{name}={} ", quoted(value))).collect::<String>();
        (set, program)
    };
    match (&row.recommended, verdict) {
        (Some(setting), _) => {
            let (set, program) = with(setting);
            let command: Vec<String> = program.shown().iter().map(|word| quoted(word)).collect();
            vec![NextStep { why: format!("run it with {}", words(setting)), command: set + &command.join(" ") }]
        }
        (None, TuneVerdict::NoneFits | TuneVerdict::Found) => {
            let Some(setting) = row.best.as_ref().or(row.fails_at.as_ref()) else { return Vec::new() };
            let (set, program) = with(setting);
            vec![NextStep { why: "find what makes it fit".into(), command: set + &program.fix(&[]) }]
        }
        _ => Vec::new(),
    }
}
