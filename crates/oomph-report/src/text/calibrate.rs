//! Shows a real card next to its virtual twin, as a table.

use oomph_gpu::size::format as size;

use super::page::{Ink, Page, Style};
use crate::calibrate::{CalibrateReport, CardCorrection, ProgramReading};
use crate::clean;

/// The width of a column of figures.
const FIGURE: usize = 22;

/// Writes what was read on the card, and what the virtual one has otherwise.
#[must_use]
pub fn render_calibrate(report: &CalibrateReport, style: Style) -> String {
    let mut page = Page::new(style);
    let (card, twin) = (&report.card, &report.twin);
    let driver = card.driver.as_deref().map(|driver| format!(", driver {}", clean(driver))).unwrap_or_default();
    let rehearsal = if report.rehearsal { " (rehearsed on a virtual card)" } else { "" };
    let versions = format!("{driver}, PyTorch {}{rehearsal}", clean(&card.torch));
    page.paragraph(0, 2, &[(Ink::Strong, &clean(&card.gpu_name)), (Ink::Plain, &versions)]);
    page.gap();
    let mut fact = |name: &str, on_card: String, is_same: bool, on_twin: String| {
        let (ink, note) = match is_same {
            true => (Ink::Faint, "the virtual card has the same".to_owned()),
            false => (Ink::Bad, format!("the virtual card has {on_twin}")),
        };
        page.line(2, &[(Ink::Plain, &format!("{name:<22}{on_card:>14}  ")), (ink, &note)]);
    };
    fact(
        "total in CUDA",
        size(card.capacity_bytes),
        card.capacity_bytes == twin.capacity_bytes,
        size(twin.capacity_bytes),
    );
    let page_size = |bytes: Option<u64>| bytes.map_or_else(|| "not known".to_owned(), size);
    fact("page", page_size(card.page_bytes), card.page_bytes == twin.page_bytes, page_size(twin.page_bytes));
    if card.gpus > 1 {
        let pairs = card.gpus * (card.gpus - 1);
        fact(
            "cards that see others",
            format!("{} of {pairs}", card.peers),
            card.peers == twin.peers,
            format!("{}", twin.peers),
        );
    }
    page.gap();
    let head = ["allocated", "reserved", "outside PyTorch"].map(|name| format!("{name:>FIGURE$}")).concat();
    page.line(2, &[(Ink::Strong, &format!("{:<12}{head}", "peak of"))]);
    for (on_card, on_twin) in card.readings.iter().zip(&twin.readings) {
        program(&mut page, on_card, on_twin);
    }
    page.gap();
    let key = "outside PyTorch: context, modules and handles, at the program's end. In brackets: how much more or less \
               the virtual card has.";
    page.paragraph(0, 0, &[(Ink::Faint, key)]);
    page.gap();
    verdict(&mut page, report);
    page.finish()
}

fn program(page: &mut Page, card: &ProgramReading, twin: &ProgramReading) {
    if let Some(failure) = card.failure.as_ref().or(twin.failure.as_ref()) {
        let place = if card.failure.is_some() { "the card" } else { "the virtual card" };
        let text = format!("{:<12}failed on {place}: {}", card.program, clean(failure));
        page.paragraph(2, 14, &[(Ink::Bad, &text)]);
        return;
    }
    let cells = [
        figure(Some(card.allocated_peak_bytes), Some(twin.allocated_peak_bytes)),
        figure(Some(card.reserved_peak_bytes), Some(twin.reserved_peak_bytes)),
        figure(card.outside_bytes, twin.outside_bytes),
    ];
    let mut line = vec![(Ink::Plain, format!("{:<12}", card.program))];
    for (text, same) in cells {
        line.push((if same { Ink::Plain } else { Ink::Bad }, format!("{text:>FIGURE$}")));
    }
    let line: Vec<(Ink, &str)> = line.iter().map(|(ink, text)| (*ink, text.as_str())).collect();
    page.line(2, &line);
}

/// The card's figure with what the virtual one has more or less, and whether they are the same.
fn figure(card: Option<u64>, twin: Option<u64>) -> (String, bool) {
    match (card, twin) {
        (Some(card), Some(twin)) if card == twin => (size(card), true),
        (Some(card), Some(twin)) => {
            let sign = if twin > card { '+' } else { '-' };
            (format!("{} ({sign}{})", size(card), short(card.abs_diff(twin))), false)
        }
        (Some(card), None) => (size(card), true),
        (None, _) => ("not known".into(), true),
    }
}

/// A size with as many digits as leave room for it next to another in a column.
fn short(bytes: u64) -> String {
    let text = size(bytes);
    let Some((number, unit)) = text.split_once(' ') else { return text };
    match number.parse::<f64>() {
        Ok(number) if number >= 10.0 => format!("{number:.0} {unit}"),
        Ok(number) => format!("{number:.1} {unit}"),
        Err(_) => text,
    }
}

fn verdict(page: &mut Page, report: &CalibrateReport) {
    match &report.correction {
        None => page.paragraph(0, 2, &[(Ink::Good, "nothing to correct: the virtual card has this card's figures")]),
        Some(correction) => {
            page.paragraph(0, 2, &[(Ink::Strong, &format!("corrected: {}", corrected(correction)))]);
        }
    }
    let (card, twin) = (&report.card.readings, &report.twin.readings);
    let others = card.iter().zip(twin).filter(|(card, twin)| {
        (card.allocated_peak_bytes, card.reserved_peak_bytes) != (twin.allocated_peak_bytes, twin.reserved_peak_bytes)
    });
    let others = others.count();
    if others > 0 {
        let text = format!(
            "{others} of {} programs have another peak in PyTorch than on the virtual card. No correction mends that: \
             please report it, with the file of --share",
            card.len()
        );
        page.paragraph(0, 2, &[(Ink::Bad, &text)]);
    }
}

/// What a correction changes, in words.
pub(super) fn corrected(correction: &CardCorrection) -> String {
    let mut changes = Vec::new();
    let mut change = |what: &str, now: u64, before: u64| {
        if now != before {
            let sign = if now > before { '+' } else { '-' };
            changes.push(format!("{what} {} ({sign}{})", size(now), size(now.abs_diff(before))));
        }
    };
    change("total", correction.capacity_bytes, correction.catalogue_capacity_bytes);
    change("outside PyTorch", correction.context_bytes, correction.catalogue_context_bytes);
    let driver = correction.driver.as_deref().map(|driver| format!(", driver {}", clean(driver))).unwrap_or_default();
    format!("{}, by oomph calibrate on {}{driver}", changes.join(", "), clean(&correction.taken_on))
}
