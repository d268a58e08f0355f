//! The processes as a table: a row each, and what it does from step to step below it.

use oomph_report::{WatchedGpu, WatchedProcess, clean, outlook_words, shortened, watched_role_words};
use ratatui::text::Span;

/// Terminals of so many columns have room for a trend next to the figures.
const WIDE: usize = 120;

/// A command line has at least so many columns.
const COMMAND: usize = 10;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The place of the card.
    Gpu,
    /// The id.
    Pid,
    /// The command line, rank and part in MPS.
    Command,
    /// What the driver counts.
    Total,
    /// Live tensors.
    Allocated,
    /// Reserved, not allocated.
    Cached,
    /// What the allocator took.
    Reserved,
    /// The driver's figure less what is reserved.
    Outside,
    /// Optimizer steps.
    Step,
    /// Where it is heading.
    Trend,
}

/// In the order in which they are shown.
const ORDER: [Column; 10] = [
    Column::Gpu,
    Column::Pid,
    Column::Command,
    Column::Total,
    Column::Allocated,
    Column::Cached,
    Column::Reserved,
    Column::Outside,
    Column::Step,
    Column::Trend,
];

/// In the order in which a narrow terminal keeps them.
const WORTH: [Column; 8] = [
    Column::Pid,
    Column::Total,
    Column::Gpu,
    Column::Allocated,
    Column::Step,
    Column::Cached,
    Column::Reserved,
    Column::Outside,
];

impl Column {
    fn title(self) -> &'static str {
        match self {
            Self::Gpu => "GPU",
            Self::Pid => "PID",
            Self::Command => "command",
            Self::Total => "total",
            Self::Allocated => "allocated",
            Self::Cached => "cached",
            Self::Reserved => "reserved",
            Self::Outside => "outside",
            Self::Step => "step",
            Self::Trend => "trend",
        }
    }

    /// Columns of the terminal, where they do not depend on its width.
    fn width(self) -> usize {
        match self {
            Self::Gpu => 3,
            Self::Pid | Self::Outside | Self::Step => 7,
            Self::Total | Self::Cached => 6,
            Self::Allocated => 9,
            Self::Reserved => 8,
            Self::Command | Self::Trend => 0,
        }
    }

    fn is_text(self) -> bool {
        matches!(self, Self::Command | Self::Trend)
    }

    fn of(self, card: &WatchedGpu, process: &WatchedProcess) -> String {
        let framework = process.framework.as_ref();
        let figure = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), gib);
        match self {
            Self::Gpu => card.place.to_string(),
            Self::Pid => process.pid.to_string(),
            Self::Command => process.command.as_deref().map_or_else(|| "-".to_owned(), |line| clean(line).into_owned()),
            Self::Total => figure(process.driver_bytes),
            Self::Allocated => figure(framework.map(|framework| framework.allocated_bytes)),
            Self::Cached => figure(framework.map(|framework| framework.cached_bytes)),
            Self::Reserved => figure(framework.map(|framework| framework.reserved_bytes)),
            Self::Outside => figure(process.outside_bytes),
            Self::Step => framework.map_or_else(|| "-".to_owned(), |framework| framework.step.to_string()),
            Self::Trend => trend(process).unwrap_or_else(|| "-".to_owned()),
        }
    }
}

/// The columns that a terminal has room for, and their widths.
pub fn columns(width: usize, cards: usize) -> Vec<(Column, usize)> {
    let mut left = width.saturating_sub(COMMAND);
    let mut kept = vec![Column::Command];
    for column in WORTH {
        // With one card its number says nothing.
        if column == Column::Gpu && cards < 2 {
            continue;
        }
        // A gap separates each from the next.
        if column.width() < left {
            left -= column.width() + 1;
            kept.push(column);
        }
    }
    let mut text = left + COMMAND.min(width);
    let trend = if width >= WIDE { text.saturating_sub(1) * 2 / 3 } else { 0 };
    if trend > 0 {
        kept.push(Column::Trend);
        text -= trend + 1;
    }
    let wide = |column: Column| match column {
        Column::Command => text,
        Column::Trend => trend,
        other => other.width(),
    };
    ORDER.into_iter().filter(|column| kept.contains(column)).map(|column| (column, wide(column))).collect()
}

/// The titles.
pub fn titles(columns: &[(Column, usize)], unicode: bool) -> String {
    joined(columns, unicode, |column| (column.title().to_owned(), String::new()))
}

/// The row of a process.
pub fn row(columns: &[(Column, usize)], card: &WatchedGpu, process: &WatchedProcess, unicode: bool) -> String {
    joined(columns, unicode, |column| {
        let role = if column == Column::Command { watched_role_words(process) } else { String::new() };
        (column.of(card, process), role)
    })
}

/// Where a process is heading, in words.
pub fn trend(process: &WatchedProcess) -> Option<String> {
    process.framework.as_ref()?.outlook.as_ref().map(outlook_words)
}

/// Cells of a text and an end that stays where the text is cut, as long as some of the text does.
fn joined(columns: &[(Column, usize)], unicode: bool, of: impl Fn(Column) -> (String, String)) -> String {
    let cell = |(column, width): &(Column, usize)| {
        let (text, end) = of(*column);
        let end = if end.len() + 4 <= *width { end } else { String::new() };
        let text = shortened(&text, width - end.len(), unicode) + &end;
        let blank = " ".repeat(width.saturating_sub(Span::raw(text.as_str()).width()));
        if column.is_text() { format!("{text}{blank}") } else { format!("{blank}{text}") }
    };
    columns.iter().map(cell).collect::<Vec<_>>().join(" ")
}

/// A size in GiB with two decimals. What is there and less than that says so.
pub fn gib(bytes: u64) -> String {
    let hundredths = (u128::from(bytes) * 100 + (1 << 29)) / (1 << 30);
    if hundredths == 0 && bytes > 0 {
        return "<0.01".to_owned();
    }
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fill_the_width_and_no_more() {
        for width in 0..300 {
            for cards in [1, 8] {
                let columns = columns(width, cards);
                let sum = columns.iter().map(|column| column.1).sum::<usize>() + columns.len() - 1;
                assert!(sum <= width.max(COMMAND), "{sum} of {width}: {columns:?}");
            }
        }
        let names: Vec<_> = columns(40, 1).iter().map(|column| column.0.title()).collect();
        assert_eq!(names, ["PID", "command", "total", "allocated"]);
    }

    #[test]
    fn sizes_are_short() {
        let sizes = [0, 1, 5 << 20, 6 << 20, 1 << 30, 81_559 << 20, u64::MAX].map(gib);
        assert_eq!(sizes, ["0.00", "<0.01", "<0.01", "0.01", "1.00", "79.65", "17179869184.00"]);
    }
}
