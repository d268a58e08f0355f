//! Shows a matrix of dry runs as a table: cards across, the other axes down.

use std::collections::BTreeMap;

use oomph_protocol::Verdict;
use unicode_width::UnicodeWidthStr;

use super::page::{Ink, Page, Style, shortened};
use crate::clean;
use crate::sweep::{Largest, Pending, SweepAxis, SweepCell, SweepReport};

/// The axis whose values are the columns, where there is one.
const CARDS: &str = "gpu";
/// A name or a value is cut at this many columns.
const WIDEST: usize = 28;
/// Failures that are shown with their last line.
const MOST_FAILURES: usize = 5;

/// Values of some axes, by name.
type Values = BTreeMap<String, String>;

/// Writes the table: the peak of each cell, or with `by` the largest value of that axis that fits.
pub fn render_sweep(report: &SweepReport, by: Option<&str>, style: Style) -> String {
    let mut page = Page::new(style);
    heading(&mut page, report);
    page.gap();
    match by.and_then(|name| report.axis(name)) {
        Some(axis) => largest(&mut page, report, axis),
        None => peaks(&mut page, report),
    }
    failures(&mut page, report);
    page.gap();
    for warning in &report.warnings {
        page.paragraph(0, 2, &[(Ink::Care, "warning:"), (Ink::Plain, &format!(" {}", clean(warning)))]);
    }
    let runs = if report.ran == 1 { "1 run".to_owned() } else { format!("{} runs", report.ran) };
    let shared = if report.forked { ", which shared their imports" } else { "" };
    let known = match report.known {
        0 => String::new(),
        known => format!("; {known} known from earlier"),
    };
    let end = format!("{runs} on the virtual GPU in {:.0} s{shared}{known}", report.elapsed_seconds);
    page.paragraph(0, 2, &[(Ink::Faint, &end)]);
    page.finish()
}

fn heading(page: &mut Page, report: &SweepReport) {
    let count = |of: &dyn Fn(&SweepCell) -> bool| report.cells.iter().filter(|cell| of(cell)).count();
    let answered = count(&|cell| cell.verdict.is_some());
    let all = report.cells.len();
    let mut parts = Vec::new();
    let mut part = |number: usize, words: &str| {
        if number > 0 {
            parts.push(format!("{number} {words}"));
        }
    };
    part(count(&SweepCell::fits), "fit");
    part(count(&|cell| cell.verdict == Some(Verdict::Oom)), "run out of memory");
    part(count(&|cell| cell.verdict == Some(Verdict::Recovered)), "run out of memory and recover");
    part(count(&|cell| cell.verdict == Some(Verdict::Unsure)), "unsure");
    part(count(&|cell| cell.verdict == Some(Verdict::Failed)), "failed");
    part(count(&|cell| cell.pending == Some(Pending::Larger)), "not run: a smaller one ran out of memory");
    part(count(&|cell| cell.verdict.is_none() && cell.pending != Some(Pending::Larger)), "without an answer");
    let cells = if answered == all { format!("{all} cells") } else { format!("{answered} of {all} cells answered") };
    page.paragraph(
        0,
        2,
        &[
            (Ink::Strong, &format!("{}: {cells}", clean(&report.file))),
            (Ink::Plain, &format!("; {}", parts.join(", "))),
        ],
    );
}

/// What a cell shows, and how it is set off.
fn shown(cell: Option<&SweepCell>) -> (Ink, String) {
    let Some(cell) = cell else { return (Ink::Faint, "excluded".into()) };
    let (ink, text) = match (cell.verdict, cell.pending) {
        (Some(Verdict::Fits), _) => return (Ink::Good, cell.peak_bytes.map_or_else(|| "fits".into(), gibibytes)),
        (Some(Verdict::NoGpuUse), _) => (Ink::Plain, "no GPU use"),
        (Some(Verdict::Oom), _) => (Ink::Bad, "OOM"),
        (Some(Verdict::Recovered), _) => (Ink::Bad, "OOM, caught"),
        (Some(Verdict::Unsure), _) => (Ink::Care, "unsure"),
        (Some(Verdict::Failed), _) => (Ink::Care, "failed"),
        (None, Some(Pending::Larger)) => (Ink::Faint, "not run"),
        (None, _) => (Ink::Faint, "-"),
    };
    (ink, text.to_owned())
}

fn gibibytes(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / (1_u64 << 30) as f64)
}

fn peaks(page: &mut Page, report: &SweepReport) {
    let fixed = fixed(report);
    let values = if fixed.is_empty() { String::new() } else { format!(" at {}", said(&fixed)) };
    page.paragraph(0, 2, &[(Ink::Faint, &format!("peak in GiB where it fits{values}"))]);
    let (down, across) = arranged(report, None);
    let table = Table::of(report, &down, across, |values| shown(report.cell(values)));
    table.write(page);
}

