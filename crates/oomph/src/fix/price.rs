//! What a fix costs in time: the work of one optimizer step with it, by that of one without it.
//!
//! Both were counted on the virtual GPU: with the fix in its trial, and without it on cards without a limit, where the program
//! comes to its steps. `oomph_gpu::roofline` gives the ratio. Steps are compared for the same samples: where a fix makes the
//! effective batch smaller, more steps are needed for the same data.

use std::collections::BTreeMap;

use oomph_gpu::Gpu;
use oomph_gpu::roofline::{self, Calls, Number, Products, Slowdown, Work};
use oomph_launch::{HookReports, HookWork};
use oomph_remedy::search::{Fix, Prefer};
use oomph_remedy::{Sameness, TimeClass};
use oomph_report::TimeRatio;

use super::bench::{Applier, Sight};

/// Prices that are this close count as equal.
const EQUAL: f64 = 1.10;

/// The work of the process that computes most.
pub fn of_run(hooks: &HookReports) -> Option<HookWork> {
    let works = hooks.reports.iter().filter_map(|hook| hook.work.as_ref());
    works
        .max_by_key(|work| work.products.iter().map(|(_, operations, _, times)| operations * times).sum::<u64>())
        .cloned()
}

/// What is known for the prices of all fixes.
pub struct Priced<'a> {
    /// The card.
    pub gpu: &'a Gpu,
    /// The work of a step without any change.
    pub before: Option<HookWork>,
}

impl Priced<'_> {
    /// What a fix costs.
    ///
    /// # Errors
    /// Why it was not computed, in a clause.
    pub fn of(
        &self,
        fix: &Fix<'_>,
        seen: &BTreeMap<Vec<String>, Sight>,
        applier: &Applier<'_>,
    ) -> Result<Slowdown, String> {
        let after = seen.get(&fix.mix.key()).and_then(|sight| sight.work.as_ref());
        let smaller_batch = applier.ready(&fix.mix).ok().and_then(|ready| ready.smaller_batch);
        slowdown(self.gpu, self.before.as_ref(), after, smaller_batch)
    }
}

/// What a change costs.
///
/// `smaller_batch` is the effective batch before and after, where the fix makes it smaller by the program's settings; what
/// the program's loaders gave is better known, and counts where it was seen.
///
/// # Errors
/// Why it was not computed, in a clause.
fn slowdown(
    gpu: &Gpu,
    before: Option<&HookWork>,
    after: Option<&HookWork>,
    smaller_batch: Option<(u64, u64)>,
) -> Result<Slowdown, String> {
    let before = before.ok_or("without the change fewer than two optimizer steps were seen")?;
    let after = after.ok_or("with the change fewer than two optimizer steps were seen")?;
    let each = |work: &HookWork| (work.samples > 0).then(|| work.samples as f64 / work.steps.max(1) as f64);
    let steps = match (each(before), each(after), smaller_batch) {
        (Some(before), Some(after), _) => before / after,
        (_, _, Some((before, after))) if after > 0 => before as f64 / after as f64,
        _ => 1.0,
    };
    let price = roofline::slowdown(gpu, &work(before), &work(after)).ok_or("a step computes nothing on the card")?;
    Ok(Slowdown { low: price.low * steps, high: price.high * steps })
}

/// The price for the report.
pub fn told(price: Slowdown) -> TimeRatio {
    TimeRatio { low: rounded(price.low), high: rounded(price.high) }
}

fn rounded(ratio: f64) -> f64 {
    (ratio * 100.0).round() / 100.0
}

fn work(seen: &HookWork) -> Work {
    let calls = |&(calls, bytes): &(u64, u64)| Calls { calls: calls as f64, bytes: bytes as f64 };
    let copies = &seen.copies;
    let (to_card, to_host) = (calls(&copies.to_card), calls(&copies.to_host));
    let products = seen.products.iter().map(|(number, operations, bytes, times)| Products {
        number: Number::named(number).unwrap_or(Number::F32),
        operations: *operations as f64,
        bytes: *bytes as f64,
        times: *times as f64,
    });
    Work {
        products: products.collect(),
        kernels: seen.kernels.iter().map(calls).collect(),
        link: Calls { calls: to_card.calls + to_host.calls, bytes: to_card.bytes + to_host.bytes },
        on_card: calls(&copies.on_card),
        host_bytes: seen.host_bytes as f64,
    }
}

