//! Draws a sweep as SVG: the peak against one axis, a panel per card, a line per combination of the other axes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::sweep::{SweepAxis, SweepCell, SweepReport};

/// The axis that has a panel for each of its values.
const CARDS: &str = "gpu";
/// The size of a panel in pixels, its labels included.
const PANEL: (f64, f64) = (360.0, 280.0);
/// The room for labels: left, right, above, below.
const ROOM: (f64, f64, f64, f64) = (52.0, 14.0, 34.0, 40.0);
/// Panels in a row.
const ACROSS: usize = 3;
/// The height of the title and of a line of the legend.
const LINE: f64 = 20.0;
/// More lines than this have no room in a panel, nor colours that can be distinguished.
const MOST_LINES: usize = 12;
/// Colours that people with any colour vision tell apart (Okabe and Ito), then the same with dashes.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// Values of axes, by name.
type Values = BTreeMap<String, String>;

/// The axis that a picture has across: the one with the most values of those that are numbers; `None` where none is.
pub fn picture_axis(report: &SweepReport) -> Option<&SweepAxis> {
    let numbers = report.axes.iter().filter(|axis| axis.name != CARDS && axis.numbers().is_some());
    // Of equal ones the first.
    numbers.rev().max_by_key(|axis| axis.values.len())
}

/// Draws the peaks along an axis, whose values are numbers; `None` where they are not.
pub fn sweep_picture(report: &SweepReport, across: &SweepAxis) -> Option<String> {
    let numbers = across.numbers()?;
    let panels: Vec<Option<&String>> = match report.axis(CARDS) {
        Some(cards) if across.name != CARDS => cards.values.iter().map(Some).collect(),
        _ => vec![None],
    };
    let mut lines: Vec<Values> = Vec::new();
    for cell in &report.cells {
        let key = key(cell, across);
        if !lines.contains(&key) {
            lines.push(key);
        }
    }
    let hidden = lines.len().saturating_sub(MOST_LINES);
    lines.truncate(MOST_LINES);
    let columns = panels.len().min(ACROSS);
    let legend = if lines.len() > 1 { lines.len() } else { 0 } + usize::from(hidden > 0);
    let (width, top) = (columns as f64 * PANEL.0, LINE * 1.8);
    let height = top + panels.len().div_ceil(columns) as f64 * PANEL.1 + legend as f64 * LINE + LINE * 1.6;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" role=\"img\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    let title = format!("Peak GPU memory against {}", across.name);
    let _ = writeln!(
        out,
        "<title>{0}</title>\n<text x=\"12\" y=\"22\" font-size=\"15\" fill=\"#222\">{0}</text>",
        escaped(&title)
    );
    for (number, card) in panels.iter().enumerate() {
        let left = (number % columns) as f64 * PANEL.0;
        let panel_top = top + (number / columns) as f64 * PANEL.1;
        Panel::new(report, across, &numbers, *card, (left, panel_top)).draw(&mut out, &lines);
    }
    let mut y = top + panels.len().div_ceil(columns) as f64 * PANEL.1 + LINE * 0.7;
    if lines.len() > 1 {
        for (number, values) in lines.iter().enumerate() {
            let _ = writeln!(
                out,
                "<line x1=\"14\" y1=\"{0:.1}\" x2=\"44\" y2=\"{0:.1}\" {1}/><text x=\"52\" y=\"{2:.1}\" fill=\"#222\">{3}</text>",
                y - 4.0,
                stroke(number),
                y,
                escaped(&said(report, values))
            );
            y += LINE;
        }
    }
    if hidden > 0 {
        let _ = writeln!(out, "<text x=\"14\" y=\"{y:.1}\" fill=\"#666\">{hidden} more lines are not drawn</text>");
        y += LINE;
    }
    let _ = writeln!(
        out,
        "<text x=\"14\" y=\"{y:.1}\" fill=\"#666\">dashed: what the card holds; a cross: ran out of memory there</text>\n</svg>"
    );
    Some(out)
}

/// The values that say which line a cell is on: all but the card and the axis across.
fn key(cell: &SweepCell, across: &SweepAxis) -> Values {
    let other = |(name, _): &(&String, &String)| **name != across.name && *name != CARDS;
    cell.values.iter().filter(other).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The panel of one card, or of all cells: where it is in the picture, and its scales. Places are in pixels.
struct Panel<'a> {
    across: &'a SweepAxis,
    /// The axis's values as numbers.
    numbers: &'a [f64],
    card: Option<&'a String>,
    cells: Vec<&'a SweepCell>,
    /// What the card holds, in bytes.
    capacity: Option<u64>,
    /// The same where there is room to draw it.
    drawn: Option<u64>,
    /// The upper end of the scale, in GiB.
    highest: f64,
    /// The least and the largest number.
    low: f64,
    high: f64,
    left: f64,
    /// The left and the right end of the plot.
    x0: f64,
    x1: f64,
    /// The bottom and the top of the plot.
    y0: f64,
    y1: f64,
}

