//! Shows a plan on one screen.

use oomph_gpu::size::format as size;

use super::bar::share;
use super::page::{Ink, Page, Style};
use crate::clean;
use crate::plan::{Fits, PlanReport, PlannedDevice};

/// Changes that are shown; the JSON document has all.
const MOST_CHANGES: usize = 6;

/// Writes a plan: the verdict, whose bytes they are, what is the most that fits, what to change.
#[must_use]
pub fn render_plan(report: &PlanReport, style: Style) -> String {
    let mut page = Page::new(style);
    let model = clean(&report.model);
    let parameters = match report.parameters as f64 {
        many if many >= 1e9 => format!("{:.2} B", many / 1e9),
        few => format!("{:.2} M", few / 1e6),
    };
    let what = format!("{model} ({parameters} parameters), {}", report.task);
    for (place, device) in report.devices.iter().enumerate() {
        verdict(&mut page, device);
        if let Some(holds) = &device.holds {
            page.paragraph(2, 4, &[(Ink::Plain, &format!("card {place}: {holds}"))]);
        }
    }
    page.paragraph(0, 2, &[(Ink::Strong, &what), (Ink::Plain, &format!(": {}", report.settings.join(", ")))]);
    if let Some(device) = report.devices.iter().max_by_key(|device| device.expected_bytes) {
        page.gap();
        owners(&mut page, device, report.phase.name());
    }
    if report.host_bytes > 0 {
        page.paragraph(2, 4, &[(Ink::Plain, &format!("and {} of host memory", size(report.host_bytes)))]);
    }
    verified(&mut page, report);
    limits(&mut page, report);
    changes(&mut page, report);
    table(&mut page, report);
    if !report.terms.is_empty() {
        page.gap();
        page.line(0, &[(Ink::Strong, "the sum")]);
        for term in &report.terms {
            let line = format!(" {}", term.formula);
            let source = format!(" [{}]", term.source);
            let bytes = format!("{} {}:", size(term.bytes), term.owner);
            page.paragraph(2, 13, &[(Ink::Plain, &bytes), (Ink::Plain, &line), (Ink::Faint, &source)]);
        }
    }
    for warning in &report.warnings {
        page.gap();
        page.paragraph(0, 2, &[(Ink::Care, "note:"), (Ink::Plain, &format!(" {}", clean(warning)))]);
    }
    page.finish()
}

fn verdict(page: &mut Page, device: &PlannedDevice) {
    let range = format!("{} to {}", size(device.low_bytes), size(device.high_bytes));
    let (Some(gpu), Some(capacity), Some(fits)) = (&device.gpu, device.capacity_bytes, device.fits) else {
        let words = format!(" {} a card ({range})", size(device.expected_bytes));
        page.paragraph(0, 2, &[(Ink::Strong, "needs"), (Ink::Plain, &words)]);
        return;
    };
    let (ink, word) = match fits {
        Fits::Yes => (Ink::Good, "fits"),
        Fits::No => (Ink::Bad, "does not fit"),
        Fits::Maybe => (Ink::Care, "may fit"),
    };
    let percent = 100.0 * device.probability.unwrap_or(0.0);
    let sure = if fits == Fits::Maybe { format!(", {percent:.0} % likely") } else { String::new() };
    let cards = if device.count > 1 { format!("{} x {gpu}", device.count) } else { gpu.clone() };
    let each = if device.count > 1 { " each" } else { "" };
    let words =
        format!(" on {cards}{sure}: needs {}{each} ({range}) of {}", size(device.expected_bytes), size(capacity));
    page.paragraph(0, 2, &[(ink, word), (Ink::Plain, &words)]);
}

/// Bytes by owner, each with a bar of its share.
fn owners(page: &mut Page, device: &PlannedDevice, phase: &str) {
    page.line(0, &[(Ink::Strong, "memory by owner"), (Ink::Plain, &format!(", at the peak ({phase})"))]);
    let names = device.owners.iter().map(|owner| owner.owner.len()).max().unwrap_or(0);
    let cells = page.width().saturating_sub(names + 18).min(50);
    let glyph = if page.unicode() { "█" } else { "#" };
    let whole = device.capacity_bytes.unwrap_or(0).max(device.expected_bytes);
    let mut rows: Vec<_> = device.owners.iter().filter(|owner| owner.bytes > 0).collect();
    rows.sort_by_key(|owner| std::cmp::Reverse(owner.bytes));
    for owner in rows {
        let filled = share(&[owner.bytes, whole.saturating_sub(owner.bytes)], cells)[0];
        let text = format!("{:names$} {:>11}  ", owner.owner, size(owner.bytes));
        page.line(2, &[(Ink::Plain, &text), (Ink::Allocated, &glyph.repeat(filled))]);
    }
}

