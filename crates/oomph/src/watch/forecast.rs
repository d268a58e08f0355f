//! Forecasts a process's memory from what it held at the ends of its steps.
//!
//! What is compared lies at equal phases, the ends of optimizer steps, and the line through it is drawn by the median of
//! the slopes between all pairs of points (Theil and Sen), which a few outliers do not move. A date is given only where
//! the three thirds of what was seen grow alike and what deviates from the line is small against its growth; anything
//! else that moves is called fluctuating.

use oomph_report::{Trend, WatchedOutlook};

/// So many samples are kept; then every second one is dropped, so that they always reach back to the beginning.
const MOST: usize = 120;

/// Fewer say nothing.
const LEAST: usize = 12;

/// A smaller growth, in bytes, is the allocator's rounding.
const LEAST_GROWTH: f64 = 1024.0 * 1024.0;

/// A leak's line is not drawn on for more than so many times the steps that were seen.
const REACH: f64 = 100.0;

/// That of growing inputs: they come to an end, which leaks do not.
const REACH_OF_INPUTS: f64 = 10.0;

/// What a step needs grows at least so much of what leaks, or it is not the leak that it shows.
const LEAST_OF_LEAK: f64 = 0.5;

/// Samples that say what is the case now.
const RECENT: usize = 5;

/// What a process held at the end of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When, in seconds since any moment.
    pub seconds: f64,
    /// The optimizer steps of the training.
    pub step: u64,
    /// Live tensors, in bytes.
    pub allocated: u64,
    /// The peak of live tensors so far.
    pub peak: u64,
    /// What the allocator had taken from the card.
    pub reserved: u64,
    /// Of that, free pieces next to live tensors.
    pub fragments: u64,
    /// What it could have taken: that, and what was free on the card.
    pub room: Option<u64>,
}

/// What was seen of a process.
#[derive(Clone, Debug, Default)]
pub struct Series {
    samples: Vec<Sample>,
    /// One of so many is kept; 0 before any was dropped.
    stride: u64,
    /// How many were added.
    added: u64,
    /// The newest one is there only until the next comes.
    is_passing: bool,
}

/// A straight line through points.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    slope: f64,
    intercept: f64,
}

impl Series {
    /// Adds what was seen; a step that was seen before says nothing new, and an earlier one begins again.
    pub fn add(&mut self, sample: Sample) {
        if let Some(last) = self.samples.last() {
            if sample.step < last.step {
                *self = Self::default();
            } else if sample.step == last.step {
                return;
            }
        }
        self.added += 1;
        match self.samples.last_mut() {
            Some(last) if self.is_passing => *last = sample,
            _ => self.samples.push(sample),
        }
        self.is_passing = !self.added.is_multiple_of(self.stride.max(1));
        if self.samples.len() > MOST {
            let mut place = 0;
            self.samples.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.stride = (self.stride * 2).max(2);
        }
    }

    /// Where it is heading.
    pub fn outlook(&self) -> WatchedOutlook {
        let (Some(first), Some(last)) = (self.samples.first(), self.samples.last()) else {
            return WatchedOutlook::default();
        };
        let recent = &self.samples[self.samples.len().saturating_sub(RECENT)..];
        let room = median(recent.iter().filter_map(|sample| sample.room.map(float)).collect());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a median of sizes is one")]
        let headroom_bytes = room.map(|room| (room as u64).saturating_sub(last.peak));
        let steps = last.step - first.step;
        let seconds_per_step = (steps > 0).then(|| (last.seconds - first.seconds).max(0.0) / float(steps));
        let nothing =
            WatchedOutlook { headroom_bytes, seconds_per_step, steps_seen: steps, ..WatchedOutlook::default() };
        if self.samples.len() < LEAST {
            return nothing;
        }
        let of = |what: &dyn Fn(&Sample) -> u64| -> Vec<(f64, f64)> {
            self.samples.iter().map(|sample| (float(sample.step), float(what(sample)))).collect()
        };
        let (allocated, peak, reserved) = (of(&|one| one.allocated), of(&|one| one.peak), of(&|one| one.reserved));
        let (trend, growth, filling, limit) = if let Some(leak) = growing(&allocated) {
            // What a leak keeps is of the same sizes in each step, so that a piece between live tensors that no step has filled
            // so far is lost: a step needs its peak and these pieces.
            let needed = of(&|one| one.reserved.min(one.peak.saturating_add(one.fragments)));
            let needed = growing(&needed).or_else(|| line(&needed));
            if let Some(needed) = needed.filter(|needed| needed.slope >= LEAST_OF_LEAK * leak.slope) {
                (Trend::Leak, leak, needed, room)
            } else {
                // An early peak hides it. The card is full when a step's own peak, which lies above what remains at its end,
                // finds no room.
                let above = median(recent.iter().map(|one| float(one.peak.saturating_sub(one.allocated))).collect());
                let above = above.unwrap_or(0.0);
                let pinned = median(recent.iter().map(|one| float(one.fragments) - above).collect()).unwrap_or(0.0);
                (Trend::Leak, leak, leak, room.map(|room| room - above - pinned.max(0.0) / 2.0))
            }
        } else if !is_steady(&allocated) {
            return WatchedOutlook { trend: Trend::Fluctuating, ..nothing };
        } else if let Some(line) = growing(&peak) {
            (Trend::GrowingInputs, line, line, room)
        } else if !is_steady(&peak) {
            return WatchedOutlook { trend: Trend::Fluctuating, ..nothing };
        } else if let Some(line) = growing(&reserved) {
            // What is cached goes back to the card before an allocation fails, so that no date follows.
            (Trend::Fragmentation, line, line, None)
        } else {
            return WatchedOutlook { trend: Trend::Steady, ..nothing };
        };
        let reach = if trend == Trend::GrowingInputs { REACH_OF_INPUTS } else { REACH };
        let left = limit.map(|limit| ((limit - filling.intercept) / filling.slope - float(last.step)).max(0.0));
        let left = left.filter(|left| left.is_finite() && *left <= reach * float(steps));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most a hundred times the steps"
        )]
        let full_at_step = left.map(|left| last.step.saturating_add(left.ceil() as u64));
        WatchedOutlook {
            trend,
            bytes_per_step: Some(growth.slope),
            full_at_step,
            full_in_seconds: left.zip(seconds_per_step).map(|(left, pace)| left * pace),
            ..nothing
        }
    }
}

