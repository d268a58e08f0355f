//! Runs a program again that died with a pool which grows in parts, with one that is taken whole, as JAX and TensorFlow take it
//! where nobody says otherwise.
//!
//! A pool that grows shows what a program needs, and one that was taken whole does not. But the parts of the first do not join,
//! so that a program can die in it that runs on a card.

use anyhow::Result;
use oomph_launch::{Limits, Output, Pools};
use oomph_report::{DryRunReport, Verdict};

use crate::assemble::assemble;
use crate::cards::Card;
use crate::changes::Changes;
use crate::observation::Observation;
use crate::pool;
use crate::run_context::{Ended, RunRequest};
use crate::trial::{Runner, Stop};

/// The run with a whole pool that takes the place of `first`, where that may decide. `request` is what `first` came of.
///
/// # Errors
/// When the run cannot be set up, or a signal ends it.
pub fn instead_of(
    first: &Observation,
    runner: &dyn Runner,
    request: &RunRequest<'_>,
    tell: &(dyn Fn(&str) + Sync),
) -> std::result::Result<Option<Observation>, Stop> {
    if !pool::may_be_in_pieces(&assemble(request.cards, first, None), request.cards) {
        return Ok(None);
    }
    tell("it died in a pool that grows in parts; running it with the framework's own settings for its pool");
    let changes = as_on_a_card(request.changes);
    let again = RunRequest { changes: &changes, output: Output::Capture, writes: false, ..*request };
    match runner.perform(&again).map_err(Stop::Failed)? {
        Ended::Interrupted(signal, _) => Err(Stop::Interrupted(signal)),
        Ended::Observed(run) => Ok(decides(&run, request.cards).then_some(*run)),
    }
}

/// Runs the program with changes, and again with a whole pool where it died in one that grows in parts and that may decide. With
/// `whole`, it has a whole pool at once: the unmodified program was seen to need it.
///
/// # Errors
/// When a run cannot be set up, or its books cannot be read.
pub fn run(runner: &dyn Runner, changes: &Changes, cards: &[Card], limits: Limits<'_>, whole: bool) -> Result<Ended> {
    if whole {
        return runner.run(&as_on_a_card(changes), cards, limits);
    }
    let first = match runner.run(changes, cards, limits)? {
        Ended::Observed(first) => first,
        interrupted @ Ended::Interrupted(..) => return Ok(interrupted),
    };
    if !pool::may_be_in_pieces(&assemble(cards, &first, None), cards) {
        return Ok(Ended::Observed(first));
    }
    Ok(match runner.run(&as_on_a_card(changes), cards, limits)? {
        Ended::Observed(run) if !decides(&run, cards) => Ended::Observed(first),
        other => other,
    })
}

/// Whether a run with a whole pool came to an end that says something.
fn decides(run: &Observation, cards: &[Card]) -> bool {
    matches!(assemble(cards, run, None).verdict, Verdict::Fits | Verdict::Recovered | Verdict::Oom)
}

/// Whether a program was run with a whole pool, by the report of that run.
pub fn was_whole(report: &DryRunReport) -> bool {
    report.devices.iter().any(|device| device.pool.as_ref().is_some_and(|pool| pool.preallocated))
}

/// The same changes, with pools as they are on a card.
pub fn as_on_a_card(changes: &Changes) -> Changes {
    Changes { pools: Pools::AsOnACard, ..changes.clone() }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use oomph_launch::{HookLimit, LimitScales};

    use super::*;
    use crate::hand_made::{MIB, card, died, hook, ledger, run as left};

    /// A program that lives in a whole pool and dies in one that grows in parts, which held what is asked for in all.
    struct InParts {
        asked: Mutex<Vec<Pools>>,
        lives: bool,
        allocated_mib: u64,
    }

    impl Runner for InParts {
        fn perform(&self, request: &RunRequest<'_>) -> Result<Ended> {
            let pools = request.changes.pools;
            self.asked.lock().unwrap().push(pools);
            let whole = pools == Pools::AsOnACard;
            let mut reported = hook(7, &[(0, 9000, 8000)]);
            reported.devices[0].preallocates = whole;
            reported.devices[0].limit = Some(HookLimit { bytes: 9000 * MIB, scales: LimitScales::Share });
            let lives = whole && self.lives;
            if !lives {
                reported = died(reported, true);
                let oom = reported.oom.as_mut().unwrap();
                oom.allocated_bytes = Some(self.allocated_mib * MIB);
            }
            let books = ledger(request.cards, &[9200], &[(7, 0, 9200, u64::from(!lives))], &[]);
            Ok(Ended::Observed(Box::new(left(books, vec![reported], i32::from(!lives)))))
        }
    }

    fn verdict(lives: bool, allocated_mib: u64, whole: bool) -> (Verdict, Vec<Pools>) {
        let cards = [card("rtx-3060")];
        let program = InParts { asked: Mutex::default(), lives, allocated_mib };
        let ended = run(&program, &Changes::none(&[]), &cards, Limits::default(), whole).unwrap();
        let Ended::Observed(run) = ended else { panic!("nothing stopped it") };
        (assemble(&cards, &run, None).verdict, program.asked.into_inner().unwrap())
    }

    #[test]
    fn what_dies_in_pieces_is_run_again_with_a_whole_pool() {
        // It asks for 2,048 MiB of a pool of 9,000.
        let again = vec![Pools::AsNeeded, Pools::AsOnACard];
        assert_eq!(verdict(true, 5000, false), (Verdict::Fits, again.clone()));
        assert_eq!(verdict(false, 5000, false), (Verdict::Oom, again));
        assert_eq!(verdict(true, 8000, false), (Verdict::Oom, vec![Pools::AsNeeded]), "no pool would hold it");
        assert_eq!(verdict(true, 5000, true), (Verdict::Fits, vec![Pools::AsOnACard]));
    }
}
