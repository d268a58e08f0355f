//! Reports what has changed since the last reading, one line each, for logs.

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat};
use oomph_gpu::size;
use oomph_report::{Trend, WatchReport, WatchedGpu, WatchedProcess, clean, outlook_words};

use crate::syntax::Condition;

/// A date is said again where it has moved by more than this share of itself.
const MOVED: u64 = 10;

/// A trend is said once so many looks in a row agree on it.
const AGREEING: u32 = 3;

/// A command line is cut at this many characters.
const COMMAND: usize = 60;

/// What was said so far.
#[derive(Debug)]
pub struct Lines {
    alerts: Vec<Condition>,
    /// Which conditions hold, by card and condition.
    held: BTreeMap<(usize, usize), bool>,
    processes: BTreeMap<(usize, u32), Said>,
    is_begun: bool,
}

/// What was said of a process.
#[derive(Clone, Debug, Default)]
struct Said {
    trend: Trend,
    full_at_step: Option<u64>,
    /// A trend that may be said soon, and how many looks agree on it.
    next: (Trend, u32),
    /// Its name, and what it held at most.
    name: String,
    peaks: Option<String>,
}

impl Lines {
    /// Nothing has been said.
    pub fn new(alerts: Vec<Condition>) -> Self {
        Self { alerts, held: BTreeMap::new(), processes: BTreeMap::new(), is_begun: false }
    }

    /// What is to be said after a look.
    pub fn of(&mut self, report: &WatchReport) -> Vec<String> {
        let time = stamp(report.time);
        let mut lines = Vec::new();
        for card in &report.cards {
            if !self.is_begun {
                lines.push(format!("{time} {}: {}", name(card), memory(card)));
            }
            self.crossings(card, &time, &mut lines);
            for process in &card.processes {
                self.process(card, process, &time, &mut lines);
            }
        }
        let is_there = |place: usize, pid: u32| {
            report.cards.iter().any(|card| card.place == place && card.processes.iter().any(|one| one.pid == pid))
        };
        self.processes.retain(|(place, pid), said| {
            let stays = is_there(*place, *pid);
            if !stays {
                let peaks = said.peaks.as_deref().map_or_else(String::new, |peaks| format!(": {peaks}"));
                lines.push(format!("{time} GPU {place}: {} has left{peaks}", said.name));
            }
            stays
        });
        self.is_begun = true;
        lines
    }

    fn crossings(&mut self, card: &WatchedGpu, time: &str, lines: &mut Vec<String>) {
        for (number, alert) in self.alerts.iter().enumerate() {
            let held = self.held.entry((card.place, number)).or_default();
            let Some(holds) = alert.holds(card, *held) else { continue };
            if holds != *held {
                let word = if holds { "" } else { "no longer " };
                lines.push(format!("{time} {}: {word}{alert}: {}", name(card), memory(card)));
                *held = holds;
            }
        }
    }

    fn process(&mut self, card: &WatchedGpu, process: &WatchedProcess, time: &str, lines: &mut Vec<String>) {
        let said = self.processes.entry((card.place, process.pid)).or_insert_with(|| {
            let command = process.command.as_deref().map_or_else(String::new, |command| {
                let cut: String = command.chars().take(COMMAND).collect();
                format!(" {}", clean(&cut))
            });
            let name = format!("{}{command}", process.pid);
            let bytes = process.driver_bytes.map_or_else(String::new, |bytes| format!(", {}", size::format(bytes)));
            lines.push(format!("{time} GPU {}: {name} is on it{bytes}", card.place));
            Said { name, ..Said::default() }
        });
        let Some(framework) = &process.framework else { return };
        let reserved = framework.reserved_peak_bytes;
        let reserved = reserved.map_or_else(String::new, |peak| format!(", reserved {}", size::format(peak)));
        let allocated = size::format(framework.allocated_peak_bytes);
        said.peaks = Some(format!("step {}, peak allocated {allocated}{reserved}", framework.step));
        let Some(outlook) = &framework.outlook else { return };
        let (trend, looks) = said.next;
        said.next = if trend == outlook.trend { (trend, looks.saturating_add(1)) } else { (outlook.trend, 1) };
        let is_new = outlook.trend != said.trend;
        let has_moved = match (said.full_at_step, outlook.full_at_step) {
            (Some(before), Some(now)) => before.abs_diff(now) > now / MOVED,
            (before, now) => before.is_some() != now.is_some(),
        };
        if said.next.1 >= AGREEING && outlook.trend != Trend::Unknown && (is_new || has_moved) {
            lines.push(format!("{time} GPU {}: {}: {}", card.place, said.name, outlook_words(outlook)));
            said.trend = outlook.trend;
            said.full_at_step = outlook.full_at_step;
        }
    }
}

