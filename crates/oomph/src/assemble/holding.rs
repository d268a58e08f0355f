//! Finds the cards of the catalogue that hold a program.

use oomph_gpu::Catalogue;
use oomph_report::{CapacityKnown, CardThatHolds, DeviceReport, Peak};

use super::probe::{filled, with_less};
use crate::cards::Card;
use crate::observation::Observation;
use crate::{allowed, architectures, pool};

/// How many of the smallest cards are named in the text.
pub(super) const SMALLEST: usize = 5;
/// How many of them may be slices of cards, laptops' cards or modules.
pub(super) const SMALLEST_SPECIAL: usize = 2;

/// The catalogue's cards that hold what every card of the run had to hold, in the catalogue's order.
pub(super) fn holding(
    devices: &[DeviceReport],
    cards: &[Card],
    run: &Observation,
    run_on: &[(String, bool)],
) -> Vec<CardThatHolds> {
    let used: Vec<(&DeviceReport, &Card)> =
        devices.iter().zip(cards).filter(|(device, _)| device.processes > 0).collect();
    // A card that holds the least that it needs may not hold what it needs.
    if used.iter().any(|(device, _)| device.needed_is_minimum) {
        return Vec::new();
    }
    let lean = |device: &DeviceReport| {
        // What caught its error did with less, which says nothing of a card on which it would not have had one.
        let is_known = device.caught_ooms.is_empty() || device.needed.is_some();
        let need = foreseen(device).or(device.need().filter(|_| is_known))?;
        // What was found by runs is a capacity, of which the pool took what it may.
        let searched = device.smallest_capacity.as_ref().is_some_and(|found| found.how == CapacityKnown::Run);
        Some(if device.pool.is_some() && !searched { pool::without_slack(&need) } else { need })
    };
    let needs: Option<Vec<Peak>> = used.iter().map(|(device, _)| lean(device)).collect();
    // A card that nobody asked for more than it had shows what it needs; one that died and was not probed does not.
    let Some(needs) = needs else { return Vec::new() };
    let need = |peak: &Peak| peak.process_bytes.saturating_sub(peak.context_bytes);
    let all = used.iter().zip(&needs).map(|((device, card), peak)| (device, peak, card));
    let Some(most) = all.max_by_key(|(_, peak, _)| need(peak)) else { return Vec::new() };
    // Every process that was on the card brings a context of its own, and those cost differently on different cards.
    let (device, peak, card) = most;
    let contexts = match peak.context_bytes.checked_div(card.gpu.context.expected_bytes) {
        // The engine's figures are those of a whole card.
        _ if is_computed(device) => 0,
        Some(contexts @ 1..) => contexts.min(device.processes.max(1).into()),
        _ => 1,
    };
    let bytes = need(peak);
    let seen = card.description(device.index as usize).capacity_bytes;
    // What was refused, and survived, would not have been had on a smaller card either; what else it would do there was
    // not seen.
    let searched = used.iter().all(|(device, _)| device.needed.is_some() || device.caught_ooms.is_empty());
    let least = if searched { 0 } else { seen };
    let doubt = peak.high_bytes.saturating_sub(peak.process_bytes);
    let own = |gpu: &str| {
        used.iter().all(|(device, _)| device.gpu == gpu && device.oom.is_none() && device.caught_ooms.is_empty())
    };
    let allocated = peak.allocated_bytes.unwrap_or(0);
    // What the program lets PyTorch take grows with the card, or does not.
    let may_reserve = |capacity: u64| {
        device.allowed.map(|allowed| (allowed::limit_on(&allowed, seen, capacity), peak.reserved_bytes.unwrap_or(0)))
    };
    Catalogue::builtin()
        .smallest_that_hold(bytes)
        .filter(|gpu| gpu.capacity_bytes >= least)
        .filter(|gpu| architectures::all_run_on(run, gpu))
        .filter(|gpu| device.pool.is_none_or(|pool| pool::limit_on(&pool, seen, gpu.capacity_bytes) >= allocated))
        .filter(|gpu| may_reserve(gpu.capacity_bytes).is_none_or(|(limit, reserved)| reserved <= limit))
        .filter(|gpu| !run_on.contains(&(gpu.id.clone(), false)))
        .filter_map(|gpu| {
            let contexts = gpu.context.expected_bytes.saturating_mul(contexts);
            let spare_bytes = gpu.capacity_bytes.checked_sub(bytes.checked_add(contexts)?)?;
            let spare_bytes = match may_reserve(gpu.capacity_bytes) {
                Some((limit, reserved)) => spare_bytes.min(limit - reserved),
                None => spare_bytes,
            };
            Some(CardThatHolds {
                gpu: gpu.id.clone(),
                gpu_name: gpu.name.clone(),
                kind: gpu.kind,
                capacity_bytes: gpu.capacity_bytes,
                spare_bytes,
                confirmed: run_on.contains(&(gpu.id.clone(), true)) || own(&gpu.id),
                tight: spare_bytes < doubt,
            })
        })
        .collect()
}

/// What a card has to hold by a replay of what ran on a larger one, or by an engine's own figures.
fn foreseen(device: &DeviceReport) -> Option<Peak> {
    let found = device.smallest_capacity.as_ref()?;
    match found.how {
        CapacityKnown::Replayed => Some(with_less(&device.peak, found.given_back_bytes)),
        CapacityKnown::Computed => {
            let peak = device.needed.unwrap_or(device.peak);
            let less = peak.process_bytes.saturating_sub(found.capacity_bytes);
            Some(Peak { context_bytes: 0, ..filled(&with_less(&peak, less), found.capacity_bytes) })
        }
        CapacityKnown::Run | CapacityKnown::Peak => None,
    }
}

fn is_computed(device: &DeviceReport) -> bool {
    device.smallest_capacity.as_ref().is_some_and(|found| found.how == CapacityKnown::Computed)
}

/// Some of the smallest cards. Slices, laptops' cards and modules come in so many sizes that they would crowd out what
/// can be bought or rented as a card.
pub(super) fn smallest(holding: Vec<CardThatHolds>) -> Vec<CardThatHolds> {
    let (mut ordinary, mut special) = (0, 0);
    let mut chosen = holding;
    chosen.retain(|card| {
        let (count, most) = if card.kind.is_card() {
            (&mut ordinary, SMALLEST - SMALLEST_SPECIAL)
        } else {
            (&mut special, SMALLEST_SPECIAL)
        };
        *count += 1;
        *count <= most
    });
    chosen
}
