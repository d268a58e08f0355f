//! The state of the view: the newest reading, the history of each card, and the selected process.

use std::collections::BTreeMap;

use oomph_report::{Style, WatchReport, WatchedGpu, WatchedProcess};

use super::Key;

/// So many points of a card's course are kept: more than a terminal has columns.
const POINTS: usize = 512;

/// Page Up and Page Down go so many processes further.
const PAGE: usize = 10;

/// What is shown.
#[derive(Debug)]
pub struct View {
    /// The newest look.
    pub report: WatchReport,
    /// What the terminal can show.
    pub style: Style,
    /// The used memory of each card, by its place.
    pub courses: BTreeMap<usize, Course>,
    /// Whether the keys are explained.
    pub has_help: bool,
    /// The newest line of the log that a watch without a terminal writes.
    pub news: Option<String>,
    /// The first process that the table shows.
    pub first: usize,
    /// The time of the first look.
    began: Option<f64>,
    /// The selected process: its card's place and its id.
    selected: Option<(usize, u32)>,
}

/// The used memory of a card since the watch began.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// The most that was used in each span of looks; `None` where it was not known.
    points: Vec<Option<u64>>,
    /// A point is of so many looks.
    width: usize,
    /// The newest point has so many of them.
    filled: usize,
}

impl View {
    /// Nothing has been seen.
    pub fn new(style: Style) -> Self {
        Self {
            report: WatchReport {
                schema: oomph_report::WatchSchema,
                time: 0.0,
                cards: Vec::new(),
                driver: oomph_report::WatchCost::default(),
            },
            style,
            courses: BTreeMap::new(),
            has_help: false,
            news: None,
            first: 0,
            began: None,
            selected: None,
        }
    }

    /// Takes over a look, and the lines that a log would get.
    pub fn add(&mut self, report: &WatchReport, news: Vec<String>) {
        self.began.get_or_insert(report.time);
        self.news = news.into_iter().next_back().or_else(|| self.news.take());
        for card in &report.cards {
            self.courses.entry(card.place).or_default().add(card.used_bytes);
        }
        self.courses.retain(|place, _| report.cards.iter().any(|card| card.place == *place));
        let before = self.place();
        self.report = report.clone();
        if self.place().is_none() {
            // What comes in place of a process that has ended is selected next.
            self.select(before.unwrap_or(0));
        }
    }

    /// How long the cards are watched, in seconds.
    pub fn seconds(&self) -> f64 {
        self.began.map_or(0.0, |began| (self.report.time - began).max(0.0))
    }

    /// All processes, with their cards.
    pub fn processes(&self) -> impl Iterator<Item = (&WatchedGpu, &WatchedProcess)> {
        self.report.cards.iter().flat_map(|card| card.processes.iter().map(move |process| (card, process)))
    }

    /// The place of the selected process among [`Self::processes`].
    pub fn place(&self) -> Option<usize> {
        let selected = self.selected?;
        self.processes().position(|(card, process)| (card.place, process.pid) == selected)
    }

    /// The selected process.
    pub fn selected(&self) -> Option<(&WatchedGpu, &WatchedProcess)> {
        self.processes().nth(self.place()?)
    }

    /// Does what a key asks for.
    pub fn press(&mut self, key: Key) {
        let count = self.processes().count();
        let place = self.place().unwrap_or(0);
        match key {
            Key::Help => self.has_help = !self.has_help,
            Key::End(_) => {}
            Key::Up => self.select(if place == 0 { count.saturating_sub(1) } else { place - 1 }),
            Key::Down => self.select(if place + 1 < count { place + 1 } else { 0 }),
            Key::PageUp => self.select(place.saturating_sub(PAGE)),
            Key::PageDown => self.select(place.saturating_add(PAGE)),
            Key::First => self.select(0),
            Key::Last => self.select(count),
        }
    }

    /// Selects the process at a place, or the last one.
    fn select(&mut self, place: usize) {
        let last = self.processes().count().saturating_sub(1);
        let selected = self.processes().nth(place.min(last)).map(|(card, process)| (card.place, process.pid));
        self.selected = selected;
    }
}

impl Course {
    fn add(&mut self, used: Option<u64>) {
        let is_begun = self.filled > 0 && self.filled < self.width;
        match self.points.last_mut() {
            // The most of a span is what fills a card.
            Some(last) if is_begun => {
                *last = used.max(*last);
                self.filled += 1;
            }
            _ => {
                self.points.push(used);
                self.filled = 1;
            }
        }
        if self.points.len() > POINTS {
            self.points = self.points.chunks(2).map(|pair| pair.iter().copied().max().flatten()).collect();
            self.width = self.width.max(1) * 2;
            // The last point had no second one, and goes on to be filled.
        }
    }

    /// The course in at most `columns` columns, from the beginning of the watch to now.
    pub fn shown(&self, columns: usize) -> Vec<Option<u64>> {
        let count = self.points.len();
        if count <= columns {
            return self.points.clone();
        }
        let span = |column: usize| column * count / columns..(column + 1) * count / columns;
        (0..columns).map(|column| self.points[span(column)].iter().copied().max().flatten()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_course_reaches_back_to_the_beginning_and_keeps_peaks() {
        let mut course = Course::default();
        for look in 0..10_000 {
            course.add(Some(if look == 3 { 9 } else { 1 }));
            assert!(course.points.len() <= POINTS);
        }
        assert!(course.points.len() > POINTS / 2 && course.points.len() * course.width < 10_000 + course.width);
        let shown = course.shown(7);
        assert_eq!(shown, [Some(9), Some(1), Some(1), Some(1), Some(1), Some(1), Some(1)]);
        assert_eq!(course.shown(0), []);
        let mut blind = Course::default();
        [None, Some(4), None].into_iter().for_each(|used| blind.add(used));
        assert_eq!(blind.shown(9), [None, Some(4), None]);
        assert_eq!(blind.shown(1), [Some(4)]);
    }
}
