//! Memory that grows with every step.

use std::collections::{BTreeMap, BTreeSet};

use oomph_trace::StackId;

use super::super::explanation::{CauseKind, Evidence, Owner};
use super::{Ledger, readable};

/// Blocks of as many different steps make a leak.
const STEPS: usize = 3;

/// What blocks of one origin have in common: the stack, or the size where there is none.
type Origin = (StackId, u64);

fn may_grow(owner: Owner) -> bool {
    matches!(
        owner,
        Owner::Activations
            | Owner::Temporaries
            | Owner::Inputs
            | Owner::Gradients
            | Owner::Unattributed
            | Owner::KvCache
    )
}

/// Blocks of the same origin that stand from three or more earlier steps. One step back does not count: a loop's
/// variables hold the results of the step before until they are assigned anew.
pub(super) fn claim(ledger: &mut Ledger) {
    let scene = ledger.scene;
    let now = scene.phases.birth(scene.position).step;
    let mut origins = BTreeMap::<Origin, (BTreeSet<u32>, Vec<usize>)>::new();
    for at in ledger.unclaimed() {
        let (step, _, born) = ledger.birth(at);
        let named = scene.identities[at].named && ledger.owner(at) == Owner::Gradients;
        if born == 0 || step >= now || named || !may_grow(ledger.owner(at)) {
            continue;
        }
        let block = &scene.timeline.lifetimes[scene.layout.pieces[at].block as usize];
        let size = if scene.facts.get(block.stack).line.is_some() { 0 } else { block.requested };
        let (steps, pieces) = origins.entry((block.stack, size)).or_default();
        if step + 1 < now {
            steps.insert(step);
        }
        pieces.push(at);
    }
    origins.retain(|_, (steps, _)| steps.len() >= STEPS);
    let mut growing: Vec<(u64, usize, Vec<usize>)> = origins
        .into_values()
        .map(|(steps, pieces)| (pieces.iter().map(|&at| scene.layout.pieces[at].bytes).sum(), steps.len(), pieces))
        .collect();
    growing.sort_by_key(|(bytes, ..)| std::cmp::Reverse(*bytes));
    let Some(longest) = growing.iter().map(|(_, steps, _)| *steps).max() else { return };
    let total: u64 = growing.iter().map(|(bytes, ..)| *bytes).sum();
    if ledger.negligible(total) && scene.oom.is_some() {
        return;
    }
    let evidence: Vec<Evidence> = growing
        .iter()
        .take(5)
        .map(|(bytes, steps, pieces)| Evidence {
            what: format!("{} blocks of {steps} or more earlier steps are still held", pieces.len()),
            bytes: *bytes,
            site: pieces.first().and_then(|&at| ledger.site(at)),
        })
        .collect();
    let per_step = total / (longest as u64 + 1).max(1);
    // Without training, steps are only repetitions of a line.
    let confidence = if scene.phases.trains { 0.9 } else { 0.7 };
    let place = evidence.iter().find_map(|evidence| evidence.site.clone());
    let because = format!(
        "memory grows by about {} with every step{}, and nothing frees it; something holds a reference, such as a list \
         of losses or outputs that were not detached",
        readable(per_step),
        place.map_or(String::new(), |line| format!(" (allocated at {line})")),
    );
    let bytes = ledger.claim(growing.into_iter().flat_map(|(_, _, pieces)| pieces));
    ledger.add(CauseKind::Leak, bytes, confidence, because, evidence);
}
