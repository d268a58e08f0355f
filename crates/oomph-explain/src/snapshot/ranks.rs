//! Several recordings of one run, one for each rank: which is the worst, and why it differs.

use serde::Serialize;

use super::diff::{DeviceDiff, diff};
use super::explanation::{CauseKind, Explanation};

/// A comparison of ranks.
#[derive(Clone, Debug, Serialize)]
pub struct RankComparison {
    /// Every rank, in the order given.
    pub ranks: Vec<Rank>,
    /// The index of the rank with the highest reserved memory; of several, one that ran out of memory.
    pub worst: Option<usize>,
    /// The index of a rank in the middle.
    pub typical: Option<usize>,
    /// What the worst one has more or less of than the typical one.
    pub difference: Option<DeviceDiff>,
    /// Why, in one sentence; empty where they do not differ noticeably.
    pub because: String,
}

/// One rank.
#[derive(Clone, Debug, Serialize)]
pub struct Rank {
    /// Its place in the list.
    pub index: usize,
    /// The highest reserved memory, in bytes.
    pub peak_reserved_bytes: u64,
    /// The highest memory in use, in bytes.
    pub peak_active_bytes: u64,
    /// Whether an allocation failed.
    pub oom: bool,
    /// The first of its causes.
    pub cause: Option<CauseKind>,
}

/// Compares explanations of ranks. Each is taken by its fullest device.
pub fn ranks(explanations: &[Explanation]) -> RankComparison {
    let fullest =
        |explanation: &Explanation| explanation.devices.iter().max_by_key(|device| device.peak_reserved_bytes).cloned();
    let devices: Vec<_> = explanations.iter().map(fullest).collect();
    let ranks: Vec<Rank> = devices
        .iter()
        .enumerate()
        .map(|(index, device)| Rank {
            index,
            peak_reserved_bytes: device.as_ref().map_or(0, |device| device.peak_reserved_bytes),
            peak_active_bytes: device.as_ref().map_or(0, |device| device.peak_active_bytes),
            oom: device.as_ref().is_some_and(|device| device.oom.is_some()),
            cause: device.as_ref().and_then(|device| device.verdict.cause),
        })
        .collect();
    let worst = ranks.iter().max_by_key(|rank| (rank.oom, rank.peak_reserved_bytes)).map(|rank| rank.index);
    let mut by_peak: Vec<usize> = ranks.iter().map(|rank| rank.index).filter(|&index| Some(index) != worst).collect();
    by_peak.sort_by_key(|&index| ranks[index].peak_reserved_bytes);
    let typical = by_peak.get(by_peak.len() / 2).copied();
    let difference = worst.zip(typical).and_then(|(worst, typical)| {
        // Each rank calls its own card as it likes, so that the two are compared under one index.
        let one = |at: usize| {
            let mut device = devices[at].clone()?;
            device.index = 0;
            Some(Explanation { devices: vec![device], ..Explanation::default() })
        };
        diff(&one(typical)?, &one(worst)?).devices.into_iter().next()
    });
    let because = difference.as_ref().map_or(String::new(), |difference| reason(difference, worst.unwrap_or(0)));
    RankComparison { ranks, worst, typical, difference, because }
}

/// The owner that differs the most, if it matters.
fn reason(difference: &DeviceDiff, worst: usize) -> String {
    match difference.by_owner.iter().max_by_key(|row| row.growth_bytes) {
        Some(row) if row.growth_bytes > 1 << 20 => format!(
            "rank {worst} has {} more of {} than a typical rank",
            super::causes::readable(row.growth_bytes.unsigned_abs()),
            row.name
        ),
        _ => String::new(),
    }
}