/// The ratio that stands for a class of published costs where none was computed.
fn published(fix: &Fix<'_>) -> f64 {
    let dearest = fix.mix.doses.iter().map(|dose| dose.remedy.time.class).max().unwrap_or(TimeClass::None);
    match dearest {
        TimeClass::None => 1.0,
        TimeClass::Small => 1.05,
        TimeClass::Moderate => 1.25,
        TimeClass::Large => 2.0,
    }
}

/// Puts the fixes of each group in order: by how exact the result stays, then by the price, or the other way round where speed
/// is preferred. Of equal ones the order stays. `group` says what comes first whatever it costs.
pub fn order<G: Ord>(
    fixes: &mut Vec<Fix<'_>>,
    prefer: Prefer,
    group: impl Fn(&Fix<'_>) -> G,
    price: impl Fn(&Fix<'_>) -> Option<f64>,
) {
    let prices: Vec<f64> = fixes.iter().map(|fix| price(fix).unwrap_or_else(|| published(fix))).collect();
    let ranks = ranks(&prices);
    let mut ranked: Vec<(usize, Fix<'_>)> = ranks.into_iter().zip(std::mem::take(fixes)).collect();
    ranked.sort_by_key(|(rank, fix)| {
        let exact = match fix.mix.sameness() {
            Sameness::Exact | Sameness::Equivalent => 0,
            Sameness::Approximate => 1,
            Sameness::ChangesTheResult => 2,
        };
        let cost = if prefer == Prefer::Speed { (*rank, exact) } else { (exact, *rank) };
        (group(fix), cost)
    });
    fixes.extend(ranked.into_iter().map(|(_, fix)| fix));
}

/// The rank of each price: those within 10 % of the cheapest of a rank share it.
fn ranks(prices: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..prices.len()).collect();
    order.sort_by(|&one, &other| prices[one].total_cmp(&prices[other]));
    let mut ranks = vec![0; prices.len()];
    let (mut rank, mut first) = (0, None);
    for place in order {
        let least = *first.get_or_insert(prices[place]);
        if prices[place] > least * EQUAL {
            rank += 1;
            first = Some(prices[place]);
        }
        ranks[place] = rank;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use oomph_gpu::Catalogue;

    use super::*;

    fn step(times: u64, samples: u64) -> HookWork {
        HookWork {
            steps: 4,
            samples: 4 * samples,
            products: vec![("f16".into(), 100_000_000_000, 100_000_000, times)],
            ..HookWork::default()
        }
    }

    #[test]
    fn prices_are_for_the_same_samples() {
        let gpu = Catalogue::builtin().get("rtx-4090").expect("the catalogue has it");
        let price = |before: &HookWork, after: &HookWork, batch| {
            slowdown(gpu, Some(before), Some(after), batch).expect("both compute").middle()
        };
        let near = |price: f64, expected: f64| assert!((price - expected).abs() < 0.01, "{price}, not {expected}");
        near(price(&step(300, 16), &step(400, 16), None), 4.0 / 3.0);
        // Half the work for half the samples is no faster, whether the loaders say so or the settings.
        near(price(&step(300, 16), &step(150, 8), None), 1.0);
        near(price(&step(300, 0), &step(150, 0), Some((16, 8))), 1.0);
        near(price(&step(300, 16), &step(300, 16), Some((16, 8))), 1.0);
        assert!(slowdown(gpu, None, Some(&step(1, 1)), None).is_err());
    }

    #[test]
    fn prices_within_a_tenth_are_equal() {
        assert_eq!(ranks(&[1.30, 1.00, 1.08, 1.50, 1.33]), [1, 0, 0, 2, 1]);
        assert_eq!(ranks(&[]), Vec::<usize>::new());
    }
}
