//! Closes in on the smallest size of card that holds a program of which nothing can be foretold, because it takes a share
//! of whatever card it gets.

use oomph_gpu::Catalogue;

use super::Border;

/// Cards whose capacities differ by no more than one part in so many are one rung.
const ALIKE: u64 = 40;

/// The sizes that cards come in, and what is known of them.
#[derive(Clone, Debug)]
pub struct Rungs {
    /// In bytes, ascending.
    capacities: Vec<u64>,
    /// The first that is not known to be too small.
    low: usize,
    /// The first that is known to be enough; the length where none is.
    high: usize,
    /// What was too small before the search, in bytes.
    dies: Option<u64>,
    /// The first that should be enough.
    guess: Option<usize>,
}

impl Rungs {
    /// The catalogue's sizes above one that was too small.
    pub fn above(dies: Option<u64>) -> Self {
        let least = dies.unwrap_or(0);
        let mut all: Vec<u64> =
            Catalogue::builtin().iter().filter(|gpu| gpu.kind.is_card()).map(|gpu| gpu.capacity_bytes).collect();
        all.sort_unstable();
        let mut capacities: Vec<u64> = Vec::new();
        for bytes in all {
            let below = capacities.last().copied().unwrap_or(least);
            if bytes > below.saturating_add(below / ALIKE) {
                capacities.push(bytes);
            }
        }
        Self { low: 0, high: capacities.len(), capacities, dies, guess: None }
    }

    /// Begins with the smallest size that is no less than a capacity in bytes, and the one below.
    pub fn beginning_with(mut self, least: Option<u64>) -> Self {
        self.guess = least.map(|least| self.capacities.partition_point(|bytes| *bytes < least));
        self
    }
}

impl Border for Rungs {
    fn next(&self, jobs: usize) -> Vec<u64> {
        let open = self.high.saturating_sub(self.low);
        let count = jobs.clamp(1, 2).min(open);
        if let Some(guess) = self.guess {
            // Where the guess was too large or too small by one size, its neighbour is next; by more, all are open.
            let near = [Some(guess), guess.checked_sub(1)].into_iter().flatten();
            let near: Vec<u64> =
                near.filter(|rung| (self.low..self.high).contains(rung)).map(|rung| self.capacities[rung]).collect();
            if !near.is_empty() {
                return near.into_iter().take(count).collect();
            }
        }
        (1..=count).map(|part| self.capacities[self.low + open * part / (count + 1)]).collect()
    }

    fn record(&mut self, capacity: u64, held: Option<u64>) {
        let Ok(rung) = self.capacities.binary_search(&capacity) else { return };
        match held {
            Some(_) => self.high = self.high.min(rung),
            None => self.low = self.low.max(rung + 1),
        }
    }

    fn answer(&self) -> Option<u64> {
        self.capacities.get(self.high).copied()
    }

    fn fails(&self) -> Option<u64> {
        self.low.checked_sub(1).and_then(|below| self.capacities.get(below)).copied().or(self.dies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_true_guess_takes_two_runs_and_a_wrong_one_a_few() {
        for (guess, most) in [(39_u64, 2), (28, 8), (100, 8), (900, 8), (1, 8)] {
            let border = 39 << 30;
            let mut rungs = Rungs::above(Some(12 << 30)).beginning_with(Some(guess << 30));
            let mut runs = 0;
            while let Some(bytes) = rungs.next(1).first().copied() {
                runs += 1;
                rungs.record(bytes, (bytes >= border).then_some(bytes));
            }
            assert!(runs <= most, "{runs} runs from {guess}");
            assert_eq!(rungs.answer(), rungs.capacities.iter().copied().find(|bytes| *bytes >= border), "{guess}");
        }
    }

    #[test]
    fn a_few_runs_find_the_smallest_size_that_holds_it() {
        for jobs in [1, 2] {
            for border in [13, 23, 31, 46, 79, 140, 400].map(|gib| gib << 30) {
                let mut rungs = Rungs::above(Some(12 << 30));
                let mut runs = 0;
                loop {
                    let chosen = rungs.next(jobs);
                    if chosen.is_empty() {
                        break;
                    }
                    for bytes in chosen {
                        runs += 1;
                        rungs.record(bytes, (bytes >= border).then_some(bytes));
                    }
                }
                assert!(runs <= 8, "{runs} runs for {border}");
                let expected = rungs.capacities.iter().copied().find(|bytes| *bytes >= border);
                assert_eq!(rungs.answer(), expected, "{border}");
                assert!(rungs.fails().is_some_and(|bytes| bytes < border && bytes >= 12 << 30));
            }
        }
    }
}
