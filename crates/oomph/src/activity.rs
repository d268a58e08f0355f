//! What a program's own memory calls tell its author: the counts of all processes together, with the lines they come
//! from, and what is worth changing.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use addr2line::Loader;
use oomph_gpu::size::format as human;
use oomph_launch::activity::{self as counted, CodePlace};
use oomph_report::activity::{Activity, AllocationSite, Allocations, Sized, Traffic, TransferSite, Transfers};

/// Sites that the answer holds of each kind.
const MOST_SITES: usize = 20;
/// A loop that allocates is worth a word from so many calls on that a pool would save.
const CHURN: u64 = 100;
/// Copies are worth a word from so many bytes on.
const TRAFFIC: u64 = 16 << 20;
/// A buffer is large from so many bytes on.
const LARGE: u64 = 64 << 20;

/// Puts together what the processes of a run did; `None` where they did nothing. `framework` says that a framework
/// allocates on the program's behalf: it keeps what it holds to the end by design.
pub fn tell(processes: &[counted::Activity], framework: bool) -> Option<Activity> {
    if processes.is_empty() {
        return None;
    }
    let mut lines = Lines::default();
    let (mut allocations, mut transfers) = (Allocations::default(), Transfers::default());
    let mut allocating: BTreeMap<String, AllocationSite> = BTreeMap::new();
    let mut copying: BTreeMap<(String, String), Traffic> = BTreeMap::new();
    for process in processes {
        let of = &process.allocations;
        allocations.calls += of.calls;
        allocations.frees += of.frees;
        allocations.most_held_bytes += of.most_held_bytes;
        allocations.never_freed_blocks += of.held_blocks;
        allocations.never_freed_bytes += of.held_bytes;
        allocations.pool_saves_calls += of.pool.calls_saved;
        allocations.pool_peak_bytes += of.pool.peak_bytes;
        for site in of.sites.iter().filter(|site| !site.place.module.is_empty()) {
            let place = lines.of(&site.place);
            let merged =
                allocating.entry(place.clone()).or_insert_with(|| AllocationSite { place, ..Default::default() });
            merged.calls += site.calls;
            merged.freed += site.freed;
            merged.bytes += site.bytes;
            merged.held_bytes += site.held_bytes;
            merged.most_held_bytes += site.most_held_bytes;
            for (bytes, calls) in &site.sizes {
                match merged.sizes.iter_mut().find(|known| known.bytes == *bytes) {
                    Some(known) => known.calls += calls,
                    None => merged.sizes.push(Sized { bytes: *bytes, calls: *calls }),
                }
            }
        }
        let of = &process.transfers;
        transfers.most_doubled_bytes += of.most_doubled_bytes;
        add(&mut transfers.to_card, &of.to_card);
        add(&mut transfers.to_host, &of.to_host);
        add(&mut transfers.on_card, &of.on_card);
        for site in of.sites.iter().filter(|site| !site.place.module.is_empty()) {
            add(copying.entry((lines.of(&site.place), site.way.clone())).or_default(), &site.traffic);
        }
    }
    allocations.sites = allocating.into_values().collect();
    allocations.sites.sort_by_key(|site| std::cmp::Reverse(site.bytes));
    let remarks = remarks(&allocations, &transfers, framework);
    allocations.sites.truncate(MOST_SITES);
    transfers.sites = copying.into_iter().map(|((place, way), traffic)| TransferSite { place, way, traffic }).collect();
    transfers.sites.sort_by_key(|site| std::cmp::Reverse(site.traffic.bytes));
    transfers.sites.truncate(MOST_SITES);
    Some(Activity { allocations, transfers, remarks })
}

fn add(sum: &mut Traffic, more: &counted::Traffic) {
    sum.calls += more.calls;
    sum.bytes += more.bytes;
    sum.pageable_bytes += more.pageable_bytes;
    sum.resent_calls += more.resent_calls;
    sum.resent_bytes += more.resent_bytes;
}

