//! Draws a [`View`] from the top to the bottom. What does not fit is left out, and nothing depends on colour.

use oomph_gpu::size;
use oomph_report::{
    Trend, WatchedGpu, clean, shortened, time_words, watch_cost_words, watched_card_words, watched_moment_words,
    watched_reasons, watched_role_words,
};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::bar;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline};

use super::parts::{self, Part};
use super::plan::{Asked, Detail, plan};
use super::table;
use super::view::{Course, View};

/// Columns of the scale next to a curve.
const SCALE: u16 = 12;

/// Levels of a curve in terminals without block elements.
const ASCII: bar::Set<'_> = bar::Set {
    full: "#",
    seven_eighths: "#",
    three_quarters: "#",
    five_eighths: "+",
    half: "+",
    three_eighths: "+",
    one_quarter: ".",
    one_eighth: ".",
    empty: " ",
};

/// What the keys do, and what two words of the legend mean.
const HELP: [&str; 4] = [
    "q or Esc: end; Ctrl-C: end with status 130; ?: hide this",
    "Up, Down or Tab: select a process; PgUp, PgDn, Home, End: go further",
    "outside: what a process holds on the card less what its framework reserved",
    "other: processes without framework figures, and memory that belongs to no process",
];

/// Emphasis, of which colour is a part only where it may be used.
#[derive(Clone, Copy, Debug)]
struct Paint {
    has_colour: bool,
    unicode: bool,
}

impl Paint {
    fn colour(self, colour: Color) -> Style {
        if self.has_colour { Style::new().fg(colour) } else { Style::new() }
    }

    fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn faint(self) -> Style {
        if self.has_colour { Style::new().add_modifier(Modifier::DIM) } else { Style::new() }
    }

    fn part(self, part: Part) -> Style {
        match part {
            Part::Allocated => self.colour(Color::Blue),
            Part::Cached => self.colour(Color::Cyan),
            Part::Outside => self.colour(Color::Yellow),
            Part::Other => self.colour(Color::Magenta),
            Part::Free => self.faint(),
        }
    }

    fn trend(self, trend: Trend) -> Style {
        match trend {
            Trend::Leak | Trend::GrowingInputs => self.colour(Color::Red).add_modifier(Modifier::BOLD),
            Trend::Fragmentation | Trend::Fluctuating => self.colour(Color::Yellow),
            Trend::Unknown | Trend::Steady => self.faint(),
        }
    }
}

/// Draws the view.
pub fn draw(frame: &mut Frame<'_>, view: &mut View) {
    let mut area = frame.area();
    if area.is_empty() {
        return;
    }
    let paint = Paint { has_colour: view.style.colour, unicode: view.style.unicode };
    let width = usize::from(area.width);
    let figures: Vec<_> = view.report.cards.iter().map(parts::bytes).collect();
    let legends: Vec<_> = figures.iter().map(|figures| legend(figures.as_ref(), width, paint)).collect();
    let notes = notes(view, width);
    let details = details(view, width, paint);
    let help: Vec<String> = HELP.iter().flat_map(|line| wrapped(line, width, 2)).collect();
    let rows = |lines: usize| u16::try_from(lines).unwrap_or(u16::MAX);
    let plan = plan(&Asked {
        height: area.height,
        cards: view.report.cards.len(),
        legend: rows(legends.iter().map(Vec::len).max().unwrap_or(0)),
        processes: view.processes().count(),
        process_rows: process_rows(view, width),
        notes: rows(notes.len()),
        details: rows(details.len()),
        help: if view.has_help { rows(help.len()) } else { 0 },
    });

    let watched =
        if view.seconds() < 1.0 { String::new() } else { format!("watched for {}", time_words(view.seconds())) };
    let heading = sides("oomph watch", &watched, ' ', width, paint.unicode);
    text(frame, cut(&mut area, plan.heading), vec![Line::styled(heading, paint.strong())]);
    let selected =
        view.selected().and_then(|(card, _)| view.report.cards.iter().position(|one| one.place == card.place));
    let count = view.report.cards.len();
    // The card of the selected process is always among those that are shown.
    let first = selected.unwrap_or(0).saturating_sub(plan.cards / 2).min(count.saturating_sub(plan.cards));
    for at in first..first.saturating_add(plan.cards).min(count) {
        let card = &view.report.cards[at];
        let course = view.courses.get(&card.place);
        let legend = if matches!(plan.detail, Detail::Full(_)) { legends[at].clone() } else { Vec::new() };
        let legend_rows = rows(legends.iter().map(Vec::len).max().unwrap_or(0));
        // A card of which nothing can be drawn leaves its rows to the others.
        let blind = wrapped(&memory_reason(card), width, 0).len() + 1;
        let needed = if figures[at].is_some() { u16::MAX } else { rows(blind) };
        let area = cut(&mut area, plan.detail.rows(legend_rows).min(needed));
        draw_card(frame, area, card, figures[at].as_ref(), legend, course, plan.detail, paint);
    }
    text(frame, cut(&mut area, plan.legend), legend(None, width, paint));
    let list = cut(&mut area, plan.table);
    draw_table(frame, list, view, plan.has_trends, paint);
    text(frame, cut(&mut area, plan.notes), notes.into_iter().map(|note| Line::styled(note, paint.faint())).collect());
    text(frame, cut(&mut area, plan.details), details);
    // What is left lies between the processes and the lines at the bottom.
    let bottom = plan.news + plan.help + plan.footer;
    let between = area.height.saturating_sub(bottom);
    cut(&mut area, between);
    if let Some(news) = &view.news {
        let news = shortened(&clean(news), width, paint.unicode);
        text(frame, cut(&mut area, plan.news), vec![Line::styled(news, paint.faint())]);
    } else {
        cut(&mut area, plan.news);
    }
    text(frame, cut(&mut area, plan.help), help.into_iter().map(Line::raw).collect());
    let keys = if view.has_help { "q: end" } else { "q: end   ?: keys" };
    let footer = sides(&watch_cost_words(&view.report), keys, ' ', width, paint.unicode);
    text(frame, cut(&mut area, plan.footer), vec![Line::styled(footer, paint.faint())]);
}

