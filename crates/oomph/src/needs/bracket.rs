//! Closes in on the smallest capacity that holds a program, with as few runs as possible.
//!
//! A replay foretells the capacity; the run there and one just below it are all that is needed where it is right. Where
//! it is wrong the search goes on from there in ever wider steps until one run holds and one dies, and halves what is
//! between.

use super::Border;
use crate::evidence::CLOSE;

/// The driver gives memory in these steps, in bytes.
pub const GRANULE: u64 = 2 << 20;

/// How closely a border is to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closeness {
    /// The same run on every card: as closely as the sizes of cards differ.
    Exact,
    /// A program that adapts to the card, whose every run is a start and a compilation of its own.
    Adapting,
}

impl Closeness {
    /// The answer is at most this part above a capacity that was seen to be too small.
    fn part(self) -> u64 {
        match self {
            Self::Exact => 100,
            Self::Adapting => CLOSE,
        }
    }
}

/// The steps of a search that goes on in one direction, in percent of where it is.
const STEPS: [u64; 6] = [1, 4, 12, 30, 60, 100];

/// What is known of the border between dying and running. All sizes are capacities in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bracket {
    /// The largest that does not hold it, or that is taken not to.
    dies: u64,
    /// Whether that was run.
    died: bool,
    /// The smallest that holds it, or that is taken to.
    holds: u64,
    /// Whether that was run.
    held: bool,
    /// The capacity that was foretold.
    foretold: u64,
    /// How many runs in a row went one way.
    streak: usize,
    closeness: Closeness,
}

impl Bracket {
    /// A search between a capacity that is taken to be too small and one that is taken to be enough.
    pub fn new(dies: u64, foretold: u64, holds: u64, closeness: Closeness) -> Self {
        let holds = holds.max(dies.saturating_add(GRANULE));
        Self { dies, died: false, holds, held: false, foretold, streak: 0, closeness }
    }

    fn is_close(&self) -> bool {
        self.died && self.holds - self.dies <= (self.dies / self.closeness.part()).max(GRANULE)
    }

    /// The capacity just below another: where it dies, the other is close enough.
    fn below(&self, capacity: u64) -> u64 {
        let part = self.closeness.part();
        round_up(capacity / (part + 1) * part).min(capacity.saturating_sub(GRANULE))
    }

    /// How far the next run lies from where the search is, in percent. What adapts was foretold for another card, so that
    /// the border is not near.
    fn step(&self) -> u64 {
        let skipped = if self.closeness == Closeness::Adapting { 2 } else { 0 };
        STEPS[(self.streak.saturating_sub(1) + skipped).min(STEPS.len() - 1)]
    }
}

impl Border for Bracket {
    fn next(&self, jobs: usize) -> Vec<u64> {
        let between = |bytes: u64| round_up(bytes).clamp(self.dies.saturating_add(GRANULE), self.holds);
        match (self.died, self.held) {
            (false, false) => {
                let first = between(self.foretold);
                let second = between(self.below(first));
                let mut chosen = vec![first];
                if jobs > 1 && second < first {
                    chosen.push(second);
                }
                chosen
            }
            (_, true) if self.is_close() => Vec::new(),
            (false, true) if self.streak <= 1 && self.closeness == Closeness::Exact => {
                vec![between(self.below(self.holds)).min(self.holds - GRANULE)]
            }
            (false, true) => {
                let less = between(self.holds * 100 / (100 + self.step()));
                vec![less.min(self.holds - GRANULE)]
            }
            (true, false) => {
                let more = round_up(self.dies.saturating_add(self.dies / 100 * self.step()));
                // What is taken to be enough is run before anything above it.
                vec![if self.dies < self.holds { more.min(self.holds) } else { more }]
            }
            (true, true) => {
                let middle = (self.dies as f64 * self.holds as f64).sqrt() as u64;
                vec![between(middle).min(self.holds - GRANULE)]
            }
        }
    }