fn name(card: &WatchedGpu) -> String {
    format!("GPU {} ({})", card.place, clean(&card.name))
}

fn memory(card: &WatchedGpu) -> String {
    match (card.free_bytes, card.total_bytes) {
        (Some(free), Some(total)) => format!("{} of {} free", size::format(free), size::format(total)),
        _ => clean(card.memory_reason.as_deref().unwrap_or("its memory is not known")).into_owned(),
    }
}

/// A time in seconds since 1970, as logs have it.
fn stamp(time: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "a time of day in milliseconds is far from the limits")]
    let moment = DateTime::from_timestamp_millis((time * 1000.0) as i64).unwrap_or_default();
    moment.to_rfc3339_opts(SecondsFormat::Secs, true)
}

#[cfg(test)]
mod tests {
    use oomph_report::{WatchCost, WatchSchema, WatchedFramework, WatchedOutlook};

    use super::*;

    fn report(free: u64, processes: Vec<WatchedProcess>) -> WatchReport {
        let card = WatchedGpu {
            name: "card".into(),
            total_bytes: Some(1000 << 20),
            used_bytes: Some((1000 - free) << 20),
            free_bytes: Some(free << 20),
            processes,
            ..WatchedGpu::default()
        };
        WatchReport { schema: WatchSchema, time: 0.0, cards: vec![card], driver: WatchCost::default() }
    }

    fn process(trend: Trend, full: Option<u64>) -> WatchedProcess {
        let outlook = WatchedOutlook { trend, full_at_step: full, ..WatchedOutlook::default() };
        WatchedProcess {
            pid: 7,
            framework: Some(WatchedFramework { outlook: Some(outlook), ..WatchedFramework::default() }),
            ..WatchedProcess::default()
        }
    }

    #[test]
    fn a_crossing_is_one_line_however_the_figure_trembles() {
        let mut lines = Lines::new(vec![Condition::nearly_full()]);
        let first = lines.of(&report(500, vec![]));
        assert_eq!(first, ["1970-01-01T00:00:00Z GPU 0 (card): 500.00 MiB of 1000.00 MiB free"]);
        let counts: Vec<usize> =
            [101, 99, 101, 99, 110, 119].map(|free| lines.of(&report(free, vec![])).len()).to_vec();
        assert_eq!(counts, [0, 1, 0, 0, 0, 0]);
        let over = lines.of(&report(121, vec![]));
        assert!(over[0].contains("no longer free<10%"), "{over:?}");
        assert_eq!(lines.of(&report(121, vec![])).len(), 0);
    }

    #[test]
    fn a_trend_is_said_once_it_is_agreed_on_and_again_when_its_date_moves() {
        let mut lines = Lines::new(vec![]);
        let mut printed = |trend, full| lines.of(&report(500, vec![process(trend, full)]));
        assert!(printed(Trend::Unknown, None)[1].contains("7 is on it"));
        assert!(printed(Trend::Leak, Some(1000)).is_empty());
        assert!(printed(Trend::Fluctuating, None).is_empty());
        assert!(printed(Trend::Leak, Some(1000)).is_empty() && printed(Trend::Leak, Some(1000)).is_empty());
        assert!(printed(Trend::Leak, Some(1000))[0].contains("leak"));
        assert!(printed(Trend::Leak, Some(1050)).is_empty());
        assert_eq!(printed(Trend::Leak, Some(1500)).len(), 1);
        assert!(lines.of(&report(500, vec![]))[0].contains("7 has left: step 0, peak allocated"));
    }
}
