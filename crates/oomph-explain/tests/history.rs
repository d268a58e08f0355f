//! What is drawn of a recording says at the explained moment what the explanation says.

use std::collections::BTreeMap;
use std::path::Path;

use oomph_explain::snapshot::{At, Options, explain, history};
use oomph_trace::{ReadOptions, read};

#[test]
fn the_picture_and_the_explanation_agree() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/snapshots");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: {} is not there", folder.display());
        return;
    };
    let mut compared = 0;
    for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
        // The synthetic file was not written by an allocator.
        if path.ends_with("mosaic_output.pickle") {
            continue;
        }
        let Ok(trace) = read(&path, &ReadOptions::default()) else { continue };
        for at in [At::Death, At::End] {
            let options = Options { at, what_if: false, ..Options::default() };
            let explanation = explain(&trace, &options, None);
            let histories = history(&trace, &options, None);
            assert_eq!(histories.len(), explanation.devices.len(), "{}", path.display());
            for (history, device) in histories.iter().zip(&explanation.devices) {
                let moment = history.moment;
                assert_eq!(u64::from(moment), device.peak.event, "{}", path.display());
                let lives = |birth: u32, death: u32| birth <= moment && moment < death;
                let mut owners = BTreeMap::new();
                for block in history.blocks.iter().filter(|block| lives(block.birth, block.death)) {
                    *owners.entry(block.owner).or_insert(0) += block.requested;
                }
                for row in &device.owners {
                    if let Some(&bytes) = owners.get(&row.owner) {
                        assert_eq!(bytes, row.bytes, "{:?} in {}", row.owner, path.display());
                        compared += 1;
                    }
                }
                let ranges = history.ranges.iter().filter(|range| lives(range.from, range.to));
                let reserved: u64 = ranges.map(|range| range.size).sum();
                let blocks_alone = history.ranges.is_empty();
                assert!(blocks_alone || reserved == device.peak.reserved_bytes, "{}", path.display());
                assert_eq!(history.active.len(), history.end as usize + 1);
            }
        }
    }
    assert!(compared > 20, "{compared} owners were compared");
}
