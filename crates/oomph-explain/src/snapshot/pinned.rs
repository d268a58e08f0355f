//! The segments that hold free memory which nothing else can have, and what keeps them.

use oomph_trace::PoolId;

use super::Analysis;
use super::explanation::{PinnedSegment, PinningBlock};
use super::layout::{Held, Piece};
use super::rows;

/// The native segments with free memory next to live blocks, those with the most free first.
pub(super) fn pinned(analysis: &Analysis, top: usize) -> Vec<PinnedSegment> {
    let mut held: Vec<&Held> = analysis.layout.segments.iter().filter(|held| is_pinned(held)).collect();
    held.sort_by(|a, b| b.free.cmp(&a.free).then(a.range.address.cmp(&b.range.address)));
    held.into_iter().take(top).filter_map(|held| describe(analysis, held)).collect()
}

/// Whether a segment has free memory that live blocks keep from being given back. Expandable segments give back single
/// pages, so that they are pinned in this sense only below a page.
pub(super) fn is_pinned(held: &Held) -> bool {
    held.free > 0 && held.first_piece < held.end_piece && held.range.pool == PoolId::DEFAULT
}

fn describe(analysis: &Analysis, held: &Held) -> Option<PinnedSegment> {
    let death = |piece: &Piece| analysis.timeline.lifetimes[piece.block as usize].death;
    let pieces = analysis.layout.pieces_of(held);
    // The block that lives longest decides; of several that live on, the smallest shows the waste best.
    let at = (0..pieces.len()).max_by_key(|&at| (death(&pieces[at]), std::cmp::Reverse(pieces[at].bytes)))?;
    let piece = &pieces[at];
    let block = &analysis.timeline.lifetimes[piece.block as usize];
    let identity = analysis.identities.get(held.first_piece + at)?;
    Some(PinnedSegment {
        address: held.range.address,
        total_bytes: held.range.size,
        free_bytes: held.free,
        largest_free_bytes: held.largest_gap,
        live_blocks: pieces.len() as u64,
        stream: held.range.stream,
        pinned_by: PinningBlock {
            address: block.address,
            bytes: piece.bytes,
            owner: identity.owner,
            name: analysis.naming.and_then(|naming| naming.name(piece.block)).map(str::to_owned),
            site: analysis.facts.get(block.stack).line.and_then(|frame| rows::line(analysis.trace, frame)),
        },
    })
}
