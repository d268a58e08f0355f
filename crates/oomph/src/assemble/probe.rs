//! Estimates what the cards would have to hold, from runs that were made after the program had died.

use oomph_allocator::Spread;
use oomph_gpu::size::format as size;
use oomph_ledger::UNBOUNDED_CAPACITY;
use oomph_report::{
    Allowed, CapacityKnown, DeviceReport, HostShortage, Oom, Peak, PoolScale, RanOn, SmallestCapacity, Verdict,
};

use super::peaks::{allowed_of, peak};
use super::{host, judge};
use crate::cards::Card;
use crate::evidence::{CLOSE, Evidence, Foretold, Found};
use crate::observation::Observation;
use crate::share::{self, Shared};
use crate::{allowed, pool};

/// Takes the smallest cards that were run for what the program needs. `whole` is the run on cards without a limit.
pub(super) fn add_found(devices: &mut [DeviceReport], found: &Found, whole: &Observation) {
    for (index, (device, card)) in devices.iter_mut().zip(&found.cards).enumerate() {
        let (ran, users, _) = peak(index, card, &found.run);
        let capacity_bytes = found.capacities.get(index).copied().unwrap_or(ran.process_bytes);
        if users == 0 {
            continue;
        }
        let adapts = device.pool.is_some() || whole.takes_a_share();
        let allowed = allowed_of(index, &found.run);
        let seen = card.description(index).capacity_bytes;
        let for_its_limit =
            allowed.and_then(|one| allowed::least_capacity(&one, seen, one.reserved_bytes)).unwrap_or(0);
        // What the program's own limit keeps from it is not memory that it needs.
        let limited = for_its_limit > ran.process_bytes && device.pool.is_none();
        let mut needed = if limited { ran } else { filled(&ran, capacity_bytes) };
        widen(&mut needed, found.spreads.get(index).and_then(Option::as_ref));
        let fails_bytes = found.fails.as_ref().and_then(|fails| fails.get(index).copied());
        // The time may end before the search has closed in: anything above what was seen to fail may do then.
        if let Some(fails) = fails_bytes.filter(|&fails| adapts || fails < capacity_bytes - capacity_bytes / CLOSE) {
            needed.low_bytes = needed.low_bytes.min(fails);
        }
        let reserved_bytes = peak(index, card, whole).0.reserved_bytes;
        let given_back = reserved_bytes.unwrap_or(0).saturating_sub(needed.reserved_bytes.unwrap_or(u64::MAX));
        device.smallest_capacity = Some(SmallestCapacity {
            capacity_bytes,
            how: CapacityKnown::Run,
            fails_bytes,
            reserved_bytes,
            given_back_bytes: if adapts { 0 } else { given_back },
            may_hold_bytes: None,
            runs: found.runs,
            ran_on: if adapts {
                found.tried.iter().map(|&(bytes, held)| RanOn { bytes, held }).collect()
            } else {
                Vec::new()
            },
        });
        device.needed = Some(needed);
        for oom in device.oom.iter_mut().chain(&mut device.caught_ooms) {
            oom.would_need_bytes = Some(capacity_bytes);
        }
    }
}

/// A peak that fills a card: the rest is the room that the allocator needed to come that far.
pub(super) fn filled(peak: &Peak, capacity: u64) -> Peak {
    let more = capacity.saturating_sub(peak.process_bytes);
    let (reserved, other) = match peak.reserved_bytes {
        Some(reserved) => (Some(reserved.saturating_add(more)), peak.other_bytes),
        None => (None, peak.other_bytes.saturating_add(more)),
    };
    Peak {
        process_bytes: peak.process_bytes.saturating_add(more),
        reserved_bytes: reserved,
        other_bytes: other,
        low_bytes: peak.low_bytes.saturating_add(more),
        high_bytes: peak.high_bytes.saturating_add(more),
        ..*peak
    }
}

/// Widens the interval of a peak by what replays reserved that differ in what another machine may do differently.
pub(super) fn widen(peak: &mut Peak, spread: Option<&Spread>) {
    let Some(spread) = spread else { return };
    peak.low_bytes = peak.low_bytes.saturating_sub(spread.recorded - spread.low());
    peak.high_bytes = peak.high_bytes.saturating_add(spread.high() - spread.recorded);
}