fn largest(page: &mut Page, report: &SweepReport, axis: &SweepAxis) {
    page.paragraph(0, 2, &[(Ink::Faint, &format!("largest {} that fits", clean(&axis.name)))]);
    let rows = report.largest(axis);
    let (down, across) = arranged(report, Some(&axis.name));
    let mut ends = false;
    let mut gaps = false;
    let table = Table::of(report, &down, across, |values| {
        let mut others = values.clone();
        others.remove(&axis.name);
        // Axes of one value have no column.
        let matches = |row: &&Largest<'_>| others.iter().all(|(name, value)| row.others.get(name) == Some(value));
        let Some(row) = rows.iter().find(matches) else { return (Ink::Faint, "excluded".into()) };
        let value = |place: usize| row.cells[place].values.get(&axis.name).cloned().unwrap_or_default();
        let (from, mut text) = match row.best {
            Some(best) => (best + 1, value(best)),
            None => (0, "none".to_owned()),
        };
        match row.cells.get(from) {
            None => {
                ends = true;
                text.push('+');
            }
            Some(next) if next.verdict.is_none() && next.pending != Some(Pending::Larger) => {
                gaps = true;
                text.push('?');
            }
            Some(_) => {}
        }
        (if row.best.is_some() { Ink::Good } else { Ink::Bad }, text)
    });
    table.write(page);
    if ends {
        page.paragraph(0, 2, &[(Ink::Faint, "+ the largest that was asked for; larger ones may fit too")]);
    }
    if gaps {
        page.paragraph(0, 2, &[(Ink::Faint, "? the next larger one has no answer yet")]);
    }
}

/// Axes of one value, which need no column.
fn fixed(report: &SweepReport) -> Vec<(String, String)> {
    let one = |axis: &&SweepAxis| axis.values.len() == 1 && axis.name != CARDS && report.axes.len() > 1;
    report.axes.iter().filter(one).map(|axis| (axis.name.clone(), axis.values[0].clone())).collect()
}

fn said(values: &[(String, String)]) -> String {
    let said = values.iter().map(|(name, value)| format!("{} {}", clean(name), clean(value)));
    said.collect::<Vec<_>>().join(", ")
}

/// The axes that go down, and the one that goes across: the cards, else the last of several.
fn arranged<'a>(report: &'a SweepReport, without: Option<&str>) -> (Vec<&'a SweepAxis>, Option<&'a SweepAxis>) {
    let fixed = fixed(report);
    let is_fixed = |axis: &&SweepAxis| !fixed.iter().any(|(name, _)| *name == axis.name);
    let axes: Vec<&SweepAxis> =
        report.axes.iter().filter(|axis| Some(axis.name.as_str()) != without).filter(is_fixed).collect();
    let across =
        axes.iter().position(|axis| axis.name == CARDS).or_else(|| axes.len().checked_sub(1).filter(|at| *at > 0));
    let chosen = across.map(|at| axes[at]);
    (axes.into_iter().enumerate().filter(|(at, _)| Some(*at) != across).map(|(_, axis)| axis).collect(), chosen)
}

/// A table: a line per combination of the axes that go down, a column per value of the one that goes across.
struct Table {
    /// Names and values of the axes that go down; right-aligned.
    heads: Vec<Vec<String>>,
    columns: Vec<Column>,
}

/// A column: its two lines of heading and its cells.
struct Column(String, String, Vec<(Ink, String)>);

impl Table {
    fn of(
        report: &SweepReport,
        down: &[&SweepAxis],
        across: Option<&SweepAxis>,
        mut cell: impl FnMut(&Values) -> (Ink, String),
    ) -> Self {
        let mut rows = vec![Values::new()];
        for axis in down {
            let with = |row: &Values| -> Vec<Values> {
                axis.values
                    .iter()
                    .map(|value| row.iter().chain([(&axis.name, value)]).map(|(a, b)| (a.clone(), b.clone())).collect())
                    .collect()
            };
            rows = rows.iter().flat_map(with).collect();
        }
        let all_fixed: Values = fixed(report).into_iter().collect();
        let mut text = |row: &Values, value: Option<&String>| {
            let mut values: Values = row.iter().chain(&all_fixed).map(|(a, b)| (a.clone(), b.clone())).collect();
            if let (Some(axis), Some(value)) = (across, value) {
                values.insert(axis.name.clone(), value.clone());
            }
            cell(&values)
        };
        let columns: Vec<Column> = match across {
            Some(axis) => {
                let one = |value: &String| {
                    let cells = rows.iter().map(|row| text(row, Some(value))).collect();
                    Column(name(value), capacity(report, axis, value), cells)
                };
                axis.values.iter().map(one).collect()
            }
            None => vec![Column(String::new(), String::new(), rows.iter().map(|row| text(row, None)).collect())],
        };
        let head = |axis: &&SweepAxis| -> Vec<String> {
            [name(&axis.name)].into_iter().chain(rows.iter().map(|row| name(&row[&axis.name]))).collect()
        };
        Self { heads: down.iter().map(head).collect(), columns }
    }

