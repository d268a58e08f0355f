//! Finds the boundary of one knob with few runs.
//!
//! Peaks are usually affine in a batch and nearly so in a length, so two runs that fit foretell the boundary, and its two
//! sides are what is run next. Where it is not there (allocators take memory in pieces, and PyTorch gives its cache back
//! when a card is nearly full), the search goes on from there in ever wider steps until the boundary lies between two
//! values, and closes in. The boundary that is found is always one between two values that were both run.

use std::collections::BTreeMap;

/// Runs after which an interval is halved and no longer cut where a line says.
const MOST_LINES: usize = 12;

/// What came of one value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trial {
    /// It ran. How much of the limit is used, in bytes, and the limit.
    Ran {
        /// Bytes that are needed.
        need: u64,
        /// Bytes that there are.
        limit: u64,
    },
    /// It ran out of memory.
    OutOfMemory,
    /// It failed for another reason.
    Failed,
}

impl Trial {
    /// Whether the value is on the near side of the boundary.
    pub fn fits(self) -> bool {
        matches!(self, Self::Ran { need, limit } if need <= limit)
    }
}

/// Both sides of the boundary, by index of the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Boundary {
    /// The largest value that fits below the first that does not.
    pub best: Option<usize>,
    /// The next value, which does not fit; `None` where all do.
    pub fails: Option<usize>,
}

/// Which values to run next, at most `jobs`; none when the boundary is known. `tried` holds what came of others, and
/// `values` are ascending. Asked again after each run, the answers end after at most `values.len()` runs.
pub fn next(values: &[u64], tried: &BTreeMap<usize, Trial>, jobs: usize) -> Vec<usize> {
    let last = values.len().saturating_sub(1);
    let Boundary { best, fails } = boundary(tried);
    match (best, fails) {
        _ if values.is_empty() => Vec::new(),
        // Nothing was run: the smallest, and one that will tell the slope.
        (None, None) => first(values, jobs),
        // The smallest fails, or everything fits.
        (None, Some(0)) => Vec::new(),
        (None, Some(_)) => vec![0],
        (Some(best), None) if best >= last => Vec::new(),
        (Some(best), Some(fails)) if fails == best + 1 => Vec::new(),
        (Some(best), fails) => between(values, tried, best, fails, jobs),
    }
}

/// The boundary as far as it has been found: the lowest value that fails, and the highest that fits below it.
pub fn boundary(tried: &BTreeMap<usize, Trial>) -> Boundary {
    let fails = tried.iter().find(|(_, trial)| !trial.fits()).map(|(index, _)| *index);
    let below = fails.unwrap_or(usize::MAX);
    Boundary { best: tried.range(..below).next_back().map(|(index, _)| *index), fails }
}

/// Values that fit although a smaller one does not.
pub fn surprises(tried: &BTreeMap<usize, Trial>) -> Vec<(usize, usize)> {
    let Some(fails) = boundary(tried).fails else { return Vec::new() };
    tried.range(fails..).filter(|(_, trial)| trial.fits()).map(|(index, _)| (fails, *index)).collect()
}

fn first(values: &[u64], jobs: usize) -> Vec<usize> {
    let mut chosen = vec![0];
    let second = second(values);
    if jobs > 1 && second > 0 {
        chosen.push(second);
    }
    chosen
}

/// The value whose peak gives the slope: twice the first.
fn second(values: &[u64]) -> usize {
    let Some(low) = values.first() else { return 0 };
    let wanted = low.saturating_mul(2).max(low.saturating_add(1));
    values.partition_point(|value| *value < wanted).min(values.len() - 1)
}

