//! Decides whether a program failed because of an out-of-memory error that something caught: a server's handler that answered with an
//! error, a worker whose result never came, an `except` that went on without what it was to make.

use std::collections::BTreeSet;

use oomph_launch::{HookOom, HookReport};

use super::{fault, host};
use crate::observation::Observation;
use crate::recovered;
use crate::status::SIGNAL;

/// The processes whose last out-of-memory error, though it was caught, is why the program failed; empty where it failed for another
/// reason.
///
/// What the program itself asks for (`except torch.OutOfMemoryError`) and goes on from in the same thread is its own affair, and so is
/// an error after which the same line was given less, or an optimizer stepped. Anything else was swallowed by something that does not
/// know what to do without the memory.
pub(super) fn processes(run: &Observation) -> BTreeSet<u32> {
    let failed = run.cut.is_none() && (1..=SIGNAL).contains(&run.exit_status);
    if !failed || host::shortage(run).is_some() || fault::of(run).is_some() {
        return BTreeSet::new();
    }
    let swallowed = |hook: &&HookReport| {
        let caught = hook.oom.as_ref().filter(|oom| !oom.fatal);
        caught.is_some_and(|oom| !oom.meant && oom.steps_since == 0) && !recovered::was_granted_less(run, hook.pid)
    };
    run.hooks.reports.iter().filter(swallowed).map(|hook| hook.pid).collect()
}

/// Whether a process raised the error that another received from it.
fn raised(hook: &HookReport, relayed: &HookOom) -> bool {
    hook.oom.as_ref().is_some_and(|oom| !oom.relayed && oom.requested_bytes == relayed.requested_bytes)
}

/// The error of a process as the process reports it that raised it, and that process.
pub(super) fn origin<'r>(
    hook: &'r HookReport,
    oom: &'r HookOom,
    run: &'r Observation,
) -> (&'r HookReport, &'r HookOom) {
    let others = || run.hooks.reports.iter().filter(|other| other.pid != hook.pid && raised(other, oom));
    let found = others().next().filter(|_| oom.relayed);
    found.and_then(|other| Some((other, other.oom.as_ref()?))).unwrap_or((hook, oom))
}

/// Whether what a process raised is what ended another, which received it.
pub(super) fn was_relayed(hook: &HookReport, run: &Observation, fatal: &BTreeSet<u32>) -> bool {
    let received =
        run.hooks.reports.iter().filter(|other| fatal.contains(&other.pid)).filter_map(|other| other.oom.as_ref());
    received.filter(|oom| oom.relayed).any(|oom| raised(hook, oom))
}

#[cfg(test)]
mod tests {
    use oomph_launch::{HookFailure, HookSite};
    use oomph_report::Verdict;

    use crate::assemble::assemble;
    use crate::hand_made::{card, died, hook, ledger, run};
    use crate::observation::Observation;

    /// A program in whose process 7 an error was caught, and that ended with a status of 1.
    fn caught(change: impl FnOnce(&mut oomph_launch::HookOom)) -> Observation {
        let mut reported = died(hook(7, &[(0, 9000, 8000)]), false);
        change(reported.oom.as_mut().unwrap());
        reported.failure = Some(HookFailure { kind: "HTTPError".into(), ..HookFailure::default() });
        run(ledger(&[card("rtx-3060")], &[9200], &[(7, 0, 9200, 1)], &[]), vec![reported], 1)
    }

    fn verdict(run: &Observation) -> Verdict {
        assemble(&[card("rtx-3060")], run, None).verdict
    }

    #[test]
    fn what_a_handler_swallowed_is_why_the_program_failed() {
        let report = assemble(&[card("rtx-3060")], &caught(|_| {}), None);
        assert_eq!(report.verdict, Verdict::Oom);
        let oom = report.devices[0].oom.as_ref().unwrap();
        assert_eq!((oom.site.as_ref().unwrap().line, report.devices[0].caught_ooms.len()), (3, 0));
    }

    #[test]
    fn what_the_program_handles_is_not() {
        assert_eq!(verdict(&caught(|oom| oom.meant = true)), Verdict::Failed);
        assert_eq!(verdict(&caught(|oom| oom.steps_since = 2)), Verdict::Failed);
        let ended_well = Observation { exit_status: 0, ..caught(|_| {}) };
        assert_eq!(verdict(&ended_well), Verdict::Recovered);
        assert_eq!(verdict(&Observation { exit_status: 137, ..caught(|_| {}) }), Verdict::Failed, "a signal ended it");
    }

    #[test]
    fn an_error_of_a_worker_has_the_workers_line() {
        let mut parent = died(hook(7, &[]), true);
        let mut worker = died(hook(8, &[(0, 9000, 8000)]), false);
        parent.oom.as_mut().unwrap().relayed = true;
        parent.oom.as_mut().unwrap().site = None;
        worker.oom.as_mut().unwrap().site =
            Some(HookSite { file: "work.py".into(), line: 12, function: "work".into(), ..HookSite::default() });
        let books = ledger(&[card("rtx-3060")], &[9200], &[(8, 0, 9200, 1)], &[]);
        let report = assemble(&[card("rtx-3060")], &run(books, vec![parent, worker], 1), None);
        let device = &report.devices[0];
        assert_eq!((report.verdict, device.caught_ooms.len()), (Verdict::Oom, 0));
        assert_eq!(device.oom.as_ref().unwrap().site.as_ref().unwrap().line, 12);
    }
}
