//! `device/PID.json`, which `docs/internals/run-folder.md` describes.

use std::fmt::Write as _;
use std::path::Path;

use oomph_protocol::{DEVICE_ACTIVITY, paths};

use super::Counted;
use super::allocations::{Allocations, AtSite};
use super::place::Place;
use super::script::Lines;
use super::site::{Site, Sites};
use super::transfers::{Traffic, Transfers};
use crate::work::Way;

/// Most sites that are written of each kind, those with the most bytes. One line of a program can be many sites.
const MOST_SITES: usize = 512;

/// Writes the file. What cannot be written must not disturb the program.
pub fn write(run_folder: &Path, counted: &Counted, lines: &Lines) {
    if counted.allocations.calls == 0 && counted.pooled.calls == 0 && counted.transfers.total.is_empty() {
        return;
    }
    let name = format!("{}{}", std::process::id(), paths::REPORT_END);
    put(run_folder, &name, &document(counted, lines));
}

/// Puts a file into the run folder's `device`, whole or not at all.
pub fn put(run_folder: &Path, name: &str, text: &str) {
    let folder = run_folder.join(paths::DEVICE);
    let _ = std::fs::create_dir(&folder);
    let unfinished = folder.join(format!("{name}.tmp"));
    if std::fs::write(&unfinished, text).is_ok() {
        let _ = std::fs::rename(&unfinished, folder.join(name));
    }
}

// Writing to a string cannot fail, so the results of `write!` are not looked at.

/// What the numbers of sites stand for.
#[derive(Clone, Copy)]
struct Known<'a> {
    sites: &'a Sites,
    lines: &'a Lines,
}

impl Known<'_> {
    fn frames(self, site: Site) -> Vec<Place> {
        self.sites.frames(site, self.lines)
    }
}

fn document(counted: &Counted, lines: &Lines) -> String {
    let mut text = String::new();
    let _ = write!(text, "{{\"schema\":\"{DEVICE_ACTIVITY}\",\"pid\":{},\"allocations\":", std::process::id());
    allocations(&mut text, &counted.allocations, Known { sites: &counted.sites, lines });
    text.push_str(",\"pooled\":");
    allocations(&mut text, &counted.pooled, Known { sites: &counted.sites, lines });
    let _ = write!(text, ",\"pools_grew\":{},\"pools_regrew\":{}", counted.pools_grew, counted.pools_regrew);
    text.push_str(",\"transfers\":");
    transfers(&mut text, &counted.transfers, Known { sites: &counted.sites, lines });
    text.push('}');
    text
}

fn allocations(text: &mut String, allocations: &Allocations, known: Known<'_>) {
    let _ = write!(
        text,
        "{{\"calls\":{},\"frees\":{},\"most_held_bytes\":{},\"held_bytes\":{},\"held_blocks\":{},\"pool\":{{\"calls_saved\":{},\"peak_bytes\":{}}},\"sites\":[",
        allocations.calls,
        allocations.frees,
        allocations.most_held,
        allocations.held,
        allocations.live.len(),
        allocations.pool_hits,
        allocations.pool_peak,
    );
    let mut sites: Vec<(&Site, &AtSite)> = allocations.sites.iter().collect();
    sites.sort_by_key(|(site, at)| (std::cmp::Reverse(at.bytes), **site));
    for (index, (site, at)) in sites.into_iter().take(MOST_SITES).enumerate() {
        text.push_str(if index > 0 { ",{" } else { "{" });
        frames(text, &known.frames(*site));
        let _ = write!(
            text,
            ",\"calls\":{},\"freed\":{},\"bytes\":{},\"held_bytes\":{},\"most_held_bytes\":{},\"sizes\":[",
            at.calls, at.freed, at.bytes, at.held, at.most_held
        );
        for (index, (size, calls)) in at.sizes.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let _ = write!(text, "{comma}[{size},{calls}]");
        }
        text.push_str("],\"at_refusal\":");
        match allocations.at_refusal.get(site) {
            Some((blocks, bytes)) => {
                let _ = write!(text, "[{blocks},{bytes}]}}");
            }
            None => text.push_str("null}"),
        }
    }
    text.push_str("]}");
}

