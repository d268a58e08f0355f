//! Computes which cards hold an engine that takes a share of whatever card it gets, from what the engine says of its cache.
//!
//! vLLM loads the model, measures a forward pass, and gives the rest of its share to the cache, which has to hold one
//! request of the longest length. On a smaller card only the cache is smaller.

use oomph_protocol::hook::HookEngine;

use crate::observation::Observation;

/// What an engine's share may hold less of than it may, in bytes: its cache has whole blocks, and each layer's part of it
/// whole segments of 2 MiB. What lies outside of the share appears so much smaller. (28 MiB with 28 layers: vLLM 0.32.)
const ROUNDED: u64 = 64 << 20;

/// What the engines of a run took of one card.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shared<'e> {
    /// The engines on the card.
    pub engines: &'e [HookEngine],
    /// What the card has, in bytes.
    pub capacity_bytes: u64,
    /// The most that all processes held of it, in bytes.
    pub peak_bytes: u64,
    /// The part of that which is contexts, in bytes: no engine counts them as its own.
    pub context_bytes: u64,
}

impl Shared<'_> {
    /// The capacity in bytes of the smallest card that leaves every engine the cache that it has to have, and room for what
    /// lies outside of their shares. `None` where no card does, or nothing is known.
    pub fn least_capacity(&self) -> Option<u64> {
        let total = self.capacity_bytes as f64;
        let shares: f64 = self.engines.iter().map(|engine| engine.share).sum();
        if self.engines.is_empty() || self.engines.iter().any(|engine| !(engine.share > 0.0 && engine.share <= 1.0)) {
            return None;
        }
        let for_caches = self.engines.iter().map(|engine| {
            let room = engine.available_bytes as f64 - engine.needed_bytes as f64;
            total - room / engine.share
        });
        let outside = (self.peak_bytes as f64 - shares * total).max(self.context_bytes as f64);
        let for_the_rest = match 1.0 - shares {
            left if left > 0.0 && outside > 0.0 => (outside + ROUNDED as f64) / left,
            _ if outside <= 0.0 => 0.0,
            _ => return None,
        };
        let least = for_caches.fold(for_the_rest, f64::max).ceil();
        (least > 0.0 && least <= total).then_some(least as u64)
    }
}

/// The engines on each card of a run with `cards` used cards; empty where it is not known which lie on which.
pub fn engines(run: &Observation, cards: usize) -> Vec<HookEngine> {
    let engines: Vec<HookEngine> = run.hooks.reports.iter().filter_map(|hook| hook.engine).collect();
    // One engine takes the same of each of its cards; which of several takes which card is not recorded.
    if engines.len() > 1 && cards > 1 { Vec::new() } else { engines }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn engine(share: f64, needed: u64, available: u64) -> HookEngine {
        HookEngine { share, needed_bytes: needed * GIB, available_bytes: available * GIB }
    }

    #[test]
    fn the_cache_of_one_request_decides() {
        // 80 GiB, of which 72 are the engine's: 20 for the model, and 52 for the cache, of which 7 have to be there.
        let engines = [engine(0.9, 7, 52)];
        let shared =
            Shared { engines: &engines, capacity_bytes: 80 * GIB, peak_bytes: 73 * GIB, context_bytes: GIB / 2 };
        assert_eq!(shared.least_capacity(), Some(30 * GIB), "of which 27 are the engine's: 20 and 7");
    }

    #[test]
    fn what_lies_outside_of_the_share_decides() {
        // 8 GiB of another model, where the engine takes 60 %.
        let engines = [engine(0.6, 1, 40)];
        let shared = Shared { engines: &engines, capacity_bytes: 80 * GIB, peak_bytes: 56 * GIB, context_bytes: GIB };
        let least = shared.least_capacity().unwrap();
        let rounded = (ROUNDED as f64 / 0.4) as u64;
        assert!((20 * GIB + rounded).abs_diff(least) <= 1, "{least}: 12 of 20 are the engine's");
    }

    #[test]
    fn two_engines_share_a_card() {
        let engines = [engine(0.5, 1, 31), engine(0.4, 1, 5)];
        let shared = Shared { engines: &engines, capacity_bytes: 80 * GIB, peak_bytes: 73 * GIB, context_bytes: GIB };
        assert_eq!(shared.least_capacity(), Some(70 * GIB), "the second has 4 to spare, and gets 2 of 5");
    }

    #[test]
    fn nothing_is_made_of_nothing() {
        let none = Shared { engines: &[], capacity_bytes: 80 * GIB, peak_bytes: 1, context_bytes: 1 };
        assert_eq!(none.least_capacity(), None);
        for engines in [[engine(0.0, 1, 2)], [engine(f64::NAN, 1, 2)], [engine(1.0, 1, 2)], [engine(0.9, 3, 2)]] {
            let shared = Shared { engines: &engines, ..none };
            assert_eq!(shared.least_capacity(), None, "{engines:?}");
        }
    }
}