#[expect(clippy::too_many_arguments, reason = "all of them are of one card")]
fn draw_card(
    frame: &mut Frame<'_>,
    mut area: Rect,
    card: &WatchedGpu,
    figures: Option<&[u64; 5]>,
    legend: Vec<Line<'static>>,
    course: Option<&Course>,
    detail: Detail,
    paint: Paint,
) {
    let width = usize::from(area.width);
    if detail == Detail::Line {
        text(frame, area, vec![card_line(card, figures, width, paint)]);
        return;
    }
    let used = match (card.used_bytes, card.total_bytes) {
        (Some(used), Some(total)) => format!("{} of {} used", size::format(used), size::format(total)),
        _ => String::new(),
    };
    let rule = if paint.unicode { '─' } else { '-' };
    let heading = sides(&watched_card_words(card), &used, rule, width, paint.unicode);
    text(frame, cut(&mut area, 1), vec![Line::styled(heading, paint.strong())]);
    let Some(figures) = figures else {
        let lines = wrapped(&memory_reason(card), width, 0).into_iter();
        text(frame, area, lines.map(|line| Line::styled(line, paint.colour(Color::Yellow))).collect());
        return;
    };
    text(frame, cut(&mut area, 1), vec![bar_of(figures, width, paint)]);
    let rows = u16::try_from(legend.len()).unwrap_or(u16::MAX);
    text(frame, cut(&mut area, rows), legend);
    if let Some(course) = course {
        draw_course(frame, area, course, card.total_bytes.unwrap_or(0), paint);
    }
}

/// The used memory over the time of the watch, next to its scale.
fn draw_course(frame: &mut Frame<'_>, area: Rect, course: &Course, total: u64, paint: Paint) {
    let scale = if area.height >= 2 && area.width >= 4 * SCALE { SCALE } else { 0 };
    let curve = Rect { width: area.width.saturating_sub(scale), ..area };
    let scale_area = Rect { x: area.x.saturating_add(curve.width), width: scale, ..area };
    let points = course.shown(usize::from(curve.width));
    let levels = if paint.unicode { bar::NINE_LEVELS } else { ASCII };
    let sparkline = Sparkline::default().data(points).max(total.max(1)).bar_set(levels);
    let absent = if paint.unicode { "·" } else { "?" };
    frame.render_widget(sparkline.absent_value_symbol(absent).style(paint.colour(Color::Green)), curve);
    let end = |text: &str| Line::styled(format!(" {text}"), paint.faint());
    text(frame, Rect { height: scale_area.height.min(1), ..scale_area }, vec![end(&size::format(total))]);
    let bottom = Rect { y: area.bottom().saturating_sub(1), height: scale_area.height.min(1), ..scale_area };
    if scale > 0 {
        text(frame, bottom, vec![end("0 used")]);
    }
}

