//! What a program would have gone on to take: a recording that ends with a failure shows how memory grew until then, and
//! what an earlier step took after the same allocation.

use oomph_trace::Action;

use super::Analysis;
use super::causes::readable;
use super::explanation::{Beyond, BeyondKind, Cause, CauseKind, Owner, Phase};
use super::lifetimes::Position;
use super::rounds::Rounds;

/// A block of state smaller than this is a counter and not as large as its parameter, in bytes.
const COUNTER: u64 = 4096;

/// What comes after the failure; `None` where the recording ends otherwise, or shows nothing of it.
pub(super) fn beyond(analysis: &Analysis, rounds: Option<&Rounds>, causes: &[Cause]) -> Option<Beyond> {
    analysis.oom.filter(|oom| oom.fatal)?;
    leak(causes)
        .or_else(|| rounds.map(of_rounds))
        .or_else(|| optimizer_state(analysis))
        .or_else(|| rest_of_step(analysis))
}

/// A step that leaves memory behind does so again.
fn leak(causes: &[Cause]) -> Option<Beyond> {
    let leak = causes.iter().find(|cause| cause.cause == CauseKind::Leak)?;
    let each = leak.each_bytes.filter(|each| *each > 0)?;
    Some(Beyond {
        kind: BeyondKind::Leak,
        bytes: None,
        each_bytes: Some(each),
        because: format!(
            "it would have gone on growing, about {} each time; no card and no setting ends that",
            readable(each)
        ),
    })
}

fn of_rounds(rounds: &Rounds) -> Beyond {
    Beyond {
        kind: BeyondKind::Loop,
        bytes: None,
        each_bytes: Some(rounds.growth),
        because: format!(
            "memory grew by about {} with each of the last {} rounds of the loop, and would have gone on growing",
            readable(rounds.growth),
            rounds.starts.len()
        ),
    }
}

/// An optimizer makes as much state for each parameter as it made for the first ones.
fn optimizer_state(analysis: &Analysis) -> Option<Beyond> {
    analysis.oom.filter(|oom| oom.phase == Phase::Optimizer)?;
    let of = |owner: Owner| {
        let pieces = analysis.layout.pieces.iter().zip(analysis.identities);
        pieces.filter(move |(piece, identity)| identity.owner == owner && piece.requested >= COUNTER)
    };
    let parameters: u64 = of(Owner::Parameters).map(|(piece, _)| piece.requested).sum();
    let mut states: Vec<(Position, u64)> = of(Owner::OptimizerState)
        .map(|(piece, _)| (analysis.timeline.lifetimes[piece.block as usize].birth, piece.requested))
        .collect();
    states.sort_unstable();
    let made: u64 = states.iter().map(|(_, bytes)| bytes).sum();
    let pairs = states.chunks_exact(2);
    let alike = pairs.clone().filter(|pair| pair[0].1 == pair[1].1).count();
    let each: u64 = if pairs.len() > 0 && alike * 5 >= pairs.len() * 4 { 2 } else { 1 };
    let bytes = parameters.saturating_mul(each).saturating_sub(made);
    (made > 0 && bytes > 0).then(|| Beyond {
        kind: BeyondKind::OptimizerState,
        bytes: Some(bytes),
        each_bytes: None,
        because: format!(
            "the optimizer had made {} of its state; {} more are to come for the other parameters",
            readable(made),
            readable(bytes)
        ),
    })
}

/// What the step before took after the same allocation, in the proportion of the two requests.
fn rest_of_step(analysis: &Analysis) -> Option<Beyond> {
    let oom = analysis.oom?;
    let ends = analysis.phases.step_ends();
    let now = ends.partition_point(|&end| end < analysis.position);
    let end = *ends.get(now.checked_sub(1)?)?;
    let start = now.checked_sub(2).and_then(|before| ends.get(before)).copied().unwrap_or(0);
    // The same line; a step may be called from another one. Autograd's allocations have none.
    let line = analysis.facts.get(analysis.timeline.device.events.get(oom.event as usize)?.stack).line;
    let made_there = |from: Position, to: Position| {
        (from..to).filter(move |&at| {
            let event = analysis.timeline.device.events.get(at as usize);
            event.is_some_and(|event| event.action == Action::Alloc && analysis.facts.get(event.stack).line == line)
        })
    };
    let turn = made_there(end, analysis.position).count();
    let same = made_there(start, end).nth(turn)?;
    let asked = analysis.timeline.device.events.get(same as usize)?.size.max(1);
    let active = analysis.timeline.active.get(same as usize..=end as usize)?;
    let more = active.iter().max()?.saturating_sub(*active.first()?);
    let scale = oom.requested_bytes as f64 / asked as f64;
    let bytes = (more as f64 * scale) as u64;
    // No more than the request itself: the step was past its peak.
    if bytes <= oom.requested_bytes {
        return None;
    }
    let larger = if (scale - 1.0).abs() < 0.005 {
        String::new()
    } else {
        format!(", and its request was {scale:.2} times as large here")
    };
    Some(Beyond {
        kind: BeyondKind::Step,
        bytes: Some(bytes),
        each_bytes: None,
        because: format!(
            "the rest of the step takes about {} more than was in use: the step before took {} after the same \
             allocation{larger}",
            readable(bytes),
            readable(more)
        ),
    })
}
