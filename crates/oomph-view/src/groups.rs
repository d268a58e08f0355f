//! Groups the blocks that the bands of a picture show: owners, parts of the program, modules and lines.

use std::collections::HashMap;

use oomph_explain::snapshot::{History, HistoryBlock, Owner, Phase, phase_name};
use oomph_trace::{FrameId, Trace};

/// Groups that have a band of their own; the others share one.
const MOST: usize = 11;
/// As many parts of a module's name are looked at, at most.
const DEEPEST: usize = 6;

/// One way to divide the blocks.
#[derive(Debug, Default)]
pub struct Grouping {
    /// The groups' names, the first one at the bottom of the picture.
    pub names: Vec<String>,
    /// The group of each block.
    pub of: Vec<u8>,
}

impl Grouping {
    /// Whether there is more than one group.
    pub fn divides(&self) -> bool {
        self.names.len() > 1
    }
}

/// The owners in the order in which they lie on each other: what stays longest is at the bottom.
pub const OWNERS: [Owner; 11] = [
    Owner::Parameters,
    Owner::Buffers,
    Owner::OptimizerState,
    Owner::Gradients,
    Owner::KvCache,
    Owner::Activations,
    Owner::Inputs,
    Owner::Workspace,
    Owner::GraphPools,
    Owner::Temporaries,
    Owner::Unattributed,
];

/// The parts of a program in the order in which they come.
const PHASES: [Phase; 8] = [
    Phase::BeforeRecording,
    Phase::Load,
    Phase::Forward,
    Phase::Backward,
    Phase::Optimizer,
    Phase::Eval,
    Phase::Generate,
    Phase::Other,
];

/// By owner. All owners are groups, so that their places are the same in every picture.
pub fn by_owner(history: &History) -> Grouping {
    let place = |block: &HistoryBlock| OWNERS.iter().position(|&owner| owner == block.owner);
    Grouping {
        names: OWNERS.iter().map(|owner| owner.name().to_owned()).collect(),
        of: history.blocks.iter().map(|block| place(block).unwrap_or(OWNERS.len() - 1) as u8).collect(),
    }
}

/// The name of the part of a program that a number stands for.
pub fn phase(kind: Phase) -> usize {
    PHASES.iter().position(|&known| known == kind).unwrap_or(PHASES.len() - 1)
}

/// By the part of the program that allocated.
pub fn by_phase(history: &History) -> Grouping {
    Grouping {
        names: PHASES.iter().map(|kind| phase_name(*kind).to_owned()).collect(),
        of: history.blocks.iter().map(|block| phase(block.phase) as u8).collect(),
    }
}

/// By module: layers that differ in their number alone are one group, and names are cut where there would be many small
/// groups otherwise.
pub fn by_module(history: &History) -> Grouping {
    if history.modules.is_empty() {
        return Grouping::default();
    }
    let mut best = Grouping::default();
    for depth in (1..=DEEPEST).rev() {
        let patterns: Vec<String> = history.modules.iter().map(|name| pattern(name, depth)).collect();
        let key =
            |block: &HistoryBlock| block.module.and_then(|module| patterns.get(module as usize)).map(String::as_str);
        let (grouping, others) = largest(history, key, "outside of modules", "other modules");
        best = grouping;
        if others < 0.15 {
            break;
        }
    }
    best
}

/// `model.layers.17.mlp.up_proj` is `model.layers.*.mlp` at depth four.
fn pattern(name: &str, depth: usize) -> String {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts = name.split('.').take(depth).map(|part| if number(part) { "*" } else { part });
    parts.collect::<Vec<_>>().join(".")
}

/// By the line of the program.
pub fn by_line(trace: &Trace, history: &History) -> Grouping {
    let mut names = HashMap::<FrameId, String>::new();
    for frame in history.blocks.iter().filter_map(|block| block.line) {
        names.entry(frame).or_insert_with(|| line(trace, frame));
    }
    if names.is_empty() {
        return Grouping::default();
    }
    let key = |block: &HistoryBlock| block.line.and_then(|frame| names.get(&frame)).map(String::as_str);
    largest(history, key, "without a line (autograd, or before the recording)", "other lines").0
}

/// `train.py:12 in step`.
fn line(trace: &Trace, frame: FrameId) -> String {
    let Some(frame) = trace.frames.get(frame) else { return String::new() };
    let file = trace.strings.get(frame.file);
    let file = file.rsplit(['/', '\\']).next().unwrap_or(file);
    format!("{file}:{} in {}", frame.line, trace.strings.get(frame.name))
}

/// The groups that hold the most for the longest, and the share that is in none of them.
fn largest<'a>(
    history: &History,
    key: impl Fn(&HistoryBlock) -> Option<&'a str>,
    without: &str,
    others: &str,
) -> (Grouping, f64) {
    let mut weights = HashMap::<&str, f64>::new();
    let (mut all, mut keyed) = (0.0, false);
    for block in &history.blocks {
        let life = block.death.min(history.end).saturating_sub(block.birth).max(1);
        // The moment of the answer counts as much as all others together.
        let there = block.birth <= history.moment && history.moment < block.death;
        let weight = block.size as f64 * (f64::from(life) + if there { f64::from(history.end) } else { 0.0 });
        if let Some(key) = key(block) {
            *weights.entry(key).or_default() += weight;
            all += weight;
            keyed = true;
        }
    }
    if !keyed {
        return (Grouping::default(), 1.0);
    }
    let mut rows: Vec<(&str, f64)> = weights.into_iter().collect();
    rows.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    let rest: f64 = rows.iter().skip(MOST).map(|row| row.1).sum();
    rows.truncate(MOST);
    let places: HashMap<&str, u8> = rows.iter().enumerate().map(|(place, row)| (row.0, place as u8)).collect();
    let mut names: Vec<String> = rows.iter().map(|row| row.0.to_owned()).collect();
    let other = names.len() as u8;
    names.extend([others.to_owned(), without.to_owned()]);
    let of = |block: &HistoryBlock| match key(block) {
        Some(key) => places.get(key).copied().unwrap_or(other),
        None => other + 1,
    };
    let of = history.blocks.iter().map(of).collect();
    (Grouping { names, of }, if all > 0.0 { rest / all } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::pattern;

    #[test]
    fn layers_that_differ_in_their_number_are_one() {
        assert_eq!(pattern("model.layers.17.mlp.up_proj", 4), "model.layers.*.mlp");
        assert_eq!(pattern("(GPT2LMHeadModel)", 4), "(GPT2LMHeadModel)");
        assert_eq!(pattern("", 2), "");
    }
}
