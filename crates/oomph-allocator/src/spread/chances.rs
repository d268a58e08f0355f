//! Varies single requests: the workspace of a convolution, and when another stream has finished.

use std::collections::BTreeSet;

use crate::script::{Kind, Script, Step};

/// One in so many sizes of workspaces is that of a neighbouring algorithm.
const ANOTHER_ALGORITHM: u32 = 8;
/// A block that another stream uses comes free at most so many requests later than recorded.
const LATEST: usize = 64;

impl Script {
    /// Gives some convolutions the workspace of another algorithm: of the sizes that the program's convolutions take, the
    /// next larger or the next smaller one. All requests of one size stay equal, because cuDNN takes the same algorithm
    /// for the same convolution.
    pub(super) fn draw_workspaces(&mut self, chances: &mut fastrand::Rng) {
        let is_one = |step: &&mut Step| step.kind == Kind::AllocateScratch;
        let sizes: BTreeSet<u64> = self.steps.iter_mut().filter(is_one).map(|step| step.size).collect();
        if sizes.len() < 2 {
            return;
        }
        let sizes: Vec<u64> = sizes.into_iter().collect();
        let drawn: Vec<u64> = (0..sizes.len())
            .map(|index| match chances.u32(0..2 * ANOTHER_ALGORITHM) {
                0 => sizes[index.saturating_sub(1)],
                1 => sizes[(index + 1).min(sizes.len() - 1)],
                _ => sizes[index],
            })
            .collect();
        for step in self.steps.iter_mut().filter(is_one) {
            if let Ok(index) = sizes.binary_search(&step.size) {
                step.size = drawn[index];
            }
        }
    }

    /// Lets streams finish later with the blocks that were freed while they still used them.
    pub(super) fn draw_completions(&mut self, chances: &mut fastrand::Rng) {
        if self.fatal.is_some() || self.steps.iter().all(|step| step.kind != Kind::Complete) {
            return;
        }
        let mut waiting: Vec<(usize, Step, u32)> = Vec::new();
        let steps = std::mem::take(&mut self.steps);
        let events = std::mem::take(&mut self.events);
        let mut put = |step: Step, event: u32| {
            self.steps.push(step);
            self.events.push(event);
        };
        for (index, (step, event)) in steps.into_iter().zip(events).enumerate() {
            // What is due comes free now, and so does what holds the place that is needed.
            waiting.retain(|&(due, free, at)| {
                let is_due = due <= index || free.slot == step.slot;
                if is_due {
                    put(free, at);
                }
                !is_due
            });
            if step.kind == Kind::Complete {
                waiting.push((index + chances.usize(1..=LATEST), step, event));
            } else {
                put(step, event);
            }
        }
        for (_, free, at) in waiting {
            put(free, at);
        }
    }
}