/// The plan next to the dry run of its program.
fn verified(page: &mut Page, report: &PlanReport) {
    let Some(verified) = &report.verify else { return };
    let (ink, outcome) = match verified.fits {
        Some(true) => (Ink::Good, ", which fits"),
        Some(false) => (Ink::Bad, ", which does not fit"),
        None => (Ink::Strong, ""),
    };
    let bounds = if verified.within { "" } else { ", beyond the plan's bounds" };
    let words = format!(
        " {} in a dry run{outcome}; {} planned ({:+.1} %{bounds})",
        size(verified.dry_run_bytes),
        size(verified.expected_bytes),
        verified.difference_percent
    );
    page.gap();
    page.paragraph(0, 2, &[(ink, "verified:"), (Ink::Plain, &words)]);
}

fn limits(page: &mut Page, report: &PlanReport) {
    let (mut known, mut none) = (Vec::new(), Vec::new());
    if let Some(limits) = report.limits {
        let mut say = |name: &'static str, value: Option<u64>| match value {
            Some(0) => none.push(name),
            Some(value) => known.push(format!("{name} {value}")),
            None => {}
        };
        say("batch", limits.max_batch);
        say("context", limits.max_context);
        say("resolution", limits.max_resolution);
    }
    if !known.is_empty() || !none.is_empty() {
        page.gap();
    }
    if !none.is_empty() {
        let words = format!("no {} alone makes it fit", none.join(" and no "));
        page.paragraph(0, 2, &[(Ink::Plain, &words)]);
    }
    if !known.is_empty() {
        let words = format!(" {}", known.join(", "));
        page.paragraph(0, 2, &[(Ink::Strong, "the most that fits, one at a time:"), (Ink::Plain, &words)]);
    }
    if !report.smallest.is_empty() {
        let cards: Vec<String> = report.smallest.iter().map(|card| card.gpu.clone()).collect();
        let words = format!(" {}", cards.join(", "));
        page.paragraph(0, 2, &[(Ink::Strong, "smallest cards that hold it:"), (Ink::Plain, &words)]);
    }
}

fn changes(page: &mut Page, report: &PlanReport) {
    if report.remedies.is_empty() {
        return;
    }
    page.gap();
    page.line(0, &[(Ink::Strong, "what to change"), (Ink::Plain, " (by arithmetic; each alone)")]);
    for remedy in report.remedies.iter().take(MOST_CHANGES) {
        let sign = if remedy.saves_bytes < 0 { '+' } else { '-' };
        let (ink, mark) = match remedy.probability {
            Some(probability) if probability >= 0.5 => (Ink::Good, "fits"),
            Some(_) => (Ink::Plain, ""),
            None => (Ink::Plain, ""),
        };
        let line = format!(
            "{sign}{:>10} to {:>10}  {mark:4}  {}",
            size(remedy.saves_bytes.unsigned_abs()),
            size(remedy.expected_bytes),
            remedy.title
        );
        page.line(2, &[(ink, line.trim_end())]);
    }
}

fn table(page: &mut Page, report: &PlanReport) {
    let Some(table) = &report.table else { return };
    page.gap();
    let names = table.rows.iter().map(|(name, _)| name.len()).max().unwrap_or(4).max(4);
    let mut head = format!("{:names$}", "card");
    for (name, _) in &table.columns {
        head = format!("{head} {name:>10}");
    }
    page.line(0, &[(Ink::Strong, &head)]);
    let mut needs = format!("{:names$}", "needs");
    for (_, bytes) in &table.columns {
        needs = format!("{needs} {:>10}", size(*bytes));
    }
    page.line(0, &[(Ink::Plain, &needs)]);
    for (name, cells) in &table.rows {
        let mut line = format!("{name:names$}");
        for fits in cells {
            let word = match fits {
                Fits::Yes => "yes",
                Fits::No => "-",
                Fits::Maybe => "maybe",
            };
            line = format!("{line} {word:>10}");
        }
        page.line(0, &[(Ink::Plain, &line)]);
    }
}
