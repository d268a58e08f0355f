//! Collects what the hook saw of a run for the report: phases, loops, growth, and parts that were not reached.

use std::collections::BTreeSet;

use oomph_launch::{HookFollowedLoop, HookGrowth, HookHolder, HookReport};
use oomph_report::{
    DeviceReport, FollowedLoop, Growth, Holder, LoopKind, Oom, Peak, Phase, PhasePeak, Unreached, Verdict,
};

use crate::allowed;
use crate::evidence::Foreseen;
use crate::observation::{Cut, Observation, device_map};

/// The phases of the program on one card: of several processes, each phase's highest peak.
pub fn phases(index: usize, run: &Observation) -> Vec<PhasePeak> {
    let mut phases: Vec<PhasePeak> = Vec::new();
    for hook in &run.hooks.reports {
        let map = device_map(hook, &run.ledger);
        for phase in &hook.phases {
            let Some(peaks) = phase.devices.iter().find(|device| map.get(&device.index) == Some(&index)) else {
                continue;
            };
            let place = phases.iter().position(|known| known.phase == phase.phase).unwrap_or_else(|| {
                phases.push(PhasePeak { phase: phase.phase, ..PhasePeak::default() });
                phases.len() - 1
            });
            let known = &mut phases[place];
            known.times = known.times.max(phase.times);
            known.allocated_bytes = known.allocated_bytes.max(peaks.allocated_peak_bytes);
            known.reserved_bytes = known.reserved_bytes.max(peaks.reserved_peak_bytes.unwrap_or(0));
        }
    }
    phases
}

/// What the program would do and the run did not reach: all of it where the run ended early, else what was left out in any
/// case.
pub fn unreached(run: &Observation, early: bool) -> Vec<Unreached> {
    let mut seen = BTreeSet::new();
    let all = run.hooks.reports.iter().flat_map(|hook| &hook.unreached);
    let parts = all
        .filter(|one| early || one.certain)
        .filter(|one| seen.insert((&one.part, &one.why)))
        .map(|one| Unreached { part: one.part.clone(), why: one.why.clone() });
    let requests = (run.cut == Some(Cut::Listening)).then(|| Unreached {
        part: "requests".to_owned(),
        why: "the server waited for them, and no client came; one command that starts both shows what they take"
            .to_owned(),
    });
    parts.chain(requests).collect()
}

/// What a card would have to hold beyond its peak in this run, because iterations that grow were left out, in bytes.
pub fn left_out_bytes(device: &DeviceReport, loops: &[FollowedLoop]) -> u64 {
    let allocated = device.peak.allocated_bytes.unwrap_or(0);
    let ends = loops.iter().filter_map(|one| one.growth.as_ref()).filter(|growth| growth.device == device.index);
    ends.filter_map(|growth| growth.at_end_bytes).max().unwrap_or(0).saturating_sub(allocated)
}

/// The loops that were shortened or grow, of all processes. `foreseen` is what replays say of each card, if anything.
pub fn loops(run: &Observation, devices: &[DeviceReport], foreseen: &[Option<Foreseen>]) -> Vec<FollowedLoop> {
    let mut loops: Vec<FollowedLoop> = Vec::new();
    for hook in &run.hooks.reports {
        for one in &hook.loops {
            let growth = one.growth.as_ref().map(|growth| growth_of(hook, one, growth, run, (devices, foreseen)));
            let known = loops.iter().position(|known| known.file == one.file && known.line == u64::from(one.line));
            let followed = FollowedLoop {
                file: one.file.clone(),
                line: one.line.into(),
                kind: one.kind,
                iterations: one.iterations,
                of: one.of,
                shortened: one.shortened,
                growth,
            };
            // The ranks of a job go through the same loops; the one that grows most speaks for all.
            match known {
                None => loops.push(followed),
                Some(place) => {
                    let end = |one: &FollowedLoop| one.growth.as_ref().map(|growth| growth.at_end_bytes);
                    if end(&followed) > end(&loops[place]) {
                        loops[place] = followed;
                    }
                }
            }
        }
    }
    loops
}

fn growth_of(
    hook: &HookReport,
    one: &HookFollowedLoop,
    growth: &HookGrowth,
    run: &Observation,
    (devices, foreseen): (&[DeviceReport], &[Option<Foreseen>]),
) -> Growth {
    let map = device_map(hook, &run.ledger);
    let index = map.get(&growth.device).copied().unwrap_or(growth.device as usize);
    let device = devices.get(index);
    let room = device.and_then(room_for_allocated).map(|most| most.saturating_sub(growth.peak_bytes));
    let more = room.filter(|_| growth.bytes_per_iteration > 0).map(|room| room / growth.bytes_per_iteration + 1);
    let more = more.filter(|more| growth.grows_for.is_none_or(|most| *more <= most));
    let foreseen = foreseen.get(index).and_then(Option::as_ref);
    let more = match foreseen.filter(|foreseen| foreseen.place == (one.file.clone(), one.line)) {
        Some(foreseen) => foreseen.full_after,
        None => more,
    };
    let steps_of_one = u64::from(one.kind == LoopKind::Training);
    Growth {
        device: u32::try_from(index).unwrap_or(u32::MAX),
        bytes_per_iteration: growth.bytes_per_iteration,
        peak_bytes: growth.peak_bytes,
        at_end_bytes: growth.at_end_bytes,
        ends_in_iteration: growth.grows_for.map(|more| one.iterations.saturating_add(more)),
        full_in_iteration: more.map(|more| one.iterations.saturating_add(more)),
        full_in_step: more
            .filter(|_| steps_of_one > 0)
            .map(|more| growth.steps.saturating_add(more.div_ceil(growth.iterations_of_step.max(1)))),
        holders: growth.holders.iter().map(holder).collect(),
        site: None,
    }
}

