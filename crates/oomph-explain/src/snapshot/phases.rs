//! Which part of the program was running when: load, forward, backward, optimizer; and where steps begin.
//!
//! The hook's phases are exact. Without them the stacks of the allocations tell: PyTorch runs the backward pass of a
//! card in a thread of its own that has no Python frames, so that in a recording with Python stacks an allocation without
//! one was made by autograd. Optimizers mark their steps in the recording (`Optimizer.step#...`) from PyTorch 2.5 on.

use oomph_trace::{StackId, Stage, Trace};

use super::explanation::Phase;
use super::lifetimes::{Lifetime, Position};
use super::names::DeviceNames;
use super::stacks::{Facts, Signs};
use super::timeline::Timeline;

/// How the steps were recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepSource {
    /// The hook counted them.
    Named,
    /// The optimizer's steps.
    Optimizer,
    /// Backward passes: the optimizer left no trace.
    Backward,
    /// A line outside of any module that allocates again and again.
    Repetition,
    /// None were recognised.
    None,
}

/// A stretch of the recording in one phase: the allocations born after `start`, up to the next one's `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub start: Position,
    pub kind: Phase,
}

/// The phases and steps of one device.
#[derive(Debug)]
pub(super) struct Phases {
    spans: Vec<Span>,
    /// Where each optimizer step begins and ends. A step that allocates nothing has no span, but a mark in the recording.
    optimizer: Vec<(Position, Position)>,
    /// Where each step ends.
    step_ends: Vec<Position>,
    pub steps: StepSource,
    /// Whether the recording has Python stacks (or C++ ones that show autograd's threads).
    pub has_stacks: bool,
    /// Whether there is a backward pass.
    pub trains: bool,
    end: Position,
}

/// Where an allocation was born.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Birth {
    pub kind: Phase,
    /// Where the phase ends.
    pub end: Position,
    /// Whether the recording ends before the phase is known to be over.
    pub cut: bool,
    /// The step, from 0.
    pub step: u32,
}

impl Phases {
    pub fn of(trace: &Trace, timeline: &Timeline, facts: &Facts, names: Option<&DeviceNames>) -> Self {
        let has_stacks = has_stacks(timeline, facts);
        let mut phases = Self {
            spans: Vec::new(),
            optimizer: Vec::new(),
            step_ends: Vec::new(),
            steps: StepSource::None,
            has_stacks,
            trains: false,
            end: timeline.end,
        };
        if let Some(names) = names.filter(|names| !names.phases.is_empty()) {
            phases.take_named(timeline, names);
        } else {
            phases.optimizer = after_closures(optimizer_ranges(trace, timeline), timeline, facts);
            phases.infer(timeline, facts);
        }
        if phases.optimizer.is_empty() {
            phases.optimizer = phases.ranges(Phase::Optimizer);
        }
        let backward = phases.spans.iter().any(|span| span.kind == Phase::Backward);
        phases.trains = backward || !phases.optimizer.is_empty();
        if phases.steps == StepSource::None {
            phases.find_steps(timeline, facts);
        }
        phases
    }

    /// The phase of what is born at a position.
    pub fn birth(&self, position: Position) -> Birth {
        let step = self.step_ends.partition_point(|&end| end < position) as u32;
        if position == 0 {
            return Birth { kind: Phase::BeforeRecording, end: 0, cut: false, step };
        }
        let after = self.spans.partition_point(|span| span.start < position);
        let kind = after.checked_sub(1).map_or(Phase::Other, |index| self.spans[index].kind);
        let next = self.spans.get(after).map(|span| span.start);
        Birth { kind, end: next.unwrap_or(self.end), cut: next.is_none(), step }
    }

    /// The stretches of the recording, in order.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The ends of the steps.
    pub fn step_ends(&self) -> &[Position] {
        &self.step_ends
    }

    /// Where the first optimizer step at or after a position begins.
    pub fn next_optimizer(&self, position: Position) -> Option<Position> {
        let next = self.optimizer.partition_point(|range| range.0 < position);
        self.optimizer.get(next).map(|range| range.0)
    }

    /// How many optimizer steps begin before a position.
    pub fn optimizer_steps_before(&self, position: Position) -> usize {
        self.optimizer.partition_point(|range| range.0 < position)
    }

    /// Where the last backward pass or optimizer step before a position ended; `None` within one.
    pub fn since_backward(&self, position: Position) -> Option<Position> {
        let works = |kind| matches!(kind, Phase::Backward | Phase::Optimizer);
        let before = self.spans.partition_point(|span| span.start <= position);
        match self.spans[..before].iter().rposition(|span| works(span.kind)) {
            Some(last) if last + 1 == before => None,
            Some(last) => self.spans.get(last + 1).map(|span| span.start),
            None => Some(0),
        }
    }

