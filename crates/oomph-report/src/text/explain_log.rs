//! Shows what a log says about a failure, on one screen.

use oomph_explain::log::{Failure, RunSettings};
use oomph_gpu::size::format as size;

use super::bar::{Part, draw};
use super::page::{Ink, Page, shortened};
use crate::clean;

/// Causes beyond these are too unlikely to be read.
const MOST_CAUSES: usize = 3;
/// Causes below this confidence are left out where a likelier one is shown.
const LEAST_CONFIDENCE: f64 = 0.15;
/// Remedies, and pieces of advice to avoid, that are printed: the answer has to fit one screen.
const MOST_REMEDIES: usize = 4;
/// See [`MOST_REMEDIES`].
const MOST_AVOIDED: usize = 2;
/// Failures beyond the first are named in a line each, up to so many.
const MOST_OTHERS: usize = 4;
/// A failure that is less certain than this is printed with "probably".
const SURE: f64 = 0.65;
/// A failure that is less certain than this is printed with "possibly".
const LIKELY: f64 = 0.45;
/// A bar wider than this is no easier to read.
const WIDEST_BAR: usize = 72;

/// Writes the failures of a log, the root one in full.
pub(super) fn failures(page: &mut Page, failures: &[Failure], run: Option<&RunSettings>) {
    let Some((root, others)) = failures.split_first() else {
        page.paragraph(0, 2, &[(Ink::Good, "no failure found"), (Ink::Plain, " in the log")]);
        return;
    };
    verdict(page, root);
    if root.is_gpu_oom {
        card(page, root);
    }
    place(page, root);
    why(page, root);
    what_to_do(page, root);
    settings(page, run);
    also(page, others);
}

fn verdict(page: &mut Page, failure: &Failure) {
    if let Some(other) = failure.not_oom.as_ref().filter(|_| !failure.is_gpu_oom) {
        let doubt = if failure.certainty < SURE { "probably " } else { "" };
        let head = format!("{doubt}not out of GPU memory:");
        page.paragraph(0, 2, &[(Ink::Care, &head), (Ink::Strong, &format!(" {}", clean(&other.what)))]);
        page.gap();
        page.paragraph(2, 4, &[(Ink::Strong, "look:"), (Ink::Plain, &format!(" {}", clean(&other.look)))]);
    } else {
        let doubt = match failure.certainty {
            certainty if certainty < LIKELY => "possibly ",
            certainty if certainty < SURE => "probably ",
            _ => "",
        };
        let head = if failure.survived { "recovered:".to_owned() } else { format!("{doubt}out of GPU memory:") };
        let cause = failure.causes.first().map_or("this log does not show the cause", |cause| cause.cause.title());
        let ink = if failure.survived { Ink::Care } else { Ink::Bad };
        page.paragraph(0, 2, &[(ink, &head), (Ink::Strong, &format!(" {cause}"))]);
    }
    if failure.by_words {
        let words = "by its words: no known message matches this line, so the figures are less certain";
        page.paragraph(2, 4, &[(Ink::Faint, words)]);
    }
    if failure.survived {
        page.paragraph(2, 4, &[(Ink::Faint, "the program caught this error and continued")]);
    }
    let mut who: Vec<String> = Vec::new();
    let name = failure.front_end.iter().chain(&failure.framework).map(|name| clean(name).to_string());
    let names: Vec<String> = name.collect();
    if !names.is_empty() {
        who.push(names.join(", "));
    }
    if let Some(era) = &failure.era {
        who.push(format!("version {}", clean(era)));
    }
    if let Some(rank) = failure.rank {
        who.push(format!("rank {rank}"));
    }
    if let Some(device) = failure.facts.device {
        who.push(format!("GPU {device}"));
    }
    let times = if failure.times > 1 { format!(", {} times", failure.times) } else { String::new() };
    who.push(format!("line {} of the log{times}", failure.line));
    page.paragraph(2, 4, &[(Ink::Faint, &who.join("; "))]);
}