/// The line of what grows steadily, through all of it or through the newer half of it.
fn growing(points: &[(f64, f64)]) -> Option<Line> {
    let half = points.get(points.len() / 2..).unwrap_or_default();
    straight(points, 0.25, 0.25).or_else(|| straight(half, 0.1, 0.06))
}

/// The line through points that grow, whose thirds have its slope but for the share `bend`, and most of which deviate from
/// it by less than the share `noise` of the growth.
fn straight(points: &[(f64, f64)], bend: f64, noise: f64) -> Option<Line> {
    if points.len() < LEAST {
        return None;
    }
    let line = line(points)?;
    let growth = line.slope * (points.last()?.0 - points.first()?.0);
    if growth < LEAST_GROWTH {
        return None;
    }
    let off = |points: &[(f64, f64)]| -> Vec<f64> {
        points.iter().map(|(x, y)| (y - line.intercept - line.slope * x).abs()).collect()
    };
    // A fall to where it began leaves most points on a line, and the newest ones far from it.
    let newest = median(off(points.get(points.len() - RECENT..)?))?;
    let mut all = off(points);
    all.sort_by(f64::total_cmp);
    let most = all.get(all.len() * 85 / 100).copied()?.max(newest);
    let third = points.len() / 3;
    let thirds = [points.get(..third)?, points.get(third..2 * third)?, points.get(2 * third..)?];
    let alike = thirds
        .iter()
        .all(|part| self::line(part).is_some_and(|part| (part.slope - line.slope).abs() <= bend * line.slope));
    (alike && most <= noise * growth).then_some(line)
}

/// Whether points lie within one percent of each other, but for a tenth of them.
fn is_steady(points: &[(f64, f64)]) -> bool {
    let mut sorted: Vec<f64> = points.iter().map(|point| point.1).collect();
    sorted.sort_by(f64::total_cmp);
    let cut = sorted.len() / 20;
    let (Some(low), Some(high)) = (sorted.get(cut), sorted.get(sorted.len().saturating_sub(cut + 1))) else {
        return true;
    };
    high - low <= (high * 0.01).max(2.0 * LEAST_GROWTH)
}

/// The line of Theil and Sen.
fn line(points: &[(f64, f64)]) -> Option<Line> {
    let mut slopes = Vec::with_capacity(points.len() * points.len() / 2);
    for (place, first) in points.iter().enumerate() {
        for second in points.iter().skip(place + 1) {
            if second.0 > first.0 {
                slopes.push((second.1 - first.1) / (second.0 - first.0));
            }
        }
    }
    let slope = median(slopes)?;
    let intercept = median(points.iter().map(|(x, y)| y - slope * x).collect())?;
    Some(Line { slope, intercept })
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = *values.get((values.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

/// Sizes and steps are far below where this loses anything that matters.
#[expect(clippy::cast_precision_loss, reason = "what is lost of a size is less than a page of it")]
fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
#[path = "forecast_tests.rs"]
mod tests;
