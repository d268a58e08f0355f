//! Reorders batches: steps that begin and end with the same blocks in use can change places.

use std::collections::HashMap;

use crate::script::{Kind, Script, Step};

/// The steps of a training loop that can change places.
#[derive(Clone, Debug)]
pub(super) struct Batches {
    /// The requests with every block under a number of its own, in place of slots that are used again.
    steps: Vec<Step>,
    slots: u32,
    /// Where each step of the loop begins among the requests, and where the last one ends.
    bounds: Vec<usize>,
    /// The blocks of the loop that are in use at each of the bounds, oldest first.
    alive: Vec<Vec<u32>>,
    /// The steps that are alike in what they take over and leave behind.
    groups: Vec<Vec<usize>>,
}

/// What a step takes over and leaves behind. Blocks that outlive a step are identified by their rank among those that
/// do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Signature {
    carried: usize,
    freed: Vec<(Kind, usize)>,
    left: usize,
}

impl Batches {
    /// The batches of a script, whose steps end after these events. None are moved where the recording ends in a
    /// failure, which belongs to its place, or where all batches are alike, whose order makes no difference.
    pub fn of(script: &Script, step_ends: &[usize]) -> Self {
        let mut whole = Self { steps: Vec::new(), slots: 0, bounds: Vec::new(), alive: Vec::new(), groups: Vec::new() };
        if script.fatal.is_some() || step_ends.len() < 4 {
            return whole;
        }
        let place = |&end: &usize| script.events.partition_point(|&event| event as usize <= end);
        // The first step makes gradients and the optimizer's state, so that it and what came before stay where they are.
        whole.bounds = step_ends.iter().map(place).collect();
        whole.bounds.dedup();
        whole.number(script);
        let signatures = whole.signatures();
        let mut groups: HashMap<&Signature, Vec<usize>> = HashMap::new();
        for (step, signature) in signatures.iter().enumerate() {
            if let Some(signature) = signature {
                groups.entry(signature).or_default().push(step);
            }
        }
        let differ = |group: &Vec<usize>| group.windows(2).any(|pair| whole.sizes(pair[0]).ne(whole.sizes(pair[1])));
        let bytes = |&step: &usize| whole.sizes(step).sum::<u64>();
        // Batches that only grow, or only shrink, are in an order that the program gave them.
        let in_order =
            |group: &Vec<usize>| group.iter().is_sorted_by_key(bytes) || group.iter().rev().is_sorted_by_key(bytes);
        whole.groups = groups.into_values().filter(|group| differ(group) && !in_order(group)).collect();
        // A map has no order of its own, and equal seeds are to give equal replays.
        whole.groups.sort_unstable();
        whole
    }

    /// The script with the steps of each group in an order that `chances` draws.
    pub fn shuffled(&self, script: &Script, chances: &mut fastrand::Rng) -> Script {
        if self.groups.is_empty() {
            return script.clone();
        }
        let mut order: Vec<usize> = (0..self.bounds.len() - 1).collect();
        for group in &self.groups {
            let mut drawn = group.clone();
            chances.shuffle(&mut drawn);
            for (&place, &step) in group.iter().zip(&drawn) {
                order[place] = step;
            }
        }
        let (first, last) = (self.bounds[0], self.bounds[self.bounds.len() - 1]);
        let mut steps: Vec<Step> = self.steps[..first].to_vec();
        let mut events: Vec<u32> = script.events[..first].to_vec();
        let mut alive: Vec<u32> = Vec::new();
        let mut take = |range: std::ops::Range<usize>, theirs: &[u32], alive: &mut Vec<u32>| {
            let renamed: HashMap<u32, u32> = theirs.iter().copied().zip(alive.iter().copied()).collect();
            for index in range {
                let mut step = self.steps[index];
                if let Some(&name) = renamed.get(&step.slot).filter(|_| step.gives_back()) {
                    step.slot = name;
                }
                note(alive, &step);
                steps.push(step);
                events.push(script.events[index]);
            }
        };
        for step in order {
            take(self.bounds[step]..self.bounds[step + 1], &self.alive[step], &mut alive);
        }
        take(last..self.steps.len(), &self.alive[self.bounds.len() - 1], &mut alive);
        Script { steps, events, slots: self.slots, ..script.clone() }
    }

    /// Gives every block a number of its own.
    fn number(&mut self, script: &Script) {
        let mut names: Vec<u32> = (0..script.slots).collect();
        self.slots = script.slots;
        self.steps = script
            .steps
            .iter()
            .map(|step| {
                let mut step = *step;
                match step.kind {
                    Kind::Allocate | Kind::AllocateScratch => {
                        names[step.slot as usize] = self.slots;
                        step.slot = self.slots;
                        self.slots = self.slots.saturating_add(1);
                    }
                    _ if step.gives_back() => step.slot = names[step.slot as usize],
                    _ => {}
                }
                step
            })
            .collect();
    }

