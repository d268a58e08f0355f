//! Real snapshots from public sources: the model has to agree with every decision that PyTorch made.
//!
//! The files are not part of the repository; without them the tests say so and pass.

use std::path::{Path, PathBuf};

use oomph_allocator::{Capacity, Model, Script, Settings, Start, Tally, Version, verify};
use oomph_trace::{ReadOptions, Trace};

fn snapshots() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/snapshots");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: {} is not there", folder.display());
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "pickle"));
    // Synthetic: its addresses were invented.
    files.retain(|path| !path.ends_with("mosaic_output.pickle"));
    files.sort();
    files
}

fn read(path: &Path) -> Trace {
    oomph_trace::read(path, &ReadOptions::default()).unwrap()
}

#[test]
fn every_decision_in_every_snapshot_is_predicted() {
    let mut sums = [Tally::default(); 5];
    for path in snapshots() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let trace = read(&path);
        for device in &trace.devices {
            let found = verify(&trace, device);
            let tallies = [found.cache_hits, found.new_segments, found.maps, found.releases, found.final_blocks];
            for (sum, tally) in sums.iter_mut().zip(tallies) {
                sum.right += tally.right;
                sum.total += tally.total;
            }
            println!("{name}: {} events, {:?}", device.events.len(), tallies.map(|tally| (tally.right, tally.total)));
            assert!(found.is_exact(), "{name}: {:#?}", found.mismatches);
        }
    }
    println!("cache hits, new segments, maps, releases, final blocks: {sums:?}");
}

/// From a recorded start, the same settings reserve the same memory, to the byte, where the card was not full. The one
/// file of a full card was flushed by PyTorch itself, which a card without limit does not need.
#[test]
fn the_same_settings_reserve_the_same_memory() {
    for path in snapshots().iter().filter(|path| !path.ends_with("selectn_snapshot_a.pickle")) {
        let trace = read(path);
        let settings = Settings::recorded(&trace.settings);
        for device in &trace.devices {
            let model = Model::pytorch(settings.clone(), Version::LAST_BY_ADDRESS);
            let replay = Script::new(device, &settings).replay(&model, Capacity::UNLIMITED, Start::Recorded);
            let reserved: u64 = device.segments.iter().map(|segment| segment.total_size).sum();
            assert!(replay.survived);
            assert_eq!(replay.statistics.reserved.current, reserved, "{}", path.display());
        }
    }
}
