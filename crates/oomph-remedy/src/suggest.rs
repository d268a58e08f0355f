//! Suggests a few remedies for a situation, cheapest first, and lists the popular advice that would not help.
//!
//! A remedy is offered when it answers one of the causes, its conditions may hold, it is not in effect already, it can
//! be written for the frameworks at hand, and it shrinks something that is on the card when the failure happens and has
//! bytes to lose. The order is that of [`Rank`]: the likelier cause, what frees enough on its own, what needs no
//! guessing, what was made for the failing operation, and what costs least.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::advice::Advice;
use crate::catalogue::Catalogue;
use crate::condition::{Doubt, Fact};
use crate::effect;
use crate::framework::Framework;
use crate::remedy::{DryRunKind, Kind, Remedy, Sameness, Written};
use crate::situation::{Cause, Operation, OwnerGroup, Situation, Task};
use crate::words;

/// The most remedies that are offered: more would not be read.
pub const MOST_OFFERS: usize = 5;
/// The most pieces of advice that are contradicted.
pub const MOST_AVOIDED: usize = 3;

/// What to do, and what not to try.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Suggestion {
    /// At most [`MOST_OFFERS`], the first to try first.
    pub remedies: Vec<Offer>,
    /// At most [`MOST_AVOIDED`].
    pub avoid: Vec<Avoid>,
}

/// A remedy in the words of the user's framework.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Offer {
    /// The remedy's id in the catalogue.
    pub id: String,
    /// A few words.
    pub title: String,
    /// In whose words it is written.
    pub framework: Framework,
    /// What kind of words these are.
    pub kind: Kind,
    /// The words: a flag, a variable, a key, a line of code, or something to do.
    pub apply: String,
    /// Bytes that it would free at this peak, where what is known allows a figure. A formula's figure, not a run's.
    pub frees_bytes: Option<u64>,
    /// Whether the result stays the same.
    pub sameness: Sameness,
    /// What it costs in time and in quality.
    pub cost: String,
    /// Why it helps here.
    pub because: String,
    /// What the user should know before using it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Advice that would not help here.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Avoid {
    /// The advice's id in the catalogue.
    pub id: String,
    /// The advice as people give it.
    pub title: String,
    /// Why it does not help here.
    pub because: String,
}

/// What to do in a situation, from the catalogue that is compiled in.
pub fn suggest(situation: &Situation) -> Suggestion {
    Catalogue::builtin().suggest(situation)
}

impl Catalogue {
    /// What to do in a situation.
    pub fn suggest(&self, situation: &Situation) -> Suggestion {
        let on = self.in_effect(situation);
        let mut candidates: Vec<Candidate<'_>> =
            self.remedies().iter().filter_map(|remedy| self.candidate(remedy, situation, &on)).collect();
        // The sort is stable, so that the order of the files decides between equals.
        candidates.sort_by_key(|candidate| candidate.rank);
        // What is loaded for training is only the beginning: what frees enough for the load may not be enough.
        let more_to_come = situation.task == Some(Task::Training) && situation.operation == Some(Operation::Load);
        let mut chosen: Vec<Candidate<'_>> = Vec::new();
        for candidate in candidates {
            // An alternative to what is offered already is worth a line only where that is too little.
            let superfluous = !more_to_come
                && chosen.iter().any(|better| !better.short && self.conflict(&better.remedy.id, &candidate.remedy.id));
            if !superfluous && chosen.len() < MOST_OFFERS {
                chosen.push(candidate);
            }
        }
        let remedies = chosen.into_iter().map(|candidate| candidate.offer(situation)).collect();
        let avoid = self
            .advice()
            .iter()
            .filter(|advice| advice.is_wrong(situation))
            .take(MOST_AVOIDED)
            .map(|advice| Avoid {
                id: advice.id.clone(),
                title: advice.title.clone(),
                because: words::fill(&advice.because, situation),
            })
            .collect();
        Suggestion { remedies, avoid }
    }

    /// The remedies that are in effect: those that the situation names, and the defaults of its frameworks.
    pub(crate) fn in_effect<'a>(&'a self, situation: &'a Situation) -> BTreeSet<&'a str> {
        let named = situation.on.iter().map(String::as_str);
        // A default says nothing where the weights themselves were seen to be wider.
        let wide = Fact::WeightsAre32Bit;
        let is_off = |remedy: &Remedy| remedy.when.plausible.contains(&wide) && wide.holds(situation) == Some(true);
        let defaults = self.remedies().iter().filter(|remedy| remedy.is_default(situation) && !is_off(remedy));
        named.chain(defaults.map(|remedy| remedy.id.as_str())).collect()
    }

