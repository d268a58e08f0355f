//! The tables that add up: the state at the moment, the card, and the owners.

use std::collections::BTreeMap;

use oomph_trace::{FrameId, PoolId, Trace};

use super::explanation::{CardBytes, Line, Moment, OomEvent, Owner, OwnerRow, Peak, Source};
use super::layout::Layout;
use super::lifetimes::Position;
use super::phases::Phases;
use super::stacks::Facts;
use super::timeline::Timeline;
use super::{Analysis, Options};

/// The state of the allocator at a position.
pub(super) fn peak(timeline: &Timeline, layout: &Layout, position: Position, at: Moment) -> Peak {
    let (mut allocated, mut active, mut requested) = (0u64, 0u64, 0u64);
    for piece in &layout.pieces {
        active = active.saturating_add(piece.bytes);
        requested = requested.saturating_add(piece.requested);
        if timeline.lifetimes[piece.block as usize].released > position {
            allocated = allocated.saturating_add(piece.bytes);
        }
    }
    Peak {
        at,
        event: u64::from(position),
        time_us: timeline.time_us(position),
        allocated_bytes: allocated,
        reserved_bytes: layout.reserved(),
        requested_bytes: requested,
        active_bytes: active,
    }
}

/// The last allocation that failed.
pub(super) fn oom(trace: &Trace, timeline: &Timeline, facts: &Facts, phases: &Phases) -> Option<OomEvent> {
    let at = timeline.last_oom()?;
    let event = timeline.device.events.get(at as usize)?;
    let count = timeline.ooms.len() as u64;
    let kind = phases.kind_of(facts, event.stack).unwrap_or_else(|| phases.birth(at + 1).kind);
    Some(OomEvent {
        event: u64::from(at),
        time_us: (event.time_us != 0).then_some(event.time_us),
        requested_bytes: event.size,
        free_bytes: event.address,
        count,
        fatal: timeline.fatal() == Some(at),
        site: facts.get(event.stack).line.and_then(|frame| line(trace, frame)),
        phase: kind,
    })
}

/// Less than this in addition to the context, in bytes, is not taken for another process.
const LEAST_NEIGHBOUR: u64 = 256 << 20;

/// The division of the card, as far as the recording and the user tell.
pub(super) fn card(peak: &Peak, oom: Option<&OomEvent>, options: &Options) -> Option<CardBytes> {
    let context = options.context_bytes.unwrap_or(0);
    // At an out-of-memory error the driver said what was free, so that what PyTorch could have is known even where the
    // card is not.
    let seen = oom.filter(|_| peak.at == Moment::Oom).map(|oom| oom.free_bytes);
    let capacity = match (options.capacity, seen) {
        (Some(capacity), _) => capacity,
        (None, Some(free)) => peak.reserved_bytes.saturating_add(free).saturating_add(context),
        (None, None) => return None,
    };
    let rest = capacity.checked_sub(peak.reserved_bytes)?;
    let free = seen.unwrap_or_else(|| rest.saturating_sub(context)).min(rest);
    let outside = rest - free;
    // Without a figure for the context, all that is not PyTorch's is taken to be the context.
    let context = options.context_bytes.unwrap_or(outside).min(outside);
    // The context's cost is known to some tens of MiB, and libraries of the program take some more.
    let context = if outside - context < LEAST_NEIGHBOUR { outside } else { context };
    Some(CardBytes {
        capacity_bytes: capacity,
        context_bytes: context,
        other_bytes: outside - context,
        free_bytes: free,
    })
}

/// Sums of one owner.
#[derive(Clone, Copy, Default)]
struct Sum {
    bytes: u64,
    blocks: u64,
    weight: f64,
    named: u64,
}

/// Whose bytes; they add up to the card, or to the reserved memory where no card is known.
pub(super) fn owners(analysis: &Analysis) -> Vec<OwnerRow> {
    let mut sums = BTreeMap::<Owner, Sum>::new();
    let mut slack = 0u64;
    for (piece, identity) in analysis.layout.pieces.iter().zip(analysis.identities) {
        let sum = sums.entry(identity.owner).or_default();
        sum.bytes += piece.requested;
        sum.blocks += 1;
        sum.weight += piece.requested as f64 * identity.confidence;
        sum.named += if identity.named { piece.requested } else { 0 };
        slack += piece.bytes - piece.requested;
    }
    let mut rows: Vec<OwnerRow> = sums
        .into_iter()
        .map(|(owner, sum)| OwnerRow {
            owner,
            bytes: sum.bytes,
            blocks: sum.blocks,
            confidence: if sum.bytes == 0 { 0.0 } else { sum.weight / sum.bytes as f64 },
            source: if sum.named > sum.bytes / 2 { Source::Named } else { Source::Inferred },
            named_bytes: sum.named,
        })
        .collect();
    let mut recorded = |owner, bytes, blocks, confidence| {
        if bytes > 0 {
            rows.push(OwnerRow { owner, bytes, blocks, confidence, source: Source::Recorded, named_bytes: 0 });
        }
    };
    recorded(Owner::SlackInBlocks, slack, 0, 1.0);
    let (mut split, mut unsplit, mut graphs) = (0, 0, 0);
    for held in &analysis.layout.segments {
        if held.range.pool != PoolId::DEFAULT {
            graphs += held.free;
        } else if held.first_piece == held.end_piece {
            unsplit += held.free;
        } else {
            split += held.free;
        }
    }
    recorded(Owner::CachedSplit, split, 0, 1.0);
    recorded(Owner::CachedUnsplit, unsplit, 0, 1.0);
    if let Some(card) = analysis.card {
        recorded(Owner::Context, card.context_bytes, 0, 0.8);
        recorded(Owner::OtherProcesses, card.other_bytes, 0, 0.8);
        recorded(Owner::Free, card.free_bytes, 0, 1.0);
    }
    add_graph_cache(&mut rows, graphs);
    rows.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.owner.cmp(&b.owner)));
    rows
}

/// What is cached in private pools belongs to them as much as what lives there.
fn add_graph_cache(rows: &mut Vec<OwnerRow>, bytes: u64) {
    if bytes == 0 {
        return;
    }
    match rows.iter_mut().find(|row| row.owner == Owner::GraphPools) {
        Some(row) => {
            let sum = row.bytes + bytes;
            row.confidence = (row.confidence * row.bytes as f64 + bytes as f64) / sum as f64;
            row.bytes = sum;
        }
        None => rows.push(OwnerRow {
            owner: Owner::GraphPools,
            bytes,
            blocks: 0,
            confidence: 1.0,
            source: Source::Recorded,
            named_bytes: 0,
        }),
    }
}

/// A frame as a line of the program.
pub(super) fn line(trace: &Trace, frame: FrameId) -> Option<Line> {
    let frame = trace.frames.get(frame)?;
    Some(Line {
        file: trace.strings.get(frame.file).to_owned(),
        line: frame.line,
        function: trace.strings.get(frame.name).to_owned(),
    })
}
