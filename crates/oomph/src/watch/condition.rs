//! Decides whether a condition on memory holds of a card.

use oomph_report::WatchedGpu;

use crate::syntax::{Condition, Memory};

/// Once a condition holds, it ends where the memory is so much of the total beyond its limit: 2 in 100.
const HYSTERESIS: u64 = 50;

impl Condition {
    /// Whether it holds of a card; `None` where the card's memory is not known. One that held before (`held`) holds until
    /// the memory is clearly beyond the limit, so that a figure that trembles there says nothing again and again.
    pub fn holds(&self, card: &WatchedGpu, held: bool) -> Option<bool> {
        let total = card.total_bytes?;
        let now = match self.memory {
            Memory::Free => card.free_bytes?,
            Memory::Used => card.used_bytes?,
        };
        let limit = self.limit.of(total);
        let slack = if held { total / HYSTERESIS } else { 0 };
        Some(if self.is_above { now.saturating_add(slack) >= limit } else { now <= limit.saturating_add(slack) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::condition;

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
        let holds = |text: &str, free| condition("--until", text).unwrap().holds(&card(free), false);
        assert_eq!((holds("free>40", 50), holds("free > 60", 50)), (Some(true), Some(false)));
        assert_eq!((holds("used<=60", 50), holds("used<10%", 50)), (Some(true), Some(false)));
        assert_eq!((holds("free>20%", 20), holds("free<20%", 19)), (Some(true), Some(true)));
        assert_eq!(condition("--until", "free>1").unwrap().holds(&WatchedGpu::default(), false), None);
    }

    #[test]
    fn what_held_ends_with_a_distance() {
        let low = condition("--alert", "free<20%").unwrap();
        let held = |free| low.holds(&card(free), true);
        assert_eq!((held(21), held(22), held(23)), (Some(true), Some(true), Some(false)));
    }
}