/// Takes what replays say of a program that fits: what of its cache would be given back on a smaller card.
pub(super) fn add_foretold(devices: &mut [DeviceReport], foretold: &[Option<Foretold>]) {
    for (device, foretold) in devices.iter_mut().zip(foretold) {
        let (Some(found), Some(reserved)) = (foretold, device.peak.reserved_bytes) else { continue };
        if device.pool.is_some() || found.firm > reserved || !found.is_whole(reserved) {
            continue;
        }
        let given_back_bytes = reserved - found.firm;
        let seen = device.capacity_bytes.unwrap_or(UNBOUNDED_CAPACITY);
        let for_its_limit = device.allowed.and_then(|one| allowed::least_capacity(&one, seen, found.firm)).unwrap_or(0);
        let capacity_bytes = (device.peak.process_bytes - given_back_bytes).max(for_its_limit);
        let less = capacity_bytes.saturating_sub(found.firm.saturating_sub(found.least));
        device.smallest_capacity = Some(SmallestCapacity {
            capacity_bytes,
            how: CapacityKnown::Replayed,
            fails_bytes: None,
            reserved_bytes: Some(reserved),
            given_back_bytes,
            may_hold_bytes: Some(less).filter(|&less| less < capacity_bytes - capacity_bytes / 100),
            runs: 0,
            ran_on: Vec::new(),
        });
    }
}

/// Takes what an engine says of its cache for the smallest card that holds a program that fits. No run of it is needed, and
/// none was made.
pub(super) fn add_computed(devices: &mut [DeviceReport], cards: &[Card], run: &Observation) {
    for (device, found) in devices.iter_mut().zip(computed(cards, run)) {
        device.smallest_capacity = found.map(|(_, found)| found).or(device.smallest_capacity.take());
    }
}

/// For each card what an engine's program took of it in a run that fits, and the smallest capacity by the engine's figures.
fn computed(cards: &[Card], run: &Observation) -> Vec<Option<(Peak, SmallestCapacity)>> {
    let peaks: Vec<(Peak, u32)> = cards
        .iter()
        .enumerate()
        .map(|(index, card)| peak(index, card, run))
        .map(|(peak, users, _)| (peak, users))
        .collect();
    let engines = share::engines(run, peaks.iter().filter(|(_, users)| *users > 0).count());
    let of_card = |(index, card): (usize, &Card)| {
        let (peak, users) = peaks[index];
        let shared = Shared {
            engines: &engines,
            capacity_bytes: card.description(index).capacity_bytes,
            peak_bytes: peak.process_bytes,
            context_bytes: peak.context_bytes,
        };
        let capacity_bytes = shared.least_capacity().filter(|_| users > 0)?;
        let found = SmallestCapacity {
            capacity_bytes,
            how: CapacityKnown::Computed,
            fails_bytes: None,
            reserved_bytes: None,
            given_back_bytes: 0,
            may_hold_bytes: None,
            runs: 0,
            ran_on: Vec::new(),
        };
        Some((peak, found))
    };
    cards.iter().enumerate().map(of_card).collect()
}

/// The same for a program that died, from its run on cards without a limit. Returns whether anything is known so. Nothing is
/// where the program died with a capacity, of those in bytes that it was run with, that would be enough by the figures.
fn add_engines_need(devices: &mut [DeviceReport], cards: &[Card], probe: &Observation, died_with: &[u64]) -> bool {
    if judge(probe).0 != Verdict::Fits || !probe.is_done() {
        return false;
    }
    let mut is_known = false;
    for (device, computed) in devices.iter_mut().zip(computed(cards, probe)) {
        let Some((peak, found)) = computed else { continue };
        if died_with.iter().any(|&bytes| bytes >= found.capacity_bytes) {
            return false;
        }
        let less = peak.process_bytes.saturating_sub(found.capacity_bytes);
        device.needed = Some(filled(&with_less(&peak, less), found.capacity_bytes));
        for oom in device.oom.iter_mut().chain(&mut device.caught_ooms) {
            oom.would_need_bytes = Some(found.capacity_bytes);
        }
        device.smallest_capacity = Some(found);
        is_known = true;
    }
    is_known
}

