//! Predicts the peak with a mix of remedies, from its owners and from earlier measurements of the same search. The
//! prediction only has to be good enough to skip mixes that cannot matter.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::effect;
use crate::remedy::Effect;
use crate::situation::{OwnerGroup, Situation};

use super::mix::{Dose, Mix};

/// How many times the average a remedy may free where it was made for the moment of the peak.
const AT_BEST: f64 = 3.0;

/// How far what was measured may move what the catalogue says that a remedy frees, as a factor.
const LEARNED: RangeInclusive<f64> = 0.05..=4.0;

/// What a try said of a mix's peak, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// It ran to its end with this peak.
    Peak(u64),
    /// It died with this much, and would have taken more.
    MoreThan(u64),
}

/// A peak, its owners, and what the card may hold.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// The situation with its owners.
    pub situation: Situation,
    /// The peak of the unmodified program, in bytes.
    pub peak_bytes: u64,
    /// What the card may hold, in bytes.
    pub limit_bytes: u64,
    /// By how much what a remedy frees differs here from what the catalogue says, by its id: 1 where nothing was measured.
    learned: BTreeMap<String, f64>,
    /// Whether the peak is only what was seen of it, so that nothing can be learned from it.
    at_least: bool,
}

impl Forecast {
    /// A forecast from the owners of `situation`, a peak and what the card may hold, both in bytes.
    pub fn new(situation: Situation, peak_bytes: u64, limit_bytes: u64) -> Self {
        Self { situation, peak_bytes, limit_bytes, learned: BTreeMap::new(), at_least: false }
    }

    /// The same for a peak that was seen in part only: what a try frees of it is not known.
    #[must_use]
    pub fn at_least(self) -> Self {
        Self { at_least: true, ..self }
    }

    /// Learns from a try. What a remedy freed alone is known; what a mix freed less than was foretold is put down to each
    /// of its remedies alike. Which of them freed more than that is not known, so nothing is learned of it.
    pub fn learn(&mut self, mix: &Mix<'_>, measured: Measured) {
        let foretold = self.peak_bytes.saturating_sub(self.peak(mix));
        let (Measured::Peak(peak) | Measured::MoreThan(peak)) = measured;
        let freed = self.peak_bytes.saturating_sub(peak);
        // A try that died says something only where the forecast was better than that.
        if self.at_least || foretold == 0 || matches!(measured, Measured::MoreThan(_)) && foretold <= freed {
            return;
        }
        let factor = freed as f64 / foretold as f64;
        if mix.doses.len() > 1 && factor > 1.0 {
            return;
        }
        for dose in &mix.doses {
            let learned = self.learned.entry(dose.remedy.id.clone()).or_insert(1.0);
            *learned = (*learned * factor).clamp(*LEARNED.start(), *LEARNED.end());
        }
    }

    /// What a mix may need, in bytes: each owner's bytes times the shares that its remedies leave, and all the rest.
    ///
    /// A second moment of the program may need nearly as much as the peak, so this is a lower bound in spirit; the
    /// shares of the catalogue are averages, so it is not one in fact.
    pub fn peak(&self, mix: &Mix<'_>) -> u64 {
        let (mut used, mut left) = (0.0, 0.0);
        for &owner in OwnerGroup::ALL.iter().filter(|owner| **owner != OwnerGroup::Cached) {
            let held = effect::owner_bytes(&self.situation, owner).unwrap_or(0) as f64;
            used += held;
            left += held * mix.doses.iter().map(|dose| self.left(dose, owner)).product::<f64>();
        }
        // What is cached was in use before, and shrinks with it; a remedy against it comes on top.
        let cached = effect::owner_bytes(&self.situation, OwnerGroup::Cached).unwrap_or(0) as f64;
        let shrunk = if used > 0.0 { (left / used).min(1.0) } else { 1.0 };
        let kept: f64 = mix.doses.iter().map(|dose| self.left(dose, OwnerGroup::Cached)).product();
        let peak = self.peak_bytes as f64 - (used - left) - cached * (1.0 - shrunk * kept);
        peak.max(0.0) as u64
    }

    /// What one dose frees on its own, in bytes; 0 where it costs memory.
    pub fn frees(&self, dose: Dose<'_>) -> u64 {
        self.peak_bytes.saturating_sub(self.peak(&Mix::single(dose)))
    }

    /// Whether a dose may free anything.
    pub fn may_free(&self, dose: Dose<'_>) -> bool {
        self.situation.owners.is_none() || self.frees(dose) > 0
    }

