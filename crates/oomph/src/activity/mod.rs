//! Reports a program's own memory calls: the counts of all processes together, with the lines they come from, and what
//! is worth changing.

mod element;
mod lines;
pub mod places;
mod remarks;

use std::collections::BTreeMap;

use lines::Lines;
use oomph_launch::activity as counted;
use oomph_report::Site;
use oomph_report::activity::{Activity, AllocationSite, Allocations, Pooled, Sized, Traffic, TransferSite, Transfers};
use remarks::Growing;
pub use remarks::Refused;

/// Sites that the answer holds of each kind.
const MOST_SITES: usize = 20;
/// Puts together what the processes of a run did; `None` where they did nothing. `framework` says that a framework
/// allocates on the program's behalf: it keeps what it holds to the end by design. `refused`
/// is what it died of.
pub fn tell(processes: &[counted::Activity], framework: bool, refused: Option<&Refused>) -> Option<Activity> {
    if processes.is_empty() {
        return None;
    }
    let mut lines = Lines::default();
    let (mut allocations, mut pooled, mut transfers) =
        (Allocations::default(), Pooled::default(), Transfers::default());
    let mut copying: BTreeMap<(String, String), Traffic> = BTreeMap::new();
    let mut growing = Vec::new();
    for process in processes {
        gather(&mut allocations, &process.allocations, &mut lines);
        allocations.pool_saves_calls += process.allocations.pool.calls_saved;
        allocations.pool_peak_bytes += process.allocations.pool.peak_bytes;
        gather(&mut pooled.allocations, &process.pooled, &mut lines);
        for site in process.allocations.sites.iter().chain(&process.pooled.sites) {
            growing.extend(lines.of(&site.frames).map(|place| Growing::of(place, site)));
        }
        pooled.grew += process.pools_grew;
        pooled.regrew += process.pools_regrew;
        let of = &process.transfers;
        transfers.most_doubled_bytes += of.most_doubled_bytes;
        add(&mut transfers.to_card, &of.to_card);
        add(&mut transfers.to_host, &of.to_host);
        add(&mut transfers.on_card, &of.on_card);
        for site in &of.sites {
            if let Some(place) = lines.of(&site.frames) {
                add(copying.entry((place, site.way.clone())).or_default(), &site.traffic);
            }
        }
    }
    for sites in [&mut allocations.sites, &mut pooled.allocations.sites] {
        sites.sort_by_key(|site| std::cmp::Reverse(site.bytes));
    }
    transfers.sites = copying.into_iter().map(|((place, way), traffic)| TransferSite { place, way, traffic }).collect();
    transfers.sites.sort_by_key(|site| std::cmp::Reverse(site.traffic.bytes));
    let library = |place: &str| lines.is_library(place);
    let element = |place: &str| lines.element(place);
    let code = remarks::Code { framework, library: &library, element: &element };
    let remarks = remarks::remarks(&growing, &allocations, &pooled, &transfers, refused, &code);
    allocations.sites.truncate(MOST_SITES);
    pooled.allocations.sites.truncate(MOST_SITES);
    transfers.sites.truncate(MOST_SITES);
    Some(Activity { allocations, pooled, transfers, remarks })
}

/// The innermost line of a call that is the program's own; where debug information does not have it, the function.
pub fn own_line(frames: &[counted::CodePlace]) -> Result<Site, Option<String>> {
    let mut lines = Lines::default();
    lines.own(frames).ok_or_else(|| lines.own_function(frames))
}

/// Adds the allocations of one process, those of one line together.
fn gather(sum: &mut Allocations, of: &counted::Allocations, lines: &mut Lines) {
    sum.calls += of.calls;
    sum.frees += of.frees;
    sum.most_held_bytes += of.most_held_bytes;
    sum.never_freed_blocks += of.held_blocks;
    sum.never_freed_bytes += of.held_bytes;
    for site in &of.sites {
        let Some(place) = lines.of(&site.frames) else { continue };
        let index = sum.sites.iter().position(|known| known.place == place).unwrap_or_else(|| {
            sum.sites.push(AllocationSite { place, ..Default::default() });
            sum.sites.len() - 1
        });
        let merged = &mut sum.sites[index];
        merged.calls += site.calls;
        merged.freed += site.freed;
        merged.bytes += site.bytes;
        merged.held_bytes += site.held_bytes;
        // What the calls of one line held at most, each at its own moment, was never more than what was held in all.
        let together = merged.most_held_bytes + site.most_held_bytes;
        merged.most_held_bytes = together.min(sum.most_held_bytes);
        for (bytes, calls) in &site.sizes {
            match merged.sizes.iter_mut().find(|known| known.bytes == *bytes) {
                Some(known) => known.calls += calls,
                None => merged.sizes.push(Sized { bytes: *bytes, calls: *calls }),
            }
        }
    }
}

fn add(sum: &mut Traffic, more: &counted::Traffic) {
    sum.calls += more.calls;
    sum.bytes += more.bytes;
    sum.pageable_bytes += more.pageable_bytes;
    sum.resent_calls += more.resent_calls;
    sum.resent_bytes += more.resent_bytes;
    sum.doubled_bytes = sum.doubled_bytes.max(more.doubled_bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(calls: u64, saved: u64, held: u64) -> counted::Activity {
        counted::Activity {
            allocations: counted::Allocations {
                calls,
                frees: calls - u64::from(held > 0),
                held_bytes: held,
                held_blocks: u64::from(held > 0),
                pool: counted::Pool { calls_saved: saved, peak_bytes: 2048 },
                most_held_bytes: 1024,
                sites: vec![counted::AllocationSite {
                    frames: vec![counted::CodePlace {
                        module: "/nowhere/prog".into(),
                        offset: 16,
                        function: Some("step".into()),
                    }],
                    calls,
                    freed: calls,
                    held_bytes: held,
                    ..Default::default()
                }],
            },
            ..Default::default()
        }
    }

    #[test]
    fn churn_and_what_is_never_freed_are_named_with_their_place() {
        let activity = tell(&[run(1000, 990, 512)], false, None).unwrap();
        assert_eq!(activity.allocations.sites[0].place, "step in prog");
        assert!(activity.remarks[0].contains("never freed"), "{:?}", activity.remarks);
        assert!(activity.remarks[1].starts_with("990 of 1000 allocations"), "{:?}", activity.remarks);
        assert!(activity.remarks[1].contains("step in prog"), "{:?}", activity.remarks);
    }

    #[test]
    fn a_framework_keeps_what_it_holds_by_design() {
        assert_eq!(tell(&[run(10, 0, 512)], true, None).unwrap().remarks, Vec::<String>::new());
        assert_eq!(tell(&[], false, None), None);
    }
}
