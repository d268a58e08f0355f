//! Measures how far the same program may differ on another machine: many replays, each of which differs from the
//! recording in what a real card may do differently.
//!
//! What a program holds is decided by its code. What an allocator *reserves* for it depends on the places of a few blocks, and
//! these on things that no recording fixes: where the driver puts segments, which of its convolution algorithms cuDNN
//! takes, when another stream has finished with a block, in which order batches of different sizes come. Each replay draws
//! all of these again.

mod batches;
mod chances;

use crate::machine::Capacity;
use crate::model::Model;
use crate::replay::Replay;
use crate::script::Script;

/// How many replays a spread is made of, where a replay is cheap.
pub const REPLAYS: u32 = 100;
/// The fewest replays.
const FEWEST: u32 = 16;
/// So many requests are replayed in all, which takes about a second.
const REQUESTS: usize = 12_000_000;
/// One replay more than were made comes out above the highest of n with a chance of 1 in n + 1. Where n is small, the
/// upper end is put higher, by this part of the width a missing replay.
const BEYOND: f64 = 0.01;

/// What may differ in a replay, in addition to the places of segments and the moments at which streams finish.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlike<'a> {
    /// The places of events after which the optimizer's steps end, ascending: batches between them may come in another
    /// order.
    pub step_ends: &'a [usize],
    /// Whether cuDNN may take other algorithms than those of the recording, as where another version of it was asked.
    pub workspaces: bool,
}

/// What a program reserved in replays that differ in what another machine may do differently, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The replay in which nothing differs.
    pub recorded: u64,
    /// The others, ascending. Where a replay died, it counts with what was reserved and what could not be had.
    pub replays: Vec<u64>,
    /// How many of them died for lack of memory.
    pub died: u32,
}

impl Spread {
    /// The lower end: no replay reserved less.
    pub fn low(&self) -> u64 {
        self.replays.first().copied().unwrap_or(self.recorded).min(self.recorded)
    }

    /// The upper end: no replay reserved more, and where there were few of them it lies somewhat higher.
    pub fn high(&self) -> u64 {
        let highest = self.replays.last().copied().unwrap_or(self.recorded).max(self.recorded);
        let missing = REPLAYS.saturating_sub(u32::try_from(self.replays.len()).unwrap_or(REPLAYS));
        let beyond = (highest - self.low()) as f64 * BEYOND * f64::from(missing);
        highest.saturating_add(beyond as u64)
    }
}

impl Script {
    /// How many replays [`Script::spread`] makes of this script in acceptable time.
    pub fn affordable_replays(&self) -> u32 {
        let affordable = u32::try_from(REQUESTS / self.len().max(1)).unwrap_or(REPLAYS);
        affordable.clamp(FEWEST, REPLAYS)
    }

    /// Replays the script with each of `seeds`.
    pub fn spread(
        &self,
        model: &Model,
        capacity: Capacity,
        unlike: &Unlike<'_>,
        seeds: impl Iterator<Item = u64>,
    ) -> Spread {
        let recorded = self.replay(model, capacity, crate::Start::Cold);
        let order = batches::Batches::of(self, unlike.step_ends);
        let (mut replays, mut died) = (Vec::new(), 0);
        for seed in seeds {
            let mut chances = fastrand::Rng::with_seed(seed);
            let mut script = order.shuffled(self, &mut chances);
            if unlike.workspaces {
                script.draw_workspaces(&mut chances);
            }
            script.draw_completions(&mut chances);
            let replay = script.replay_scattered(model, capacity, seed);
            died += u32::from(!replay.survived);
            replays.push(demanded(&replay));
        }
        replays.sort_unstable();
        Spread { recorded: demanded(&recorded), replays, died }
    }
}

/// What a replay reserved at most, with what ended it, in bytes.
fn demanded(replay: &Replay) -> u64 {
    let refused = replay.oom.map_or(0, |failure| failure.oom.reserved.saturating_add(failure.oom.segment));
    replay.peak_reserved().max(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_replays_leave_room_above_the_highest() {
        let many = Spread { recorded: 150, replays: (100..200).collect(), died: 0 };
        assert_eq!((many.low(), many.high()), (100, 199));
        let few = Spread { recorded: 150, replays: vec![100, 200], died: 0 };
        assert_eq!((few.low(), few.high()), (100, 298));
        let none = Spread { recorded: 150, replays: Vec::new(), died: 0 };
        assert_eq!((none.low(), none.high()), (150, 150));
    }
}