/// The card as the message describes it.
fn card(page: &mut Page, failure: &Failure) {
    let (facts, derived) = (&failure.facts, &failure.derived);
    page.gap();
    if let (Some(capacity), Some(allocated)) = (facts.capacity_bytes, facts.allocated_bytes) {
        let cached = derived.slack_bytes.unwrap_or(0);
        let outside = derived.non_framework_bytes.unwrap_or(0);
        let other = derived.other_tenants_bytes.unwrap_or(0);
        let taken = outside.saturating_add(other);
        let parts = [(Part::Allocated, allocated), (Part::Cached, cached), (Part::Context, taken)];
        let used = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.1));
        let cells = page.width().saturating_sub(4).clamp(8, WIDEST_BAR);
        if used > capacity {
            draw(page, "", &parts, used, Some(capacity), cells);
        } else {
            let rest = capacity - used;
            let all = [parts[0], parts[1], parts[2], (Part::Free, rest)];
            draw(page, "", &all, capacity, None, cells);
        }
        let unicode = page.unicode();
        let mut items = Vec::new();
        let mut item = |part: Part, name: &str, bytes: u64| {
            if bytes > 0 {
                let text = format!(" {name} {}", size(bytes));
                items.push(vec![(part.ink(), part.glyph(unicode).to_owned()), (Ink::Plain, text)]);
            }
        };
        item(Part::Allocated, "allocated", allocated);
        item(Part::Cached, "cached", cached);
        item(
            Part::Context,
            if other == 0 { "outside the framework" } else { "non-framework + other processes" },
            taken,
        );
        item(Part::Free, "free", facts.free_bytes.unwrap_or(capacity.saturating_sub(used)));
        page.items(2, &items);
        page.paragraph(2, 4, &[(Ink::Faint, &format!("of the card's {}", size(capacity)))]);
    }
    if let Some(requested) = facts.requested_bytes {
        let mut text = format!(" {}", size(requested));
        if let Some(range) =
            derived.request.filter(|range| range.at_most_bytes != requested || range.at_least_bytes == 1)
        {
            text += &if range.at_least_bytes <= 1 {
                format!(" (a segment for some request of at most {})", size(range.at_most_bytes))
            } else {
                format!(
                    " (a segment for a request between {} and {})",
                    size(range.at_least_bytes),
                    size(range.at_most_bytes)
                )
            };
        }
        if let Some(free) = facts.free_bytes {
            text += &format!(" with {} free", size(free));
        }
        page.paragraph(2, 4, &[(Ink::Strong, "requested"), (Ink::Plain, &text)]);
    }
    if let Some(limit) = facts.limit_bytes {
        page.paragraph(2, 4, &[(Ink::Strong, "allowed"), (Ink::Plain, &format!(" {} to this process", size(limit)))]);
    }
    for other in facts.other_processes.iter().take(3) {
        let bytes = other.bytes.map_or("an unknown amount".into(), size);
        page.paragraph(2, 4, &[(Ink::Strong, "process"), (Ink::Plain, &format!(" {} holds {bytes}", other.pid))]);
    }
}

fn place(page: &mut Page, failure: &Failure) {
    let Some(site) = &failure.site else { return };
    page.gap();
    let place = format!(" {}:{}", clean(&site.file), site.line);
    let function = site.function.as_ref().map(|name| format!(" in {}", clean(name))).unwrap_or_default();
    let doing = failure.operation.map(|operation| format!(", during {}", operation.title())).unwrap_or_default();
    page.paragraph(2, 4, &[(Ink::Plain, "at"), (Ink::Strong, &place), (Ink::Plain, &format!("{function}{doing}"))]);
    if let Some(code) = &site.code {
        let room = page.width().saturating_sub(6);
        page.line(6, &[(Ink::Plain, &shortened(&clean(code.trim()), room, page.unicode()))]);
    }
}

fn why(page: &mut Page, failure: &Failure) {
    let shown: Vec<_> = failure
        .causes
        .iter()
        .enumerate()
        .filter(|(place, cause)| *place == 0 || cause.confidence >= LEAST_CONFIDENCE)
        .take(MOST_CAUSES)
        .collect();
    if shown.is_empty() {
        return;
    }
    page.gap();
    page.paragraph(0, 2, &[(Ink::Strong, "why")]);
    let mut said: Option<&str> = None;
    for (_, cause) in shown {
        let bytes =
            cause.bytes.filter(|bytes| *bytes > 0).map(|bytes| format!(" ({})", size(bytes))).unwrap_or_default();
        let head = format!("{}{bytes},", cause.cause.title());
        // One sentence of a log can be the proof of two causes.
        let because =
            if said == Some(cause.because.as_str()) { "same evidence as above".into() } else { clean(&cause.because) };
        said = Some(&cause.because);
        let sure = format!(" {:.0} % sure: {because}", cause.confidence * 100.0);
        page.paragraph(2, 4, &[(Ink::Strong, &head), (Ink::Plain, &sure)]);
    }
}

