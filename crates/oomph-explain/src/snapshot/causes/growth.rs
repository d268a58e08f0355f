//! Memory that grows with every step, or with every round of a loop.

use std::collections::{BTreeMap, BTreeSet};

use oomph_trace::StackId;

use super::super::explanation::{CauseKind, Evidence, Owner};
use super::super::rounds::Rounds;
use super::{Ledger, readable};

/// Blocks of as many different steps make a leak.
const STEPS: usize = 3;
/// Blocks of as many different stacks in one step are a graph, and not the result of one line.
const GRAPH: usize = 6;

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

pub(super) fn claim(ledger: &mut Ledger, rounds: Option<&Rounds>) {
    over_steps(ledger);
    if let Some(rounds) = rounds {
        over_rounds(ledger, rounds);
    }
}

/// Blocks of the same origin that are left from three or more earlier steps. One step back does not count: a loop's
/// variables hold the results of the step before until they are assigned anew.
fn over_steps(ledger: &mut Ledger) {
    let analysis = ledger.analysis;
    let now = analysis.phases.birth(analysis.position).step;
    let mut origins = BTreeMap::<Origin, (BTreeSet<u32>, Vec<usize>)>::new();
    for at in ledger.unclaimed() {
        let (step, _, born) = ledger.birth(at);
        let named = analysis.identities[at].named && ledger.owner(at) == Owner::Gradients;
        if born == 0 || step >= now || named || !may_grow(ledger.owner(at)) {
            continue;
        }
        let block = &analysis.timeline.lifetimes[analysis.layout.pieces[at].block as usize];
        let size = if analysis.facts.get(block.stack).line.is_some() { 0 } else { block.requested };
        let (steps, pieces) = origins.entry((block.stack, size)).or_default();
        if step + 1 < now {
            steps.insert(step);
        }
        pieces.push(at);
    }
    origins.retain(|_, (steps, _)| steps.len() >= STEPS);
    let Some(longest) = origins.values().map(|(steps, _)| steps.len()).max() else { return };
    let pieces: Vec<usize> = origins.into_values().flat_map(|(_, pieces)| pieces).collect();
    let mut of_step = BTreeMap::<u32, u64>::new();
    for &at in &pieces {
        *of_step.entry(ledger.birth(at).0).or_default() += analysis.layout.pieces[at].bytes;
    }
    let total: u64 = of_step.values().sum();
    if ledger.negligible(total) && analysis.oom.is_some() {
        return;
    }
    let each = median(of_step.into_values().collect());
    let evidence = evidence(ledger, &pieces);
    // Without training, steps are only repetitions of a line.
    let confidence = if analysis.phases.trains { 0.9 } else { 0.7 };
    let because = format!(
        "memory grows by about {} with every step{}: {} earlier steps left {} behind; {}",
        readable(each),
        place(&evidence),
        longest + 1,
        readable(total),
        holder(ledger, &pieces),
    );
    let bytes = ledger.claim(pieces);
    ledger.add(CauseKind::Leak, bytes, confidence, because, evidence);
    ledger.each(each);
}

/// Blocks that earlier rounds of the loop under way left behind. A cache of keys and values is meant to grow.
fn over_rounds(ledger: &mut Ledger, rounds: &Rounds) {
    let analysis = ledger.analysis;
    let (Some(&first), last) = (rounds.starts.first(), rounds.last_start()) else { return };
    let pieces: Vec<usize> = ledger
        .unclaimed()
        .filter(|&at| {
            let (_, _, born) = ledger.birth(at);
            let owner = ledger.owner(at);
            born >= first && born < last && may_grow(owner) && owner != Owner::KvCache
        })
        .collect();
    let total: u64 = pieces.iter().map(|&at| analysis.layout.pieces[at].bytes).sum();
    // What the rounds left has to be most of what they added: the rest is a cache that is meant to grow.
    let explains = total >= rounds.growth.saturating_mul(rounds.starts.len() as u64) / 2;
    // A cache that is made anew with each round is a few blocks, however large: what rounds leave behind is one at least.
    if ledger.negligible(total) || !explains || pieces.len() * 2 < rounds.starts.len() {
        return;
    }
    let evidence = evidence(ledger, &pieces);
    let because = format!(
        "memory grows by about {} with every round of a loop without a backward pass{}: {} rounds left {} behind; {}",
        readable(rounds.growth),
        place(&evidence),
        rounds.starts.len() - 1,
        readable(total),
        holder(ledger, &pieces),
    );
    let bytes = ledger.claim(pieces);
    ledger.add(CauseKind::Leak, bytes, 0.85, because, evidence);
    ledger.each(rounds.growth);
}

/// The blocks by the line that made them, the largest first, with the module where it is known.
fn evidence(ledger: &Ledger, pieces: &[usize]) -> Vec<Evidence> {
    let analysis = ledger.analysis;
    let mut lines = BTreeMap::<_, (u64, u64, Option<&str>)>::new();
    for &at in pieces {
        let block = analysis.layout.pieces[at].block;
        let line = analysis.facts.get(analysis.timeline.lifetimes[block as usize].stack).line;
        let (bytes, count, module) = lines.entry(line.map(|frame| frame.0)).or_default();
        *bytes += analysis.layout.pieces[at].bytes;
        *count += 1;
        *module = analysis.naming.and_then(|naming| naming.module(block)).filter(|name| !name.is_empty()).or(*module);
    }
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort_by_key(|(_, (bytes, ..))| std::cmp::Reverse(*bytes));
    let site = |line: Option<u32>| super::rows::line(analysis.trace, oomph_trace::FrameId(line?));
    lines
        .into_iter()
        .take(5)
        .map(|(line, (bytes, count, module))| Evidence {
            what: match module {
                Some(module) => format!("{count} blocks that are still held, last made in {module}"),
                None => format!("{count} blocks that are still held"),
            },
            bytes,
            site: site(line),
        })
        .collect()
}

fn place(evidence: &[Evidence]) -> String {
    let site = evidence.iter().find_map(|evidence| evidence.site.as_ref());
    site.map_or(String::new(), |line| format!(" (most of it allocated at {line})"))
}

/// What holds the blocks, as far as they show it: a graph is many different blocks of a step, a result is one.
fn holder(ledger: &Ledger, pieces: &[usize]) -> &'static str {
    let analysis = ledger.analysis;
    let stacks: BTreeSet<u32> = pieces
        .iter()
        .map(|&at| analysis.timeline.lifetimes[analysis.layout.pieces[at].block as usize].stack.0)
        .collect();
    if stacks.len() >= GRAPH {
        "whole graphs are held: look for a loss or an output that is kept or added up without .item() or .detach(), \
         for retain_graph=True, and for an evaluation without torch.no_grad()"
    } else {
        "results are held: look for a list or a dictionary that they are put into, also by a forward hook, and keep \
         numbers or CPU copies instead"
    }
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}