    fn candidate<'a>(&self, remedy: &'a Remedy, situation: &Situation, on: &BTreeSet<&str>) -> Option<Candidate<'a>> {
        // Whether the program's code has a place for it is seen only where the code is.
        if remedy.dry_run.kind == DryRunKind::Edit {
            return None;
        }
        let cause = causes(situation).iter().position(|cause| remedy.when.causes.contains(cause))?;
        let excluded = on.contains(remedy.id.as_str())
            || on.iter().any(|on| self.conflict(on, &remedy.id))
            || !remedy.when.holds(situation, Doubt::Allow);
        let of_a_phase = |operation: &Operation| operation.is_phase();
        let of_unknown_phases = situation.operation.is_none()
            && !remedy.when.operations.is_empty()
            && remedy.when.operations.iter().all(of_a_phase);
        if excluded || of_unknown_phases || !shrinks_something(remedy, situation) {
            return None;
        }
        let written = remedy.written_for(&situation.frameworks)?;
        let by_owner = freed_of_owners(remedy, situation);
        let frees = by_owner.or_else(|| freed_of_request(remedy, situation));
        if frees == Some(0) {
            return None;
        }
        let short = matches!((by_owner, situation.memory.shortage()), (Some(frees), Some(missing)) if frees < missing);
        let rank = Rank {
            cause,
            short,
            doubts: doubts(remedy, situation),
            off_the_operation: !is_aimed(remedy, situation),
            off_the_inner: is_off_the_inner(remedy, situation),
            dearness: remedy.dearness(),
            general: remedy.when.causes.len() > 1,
        };
        Some(Candidate { remedy, written, frees, short, rank })
    }
}

/// What decides the order, the weightiest first; less is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Which of the likely causes it answers.
    cause: usize,
    /// It does not free enough on its own.
    short: bool,
    /// How much must be guessed to think that it applies.
    doubts: u8,
    /// It was not made for the failing operation.
    off_the_operation: bool,
    /// It was not made for what failed within that operation.
    off_the_inner: bool,
    /// What it costs.
    dearness: u8,
    /// It answers other causes too: what answers one is more to the point.
    general: bool,
}

/// How much is not known of what a remedy asks for: its operation weighs more than its task.
fn doubts(remedy: &Remedy, situation: &Situation) -> u8 {
    let task = u8::from(situation.task.is_none() && !remedy.when.tasks.is_empty());
    let operation = u8::from(situation.operation.is_none() && !remedy.when.operations.is_empty());
    task + 2 * operation
}

fn is_aimed(remedy: &Remedy, situation: &Situation) -> bool {
    situation.operation.is_some_and(|operation| remedy.aims.contains(&operation))
}

/// Whether it was not made for what failed within the operation, where that is known.
fn is_off_the_inner(remedy: &Remedy, situation: &Situation) -> bool {
    situation.within.is_some_and(|within| !remedy.aims.contains(&within))
}

struct Candidate<'a> {
    remedy: &'a Remedy,
    written: &'a Written,
    frees: Option<u64>,
    short: bool,
    rank: Rank,
}

impl Candidate<'_> {
    fn offer(self, situation: &Situation) -> Offer {
        Offer {
            id: self.remedy.id.clone(),
            title: self.remedy.title.clone(),
            framework: self.written.framework,
            kind: self.written.kind,
            apply: words::fill(&self.written.words, situation),
            frees_bytes: self.frees,
            sameness: self.remedy.sameness,
            cost: self.remedy.cost(situation),
            because: words::fill(&self.remedy.because, situation),
            note: self.remedy.note_before_use(&situation.frameworks),
        }
    }
}

impl Advice {
    /// Whether the situation shows that the advice does not help. Only the likeliest cause counts.
    pub fn is_wrong(&self, situation: &Situation) -> bool {
        let first = causes(situation)[0];
        (self.when.causes.is_empty() || self.when.causes.contains(&first)) && self.when.holds(situation, Doubt::Refuse)
    }
}

/// The causes to answer, the likeliest first; a run of which nothing is known needs more than there is.
fn causes(situation: &Situation) -> Vec<Cause> {
    let mut causes: Vec<Cause> = situation
        .causes
        .iter()
        .map(|suspect| if suspect.cause == Cause::Unknown { Cause::Full } else { suspect.cause })
        .collect();
    if causes.is_empty() {
        causes.push(Cause::Full);
    }
    causes
}

/// Whether one of the owners that a remedy shrinks is on the card at the failing moment and has bytes to lose.
fn shrinks_something(remedy: &Remedy, situation: &Situation) -> bool {
    let live = situation.operation.map_or(OwnerGroup::ALL, |operation| operation.live_owners());
    remedy.effects.iter().any(|effect| {
        effect.can_free() && live.contains(&effect.owner) && effect::owner_bytes(situation, effect.owner) != Some(0)
    })
}

/// The bytes that a remedy frees of the owners whose bytes are known.
fn freed_of_owners(remedy: &Remedy, situation: &Situation) -> Option<u64> {
    let live = situation.operation.map_or(OwnerGroup::ALL, |operation| operation.live_owners());
    remedy
        .effects
        .iter()
        .filter(|effect| live.contains(&effect.owner))
        .filter_map(|effect| match (effect.keeps, effect.formula) {
            (Some(keeps), _) => Some(effect::freed(effect::owner_bytes(situation, effect.owner)?, keeps)),
            (None, formula) => formula?.frees(situation, effect.owner),
        })
        .reduce(u64::saturating_add)
}

/// The bytes that go from the failing request itself, where nothing is known of the owners: a lower bound.
fn freed_of_request(remedy: &Remedy, situation: &Situation) -> Option<u64> {
    let is_its_own = is_aimed(remedy, situation) && !is_off_the_inner(remedy, situation);
    let requested = situation.memory.requested.filter(|_| is_its_own);
    Some(effect::freed(requested?, remedy.request_keeps?))
}
