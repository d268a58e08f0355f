//! Reads journals of guarded runs. A journal is only ever added to, so each attempt in it counts as a content of its
//! own: an attempt that was collected before is not collected again when the journal has grown.

use std::collections::BTreeMap;

use chrono::DateTime;
use oomph_gpu::Catalogue;
use oomph_protocol::journal::{Death, JournalEvent, JournalLine, Start};

use super::{Context, DAY_US, Outcome, day_of};
use crate::found::{Found, figure};
use crate::input::Id;
use crate::schema::{Attempt, Failure};
use crate::stamp::model_of;

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
        let Ok(parsed) = serde_json::from_slice::<JournalLine>(line) else {
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

fn take(
    context: &Context,
    line: JournalLine,
    text: &str,
    run: &mut Run,
    outcome: &mut Outcome,
    seen: &dyn Fn(Id) -> bool,
) {
    let at = DateTime::parse_from_rfc3339(&line.at).ok().map(|at| at.timestamp_micros());
    match line.event {
        JournalEvent::Start(start) => run.start = start,
        JournalEvent::Attempt(begun) => {
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
        JournalEvent::End(ended) => {
            let Some((attempt, _)) = &mut run.attempt else { return };
            if attempt.number != figure(ended.number) {
                return;
            }
            attempt.exit_status = Some(i64::from(ended.exit_status));
            attempt.seconds = Some(ended.seconds);
            attempt.reserved_peak_bytes = ended.reserved_peak_bytes.and_then(figure);
            attempt.steps = figure(ended.steps);
            attempt.effective_batch = ended.effective_batch.and_then(figure);
            attempt.out_of_memory = Some(ended.out_of_memory.is_some());
            attempt.phase = ended.out_of_memory.as_ref().map(|death| death.phase.name().to_owned());
            run.death = ended.out_of_memory;
        }
        JournalEvent::Decision(decision) => {
            if let Some((attempt, _)) = &mut run.attempt {
                let remedies = decision.remedies.join(",");
                attempt.decision = Some(if remedies.is_empty() {
                    decision.reason
                } else {
                    format!("{remedies}: {}", decision.reason)
                });
            }
        }
        JournalEvent::Other => {}
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
            rank: death.rank.map(i64::from),
            site_file: death.file,
            site_line: death.line.map(i64::from),
            operation: Some(death.phase.name().to_owned()),
            requested_bytes: figure(death.requested_bytes).filter(|bytes| *bytes > 0),
            reserved_bytes: death.reserved_bytes.and_then(figure),
            survived: Some(false),
            times: Some(1),
            ..Failure::default()
        },
    );
}