fn transfers(text: &mut String, transfers: &Transfers, known: Known<'_>) {
    let _ = write!(text, "{{\"most_doubled_bytes\":{}", transfers.most_doubled);
    for way in Way::ALL {
        let _ = write!(text, ",\"{}\":{{", way.name());
        traffic(text, &transfers.total.get(&way).copied().unwrap_or_default());
        text.push('}');
    }
    text.push_str(",\"sites\":[");
    let mut sites: Vec<_> = transfers.by_site.iter().filter(|((site, _), _)| *site != Site::UNKNOWN).collect();
    sites.sort_by_key(|(key, traffic)| (std::cmp::Reverse(traffic.bytes), **key));
    for (index, ((site, way), of_site)) in sites.into_iter().take(MOST_SITES).enumerate() {
        text.push_str(if index > 0 { ",{" } else { "{" });
        frames(text, &known.frames(*site));
        let _ = write!(text, ",\"way\":\"{}\",", way.name());
        traffic(text, of_site);
        text.push('}');
    }
    text.push_str("]}");
}

fn traffic(text: &mut String, traffic: &Traffic) {
    let _ = write!(
        text,
        "\"calls\":{},\"bytes\":{},\"pageable_calls\":{},\"pageable_bytes\":{},\"resent_calls\":{},\"resent_bytes\":{},\"doubled_bytes\":{}",
        traffic.calls,
        traffic.bytes,
        traffic.pageable_calls,
        traffic.pageable_bytes,
        traffic.resent_calls,
        traffic.resent_bytes,
        traffic.doubled_bytes,
    );
}

/// The places of a call, the innermost first; none where they are not known.
pub fn frames(text: &mut String, places: &[Place]) {
    text.push_str("\"frames\":[");
    for (index, place) in places.iter().enumerate() {
        text.push_str(if index > 0 { ",{\"module\":" } else { "{\"module\":" });
        string(text, &place.module);
        let _ = write!(text, ",\"offset\":{},\"function\":", place.offset);
        match &place.function {
            Some(function) => string(text, function),
            None => text.push_str("null"),
        }
        text.push('}');
    }
    text.push(']');
}

/// A string as JSON writes it.
fn string(text: &mut String, value: &str) {
    text.push('"');
    for character in value.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            control if u32::from(control) < 0x20 => {
                let _ = write!(text, "\\u{:04x}", u32::from(control));
            }
            other => text.push(other),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_what_the_protocol_declares() {
        let mut counted = Counted::default();
        let mut stack = [0; 24];
        // An address of this program, so that the site has a module.
        stack[0] = document as fn(&Counted, &Lines) -> String as usize + 1;
        let site = counted.sites.of(Some(stack));
        counted.allocations.add(4096, 10, site);
        counted.allocations.refused();
        counted.pooled.add(8192, 20, Site::UNKNOWN);
        counted.transfers.by_site.insert((site, Way::ToCard), Traffic { bytes: 8, ..Traffic::default() });
        let read: oomph_protocol::device::Activity =
            oomph_protocol::strict::read(document(&counted, &Lines::new()).as_bytes()).unwrap();
        assert_eq!((read.allocations.sites[0].bytes, read.pooled.held_bytes), (10, 20));
        assert_eq!(read.allocations.sites[0].at_refusal, Some((1, 10)));
        assert_eq!(read.allocations.sites[0].frames.len(), 1);
        assert_eq!(read.transfers.sites[0].traffic.bytes, 8);
    }

    #[test]
    fn names_are_escaped() {
        let mut text = String::new();
        string(&mut text, "a\"b\\c\nd\u{e9}");
        assert_eq!(text, "\"a\\\"b\\\\c\\u000ad\u{e9}\"");
    }
}
