//! Computes how full a card was: the processes on it, and the peak of those that were on it together.

use oomph_ledger::Kind;
use oomph_report::{Allowed, DeviceReport, ModelledTerm, Peak, Pool};

use crate::cards::Card;
use crate::observation::{Observation, device_map};
use crate::{allowed, followed, pool};

/// Processes count as being on a card at the same time while their peaks add up to no more than this part of the
/// card's peak beyond it, in percent: two that run together seldom peak in the very same instant.
const TOGETHER_PERCENT: u64 = 105;

/// A process on one card.
struct Share {
    peak_bytes: u64,
    context_bytes: u64,
    /// Reserved and allocated, where a framework reported them.
    framework: Option<(Option<u64>, u64)>,
    /// Its pool, where it is not PyTorch's.
    pool: Option<Pool>,
    /// What the program lets PyTorch take, where that is less than the card.
    allowed: Option<Allowed>,
}

/// The processes on a card, largest first.
fn shares(index: usize, run: &Observation) -> Vec<Share> {
    let mut shares: Vec<Share> = run
        .ledger
        .processes()
        .iter()
        .filter_map(|process| {
            let books = process.devices.get(index).filter(|books| books.peak_bytes > 0)?;
            let framework = run.hooks.reports.iter().filter(|hook| hook.pid == process.pid).find_map(|hook| {
                let map = device_map(hook, &run.ledger);
                let device = hook.devices.iter().find(|device| map.get(&device.index) == Some(&index))?;
                let peaks = (device.reserved_peak_bytes, device.allocated_peak_bytes);
                Some((peaks, pool::of(hook, device.index), allowed::of(hook, device.index)))
            });
            Some(Share {
                peak_bytes: books.peak_bytes,
                context_bytes: books.at_peak(Kind::Context),
                // A framework may say what limits its pool, and nothing of what is in it.
                framework: framework.map(|(peaks, ..)| peaks).filter(|peaks| peaks.1 > 0),
                pool: framework.and_then(|(_, pool, _)| pool),
                allowed: framework.and_then(|(.., allowed)| allowed),
            })
        })
        .collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.peak_bytes));
    shares
}

/// The peak of a card and how many processes were on it at once.
///
/// The processes that were on the card at its fullest are taken to be the largest ones whose peaks add up to about
/// the card's peak: all of them for ranks that share a card, one for stages that follow each other.
pub(super) fn peak(index: usize, card: &Card, run: &Observation) -> (Peak, u32, u32) {
    let shares = shares(index, run);
    let on_card = run.ledger.devices().get(index).map_or(0, |device| device.peak_bytes);
    let process_bytes = shares.first().map_or(0, |largest| largest.peak_bytes).max(on_card);
    let limit = u128::from(process_bytes) * u128::from(TOGETHER_PERCENT) / 100;
    let mut sum = 0_u128;
    let together: Vec<&Share> = shares
        .iter()
        .filter(|share| {
            let fits = sum + u128::from(share.peak_bytes) <= limit;
            if fits {
                sum += u128::from(share.peak_bytes);
            }
            fits
        })
        .collect();
    let context_bytes = together.iter().fold(0_u64, |sum, share| sum.saturating_add(share.context_bytes));
    let context_bytes = context_bytes.min(process_bytes);
    let reported: Vec<(Option<u64>, u64)> = together.iter().filter_map(|share| share.framework).collect();
    let framework_bytes = process_bytes - context_bytes;
    let reserved: Option<u64> =
        reported.iter().map(|share| share.0).try_fold(0_u64, |sum, one| Some(sum.saturating_add(one?)));
    let reserved = reserved.filter(|_| !reported.is_empty()).map(|bytes| bytes.min(framework_bytes));
    let allocated = reported.iter().map(|share| share.1).fold(0, u64::saturating_add);
    let allocated = (!reported.is_empty()).then(|| allocated.min(reserved.unwrap_or(framework_bytes)));
    let contexts = u64::try_from(together.iter().filter(|share| share.context_bytes > 0).count()).unwrap_or(0);
    let cost = &card.gpu.context;
    let below = cost.expected_bytes.saturating_sub(cost.low_bytes).saturating_mul(contexts);
    let above = cost.high_bytes.saturating_sub(cost.expected_bytes).saturating_mul(contexts);
    let peak = Peak {
        process_bytes,
        reserved_bytes: reserved,
        allocated_bytes: allocated,
        context_bytes,
        other_bytes: process_bytes - context_bytes - reserved.unwrap_or(0),
        low_bytes: process_bytes.saturating_sub(below),
        high_bytes: process_bytes.saturating_add(above),
    };
    (peak, u32::try_from(shares.len()).unwrap_or(u32::MAX), u32::try_from(contexts).unwrap_or(u32::MAX))
}

/// What the program lets PyTorch take of a card; of several processes, what the one has that is the closest to it.
pub(super) fn allowed_of(index: usize, run: &Observation) -> Option<Allowed> {
    allowed::closest(shares(index, run).into_iter().filter_map(|share| share.allowed))
}

pub(super) fn device(index: usize, card: &Card, run: &Observation, warnings: &mut Vec<String>) -> DeviceReport {
    let (peak, processes, contexts) = peak(index, card, run);
    if processes > 1 && contexts < processes {
        warnings.push(format!(
            "{processes} processes used GPU {index} one after another or at different times; the figures are those of \
             its fullest moment"
        ));
    }
    let cost = &card.gpu.context;
    let times = |bytes: u64| bytes.saturating_mul(contexts.into());
    let modelled = (contexts > 0).then(|| ModelledTerm {
        what: "context".into(),
        bytes: peak.context_bytes,
        low_bytes: times(cost.low_bytes),
        high_bytes: times(cost.high_bytes),
        source: cost.source.clone(),
    });
    DeviceReport {
        index: u32::try_from(index).unwrap_or(u32::MAX),
        gpu: card.label.clone(),
        capacity_bytes: card.capacity_bytes(),
        peak,
        oom: None,
        gpu_name: card.gpu.name.clone(),
        like: card.like.clone(),
        as_device: None,
        correction: card.correction.clone(),
        processes,
        needed: None,
        smallest_capacity: None,
        needed_is_minimum: false,
        peak_is_maximum: false,
        modelled: modelled.into_iter().collect(),
        caught_ooms: Vec::new(),
        whose: None,
        // Of several processes with pools on one card, the largest represents them.
        pool: shares(index, run).into_iter().find_map(|share| share.pool),
        allowed: allowed_of(index, run),
        phases: followed::phases(index, run),
    }
}