    fn record(&mut self, capacity: u64, held: Option<u64>) {
        match held {
            Some(needed) => {
                let needed = needed.min(capacity);
                if !self.held || needed < self.holds {
                    (self.holds, self.held) = (needed, true);
                }
                // A larger card died, and this one did not: memory can be laid out better on less.
                if self.dies >= self.holds {
                    (self.dies, self.died) = (0, false);
                }
            }
            None => {
                if !self.held || capacity < self.holds {
                    self.dies = self.dies.max(capacity);
                    self.died = true;
                }
                if !self.held && self.dies >= self.holds {
                    self.holds = self.dies.saturating_mul(2);
                }
            }
        }
        self.streak += 1;
    }

    fn answer(&self) -> Option<u64> {
        self.held.then_some(self.holds)
    }

    fn fails(&self) -> Option<u64> {
        self.died.then_some(self.dies)
    }
}

fn round_up(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(GRANULE).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn exact(dies: u64, foretold: u64, holds: u64) -> Bracket {
        Bracket::new(dies, foretold, holds, Closeness::Exact)
    }

    /// Searches for `border`, the least that holds it; gives the answer and the number of runs.
    fn search(mut bracket: Bracket, jobs: usize, border: u64) -> (u64, usize) {
        let mut runs = 0;
        loop {
            let chosen = bracket.next(jobs);
            if chosen.is_empty() {
                return (bracket.answer().expect("it holds somewhere"), runs);
            }
            assert!(chosen.len() <= jobs);
            for capacity in chosen {
                runs += 1;
                assert!(runs < 40, "the search for {border} does not end: {bracket:?}");
                bracket.record(capacity, (capacity >= border).then_some(capacity));
            }
        }
    }

    #[test]
    fn a_true_forecast_takes_two_runs() {
        for jobs in [1, 2] {
            let (answer, runs) = search(exact(12 * GIB, 24 * GIB, 43 * GIB), jobs, 24 * GIB);
            assert_eq!((answer, runs), (24 * GIB, 2));
        }
    }

    #[test]
    fn the_answer_is_never_too_small_and_at_most_one_percent_too_large() {
        for border in (1..200).map(|part| part * 430 * (1 << 20) / 2 + 7) {
            for foretold in [GIB, 9 * GIB, 24 * GIB, 43 * GIB, 80 * GIB] {
                for (dies, holds) in [(0, 44 * GIB), (border / 2, border), (0, border / 2)] {
                    let (answer, runs) = search(exact(dies, foretold, holds), 2, border);
                    assert!(answer >= border, "{answer} for {border}");
                    let most = (border + border / 100).max(border + 2 * GRANULE);
                    assert!(answer <= most, "{answer} for {border} from {foretold}");
                    assert!(runs <= 20, "{runs} runs for {border} from {foretold}");
                }
            }
        }
    }

    #[test]
    fn a_forecast_a_little_off_takes_few_runs() {
        for percent in [97, 98, 99, 100, 101, 102, 103] {
            let (answer, runs) = search(exact(0, 24 * GIB / 100 * percent, 43 * GIB), 1, 24 * GIB);
            assert!((24 * GIB..24 * GIB + GIB / 4).contains(&answer));
            assert!(runs <= 5, "{runs} runs from {percent} %");
        }
    }

    #[test]
    fn what_adapts_takes_few_runs_from_a_forecast_far_too_large() {
        for (border, foretold) in [(60, 85), (24, 43), (33, 30)] {
            let bracket = Bracket::new(16 * GIB, foretold * GIB, foretold * GIB, Closeness::Adapting);
            let (answer, runs) = search(bracket, 1, border * GIB);
            assert!((border * GIB..=border * GIB * 41 / 40 + GRANULE).contains(&answer), "{answer}");
            assert!(runs <= 9, "{runs} runs for {border} from {foretold}");
        }
    }

    #[test]
    fn a_run_that_left_room_needs_no_more_than_it_took() {
        let mut bracket = exact(0, 24 * GIB, 43 * GIB);
        bracket.record(24 * GIB, Some(20 * GIB));
        assert_eq!(bracket.answer(), Some(20 * GIB));
        assert!(bracket.next(1)[0] < 20 * GIB);
    }

    #[test]
    fn a_smaller_card_that_holds_it_after_a_larger_one_died_counts() {
        let mut bracket = exact(0, 24 * GIB, 43 * GIB);
        bracket.record(24 * GIB, None);
        bracket.record(20 * GIB, Some(20 * GIB));
        assert_eq!((bracket.answer(), bracket.fails()), (Some(20 * GIB), None));
    }
}
