//! Shows what makes a program fit, on one screen.

use std::collections::BTreeSet;

use oomph_gpu::size::format as size;
use oomph_protocol::Verdict;
use oomph_remedy::search::Prefer;
use unicode_width::UnicodeWidthStr;

use super::page::{Ink, Page, Style, shortened};
use crate::clean;
use crate::fix::{Attempt, Compared, Comparison, FixReport, FixRow, FixVerdict, ResultChange};
use crate::owner_names::owner_name;

/// Owners named in the line about the peak.
const MOST_OWNERS: usize = 4;
/// Remedies that could not be applied, named with their reasons.
const MOST_DROPPED: usize = 4;
/// Fixes whose words are written out; the table has them all.
const MOST_WORDS: usize = 4;

/// Writes what makes a program fit.
pub fn render_fix(report: &FixReport, style: Style) -> String {
    let mut page = Page::new(style);
    verdict(&mut page, report);
    owners(&mut page, report);
    if !report.fixes.is_empty() {
        page.gap();
        table(&mut page, report);
        for (place, fix) in report.fixes.iter().enumerate().take(MOST_WORDS) {
            page.gap();
            words(&mut page, place + 1, fix);
        }
    }
    floor(&mut page, report);
    attempts(&mut page, report);
    dropped(&mut page, report);
    page.gap();
    for warning in &report.warnings {
        page.paragraph(0, 2, &[(Ink::Care, "warning:"), (Ink::Plain, &format!(" {}", clean(warning)))]);
    }
    let seconds = format!("{:.0} s", report.elapsed_seconds);
    let end = match (report.out_of_time, report.untried.as_slice()) {
        (false, _) => String::new(),
        (true, []) => "; the search ended before everything was tried".to_owned(),
        (true, untried) => format!("; the search ended before it tried {}", clean(&untried.join(", "))),
    };
    if report.tried > 0 {
        let times = if report.tried == 1 { "1 change".to_owned() } else { format!("{} changes", report.tried) };
        page.paragraph(0, 2, &[(Ink::Faint, &format!("{times} tried on the virtual GPU in {seconds}{end}"))]);
    }
    for next in &report.next {
        page.paragraph(0, 2, &[(Ink::Faint, &format!("{}:", next.why))]);
        page.line(2, &[(Ink::Plain, &clean(&next.command))]);
    }
    page.finish()
}

fn verdict(page: &mut Page, report: &FixReport) {
    let base = &report.baseline;
    let card = super::card(&base.gpu, base.limit_bytes);
    let has = base.limit_bytes.map(|bytes| format!("; the card has {}", size(bytes))).unwrap_or_default();
    let needs = base.peak_bytes.map(|bytes| {
        let least = match base.died_with_bytes {
            Some(less) => format!("between {} and ", size(less)),
            None if base.peak_is_minimum => "at least ".to_owned(),
            None => String::new(),
        };
        format!("it needs {least}{}{has}", size(bytes))
    });
    match report.verdict {
        FixVerdict::FitsAlready if base.verdict == Verdict::NoGpuUse => {
            page.paragraph(0, 2, &[(Ink::Strong, "it did not use a GPU, so there is nothing to make fit")]);
        }
        FixVerdict::FitsAlready => {
            page.paragraph(
                0,
                2,
                &[(Ink::Good, "it fits already"), (Ink::Strong, &format!(" on {card}: {}", needs.unwrap_or_default()))],
            );
        }
        FixVerdict::Fixed => {
            let count = report.fixes.len();
            let ways =
                if count == 1 { "one way to make it fit".to_owned() } else { format!("{count} ways to make it fit") };
            let first = match report.order {
                _ if count == 1 => "",
                Prefer::Quality => ", cheapest first",
                Prefer::Speed => ", fastest first",
                Prefer::Memory => ", least memory first",
            };
            page.paragraph(0, 2, &[(Ink::Good, &ways), (Ink::Strong, &format!(" on {card}{first}"))]);
            if let Some(needs) = needs {
                page.paragraph(2, 4, &[(Ink::Plain, &format!("unmodified, {needs}"))]);
            }
        }
        FixVerdict::NothingFits => {
            let word = match (report.tried, report.out_of_time) {
                (0, true) => "the search ended before anything was tried",
                (_, true) => "the search ended before a fix was found",
                (0, false) => "there is nothing to try",
                _ => "nothing that was tried makes it fit",
            };
            page.paragraph(
                0,
                2,
                &[
                    (Ink::Bad, word),
                    (
                        Ink::Strong,
                        &format!(" on {card}{}", needs.map(|needs| format!(": {needs}")).unwrap_or_default()),
                    ),
                ],
            );
        }
        FixVerdict::Failed => {
            page.paragraph(0, 2, &[(Ink::Bad, "the program failed"), (Ink::Strong, " for a reason other than memory")]);
        }
    }
    if let Some(oom) = &base.oom
        && let Some(site) = &oom.site
    {
        let text = format!("it dies at {}:{} in {}", clean(&site.file), site.line, clean(&site.function));
        page.paragraph(2, 4, &[(Ink::Faint, &text)]);
    }
}

