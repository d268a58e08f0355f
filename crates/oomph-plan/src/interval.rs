//! Turns one number into an interval and a probability.
//!
//! The widths are no guess: `data/intervals.toml` holds quantiles of truth over prediction on the readings of
//! `calibration/`, by family and task, and is written by the command that compares the two.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// Between which the true peak lies, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Interval {
    /// Lower than this in one case of two hundred.
    pub low: u64,
    /// As often lower as higher.
    pub expected: u64,
    /// Higher than this in one case of two hundred.
    pub high: u64,
}

/// The quantiles of one family and task.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Quantiles {
    /// The family of the model; empty for all that have no entry.
    pub family: String,
    /// The task; empty for all.
    pub task: String,
    /// How many readings they rest on.
    pub rows: u64,
    /// Truth over prediction: half a percent are below.
    pub low: f64,
    /// Half are below.
    pub middle: f64,
    /// Half a percent are above.
    pub high: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    interval: Vec<Quantiles>,
}

static QUANTILES: LazyLock<Vec<Quantiles>> = LazyLock::new(|| {
    let file: Result<File, _> = serde_json::from_str(include_str!(concat!(env!("OUT_DIR"), "/intervals.json")));
    file.map_or_else(|_| Vec::new(), |file| file.interval)
});

/// Widths where nothing was read of a family: what the worst of the known ones need, with room.
const UNKNOWN: Quantiles =
    Quantiles { family: String::new(), task: String::new(), rows: 0, low: 0.85, middle: 1.0, high: 1.2 };

/// How far predictions are from the truth where no readings support them.
#[must_use]
pub fn unread() -> Quantiles {
    UNKNOWN
}

/// How far predictions for a family and a task are from the truth.
#[must_use]
pub fn quantiles(family: &str, task: &str) -> Quantiles {
    let find =
        |family: &str, task: &str| QUANTILES.iter().find(|entry| entry.family == family && entry.task == task).cloned();
    find(family, task)
        .or_else(|| find(family, ""))
        .or_else(|| find("", task))
        .or_else(|| find("", ""))
        .unwrap_or(UNKNOWN)
}

impl Interval {
    /// Around a prediction in bytes.
    #[must_use]
    pub fn around(prediction: u64, quantiles: &Quantiles) -> Self {
        let times = |factor: f64| (prediction as f64 * factor) as u64;
        Self { low: times(quantiles.low), expected: times(quantiles.middle), high: times(quantiles.high) }
    }

    /// The interval of a sum with another that varies independently.
    #[must_use]
    pub fn plus(self, low: u64, expected: u64, high: u64) -> Self {
        Self {
            low: self.low.saturating_add(low),
            expected: self.expected.saturating_add(expected),
            high: self.high.saturating_add(high),
        }
    }

    /// How likely it is that the truth is at most so many bytes: a normal distribution on either side of what is
    /// expected, whose 0.5 % and 99.5 % lie at the bounds.
    #[must_use]
    pub fn probability_within(self, bytes: u64) -> f64 {
        let (side, width) = if bytes >= self.expected {
            (1.0, self.high.saturating_sub(self.expected))
        } else {
            (-1.0, self.expected.saturating_sub(self.low))
        };
        let distance = bytes.abs_diff(self.expected) as f64;
        // 2.576 standard deviations hold 99 %.
        let deviations = if width == 0 { f64::INFINITY } else { 2.576 * distance / width as f64 };
        normal(side * deviations.min(40.0))
    }
}

/// The normal distribution's cumulative function (Abramowitz and Stegun, 26.2.17; error below 1e-7).
fn normal(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let series =
        t * (0.319_381_530 + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    let tail = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * series;
    if x >= 0.0 { 1.0 - tail } else { tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_quantiles_are_read() {
        assert!(!QUANTILES.is_empty());
        assert!(QUANTILES.iter().all(|entry| entry.low <= entry.middle && entry.middle <= entry.high));
    }

    #[test]
    fn probabilities_follow_the_bounds() {
        let interval = Interval { low: 900, expected: 1000, high: 1200 };
        assert!((interval.probability_within(1000) - 0.5).abs() < 1e-6);
        assert!((interval.probability_within(1200) - 0.995).abs() < 1e-3);
        assert!((interval.probability_within(900) - 0.005).abs() < 1e-3);
        assert!(interval.probability_within(2000) > 0.999_999);
        let exact = Interval { low: 5, expected: 5, high: 5 };
        assert!(exact.probability_within(6) > 0.999);
        assert!(exact.probability_within(4) < 0.001);
    }
}
