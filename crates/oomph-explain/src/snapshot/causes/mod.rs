//! Why the card was that full.
//!
//! Every byte of the card goes to one cause, or to one of the background rows that complete the sum. The causes claim
//! bytes in a fixed order; what none of them claims is what the program needs in any case.

mod growth;
mod kept;
mod recording;
mod space;
mod step;

use super::Analysis;
use super::explanation::{Cause, CauseKind, Evidence, Line, Owner, Phase};
use super::lifetimes::Position;
use super::rounds::Rounds;
use super::rows;

/// Causes with fewer bytes than this share of the reserved memory are left to the background, unless they decide.
const NEGLIGIBLE: f64 = 0.005;

/// The bytes at the moment, and who has claimed them.
struct Ledger<'a> {
    analysis: &'a Analysis<'a>,
    /// How many bytes of each piece of the layout nobody has claimed.
    left: Vec<u64>,
    causes: Vec<Cause>,
}

impl Ledger<'_> {
    /// The pieces that nobody has claimed yet, as indices.
    fn unclaimed(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.left.len()).filter(|&at| self.left[at] > 0)
    }

    /// Claims what is left of pieces; returns the bytes, rounding and slack included.
    fn claim(&mut self, pieces: impl IntoIterator<Item = usize>) -> u64 {
        pieces.into_iter().map(|at| std::mem::take(&mut self.left[at])).sum()
    }

    /// Claims some bytes of a piece, as far as they are left; returns how many.
    fn claim_part(&mut self, at: usize, bytes: u64) -> u64 {
        let bytes = bytes.min(self.left[at]);
        self.left[at] -= bytes;
        bytes
    }

    fn add(&mut self, cause: CauseKind, bytes: u64, confidence: f64, because: String, evidence: Vec<Evidence>) {
        let background = cause.is_background();
        self.causes.push(Cause { cause, background, bytes, each_bytes: None, confidence, because, evidence });
    }

    /// What each further step adds to the cause that was added last.
    fn each(&mut self, bytes: u64) {
        if let Some(cause) = self.causes.last_mut() {
            cause.each_bytes = Some(bytes);
        }
    }

    /// A cause that is too small to be one is a part of what the program needs.
    fn negligible(&self, bytes: u64) -> bool {
        (bytes as f64) < (self.analysis.layout.reserved() as f64 * NEGLIGIBLE).max((1 << 20) as f64)
    }

    fn owner(&self, at: usize) -> Owner {
        self.analysis.identities[at].owner
    }

    /// The step in which a piece was made, the phase, and the position.
    fn birth(&self, at: usize) -> (u32, Phase, Position) {
        let analysis = self.analysis;
        let block = &analysis.timeline.lifetimes[analysis.layout.pieces[at].block as usize];
        let birth = analysis.phases.birth(block.birth);
        (birth.step, birth.kind, block.birth)
    }

    /// The line that allocated a piece.
    fn site(&self, at: usize) -> Option<Line> {
        let block = &self.analysis.timeline.lifetimes[self.analysis.layout.pieces[at].block as usize];
        self.analysis.facts.get(block.stack).line.and_then(|frame| rows::line(self.analysis.trace, frame))
    }
}