fn owners(page: &mut Page, report: &FixReport) {
    let rows: Vec<String> = report
        .baseline
        .owners
        .iter()
        .take(MOST_OWNERS)
        .map(|row| format!("{} {}", owner_name(row.owner), size(row.bytes)))
        .collect();
    if !rows.is_empty() && report.verdict != FixVerdict::FitsAlready {
        page.paragraph(2, 4, &[(Ink::Faint, &format!("at its peak: {}", rows.join(", ")))]);
    }
}

/// A few words for what happens to the result.
fn result(change: ResultChange) -> &'static str {
    match change {
        ResultChange::Same => "equal",
        ResultChange::Equivalent => "equal (rounding)",
        ResultChange::Approximate => "nearly same",
        ResultChange::Changed => "other result",
        ResultChange::SameInDistribution => "same in distribution",
        ResultChange::NotCompared => "not compared",
    }
}

fn name(fix: &FixRow) -> String {
    let name = fix.titles.join(" + ");
    match (fix.tight, fix.by_hand) {
        (true, _) => format!("{name} (tight)"),
        (false, true) => format!("{name} (by hand)"),
        (false, false) => name,
    }
}

/// One row for each fix. Where the page is narrow the result moves under the name.
fn table(page: &mut Page, report: &FixReport) {
    let before = report.baseline.peak_bytes.map(size);
    let rows: Vec<[String; 4]> = report
        .fixes
        .iter()
        .map(|fix| {
            let after = size(fix.peak_bytes);
            [name(fix), after, fix.room_bytes.map(size).unwrap_or_default(), result(fix.result).to_owned()]
        })
        .collect();
    let head = ["what to change", "peak", "room", "result"].map(str::to_owned);
    let wide =
        |column: usize| rows.iter().map(|row| row[column].width()).chain([head[column].width()]).max().unwrap_or(0);
    let (peak, room, same) = (wide(1), wide(2), wide(3));
    // The number and the gaps between the columns.
    let left = page.width().saturating_sub(2 + 3 + 2 + peak + 2 + room + 2 + same).max(16);
    let first = wide(0).min(left);
    let unicode = page.unicode();
    let line = |page: &mut Page, number: &str, row: &[String; 4], ink: Ink| {
        let what = shortened(&clean(&row[0]), first, unicode);
        let pad = " ".repeat(first.saturating_sub(what.width()));
        let figures = format!("{pad}  {:>peak$}  {:>room$}  {}", row[1], row[2], row[3]);
        page.line(2, &[(Ink::Strong, &format!("{number:<3}")), (ink, &what), (ink, figures.trim_end())]);
    };
    line(page, "", &head, Ink::Faint);
    if let Some(before) = before {
        line(page, "", &["unmodified".into(), before, String::new(), String::new()], Ink::Faint);
    }
    for (place, row) in rows.iter().enumerate() {
        line(page, &(place + 1).to_string(), row, Ink::Plain);
    }
}

/// The words to apply a fix.
fn words(page: &mut Page, number: usize, fix: &FixRow) {
    let mut cost = vec![fix.time()];
    cost.extend(fix.quality_cost.clone());
    page.paragraph(
        2,
        5,
        &[
            (Ink::Strong, &format!("{number}  {}", clean(&name(fix)))),
            (Ink::Faint, &format!(" ({})", clean(&cost.join("; ")))),
        ],
    );
    if let Some(patch) = fix.patch.as_ref().filter(|_| !fix.by_hand) {
        diff(page, patch);
        if let Some(command) = &fix.command {
            page.paragraph(5, 9, &[(Ink::Plain, &format!("and run: {}", clean(command)))]);
        }
    } else if let Some(command) = &fix.command {
        page.paragraph(5, 9, &[(Ink::Plain, &clean(command))]);
    } else {
        for apply in &fix.apply {
            if apply.kind == "patch" {
                diff(page, &apply.text);
                page.line(5, &[(Ink::Plain, "and by hand:")]);
                continue;
            }
            for line in apply.text.lines() {
                // What somebody has to do is read, and what is to be typed is copied.
                if apply.kind == "action" {
                    page.paragraph(5, 7, &[(Ink::Plain, &clean(line))]);
                } else {
                    page.line(5, &[(Ink::Plain, &clean(line))]);
                }
            }
        }
    }
    if let Some(comparison) = &fix.comparison {
        page.paragraph(5, 7, &[(Ink::Faint, &clean(&compared(comparison)))]);
    }
    for note in &fix.notes {
        page.paragraph(5, 7, &[(Ink::Faint, &clean(note))]);
    }
}

