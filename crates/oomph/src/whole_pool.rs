//! Runs a program again whose answer hangs on its pool, with one that is taken whole, as JAX and TensorFlow take it where nobody
//! says otherwise.
//!
//! A pool that grows shows what a program needs, and one that was taken whole does not. But the parts of the first do not join,
//! so that a program can die in it that runs on a card; and what shares the card with it (PyTorch in the same process, another
//! process) finds memory that a whole pool would have taken.

use anyhow::Result;
use oomph_launch::{Limits, Output, Pools};
use oomph_report::{DryRunReport, Verdict};

use crate::assemble::assemble;
use crate::cards::Card;
use crate::changes::Changes;
use crate::observation::{Observation, device_map};
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
    let Some(why) = why_again(first, request.cards) else { return Ok(None) };
    tell(why);
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
    if why_again(&first, cards).is_none() {
        return Ok(Ended::Observed(first));
    }
    Ok(match runner.run(&as_on_a_card(changes), cards, limits)? {
        Ended::Observed(run) if !decides(&run, cards) => Ended::Observed(first),
        other => other,
    })
}

/// Why a program is run again with a whole pool, in words; `None` where that would not decide.
fn why_again(first: &Observation, cards: &[Card]) -> Option<&'static str> {
    let report = assemble(cards, first, None);
    if pool::may_be_in_pieces(&report, cards) {
        return Some(
            "it died in a pool that grows in parts; running it with the framework's own settings for its pool",
        );
    }
    let lives = matches!(report.verdict, Verdict::Fits | Verdict::Recovered);
    let peaks = || report.devices.iter().map(|device| device.peak.process_bytes);
    let crowded = |(index, (card, peak)): (usize, (&Card, u64))| {
        card.capacity_bytes().is_some_and(|capacity| shared_with_pools(index, first, peak) > capacity)
    };
    (lives && cards.iter().zip(peaks()).enumerate().any(crowded)).then_some(
        "its pool grew in parts next to others on the card; running it with the framework's own settings for its pool",
    )
}

/// What would be taken of a card with a peak of `peak` bytes if each pool on it had all that it may take, where the card is shared
/// with something else; 0 where a pool has it to itself.
fn shared_with_pools(index: usize, run: &Observation, peak: u64) -> u64 {
    let processes = run.ledger.processes();
    let on_card =
        processes.iter().filter(|process| process.devices.get(index).is_some_and(|books| books.peak_bytes > 0));
    let (mut pools, mut more, mut others) = (0_usize, 0_u64, 0_usize);
    for process in on_card {
        let found = run.hooks.reports.iter().filter(|hook| hook.pid == process.pid).find_map(|hook| {
            let map = device_map(hook, &run.ledger);
            hook.devices.iter().copied().find(|device| map.get(&device.index) == Some(&index))
        });
        match found.and_then(|device| Some((device, device.limit?))) {
            Some((device, limit)) if !device.preallocates => {
                let taken = device.reserved_peak_bytes.unwrap_or(device.allocated_peak_bytes);
                more += limit.bytes.saturating_sub(taken.saturating_sub(device.beside_pool_bytes));
                pools += 1;
                others += usize::from(device.beside_pool_bytes > 0);
            }
            _ => others += 1,
        }
    }
    if pools > 0 && pools + others > 1 { peak.saturating_add(more) } else { 0 }
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
    fn what_shares_a_card_with_a_pool_is_run_with_a_whole_one() {
        let card = card("rtx-3060");
        let three_quarters = card.gpu.capacity_bytes / 4 * 3;
        // A pool that took 200 MiB, and `torch_mib` of PyTorch's in the same process.
        let peak = |torch_mib: u64, limit: Option<u64>, second: bool| {
            let mut reported = hook(7, &[(0, 200 + torch_mib, 200 + torch_mib)]);
            reported.devices[0].beside_pool_bytes = torch_mib * MIB;
            reported.devices[0].limit = limit.map(|bytes| HookLimit { bytes, scales: LimitScales::Share });
            let mut books = vec![(7, 0, 400 + torch_mib, 0)];
            books.extend(second.then_some((8, 0, 400, 0)));
            let run = left(ledger(std::slice::from_ref(&card), &[5000], &books, &[]), vec![reported], 0);
            shared_with_pools(0, &run, 5000 * MIB)
        };
        let whole = 5000 * MIB + three_quarters - 200 * MIB;
        assert_eq!(peak(4000, Some(three_quarters), false), whole);
        assert_eq!(peak(0, Some(three_quarters), true), whole);
        assert_eq!(peak(0, Some(three_quarters), false), 0, "it has the card to itself");
        assert_eq!(peak(4000, None, true), 0, "there is no pool");
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
