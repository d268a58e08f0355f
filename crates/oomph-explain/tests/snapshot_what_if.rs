//! What a recording shows is said as what it is, and nothing is promised that no replay can tell.

mod recording;

use oomph_explain::snapshot::{At, Card, CauseKind, DeviceExplanation, Options, Owner, explain};
use oomph_trace::{ReadOptions, read_from};
use recording::programs::{apart, decided_by_addresses, fragmented};
use recording::{MAIN, MIB, MODULE, Recording, device, owned};

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
    assert!(device.what_if.iter().all(|row| row.says.starts_with("unclear: ")), "{:?}", device.what_if);
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
            assert!(row.says.starts_with("unclear: the program reserved more before"), "{}", row.says);
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

const CONVOLUTION: (&str, &str) = ("/v/site-packages/torch/nn/modules/conv.py", "_conv_forward");

#[test]
fn a_replay_that_does_not_fail_is_no_proof() {
    let (mut recording, site) = apart();
    recording.oom(60 * MIB, 20 * MIB, site);
    let device = device(&recording.finish(), &Options::default());
    assert!(device.what_if.iter().all(|row| row.says == "unclear: the replay does not fail where the program did"));
    assert_eq!(device.verdict.what_helps, "");
}

#[test]
fn what_does_not_fit_is_said_not_to_be_helped() {
    let mut recording = Recording::default();
    let load = recording.stack(&[MAIN, (MODULE, "to")]);
    recording.hold(1 << 40, 100 * MIB, load);
    recording.oom(40 * MIB, 20 * MIB, load);
    let cards = vec![
        Card { name: "small".into(), capacity_bytes: 64 * MIB, context_bytes: 0 },
        Card { name: "large".into(), capacity_bytes: 256 * MIB, context_bytes: 16 * MIB },
    ];
    let device = device(&recording.finish(), &Options { cards, ..Options::default() });
    assert_eq!(device.verdict.cause, Some(CauseKind::DoesNotFit));
    assert_eq!(device.verdict.what_helps, "no setting of the allocator gets past this allocation");
    let row = |card: &str| device.what_if.iter().find(|row| row.card == card && row.as_recorded).unwrap();
    assert!(!row("this card").survives && !row("small").survives && row("large").survives);
    assert_eq!(row("large").says, "gets past this allocation; the recording ends there");
    assert_eq!(
        (row("this card").says.as_str(), row("small").says.as_str()),
        ("runs out of memory", "does not get past it")
    );
    let smallest = device.smallest_card.unwrap();
    assert_eq!((smallest.allocator_bytes, smallest.card.as_deref()), (140 * MIB, Some("large")));
}

/// What a convolution takes for one call need not be there; what anything else takes must be.
#[test]
fn a_card_too_small_for_a_workspace_of_cudnn_may_do() {
    for (frame, may_survive) in [(CONVOLUTION, true), ((MODULE, "inner"), false)] {
        let mut recording = Recording::default();
        let forward = recording.stack(&[MAIN, (MODULE, "_call_impl"), frame]);
        let segment = |index: u64| (1 << 40) + index * 1024 * MIB;
        recording.hold(segment(0), 100 * MIB, forward);
        recording.hold(segment(1), 300 * MIB, forward);
        recording.free(segment(1));
        let card = |size: u64| Card { name: size.to_string(), capacity_bytes: size * MIB, context_bytes: 0 };
        let options = Options { cards: [50, 200, 500].map(card).into(), ..Options::default() };
        let device = device(&recording.finish(), &options);
        let fates: Vec<(bool, bool)> = ["50", "200", "500"]
            .iter()
            .filter_map(|card| device.what_if.iter().find(|row| row.as_recorded && row.card == *card))
            .map(|row| (row.survives, row.may_survive))
            .collect();
        assert_eq!(fates, [(false, false), (false, may_survive), (true, true)]);
        let smallest = device.smallest_card.expect("a recording this short is searched");
        let least = if may_survive { 100 * MIB } else { 400 * MIB };
        assert_eq!((smallest.allocator_bytes, smallest.least_allocator_bytes), (400 * MIB, least));
        assert_eq!((device.churn.allocations, device.churn.bytes), (2, 400 * MIB));
    }
}