    /// Where each backward pass begins.
    pub fn backward_starts(&self) -> Vec<Position> {
        self.ranges(Phase::Backward).into_iter().map(|range| range.0).collect()
    }

    /// The stretches of one kind.
    fn ranges(&self, kind: Phase) -> Vec<(Position, Position)> {
        let ends = self.spans.iter().skip(1).map(|span| span.start).chain([self.end]);
        let of_kind = self.spans.iter().zip(ends).filter(|(span, _)| span.kind == kind);
        of_kind.map(|(span, end)| (span.start, end)).collect()
    }

    fn push(&mut self, start: Position, kind: Phase) {
        match self.spans.last_mut() {
            Some(last) if last.kind == kind => {}
            Some(last) if last.start >= start => last.kind = kind,
            _ => self.spans.push(Span { start, kind }),
        }
    }

    fn take_named(&mut self, timeline: &Timeline, names: &DeviceNames) {
        let position = |place: i64| place_to_position(&timeline.allocations, place, timeline.end);
        let mut stack: Vec<Phase> = Vec::new();
        let mut step = 0;
        self.push(0, Phase::Load);
        for &(place, event) in &names.phases {
            let at = position(place);
            if event.begin {
                if event.step > step {
                    // The count goes up with a step's first phase; what lies between belongs to the step before.
                    if step > 0 {
                        self.step_ends.push(at);
                    }
                    step = event.step;
                }
                // Neither is begun within itself: where the one before has no end, an exception ended it.
                if let Some(failed) = stack.iter().position(|&kind| kind == event.phase && never_nests(kind)) {
                    stack.truncate(failed);
                }
                stack.push(event.phase);
            } else if let Some(open) = stack.iter().rposition(|&kind| kind == event.phase) {
                stack.truncate(open);
            }
            self.push(at, stack.last().copied().unwrap_or(Phase::Other));
        }
        self.steps = if self.step_ends.is_empty() { StepSource::None } else { StepSource::Named };
    }

    /// Phases from the stacks of the allocations and from the optimizers' marks.
    fn infer(&mut self, timeline: &Timeline, facts: &Facts) {
        let marked = self.optimizer.clone();
        let mut marked = marked.into_iter().peekable();
        let mut now = Phase::Other;
        for block in timeline.lifetimes.iter().filter(|block| block.birth > 0) {
            let start = block.birth - 1;
            while let Some((from, to)) = marked.next_if(|range| range.1 <= start) {
                self.push(from, Phase::Optimizer);
                self.push(to, Phase::Other);
                now = Phase::Other;
            }
            if let Some(&(from, _)) = marked.peek().filter(|range| range.0 <= start) {
                self.push(from, Phase::Optimizer);
                now = Phase::Optimizer;
                continue;
            }
            let next = match self.kind_of(facts, block.stack) {
                Some(definite) => definite,
                // The loss is computed outside of the modules, but belongs to the forward pass.
                None if matches!(now, Phase::Forward | Phase::Other) => now,
                None => Phase::Other,
            };
            if next != now || self.spans.is_empty() {
                self.push(start, next);
                now = next;
            }
        }
        for (from, to) in marked {
            self.push(from, Phase::Optimizer);
            if to < self.end {
                self.push(to, Phase::Other);
            }
        }
    }

    /// The phase that a stack alone shows.
    pub fn kind_of(&self, facts: &Facts, stack: StackId) -> Option<Phase> {
        if !self.has_stacks {
            return None;
        }
        let signs = facts.get(stack).signs;
        if signs.any(Signs::STEP) {
            return Some(Phase::Optimizer);
        }
        if !signs.any(Signs::PYTHON) || signs.any(Signs::BACKWARD) {
            return Some(Phase::Backward);
        }
        if signs.any(Signs::FORWARD) {
            return Some(Phase::Forward);
        }
        signs.any(Signs::LOAD).then_some(Phase::Load)
    }

    fn find_steps(&mut self, timeline: &Timeline, facts: &Facts) {
        // What lasts to the end of the recording has not ended.
        let ends = |ranges: &[(Position, Position)]| -> Vec<Position> {
            ranges.iter().map(|range| range.1).filter(|&end| end < self.end).collect()
        };
        let (optimizer, backward) = (ends(&self.optimizer), ends(&self.ranges(Phase::Backward)));
        // A fused optimizer allocates in its first step only, and leaves no trace of the others where the recording has
        // no marks.
        if optimizer.len() >= 2 || (optimizer.len() == 1 && backward.len() < 3) {
            (self.steps, self.step_ends) = (StepSource::Optimizer, optimizer);
        } else if !backward.is_empty() {
            (self.steps, self.step_ends) = (StepSource::Backward, backward);
        } else if let Some(starts) = repetition(timeline, facts) {
            (self.steps, self.step_ends) = (StepSource::Repetition, starts);
        }
    }
}