/// What is worth changing.
fn remarks(allocations: &Allocations, transfers: &Transfers, framework: bool) -> Vec<String> {
    let mut remarks = Vec::new();
    let saved = allocations.pool_saves_calls;
    if saved >= CHURN && saved * 2 >= allocations.calls {
        let most = allocations.sites.iter().map(|site| site.freed).max().unwrap_or(0);
        let busiest = allocations.sites.iter().filter(|site| most > 0 && site.freed * 2 >= most);
        let places: Vec<&str> = busiest.take(3).map(|site| site.place.as_str()).collect();
        let place = if places.is_empty() { String::new() } else { format!(", most of them at {}", places.join(", ")) };
        let (now, then) = (human(allocations.most_held_bytes), human(allocations.pool_peak_bytes));
        let peak =
            if now == then { "at the same peak".into() } else { format!("at a peak of {then} instead of {now}") };
        remarks.push(format!(
            "{saved} of {} allocations were of a size that had just been freed{place}: cudaMallocAsync, or buffers that \
             are kept, would save these calls and as many frees, {peak}",
            allocations.calls
        ));
    }
    if allocations.never_freed_blocks > 0 && !framework {
        let places: Vec<&str> = allocations
            .sites
            .iter()
            .filter(|site| site.held_bytes > 0)
            .take(3)
            .map(|site| site.place.as_str())
            .collect();
        let places = if places.is_empty() { String::new() } else { format!(" (allocated at {})", places.join(", ")) };
        remarks.push(format!(
            "{} in {} were never freed{places}",
            human(allocations.never_freed_bytes),
            counted_word(allocations.never_freed_blocks, "block")
        ));
    }
    if transfers.most_doubled_bytes >= TRAFFIC {
        remarks.push(format!(
            "{} lay on the card twice: the same bytes were sent to two buffers",
            human(transfers.most_doubled_bytes)
        ));
    }
    if transfers.to_card.resent_bytes >= TRAFFIC {
        remarks.push(format!(
            "{} of the {} sent to the card had been sent before ({}): unless kernels change them, send them once and keep \
             them",
            human(transfers.to_card.resent_bytes),
            human(transfers.to_card.bytes),
            counted_word(transfers.to_card.resent_calls, "copy")
        ));
    }
    let pageable = transfers.to_card.pageable_bytes + transfers.to_host.pageable_bytes;
    let all = transfers.to_card.bytes + transfers.to_host.bytes;
    if pageable >= LARGE {
        remarks.push(format!(
            "{} of the {} between host and card went through ordinary memory: page-locked memory (cudaMallocHost, \
             pin_memory=True) copies faster and beside kernels",
            human(pageable),
            human(all)
        ));
    }
    let large: Vec<&AllocationSite> =
        allocations.sites.iter().filter(|site| site.sizes.iter().any(|size| size.bytes >= LARGE)).collect();
    let held: u64 = large.iter().map(|site| site.most_held_bytes).sum();
    if !framework && held > 0 {
        remarks.push(format!(
            "{} lie in large buffers: where they are float, half precision takes off {}",
            human(held),
            human(held / 2)
        ));
    }
    remarks
}

fn counted_word(count: u64, word: &str) -> String {
    let plural = if word.ends_with('y') { format!("{}ies", word.trim_end_matches('y')) } else { format!("{word}s") };
    if count == 1 { format!("1 {word}") } else { format!("{count} {plural}") }
}

/// Looks up lines in debug information, one file read once.
#[derive(Default)]
struct Lines {
    loaders: HashMap<String, Option<Loader>>,
}

impl Lines {
    /// `file:line`, or what comes nearest to it.
    fn of(&mut self, place: &CodePlace) -> String {
        let loader = self.loaders.entry(place.module.clone()).or_insert_with(|| Loader::new(&place.module).ok());
        let line = loader.as_ref().and_then(|loader| source_line(loader, place.offset));
        line.unwrap_or_else(|| match &place.function {
            Some(function) => format!("{function} in {}", file_name(&place.module)),
            None => format!("{}+{:#x}", file_name(&place.module), place.offset),
        })
    }
}

/// The innermost line that is not of a header: the toolkit's templates are inlined into the program's functions.
fn source_line(loader: &Loader, offset: u64) -> Option<String> {
    let mut frames = loader.find_frames(offset).ok()?;
    let mut found = None;
    while let Ok(Some(frame)) = frames.next() {
        let Some((file, line)) = frame.location.and_then(|location| Some((location.file?, location.line?))) else {
            continue;
        };
        found = Some(format!("{}:{line}", file_name(file)));
        if !file.contains("/include/") {
            break;
        }
    }
    found
}

fn file_name(path: &str) -> String {
    Path::new(path).file_name().map_or_else(|| path.to_owned(), |name| name.to_string_lossy().into_owned())
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
                    place: CodePlace { module: "/nowhere/prog".into(), offset: 16, function: Some("step".into()) },
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
        let told = tell(&[run(1000, 990, 512)], false).unwrap();
        assert_eq!(told.allocations.sites[0].place, "step in prog");
        assert!(told.remarks[0].starts_with("990 of 1000 allocations"), "{:?}", told.remarks);
        assert!(told.remarks[0].contains("step in prog"), "{:?}", told.remarks);
        assert!(told.remarks[1].contains("never freed"), "{:?}", told.remarks);
    }

    #[test]
    fn a_framework_keeps_what_it_holds_by_design() {
        assert_eq!(tell(&[run(10, 0, 512)], true).unwrap().remarks, Vec::<String>::new());
        assert_eq!(tell(&[], false), None);
    }
}