/// Takes a run on cards without a limit for what the program needs, where no smaller card could be searched for.
pub(super) fn add_probe(
    devices: &mut [DeviceReport],
    cards: &[Card],
    probe: &Observation,
    evidence: &Evidence<'_>,
    warnings: &mut Vec<String>,
) {
    if probe.takes_a_share() {
        let cards: Vec<Card> = cards.iter().map(Card::without_limit).collect();
        if !add_engines_need(devices, &cards, probe, evidence.died_with) {
            warnings.push(of_a_share(evidence.died_with));
        }
        return;
    }
    let (verdict, _) = judge(probe);
    let host = host::shortage(probe).filter(|_| verdict == Verdict::Failed);
    if verdict == Verdict::Failed && probe.cut.is_none() && host.is_none() {
        // It did something else than the first run, so that its figures say nothing of what that one needs.
        warnings.push(format!(
            "the second run, on cards without a limit, ended in another error, so what the program needs is not known: {}",
            probe.last_words()
        ));
        return;
    }
    // What died on a card without a limit may have died before its peak.
    let early = verdict != Verdict::Fits || !probe.is_done();
    let (_, died) = judge(probe);
    // What adapts to its card may die with more than it takes where there is no limit.
    let died_with = evidence.died_with.last().copied().filter(|_| cards.len() == 1);
    for (index, (device, card)) in devices.iter_mut().zip(cards).enumerate() {
        let limit = limit_in_bytes(index, device, probe);
        if let (Some((limit, whose)), false, true) = (limit, died.is_empty(), device.oom.is_some()) {
            warnings.push(format!(
                "it ran out of memory on a card without a limit as well: the limit of {} that the program sets for {whose} \
                 decides, not the card",
                size(limit)
            ));
            return;
        }
        let mut needed =
            need_seen(index, card, device, probe, early, evidence.foretold.get(index).and_then(Option::as_ref));
        if needed.process_bytes == 0 {
            continue;
        }
        let died_with = died_with.filter(|&bytes| bytes >= needed.process_bytes);
        if let Some(bytes) = died_with {
            needed = with_at_least(&needed, bytes);
            warnings.push(format!(
                "on a card without a limit it takes less, but it adapts to its card and died with {}; the search ended before a larger \
                 one held it",
                size(bytes)
            ));
        }
        device.needed = Some(needed);
        device.needed_is_minimum = early || died_with.is_some();
        device.smallest_capacity = (!device.needed_is_minimum).then_some(SmallestCapacity {
            capacity_bytes: needed.process_bytes,
            how: CapacityKnown::Peak,
            fails_bytes: None,
            reserved_bytes: needed.reserved_bytes,
            given_back_bytes: 0,
            may_hold_bytes: None,
            runs: 0,
            ran_on: Vec::new(),
        });
        let for_its_limit = least_for_its_limit(index, card, device, probe, &needed).unwrap_or(0);
        let seen = card.description(index).capacity_bytes;
        let for_the_pool = device.pool.as_ref().zip(needed.allocated_bytes);
        let least = for_the_pool.and_then(|(pool, allocated)| pool::least_capacity(pool, seen, allocated)).unwrap_or(0);
        let least = least.max(for_its_limit);
        if let Some(found) = &mut device.smallest_capacity {
            found.capacity_bytes = found.capacity_bytes.max(for_its_limit);
        }
        for oom in device.oom.iter_mut().chain(&mut device.caught_ooms) {
            oom.would_need_bytes = Some(needed.process_bytes.max(least));
        }
    }
    if early {
        let why = match host {
            Some(host) => host_words(&host),
            None if !probe.is_done() => "timed out".into(),
            None => "ran out of memory as well".into(),
        };
        warnings.push(format!(
            "the second run, on cards without a limit, {why}, so the program may need more than reported"
        ));
    }
}

/// A limit of so many bytes that the program sets, whatever the card, and what it sets it for.
fn limit_in_bytes(index: usize, device: &mut DeviceReport, probe: &Observation) -> Option<(u64, &'static str)> {
    if let Some(allowed) = &mut device.allowed
        && allowed_of(index, probe).is_some_and(|later| is_same_limit(allowed, &later))
    {
        allowed.scales = PoolScale::Fixed;
    }
    let of_pool = device.pool.filter(|pool| pool.scales == PoolScale::Fixed).and_then(|pool| pool.limit_bytes);
    let of_pytorch = device.allowed.filter(|allowed| allowed.scales == PoolScale::Fixed);
    of_pool.map(|bytes| (bytes, "its pool")).or(of_pytorch.map(|allowed| (allowed.bytes, "PyTorch")))
}

