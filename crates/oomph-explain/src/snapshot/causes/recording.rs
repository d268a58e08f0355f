//! What the recording does not hold.

use super::super::explanation::{CauseKind, Owner};
use super::{Ledger, readable};

/// Claims the live blocks of which nothing is known because they are older than the recording.
pub(super) fn claim(ledger: &mut Ledger) {
    let analysis = ledger.analysis;
    let unknown: Vec<usize> = ledger
        .unclaimed()
        .filter(|&at| {
            let block = &analysis.timeline.lifetimes[analysis.layout.pieces[at].block as usize];
            block.before_recording() && analysis.identities[at].owner == Owner::Unattributed
        })
        .collect();
    let bytes: u64 = unknown.iter().map(|&at| analysis.layout.pieces[at].bytes).sum();
    if ledger.negligible(bytes) {
        return;
    }
    ledger.claim(unknown);
    // A block from before the first event that has a stack was recorded once: the ring buffer has dropped its event.
    let recorded_before = analysis
        .timeline
        .lifetimes
        .iter()
        .take_while(|block| block.before_recording())
        .any(|block| analysis.facts.get(block.stack).line.is_some());
    let size = readable(bytes);
    let (cause, because) = if analysis.timeline.device.events.is_empty() {
        let because = format!(
            "the file holds no history, so {size} of live memory cannot be attributed; \
             call torch.cuda.memory._record_memory_history() before the model is built"
        );
        (CauseKind::RecordedTooLate, because)
    } else if recorded_before {
        let because = format!(
            "the recording dropped its beginning, so {size} of live memory cannot be attributed; \
             record with a larger max_entries"
        );
        (CauseKind::RingTooShort, because)
    } else {
        let because = format!(
            "{size} of live memory were allocated before the recording began; \
             call torch.cuda.memory._record_memory_history() before the model is built"
        );
        (CauseKind::RecordedTooLate, because)
    };
    ledger.add(cause, bytes, 1.0, because, Vec::new());
}
