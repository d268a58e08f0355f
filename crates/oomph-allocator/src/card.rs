//! Finds the smallest card on which a trace survives.

use crate::machine::Capacity;
use crate::model::Model;
use crate::replay::{Replay, Start};
use crate::script::Script;

/// The driver gives memory in these steps, in bytes.
const STEP: u64 = 2 << 20;
/// How many sizes above the answer are tried as well.
const PROBES: u64 = 3;

/// The answer of [`Script::smallest_card`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmallestCard {
    /// The least memory for the allocator, in bytes: the card needs this much in addition to contexts and other
    /// libraries. It includes what libraries take for a moment, where the script has it ([`Script::take_outside`]).
    pub available: u64,
    /// The replay on that card.
    pub replay: Replay,
    /// A larger card was found on which the trace dies; the answer is above all such cards that were tried.
    pub irregular: bool,
    /// How much smaller a card may be at most, in bytes: 0 unless the search was cut short
    /// ([`Script::smallest_card_within`]).
    pub unsearched: u64,
}

impl Script {
    /// The least memory on which the script survives, to 2 MiB; `None` if no card is large enough, which settings with
    /// a memory fraction of 0 can bring about. `other` is what something else uses of the card, in bytes.
    ///
    /// More memory is not always better: on a larger card PyTorch flushes its cache later, and can then be left with
    /// worse fragments. So bisection finds one border between dying and surviving, then some larger sizes are tried,
    /// and where one of them dies the search goes on above it. A card between two sizes that were tried may still die.
    pub fn smallest_card(&self, model: &Model, other: u64) -> Option<SmallestCard> {
        let run = |available: u64| {
            let total = available.saturating_add(other);
            self.replay(model, Capacity { total, available }, Start::Cold)
        };
        let (mut low, mut high) = self.bounds(&self.replay(model, Capacity::UNLIMITED, Start::Cold))?;
        let mut at_high = run(high);
        while !at_high.survived {
            if high >= Capacity::UNLIMITED.total {
                return None;
            }
            low = high + STEP;
            high = high.saturating_mul(2);
            at_high = run(high);
        }
        let ceiling = high;
        let mut irregular = false;
        loop {
            let (border, replay, _) = bisect(low, high, at_high, u32::MAX, &run);
            let gap = (ceiling - border) / STEP;
            // Each probe is twice as far above the border as the one before.
            let died = (0..PROBES)
                .map(|probe| border + (1 << probe) * STEP)
                .chain((1..PROBES).map(|part| border + gap * part / PROBES * STEP))
                .filter(|&size| size > border && size < ceiling)
                .filter(|&size| !run(size).survived)
                .max();
            match died {
                Some(size) => {
                    irregular = true;
                    low = size + STEP;
                    high = ceiling;
                    at_high = run(ceiling);
                }
                None => return Some(SmallestCard { available: border, replay, irregular, unsearched: 0 }),
            }
        }
    }

    /// Like [`Script::smallest_card`], in so many replays, for traces of which one takes long: the card that is found is
    /// replayed, and [`SmallestCard::unsearched`] says how much smaller one may be. `free` is the replay without a
    /// limit. `None` also where a card as large as what that one reserved does not do.
    pub fn smallest_card_within(&self, model: &Model, other: u64, free: &Replay, replays: u32) -> Option<SmallestCard> {
        let run = |available: u64| {
            let total = available.saturating_add(other);
            self.replay(model, Capacity { total, available }, Start::Cold)
        };
        let (low, high) = self.bounds(free)?;
        let at_high = run(high);
        let (available, replay, unsearched) = bisect(low, high, at_high, replays.saturating_sub(1), &run);
        replay.survived.then_some(SmallestCard { available, replay, irregular: false, unsearched })
    }

    /// Between which sizes the smallest card lies: what the program held at once, and what a replay without limit
    /// reserved, with what libraries take. The latter is enough unless a fraction of the card is kept back.
    fn bounds(&self, free: &Replay) -> Option<(u64, u64)> {
        let low = self.peak_requested() / STEP * STEP;
        let reserved = free.peak_reserved().saturating_add(self.most_outside());
        Some((low, reserved.max(low).checked_next_multiple_of(STEP)?))
    }
}

/// The border between dying and surviving, if there is but one, from `low` to `high`, which survives, and how far below
/// it the search ended for lack of replays.
fn bisect(
    mut low: u64,
    mut high: u64,
    mut at_high: Replay,
    replays: u32,
    run: &impl Fn(u64) -> Replay,
) -> (u64, Replay, u64) {
    for _ in 0..replays {
        if low >= high {
            break;
        }
        let middle = low + (high - low) / STEP / 2 * STEP;
        let replay = run(middle);
        if replay.survived {
            (high, at_high) = (middle, replay);
        } else {
            low = middle + STEP;
        }
    }
    (high, at_high, high.saturating_sub(low))
}
