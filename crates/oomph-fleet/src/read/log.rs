//! Reads logs: failures, figures, causes, advice.

use std::io::{self, Read};

use oomph_explain::log::{self, Facts, Report};

use super::{Context, day_of};
use crate::found::{Day, Found, figure, word};
use crate::schema::{Cause, Fact, Failure, WhatIf};
use crate::stamp::{Seen, Watched};

/// The longest list of settings or of other processes that becomes rows.
const MOST: usize = 64;

/// Reads a log to its end, in bounded memory.
///
/// # Errors
/// Only those of the reader: whatever the bytes are, they are a log.
pub(super) fn read(context: &Context, reader: impl Read, found: &mut Found, notes: &mut Vec<String>) -> io::Result<()> {
    let mut watched = Watched::new(reader);
    let report = log::explain(&mut watched, &log::Options::default())?;
    let seen = watched.into_seen();
    if report.left_out > 0 {
        notes.push(format!("{} failures beyond those that are kept", report.left_out));
    }
    for index in 0..report.failures.len() {
        add(context, &report, &seen, index, found);
    }
    Ok(())
}

fn add(context: &Context, report: &Report, seen: &Seen, index: usize, found: &mut Found) {
    let Some(failure) = report.failures.get(index) else { return };
    let id = context.part(index);
    let stamped = context.plausible(seen.time_of(failure.line));
    let at = stamped.unwrap_or(context.item.modified_us);
    let day = day_of(at);
    let (facts, derived) = (&failure.facts, &failure.derived);
    let first = failure.causes.first();
    let figure = |value: Option<u64>| value.and_then(figure);
    found.push(
        day,
        Failure {
            id: id.clone(),
            file_id: Some(context.id.clone()),
            source: Some("log".to_owned()),
            path: Some(context.item.path.clone()),
            happened_at: Some(at),
            time_is_recorded: Some(stamped.is_some()),
            is_gpu_oom: Some(failure.is_gpu_oom),
            certainty: Some(failure.certainty),
            not_oom: failure.not_oom.as_ref().map(|not| not.kind.id().to_owned()),
            framework: failure.framework.clone(),
            backend: failure.backend.clone(),
            front_end: failure.front_end.clone(),
            era: failure.era.clone(),
            model: seen.model().map(str::to_owned),
            gpu: report.settings.get("gpu").map(str::to_owned),
            rank: failure.rank.map(i64::from),
            device: facts.device.map(i64::from),
            site_file: failure.site.as_ref().map(|site| site.file.clone()),
            site_line: figure(failure.site.as_ref().map(|site| site.line)),
            site_function: failure.site.as_ref().and_then(|site| site.function.clone()),
            site_code: failure.site.as_ref().and_then(|site| site.code.clone()),
            operation: failure.operation.as_ref().and_then(word),
            cause: first.and_then(|cause| word(&cause.cause)),
            cause_confidence: first.map(|cause| cause.confidence),
            requested_bytes: figure(facts.requested_bytes),
            capacity_bytes: figure(facts.capacity_bytes),
            free_bytes: figure(facts.free_bytes),
            allocated_bytes: figure(facts.allocated_bytes),
            reserved_bytes: figure(derived.reserved_bytes.or(facts.reserved_bytes)),
            process_bytes: figure(facts.process_bytes),
            non_framework_bytes: figure(derived.non_framework_bytes),
            other_tenants_bytes: figure(derived.other_tenants_bytes),
            shortfall_bytes: figure(derived.shortfall_bytes),
            needed_bytes: None,
            survived: Some(failure.survived),
            times: figure(Some(failure.times)),
            line: figure(Some(failure.line)),
            message: Some(failure.message.clone()),
            pattern: Some(failure.pattern.clone()),
        },
    );
    let id = id.as_deref();
    add_causes(failure, id, day, found);
    add_remedies(failure, id, day, found);
    add_facts(facts, id, day, found);
    // What the log says of the run belongs to its first failure.
    if index == 0 {
        add_settings(report, id, day, found);
    }
}

/// Why it failed.
fn add_causes(failure: &log::Failure, id: Option<&str>, day: Day, found: &mut Found) {
    for (place, cause) in failure.causes.iter().enumerate() {
        found.push(
            day,
            Cause {
                id: id.map(str::to_owned),
                source: Some("log".to_owned()),
                place: i64::try_from(place + 1).ok(),
                cause: word(&cause.cause),
                background: Some(false),
                confidence: Some(cause.confidence),
                bytes: cause.bytes.and_then(figure),
                because: Some(cause.because.clone()),
                ..Cause::default()
            },
        );
    }
}

/// What was advised.
fn add_remedies(failure: &log::Failure, id: Option<&str>, day: Day, found: &mut Found) {
    for offer in &failure.remedies {
        found.push(
            day,
            WhatIf {
                id: id.map(str::to_owned),
                known_by: Some("advised".to_owned()),
                remedy: Some(offer.id.clone()),
                frees_bytes: offer.frees_bytes.and_then(figure),
                ..WhatIf::default()
            },
        );
    }
}

/// The settings of the run.
fn add_settings(report: &Report, id: Option<&str>, day: Day, found: &mut Found) {
    for (name, setting) in report.settings.seen.iter().take(MOST) {
        let number = report.settings.number(name).and_then(figure);
        found.push(
            day,
            Fact {
                id: id.map(str::to_owned),
                name: Some((*name).to_owned()),
                number,
                text: Some(setting.value.clone()),
                line: figure(setting.line),
            },
        );
    }
}

fn add_facts(facts: &Facts, id: Option<&str>, day: Day, found: &mut Found) {
    let figures = [
        ("requested_bytes", facts.requested_bytes),
        ("capacity_bytes", facts.capacity_bytes),
        ("free_bytes", facts.free_bytes),
        ("allocated_bytes", facts.allocated_bytes),
        ("reserved_bytes", facts.reserved_bytes),
        ("process_bytes", facts.process_bytes),
        ("unallocated_bytes", facts.unallocated_bytes),
        ("private_pools_bytes", facts.private_pools_bytes),
        ("limit_bytes", facts.limit_bytes),
        ("kv_cache_available_bytes", facts.kv_cache_available_bytes),
        ("context_tokens", facts.context_tokens),
        ("context_tokens_that_fit", facts.context_tokens_that_fit),
    ];
    let line_of = |name: &str| facts.lines.get(name).copied().and_then(figure);
    let mut push = |name: &str, number: Option<i64>, text: Option<String>, line: Option<i64>| {
        found.push(day, Fact { id: id.map(str::to_owned), name: Some(name.to_owned()), number, text, line });
    };
    for (name, value) in figures {
        if let Some(value) = value {
            push(name, figure(value), None, line_of(name));
        }
    }
    if let Some(utilization) = facts.utilization {
        push("utilization", None, Some(utilization.to_string()), line_of("utilization"));
    }
    if let Some(shape) = &facts.shape {
        push("shape", None, Some(format!("{shape:?}")), line_of("shape"));
    }
    if let Some(dtype) = &facts.dtype {
        push("dtype", None, Some(dtype.clone()), line_of("dtype"));
    }
    for process in facts.other_processes.iter().take(MOST) {
        push(
            "other_process_bytes",
            process.bytes.and_then(figure),
            Some(process.pid.to_string()),
            figure(process.line),
        );
    }
}
