//! The rounds of a loop without a backward pass, such as an evaluation or the tokens of an answer, and how memory grows
//! with each of them.

use std::collections::HashMap;

use oomph_trace::StackId;

use super::Analysis;
use super::explanation::Phase;
use super::lifetimes::Position;
use super::stacks::Signs;

/// So many rounds make a loop.
const FEWEST: usize = 4;
/// What the rounds have to add up to, as a share of the reserved memory, to be growth.
const LEAST_GROWTH: f64 = 0.02;
/// A window of training has a fixed number of calls; a loop has at least this many times as many.
const MORE_THAN_IN_A_STEP: usize = 2;

/// A loop in which memory grows.
pub(super) struct Rounds {
    /// Where each round begins.
    pub starts: Vec<Position>,
    /// By how much memory in use grows with a round: the median.
    pub growth: u64,
}

impl Rounds {
    /// The loop that was under way at the moment under analysis.
    pub fn of(analysis: &Analysis) -> Option<Self> {
        let from = analysis.phases.since_backward(analysis.position)?;
        let marked = by_calls(analysis, from).into_iter().chain(by_stacks(analysis, from));
        marked
            .filter(|starts| computes(analysis, starts))
            .filter_map(|starts| Self::growing(analysis, starts))
            .max_by_key(|rounds| {
                (rounds.growth.saturating_mul(rounds.starts.len() as u64), std::cmp::Reverse(rounds.starts.len()))
            })
    }

    /// The rounds, if memory in use grows from one to the next.
    fn growing(analysis: &Analysis, starts: Vec<Position>) -> Option<Self> {
        let active =
            |start: Position| analysis.timeline.active.get(start.saturating_sub(1) as usize).copied().unwrap_or(0);
        let levels: Vec<u64> = starts.iter().map(|&start| active(start)).collect();
        let mut steps: Vec<i128> = levels.windows(2).map(|pair| i128::from(pair[1]) - i128::from(pair[0])).collect();
        // The first round makes what later ones reuse.
        if steps.len() > FEWEST {
            steps.remove(0);
        }
        let rising = steps.iter().filter(|step| **step > 0).count();
        if rising * 4 < steps.len() * 3 {
            return None;
        }
        steps.sort_unstable();
        let growth = steps.get(steps.len() / 2).copied().and_then(|step| u64::try_from(step).ok()).unwrap_or(0);
        let total = growth.saturating_mul(steps.len() as u64);
        let enough = total as f64 >= (analysis.layout.reserved() as f64 * LEAST_GROWTH).max((1 << 20) as f64);
        enough.then_some(Self { starts, growth })
    }

    /// Where the round that was under way began.
    pub fn last_start(&self) -> Position {
        self.starts.last().copied().unwrap_or(0)
    }
}

/// Calls of one module from outside of any module, since the last backward pass.
fn by_calls(analysis: &Analysis, from: Position) -> Vec<Vec<Position>> {
    let Some(naming) = analysis.naming else { return Vec::new() };
    let mut calls = HashMap::<u32, Vec<Position>>::new();
    let upto = naming.calls().partition_point(|(at, _)| *at <= analysis.position);
    for &(at, module) in &naming.calls()[..upto] {
        calls.entry(module).or_default().push(at);
    }
    let named_loop = matches!(analysis.phases.birth(analysis.position).kind, Phase::Eval | Phase::Generate);
    let mut marked: Vec<(u32, Vec<Position>)> = calls
        .into_iter()
        .filter_map(|(module, calls)| {
            let now = calls.partition_point(|&at| at <= from);
            let (earlier, now) = calls.split_at(now);
            let usual = most_between(earlier, &analysis.phases.backward_starts());
            // A first forward pass may call a layer repeatedly, which without an earlier pass looks the same as a loop.
            let is_loop = match usual {
                Some(usual) => now.len() > usual.saturating_mul(MORE_THAN_IN_A_STEP),
                None => named_loop,
            };
            (now.len() >= FEWEST && is_loop).then(|| (module, now.to_vec()))
        })
        .collect();
    marked.sort_unstable();
    marked.into_iter().map(|(_, starts)| starts).collect()
}

/// The most calls between two backward passes, or before the first one; `None` where there was no backward pass.
fn most_between(calls: &[Position], backward: &[Position]) -> Option<usize> {
    let mut from = 0;
    backward
        .iter()
        .map(|&start| {
            let to = calls.partition_point(|&at| at <= start);
            let count = to.saturating_sub(from);
            from = to;
            count
        })
        .max()
}

/// Stacks outside of modules that allocate again and again, as the one that brings a batch to the card.
fn by_stacks(analysis: &Analysis, from: Position) -> Vec<Vec<Position>> {
    let elsewhere = Signs::FORWARD
        .and(Signs::BACKWARD)
        .and(Signs::STEP)
        .and(Signs::LOAD)
        .and(Signs::OPTIMIZER)
        .and(Signs::RECOMPUTE);
    let mut births = HashMap::<StackId, Vec<Position>>::new();
    for block in &analysis.timeline.lifetimes {
        let signs = analysis.facts.get(block.stack).signs;
        if block.birth > from && block.birth <= analysis.position && signs.any(Signs::PYTHON) && !signs.any(elsewhere) {
            births.entry(block.stack).or_default().push(block.birth);
        }
    }
    let mut marked: Vec<(StackId, Vec<Position>)> =
        births.into_iter().filter(|(_, births)| births.len() >= FEWEST).collect();
    marked.sort_unstable_by_key(|(stack, _)| stack.0);
    marked.into_iter().map(|(_, births)| births).collect()
}

/// Whether modules compute in most rounds: a program that lays out its memory in a loop has no such rounds.
fn computes(analysis: &Analysis, starts: &[Position]) -> bool {
    let forward = |birth: Position, stack: StackId| {
        analysis.facts.get(stack).signs.any(Signs::FORWARD)
            || matches!(analysis.phases.birth(birth).kind, Phase::Forward | Phase::Eval | Phase::Generate)
    };
    let blocks = &analysis.timeline.lifetimes;
    let rounds = starts.windows(2).filter(|pair| {
        let first = blocks.partition_point(|block| block.birth < pair[0]);
        blocks[first..].iter().take_while(|block| block.birth < pair[1]).any(|block| forward(block.birth, block.stack))
    });
    rounds.count() * 4 >= starts.len().saturating_sub(1) * 3
}
