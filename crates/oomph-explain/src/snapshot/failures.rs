//! The allocations that failed on the way: which of them the program caught, and which cuDNN did without.

use oomph_trace::{Action, StackId, Trace};

use super::explanation::GotPast;
use super::lifetimes::Position;
use super::rows;
use super::stacks::{Facts, Signs};
use super::timeline::Timeline;

/// The failures that did not end the recording, as the positions just before them.
#[derive(Default)]
pub(super) struct Failures {
    /// The program caught the error.
    pub caught: Vec<Position>,
    /// cuDNN asked for a workspace and went on without it; no error reached the program.
    pub workspaces: Vec<Position>,
}

impl Failures {
    pub fn of(timeline: &Timeline, facts: &Facts) -> Self {
        let survived = timeline.ooms.iter().copied().filter(|&oom| Some(oom) != timeline.fatal());
        let (workspaces, caught) = survived.partition(|&oom| was_workspace(timeline, facts, oom));
        Self { caught, workspaces }
    }

    /// The failures in figures; `None` without any.
    pub fn got_past(&self, trace: &Trace, timeline: &Timeline, facts: &Facts) -> Option<GotPast> {
        let event = |&oom: &Position| timeline.device.events.get(oom as usize);
        let largest = self.caught.iter().chain(&self.workspaces).filter_map(event).max_by_key(|event| event.size)?;
        Some(GotPast {
            count: (self.caught.len() + self.workspaces.len()) as u64,
            workspaces: self.workspaces.len() as u64,
            largest_bytes: largest.size,
            site: facts.get(largest.stack).line.and_then(|frame| rows::line(trace, frame)),
        })
    }
}

/// Whether the request was one of a convolution that goes on: in forward the module's call goes on allocating, in
/// backward autograd does. An error that the program catches ends both.
fn was_workspace(timeline: &Timeline, facts: &Facts, oom: Position) -> bool {
    let events = &timeline.device.events;
    let by_autograd = |stack: StackId| {
        let signs = facts.get(stack).signs;
        signs.any(Signs::BACKWARD) || !signs.any(Signs::PYTHON)
    };
    let Some(failed) = events.get(oom as usize) else { return false };
    if !facts.has(Signs::CONVOLUTION) {
        return false;
    }
    let next = (oom as usize + 1..timeline.end as usize)
        .filter_map(|index| events.get(index))
        .find(|event| matches!(event.action, Action::Alloc | Action::Oom));
    next.is_some_and(|next| match by_autograd(failed.stack) {
        true => by_autograd(next.stack),
        false => {
            facts.get(failed.stack).signs.any(Signs::CONVOLUTION) && facts.get(next.stack).signs.any(Signs::FORWARD)
        }
    })
}