fn between(
    values: &[u64],
    tried: &BTreeMap<usize, Trial>,
    best: usize,
    fails: Option<usize>,
    jobs: usize,
) -> Vec<usize> {
    let end = fails.unwrap_or(values.len());
    let foretold = foretold(values, tried, best);
    let guess = match (fails, foretold) {
        (None, None) => second(values),
        (None, Some(index)) => index.max(above(values, tried, best)),
        (Some(fails), _) if fails - best <= 4 => usize::midpoint(best, fails),
        // So close to the boundary a line is of less use than halving, because memory is taken in pieces.
        (Some(fails), _) if is_near(values, best, fails) => usize::midpoint(best, fails),
        // Where lines have misled that often, the peaks bend.
        (Some(fails), _) if tried.len() >= MOST_LINES => middle(values, best, fails),
        (Some(fails), Some(index)) if index < fails => index,
        // It was thought to fit. A little less, if that was not tried yet; else nothing is known but the two ends.
        (Some(fails), Some(_)) if !tried.range(fails + 1..).any(|(after, _)| is_near(values, fails, *after)) => values
            .partition_point(|value| *value <= values[fails] - values[fails] / 16)
            .saturating_sub(1)
            .min(fails - 1),
        (Some(fails), _) => middle(values, best, fails),
    };
    let guess = guess.clamp(best + 1, end - 1);
    let mut chosen = vec![guess];
    if jobs > 1 {
        // The other side of the boundary, if the guess is right; else it narrows the interval all the same.
        let neighbour = [guess + 1, guess - 1].into_iter().find(|index| (best + 1..end).contains(index));
        chosen.extend(neighbour);
    }
    chosen
}

/// Whether two values differ by an eighth at most.
fn is_near(values: &[u64], low: usize, high: usize) -> bool {
    values[high] - values[low] <= values[low] / 8
}

/// What to try above a value that was thought to be the last one that fits: first the next one, then ever wider steps.
fn above(values: &[u64], tried: &BTreeMap<usize, Trial>, best: usize) -> usize {
    match tried.keys().find(|index| **index < best && is_near(values, **index, best)) {
        Some(before) => best + 2 * (best - before),
        None => best + 1,
    }
}

/// Where a straight line through the two largest values that fit meets the limit: the last value before it.
fn foretold(values: &[u64], tried: &BTreeMap<usize, Trial>, best: usize) -> Option<usize> {
    let mut fitting = tried.range(..=best).rev().filter_map(|(index, trial)| match trial {
        Trial::Ran { need, limit } => Some((values[*index] as f64, *need as f64, *limit as f64)),
        _ => None,
    });
    let (value, need, limit) = fitting.next()?;
    // Neighbours are too close to tell a slope: allocators take memory in pieces.
    let (before, need_before, _) = fitting.find(|(other, ..)| *other * 1.125 <= value)?;
    let slope = (need - need_before) / (value - before);
    // No further than so many times at once: what is a line near the start, or flat, may be none far away.
    let furthest = value * if slope > 0.0 { 256.0 } else { 16.0 };
    let reach = if slope > 0.0 { (value + (limit - need) / slope).min(furthest) } else { furthest };
    Some(values.partition_point(|value| *value as f64 <= reach).saturating_sub(1))
}