impl<'a> Panel<'a> {
    fn new(
        report: &'a SweepReport,
        across: &'a SweepAxis,
        numbers: &'a [f64],
        card: Option<&'a String>,
        (left, top): (f64, f64),
    ) -> Self {
        let of_card = |cell: &&SweepCell| card.is_none_or(|card| cell.values.get(CARDS).is_some_and(|own| own == card));
        let cells: Vec<&SweepCell> = report.cells.iter().filter(of_card).collect();
        let capacity = cells.iter().filter_map(|cell| cell.capacity_bytes).max();
        let peaks = cells.iter().filter(|cell| cell.fits()).filter_map(|cell| cell.peak_bytes);
        let died = cells.iter().any(|cell| cell.verdict.is_some() && !cell.fits());
        let highest = peaks.max().unwrap_or(0);
        // A capacity far above all peaks would press the lines to the ground; it is then named and not drawn.
        let drawn = capacity.filter(|bytes| died || *bytes <= highest.saturating_mul(4));
        let (low, high) = numbers
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), number| (low.min(*number), high.max(*number)));
        Self {
            across,
            numbers,
            card,
            cells,
            capacity,
            drawn,
            highest: highest.max(drawn.unwrap_or(0)).max(1) as f64 / GIB * 1.08,
            low,
            high,
            left,
            x0: left + ROOM.0,
            x1: left + PANEL.0 - ROOM.1,
            y0: top + PANEL.1 - ROOM.3,
            y1: top + ROOM.2,
        }
    }

    /// The place of a number of the axis.
    fn x(&self, number: f64) -> f64 {
        // Powers of two are the rule for batches and lengths; a line of them is read by its ratios.
        let log = self.low > 0.0 && self.high / self.low >= 8.0;
        let scale = |number: f64| if log { number.ln() } else { number };
        match scale(self.high) - scale(self.low) {
            span if span > 0.0 => self.x0 + (scale(number) - scale(self.low)) / span * (self.x1 - self.x0 - 16.0) + 8.0,
            _ => f64::midpoint(self.x0, self.x1),
        }
    }

    /// The place of a size in GiB.
    fn y(&self, gib: f64) -> f64 {
        self.y0 - gib / self.highest * (self.y0 - self.y1)
    }

    fn draw(&self, out: &mut String, lines: &[Values]) {
        self.draw_title(out);
        self.draw_sizes(out);
        self.draw_numbers(out);
        self.draw_capacity(out);
        for (number, values) in lines.iter().enumerate() {
            self.draw_line(out, number, values);
        }
    }

    /// The name of the card, and what it holds.
    fn draw_title(&self, out: &mut String) {
        let label = match (self.card, self.capacity) {
            (Some(card), Some(bytes)) => format!("{card} ({:.2} GiB)", bytes as f64 / GIB),
            (Some(card), None) => card.clone(),
            (None, _) => String::new(),
        };
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" font-weight=\"600\" fill=\"#222\">{}</text>",
            self.x0,
            self.y1 - 12.0,
            escaped(&label)
        );
    }

    /// The scale of sizes, with a line across at each mark.
    fn draw_sizes(&self, out: &mut String) {
        let (step, ticks) = ticks(self.highest);
        for tick in 0..=ticks {
            let value = tick as f64 * step;
            let y = self.y(value);
            let _ = writeln!(
                out,
                "<line x1=\"{:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"#e3e3e3\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{}</text>",
                self.x0,
                self.x1,
                self.x0 - 6.0,
                y + 4.0,
                plain(value)
            );
        }
        let (x, y) = (self.left + 8.0, self.y1 - 12.0);
        let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"#555\">GiB</text>");
    }

    /// The values of the axis below the plot, as many as have room, and its name.
    fn draw_numbers(&self, out: &mut String) {
        let mut last_label = f64::NEG_INFINITY;
        let mut ordered: Vec<(f64, &String)> = self.numbers.iter().copied().zip(&self.across.values).collect();
        ordered.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        for (number, text) in ordered {
            let place = self.x(number);
            if place - last_label < text.len() as f64 * 7.0 + 4.0 {
                continue;
            }
            last_label = place;
            let _ = writeln!(
                out,
                "<text x=\"{place:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{}</text>",
                self.y0 + 16.0,
                escaped(text)
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#222\">{}</text>",
            f64::midpoint(self.x0, self.x1),
            self.y0 + 32.0,
            escaped(&self.across.name)
        );
    }

    /// What the card holds, as a dashed line.
    fn draw_capacity(&self, out: &mut String) {
        let Some(bytes) = self.drawn else { return };
        let _ = writeln!(
            out,
            "<line x1=\"{:.1}\" y1=\"{2:.1}\" x2=\"{:.1}\" y2=\"{2:.1}\" stroke=\"#222\" stroke-dasharray=\"6 4\"/>",
            self.x0,
            self.x1,
            self.y(bytes as f64 / GIB)
        );
    }

    /// The line of some values of the other axes: a point at each peak, and a cross where memory ran out.
    fn draw_line(&self, out: &mut String, number: usize, values: &Values) {
        let mut points: Vec<(f64, &SweepCell)> = self
            .cells
            .iter()
            .filter(|cell| key(cell, self.across) == *values)
            .filter_map(|cell| Some((cell.values.get(&self.across.name)?.parse().ok()?, *cell)))
            .collect();
        points.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let mut path = String::new();
        for (value, cell) in &points {
            match (cell.fits(), cell.peak_bytes, self.capacity) {
                (true, Some(bytes), _) => {
                    let (px, py) = (self.x(*value), self.y(bytes as f64 / GIB));
                    let _ = write!(path, "{}{px:.1} {py:.1}", if path.is_empty() { "M" } else { " L" });
                    let _ =
                        writeln!(out, "<circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"3\" fill=\"{}\"/>", colour(number));
                }
                (false, _, Some(bytes)) if cell.verdict == Some(crate::Verdict::Oom) => {
                    // Crosses of several lines would lie on each other.
                    let (px, py) = (self.x(*value), self.y(bytes as f64 / GIB) - (number % 3) as f64 * 3.0);
                    let _ = writeln!(
                        out,
                        "<path d=\"M{:.1} {:.1} l8 8 m0 -8 l-8 8\" stroke=\"{}\" stroke-width=\"2\" fill=\"none\"/>",
                        px - 4.0,
                        py - 4.0,
                        colour(number)
                    );
                }
                _ => {}
            }
        }
        if !path.is_empty() {
            let _ = writeln!(out, "<path d=\"{path}\" fill=\"none\" {}/>", stroke(number));
        }
    }
}