/// What was found by running both with real numbers, in a sentence.
fn compared(found: &Comparison) -> String {
    let steps = match found.steps {
        0 => "its results".to_owned(),
        1 => "1 optimizer step".to_owned(),
        steps => format!("{steps} optimizer steps"),
    };
    let reduced = if found.reduced.is_empty() { String::new() } else { format!(" ({})", found.reduced.join("; ")) };
    let with = format!("compared in numbers over {steps}{reduced}");
    let but = found.first.as_ref().map(|first| format!(", but {first}")).unwrap_or_default();
    match found.outcome {
        Compared::Equal => {
            let far = found.difference.unwrap_or_default();
            let far = if far == 0.0 { "bit for bit".to_owned() } else { format!("differences of {far:.0e} at most") };
            format!("{with}: equal, {far}{but}")
        }
        Compared::SameInDistribution => {
            let first = found.first.as_deref().unwrap_or("random numbers differ");
            format!("{with}: {first}; with the same ones it is equal")
        }
        Compared::Other => format!("{with}: {}", found.first.as_deref().unwrap_or("it differs")),
        Compared::NotCompared => {
            format!("not compared in numbers: {}", found.why.as_deref().unwrap_or("it was not asked for"))
        }
    }
}

/// A diff, which is not wrapped: it is to be copied.
fn diff(page: &mut Page, patch: &str) {
    for line in patch.lines() {
        let ink = match line.chars().next() {
            Some('+') => Ink::Good,
            Some('-') => Ink::Bad,
            _ => Ink::Faint,
        };
        page.line(0, &[(ink, &clean(line))]);
    }
}

fn floor(page: &mut Page, report: &FixReport) {
    if let Some(foretold) = &report.foretold {
        page.gap();
        let text = format!(
            " {}: about {} by the figures, not tried",
            foretold.remedies.join(" + "),
            size(foretold.peak_bytes)
        );
        page.paragraph(2, 4, &[(Ink::Strong, "next would be"), (Ink::Plain, &text)]);
    }
    let Some(floor) = &report.floor else { return };
    page.gap();
    let with = floor.remedies.join(", ");
    let least = match (floor.peak_bytes, floor.remedies.is_empty()) {
        (Some(bytes), false) => Some(format!(" {} with {with}", size(bytes))),
        (None, false) => Some(format!(" with {with} it still does not fit")),
        // What the unmodified program needs is in the first line.
        (_, true) => None,
    };
    if let Some(text) = least {
        page.paragraph(2, 4, &[(Ink::Strong, "least:"), (Ink::Plain, &text)]);
    }
    if let Some(card) = &floor.smallest_gpu {
        let with = if floor.remedies.is_empty() { ", unmodified" } else { ", with these changes" };
        page.paragraph(2, 4, &[(Ink::Strong, "smallest card:"), (Ink::Plain, &format!(" {card}{with}"))]);
    }
    if let (Some(cards), Some(bytes)) = (floor.cards_when_split, floor.bytes_per_card) {
        let text = format!(
            " {cards} of this card, with weights, gradients and optimizer state split over them (FSDP or ZeRO 3): \
             about {} on each, by arithmetic",
            size(bytes)
        );
        page.paragraph(2, 4, &[(Ink::Strong, "several cards:"), (Ink::Plain, &text)]);
    }
}

/// What was tried alone and is not enough: nobody has to try it again.
fn attempts(page: &mut Page, report: &FixReport) {
    if report.verdict == FixVerdict::FitsAlready {
        return;
    }
    let short: Vec<String> = report.attempts.iter().filter_map(insufficient).collect();
    if !short.is_empty() {
        page.gap();
        page.paragraph(2, 4, &[(Ink::Care, "not enough:"), (Ink::Plain, &format!(" {}", short.join(", ")))]);
    }
}

/// The name of a change that ran and does not suffice, with what it does instead; `None` for any other.
fn insufficient(attempt: &Attempt) -> Option<String> {
    let name = clean(&attempt.remedies.join(" + ")).into_owned();
    match attempt.saves_bytes {
        Some(saves) if saves < 0 => Some(format!("{name} ({} more)", size(saves.unsigned_abs()))),
        _ if attempt.remedies.len() != 1 || attempt.verdict != Verdict::Oom => None,
        _ if attempt.why.is_some() => Some(format!("{name} (no effect)")),
        _ => Some(name),
    }
}

/// What cannot be applied to this program, without what ran and was too little.
fn dropped(page: &mut Page, report: &FixReport) {
    if report.verdict == FixVerdict::FitsAlready {
        return;
    }
    let plain = |name: &str| name.split_once('/').map_or(name, |(id, _)| id).to_owned();
    let ran: BTreeSet<String> = report
        .attempts
        .iter()
        .filter(|attempt| insufficient(attempt).is_some())
        .flat_map(|attempt| attempt.remedies.iter().map(|name| plain(name)))
        .collect();
    let mut seen = BTreeSet::new();
    let rows: Vec<_> =
        report.dropped.iter().filter(|row| !ran.contains(&plain(&row.remedy)) && seen.insert(&row.remedy)).collect();
    if rows.is_empty() {
        return;
    }
    page.gap();
    page.line(2, &[(Ink::Faint, "not possible here:")]);
    for row in rows.iter().take(MOST_DROPPED) {
        page.paragraph(4, 6, &[(Ink::Faint, &format!("{}: {}", clean(&row.remedy), clean(&row.why)))]);
    }
    let more = rows.len().saturating_sub(MOST_DROPPED);
    if more > 0 {
        page.paragraph(4, 6, &[(Ink::Faint, &format!("and {more} more (--format json has them)"))]);
    }
}