/// The middle of an interval, by ratio while it is wide.
fn middle(values: &[u64], best: usize, end: usize) -> usize {
    let low = values[best].max(1) as f64;
    let high = values[end] as f64;
    if high / low > 2.0 {
        let wanted = (low * high).sqrt();
        values.partition_point(|value| (*value as f64) < wanted)
    } else {
        best + (end - best) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 12 << 30;
    const MIB: u64 = 1 << 20;

    /// Searches with a runner that knows the need of each value; gives the boundary and how many were run.
    fn search(values: &[u64], jobs: usize, need: impl Fn(u64) -> u64) -> (Boundary, BTreeMap<usize, Trial>) {
        let mut tried = BTreeMap::new();
        loop {
            let chosen = next(values, &tried, jobs);
            if chosen.is_empty() {
                return (boundary(&tried), tried);
            }
            assert!(chosen.len() <= jobs.max(1));
            for index in chosen {
                let need = need(values[index]);
                let trial = if need <= LIMIT { Trial::Ran { need, limit: LIMIT } } else { Trial::OutOfMemory };
                assert!(tried.insert(index, trial).is_none(), "{index} was run twice");
            }
        }
    }

    fn all() -> Vec<u64> {
        (1..=4096).collect()
    }

    /// The truth, by trying everything.
    fn exact(values: &[u64], need: impl Fn(u64) -> u64) -> Boundary {
        let fails = values.iter().position(|value| need(*value) > LIMIT);
        Boundary { best: fails.unwrap_or(values.len()).checked_sub(1), fails }
    }

    #[test]
    fn an_affine_peak_takes_few_runs() {
        for slope in [3, 11, 47, 130, 611, 997, 2500, 5000] {
            let need = |value: u64| 1700 * MIB + value * slope * MIB;
            for jobs in [1, 2] {
                let (found, tried) = search(&all(), jobs, need);
                assert_eq!(found, exact(&all(), need), "slope {slope}");
                assert!(tried.len() <= 6, "slope {slope}, jobs {jobs}: {} runs", tried.len());
            }
        }
    }

    #[test]
    fn a_peak_in_steps_is_found_exactly() {
        for slope in [3, 7, 19, 53, 301, 640, 1500] {
            // Segments of 20 MiB, and of 512 MiB as large buffers make them.
            for piece in [20, 512] {
                let need = |value: u64| (900 + value * slope).next_multiple_of(piece) * MIB;
                let (found, tried) = search(&all(), 1, need);
                assert_eq!(found, exact(&all(), need), "slope {slope}, piece {piece}");
                // Where hundreds of values share a piece, a line is of little use.
                let most = if piece > 100 * slope { 20 } else { 14 };
                assert!(tried.len() <= most, "slope {slope}, piece {piece}: {} runs", tried.len());
            }
        }
    }

    #[test]
    fn a_peak_that_bends_is_found_exactly() {
        // Quadratic as attention without flash kernels, and one that saturates as the cache is given back.
        let quadratic = |value: u64| 1000 * MIB + value * value * MIB / 50;
        let saturating = |value: u64| (1000 * MIB + value * 40 * MIB).min(LIMIT).max(value * 36 * MIB);
        for jobs in [1, 2] {
            for need in [&quadratic as &dyn Fn(u64) -> u64, &saturating] {
                let (found, tried) = search(&all(), jobs, need);
                assert_eq!(found, exact(&all(), need));
                assert!(tried.len() <= 18 * jobs, "{} runs", tried.len());
            }
        }
    }

    #[test]
    fn the_ends_are_reported() {
        assert_eq!(search(&all(), 1, |_| LIMIT + 1).0, Boundary { best: None, fails: Some(0) });
        let (found, tried) = search(&all(), 1, |_| 5 * MIB);
        assert_eq!(found, Boundary { best: Some(4095), fails: None });
        assert!(tried.len() <= 5, "{} runs", tried.len());
        assert_eq!(search(&[7], 2, |_| 5 * MIB).0, Boundary { best: Some(0), fails: None });
        assert_eq!(search(&[], 1, |_| 0).0, Boundary::default());
    }

    #[test]
    fn powers_of_two_are_neighbours() {
        let powers: Vec<u64> = (0..13).map(|power| 1 << power).collect();
        let need = |value: u64| 1700 * MIB + value * 100 * MIB;
        let (found, tried) = search(&powers, 1, need);
        assert_eq!((found.best, found.fails), (Some(6), Some(7)));
        assert!(tried.len() <= 5, "{} runs", tried.len());
    }

    #[test]
    fn whatever_the_peaks_the_search_ends_with_neighbours() {
        let values: Vec<u64> = (1..=300).collect();
        for seed in 1..400_u64 {
            let need = |value: u64| {
                let noise = value.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_mul(seed) >> 48;
                value * 50 * MIB + noise * 16 * 1024 * 1024
            };
            let (found, tried) = search(&values, 1 + (seed % 2) as usize, need);
            let (best, fails) = (found.best.map(|index| values[index]), found.fails.map(|index| values[index]));
            match (best, fails) {
                (Some(best), Some(fails)) => {
                    assert_eq!(fails, best + 1, "seed {seed}");
                    assert!(need(best) <= LIMIT && need(fails) > LIMIT);
                }
                (None, Some(fails)) => assert_eq!(fails, 1),
                (best, None) => assert_eq!(best, Some(300)),
            }
            for (low, high) in surprises(&tried) {
                assert!(need(values[low]) > LIMIT && need(values[high]) <= LIMIT && low < high);
            }
        }
    }

    #[test]
    fn a_larger_value_that_fits_is_a_surprise() {
        let ran = Trial::Ran { need: 1, limit: 2 };
        let tried = BTreeMap::from([(0, ran), (3, Trial::OutOfMemory), (5, ran), (7, Trial::OutOfMemory)]);
        assert_eq!(surprises(&tried), [(3, 5)]);
    }
}