    /// Whether a dose may be enough on its own, at best: what was made for the moment of the peak may free several
    /// times the average that the catalogue knows, but never more than what it works on holds.
    pub fn may_suffice(&self, dose: Dose<'_>) -> bool {
        let missing = self.peak_bytes.saturating_sub(self.limit_bytes);
        let held = |owner| effect::owner_bytes(&self.situation, owner).unwrap_or(0);
        let at_best = |&owner: &OwnerGroup| {
            let freed = 1.0 - self.left(&dose, owner);
            (held(owner) as f64 * (freed * AT_BEST).clamp(0.0, 1.0)) as u64
        };
        // What is cached may go with what was in use before.
        let freed: u64 = OwnerGroup::ALL.iter().filter(|owner| **owner != OwnerGroup::Cached).map(at_best).sum();
        self.situation.owners.is_none() || freed > 0 && freed.saturating_add(held(OwnerGroup::Cached)) >= missing
    }

    /// Whether a dose frees at least a twentieth of what is missing.
    pub fn weighs(&self, dose: Dose<'_>) -> bool {
        let missing = self.peak_bytes.saturating_sub(self.limit_bytes);
        self.frees(dose).saturating_mul(20) >= missing
    }

    /// Whether a mix may fit. The shares of the catalogue are averages, so a tenth is forgiven; where the owners are not
    /// known, nothing is ruled out.
    pub fn may_fit(&self, mix: &Mix<'_>) -> bool {
        self.situation.owners.is_none() || self.peak(mix) <= self.limit_bytes.saturating_add(self.limit_bytes / 10)
    }

    /// Whether a dose in addition to others should fit. Where the owners are not known, an amount divides three quarters
    /// of the peak: to begin with the strongest one would cost the program more than it needs.
    pub fn foretells(&self, others: &Mix<'_>, dose: Dose<'_>) -> bool {
        match (&self.situation.owners, dose.amount) {
            (None, Some(amount)) => {
                let peak = self.peak_bytes as f64 * (0.25 + 0.75 / f64::from(amount.max(1)));
                peak <= self.limit_bytes as f64
            }
            _ => self.peak(&others.with(dose)) <= self.limit_bytes,
        }
    }

    /// Whether `less` may fit where `mix` was seen to need `peak_bytes`: what the forecast says of the difference comes
    /// on top, with the tenth that [`Self::may_fit`] forgives. Where the owners are not known, nothing is ruled out.
    pub fn may_fit_instead(&self, mix: &Mix<'_>, peak_bytes: u64, less: &Mix<'_>) -> bool {
        let more = self.peak(less).saturating_sub(self.peak(mix));
        self.situation.owners.is_none()
            || peak_bytes.saturating_add(more) <= self.limit_bytes.saturating_add(self.limit_bytes / 10)
    }

    /// The share of an owner that a dose leaves; 1 where nothing is known.
    fn left(&self, dose: &Dose<'_>, owner: OwnerGroup) -> f64 {
        let left: f64 = dose
            .remedy
            .effects
            .iter()
            .filter(|effect| effect.owner == owner)
            .map(|effect| self.share(dose, effect))
            .product();
        match self.learned.get(&dose.remedy.id) {
            Some(learned) if left < 1.0 => (1.0 - (1.0 - left) * learned).max(0.0),
            _ => left,
        }
    }

    fn share(&self, dose: &Dose<'_>, effect: &Effect) -> f64 {
        if let Some(adds) = effect.adds {
            let weights = self.situation.settings.model_parameters.unwrap_or(0) as f64;
            let held = effect::owner_bytes(&self.situation, effect.owner).filter(|&bytes| bytes > 0);
            return held.map_or(1.0, |held| 1.0 + adds * weights / held as f64);
        }
        // Half is what the catalogue says of everything that divides; a dose says by how much.
        let amount = dose.amount.map(u64::from);
        match (effect.keeps, effect.formula, amount) {
            (Some(keeps), _, Some(amount)) if keeps < 1.0 => keeps.powf((amount.max(1) as f64).log2()),
            (Some(keeps), ..) => keeps,
            (None, Some(formula), amount) => {
                let mut situation = self.situation.clone();
                situation.settings.divide_by = amount.or(situation.settings.divide_by);
                let held = effect::owner_bytes(&situation, effect.owner).filter(|&bytes| bytes > 0);
                match (formula.frees(&situation, effect.owner), held) {
                    (Some(freed), Some(held)) => 1.0 - (freed as f64 / held as f64).min(1.0),
                    _ => 1.0,
                }
            }
            (None, None, _) => 1.0,
        }
    }
}