/// The causes, those that decide first and the background last. Their bytes add up to the card, or to the reserved
/// memory where no card is known.
pub(super) fn causes(analysis: &Analysis, rounds: Option<&Rounds>) -> Vec<Cause> {
    let mut ledger =
        Ledger { analysis, left: analysis.layout.pieces.iter().map(|piece| piece.bytes).collect(), causes: Vec::new() };
    recording::claim(&mut ledger);
    growth::claim(&mut ledger, rounds);
    kept::claim(&mut ledger);
    step::claim(&mut ledger, rounds);
    space::claim(&mut ledger);
    let mut causes = ledger.causes;
    causes.retain(|cause| cause.bytes > 0 || !cause.background);
    let live: u64 = analysis.layout.pieces.iter().map(|piece| piece.bytes).sum();
    let request = analysis.oom.map_or(0, |oom| oom.requested_bytes);
    let usable = analysis.card.map(|card| card.usable());
    // What lives and the request are more than the card has: then memory that need not live decides. Otherwise there was
    // enough memory, but not where it could be used.
    let too_much = usable.is_some_and(|usable| live.saturating_add(request) > usable);
    let in_pieces: u64 = causes.iter().filter(|cause| is_placement(cause.cause)).map(|cause| cause.bytes).sum();
    // Memory that need not live decides also where there was enough of it in the wrong places, if it is what there is more
    // of: without a leak of gigabytes, gaps of some megabytes would not have mattered.
    let outweighs = |cause: &Cause| is_needless(cause.cause) && cause.bytes >= in_pieces.saturating_add(request);
    let decides = |cause: &Cause| match (cause.cause, usable) {
        _ if outweighs(cause) => true,
        (CauseKind::SpuriousOom | CauseKind::MemoryLimit | CauseKind::SingleAllocationTooLarge, _) => true,
        (CauseKind::DoesNotFit, _) => true,
        (CauseKind::RecordedTooLate | CauseKind::RingTooShort, _) => false,
        (kind, _) if is_placement(kind) => !too_much,
        (CauseKind::OtherProcesses, Some(usable)) => {
            too_much && live.saturating_add(request) <= usable.saturating_add(cause.bytes)
        }
        (_, Some(usable)) => too_much && live.saturating_sub(cause.bytes).saturating_add(request) <= usable,
        (_, None) => true,
    };
    let failed = analysis.oom.is_some();
    causes.sort_by(|a, b| {
        let key =
            |cause: &Cause| (cause.background, failed && !decides(cause), if failed { rank(cause.cause) } else { 0 });
        key(a).cmp(&key(b)).then(b.bytes.cmp(&a.bytes))
    });
    causes
}

/// Memory that is free where the request cannot use it.
fn is_placement(kind: CauseKind) -> bool {
    matches!(kind, CauseKind::Fragmentation | CauseKind::CacheOfAnotherStream | CauseKind::CacheOfAnotherPool)
}

/// Memory that is in use and need not be.
fn is_needless(kind: CauseKind) -> bool {
    matches!(kind, CauseKind::Leak | CauseKind::KeptFromEarlierPhase | CauseKind::LongestBatch)
}

/// Of several causes that decide, the more particular one comes first.
fn rank(cause: CauseKind) -> u8 {
    match cause {
        CauseKind::SpuriousOom => 0,
        CauseKind::MemoryLimit => 1,
        CauseKind::SingleAllocationTooLarge => 2,
        CauseKind::Leak => 3,
        CauseKind::KeptFromEarlierPhase => 4,
        CauseKind::LongestBatch => 5,
        CauseKind::LazyOptimizerState => 6,
        CauseKind::Fragmentation => 7,
        CauseKind::CacheOfAnotherStream => 7,
        CauseKind::CacheOfAnotherPool => 7,
        CauseKind::DoesNotFit => 10,
        CauseKind::OtherProcesses => 11,
        CauseKind::RingTooShort => 12,
        CauseKind::RecordedTooLate => 13,
        CauseKind::WorkingSet => 14,
        CauseKind::Cache => 15,
        CauseKind::Context => 16,
        CauseKind::Free => 17,
    }
}

/// Bytes as a person reads them: GiB = 2^30, MiB = 2^20.
pub(super) fn readable(bytes: u64) -> String {
    let bytes = bytes as f64;
    if bytes >= f64::from(1 << 30) {
        format!("{:.2} GiB", bytes / f64::from(1 << 30))
    } else if bytes >= f64::from(1 << 20) {
        format!("{:.1} MiB", bytes / f64::from(1 << 20))
    } else {
        format!("{:.1} KiB", bytes / 1024.0)
    }
}
