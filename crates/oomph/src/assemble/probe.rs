//! What the cards would have to hold, from runs that were made after the program had died.

use oomph_report::{DeviceReport, Oom, Verdict};

use super::peaks::peak;
use super::{Observation, judge};
use crate::cards::Card;
use crate::pool;

pub(super) fn add_probe(devices: &mut [DeviceReport], cards: &[Card], probe: &Observation, warnings: &mut Vec<String>) {
    let (verdict, _) = judge(probe);
    // What died on a card without a limit may have died before its peak.
    let early = verdict != Verdict::Fits || probe.cut.is_some();
    for (index, (device, card)) in devices.iter_mut().zip(cards).enumerate() {
        let (mut needed, _, _) = peak(index, card, probe);
        if device.pool.is_some() {
            needed = pool::without_slack(&needed);
        }
        // The first run reached its own peak and asked for more, so the need is no less than that.
        if let Some(oom) = &device.oom {
            let least = device.peak.process_bytes.max(card_use(device, oom).saturating_add(oom.requested_bytes));
            if early && needed.process_bytes < least {
                let more = least - needed.process_bytes;
                needed.process_bytes = least;
                needed.low_bytes = needed.low_bytes.saturating_add(more);
                needed.high_bytes = needed.high_bytes.saturating_add(more);
                needed.other_bytes = needed.other_bytes.saturating_add(more);
            }
        }
        if needed.process_bytes == 0 {
            continue;
        }
        device.needed = Some(needed);
        device.needed_is_minimum = early;
        let seen = card.description(index).capacity_bytes;
        let for_the_pool = device.pool.as_ref().zip(needed.allocated_bytes);
        let least = for_the_pool.and_then(|(pool, allocated)| pool::least_capacity(pool, seen, allocated)).unwrap_or(0);
        if let Some(oom) = &mut device.oom {
            oom.would_need_bytes = Some(needed.process_bytes.max(least));
        }
    }
    if early {
        let why = if probe.cut.is_some() { "was not done when its time was up" } else { "failed as well" };
        warnings.push(format!(
            "the second run, on cards without a limit, {why}, so the program may need more than is said"
        ));
    }
}

/// What was in use when the error came, without what can be given back, in bytes.
fn card_use(device: &DeviceReport, oom: &Oom) -> u64 {
    let framework = oom.allocated_bytes.or(device.peak.allocated_bytes).unwrap_or(0);
    framework.saturating_add(device.peak.context_bytes).saturating_add(device.peak.other_bytes)
}
