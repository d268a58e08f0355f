//! Pools that frameworks manage themselves (JAX, TensorFlow), and what a card must hold for them.
//!
//! Such a pool grows by doubling or is taken whole at the start, and may take only a part of the card. What it took says
//! little of what the program needs; what was allocated of it does, and how much the framework would take of the card.

use oomph_launch::{HookReport, LimitScales};
use oomph_report::{DeviceReport, DryRunReport, Peak, Pool, PoolScale};

use crate::cards::Card;

/// The pool of a process on a device; `None` for PyTorch's, which takes what it needs.
pub fn of(hook: &HookReport, device: u32) -> Option<Pool> {
    let found = hook.devices.iter().find(|found| found.index == device)?;
    if found.limit.is_none() && found.reserved_peak_bytes.is_some() {
        return None;
    }
    let scales = found.limit.map_or(PoolScale::Fixed, |limit| match limit.scales {
        LimitScales::Share => PoolScale::Share,
        LimitScales::Reserve => PoolScale::Reserve,
        LimitScales::Fixed => PoolScale::Fixed,
    });
    Some(Pool { limit_bytes: found.limit.map(|limit| limit.bytes), scales, preallocated: found.preallocates })
}

/// The peak without what the pool took beyond what was allocated of it.
pub fn without_slack(peak: &Peak) -> Peak {
    let Some(allocated) = peak.allocated_bytes else { return *peak };
    // Where the framework does not say how large its pool is, the pool is all but the context.
    let pool = peak.reserved_bytes.unwrap_or(peak.process_bytes.saturating_sub(peak.context_bytes));
    let slack = pool.saturating_sub(allocated);
    let less = |bytes: u64| bytes.saturating_sub(slack);
    Peak {
        process_bytes: less(peak.process_bytes),
        reserved_bytes: Some(allocated),
        other_bytes: peak.process_bytes.saturating_sub(peak.context_bytes).saturating_sub(pool),
        low_bytes: less(peak.low_bytes),
        high_bytes: less(peak.high_bytes),
        ..*peak
    }
}

/// The most that the pool takes of a card of `capacity` bytes, computed from what it takes of one of `seen` bytes.
pub fn limit_on(pool: &Pool, seen: u64, capacity: u64) -> u64 {
    let Some(limit) = pool.limit_bytes else { return u64::MAX };
    match pool.scales {
        PoolScale::Fixed => limit,
        PoolScale::Reserve => capacity.saturating_sub(seen.saturating_sub(limit)),
        PoolScale::Share => {
            let part = u128::from(capacity) * u128::from(limit) / u128::from(seen.max(1));
            u64::try_from(part).unwrap_or(u64::MAX)
        }
    }
}

/// The least capacity of a card on which the pool may take `allocated` bytes; `None` where no card is large enough.
pub fn least_capacity(pool: &Pool, seen: u64, allocated: u64) -> Option<u64> {
    let Some(limit) = pool.limit_bytes else { return Some(0) };
    match pool.scales {
        PoolScale::Fixed => (allocated <= limit).then_some(0),
        PoolScale::Reserve => Some(allocated.saturating_add(seen.saturating_sub(limit))),
        PoolScale::Share => {
            let least = (u128::from(allocated) * u128::from(seen)).div_ceil(u128::from(limit.max(1)));
            Some(u64::try_from(least).unwrap_or(u64::MAX))
        }
    }
}

/// Whether a program that died on `cards` may live there with a pool that is taken whole at the start, as its framework does by
/// itself: one that grows in parts can have enough in all, and too little in one piece.
pub fn may_be_in_pieces(report: &DryRunReport, cards: &[Card]) -> bool {
    let may_be = |device: &DeviceReport, card: &Card| {
        let oom = device.oom.as_ref().filter(|oom| !oom.forecast)?;
        let wanted = oom.allocated_bytes.unwrap_or(0).saturating_add(oom.requested_bytes);
        Some(would_hold(device.pool.as_ref()?, card.capacity_bytes()?, wanted))
    };
    report.devices.iter().zip(cards).any(|(device, card)| may_be(device, card).unwrap_or(false))
}

