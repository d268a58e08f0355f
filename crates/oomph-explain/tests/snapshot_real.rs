//! The real snapshots that are kept outside the repository: whatever they hold, the bytes add up.

use std::path::{Path, PathBuf};

use oomph_explain::snapshot::{At, Explanation, Options, Owner, explain, history};
use oomph_trace::{ReadOptions, StackId, Trace, read};

/// The snapshots, or a reason on standard error why there are none.
fn snapshots() -> Vec<(PathBuf, Trace)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/snapshots");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: {} is not there", folder.display());
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "pickle"));
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let trace = read(&path, &ReadOptions::default()).expect("a real snapshot is read");
            (path, trace)
        })
        .collect()
}

fn assert_adds_up(name: &str, explanation: &Explanation) {
    for device in &explanation.devices {
        let total = device.card.map_or(device.peak.reserved_bytes, |card| card.capacity_bytes);
        let owners: u64 = device.owners.iter().map(|row| row.bytes).sum();
        let causes: u64 = device.causes.iter().map(|cause| cause.bytes).sum();
        assert_eq!((owners, causes), (total, total), "{name}, device {}", device.index);
        let lines: u64 = device.by_line.iter().map(|group| group.bytes).sum();
        assert!(lines == device.peak.requested_bytes || device.by_line.is_empty(), "{name}: lines");
        assert_eq!(
            device.by_phase.iter().map(|group| group.bytes).sum::<u64>(),
            device.peak.requested_bytes,
            "{name}: phases"
        );
    }
}

#[test]
fn owners_and_causes_add_up_at_every_moment() {
    for (path, trace) in snapshots() {
        let name = path.display().to_string();
        let card = Some(80 << 30);
        let moments = [
            (At::Peak, None),
            (At::Peak, card),
            (At::Oom, card),
            (At::End, None),
            (At::Event(1234), None),
            (At::Time(1_748_474_330_000_000), card),
        ];
        for (at, capacity) in moments {
            let context_bytes = Some(500 << 20);
            let options = Options { at, capacity, context_bytes, what_if: false, ..Options::default() };
            assert_adds_up(&name, &explain(&trace, &options, None));
        }
    }
}

#[test]
fn the_end_is_what_the_file_says_of_it() {
    for (path, trace) in snapshots() {
        let explanation = explain(&trace, &Options { at: At::End, what_if: false, ..Options::default() }, None);
        for device in explanation.devices {
            let recorded = trace.devices.iter().find(|other| other.index == device.index).expect("it was explained");
            let reserved: u64 = recorded.segments.iter().map(|segment| segment.total_size).sum();
            let active: u64 = recorded
                .blocks
                .iter()
                .filter(|block| block.state != oomph_trace::BlockState::Inactive)
                .map(|block| block.size)
                .sum();
            // The one synthetic file holds events that do not lead to its segments.
            if !path.ends_with("mosaic_output.pickle") {
                assert_eq!(
                    (device.peak.reserved_bytes, device.peak.active_bytes),
                    (reserved, active),
                    "{}",
                    path.display()
                );
            }
        }
    }
}

/// Of what was allocated with a stack, less than 2 % has no owner at any of nine moments. What is there from before a recording
/// has no stack, and nothing is guessed of it.
#[test]
fn what_has_a_stack_has_an_owner() {
    for (path, trace) in snapshots() {
        for history in history(&trace, &Options { what_if: false, ..Options::default() }, None) {
            for moment in (0..=8).map(|part| (u64::from(history.end) * part / 8) as u32).chain([history.moment]) {
                let (mut known, mut unknown) = (0, 0);
                let alive = |birth: u32, death: u32| birth <= moment && moment < death;
                for block in history.blocks.iter().filter(|block| alive(block.birth, block.death)) {
                    match block.owner {
                        _ if block.stack == StackId::NONE => {}
                        Owner::Unattributed => unknown += block.requested,
                        _ => known += block.requested,
                    }
                }
                assert!(unknown * 50 <= known + unknown, "{}: {unknown} of {} bytes", path.display(), known + unknown);
            }
        }
    }
}

/// Profiler files of 2021 and 2023, whose events have no addresses: the highest sum of all changes, which `gzip -dc | jq` gives
/// as well, is the peak.
#[test]
fn real_profiles_are_explained_at_their_peak() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/snapshots");
    for (file, mebibytes) in [("hta_memory_timeline.raw.gz", 2940), ("kineto_resnet50_nw4.pt.trace.json.gz", 2662)] {
        let path = folder.join(file);
        if !path.exists() {
            eprintln!("skipped: {} is not there", path.display());
            continue;
        }
        let trace = read(&path, &ReadOptions::default()).expect("a real profile is read");
        let explanation = explain(&trace, &Options { what_if: false, ..Options::default() }, None);
        let peak = explanation.devices[0].peak.requested_bytes >> 20;
        assert!((mebibytes - 8..=mebibytes).contains(&peak), "{file}: {peak} MiB");
    }
}