fn holder(holder: &HookHolder) -> Holder {
    Holder { name: holder.name.clone(), kind: holder.kind.clone(), file: holder.file.clone(), line: holder.line.into() }
}

/// The most that the framework can have allocated on a card: all of it but the context and what libraries took.
fn room_for_allocated(device: &DeviceReport) -> Option<u64> {
    let others = device.peak.context_bytes.saturating_add(device.peak.other_bytes);
    Some(allowed::usable(device, device.capacity_bytes?, others).saturating_sub(others))
}

/// The part of a card that gaps between blocks take where memory grows to its end, as one of so many: what a whole run
/// of `acceptance/answers/programs/dqn_episodes.py` showed.
const GAPS: u64 = 100;

/// Adds what iterations that were left out would have taken. A program whose memory grows beyond the card before its loop
/// ends does not fit, though the shortened run did.
pub fn judge(
    verdict: Verdict,
    devices: &mut [DeviceReport],
    loops: &[FollowedLoop],
    foreseen: &[Option<Foreseen>],
) -> Verdict {
    if verdict != Verdict::Fits {
        return verdict;
    }
    let foreseen_of = |index: u32| foreseen.get(index as usize).and_then(Option::as_ref);
    for device in devices.iter_mut() {
        let more = left_out_bytes(device, loops);
        if more > 0 {
            let mut needed = grown(&device.needed.unwrap_or(device.peak), more);
            let others = device.peak.context_bytes.saturating_add(device.peak.other_bytes);
            if let Some(foreseen) = foreseen_of(device.index) {
                needed = reserving(&needed, foreseen.allocator_bytes, others);
            } else if let Some(most) = device.capacity_bytes {
                // Where it fits at all, it does so because the cache is given back.
                let least = needed.allocated_bytes.unwrap_or(0).saturating_add(others);
                needed.process_bytes = needed.process_bytes.min(most.max(least));
            }
            device.needed = Some(needed);
            // A card of that size was not run to the end.
            device.smallest_capacity = None;
        }
    }
    let unforeseen = |growth: &Growth| foreseen_of(growth.device).is_none();
    let fatal = loops.iter().filter_map(|one| Some((one, one.growth.as_ref()?))).find(|(one, growth)| {
        if !unforeseen(growth) {
            return false;
        }
        let last = one.of.filter(|_| growth.at_end_bytes.is_some());
        growth.full_in_iteration.zip(last).is_some_and(|(full, last)| full <= last)
    });
    // A card is full a little before what is allocated fills it, because blocks leave gaps.
    let over = devices.iter().find(|device| {
        if let Some(foreseen) = foreseen_of(device.index) {
            return foreseen.full_after.is_some();
        }
        let allocated = device.needed.and_then(|needed| needed.allocated_bytes).unwrap_or(0);
        let room = room_for_allocated(device).map(|room| room - room / GAPS);
        left_out_bytes(device, loops) > 0 && room.is_some_and(|room| allocated > room)
    });
    let growing = || {
        let all = loops.iter().filter_map(|one| Some((one, one.growth.as_ref()?)));
        let of = |index: u32| move |(_, growth): &(&FollowedLoop, &Growth)| growth.device == index;
        all.filter(of(over?.index)).max_by_key(|(_, growth)| growth.at_end_bytes)
    };
    let Some((one, growth)) = fatal.or_else(growing) else { return verdict };
    let Some(device) = devices.get_mut(growth.device as usize) else { return verdict };
    device.oom = Some(Oom {
        requested_bytes: growth.bytes_per_iteration,
        allocated_bytes: device.peak.allocated_bytes,
        reserved_bytes: device.peak.reserved_bytes,
        free_bytes: None,
        message: format!(
            "memory grows by {} with each iteration; not run to the end",
            oomph_gpu::size::format(growth.bytes_per_iteration)
        ),
        step: growth.full_in_step,
        phase: if one.kind == LoopKind::Evaluation { Phase::Eval } else { Phase::Other },
        site: growth.site.clone(),
        would_need_bytes: device.needed.map(|needed| needed.process_bytes),
        forecast: true,
        library_site: None,
        module: None,
        model: None,
        instead: None,
    });
    Verdict::Oom
}

/// A peak with so much reserved, in bytes, and so much of others.
fn reserving(peak: &Peak, reserved: u64, others: u64) -> Peak {
    let doubt = (peak.process_bytes.saturating_sub(peak.low_bytes), peak.high_bytes.saturating_sub(peak.process_bytes));
    let process_bytes = others.saturating_add(reserved);
    Peak {
        process_bytes,
        reserved_bytes: Some(reserved),
        low_bytes: process_bytes.saturating_sub(doubt.0),
        high_bytes: process_bytes.saturating_add(doubt.1),
        ..*peak
    }
}

/// A peak with more bytes allocated.
fn grown(peak: &Peak, more: u64) -> Peak {
    Peak {
        process_bytes: peak.process_bytes.saturating_add(more),
        reserved_bytes: peak.reserved_bytes.map(|bytes| bytes.saturating_add(more)),
        allocated_bytes: peak.allocated_bytes.map(|bytes| bytes.saturating_add(more)),
        low_bytes: peak.low_bytes.saturating_add(more),
        high_bytes: peak.high_bytes.saturating_add(more),
        ..*peak
    }
}
