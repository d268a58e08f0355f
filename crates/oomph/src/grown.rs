//! Reads from the recording of a run what grows in a loop: the line that allocates it, and what a card has to hold when the
//! loop goes on to its end.

use oomph_allocator::{Capacity, Start};
use oomph_explain::snapshot::{Requests, ends_of_iterations, grown_at};
use oomph_launch::{HookFollowedLoop, HookReport};
use oomph_report::{DeviceReport, DryRunReport, FollowedLoop, Growth, Site};

use crate::allowed;
use crate::evidence::Foreseen;
use crate::followed::left_out_bytes;
use crate::foretell;
use crate::observation::{Observation, device_map};

/// With more requests than these a replay would take seconds.
const MOST_REQUESTS: usize = 2_000_000;

/// What the iterations that were left out would have made of the memory of each card: the last one that was recorded is
/// replayed as often as the loop would have gone on. Blocks that stay leave gaps that nothing fits into, so that a card
/// is full before what is allocated fills it. `None` where nothing was left out or nothing can be foreseen.
pub fn foresee(run: &Observation, devices: &[DeviceReport], loops: &[FollowedLoop]) -> Vec<Option<Foreseen>> {
    let all = devices.iter().enumerate();
    all.map(|(index, device)| {
        let more = Some(left_out_bytes(device, loops)).filter(|&more| more > 0 && device.processes == 1)?;
        let grows = |hook: &&HookReport| hook.loops.iter().any(|one| one.growth.is_some());
        run.hooks.reports.iter().filter(grows).find_map(|hook| of_process(run, hook, (index, device), more))
    })
    .collect()
}

fn of_process(
    run: &Observation,
    hook: &HookReport,
    (index, device): (usize, &DeviceReport),
    more: u64,
) -> Option<Foreseen> {
    let map = device_map(hook, &run.ledger);
    let of_card = |one: &&HookFollowedLoop| {
        let growth = one.growth.as_ref();
        growth.is_some_and(|growth| map.get(&growth.device).copied().unwrap_or(growth.device as usize) == index)
    };
    let (_, requests) = foretell::recorded_by(run, hook.pid).into_iter().find(|(card, _)| *card == index)?;
    let requests = Some(requests).filter(|requests| !requests.truncated)?;
    hook.loops.iter().filter(of_card).find_map(|one| of_loop(run, hook, one, &requests, device, more))
}

fn of_loop(
    run: &Observation,
    hook: &HookReport,
    one: &HookFollowedLoop,
    requests: &Requests,
    device: &DeviceReport,
    more: u64,
) -> Option<Foreseen> {
    let growth = one.growth.as_ref()?;
    let memory = run.memory.iter().find(|memory| memory.pid == hook.pid)?;
    let ends = ends_of_iterations(&memory.trace, memory.names.as_ref()?, growth.device, &growth.allocations)?;
    let once = requests.firm.repeated(ends, 1)?;
    // An iteration that does other things than most would mislead. Blocks are a little larger than what is requested of
    // them, or up to 1 MiB where no more is left of a free one.
    let rate = growth.bytes_per_iteration;
    if once.stays > rate + rate / 10 || once.stays < rate / 3 * 2 {
        return None;
    }
    let times = u32::try_from(more.div_ceil(rate.max(1))).ok()?;
    let of_one = once.script.len() - requests.firm.len();
    if of_one.saturating_mul(times as usize).saturating_add(requests.firm.len()) > MOST_REQUESTS {
        return None;
    }
    let firm = requests.firm.repeated(ends, times)?;
    let yielding = requests.yielding.as_ref().and_then(|script| script.repeated(ends, times));
    let played = yielding.as_ref().unwrap_or(&firm).script.clone();
    let full = device.capacity_bytes.and_then(|capacity| {
        let others = device.peak.context_bytes.saturating_add(device.peak.other_bytes);
        let available = allowed::usable(device, capacity, others).saturating_sub(others);
        played.replay(&requests.model, Capacity { total: available, available }, Start::Cold).oom
    });
    let full_after = full.map(|failure| {
        let repetition = failure.event.and_then(|event| event.checked_sub(firm.first_event));
        // What fails of the requests after the loop fails when it is over.
        let repetition = repetition.map_or(times as usize, |before| before + 1);
        // The repetitions are put before the last iterations that were run.
        repetition.saturating_sub(firm.followed_by).max(1) as u64
    });
    let whole = Requests { firm: firm.script, yielding: yielding.map(|found| found.script), ..requests.clone() };
    let allocator_bytes = foretell::smallest_of(&whole)?.least;
    Some(Foreseen { place: (one.file.clone(), one.line), allocator_bytes, full_after })
}

