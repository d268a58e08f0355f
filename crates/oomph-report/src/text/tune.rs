//! Shows the largest values that fit, on one screen.

use oomph_gpu::size::format as size;
use oomph_protocol::Verdict;
use unicode_width::UnicodeWidthStr;

use super::dry_run::phase;
use super::page::{Ink, Page, Style};
use crate::clean;
use crate::tune::{TriedValue, TuneReport, TuneVerdict, Values};

/// Runs that are shown; of more, those around the boundary.
const MOST_RUNS: usize = 16;
/// Columns of the widest bar.
const WIDEST_BAR: usize = 40;
/// Behind the bar of the value to use.
const MARK: &str = " <- use";

/// Writes the largest values that fit.
pub fn render_tune(report: &TuneReport, style: Style) -> String {
    let mut page = Page::new(style);
    verdict(&mut page, report);
    if report.frontier.is_empty() {
        page.gap();
        runs(&mut page, report);
    } else {
        page.gap();
        frontier(&mut page, report);
    }
    page.gap();
    for warning in &report.warnings {
        page.paragraph(0, 2, &[(Ink::Care, "warning:"), (Ink::Plain, &format!(" {}", clean(warning)))]);
    }
    let count = report.tried.len();
    let times = if count == 1 { "1 run".to_owned() } else { format!("{count} runs") };
    let shared = if report.forked { ", which shared their imports" } else { "" };
    let end = format!("{times} on the virtual GPU in {:.0} s{shared}", report.elapsed_seconds);
    page.paragraph(0, 2, &[(Ink::Faint, &end)]);
    for next in &report.next {
        page.gap();
        page.paragraph(0, 2, &[(Ink::Faint, &format!("{}:", clean(&next.why)))]);
        page.line(2, &[(Ink::Plain, &clean(&next.command))]);
    }
    page.finish()
}

fn words(values: &Values) -> String {
    values.iter().map(|(name, value)| format!("{} {value}", clean(name))).collect::<Vec<_>>().join(", ")
}

fn verdict(page: &mut Page, report: &TuneReport) {
    let card = super::card(&report.gpu, Some(report.capacity_bytes));
    let peak = |bytes: Option<u64>| bytes.map(|bytes| format!(": {} of {}", size(bytes), size(report.capacity_bytes)));
    match (report.verdict, &report.best, &report.fails_at) {
        (TuneVerdict::Found | TuneVerdict::AllFit, Some(best), fails) => {
            page.paragraph(
                0,
                2,
                &[
                    (Ink::Good, &format!("{} fits", words(best))),
                    (Ink::Strong, &format!(" on {card}{}", peak(report.peak_bytes).unwrap_or_default())),
                ],
            );
            match fails {
                Some(fails) => page.paragraph(2, 4, &[(Ink::Plain, &format!("{} does not", words(fails)))]),
                None => page.paragraph(2, 4, &[(Ink::Plain, "that is the end of the range; larger ones may fit too")]),
            }
        }
        (TuneVerdict::Failed, ..) => {
            page.paragraph(0, 2, &[(Ink::Bad, "the program failed"), (Ink::Strong, " for a reason other than memory")]);
        }
        _ => {
            let smallest = report.fails_at.as_ref().map(words).unwrap_or_default();
            page.paragraph(
                0,
                2,
                &[
                    (Ink::Bad, "nothing fits"),
                    (Ink::Strong, &format!(" on {card}: not even {smallest}, of {}", size(report.capacity_bytes))),
                ],
            );
        }
    }
    if let (Some(best), Some(recommended)) = (&report.best, &report.recommended) {
        let same = if best == recommended { "that leaves" } else { "it leaves" };
        let margin = report.margin_bytes.map(size).unwrap_or_default();
        page.paragraph(
            2,
            4,
            &[
                (Ink::Strong, &format!("use {}", words(recommended))),
                (Ink::Plain, &format!(": {same} the {margin} that the peak may be higher on a real card")),
            ],
        );
    } else if report.best.is_some() {
        page.paragraph(
            2,
            4,
            &[(Ink::Care, "no value leaves what the peak may be higher on a real card, and the margin")],
        );
    }
}

fn runs(page: &mut Page, report: &TuneReport) {
    let name = clean(&report.varied).into_owned();
    let value = |run: &TriedValue| run.values.get(&report.varied).map(ToString::to_string).unwrap_or_default();
    let shown = around(&report.tried);
    let column = shown.iter().map(|run| value(run).width()).chain([name.width()]).max().unwrap_or(0);
    let peak = |run: &TriedValue| run.peak_bytes.map(size).unwrap_or_default();
    let peaks = shown.iter().map(|run| peak(run).width()).max().unwrap_or(0).max(4);
    let cells = page.width().saturating_sub(2 + column + 2 + peaks + 2 + MARK.len()).min(WIDEST_BAR);
    page.line(2, &[(Ink::Faint, &format!("{name:>column$}  {:>peaks$}  of {}", "peak", size(report.capacity_bytes)))]);
    for run in shown {
        let mark = if Some(&run.values) == report.recommended.as_ref() { MARK } else { "" };
        let start = format!("{:>column$}  {:>peaks$}  ", value(run), peak(run));
        match run.peak_bytes {
            Some(bytes) => {
                let part = bytes as f64 / report.capacity_bytes.max(1) as f64;
                let filled = ((part * cells as f64).round() as usize).clamp(1, cells.max(1));
                let glyph = if page.unicode() { "█" } else { "#" };
                page.line(2, &[(Ink::Plain, &start), (Ink::Allocated, &glyph.repeat(filled)), (Ink::Strong, mark)]);
            }
            None => page.line(2, &[(Ink::Plain, &start), (Ink::Bad, &died(run))]),
        }
    }
}

/// The runs that are shown: all, or those with the values around the boundary.
fn around(tried: &[TriedValue]) -> Vec<&TriedValue> {
    let first = tried.iter().position(|run| run.peak_bytes.is_none()).unwrap_or(tried.len());
    let start = (first + 3).min(tried.len()).saturating_sub(MOST_RUNS);
    tried.iter().skip(start).take(MOST_RUNS).collect()
}

fn died(run: &TriedValue) -> String {
    match run.verdict {
        Verdict::Oom => match run.phase.and_then(phase) {
            Some(phase) => format!("out of memory {phase}"),
            None => "out of memory".to_owned(),
        },
        Verdict::Recovered => "out of memory, recovered".to_owned(),
        Verdict::Unsure => "unsure".to_owned(),
        _ => "failed".to_owned(),
    }
}

fn frontier(page: &mut Page, report: &TuneReport) {
    for row in &report.frontier {
        let line = match (&row.best, &row.fails_at) {
            (Some(best), _) => {
                let used = row.recommended.as_ref().map(words).unwrap_or_else(|| "nothing".into());
                let peak = row.peak_bytes.map(size).unwrap_or_default();
                format!("{} fits ({peak}); use {used}", words(best))
            }
            (None, Some(fails)) => format!("{} does not fit", words(fails)),
            (None, None) => continue,
        };
        let chosen = row.best.is_some() && row.best == report.best;
        page.line(2, &[(if chosen { Ink::Strong } else { Ink::Plain }, &line)]);
    }
}
