//! What a recording shows is said as what it is, and nothing is promised that no replay can tell.

mod recording;

use oomph_explain::snapshot::{Card, Options, Owner, explain};
use oomph_trace::{ReadOptions, read_from};
use recording::{MIB, Recording, device, owned};

const MAIN: (&str, &str) = ("train.py", "<module>");

/// `export_memory_timeline` writes neither addresses nor segments: what was allocated is exact, and whose it is it says.
#[test]
fn a_profilers_timeline_adds_up_to_its_peak() {
    // Rows of time in ns, action (there before, created, version changed, destroyed), bytes and category.
    let mut rows = vec![(-1, 1, 100, 0)];
    for step in 1..=3 {
        let time = step * 1_000_000;
        rows.extend([(time, 2, 30, 4), (time + 1000, 2, 30, 4), (time + 2000, 2, 20, 3)]);
        rows.extend([(time + 3000, 3, -20, 3), (time + 3000, 3, 20, 5), (time + 4000, 4, -30, 4)]);
        rows.extend([(time + 5000, 4, -30, 4), (time + 6000, 4, -20, 5)]);
    }
    let text: Vec<String> = rows
        .iter()
        .map(|(time, action, mebibytes, category)| {
            format!("[{time}, {action}, {}, {category}]", mebibytes * (MIB as i64))
        })
        .collect();
    let text = format!("[{}]", text.join(", "));
    let trace = read_from(text.as_bytes(), "timeline", &ReadOptions::default());
    let device = device(&trace.expect("a timeline"), &Options::default());
    assert_eq!(device.peak.active_bytes, 180 * MIB);
    assert_eq!(owned(&device, Owner::Parameters), 100 * MIB);
    assert_eq!(owned(&device, Owner::Activations), 60 * MIB);
    assert_eq!(owned(&device, Owner::Unattributed), 0);
    assert_eq!(device.verdict.happened, "180.0 MiB were in use; what was reserved is not in the recording");
    assert!(device.what_if.iter().all(|row| row.says.starts_with("cannot be told")), "{:?}", device.what_if);
    assert_eq!(device.what_if[0].peak_reserved_bytes, 180 * MIB);
    assert!(device.smallest_card.is_none());
}

/// What was reserved before the first recorded event may have been needed then: no card is promised to hold the program.
#[test]
fn what_was_reserved_before_the_recording_is_no_spare_memory() {
    for capacity in [None, Some(80 << 30)] {
        let mut recording = Recording::default();
        let stack = recording.stack(&[MAIN]);
        for index in 0..8 {
            recording.already((1 << 40) + index * 1024 * MIB, 1024 * MIB, 2 * MIB);
        }
        let free = (1 << 40) + 512 * MIB;
        recording.alloc(free, 100 * MIB, stack);
        recording.free(free);
        let cards = vec![Card { name: "small".into(), capacity_bytes: 4 << 30, context_bytes: 0 }];
        let device = device(&recording.finish(), &Options { capacity, cards, ..Options::default() });
        let own = &device.what_if[0];
        assert!(own.as_recorded && own.survives);
        assert_eq!(own.peak_reserved_bytes, 8 << 30, "the recording has it, not the replay");
        for row in &device.what_if {
            assert!(row.says.starts_with("cannot be told: the program reserved more before"), "{}", row.says);
        }
        assert!(device.smallest_card.is_none());
    }
}

/// Some recordings have blocks in no segment: what was reserved is never less than what was in use.
#[test]
fn blocks_outside_of_segments_are_reserved_too() {
    let mut recording = Recording::default();
    let stack = recording.stack(&[MAIN]);
    recording.segment(1 << 40, 250 * MIB);
    recording.alloc(1 << 40, 100 * MIB, stack);
    for index in 0..20 {
        recording.alloc((2 << 40) + index * 128 * MIB, 100 * MIB, stack);
    }
    let device = device(&recording.finish(), &Options::default());
    let own = &device.what_if[0];
    assert!(own.as_recorded);
    assert_eq!(own.peak_reserved_bytes, device.peak.reserved_bytes);
    assert!(own.peak_reserved_bytes >= 2000 * MIB);
}

/// A user who asks about a card that is too small gets an answer, although no card explains the recording then.
#[test]
fn a_card_that_is_smaller_than_what_was_reserved_is_said_to_be_too_small() {
    let mut recording = Recording::default();
    let stack = recording.stack(&[MAIN]);
    recording.segment(1 << 40, 3 << 30);
    recording.alloc(1 << 40, 100 * MIB, stack);
    let trace = recording.finish();
    let notes =
        |capacity: u64| explain(&trace, &Options { capacity: Some(capacity), ..Options::default() }, None).notes;
    assert_eq!(notes(4 << 30), [""; 0]);
    let [note] = &notes(2 << 30)[..] else { panic!("one note") };
    assert!(note.starts_with("cuda:0 reserved 3.00 GiB, more than the 2.00 GiB"), "{note}");
}