/// A card in one row: its number, a bar, and how much is used.
fn card_line(card: &WatchedGpu, figures: Option<&[u64; 5]>, width: usize, paint: Paint) -> Line<'static> {
    let name = format!("GPU {} ", card.place);
    let (Some(figures), Some(used), Some(total)) = (figures, card.used_bytes, card.total_bytes) else {
        return Line::raw(shortened(&format!("{name}{}", memory_reason(card)), width, paint.unicode));
    };
    let figure = format!(" {} / {} GiB", table::gib(used), table::gib(total));
    let room = width.saturating_sub(name.len() + figure.len());
    // A terminal that has no room for a bar gets the figure.
    if room < 4 {
        let short = format!("{name}{}/{}", table::gib(used), table::gib(total));
        return Line::raw(shortened(&short, width, paint.unicode));
    }
    let mut line = bar_of(figures, room, paint);
    line.spans.insert(0, Span::styled(name, paint.strong()));
    line.spans.push(Span::raw(figure));
    line
}

/// Why the memory of a card is not known.
fn memory_reason(card: &WatchedGpu) -> String {
    clean(card.memory_reason.as_deref().unwrap_or("its memory is not known")).into_owned()
}

fn bar_of(figures: &[u64; 5], columns: usize, paint: Paint) -> Line<'static> {
    let span = |(part, cells): (Part, usize)| Span::styled(part.glyph(paint.unicode).repeat(cells), paint.part(part));
    parts::cells(figures, columns).into_iter().map(span).collect()
}

/// The glyphs of a bar and what they stand for, with the figures of a card or without.
fn legend(figures: Option<&[u64; 5]>, width: usize, paint: Paint) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> = Vec::new();
    let mut column = 0;
    for (at, part) in Part::ALL.into_iter().enumerate() {
        let figure = match figures.map(|figures| figures[at]) {
            // What there is nothing of is not in the bar either.
            Some(0) if part != Part::Free => continue,
            Some(bytes) => format!(" {}", table::gib(bytes)),
            None => String::new(),
        };
        let unit = if figures.is_some() && part == Part::Free { " GiB" } else { "" };
        let words = format!(" {}{figure}{unit}", part.name());
        let needed = 1 + words.len();
        if lines.is_empty() || column + 2 + needed > width {
            lines.push(Line::default());
            column = 0;
        } else if let Some(line) = lines.last_mut() {
            line.push_span("  ");
            column += 2;
        }
        if let Some(line) = lines.last_mut() {
            line.push_span(Span::styled(part.glyph(paint.unicode), paint.part(part)));
            line.push_span(Span::raw(words));
        }
        column += needed;
    }
    lines
}

/// How many rows processes take where trends are below them.
fn process_rows(view: &View, width: usize) -> usize {
    let count = view.processes().count();
    let trends = view.processes().filter(|(_, process)| table::trend(process).is_some()).count();
    // One process has its trend among the words about it, and a wide terminal has a column for it.
    if count < 2 || has_column(view, width) { count } else { count + trends }
}

fn has_column(view: &View, width: usize) -> bool {
    let columns = table::columns(width, view.report.cards.len());
    columns.iter().any(|(column, _)| *column == table::Column::Trend)
}