/// The line that allocates what grows. Where that is a library's, as of a batch, it is the user's line that keeps it.
fn line_to_change(growth: &Growth) -> Option<Site> {
    let is_installed = |file: &str| ["/site-packages/", "/dist-packages/"].iter().any(|folder| file.contains(folder));
    let of_library = growth.site.as_ref().is_none_or(|site| is_installed(&site.file));
    let kept = growth.holders.iter().find(|holder| holder.line > 0 && !is_installed(&holder.file));
    let of_user = kept.filter(|_| of_library).map(|holder| Site {
        file: holder.file.clone(),
        line: holder.line,
        function: String::new(),
        text: None,
        cell: None,
    });
    of_user.or_else(|| growth.site.clone())
}

/// Adds to loops whose memory grows the line that allocates most of it, where the recording reaches so far back.
pub fn tell(report: &mut DryRunReport, run: &Observation) {
    for hook in &run.hooks.reports {
        let Some(memory) = run.memory.iter().find(|memory| memory.pid == hook.pid) else { continue };
        let Some(names) = &memory.names else { continue };
        for one in &hook.loops {
            let Some(seen) = &one.growth else { continue };
            let reported = report.loops.iter_mut().find(|row| row.file == one.file && row.line == u64::from(one.line));
            let Some(growth) = reported.and_then(|row| row.growth.as_mut()).filter(|growth| growth.site.is_none())
            else {
                continue;
            };
            growth.site = grown_at(&memory.trace, names, seen.device, &seen.allocations).map(|at| Site {
                file: at.file,
                line: at.line.into(),
                function: at.function,
                text: None,
                cell: None,
            });
        }
    }
    let sites: Vec<(u32, Option<Site>)> = report
        .loops
        .iter()
        .filter_map(|one| one.growth.as_ref())
        .map(|growth| (growth.device, line_to_change(growth)))
        .collect();
    for device in &mut report.devices {
        if let Some(oom) = device.oom.as_mut().filter(|oom| oom.forecast && oom.site.is_none()) {
            oom.site = sites
                .iter()
                .find(|(index, site)| *index == device.index && site.is_some())
                .and_then(|one| one.1.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use oomph_report::Holder;

    use super::*;

    #[test]
    fn the_line_to_change_is_the_users() {
        let batch = "/v/site-packages/lightning/fabric/utilities/apply_func.py";
        let growth = |allocated: Option<&str>, kept: &str| Growth {
            site: allocated.map(|file| Site {
                file: file.into(),
                line: 104,
                function: "batch_to".into(),
                text: None,
                cell: None,
            }),
            holders: vec![Holder { name: "total".into(), kind: "running-total".into(), file: kept.into(), line: 40 }],
            ..Growth::default()
        };
        let line = |growth: &Growth| line_to_change(growth).map(|site| (site.file, site.line));
        assert_eq!(line(&growth(Some(batch), "gan.py")), Some(("gan.py".into(), 40)));
        assert_eq!(line(&growth(None, "gan.py")), Some(("gan.py".into(), 40)));
        assert_eq!(line(&growth(Some("train.py"), "gan.py")), Some(("train.py".into(), 104)));
        assert_eq!(line(&growth(Some(batch), batch)), Some((batch.into(), 104)), "no line is the user's");
    }
}