#[test]
fn a_success_in_the_drivers_pool_is_not_promised_and_a_failure_is_said() {
    let options = Options { capacity: Some(300 * MIB), context_bytes: Some(60 * MIB), ..Options::default() };
    let pool = |device: &DeviceExplanation| {
        device.what_if.iter().find(|row| row.settings == "backend:cudaMallocAsync").expect("it is tried").clone()
    };
    // 8 MiB in use and a request of 120 MiB are less than the card has, but not in one piece.
    let scattered = pool(&device(&fragmented(0), &options));
    assert!(!scattered.survives && scattered.may_survive);
    assert_eq!(scattered.says, "not known: fragmentation in the driver's pool is not replayed");
    // Without room for the bytes alone there is nothing to hope for.
    let mut recording = Recording::default();
    let load = recording.stack(&[MAIN, (MODULE, "to")]);
    recording.hold(1 << 40, 200 * MIB, load);
    recording.oom(120 * MIB, 20 * MIB, load);
    let full = pool(&device(&recording.finish(), &options));
    assert!(!full.survives && !full.may_survive);
    assert_eq!(full.says, "does not get past it");
}

#[test]
fn without_the_cards_size_only_what_the_replay_reproduces_is_compared() {
    let mut recording = Recording::default();
    let site = recording.stack(&[MAIN]);
    recording.hold(1 << 40, 100 * MIB, site);
    let alike = device(&recording.finish(), &Options::default());
    assert!(alike.card.is_none() && !alike.what_if.is_empty());
    assert_eq!(alike.what_if[0].says, "fits");

    // The program reserved more than the replay, which no limit is given to.
    let (recording, _) = apart();
    let unlike = device(&recording.finish(), &Options::default());
    assert!(unlike.card.is_none() && !unlike.what_if.is_empty());
    assert!(unlike.what_if.iter().all(|row| row.says.starts_with("unclear: without the card's size")));
    assert!(unlike.what_if.iter().all(|row| row.difference_bytes == 0));
    assert!(unlike.smallest_card.is_none());
    assert_eq!(unlike.verdict.what_helps, "");

    // At its end, a recording that failed does not show how large the card is.
    let died = device(&fragmented(0), &Options { at: At::End, ..Options::default() });
    assert!(died.card.is_none() && !died.what_if.is_empty());
    assert!(died.what_if.iter().all(|row| row.says.starts_with("unclear: the recording does not include")));
}

#[test]
fn a_row_that_hangs_on_addresses_is_an_interval() {
    let (mut recording, site) = decided_by_addresses();
    recording.hold((1 << 40) + 2000 * MIB, 100 * MIB, site);
    let roomy = device(&recording.finish(), &Options { capacity: Some(1000 * MIB), ..Options::default() });
    let row = roomy.what_if.iter().find(|row| row.as_recorded).unwrap();
    assert_eq!(row.peak_reserved_bytes, 400 * MIB);
    assert_eq!(row.least_reserved_bytes, 300 * MIB);
    // With few replays the upper end lies somewhat above the highest.
    assert!((400 * MIB..500 * MIB).contains(&row.most_reserved_bytes), "{row:?}");
    assert!(row.replays > 1);
    assert_eq!((row.survives, row.replays_died), (true, 0));

    let (mut recording, site) = decided_by_addresses();
    recording.oom(100 * MIB, 20 * MIB, site);
    let short = device(&recording.finish(), &Options::default());
    let row = short.what_if.iter().find(|row| row.as_recorded).unwrap();
    assert!(!row.survives && 0 < row.replays_died && row.replays_died < row.replays, "{row:?}");
    // What no address changes has no interval.
    let fixed = short.what_if.iter().find(|row| row.settings == "expandable_segments:True").unwrap();
    assert_eq!(fixed.least_reserved_bytes, fixed.most_reserved_bytes);
}

#[test]
fn the_smallest_card_has_room_for_a_context_where_none_is_known() {
    let mut recording = Recording::default();
    let site = recording.stack(&[MAIN]);
    recording.hold(1 << 40, 100 * MIB, site);
    let trace = recording.finish();
    let cards = vec![Card { name: "other".into(), capacity_bytes: 4096 * MIB, context_bytes: 400 * MIB }];
    let of = |context_bytes| {
        let options = Options { capacity: Some(2048 * MIB), context_bytes, cards: cards.clone(), ..Options::default() };
        device(&trace, &options).smallest_card.expect("it is searched for").capacity_bytes
    };
    assert_eq!((of(None), of(Some(300 * MIB))), (500 * MIB, 400 * MIB));
    // The card held what was recorded; whether it holds more is not promised.
    let narrow = device(&trace, &Options { capacity: Some(450 * MIB), cards: cards.clone(), ..Options::default() });
    let survives = |settings: &str| narrow.what_if.iter().find(|row| row.settings == settings).unwrap().survives;
    assert!(survives("garbage_collection_threshold:0.8") && !survives("roundup_power2_divisions:8"));
}
