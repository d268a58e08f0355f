//! Says what a comparison has shown.

use oomph_report::{Compared, Comparison};

use super::measure::{Difference, Tolerance, Trace, What};

/// Nothing was compared.
pub fn not_compared(why: &str) -> Comparison {
    Comparison { outcome: Compared::NotCompared, why: Some(why.to_owned()), ..Comparison::default() }
}

/// The two compute the same.
pub fn equal(original: &Trace, found: &Difference, tolerance: Option<&Tolerance>) -> Comparison {
    let rounding = tolerance.map(Tolerance::largest);
    Comparison { rounding, ..seen(Compared::Equal, original, (found.steps(), found.worst())) }
}

/// The two draw other random numbers, and compute the same with the same ones.
pub fn same_in_distribution(original: &Trace, found: &Difference) -> Comparison {
    let first = Some("random numbers are drawn in another order".to_owned());
    Comparison { first, ..seen(Compared::SameInDistribution, original, (found.steps(), found.of_gradients())) }
}

/// The two compute something else.
pub fn other(original: &Trace, found: &Difference, tolerance: &Tolerance) -> Comparison {
    let first = found.first(tolerance);
    let words = first.as_ref().map(|(what, far)| match what {
        What::Gradients(step) if far.is_infinite() => {
            format!("the gradients of step {step} are no numbers in one of them")
        }
        What::Gradients(step) => {
            let batch = batch(original, *step).unwrap_or_default();
            format!("the gradients of step {step}{batch} differ by {}", percent(*far))
        }
        What::Rate(step) => format!("the learning rate of step {step} differs"),
        What::Weights(step) => {
            format!("the weights after step {step} differ by {} of what the training moved them", percent(*far))
        }
        What::Kept(name) => format!("`{name}` differs by {}", percent(*far)),
        What::Steps(before, after) => format!("it makes {after} optimizer steps for {before}"),
        What::Trained => "it trains other weights".to_owned(),
        What::Printed(before, after) => format!("it prints \"{}\" for \"{}\"", after.trim(), before.trim()),
    });
    Comparison { first: words, ..seen(Compared::Other, original, (found.steps(), first.map_or(0.0, |(_, far)| far))) }
}

fn seen(outcome: Compared, original: &Trace, (steps, difference): (usize, f64)) -> Comparison {
    let record = original.record();
    let mut reduced: Vec<String> = Vec::new();
    if let Some(loader) = record.loaders.first() {
        reduced.push(format!("{} samples in batches of {}", loader.samples, loader.batch));
    }
    if let Some((batch, few)) = original.fewer() {
        reduced.push(format!("batches of {few} for {batch}"));
    }
    reduced.extend(record.blocks.iter().map(|row| format!("2 of {} {}", row.count, row.name)));
    Comparison {
        outcome,
        difference: Some(difference).filter(|far| far.is_finite()),
        steps: steps as u64,
        reduced,
        ..Comparison::default()
    }
}

/// Which batch a step saw, where it is one that is not full.
fn batch(original: &Trace, step: usize) -> Option<String> {
    let loader = original.record().loaders.first().filter(|loader| loader.batch > 0)?;
    let (last, full) = (loader.samples % loader.batch, loader.samples / loader.batch);
    let steps = usize::try_from(full).ok()? + 1;
    (last > 0 && step == steps).then(|| format!(" (a batch of {last} for {})", loader.batch))
}

fn percent(far: f64) -> String {
    match far * 100.0 {
        much if much >= 10.0 => format!("{much:.0} %"),
        some if some >= 0.1 => format!("{some:.1} %"),
        little => format!("{little:.0e} %"),
    }
}
