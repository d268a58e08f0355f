//! What is special about the step under way: the first one of an optimizer, or one that is larger than usual.

use std::collections::HashMap;

use oomph_trace::StackId;

use super::super::explanation::{CauseKind, Evidence, Owner, Phase};
use super::super::rounds::Rounds;
use super::{Ledger, readable};

/// With fewer earlier steps than this there is no usual one.
const EARLIER_STEPS: usize = 3;
/// Blocks of this step have to be larger than usual by this share of their bytes.
const LARGER: f64 = 0.1;

pub(super) fn claim(ledger: &mut Ledger, rounds: Option<&Rounds>) {
    lazy_optimizer(ledger);
    // In a loop whose memory grows each round is larger than the one before.
    if rounds.is_none() {
        longest_batch(ledger);
    }
}

/// The optimizer's state is made in its first step: a program can pass forward and backward, and die there.
fn lazy_optimizer(ledger: &mut Ledger) {
    let analysis = ledger.analysis;
    let Some(oom) = analysis.oom.filter(|oom| oom.phase == Phase::Optimizer) else { return };
    // The step under way is the first one if none began before it, and if there is no state of before.
    let position = oom.event as u32 + 1;
    if analysis.phases.optimizer_steps_before(position) > 1 {
        return;
    }
    let state: Vec<usize> = ledger.unclaimed().filter(|&at| ledger.owner(at) == Owner::OptimizerState).collect();
    let older = |&&at: &&usize| {
        let block = &analysis.timeline.lifetimes[analysis.layout.pieces[at].block as usize];
        analysis.phases.birth(block.birth).kind != Phase::Optimizer
    };
    if state.iter().filter(older).count() * 2 > state.len() {
        return;
    }
    let parameters: u64 = (0..analysis.identities.len())
        .filter(|&at| ledger.owner(at) == Owner::Parameters)
        .map(|at| analysis.layout.pieces[at].requested)
        .sum();
    let bytes = ledger.claim(state);
    let because = format!(
        "the optimizer makes its state in its first step, after forward and backward had passed; {} of it was there when \
         memory ran out (parameters: {}, and Adam keeps twice as much in their type)",
        readable(bytes),
        readable(parameters)
    );
    let evidence = vec![Evidence {
        what: "the allocation that failed".to_owned(),
        bytes: oom.requested_bytes,
        site: oom.site.clone(),
    }];
    ledger.add(CauseKind::LazyOptimizerState, bytes, 0.95, because, evidence);
}

/// Blocks of this step that are larger than those that the same lines allocated in the same turn of earlier steps.
fn longest_batch(ledger: &mut Ledger) {
    let analysis = ledger.analysis;
    let now = analysis.phases.birth(analysis.position).step;
    if (now as usize) < EARLIER_STEPS {
        return;
    }
    let varies = |owner| matches!(owner, Owner::Activations | Owner::Temporaries | Owner::Inputs | Owner::KvCache);
    let mut sizes = HashMap::<StackId, History>::new();
    let candidates: Vec<usize> = ledger
        .unclaimed()
        .filter(|&at| {
            let block = &analysis.timeline.lifetimes[analysis.layout.pieces[at].block as usize];
            block.birth > 0
                && varies(ledger.owner(at))
                && analysis.phases.birth(block.birth).step == now
                && analysis.facts.get(block.stack).line.is_some()
        })
        .collect();
    for &at in &candidates {
        let block = &analysis.timeline.lifetimes[analysis.layout.pieces[at].block as usize];
        sizes.entry(block.stack).or_default();
    }
    let mut turn_of = HashMap::<u32, usize>::new();
    for (index, block) in analysis.timeline.lifetimes.iter().enumerate() {
        if block.birth > 0
            && block.birth <= analysis.position
            && let Some(history) = sizes.get_mut(&block.stack)
        {
            let turn = history.push(analysis.phases.birth(block.birth).step, block.requested, now);
            turn_of.insert(index as u32, turn);
        }
    }
    let mut excess = Vec::<(usize, u64, u64)>::new();
    let mut compared = 0u64;
    for &at in &candidates {
        let piece = &analysis.layout.pieces[at];
        let block = &analysis.timeline.lifetimes[piece.block as usize];
        let (Some(history), Some(&turn)) = (sizes.get_mut(&block.stack), turn_of.get(&piece.block)) else { continue };
        let Some(usual) = history.usual(turn) else { continue };
        compared += piece.bytes;
        if block.requested > usual {
            excess.push((at, (block.requested - usual).min(piece.bytes), usual));
        }
    }
    let bytes: u64 = excess.iter().map(|(_, bytes, _)| *bytes).sum();
    if ledger.negligible(bytes) || (bytes as f64) < compared as f64 * LARGER {
        return;
    }
    excess.sort_by_key(|(_, bytes, _)| std::cmp::Reverse(*bytes));
    let evidence = excess
        .iter()
        .take(5)
        .map(|&(at, _, usual)| Evidence {
            what: format!("usually {}", readable(usual)),
            bytes: analysis.layout.pieces[at].bytes,
            site: ledger.site(at),
        })
        .collect();
    let because = format!(
        "this step is larger than those before it: its tensors take {} more than the same lines usually do; \
         bound the length or the size of a batch",
        readable(bytes)
    );
    let bytes = excess.iter().map(|&(at, bytes, _)| ledger.claim_part(at, bytes)).sum();
    ledger.add(CauseKind::LongestBatch, bytes, 0.8, because, evidence);
}

/// What one stack allocated in earlier steps, by its turn within the step.
#[derive(Default)]
struct History {
    step: u32,
    turn: usize,
    /// For each turn, the sizes of the earlier steps.
    turns: Vec<Vec<u64>>,
}

impl History {
    /// Notes an allocation, and returns which turn of its step it was.
    fn push(&mut self, step: u32, size: u64, now: u32) -> usize {
        if step != self.step {
            (self.step, self.turn) = (step, 0);
        }
        let turn = self.turn;
        self.turn += 1;
        if step < now {
            if turn >= self.turns.len() {
                self.turns.push(Vec::new());
            }
            if let Some(sizes) = self.turns.get_mut(turn) {
                sizes.push(size);
            }
        }
        turn
    }

    /// The median of earlier steps; `None` where there are too few.
    fn usual(&mut self, turn: usize) -> Option<u64> {
        let sizes = self.turns.get_mut(turn).filter(|sizes| sizes.len() >= EARLIER_STEPS)?;
        sizes.sort_unstable();
        sizes.get(sizes.len() / 2).copied()
    }
}
