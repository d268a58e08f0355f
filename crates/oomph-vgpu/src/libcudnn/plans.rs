//! What is remembered of the real library's descriptors: which plans a program measures, and in which order the
//! heuristics put them.
#![deny(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};

use super::attribute::PLAN;

/// Where engines that always work come among those that heuristics propose.
const LAST_RESORT: u8 = 128;
/// How many executions of a plan pretend to take time: enough for a benchmark (`cudnnFind...`, PyTorch's
/// `cudnn.benchmark`) to warm up and to measure.
const TRIALS: u8 = 8;

/// What is remembered of a descriptor.
#[derive(Clone, Copy)]
struct Known {
    kind: i32,
    /// For an engine configuration or a plan: its place in the order that the heuristics gave. For heuristics: the place
    /// of their first answer.
    rank: u8,
    /// For an engine configuration or a plan: which answer of heuristics it is from; 0 is none.
    answer: u32,
    /// For a plan: how many executions still pretend to take time.
    trials: u8,
    /// For a plan that is not made in earnest: its workspace.
    workspace: Option<i64>,
}

/// What is remembered of all of them, by their addresses.
pub struct Plans {
    descriptors: BTreeMap<usize, Known>,
    /// How many answers heuristics gave.
    answers: u32,
    /// The answers of which a plan was made.
    made: BTreeSet<u32>,
}

impl Plans {
    /// Nothing yet.
    pub const fn new() -> Plans {
        Plans { descriptors: BTreeMap::new(), answers: 0, made: BTreeSet::new() }
    }

    /// Remembers a descriptor of a kind that matters.
    pub fn add(&mut self, descriptor: usize, kind: i32) {
        self.descriptors.insert(descriptor, Known { kind, rank: 0, answer: 0, trials: 0, workspace: None });
    }

    /// Forgets a descriptor that is destroyed.
    pub fn forget(&mut self, descriptor: usize) {
        self.descriptors.remove(&descriptor);
    }

    /// The kind of a descriptor that is remembered.
    pub fn kind(&self, descriptor: usize) -> Option<i32> {
        self.descriptors.get(&descriptor).map(|known| known.kind)
    }

    /// The workspace of a plan that is not made in earnest.
    pub fn workspace(&self, plan: usize) -> Option<i64> {
        self.descriptors.get(&plan)?.workspace
    }

    /// Notes that heuristics are asked for the engines that always work.
    pub fn falls_back(&mut self, heuristics: usize) {
        if let Some(heuristics) = self.descriptors.get_mut(&heuristics) {
            heuristics.rank = LAST_RESORT;
        }
    }

    /// Numbers the engine configurations that heuristics gave.
    pub fn number(&mut self, heuristics: usize, configs: &[usize]) {
        self.answers = self.answers.wrapping_add(1);
        let first = self.descriptors.get(&heuristics).map_or(0, |heuristics| heuristics.rank);
        for (index, config) in configs.iter().enumerate() {
            if let Some(config) = self.descriptors.get_mut(config) {
                config.rank = first.saturating_add(u8::try_from(index).unwrap_or(u8::MAX));
                config.answer = self.answers;
            }
        }
    }

    /// Whether a plan was made of an engine configuration that heuristics gave together with this one. `None` for a
    /// configuration that is not remembered.
    pub fn is_measured(&self, config: usize) -> Option<bool> {
        let answer = self.descriptors.get(&config)?.answer;
        Some(answer != 0 && self.made.contains(&answer))
    }

    /// Notes which engine configuration a plan is made of, and the workspace of a plan that is not made in earnest.
    pub fn choose(&mut self, plan: usize, config: usize, workspace: Option<i64>) {
        let Some(Known { rank, answer, .. }) = self.descriptors.get(&config).copied() else { return };
        if let Some(plan) = self.descriptors.get_mut(&plan) {
            (plan.rank, plan.answer, plan.trials) = (rank, answer, TRIALS);
            plan.workspace = workspace;
        }
    }

    /// Notes that a plan was made in earnest.
    pub fn finish(&mut self, plan: usize) {
        if let Some(known) = self.descriptors.get_mut(&plan).filter(|known| known.kind == PLAN) {
            known.workspace = None;
            self.made.insert(known.answer);
        }
    }

    /// Counts an execution. The place of the plan in the order of the heuristics while it pretends to take time, then 0.
    pub fn execute(&mut self, plan: usize) -> u8 {
        match self.descriptors.get_mut(&plan) {
            Some(plan) if plan.trials > 0 => {
                plan.trials -= 1;
                plan.rank
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libcudnn::attribute::{ENGINE_CONFIG, HEURISTICS};

    #[test]
    fn the_second_plan_of_an_answer_is_measured_and_takes_longer() {
        let mut plans = Plans::new();
        let (heuristics, first, second, plan) = (1, 2, 3, 4);
        plans.add(heuristics, HEURISTICS);
        plans.add(first, ENGINE_CONFIG);
        plans.add(second, ENGINE_CONFIG);
        plans.number(heuristics, &[first, second]);
        assert_eq!(plans.is_measured(first), Some(false));
        plans.add(plan, PLAN);
        plans.choose(plan, first, None);
        plans.finish(plan);
        assert_eq!((plans.is_measured(second), plans.is_measured(9)), (Some(true), None));
        plans.choose(plan, second, Some(64));
        assert_eq!(plans.workspace(plan), Some(64));
        assert!((0..TRIALS).all(|_| plans.execute(plan) == 1));
        assert_eq!(plans.execute(plan), 0);
    }
}