/// Whether a pool that grew would hold `wanted` bytes of a card of `capacity` bytes if it were one piece.
fn would_hold(pool: &Pool, capacity: u64, wanted: u64) -> bool {
    !pool.preallocated && wanted <= limit_on(pool, capacity, capacity)
}

/// The part of a card that a pool may take at most, in percent: the remedy `larger-pool-share` sets it.
const LARGEST_SHARE: u64 = 95;

/// Whether a pool that takes a share of each card would hold `allocated` bytes on one of `capacity` bytes, if the share were as
/// large as it can be.
pub fn holds_with_a_larger_share(device: &DeviceReport, allocated: u64, capacity: u64) -> bool {
    let is_share = device.pool.as_ref().is_some_and(|pool| pool.scales == PoolScale::Share);
    is_share && allocated <= capacity / 100 * LARGEST_SHARE
}

/// What the program itself lets the pool take of a card of `capacity` bytes, where that is less than the card.
pub fn own_limit(device: &DeviceReport, capacity: u64) -> Option<u64> {
    let pool = device.pool.as_ref().filter(|pool| pool.scales == PoolScale::Fixed)?;
    pool.limit_bytes.filter(|limit| *limit < capacity)
}

/// The least that a card should have for what `device` took on a card of `seen` bytes, in bytes.
pub fn smallest_for(device: &DeviceReport, seen: u64) -> u64 {
    let Some(pool) = &device.pool else { return device.peak.process_bytes };
    let lean = without_slack(&device.peak);
    let share = lean.allocated_bytes.and_then(|allocated| least_capacity(pool, seen, allocated));
    lean.process_bytes.max(share.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn pool(limit: u64, scales: PoolScale) -> Pool {
        Pool { limit_bytes: Some(limit), scales, preallocated: false }
    }

    #[test]
    fn three_quarters_of_a_card_are_three_quarters_of_another() {
        let pool = pool(18 * GIB, PoolScale::Share);
        assert_eq!(limit_on(&pool, 24 * GIB, 80 * GIB), 60 * GIB);
        assert_eq!(least_capacity(&pool, 24 * GIB, 30 * GIB), Some(40 * GIB));
    }

    #[test]
    fn what_is_left_to_the_system_is_left_on_every_card() {
        let pool = pool(22 * GIB, PoolScale::Reserve);
        assert_eq!(limit_on(&pool, 24 * GIB, 80 * GIB), 78 * GIB);
        assert_eq!(least_capacity(&pool, 24 * GIB, 30 * GIB), Some(32 * GIB));
    }

    #[test]
    fn a_limit_of_the_program_holds_on_every_card() {
        let pool = pool(GIB, PoolScale::Fixed);
        assert_eq!(limit_on(&pool, 24 * GIB, 80 * GIB), GIB);
        assert_eq!((least_capacity(&pool, 24 * GIB, GIB), least_capacity(&pool, 24 * GIB, GIB + 1)), (Some(0), None));
    }

    #[test]
    fn only_a_pool_that_grew_may_do_better_whole() {
        let grown = pool(3 * GIB, PoolScale::Share);
        assert!(would_hold(&grown, 4 * GIB, 3 * GIB) && !would_hold(&grown, 4 * GIB, 3 * GIB + 1));
        assert!(!would_hold(&Pool { preallocated: true, ..grown }, 4 * GIB, GIB));
    }

    #[test]
    fn the_slack_of_a_pool_is_not_needed() {
        let peak = Peak {
            process_bytes: 10 * GIB,
            reserved_bytes: Some(8 * GIB),
            allocated_bytes: Some(5 * GIB),
            context_bytes: GIB,
            other_bytes: GIB,
            low_bytes: 9 * GIB,
            high_bytes: 11 * GIB,
        };
        let lean = without_slack(&peak);
        assert_eq!((lean.process_bytes, lean.other_bytes, lean.high_bytes), (7 * GIB, GIB, 8 * GIB));
        let untold = without_slack(&Peak { reserved_bytes: None, other_bytes: 9 * GIB, ..peak });
        assert_eq!((untold.process_bytes, untold.other_bytes), (6 * GIB, 0));
    }
}