    /// Writes it, in as many blocks as the width asks for.
    fn write(&self, page: &mut Page) {
        let widths: Vec<usize> = self.heads.iter().map(|head| widest(head.iter())).collect();
        let heads: usize = widths.iter().map(|width| width + 2).sum();
        let column = |Column(first, second, cells): &Column| {
            widest([first, second].into_iter().chain(cells.iter().map(|(_, text)| text)))
        };
        let mut left: &[_] = &self.columns;
        while !left.is_empty() {
            let mut room = page.width().saturating_sub(heads);
            let fits = left.iter().take_while(|one| {
                let needed = column(one) + 2;
                let fits = needed <= room;
                room = room.saturating_sub(needed);
                fits
            });
            let (block, rest) = left.split_at(fits.count().max(1));
            left = rest;
            let sizes: Vec<usize> = block.iter().map(&column).collect();
            let has_second = block.iter().any(|Column(_, second, _)| !second.is_empty());
            let blank: String = widths.iter().map(|width| " ".repeat(width + 2)).collect();
            let names: String =
                self.heads.iter().zip(&widths).map(|(head, width)| right(&head[0], *width) + "  ").collect();
            let heading = |lead: &str, texts: Vec<&String>| {
                let line: String = texts.iter().zip(&sizes).map(|(text, size)| right(text, *size) + "  ").collect();
                format!("{lead}{line}").trim_end().to_owned()
            };
            let firsts = block.iter().map(|Column(first, ..)| first).collect();
            let seconds = block.iter().map(|Column(_, second, _)| second).collect();
            if has_second {
                page.line(0, &[(Ink::Strong, &heading(&blank, firsts))]);
                page.line(0, &[(Ink::Faint, &heading(&names, seconds))]);
            } else {
                page.line(0, &[(Ink::Strong, &heading(&names, firsts))]);
            }
            let rows = block.first().map_or(0, |Column(_, _, cells)| cells.len());
            for row in 0..rows {
                let lead: String =
                    self.heads.iter().zip(&widths).map(|(head, width)| right(&head[row + 1], *width) + "  ").collect();
                let last = block.len() - 1;
                let cells: Vec<(Ink, String)> = block
                    .iter()
                    .zip(&sizes)
                    .enumerate()
                    .map(|(at, (Column(_, _, cells), size))| {
                        let (ink, text) = &cells[row];
                        (*ink, right(text, *size) + if at == last { "" } else { "  " })
                    })
                    .collect();
                let parts: Vec<(Ink, &str)> = [(Ink::Plain, lead.as_str())]
                    .into_iter()
                    .chain(cells.iter().map(|(ink, text)| (*ink, text.as_str())))
                    .collect();
                page.line(0, &parts);
            }
            if !left.is_empty() {
                page.gap();
            }
        }
    }
}

fn name(text: &str) -> String {
    shortened(&clean(text), WIDEST, false)
}

fn widest<'a>(texts: impl Iterator<Item = &'a String>) -> usize {
    texts.map(|text| text.width()).max().unwrap_or(0)
}

fn right(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(text.width())))
}

/// What the card of a column holds, where the columns are cards and its cells agree.
fn capacity(report: &SweepReport, axis: &SweepAxis, value: &str) -> String {
    if axis.name != CARDS {
        return String::new();
    }
    let of = |cell: &&SweepCell| cell.values.get(&axis.name).is_some_and(|own| own == value);
    let mut sizes = report.cells.iter().filter(of).filter_map(|cell| cell.capacity_bytes);
    match sizes.next() {
        Some(first) if sizes.all(|size| size == first) => format!("of {}", gibibytes(first)),
        _ => String::new(),
    }
}

fn failures(page: &mut Page, report: &SweepReport) {
    let failed: Vec<&SweepCell> = report.cells.iter().filter(|cell| cell.verdict == Some(Verdict::Failed)).collect();
    if failed.is_empty() {
        return;
    }
    page.gap();
    for cell in failed.iter().take(MOST_FAILURES) {
        let values: Vec<(String, String)> = report
            .axes
            .iter()
            .filter_map(|axis| Some((axis.name.clone(), cell.values.get(&axis.name)?.clone())))
            .collect();
        let status = cell.exit_status.map(|status| format!(" with status {status}")).unwrap_or_default();
        let line = cell.message.as_deref().map(|line| format!(": {}", clean(line))).unwrap_or_default();
        page.paragraph(0, 2, &[(Ink::Care, "failed"), (Ink::Plain, &format!("{status} at {}{line}", said(&values)))]);
    }
    if failed.len() > MOST_FAILURES {
        page.paragraph(0, 2, &[(Ink::Faint, &format!("and {} more", failed.len() - MOST_FAILURES))]);
    }
}
