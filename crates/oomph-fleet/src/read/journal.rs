//! Reads journals of guarded runs. A journal is only ever added to, so each attempt in it counts as a content of its
//! own: an attempt that was collected before is not collected again when the journal has grown.

use std::collections::BTreeMap;

use chrono::DateTime;
use oomph_gpu::Catalogue;
use oomph_report::Phase;
use serde::Deserialize;

use super::{Context, DAY_US, Outcome, day_of};
use crate::found::{Found, figure};
use crate::input::Id;
use crate::schema::{Attempt, Failure};
use crate::stamp::model_of;

/// One line, as `oomph run` writes it. What a line of another event lacks has its default.
#[derive(Deserialize)]
struct Line {
    run: String,
    at: String,
    #[serde(flatten)]
    event: Event,
}

#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Event {
    Start(Start),
    Attempt(Begun),
    End(Ended),
    Decision(Decision),
    #[serde(other)]
    Other,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Start {
    command: Vec<String>,
    gpu: String,
    rehearsal: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Begun {
    number: u64,
    remedies: Vec<String>,
    step: Option<u64>,
    repeated_steps: u64,
    predicted_peak_bytes: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Ended {
    number: u64,
    exit_status: i64,
    seconds: f64,
    reserved_peak_bytes: Option<u64>,
    steps: u64,
    effective_batch: Option<u64>,
    out_of_memory: Option<Death>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Death {
    requested_bytes: u64,
    reserved_bytes: Option<u64>,
    phase: Phase,
    file: Option<String>,
    line: Option<u64>,
    rank: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Decision {
    remedies: Vec<String>,
    reason: String,
}

/// What is known of a run while its lines go by.
#[derive(Default)]
struct Run {
    start: Start,
    /// The attempt that has begun, with the text of its lines.
    attempt: Option<(Attempt, String)>,
    death: Option<Death>,
}

/// Reads a journal. A line that cannot be read is left out and noted: a full disk cuts lines short.
pub(super) fn read(
    context: &Context,
    text: &[u8],
    outcome: &mut Outcome,
    notes: &mut Vec<String>,
    seen: &dyn Fn(Id) -> bool,
) {
    let mut unreadable = 0;
    let mut runs: BTreeMap<String, Run> = BTreeMap::new();
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
        let Ok(parsed) = serde_json::from_slice::<Line>(line) else {
            unreadable += 1;
            continue;
        };
        let run = runs.entry(parsed.run.clone()).or_default();
        take(context, parsed, &String::from_utf8_lossy(line), run, outcome, seen);
    }
    if unreadable > 0 {
        notes.push(format!("lines that cannot be read: {unreadable}"));
    }
    // What has not ended may end yet; after a day it will not.
    let settled = context.reading.now_us - context.item.modified_us > DAY_US;
    for mut run in runs.into_values() {
        let ended = run.attempt.as_ref().is_some_and(|(attempt, _)| attempt.exit_status.is_some());
        if run.attempt.is_some() && (ended || settled) {
            finish(context, &mut run, outcome, seen);
        }
        outcome.open |= run.attempt.is_some();
    }
}

fn take(context: &Context, line: Line, text: &str, run: &mut Run, outcome: &mut Outcome, seen: &dyn Fn(Id) -> bool) {
    let at = DateTime::parse_from_rfc3339(&line.at).ok().map(|at| at.timestamp_micros());
    match line.event {
        Event::Start(start) => run.start = start,
        Event::Attempt(begun) => {
            finish(context, run, outcome, seen);
            let command = run.start.command.join(" ");
            let attempt = Attempt {
                path: Some(context.item.path.clone()),
                run: Some(line.run),
                number: figure(begun.number),
                began_at: context.plausible(at).or(Some(context.item.modified_us)),
                model: model_of(&run.start.command),
                command: (!command.is_empty()).then_some(command),
                gpu: Some(card(&run.start.gpu)).filter(|gpu| !gpu.is_empty()),
                rehearsal: Some(run.start.rehearsal),
                remedies: Some(begun.remedies.join(",")),
                resumed_from_step: begun.step.and_then(figure),
                repeated_steps: figure(begun.repeated_steps),
                predicted_peak_bytes: begun.predicted_peak_bytes.and_then(figure),
                ..Attempt::default()
            };
            // The hash is of the line that began it: lines that follow later do not make another attempt of it.
            run.attempt = Some((attempt, text.to_owned()));
        }
        Event::End(ended) => {
            let Some((attempt, _)) = &mut run.attempt else { return };
            if attempt.number != figure(ended.number) {
                return;
            }
            attempt.exit_status = Some(ended.exit_status);
            attempt.seconds = Some(ended.seconds);
            attempt.reserved_peak_bytes = ended.reserved_peak_bytes.and_then(figure);
            attempt.steps = figure(ended.steps);
            attempt.effective_batch = ended.effective_batch.and_then(figure);
            attempt.out_of_memory = Some(ended.out_of_memory.is_some());
            attempt.phase = ended.out_of_memory.as_ref().map(|death| death.phase.name().to_owned());
            run.death = ended.out_of_memory;
        }
        Event::Decision(decision) => {
            if let Some((attempt, _)) = &mut run.attempt {
                let remedies = decision.remedies.join(",");
                attempt.decision = Some(if remedies.is_empty() {
                    decision.reason
                } else {
                    format!("{remedies}: {}", decision.reason)
                });
            }
        }
        Event::Other => {}
    }
}

/// The catalogue's name of a card, as the other tables have it; a journal has the driver's.
fn card(name: &str) -> String {
    Catalogue::builtin().find(name).map_or_else(|_| name.to_owned(), |gpu| gpu.id.clone())
}

/// Adds an attempt of which no more follows.
fn finish(context: &Context, run: &mut Run, outcome: &mut Outcome, seen: &dyn Fn(Id) -> bool) {
    let death = run.death.take();
    let Some((mut attempt, text)) = run.attempt.take() else { return };
    let hash = Id::of(text.as_bytes());
    if seen(hash) {
        return;
    }
    outcome.parts.push(hash);
    let id = Some(hash.to_string());
    attempt.id = id.clone();
    let at = attempt.began_at.unwrap_or(context.item.modified_us);
    if let Some(death) = death {
        add_failure(context, &attempt, death, hash, at, &mut outcome.found);
    }
    outcome.found.push(day_of(at), attempt);
}

fn add_failure(context: &Context, attempt: &Attempt, death: Death, hash: Id, at: i64, found: &mut Found) {
    found.push(
        day_of(at),
        Failure {
            id: Some(format!("{hash}-0")),
            file_id: Some(context.id.clone()),
            source: Some("journal".to_owned()),
            path: Some(context.item.path.clone()),
            happened_at: Some(at),
            time_is_recorded: Some(true),
            is_gpu_oom: Some(true),
            certainty: Some(1.0),
            model: attempt.model.clone(),
            gpu: attempt.gpu.clone(),
            rank: death.rank.and_then(figure),
            site_file: death.file,
            site_line: death.line.and_then(figure),
            operation: Some(death.phase.name().to_owned()),
            requested_bytes: figure(death.requested_bytes).filter(|bytes| *bytes > 0),
            reserved_bytes: death.reserved_bytes.and_then(figure),
            survived: Some(false),
            times: Some(1),
            ..Failure::default()
        },
    );
}
