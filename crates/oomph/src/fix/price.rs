//! Prices a fix in time: the work of one optimizer step with it, divided by that of one without it.
//!
//! Both were counted on the virtual GPU: with the fix in its trial, and without it on cards without a limit, where the program
//! comes to its steps. `oomph_gpu::roofline` gives the ratio. Steps are compared for the same samples: where a fix makes the
//! effective batch smaller, more steps are needed for the same data.

use std::collections::BTreeMap;

use oomph_gpu::Gpu;
use oomph_gpu::roofline::{self, Counted, Slowdown};
use oomph_remedy::search::{Fix, Prefer};
use oomph_remedy::{Sameness, TimeClass};
use oomph_report::TimeRatio;

use super::applier::{Applier, Means};
use super::bench::Sight;

/// Prices that are this close count as equal.
const EQUAL: f64 = 1.10;

/// From so many times the time on, an exact result is worth no more than one that is nearly the same: nobody lets a model
/// answer several times slower from the host's memory where 8-bit weights would do.
const TOO_DEAR: f64 = 2.0;

/// What is known for the prices of all fixes.
pub struct Priced<'a> {
    /// The card.
    pub gpu: &'a Gpu,
    /// The work of a step without any change.
    pub before: Option<Counted>,
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
        let before = self.before.as_ref().ok_or("without the change fewer than two optimizer steps were seen")?;
        let after = after.ok_or("with the change fewer than two optimizer steps were seen")?;
        let price = roofline::of_steps(self.gpu, before, after, smaller_batch);
        price.ok_or_else(|| "a step computes nothing on the card".to_owned())
    }

    /// Puts fixes in order: those with room to spare first, then by the means that they take, how exact the result stays and
    /// what they cost. Where memory is preferred, the smallest peak comes first whatever the rest.
    pub fn order(
        &self,
        fixes: &mut Vec<Fix<'_>>,
        prefer: Prefer,
        seen: &BTreeMap<Vec<String>, Sight>,
        applier: &Applier<'_>,
    ) {
        let means = |fix: &Fix<'_>| applier.ready(&fix.mix).map_or(Means::Hook, |ready| ready.means);
        order(fixes, prefer, means, |fix| self.of(fix, seen, applier).ok().map(Slowdown::middle));
        if prefer == Prefer::Memory {
            fixes.sort_by_key(|fix| fix.peak_bytes);
        }
    }
}

/// Whether a fix costs no time, and changes nothing of what the program computes.
fn is_free(fix: &Fix<'_>) -> bool {
    fix.mix.sameness() == Sameness::Exact && fix.mix.doses.iter().all(|dose| dose.remedy.time.class == TimeClass::None)
}

/// What comes first whatever it costs: what has room to spare, then the program's own means and what is free. Another result
/// is no reason to take the program's own means first, as in the order of the search.
fn group(fix: &Fix<'_>, means: Means) -> (bool, u8) {
    let changes = fix.mix.sameness() == Sameness::ChangesTheResult;
    let group = match means {
        Means::Hook => 2,
        Means::Own if !changes => 0,
        _ if is_free(fix) => 0,
        _ => 1,
    };
    (fix.tight, group)
}

/// What comes first of equal prices: an evaluation without its graph is better than one in small batches, although those are
/// an option of the program.
fn convenience(fix: &Fix<'_>, means: Means) -> (bool, Means) {
    (!is_free(fix), means)
}

/// The price for the report.
pub fn time_ratio(price: Slowdown) -> TimeRatio {
    TimeRatio { low: rounded(price.low), high: rounded(price.high) }
}

fn rounded(ratio: f64) -> f64 {
    (ratio * 100.0).round() / 100.0
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

/// Puts the fixes of each group in order: by how exact the result stays ([`TOO_DEAR`] says when that counts no more), then by
/// the price, or the other way round where speed is preferred. See [`group`] and [`convenience`] for what `means` does. Of equal
/// ones the order stays.
fn order(
    fixes: &mut Vec<Fix<'_>>,
    prefer: Prefer,
    means: impl Fn(&Fix<'_>) -> Means,
    price: impl Fn(&Fix<'_>) -> Option<f64>,
) {
    let prices: Vec<f64> = fixes.iter().map(|fix| price(fix).unwrap_or_else(|| published(fix))).collect();
    let ranks = ranks(&prices);
    let dear: Vec<bool> = prices.iter().map(|&price| price >= TOO_DEAR).collect();
    let mut ranked: Vec<(usize, bool, Fix<'_>)> =
        ranks.into_iter().zip(dear).zip(std::mem::take(fixes)).map(|((rank, dear), fix)| (rank, dear, fix)).collect();
    ranked.sort_by_key(|(rank, dear, fix)| {
        let exact = match fix.mix.sameness() {
            Sameness::Exact | Sameness::Equivalent if !dear => 0,
            Sameness::Exact | Sameness::Equivalent => 1,
            Sameness::Approximate => 1,
            Sameness::ChangesTheResult => 2,
        };
        let cost = if prefer == Prefer::Speed { (*rank, exact) } else { (exact, *rank) };
        let means = means(fix);
        (group(fix, means), cost, convenience(fix, means))
    });
    fixes.extend(ranked.into_iter().map(|(_, _, fix)| fix));
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
    use oomph_remedy::Catalogue;
    use oomph_remedy::search::{Dose, Mix};

    use super::*;

    #[test]
    fn a_larger_pool_is_free_and_pieces_are_not() {
        let fix = |id: &str| {
            let remedy = Catalogue::builtin().get(id).expect("the catalogue has it");
            Fix { mix: Mix::single(Dose::of(remedy)), peak_bytes: 1, tight: false }
        };
        assert!(is_free(&fix("larger-pool-share")));
        assert!(!is_free(&fix("in-pieces")) && !is_free(&fix("half-weights")));
    }

    #[test]
    fn what_is_free_comes_before_an_option_and_that_before_an_edit() {
        let fix = |id: &str| {
            let remedy = Catalogue::builtin().get(id).expect("the catalogue has it");
            Fix { mix: Mix::single(Dose::of(remedy)), peak_bytes: 1, tight: false }
        };
        let mut fixes: Vec<_> = ["in-pieces", "eval-batch", "larger-pool-share", "no-grad"].map(fix).into();
        let means = |fix: &Fix<'_>| match fix.mix.doses[0].remedy.id.as_str() {
            "eval-batch" => Means::Own,
            "larger-pool-share" => Means::Environment,
            _ => Means::Edit,
        };
        order(&mut fixes, Prefer::Quality, means, |_| Some(1.0));
        let ids: Vec<_> = fixes.iter().map(|fix| fix.mix.doses[0].remedy.id.as_str()).collect();
        assert_eq!(ids, ["no-grad", "larger-pool-share", "eval-batch", "in-pieces"]);
    }

    #[test]
    fn prices_within_a_tenth_are_equal() {
        assert_eq!(ranks(&[1.30, 1.00, 1.08, 1.50, 1.33]), [1, 0, 0, 2, 1]);
        assert_eq!(ranks(&[]), Vec::<usize>::new());
    }
}