fn what_to_do(page: &mut Page, failure: &Failure) {
    if !failure.remedies.is_empty() {
        page.gap();
        page.paragraph(0, 2, &[(Ink::Strong, "what to do"), (Ink::Faint, ", cheapest first; none of it was tried")]);
    }
    for (place, remedy) in failure.remedies.iter().take(MOST_REMEDIES).enumerate() {
        // A formula's figure below the request is a lower bound that says nothing.
        let enough = |bytes: &u64| *bytes >= failure.facts.requested_bytes.unwrap_or(0);
        let frees =
            remedy.frees_bytes.filter(enough).map(|bytes| format!(", frees about {}", size(bytes))).unwrap_or_default();
        let head = format!("{}. {}", place + 1, clean(&remedy.title));
        page.paragraph(2, 5, &[(Ink::Strong, &head), (Ink::Plain, &frees)]);
        for line in remedy.apply.lines().filter(|line| !line.trim().is_empty()) {
            page.paragraph(7, 9, &[(Ink::Good, &clean(line))]);
        }
        if !remedy.cost.is_empty() {
            page.paragraph(5, 5, &[(Ink::Faint, &cost(&remedy.cost))]);
        }
    }
    if !failure.avoid.is_empty() {
        page.gap();
        page.paragraph(0, 2, &[(Ink::Strong, "what not to try")]);
        for advice in failure.avoid.iter().take(MOST_AVOIDED) {
            let because = format!(" {}", clean(&advice.because));
            page.paragraph(2, 4, &[(Ink::Care, &format!("{}:", clean(&advice.title))), (Ink::Plain, &because)]);
        }
    }
    let hidden =
        failure.remedies.len().saturating_sub(MOST_REMEDIES) + failure.avoid.len().saturating_sub(MOST_AVOIDED);
    if hidden > 0 {
        page.paragraph(2, 4, &[(Ink::Faint, &format!("and {hidden} more; --format json has them"))]);
    }
}

/// What a remedy costs; some make the program faster, and some cost nothing.
fn cost(text: &str) -> String {
    let text = clean(text);
    match text.strip_prefix("no cost") {
        Some(rest) => format!("cost: none{rest}"),
        None if text.split(',').next().is_some_and(|first| first.ends_with("faster")) => format!("speed: {text}"),
        None => format!("cost: {text}"),
    }
}

fn settings(page: &mut Page, run: Option<&RunSettings>) {
    let Some(run) = run.filter(|run| !run.seen.is_empty()) else { return };
    page.gap();
    let seen: Vec<String> = run
        .seen
        .iter()
        .map(|(name, setting)| format!("{} {}", name.replace('_', " "), clean(&setting.value)))
        .collect();
    page.paragraph(0, 2, &[(Ink::Faint, &format!("the log says of the run: {}", seen.join("; ")))]);
}

fn also(page: &mut Page, others: &[Failure]) {
    if others.is_empty() {
        return;
    }
    page.gap();
    page.paragraph(0, 2, &[(Ink::Strong, "also in the log")]);
    for failure in others.iter().take(MOST_OTHERS) {
        let rank = failure.rank.map(|rank| format!("rank {rank}: ")).unwrap_or_default();
        let room = page.width().saturating_sub(4);
        let text = format!("line {}: {rank}{}", failure.line, clean(&failure.message));
        page.line(2, &[(Ink::Plain, &shortened(&text, room, page.unicode()))]);
    }
    if others.len() > MOST_OTHERS {
        page.paragraph(
            2,
            4,
            &[(Ink::Faint, &format!("and {} more; --format json has them", others.len() - MOST_OTHERS))],
        );
    }
}