/// Whether the absence of stacks says something: some allocations have Python frames.
fn has_stacks(timeline: &Timeline, facts: &Facts) -> bool {
    let (mut with, mut all) = (0usize, 0usize);
    // A file without events has the stacks of what was allocated at the end.
    let first = if timeline.end == 0 { 0 } else { 1 };
    for block in timeline.lifetimes.iter().filter(|block| block.birth >= first) {
        all += 1;
        with += usize::from(facts.get(block.stack).signs.any(Signs::PYTHON));
    }
    with * 50 > all
}

/// The positions of the optimizer's marked steps, from the range marks of the recording.
fn optimizer_ranges(trace: &Trace, timeline: &Timeline) -> Vec<(Position, Position)> {
    let mut ranges: Vec<(Position, Position)> = Vec::new();
    let mut open: Option<Position> = None;
    let mut next: Position = 0;
    for annotation in &trace.annotations {
        if !trace.strings.get(annotation.name).starts_with("Optimizer.step#") {
            continue;
        }
        // Both the marks and the events are in the order of time.
        while let Some(event) = timeline.device.events.get(next as usize)
            && next < timeline.end
            && event.time_us <= annotation.time_us
        {
            next += 1;
        }
        match annotation.stage {
            Stage::Start => open = Some(next),
            Stage::End => ranges.extend(open.take().map(|from| (from, next))),
        }
    }
    // The recording can end within a step, as it does when the step runs out of memory.
    ranges.extend(open.map(|from| (from, timeline.end)));
    ranges.dedup();
    ranges
}

/// What is left of the optimizer's steps after the closures that they call, which run forward and backward. Of one that the
/// recording ends in, nothing may be.
fn after_closures(ranges: Vec<(Position, Position)>, timeline: &Timeline, facts: &Facts) -> Vec<(Position, Position)> {
    let shrunk = ranges.into_iter().map(|(from, to)| {
        let first = timeline.lifetimes.partition_point(|block| block.birth <= from);
        let within = timeline.lifetimes[first..].iter().take_while(|block| block.birth <= to);
        let signs = within.map(|block| (block.birth, facts.get(block.stack).signs));
        if !signs.clone().any(|(_, signs)| signs.any(Signs::CLOSURE)) {
            return (from, to);
        }
        // The optimizer itself is called from Python; autograd's threads have no frames of it.
        let of_closure = |signs: Signs| signs.any(Signs::CLOSURE.and(Signs::BACKWARD)) || !signs.any(Signs::PYTHON);
        let ended = signs.filter(|(_, signs)| of_closure(*signs)).map(|(birth, _)| birth).last();
        (ended.unwrap_or(from), to)
    });
    shrunk.filter(|(from, to)| from < to || *to < timeline.end).collect()
}

/// Whether a phase cannot begin again before it has ended.
fn never_nests(phase: Phase) -> bool {
    matches!(phase, Phase::Optimizer | Phase::Backward)
}

/// Steps of a program that does not train: the first line outside of every module that allocates at least four times
/// with other allocations that come and go in between, such as the one that brings a batch to the device.
fn repetition(timeline: &Timeline, facts: &Facts) -> Option<Vec<Position>> {
    let mut counts = std::collections::HashMap::<StackId, u32>::new();
    let no_step = Signs::FORWARD.and(Signs::BACKWARD).and(Signs::STEP).and(Signs::LOAD).and(Signs::OPTIMIZER);
    let candidate = |block: &&Lifetime| {
        let signs = facts.get(block.stack).signs;
        block.birth > 0 && signs.any(Signs::PYTHON) && !signs.any(no_step)
    };
    for block in timeline.lifetimes.iter().filter(candidate) {
        *counts.entry(block.stack).or_default() += 1;
    }
    let marker = timeline
        .lifetimes
        .iter()
        .filter(candidate)
        .map(|block| block.stack)
        .filter(|stack| counts.get(stack).is_some_and(|&count| count >= 4))
        .min_by_key(|stack| counts.get(stack).copied())?;
    let starts: Vec<Position> = timeline
        .lifetimes
        .iter()
        .filter(|block| block.stack == marker && block.birth > 0)
        .map(|b| b.birth - 1)
        .collect();
    let bodies = starts.windows(2).filter(|pair| pair[1] - pair[0] > 2).count();
    (bodies * 2 >= starts.len()).then_some(starts)
}

/// The position just before the allocation that follows the first `place` ones.
pub(super) fn place_to_position(allocations: &[Position], place: i64, end: Position) -> Position {
    match usize::try_from(place) {
        Ok(place) => allocations.get(place).copied().unwrap_or(end),
        Err(_) => 0,
    }
}
