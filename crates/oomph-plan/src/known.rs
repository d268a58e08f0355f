//! Keeps the runs that were made, by workload, so that none is made twice.

use std::cell::RefCell;

use crate::workload::Workload;

/// The runs that were made near a workload whose need is known.
pub(crate) struct Near<'a, R> {
    /// Reserved over allocated bytes of that workload.
    pub slack: f64,
    /// The runs.
    pub runs: &'a Known<R>,
}

/// What came of workloads. They are so few that looking at each is quick.
pub(crate) struct Known<R>(RefCell<Vec<(Workload, R)>>);

impl<R: Clone> Known<R> {
    pub fn nothing() -> Self {
        Self(RefCell::default())
    }

    /// What came of a workload, which is run if it was not yet.
    pub fn of(&self, workload: &Workload, run: impl FnOnce() -> R) -> R {
        if let Some((_, known)) = self.0.borrow().iter().find(|(known, _)| known == workload) {
            return known.clone();
        }
        let made = run();
        self.0.borrow_mut().push((workload.clone(), made.clone()));
        made
    }
}
