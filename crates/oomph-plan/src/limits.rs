//! Finds the largest batch and context that fit.

use serde::Serialize;

use crate::estimate::Subject;
use crate::nearby::Nearby;
use crate::workload::Workload;

/// What fits, other things as they are. 0 where not even one does; `None` where there is nothing to vary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Samples (or images) at a time.
    pub max_batch: Option<u64>,
    /// Tokens of a sample, the generated ones included.
    pub max_context: Option<u64>,
    /// Pixels along a side of a square image.
    pub max_resolution: Option<u64>,
}

impl Nearby<'_> {
    /// The largest batch, length and resolution whose expected need is within `capacity` bytes.
    #[must_use]
    pub fn limits(&self, capacity: u64) -> Limits {
        let Self { subject, workload, .. } = *self;
        let need = |changed: Workload| self.estimate(&changed).total.expected;
        let batch = || largest(workload.batch, 1, 4096, capacity, |batch| need(Workload { batch, ..workload.clone() }));
        let resolution = || {
            let side = |side: u64| {
                let mut changed = workload.clone();
                (changed.image.width, changed.image.height) = (side, side);
                need(changed)
            };
            largest(workload.image.width, 64, 8192, capacity, side)
        };
        let context = |most: u64| {
            let new_tokens = workload.new_tokens;
            let unit = 64;
            let length =
                |length: u64| need(Workload { length: length.saturating_sub(new_tokens).max(1), ..workload.clone() });
            largest(workload.length.saturating_add(new_tokens), unit, most.max(unit), capacity, length)
        };
        match subject {
            // One image is made at a time where CLIP guides it.
            Subject::Pipeline(pipeline) => Limits {
                max_batch: (!pipeline.is_guided()).then(batch),
                max_context: None,
                max_resolution: Some(resolution()),
            },
            Subject::Transformer { shape, .. } => {
                let read = shape.image.is_none() && shape.audio.is_none() && shape.max_positions > 0;
                Limits {
                    max_batch: Some(batch()),
                    max_context: read.then(|| context(shape.max_positions)),
                    max_resolution: None,
                }
            }
        }
    }
}

/// The largest multiple of `unit`, at most `most`, whose need is within the capacity. Needs grow with the value; they are
/// nearly a line, so the search goes where a line through two points would cross the capacity.
fn largest(start: u64, unit: u64, most: u64, capacity: u64, need: impl Fn(u64) -> u64) -> u64 {
    let most = (most / unit * unit).max(unit);
    let snap = |value: u64| (value / unit * unit).clamp(unit, most);
    let (mut fits, mut fails) = ((0, 0), None::<(u64, u64)>);
    let mut probe = snap(start);
    for _ in 0..12 {
        let bytes = need(probe);
        if bytes <= capacity {
            fits = (probe, bytes);
            if probe >= most {
                break;
            }
        } else {
            fails = Some((probe, bytes));
            if probe == unit {
                break;
            }
        }
        probe = match fails {
            None => snap(fits.0.saturating_mul(4)),
            // Often nothing fits at all, and where something does this is the other end of the line.
            Some(_) if fits.0 == 0 => unit,
            Some((above, _)) if above <= fits.0 + unit => break,
            Some((above, over)) => {
                let share = (capacity.saturating_sub(fits.1)) as f64 / over.saturating_sub(fits.1).max(1) as f64;
                let guess = fits.0 as f64 + (above - fits.0) as f64 * share;
                snap(guess as u64).clamp(fits.0 + unit, above - unit)
            }
        };
    }
    fits.0
}

#[cfg(test)]
mod tests {
    use super::largest;

    #[test]
    fn the_search_finds_the_edge() {
        for capacity in [0, 999, 1000, 1010, 5000, 123_456, 10_000_000] {
            let found = largest(8, 1, 4096, capacity, |batch| 1000 + 10 * batch);
            let wanted = capacity.saturating_sub(1000) / 10;
            assert_eq!(found, wanted.min(4096), "{capacity}");
        }
        // The most is rounded to units too, down to one of them at the least.
        assert_eq!(largest(2048, 64, 77, 0, |tokens| tokens), 0);
        assert_eq!(largest(2048, 64, 150, 1000, |tokens| tokens), 128);
        assert_eq!(largest(2048, 64, 8192, 1 << 20, |tokens| tokens * 400), 2560);
    }
}
