//! Finds the line that allocates the memory that grows in a loop, from the recording of the run.

use oomph_explain::snapshot::grown_at;
use oomph_report::{DryRunReport, Site};

use crate::observation::Observation;

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
        .map(|growth| (growth.device, growth.site.clone()))
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
