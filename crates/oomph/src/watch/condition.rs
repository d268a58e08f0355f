//! Conditions on a card's memory: `free>8GiB`, `used<10%`.

use std::fmt;

use anyhow::Result;
use oomph_gpu::size;
use oomph_report::WatchedGpu;

use crate::failure::hinted;

/// Once a condition holds, it ends where the memory is so much of the total beyond its limit: 2 in 100.
const HYSTERESIS: u64 = 50;

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    what: What,
    is_above: bool,
    limit: Limit,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Free,
    Used,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Limit {
    Bytes(u64),
    Percent(f64),
}

impl Condition {
    /// Reads a condition. `option` is where it was typed.
    ///
    /// # Errors
    /// When it is not a condition.
    pub fn parse(option: &str, text: &str) -> Result<Self> {
        let wrong = |what: &str| {
            let message = format!("{option} `{}`: {what}", oomph_report::clean(text));
            hinted(message, format!("write {option} 'free>8GiB', {option} 'free>20%' or {option} 'used<2GiB'"))
        };
        let trimmed = text.trim();
        let (what, rest) = match (trimmed.strip_prefix("free"), trimmed.strip_prefix("used")) {
            (Some(rest), _) => (What::Free, rest),
            (_, Some(rest)) => (What::Used, rest),
            _ => return Err(wrong("it begins with neither `free` nor `used`")),
        };
        let rest = rest.trim_start();
        let (is_above, rest) = match (rest.strip_prefix('>'), rest.strip_prefix('<')) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Err(wrong("there is neither `>` nor `<` after its first word")),
        };
        let limit = rest.strip_prefix('=').unwrap_or(rest).trim();
        let limit = match limit.strip_suffix('%') {
            Some(percent) => match percent.trim().parse::<f64>() {
                Ok(percent) if (0.0..=100.0).contains(&percent) => Limit::Percent(percent),
                _ => return Err(wrong("that is not a percentage from 0 to 100")),
            },
            None => Limit::Bytes(size::parse(limit).map_err(|error| wrong(&error.to_string()))?),
        };
        Ok(Self { what, is_above, limit, text: trimmed.to_owned() })
    }

    /// Whether it holds of a card; `None` where the card's memory is not known. One that held before (`held`) holds until
    /// the memory is clearly beyond the limit, so that a figure that trembles there says nothing again and again.
    pub fn holds(&self, card: &WatchedGpu, held: bool) -> Option<bool> {
        let total = card.total_bytes?;
        let now = match self.what {
            What::Free => card.free_bytes?,
            What::Used => card.used_bytes?,
        };
        let limit = match self.limit {
            Limit::Bytes(bytes) => bytes,
            Limit::Percent(percent) => share(total, percent),
        };
        let slack = if held { total / HYSTERESIS } else { 0 };
        Some(if self.is_above { now.saturating_add(slack) >= limit } else { now <= limit.saturating_add(slack) })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a percentage of a card, from 0 to all of it"
)]
fn share(total: u64, percent: f64) -> u64 {
    (total as f64 * percent / 100.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(free: u64) -> WatchedGpu {
        WatchedGpu {
            total_bytes: Some(100),
            used_bytes: Some(100 - free),
            free_bytes: Some(free),
            ..WatchedGpu::default()
        }
    }

    #[test]
    fn conditions_hold_of_cards() {
        let holds = |text: &str, free| Condition::parse("--until", text).unwrap().holds(&card(free), false);
        assert_eq!((holds("free>40", 50), holds("free > 60", 50)), (Some(true), Some(false)));
        assert_eq!((holds("used<=60", 50), holds("used<10%", 50)), (Some(true), Some(false)));
        assert_eq!((holds("free>20%", 20), holds("free<20%", 19)), (Some(true), Some(true)));
        assert_eq!(Condition::parse("--until", "free>1").unwrap().holds(&WatchedGpu::default(), false), None);
    }

    #[test]
    fn what_held_ends_with_a_distance() {
        let low = Condition::parse("--alert", "free<20%").unwrap();
        let held = |free| low.holds(&card(free), true);
        assert_eq!((held(21), held(22), held(23)), (Some(true), Some(true), Some(false)));
    }

    #[test]
    fn nonsense_says_what_to_write() {
        for text in
            ["", "free", "free>", "free>lots", "free>120%", "free>-1%", "busy>1GiB", "free=1GiB", "free>1 apple"]
        {
            let error = Condition::parse("--until", text).unwrap_err().to_string();
            assert!(error.starts_with("--until `"), "{error}");
        }
    }
}