/// The least capacity of a card of which the part that the program lets PyTorch take holds what is `needed`.
fn least_for_its_limit(
    index: usize,
    card: &Card,
    device: &DeviceReport,
    probe: &Observation,
    needed: &Peak,
) -> Option<u64> {
    let seen = |card: &Card| card.description(index).capacity_bytes;
    let later = allowed_of(index, probe).map(|allowed| (allowed, seen(&card.without_limit())));
    let (allowed, seen) = later.or(device.allowed.zip(Some(seen(card))))?;
    allowed::least_capacity(&allowed, seen, needed.reserved_bytes?)
}

/// What is said of a program that takes a share of its card, where no card was seen to hold it; `died_with` are those, in bytes,
/// that were tried.
fn of_a_share(died_with: &[u64]) -> String {
    let share = "vLLM takes a share of whatever card it gets";
    if died_with.is_empty() {
        return format!(
            "{share}, so what it needs is not known; name a larger card with --gpu to see whether it holds it"
        );
    }
    let sizes: Vec<String> = died_with.iter().map(|bytes| size(*bytes)).collect();
    format!(
        "{share}, and what is left for the rest of the program grows little with the card: it was run on {} as well, and died; a \
         smaller share (gpu_memory_utilization) may help more than a larger card",
        sizes.join(" and on ")
    )
}

/// What a card has to hold as a run on cards without a limit has shown it; `early` where that may have ended before its peak.
fn need_seen(
    index: usize,
    card: &Card,
    device: &DeviceReport,
    probe: &Observation,
    early: bool,
    foretold: Option<&Foretold>,
) -> Peak {
    let (mut needed, _, _) = peak(index, card, probe);
    if device.pool.is_some() {
        needed = pool::without_slack(&needed);
    }
    // The cache is never given back on a card without a limit.
    if let Some((found, reserved)) = foretold.zip(needed.reserved_bytes)
        && found.is_whole(reserved)
        && early
        && device.pool.is_none()
    {
        needed = with_less(&needed, reserved.saturating_sub(found.firm));
    }
    // The first run reached its own peak and asked for more, so the need is no less than that.
    if let Some(oom) = &device.oom {
        let least = device.peak.process_bytes.max(card_use(device, oom).saturating_add(oom.requested_bytes));
        if early {
            needed = with_at_least(&needed, least);
        }
    }
    needed
}

/// A peak of at least so many bytes.
fn with_at_least(peak: &Peak, least: u64) -> Peak {
    let more = least.saturating_sub(peak.process_bytes);
    Peak {
        process_bytes: peak.process_bytes.saturating_add(more),
        low_bytes: peak.low_bytes.saturating_add(more),
        high_bytes: peak.high_bytes.saturating_add(more),
        other_bytes: peak.other_bytes.saturating_add(more),
        ..*peak
    }
}

/// Whether two limits, of cards of different sizes, are the same number of bytes: the program then computes the share from what the
/// card has.
fn is_same_limit(one: &Allowed, other: &Allowed) -> bool {
    one.bytes.abs_diff(other.bytes) <= one.bytes / 1000
}

/// How a run ended for lack of the host's memory.
fn host_words(host: &HostShortage) -> String {
    let asked = host.requested_bytes.map(|bytes| format!(", where it requested {}", size(bytes))).unwrap_or_default();
    let total = host.total_bytes.map(|bytes| format!(" (this machine has {})", size(bytes))).unwrap_or_default();
    format!("ran out of the host's memory{asked}{total}")
}

/// A peak without so much of the cache.
pub(super) fn with_less(peak: &Peak, given_back: u64) -> Peak {
    let less = |bytes: u64| bytes.saturating_sub(given_back);
    Peak {
        process_bytes: less(peak.process_bytes),
        reserved_bytes: peak.reserved_bytes.map(less),
        low_bytes: less(peak.low_bytes),
        high_bytes: less(peak.high_bytes),
        ..*peak
    }
}

/// What was in use when the error came, without what can be given back, in bytes.
fn card_use(device: &DeviceReport, oom: &Oom) -> u64 {
    let framework = oom.allocated_bytes.or(device.peak.allocated_bytes).unwrap_or(0);
    framework.saturating_add(device.peak.context_bytes).saturating_add(device.peak.other_bytes)
}