const GIB: f64 = (1_u64 << 30) as f64;

/// The distance of marks up to `highest`, and how many there are above 0.
fn ticks(highest: f64) -> (f64, usize) {
    let rough = highest / 4.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|one| one * power).find(|step| *step >= rough).unwrap_or(rough);
    (step, (highest / step) as usize)
}

fn plain(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn colour(number: usize) -> &'static str {
    COLOURS[number % COLOURS.len()]
}

fn stroke(number: usize) -> String {
    let dashes = if number < COLOURS.len() { "" } else { " stroke-dasharray=\"2 3\"" };
    format!("stroke=\"{}\" stroke-width=\"2\"{dashes}", colour(number))
}

fn said(report: &SweepReport, values: &Values) -> String {
    let one = |axis: &SweepAxis| Some(format!("{} {}", axis.name, values.get(&axis.name)?));
    report.axes.iter().filter_map(one).collect::<Vec<_>>().join(", ")
}

/// A text inside markup. XML has no control characters.
fn escaped(text: &str) -> String {
    let clean: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    clean.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use oomph_protocol::Verdict;

    use super::*;
    use crate::sweep::SweepSchema;

    #[test]
    fn a_picture_has_a_panel_per_card_and_a_cross_where_it_ran_out() {
        let axis = |name: &str, values: &[&str]| SweepAxis {
            name: name.into(),
            values: values.iter().map(ToString::to_string).collect(),
        };
        let axes = vec![axis("gpu", &["t4", "<l4>"]), axis("batch", &["1", "2", "4"])];
        let mut cells = Vec::new();
        for (card, capacity) in [("t4", 3_u64), ("<l4>", 9)] {
            for batch in ["1", "2", "4"] {
                let peak: u64 = batch.parse().unwrap();
                cells.push(SweepCell {
                    values: [("gpu".to_owned(), card.to_owned()), ("batch".to_owned(), batch.to_owned())].into(),
                    verdict: Some(if peak > capacity { Verdict::Oom } else { Verdict::Fits }),
                    peak_bytes: Some(peak << 30),
                    capacity_bytes: Some(capacity << 30),
                    ..SweepCell::default()
                });
            }
        }
        let report = SweepReport {
            schema: SweepSchema,
            file: "s.yaml".into(),
            axes,
            cells,
            ran: 6,
            known: 0,
            forked: false,
            elapsed_seconds: 0.0,
            warnings: Vec::new(),
        };
        let across = picture_axis(&report).unwrap();
        assert_eq!(across.name, "batch");
        let picture = sweep_picture(&report, across).unwrap();
        assert_eq!(picture.matches("<circle").count(), 5);
        assert_eq!(picture.matches("l8 8 m0 -8 l-8 8").count(), 1);
        assert!(picture.contains("t4 (3.00 GiB)") && picture.contains("&lt;l4&gt; (9.00 GiB)"));
        assert!(sweep_picture(&report, &report.axes[0]).is_none());
    }
}
