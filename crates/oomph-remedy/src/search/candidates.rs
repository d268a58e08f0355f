//! Chooses the remedies that may help, and the order in which they are tried.

use std::collections::BTreeSet;

use crate::catalogue::Catalogue;
use crate::condition::Doubt;
use crate::effect;
use serde::{Deserialize, Serialize};

use crate::remedy::{Remedy, Sameness, TimeClass};
use crate::situation::{Operation, Situation};

use super::mix::Dose;

/// Which of several fixes comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "FixOrder"))]
#[serde(rename_all = "kebab-case")]
pub enum Prefer {
    /// What leaves the result the same, then what costs least time.
    #[default]
    Quality,
    /// What costs least time, then what leaves the result the same.
    Speed,
    /// What needs least memory.
    Memory,
}

/// What the user wishes of the search.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// What matters most.
    pub prefer: Prefer,
    /// Only these remedies, where there are any.
    pub allow: BTreeSet<String>,
    /// None of these.
    pub forbid: BTreeSet<String>,
}

/// A remedy that may help.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// The remedy.
    pub remedy: &'a Remedy,
    /// The amounts to try, the gentlest first; empty where it has none.
    pub amounts: Vec<u32>,
    /// What it costs, by what the user prefers: 0 is free. Those of one tier are added to a mix together.
    pub tier: u8,
    /// Whether it was made for one of the moments in which the peak may be.
    pub aimed: bool,
    /// Whether the user asked for this one and no other: it is tried, whatever is thought of it.
    pub asked: bool,
}

impl<'a> Candidate<'a> {
    /// The strongest dose.
    pub fn strongest(&self) -> Dose<'a> {
        Dose { remedy: self.remedy, amount: self.amounts.last().copied() }
    }
}

impl Catalogue {
    /// The remedies that may help in one of these moments and that `can_apply` accepts, cheapest first; between equals
    /// the order of the catalogue decides.
    ///
    /// `situation` names no operation: the peak may be in any of `moments`, and what helps in one of them may help.
    pub fn candidates(
        &self,
        situation: &Situation,
        moments: &[Operation],
        wishes: &Wishes,
        can_apply: impl Fn(&Remedy) -> bool,
    ) -> Vec<Candidate<'_>> {
        let situations: Vec<Situation> = moments
            .iter()
            .map(|&moment| Situation { operation: Some(moment), ..situation.clone() })
            .chain(moments.is_empty().then(|| situation.clone()))
            .collect();
        let mut found: Vec<Candidate<'_>> = self
            .remedies()
            .iter()
            .filter(|remedy| wishes.allow.is_empty() || wishes.allow.contains(&remedy.id))
            .filter(|remedy| !wishes.forbid.contains(&remedy.id))
            .filter(|remedy| can_apply(remedy))
            .filter(|remedy| remedy.written_for(&situation.frameworks).is_some())
            .filter(|remedy| {
                let asked = wishes.allow.contains(&remedy.id);
                situations.iter().any(|situation| self.may_help(remedy, situation, asked))
            })
            .map(|remedy| {
                let aimed = moments.iter().any(|moment| remedy.aims.contains(moment));
                Candidate {
                    remedy,
                    amounts: amounts(remedy, situation),
                    tier: tier(remedy, wishes.prefer) + if aimed { 0 } else { risk(remedy, wishes.prefer) },
                    aimed,
                    asked: wishes.allow.len() == 1,
                }
            })
            .filter(|candidate| candidate.remedy.knob.is_none() || !candidate.amounts.is_empty())
            .collect();
        found.sort_by_key(|candidate| candidate.tier);
        found
    }

    /// What a framework does by default the program may have switched off: who asks for it knows.
    fn may_help(&self, remedy: &Remedy, situation: &Situation, asked: bool) -> bool {
        let on = if asked { situation.on.iter().map(String::as_str).collect() } else { self.in_effect(situation) };
        let shrinks = remedy
            .effects
            .iter()
            .any(|effect| effect.can_free() && effect::owner_bytes(situation, effect.owner) != Some(0));
        shrinks
            && situation.causes.iter().any(|suspect| remedy.when.causes.contains(&suspect.cause))
            && !on.contains(remedy.id.as_str())
            && remedy.when.holds(situation, Doubt::Allow)
    }
}

/// The amounts that make sense for the run's settings.
fn amounts(remedy: &Remedy, situation: &Situation) -> Vec<u32> {
    let Some(knob) = &remedy.knob else { return Vec::new() };
    let settings = &situation.settings;
    let most = match knob.of {
        None => settings.batch_size,
        // What is not known cannot be divided.
        Some(_) => Some(settings.sequence_length.unwrap_or(0)),
    };
    knob.amounts.iter().copied().filter(|&amount| most.is_none_or(|most| u64::from(amount) <= most)).collect()
}

/// What a remedy costs on top where training may end worse for it and it was not made for the moment of the peak: it comes
/// after the others of its kind.
fn risk(remedy: &Remedy, prefer: Prefer) -> u8 {
    let risky = remedy.quality.as_ref().is_some_and(|quality| quality.risky);
    if risky && prefer == Prefer::Quality { 3 } else { 0 }
}

/// What a remedy costs, as a number.
fn tier(remedy: &Remedy, prefer: Prefer) -> u8 {
    match prefer {
        Prefer::Quality => remedy.dearness(),
        Prefer::Speed => {
            let time = match remedy.time.class {
                TimeClass::None => 0,
                TimeClass::Small => 3,
                TimeClass::Moderate => 6,
                TimeClass::Large => 9,
            };
            time + match remedy.sameness {
                Sameness::Exact | Sameness::Equivalent => 0,
                Sameness::Approximate => 1,
                Sameness::ChangesTheResult => 2,
            }
        }
        Prefer::Memory => 0,
    }
}