fn draw_table(frame: &mut Frame<'_>, mut area: Rect, view: &mut View, has_trends: bool, paint: Paint) {
    if area.is_empty() {
        return;
    }
    let width = usize::from(area.width);
    let count = view.processes().count();
    let rule = if paint.unicode { '─' } else { '-' };
    let heading = if count == 1 { "1 process, GiB".to_owned() } else { format!("{count} processes, GiB") };
    let head = cut(&mut area, 1);
    let columns = table::columns(width.saturating_sub(2), view.report.cards.len());
    text(frame, cut(&mut area, 1), vec![Line::raw(format!("  {}", table::titles(&columns, paint.unicode)))]);
    let has_trends = has_trends && count > 1 && !has_column(view, width);
    let room = usize::from(area.height);
    let place = view.place().unwrap_or(0);
    let shown = if has_trends { count } else { room.min(count) };
    // The list moves no further than the selected process needs.
    view.first = view.first.min(place).max((place + 1).saturating_sub(shown)).min(count.saturating_sub(shown));
    let mut lines = Vec::new();
    for (at, (card, process)) in view.processes().enumerate().skip(view.first).take(shown) {
        let is_selected = at == place;
        let mark = if is_selected { "> " } else { "  " };
        let style = if is_selected { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        let row = table::row(&columns, card, process, paint.unicode);
        lines.push(Line::styled(format!("{mark}{row}"), style));
        if let (true, Some(trend)) = (has_trends, table::trend(process)) {
            let kind = process.framework.as_ref().and_then(|one| one.outlook).map(|outlook| outlook.trend);
            let trend = shortened(&trend, width.saturating_sub(6), paint.unicode);
            lines.push(Line::styled(format!("      {trend}"), paint.trend(kind.unwrap_or_default())));
        }
    }
    let (from, to) = (view.first + 1, view.first + shown);
    let part = if shown < count { format!("{from} to {to}, Up and Down for more") } else { String::new() };
    let heading = sides(&heading, &part, rule, width, paint.unicode);
    text(frame, head, vec![Line::styled(heading, paint.strong())]);
    text(frame, area, lines);
}

/// Why processes are not listed.
fn notes(view: &View, width: usize) -> Vec<String> {
    let cards = &view.report.cards;
    if cards.is_empty() {
        return wrapped("no card is left: the rehearsal has ended", width, 2);
    }
    let mut notes = Vec::new();
    for card in cards {
        if let Some(reason) = &card.processes_reason {
            let place = if cards.len() > 1 { format!("GPU {}: ", card.place) } else { String::new() };
            notes.extend(wrapped(&format!("{place}processes: {}", clean(reason)), width, 2));
        }
    }
    if notes.is_empty() && view.processes().next().is_none() {
        let place = if cards.len() == 1 { "it" } else { "them" };
        notes.push(format!("no process is on {place}"));
    }
    notes
}

/// More about the selected process: where it is heading, of when its figures are, and why some are not known.
fn details(view: &View, width: usize, paint: Paint) -> Vec<Line<'static>> {
    let Some((_, process)) = view.selected() else { return Vec::new() };
    let command = process.command.as_deref().map_or_else(String::new, |command| format!(" {}", clean(command)));
    let head = format!("{}{}", process.pid, shortened(&command, width.saturating_sub(24), paint.unicode));
    let mut lines = vec![Line::styled(format!("{head}{}", watched_role_words(process)), paint.strong())];
    let mut add = |words: &str, style: Style| {
        lines.extend(
            wrapped(words, width.saturating_sub(2), 2).into_iter().map(|line| Line::styled(format!("  {line}"), style)),
        );
    };
    if let Some(framework) = &process.framework {
        if let Some(trend) = table::trend(process) {
            add(&trend, paint.trend(framework.outlook.unwrap_or_default().trend));
        }
        add(&watched_moment_words(framework), Style::new());
    }
    for reason in watched_reasons(process) {
        add(&reason, paint.faint());
    }
    lines
}

/// Two texts at the ends of a line, the first of which is cut where both do not fit.
fn sides(left: &str, right: &str, between: char, width: usize, unicode: bool) -> String {
    let columns = |text: &str| Span::raw(text).width();
    let lead = if between == ' ' { String::new() } else { format!("{between}{between} ") };
    let right = if right.is_empty() { String::new() } else { format!(" {right}") };
    if columns(&right) + columns(&lead) + 8 > width {
        return shortened(&format!("{lead}{left}"), width, unicode);
    }
    let left = shortened(&format!("{lead}{left}"), width - columns(&right), unicode);
    let gap = width.saturating_sub(columns(&left) + columns(&right));
    let filling = match gap {
        0 => String::new(),
        _ => format!(" {}", between.to_string().repeat(gap - 1)),
    };
    format!("{left}{filling}{right}")
}

/// A text in lines of at most `width` columns, of which all but the first are indented.
fn wrapped(text: &str, width: usize, indent: usize) -> Vec<String> {
    let columns = |text: &str| Span::raw(text).width();
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if columns(line) + 1 + columns(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
            Some(_) => lines.push(format!("{}{word}", " ".repeat(indent))),
        }
    }
    lines
}

/// Takes rows off the top of an area.
fn cut(area: &mut Rect, rows: u16) -> Rect {
    let rows = rows.min(area.height);
    let top = Rect { height: rows, ..*area };
    area.y = area.y.saturating_add(rows);
    area.height -= rows;
    top
}

fn text(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'_>>) {
    frame.render_widget(Paragraph::new(lines), area);
}
