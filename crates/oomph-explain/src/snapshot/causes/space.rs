//! Where the memory is that nothing lives in, and whether what lives could have fitted at all.

use oomph_trace::PoolId;

use super::super::explanation::{CauseKind, Evidence};
use super::super::layout::Held;
use super::super::pinned::is_pinned;
use super::{Ledger, readable};

/// What the failed request could not use, by the reason.
#[derive(Default)]
struct Unusable {
    fragments: u64,
    other_streams: u64,
    other_pools: u64,
    /// A gap that would have served the request.
    fits: u64,
    /// All free: given back when it is needed.
    cache: u64,
}

pub(super) fn claim(ledger: &mut Ledger) {
    let mut unusable = free_memory(ledger);
    // A few free kilobytes next to the live blocks are there in every program.
    for part in [&mut unusable.fragments, &mut unusable.other_streams, &mut unusable.other_pools] {
        if ledger.negligible(*part) {
            unusable.cache += std::mem::take(part);
        }
    }
    explain_free(ledger, &unusable);
    let limit = memory_limit(ledger);
    card(ledger, limit);
    live(ledger);
}

/// Sorts the free memory of all segments by why the request could not have it.
fn free_memory(ledger: &Ledger) -> Unusable {
    let analysis = ledger.analysis;
    let mut unusable = Unusable::default();
    let request = analysis.oom.and_then(|oom| analysis.timeline.device.events.get(oom.event as usize));
    for held in &analysis.layout.segments {
        let free = held.free;
        match request {
            // A graph is captured on a stream of its own, but it is the pool that keeps the memory.
            Some(request) if held.range.pool != request.pool.unwrap_or(PoolId::DEFAULT) => unusable.other_pools += free,
            None if held.range.pool != PoolId::DEFAULT => unusable.other_pools += free,
            Some(request) if held.range.stream != request.stream => unusable.other_streams += free,
            Some(request) if unusable.fits == 0 && serves(analysis.settings.max_split_size, held, request.size) => {
                unusable.fits = held.largest_gap;
                unusable.fragments += free - held.largest_gap;
            }
            _ if is_pinned(held) => unusable.fragments += free,
            _ => unusable.cache += free,
        }
    }
    unusable
}

/// Whether a segment has a gap that the allocator would take for a request of its stream and pool.
fn serves(max_split: u64, held: &Held, request: u64) -> bool {
    let oversize = request < max_split && held.largest_gap >= max_split;
    held.range.large == (request > 1 << 20) && held.largest_gap >= request && request > 0 && !oversize
}

fn explain_free(ledger: &mut Ledger, unusable: &Unusable) {
    let analysis = ledger.analysis;
    if unusable.fits > 0 {
        let because = format!(
            "a free block of {} that fits the request came back while PyTorch looked for memory, and PyTorch does not look \
             again after it has waited; the same request would have succeeded if it had been made once more",
            readable(unusable.fits)
        );
        ledger.add(CauseKind::SpuriousOom, unusable.fits, 0.9, because, Vec::new());
    }
    let evidence = pinning(ledger);
    if unusable.fragments > 0 {
        let request = analysis.oom.map_or(0, |oom| oom.requested_bytes);
        let largest = analysis.layout.segments.iter().map(|held| held.largest_gap).max().unwrap_or(0);
        let because = if request > 0 {
            format!(
                "{} are free inside of segments that live blocks keep, in pieces of at most {}, and the request was {}",
                readable(unusable.fragments),
                readable(largest),
                readable(request)
            )
        } else {
            format!("{} are free inside of segments that live blocks keep", readable(unusable.fragments))
        };
        ledger.add(CauseKind::Fragmentation, unusable.fragments, 0.95, because, evidence);
    }
    if unusable.other_streams > 0 {
        let because = format!(
            "{} are free but belong to another CUDA stream, and PyTorch never gives a stream's free blocks to another",
            readable(unusable.other_streams)
        );
        ledger.add(CauseKind::CacheOfAnotherStream, unusable.other_streams, 0.95, because, Vec::new());
    }
    if unusable.other_pools > 0 {
        let because = format!(
            "{} are free in private pools (CUDA graphs or MemPool), which keep what they have",
            readable(unusable.other_pools)
        );
        ledger.add(CauseKind::CacheOfAnotherPool, unusable.other_pools, 0.95, because, Vec::new());
    }
    if unusable.cache > 0 {
        let because = "free and cached, for the most part given back to the driver when it is needed".to_owned();
        ledger.add(CauseKind::Cache, unusable.cache, 1.0, because, Vec::new());
    }
}

