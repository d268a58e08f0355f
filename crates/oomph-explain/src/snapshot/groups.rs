//! The live bytes by what they have in common.

use std::collections::HashMap;
use std::hash::Hash;

use oomph_trace::{FrameId, StackId};

use super::Scene;
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
fn sums<K: Hash + Eq + Ord + Copy>(scene: &Scene, key: impl Fn(u32) -> Option<K>) -> Vec<(K, Sum)> {
    let mut sums = HashMap::<K, Sum>::new();
    for (piece, identity) in scene.layout.pieces.iter().zip(scene.identities) {
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

fn stack_of(scene: &Scene, block: u32) -> StackId {
    scene.timeline.lifetimes[block as usize].stack
}

/// By module; blocks of no module are one group without a name. Empty where the hook recorded no modules.
pub(super) fn by_module(scene: &Scene) -> Vec<Group> {
    let Some(naming) = scene.naming.filter(|naming| naming.has_modules()) else { return Vec::new() };
    let sums = sums(scene, |block| Some(naming.module(block).unwrap_or("")));
    sums.iter().map(|(name, sum)| group((*name).to_owned(), sum)).collect()
}

/// By data type. Empty where the hook recorded none.
pub(super) fn by_dtype(scene: &Scene) -> Vec<Group> {
    let Some(naming) = scene.naming else { return Vec::new() };
    let sums = sums(scene, |block| Some(naming.dtype(block).unwrap_or("unknown")));
    sums.iter().map(|(name, sum)| group((*name).to_owned(), sum)).collect()
}

/// By the line of the program that allocated.
pub(super) fn by_line(scene: &Scene) -> Vec<Group> {
    let line = |block: u32| Some(scene.facts.get(stack_of(scene, block)).line);
    let sums = sums(scene, line);
    if sums.len() == 1 && sums[0].0.is_none() {
        return Vec::new();
    }
    let name = |frame: Option<FrameId>| match frame.and_then(|frame| rows::line(scene.trace, frame)) {
        Some(line) => line.to_string(),
        None if scene.phases.has_stacks => "(backward, or before the recording)".to_owned(),
        None => "(no stack was recorded)".to_owned(),
    };
    sums.iter().map(|(frame, sum)| group(name(*frame), sum)).collect()
}

/// By the part of the program that allocated.
pub(super) fn by_phase(scene: &Scene) -> Vec<Group> {
    let phase = |block: u32| Some(scene.phases.birth(scene.timeline.lifetimes[block as usize].birth).kind);
    sums(scene, phase).iter().map(|(kind, sum)| group(phase_name(*kind).to_owned(), sum)).collect()
}

/// A phase as groups of memory are called by it.
pub fn phase_name(kind: Phase) -> &'static str {
    if kind == Phase::BeforeRecording { kind.spelled_out() } else { kind.name() }
}

/// By what was asked for at once: many blocks of one size are often the pieces of one thing.
pub(super) fn by_size(scene: &Scene, top: usize) -> Vec<Group> {
    let sums = sums(scene, |block| Some(scene.timeline.lifetimes[block as usize].requested));
    let name = |size: u64, blocks: u64| match blocks {
        1 => format!("one block of {}", readable(size)),
        _ => format!("{blocks} blocks of {} each", readable(size)),
    };
    sums.iter().take(top).map(|(size, sum)| group(name(*size, sum.blocks), sum)).collect()
}

/// What was asked for over the whole recording.
pub(super) fn churn(scene: &Scene) -> Churn {
    let recorded = scene.timeline.lifetimes.iter().filter(|block| !block.before_recording());
    recorded.fold(Churn::default(), |sum, block| Churn {
        allocations: sum.allocations + 1,
        bytes: sum.bytes.saturating_add(block.requested),
    })
}

/// The stacks that hold the most.
pub(super) fn top_stacks(scene: &Scene, top: usize) -> Vec<StackGroup> {
    let sums = sums(scene, |block| Some(stack_of(scene, block)));
    sums.iter()
        .take(top)
        .map(|(stack, sum)| StackGroup {
            bytes: sum.bytes,
            blocks: sum.blocks,
            owner: sum.owner(),
            frames: frames(scene, *stack),
        })
        .collect()
}

/// The frames of a stack that say something: Python's, without those that PyTorch puts around every call.
pub(super) fn frames(scene: &Scene, stack: StackId) -> Vec<Line> {
    let frames = scene.trace.stacks.innermost_first(stack);
    let lines: Vec<Line> = frames.filter_map(|frame| rows::line(scene.trace, frame)).collect();
    let python = |line: &&Line| line.file.ends_with(".py") || line.file.starts_with('<');
    let telling = |line: &&Line| !matches!(line.function.as_str(), "_call_impl" | "_wrapped_call_impl" | "_apply");
    if lines.iter().any(|line| python(&line)) {
        lines.iter().filter(python).filter(telling).cloned().collect()
    } else {
        lines
    }
}
