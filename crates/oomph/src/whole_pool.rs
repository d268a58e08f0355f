//! Runs a program again that died with a pool which grows in parts, with one that is taken whole, as JAX and TensorFlow take it
//! where nobody says otherwise.
//!
//! A pool that grows shows what a program needs, and one that was taken whole does not. But the parts of the first do not join,
//! so that a program can die in it that runs on a card.

use oomph_launch::{Output, Pools};
use oomph_report::Verdict;

use crate::assemble::assemble;
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
) -> Result<Option<Observation>, Stop> {
    if !pool::may_be_in_pieces(&assemble(request.cards, first, None), request.cards) {
        return Ok(None);
    }
    tell("it died in a pool that grows in parts; running it with the framework's own settings for its pool");
    let changes = as_on_a_card(request.changes);
    let again = RunRequest { changes: &changes, output: Output::Capture, writes: false, ..*request };
    match runner.perform(&again).map_err(Stop::Failed)? {
        Ended::Interrupted(signal, _) => Err(Stop::Interrupted(signal)),
        Ended::Observed(run) => {
            let verdict = assemble(request.cards, &run, None).verdict;
            Ok(matches!(verdict, Verdict::Fits | Verdict::Recovered | Verdict::Oom).then_some(*run))
        }
    }
}

/// The same changes, with pools as they are on a card.
pub fn as_on_a_card(changes: &Changes) -> Changes {
    Changes { pools: Pools::AsOnACard, ..changes.clone() }
}