/// The segments with the most free memory, and what keeps them.
fn pinning(ledger: &Ledger) -> Vec<Evidence> {
    super::super::pinned::pinned(ledger.analysis, 5)
        .into_iter()
        .map(|segment| Evidence {
            what: format!(
                "a segment of {} is kept by a block of {}{}",
                readable(segment.total_bytes),
                readable(segment.pinned_by.bytes),
                segment.pinned_by.name.map_or(String::new(), |name| format!(" ({name})"))
            ),
            bytes: segment.free_bytes,
            site: segment.pinned_by.site,
        })
        .collect()
}

/// The driver had what was needed, and the allocator did not ask for it: the program set itself a limit.
fn memory_limit(ledger: &mut Ledger) -> bool {
    let analysis = ledger.analysis;
    let (Some(oom), Some(card)) = (analysis.oom, analysis.card) else { return false };
    let needed = analysis.settings.segment(oom.requested_bytes);
    if card.free_bytes < needed.saturating_add(2 << 20) || needed == 0 || oom.free_bytes != card.free_bytes {
        return false;
    }
    let because = format!(
        "the card had {} free, and {} were needed: the program has set itself a limit with per_process_memory_fraction",
        readable(card.free_bytes),
        readable(needed)
    );
    ledger.add(CauseKind::MemoryLimit, card.free_bytes, 0.8, because, Vec::new());
    true
}

/// What is on the card outside the allocator's memory.
fn card(ledger: &mut Ledger, limit: bool) {
    let Some(card) = ledger.analysis.card else { return };
    let because = "the CUDA context, and what libraries take for themselves".to_owned();
    ledger.add(CauseKind::Context, card.context_bytes, 0.8, because, Vec::new());
    if card.other_bytes > 0 {
        let because = format!("{} of the card are not this process's", readable(card.other_bytes));
        ledger.add(CauseKind::OtherProcesses, card.other_bytes, 0.8, because, Vec::new());
    }
    if !limit {
        ledger.add(CauseKind::Free, card.free_bytes, 1.0, "free on the card".to_owned(), Vec::new());
    }
}

/// What lives and has no other cause: what the program needs.
fn live(ledger: &mut Ledger) {
    let analysis = ledger.analysis;
    let rest: Vec<usize> = ledger.unclaimed().collect();
    let live: u64 = analysis.layout.pieces.iter().map(|piece| piece.bytes).sum();
    let bytes = ledger.claim(rest);
    let (Some(oom), Some(card)) = (analysis.oom, analysis.card) else {
        let because = "what the program needs at this moment".to_owned();
        ledger.add(CauseKind::WorkingSet, bytes, 1.0, because, Vec::new());
        return;
    };
    let (request, usable) = (oom.requested_bytes, card.usable());
    let site = oom.site.clone();
    let evidence = vec![Evidence { what: "the allocation that failed".to_owned(), bytes: request, site }];
    if request > usable || (request > usable / 2 && live.saturating_add(request) > usable) {
        let because = format!(
            "one request of {} is more than half of the {} that the card has for PyTorch",
            readable(request),
            readable(usable)
        );
        ledger.add(CauseKind::SingleAllocationTooLarge, 0, 0.95, because, evidence.clone());
    }
    if bytes.saturating_add(request) > usable {
        let because = format!(
            "{} are in use and {} more were requested, and the card has {} for PyTorch: no setting of the allocator \
             changes that",
            readable(live),
            readable(request),
            readable(usable)
        );
        ledger.add(CauseKind::DoesNotFit, bytes, 1.0, because, evidence);
    } else {
        let because = format!("what the program needs at this moment, and {} more would fit", readable(usable - bytes));
        ledger.add(CauseKind::WorkingSet, bytes, 1.0, because, Vec::new());
    }
}
