//! The live bytes by what they have in common.

use std::collections::HashMap;
use std::hash::Hash;

use oomph_trace::{FrameId, StackId};

use super::Analysis;
use super::causes::readable;
use super::explanation::{Churn, Group, Line, Owner, Phase, StackGroup};
use super::rows;

/// Sums for one group.
#[derive(Clone, Default)]
struct Sum {
    bytes: u64,
    blocks: u64,
    owners: HashMap<Owner, u64>,
}

impl Sum {
    fn owner(&self) -> Owner {
        let largest = self.owners.iter().max_by_key(|(owner, bytes)| (**bytes, std::cmp::Reverse(**owner)));
        largest.map_or(Owner::Unattributed, |(owner, _)| *owner)
    }
}

/// Sums of the live blocks by a key; the largest first.
fn sums<K: Hash + Eq + Ord + Copy>(analysis: &Analysis, key: impl Fn(u32) -> Option<K>) -> Vec<(K, Sum)> {
    let mut sums = HashMap::<K, Sum>::new();
    for (piece, identity) in analysis.layout.pieces.iter().zip(analysis.identities) {
        let Some(key) = key(piece.block) else { continue };
        let sum = sums.entry(key).or_default();
        sum.bytes += piece.requested;
        sum.blocks += 1;
        *sum.owners.entry(identity.owner).or_default() += piece.requested;
    }
    let mut sums: Vec<(K, Sum)> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.bytes.cmp(&a.1.bytes).then(a.0.cmp(&b.0)));
    sums
}

fn group(name: String, sum: &Sum) -> Group {
    Group { name, bytes: sum.bytes, blocks: sum.blocks, owner: sum.owner() }
}

fn stack_of(analysis: &Analysis, block: u32) -> StackId {
    analysis.timeline.lifetimes[block as usize].stack
}

/// By module; blocks of no module are one group without a name. Empty where the hook recorded no modules.
pub(super) fn by_module(analysis: &Analysis) -> Vec<Group> {
    let Some(naming) = analysis.naming.filter(|naming| naming.has_modules()) else { return Vec::new() };
    let sums = sums(analysis, |block| Some(naming.module(block).unwrap_or("")));
    sums.iter().map(|(name, sum)| group((*name).to_owned(), sum)).collect()
}

/// By data type. Empty where the hook recorded none.
pub(super) fn by_dtype(analysis: &Analysis) -> Vec<Group> {
    let Some(naming) = analysis.naming else { return Vec::new() };
    let sums = sums(analysis, |block| Some(naming.dtype(block).unwrap_or("unknown")));
    sums.iter().map(|(name, sum)| group((*name).to_owned(), sum)).collect()
}

/// By the line of the program that allocated.
pub(super) fn by_line(analysis: &Analysis) -> Vec<Group> {
    let line = |block: u32| Some(analysis.facts.get(stack_of(analysis, block)).line);
    let sums = sums(analysis, line);
    if sums.len() == 1 && sums[0].0.is_none() {
        return Vec::new();
    }
    let name = |frame: Option<FrameId>| match frame.and_then(|frame| rows::line(analysis.trace, frame)) {
        Some(line) => line.to_string(),
        None if analysis.phases.has_stacks => "(backward, or before the recording)".to_owned(),
        None => "(no stack was recorded)".to_owned(),
    };
    sums.iter().map(|(frame, sum)| group(name(*frame), sum)).collect()
}

/// By the part of the program that allocated.
pub(super) fn by_phase(analysis: &Analysis) -> Vec<Group> {
    let phase = |block: u32| Some(analysis.phases.birth(analysis.timeline.lifetimes[block as usize].birth).kind);
    sums(analysis, phase).iter().map(|(kind, sum)| group(phase_name(*kind).to_owned(), sum)).collect()
}

/// A phase as groups of memory are called by it.
pub fn phase_name(kind: Phase) -> &'static str {
    if kind == Phase::BeforeRecording { kind.spelled_out() } else { kind.name() }
}

/// By what was asked for at once: many blocks of one size are often the pieces of one thing.
pub(super) fn by_size(analysis: &Analysis, top: usize) -> Vec<Group> {
    let sums = sums(analysis, |block| Some(analysis.timeline.lifetimes[block as usize].requested));
    let name = |size: u64, blocks: u64| match blocks {
        1 => format!("one block of {}", readable(size)),
        _ => format!("{blocks} blocks of {} each", readable(size)),
    };
    sums.iter().take(top).map(|(size, sum)| group(name(*size, sum.blocks), sum)).collect()
}

/// What was asked for over the whole recording.
pub(super) fn churn(analysis: &Analysis) -> Churn {
    let recorded = analysis.timeline.lifetimes.iter().filter(|block| !block.before_recording());
    recorded.fold(Churn::default(), |sum, block| Churn {
        allocations: sum.allocations + 1,
        bytes: sum.bytes.saturating_add(block.requested),
    })
}

/// The stacks that hold the most.
pub(super) fn top_stacks(analysis: &Analysis, top: usize) -> Vec<StackGroup> {
    let sums = sums(analysis, |block| Some(stack_of(analysis, block)));
    sums.iter()
        .take(top)
        .map(|(stack, sum)| StackGroup {
            bytes: sum.bytes,
            blocks: sum.blocks,
            owner: sum.owner(),
            frames: frames(analysis, *stack),
        })
        .collect()
}

/// The frames of a stack that say something: Python's, without those that PyTorch puts around every call.
pub(super) fn frames(analysis: &Analysis, stack: StackId) -> Vec<Line> {
    let frames = analysis.trace.stacks.innermost_first(stack);
    let lines: Vec<Line> = frames.filter_map(|frame| rows::line(analysis.trace, frame)).collect();
    let python = |line: &&Line| line.file.ends_with(".py") || line.file.starts_with('<');
    let telling = |line: &&Line| !matches!(line.function.as_str(), "_call_impl" | "_wrapped_call_impl" | "_apply");
    if lines.iter().any(|line| python(&line)) {
        lines.iter().filter(python).filter(telling).cloned().collect()
    } else {
        lines
    }
}