    /// The signature of each step; none for those that free something from before the loop, or flush the cache.
    fn signatures(&mut self) -> Vec<Option<Signature>> {
        let mut alive: Vec<u32> = Vec::new();
        let mut signatures = Vec::new();
        for bounds in self.bounds.windows(2) {
            let ranks: HashMap<u32, usize> = alive.iter().enumerate().map(|(rank, &slot)| (slot, rank)).collect();
            let (carried, mut freed, mut movable) = (alive.len(), Vec::new(), true);
            self.alive.push(alive.clone());
            for step in &self.steps[bounds[0]..bounds[1]] {
                match ranks.get(&step.slot) {
                    Some(&rank) if step.gives_back() => freed.push((step.kind, rank)),
                    // What is neither taken over nor made in this step is from before the loop.
                    _ if step.gives_back() => movable &= alive.contains(&step.slot),
                    _ => movable &= step.takes(),
                }
                note(&mut alive, step);
            }
            freed.sort_unstable();
            let signature = Signature { carried, freed, left: alive.len() };
            signatures.push((movable && signature.carried == signature.left).then_some(signature));
        }
        self.alive.push(alive);
        signatures
    }

    /// What a step asks for, in order.
    fn sizes(&self, step: usize) -> impl Iterator<Item = u64> + '_ {
        let steps = &self.steps[self.bounds[step]..self.bounds[step + 1]];
        steps.iter().filter(|step| step.takes()).map(|step| step.size)
    }
}

/// Keeps the blocks of the loop that are in use, oldest first.
fn note(alive: &mut Vec<u32>, step: &Step) {
    match step.kind {
        Kind::Allocate | Kind::AllocateScratch => alive.push(step.slot),
        // The youngest blocks are freed first, mostly.
        Kind::Free | Kind::Complete => {
            if let Some(place) = alive.iter().rposition(|&slot| slot == step.slot) {
                alive.remove(place);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use oomph_trace::PoolId;

    use super::*;
    use crate::{Capacity, Model, Settings, Start, State, Version};

    /// A loop whose steps take a batch, keep it until the next step has its own, and hold something for a moment.
    fn script(batches: &[u64]) -> (Script, Vec<usize>) {
        let mut steps = vec![step(Kind::Allocate, 0, 8 << 20)];
        let mut ends = vec![0];
        for (index, &size) in batches.iter().enumerate() {
            let (own, before) = (1 + index as u32 % 2, 1 + (index as u32 + 1) % 2);
            steps.push(step(Kind::Allocate, own, size));
            if index > 0 {
                steps.push(step(Kind::Free, before, 0));
            }
            steps.push(step(Kind::Allocate, 3, 3 * size));
            steps.push(step(Kind::Free, 3, 0));
            ends.push(steps.len() - 1);
        }
        steps.push(step(Kind::Free, 1 + (batches.len() as u32 + 1) % 2, 0));
        let events = (0..steps.len() as u32).collect();
        let script = Script {
            steps,
            events,
            slots: 4,
            streams: vec![0],
            pools: vec![PoolId::DEFAULT],
            start: State::default(),
            start_slots: Vec::new(),
            fatal: None,
        };
        (script, ends)
    }

    fn step(kind: Kind, slot: u32, size: u64) -> Step {
        Step { size, slot, stream: 0, pool: 0, kind }
    }

    #[test]
    fn batches_of_other_sizes_change_places_and_nothing_is_left_over() {
        let sizes: Vec<u64> = (1..=9).map(|size| (size * 4 % 9 + 1) * (5 << 20)).collect();
        let (script, ends) = script(&sizes);
        let batches = Batches::of(&script, &ends);
        let model = Model::pytorch(Settings::default(), Version::NEWEST);
        let replay = |script: &Script| script.replay(&model, Capacity::UNLIMITED, Start::Cold);
        let mut peaks = std::collections::BTreeSet::new();
        for seed in 0..20 {
            let shuffled = batches.shuffled(&script, &mut fastrand::Rng::with_seed(seed));
            assert_eq!(shuffled.len(), script.len());
            let (ours, theirs) = (replay(&shuffled), replay(&script));
            assert_eq!(ours.statistics.allocated.current, theirs.statistics.allocated.current);
            peaks.insert(ours.peak_allocated());
        }
        assert!(peaks.len() > 1, "the order decides which two batches are in use at once");
    }

    #[test]
    fn equal_batches_and_sorted_ones_stay_where_they_are() {
        for sizes in [[5 << 20; 9], [1, 2, 3, 4, 5, 6, 7, 8, 9].map(|size| size << 20)] {
            let (script, ends) = script(&sizes);
            assert!(Batches::of(&script, &ends).groups.is_empty());
        }
    }
}
