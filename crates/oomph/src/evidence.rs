//! Evidence of a program's need from other runs than the one that an answer is about, and from replays.

use oomph_allocator::Spread;

use crate::cards::Card;
use crate::observation::Observation;

/// The need of a program is known where it was seen to die with this part less; otherwise the search was cut short.
pub const CLOSE: u64 = 40;

/// What is known of a program's need from other runs than the one that the answer is about.
#[derive(Clone, Copy, Default)]
pub struct Evidence<'a> {
    /// The run on cards without a limit.
    pub probe: Option<&'a Observation>,
    /// The smallest cards that hold it, from runs.
    pub found: Option<&'a Found>,
    /// The same for each card from replays, where nothing was run.
    pub foretold: &'a [Option<Foretold>],
    /// How far each card's reserved bytes may come out otherwise on a real one, by replays of the run.
    pub spreads: &'a [Option<Spread>],
    /// Capacities on which it was run and died, in bytes, ascending.
    pub died_with: &'a [u64],
    /// Cards of the catalogue of which runs say whether they hold it: those that it was run on, and those that are no larger
    /// than one that did not hold it.
    pub run_on: &'a [(String, bool)],
}

/// The smallest card that holds a program, from runs.
#[derive(Debug)]
pub struct Found {
    /// The run on the smallest capacity that held it.
    pub run: Observation,
    /// What each card had there, in bytes.
    pub cards: Vec<Card>,
    /// The part of it, in bytes, that each card needs of that.
    pub capacities: Vec<u64>,
    /// What each card had, in bytes, where it was seen to die just below.
    pub fails: Option<Vec<u64>>,
    /// How many runs it took.
    pub runs: u32,
    /// The capacities of the fullest card that it was run on, in bytes, and whether they held it.
    pub tried: Vec<(u64, bool)>,
    /// How far each card's reserved bytes may come out otherwise on a real one.
    pub spreads: Vec<Option<Spread>>,
}

/// What a replay says of one card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foretold {
    /// The least that the allocator can do with, in bytes, where every workspace is to be had.
    pub firm: u64,
    /// The same where cuDNN's convolutions do with less workspace.
    pub least: u64,
    /// What the allocator reserves without a limit.
    pub reserved: u64,
}

impl Foretold {
    /// Whether the replay was of all that reserved so much, in bytes: a process that is killed while others end leaves a
    /// recording of its beginning.
    pub fn is_whole(&self, reserved: u64) -> bool {
        self.reserved >= reserved - reserved / 50
    }
}

/// What replays say of one card on which memory grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreseen {
    /// The loop: its file and its line.
    pub place: (String, u32),
    /// What the allocator has to be able to take for the whole loop, in bytes.
    pub allocator_bytes: u64,
    /// The iteration, from 1 and counted from the last that was run, in which this card is full; `None` where it is not.
    pub full_after: Option<u64>,
}
