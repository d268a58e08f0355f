//! Computes what a card must hold where the program lets PyTorch's allocator take only a part of it.
//!
//! `set_per_process_memory_fraction(0.25)` lets a process reserve a quarter of whatever card it gets. A card then needs four times
//! what the process reserves, which says nothing of what lies on it.

use oomph_launch::{HookReport, LimitScales};
use oomph_report::{Allowed, DeviceReport, PoolScale};

/// What a process was allowed of a device, and how much of that it took; `None` where it may take all.
pub fn of(hook: &HookReport, device: u32) -> Option<Allowed> {
    let found = hook.devices.iter().find(|found| found.index == device)?;
    let allowed = found.allowed?;
    Some(Allowed {
        bytes: allowed.bytes,
        scales: match allowed.scales {
            LimitScales::Share => PoolScale::Share,
            LimitScales::Reserve => PoolScale::Reserve,
            LimitScales::Fixed => PoolScale::Fixed,
        },
        reserved_bytes: found.reserved_peak_bytes?,
        gave_back: allowed.retries > 0,
    })
}

/// The one of several processes on a card that is the closest to its limit.
pub fn closest(all: impl Iterator<Item = Allowed>) -> Option<Allowed> {
    let fuller = |one: &Allowed, other: &Allowed| {
        let cross = |part: &Allowed, whole: &Allowed| u128::from(part.reserved_bytes) * u128::from(whole.bytes.max(1));
        cross(one, other).cmp(&cross(other, one))
    };
    all.max_by(fuller)
}

/// What it would be of a card of `capacity` bytes, where it is as given of one of `seen` bytes.
pub fn limit_on(allowed: &Allowed, seen: u64, capacity: u64) -> u64 {
    match allowed.scales {
        PoolScale::Fixed => allowed.bytes,
        PoolScale::Reserve => capacity.saturating_sub(seen.saturating_sub(allowed.bytes)),
        PoolScale::Share => {
            let part = u128::from(capacity) * u128::from(allowed.bytes) / u128::from(seen.max(1));
            u64::try_from(part).unwrap_or(u64::MAX)
        }
    }
}

/// The least capacity of a card on which `reserved` bytes are allowed; `None` where no card is large enough.
pub fn least_capacity(allowed: &Allowed, seen: u64, reserved: u64) -> Option<u64> {
    match allowed.scales {
        PoolScale::Fixed => (reserved <= allowed.bytes).then_some(0),
        PoolScale::Reserve => Some(reserved.saturating_add(seen.saturating_sub(allowed.bytes))),
        PoolScale::Share => {
            let least = (u128::from(reserved) * u128::from(seen)).div_ceil(u128::from(allowed.bytes.max(1)));
            Some(u64::try_from(least).unwrap_or(u64::MAX))
        }
    }
}

/// The least capacity that what `device` reserved on a card of `seen` bytes asks for; 0 where the program sets no limit, or none
/// that follows the card.
pub fn smallest_for(device: &DeviceReport, seen: u64) -> u64 {
    let allowed = device.allowed.as_ref();
    allowed.and_then(|allowed| least_capacity(allowed, seen, allowed.reserved_bytes)).unwrap_or(0)
}

/// What of a card of `capacity` bytes can be used in all where `others` bytes are not the allocator's.
pub fn usable(device: &DeviceReport, capacity: u64, others: u64) -> u64 {
    match &device.allowed {
        Some(allowed) => capacity.min(allowed.bytes.saturating_add(others)),
        None => capacity,
    }
}

#[cfg(test)]
mod tests {
    use oomph_launch::HookAllowed;

    use super::*;
    use crate::assemble::assemble;
    use crate::hand_made::{MIB, card, hook, ledger, run};

    const GIB: u64 = 1 << 30;

    fn allowed(bytes: u64, scales: PoolScale, reserved_bytes: u64) -> Allowed {
        Allowed { bytes, scales, reserved_bytes, gave_back: false }
    }

    #[test]
    fn a_quarter_of_a_card_that_must_hold_six_gib_is_a_card_of_24() {
        let quarter = allowed(3 * GIB, PoolScale::Share, 2 * GIB);
        assert_eq!(least_capacity(&quarter, 12 * GIB, 6 * GIB), Some(24 * GIB));
        assert_eq!(limit_on(&quarter, 12 * GIB, 24 * GIB), 6 * GIB);
        assert_eq!(least_capacity(&quarter, 12 * GIB, 6 * GIB + 1), Some(24 * GIB + 4));
    }

    #[test]
    fn no_card_is_large_enough_for_more_than_a_limit_in_bytes() {
        let fixed = allowed(4 * GIB, PoolScale::Fixed, 3 * GIB);
        assert_eq!(least_capacity(&fixed, 12 * GIB, 4 * GIB), Some(0));
        assert_eq!(least_capacity(&fixed, 12 * GIB, 4 * GIB + 1), None);
        assert_eq!(limit_on(&fixed, 12 * GIB, 80 * GIB), 4 * GIB);
    }

    #[test]
    fn the_cards_that_hold_a_program_are_those_whose_part_does() {
        let cards = [card("rtx-3060")];
        let mut reported = hook(7, &[(0, 5000, 4900)]);
        let bytes = cards[0].gpu.capacity_bytes / 2;
        reported.devices[0].allowed = Some(HookAllowed { bytes, scales: LimitScales::Share, retries: 0 });
        let run = run(ledger(&cards, &[5200], &[(7, 0, 5200, 0)], &[]), vec![reported], 0);
        let report = assemble(&cards, &run, None);
        let holds = |name: &str| report.fits_on.iter().any(|gpu| gpu == name);
        assert!(holds("rtx-3060") && !holds("rtx-5050"), "half of 8 GiB is less than 5,000 MiB");
        for gpu in &report.smallest {
            let half = card(&gpu.gpu).gpu.capacity_bytes / 2;
            let spare = half - 5000 * MIB;
            assert!(gpu.spare_bytes.abs_diff(spare) < MIB, "{}: beyond its half nothing is the program's", gpu.gpu);
        }
        assert!(!report.smallest.is_empty());
    }

    #[test]
    fn of_two_processes_the_fuller_one_decides() {
        let (half, tenth) = (allowed(6 * GIB, PoolScale::Share, 3 * GIB), allowed(GIB, PoolScale::Share, GIB / 4 * 3));
        assert_eq!(closest([half, tenth].into_iter()), Some(tenth));
        assert_eq!(closest([].into_iter()), None);
    }
}
