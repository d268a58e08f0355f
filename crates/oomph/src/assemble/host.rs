//! Recognizes a run in which the host's memory ran out, which says nothing about the card.

use oomph_report::HostShortage;

use super::site_of;
use crate::observation::Observation;
use crate::status::SIGNAL;

/// What a shell reports for a process that was killed.
const KILLED: i32 = SIGNAL + 9;

/// What the host could not give, where that ended the program.
pub fn shortage(run: &Observation) -> Option<HostShortage> {
    let reported = run.hooks.reports.iter().find_map(|hook| hook.host.as_ref());
    let killed = run.host_kills > 0 && reported.is_none() && run.exit_status == KILLED;
    let thrown = run.stderr_tail.contains("std::bad_alloc");
    if reported.is_none() && !killed && !thrown {
        return None;
    }
    Some(HostShortage {
        requested_bytes: reported.map(|report| report.requested_bytes).filter(|&bytes| bytes > 0),
        total_bytes: run.host_bytes,
        killed,
        site: reported.and_then(|report| report.site.as_ref()).map(site_of),
        message: reported.map(|report| report.message.clone()).unwrap_or_default(),
    })
}
