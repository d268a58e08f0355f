//! The answer in a few sentences.

use super::Analysis;
use super::causes::readable;
use super::explanation::{Cause, CauseKind, Outcome, Peak, Verdict, WhatIf};
use super::what_if::is_unclear;

pub(super) fn verdict(analysis: &Analysis, peak: &Peak, causes: &[Cause], what_if: &[WhatIf]) -> Verdict {
    let first = causes.iter().find(|cause| !cause.background);
    let fatal = analysis.oom.filter(|oom| oom.fatal);
    let (outcome, happened) = match (fatal, analysis.card) {
        (Some(oom), _) => {
            let place = oom.site.as_ref().map_or(String::new(), |line| format!(" at {line}"));
            let happened = format!(
                "an allocation of {} failed{place} with {} reserved, of which {} in use, and {} free on the card",
                readable(oom.requested_bytes),
                readable(peak.reserved_bytes),
                readable(peak.active_bytes),
                readable(oom.free_bytes)
            );
            (Outcome::Oom, happened)
        }
        (None, card) => {
            let in_use = readable(peak.active_bytes);
            // A profiler's timeline has no segments, and the file of a program that used no card has nothing.
            let known = peak.active_bytes == 0 || analysis.timeline.reserved.iter().any(|&bytes| bytes > 0);
            let happened = match known {
                true => format!("{} were reserved, of which {in_use} in use", readable(peak.reserved_bytes)),
                false => format!("{in_use} were in use; what was reserved is not in the recording"),
            };
            (if card.is_some() { Outcome::Fits } else { Outcome::NoOom }, happened)
        }
    };
    Verdict {
        outcome,
        cause: first.map(|cause| cause.cause),
        happened,
        why: first.map_or(String::new(), |cause| cause.because.clone()),
        what_helps: what_helps(causes, what_if),
    }
}

/// What the rows for the program's own card say; they come first in the table. The other allocator is named last: it is
/// modelled where PyTorch's own is replayed exactly.
fn what_helps(causes: &[Cause], what_if: &[WhatIf]) -> String {
    let Some(own) = what_if.first().filter(|row| !is_unclear(row)) else { return String::new() };
    let mut rows: Vec<&WhatIf> = what_if.iter().filter(|row| row.card == own.card && !row.as_recorded).collect();
    rows.sort_by_key(|row| (row.settings.contains("backend:"), row.difference_bytes));
    let setting =
        |row: &WhatIf| if row.settings.is_empty() { "PyTorch's defaults".to_owned() } else { row.settings.clone() };
    if own.survives {
        return rows
            .iter()
            .find(|row| row.says == "would take less")
            .map_or("no setting of the allocator would take noticeably less".to_owned(), |row| {
                format!("{} would take {} less", setting(row), readable(row.difference_bytes.unsigned_abs()))
            });
    }
    match rows.iter().find(|row| row.survives) {
        Some(row) => format!("{} gets past this allocation; the recording ends there", setting(row)),
        None if causes.iter().any(|cause| cause.cause == CauseKind::SpuriousOom) => {
            "trying the same allocation again would have helped".to_owned()
        }
        None => "no setting of the allocator gets past this allocation".to_owned(),
    }
}
