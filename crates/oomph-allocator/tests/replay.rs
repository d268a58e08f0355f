//! What a replay says of another card, setting or allocator.

mod traces;

use oomph_allocator::{BfcSettings, Capacity, Model, Script, Settings, Start, Version};
use oomph_trace::{Action, Device, Trace};
use traces::{allocate, collect, end_with, recorder};

const MIB: u64 = 1 << 20;

fn pytorch(conf: &str) -> Model {
    Model::pytorch(conf.parse().unwrap(), Version::NEWEST)
}

fn script(trace: &Trace) -> Script {
    Script::new(&trace.devices[0], &Settings::default())
}

/// Sixteen blocks of 30 MiB, every other one freed, and then one of 200 MiB: the holes are of no use to it.
fn fragmented() -> Trace {
    let (mut native, mut device) = (recorder(), Device::default());
    let blocks: Vec<_> = (0..16).map(|_| allocate(&mut native, 30 * MIB)).collect();
    for &id in blocks.iter().step_by(2) {
        native.free(id);
    }
    allocate(&mut native, 200 * MIB);
    collect(&mut native, &mut device);
    end_with(device, &native.state())
}

#[test]
fn the_smallest_card_needs_one_flush() {
    let script = script(&fragmented());
    let free = script.replay(&pytorch(""), Capacity::UNLIMITED, Start::Cold);
    assert_eq!((free.survived, free.peak_reserved(), free.retries()), (true, 680 * MIB, 0));
    // Eight blocks stay and eight whole segments are given back for the large one.
    let smallest = script.smallest_card(&pytorch(""), 500 * MIB).unwrap();
    assert_eq!(smallest.available, 480 * MIB);
    assert_eq!((smallest.replay.retries(), smallest.replay.peak_reserved()), (1, 480 * MIB));
    assert!(!smallest.irregular);
    let below = script.replay(&pytorch(""), Capacity::card(978 * MIB, 500 * MIB), Start::Cold);
    let oom = below.oom.unwrap().oom;
    assert!(!below.survived);
    // The sixteenth block of 30 MiB is the one that does not fit.
    assert_eq!((oom.segment, oom.driver_free, oom.reserved), (30 * MIB, 28 * MIB, 450 * MIB));
}

/// A search that is cut short names a card that does, and how far below it a smaller one may lie.
#[test]
fn a_search_in_few_replays_brackets_the_smallest_card() {
    let (script, model) = (script(&fragmented()), pytorch(""));
    let free = script.replay(&model, Capacity::UNLIMITED, Start::Cold);
    let exact = script.smallest_card(&model, 0).unwrap();
    assert_eq!(exact.unsearched, 0);
    let mut before = u64::MAX;
    for replays in 1..12 {
        let found = script.smallest_card_within(&model, 0, &free, replays).unwrap();
        assert!(found.replay.survived && found.available >= exact.available);
        assert!(found.available - found.unsearched <= exact.available, "{found:?}");
        assert!(found.unsearched <= before);
        before = found.unsearched;
    }
    assert_eq!(before, 0);
}

#[test]
fn another_allocator_fills_the_holes() {
    let script = script(&fragmented());
    // Free memory is never too scattered for the driver's own pool: the most in use at once is the first 480 MiB.
    let asynchronous = Model::Async { settings: Settings::default() };
    assert_eq!(script.replay(&asynchronous, Capacity::UNLIMITED, Start::Cold).peak_reserved(), 480 * MIB);
    let bfc = Model::Bfc(BfcSettings { allow_growth: true, ..BfcSettings::tensorflow() });
    let replay = script.replay(&bfc, Capacity::card(2048 * MIB, 0), Start::Recorded);
    assert!(replay.survived);
    // A chunk that is not split takes more than was asked for.
    assert_eq!(replay.statistics.requested.peak, 480 * MIB);
    assert!(replay.peak_allocated() > 480 * MIB);
}

/// The trace was recorded from its second half on: what was allocated before is rebuilt from the end.
#[test]
fn a_trace_that_begins_late_is_understood() {
    let (mut native, mut device) = (recorder(), Device::default());
    let kept = allocate(&mut native, 3 * MIB);
    let freed = allocate(&mut native, 5 * MIB + 100);
    let _small = allocate(&mut native, 1000);
    let start = native.state();
    native.take_events();
    native.free(freed);
    let reused = allocate(&mut native, 4 * MIB);
    native.free(kept);
    allocate(&mut native, 64 * MIB);
    native.free(reused);
    collect(&mut native, &mut device);
    let trace = end_with(device, &native.state());
    let script = script(&trace);
    assert_eq!(script.start(), &start);
    let replay = script.replay(&pytorch(""), Capacity::UNLIMITED, Start::Recorded);
    assert_eq!(replay.statistics.reserved, native.statistics().reserved);
    assert_eq!(replay.statistics.allocated.current, native.statistics().allocated.current);
    assert!(oomph_allocator::verify(&trace, &trace.devices[0]).is_exact());
}

/// `empty_cache()` is repeated in a replay; a flush that PyTorch made because the card was full is not.
#[test]
fn only_the_programs_own_flushes_are_repeated() {
    for (flush, expected) in [(true, 264), (false, 324)] {
        let (mut native, mut device) = (recorder(), Device::default());
        let id = allocate(&mut native, 60 * MIB);
        native.free(id);
        if flush {
            native.empty_cache();
        }
        allocate(&mut native, 64 * MIB);
        // Without stacks, what is reserved later shows that the card was not full then.
        allocate(&mut native, 200 * MIB);
        collect(&mut native, &mut device);
        let trace = end_with(device, &native.state());
        let replay = script(&trace).replay(&pytorch(""), Capacity::UNLIMITED, Start::Cold);
        assert_eq!(replay.statistics.reserved.current, expected * MIB);
    }
}

#[test]
fn a_memory_fraction_limits_the_card() {
    let script = script(&fragmented());
    let half = pytorch("per_process_memory_fraction:0.5");
    assert!(!script.replay(&half, Capacity::card(900 * MIB, 0), Start::Cold).survived);
    assert!(script.replay(&half, Capacity::card(960 * MIB, 0), Start::Cold).survived);
    assert_eq!(script.smallest_card(&half, 0).unwrap().available, 960 * MIB);
}

/// A workspace of 300 MiB that lives for one call, over 100 MiB that stay.
#[test]
fn what_the_program_can_do_without_does_not_end_a_replay() {
    let (mut native, mut device) = (recorder(), Device::default());
    allocate(&mut native, 100 * MIB);
    let workspace = allocate(&mut native, 300 * MIB);
    native.free(workspace);
    allocate(&mut native, 40 * MIB);
    collect(&mut native, &mut device);
    let trace = end_with(device, &native.state());
    let firm = script(&trace);
    let is_workspace = |event: usize| trace.devices[0].events.get(event).is_some_and(|event| event.size == 300 * MIB);
    let mut yielding = firm.clone();
    yielding.let_do_without(is_workspace);

    let on = |script: &Script, size: u64| script.replay(&pytorch(""), Capacity::card(size * MIB, 0), Start::Cold);
    assert!(!on(&firm, 200).survived);
    let replay = on(&yielding, 200);
    assert_eq!((replay.survived, replay.done_without, replay.peak_reserved()), (true, 1, 140 * MIB));
    // Where there is room it is taken, and what stays is needed in any case.
    assert_eq!((on(&yielding, 400).done_without, on(&yielding, 138).survived), (0, false));
    let smallest = |script: &Script| script.smallest_card(&pytorch(""), 0).unwrap().available;
    assert_eq!((smallest(&firm), smallest(&yielding)), (400 * MIB, 140 * MIB));
}

/// Iterations that each keep a block of another size than what they let go of, so that gaps are left, and give back what the
/// one before made last.
fn loop_that_keeps(iterations: usize) -> (Trace, Vec<usize>) {
    let (mut native, mut device) = (recorder(), Device::default());
    let mut ends = Vec::new();
    let weights = allocate(&mut native, 40 * MIB);
    let mut output = None;
    for _ in 0..iterations {
        let scratch = allocate(&mut native, 15 * MIB);
        allocate(&mut native, 3 * MIB);
        let next = allocate(&mut native, 7 * MIB);
        native.free(scratch);
        if let Some(before) = output.replace(next) {
            native.free(before);
        }
        collect(&mut native, &mut device);
        ends.push(device.events.iter().filter(|event| event.action == Action::Alloc).count());
    }
    native.free(weights);
    collect(&mut native, &mut device);
    (end_with(device, &native.state()), ends)
}

/// The events with which three iterations in a row end: each is the one before the next allocation.
fn ends_of(trace: &Trace, counts: &[usize]) -> [usize; 3] {
    let events = trace.devices[0].events.iter().enumerate();
    let places: Vec<usize> =
        events.filter(|(_, event)| event.action == Action::Alloc).map(|(index, _)| index).collect();
    [places[counts[0]] - 1, places[counts[1]] - 1, places[counts[2]] - 1]
}

#[test]
fn a_repeated_iteration_is_the_longer_loop() {
    let (whole, _) = loop_that_keeps(60);
    let (begun, counts) = loop_that_keeps(6);
    let ends = ends_of(&begun, &counts[2..5]);
    let repeated = script(&begun).repeated(ends, 54).unwrap();
    assert_eq!((repeated.stays, repeated.followed_by), (3 * MIB, 1), "five of six iterations are over");
    let whole = script(&whole);
    for capacity in [Capacity::UNLIMITED, Capacity::card(200 * MIB, 0), Capacity::card(320 * MIB, 0)] {
        let (one, other) = (
            whole.replay(&pytorch(""), capacity, Start::Cold),
            repeated.script.replay(&pytorch(""), capacity, Start::Cold),
        );
        assert_eq!((one.peak_reserved(), one.peak_allocated()), (other.peak_reserved(), other.peak_allocated()));
        assert_eq!(one.survived, other.survived);
    }
    let smallest = |script: &Script| script.smallest_card(&pytorch(""), 0).unwrap().available;
    assert_eq!(smallest(&whole), smallest(&repeated.script));
    // The card of 200 MiB is full in a repetition that the events name.
    let full = repeated.script.replay(&pytorch(""), Capacity::card(200 * MIB, 0), Start::Cold).oom.unwrap();
    assert!((20..54).contains(&(full.event.unwrap() - repeated.first_event)), "{full:?}");
}

#[test]
fn iterations_that_differ_are_not_repeated() {
    let (begun, counts) = loop_that_keeps(6);
    let ends = ends_of(&begun, &counts[2..5]);
    let script = script(&begun);
    assert!(script.repeated([ends[1], ends[1], ends[2]], 3).is_none(), "an iteration without requests");
    assert!(script.repeated([ends[0], ends[1], ends[1] + 2], 3).is_none(), "one that is cut off");
    assert_eq!(script.repeated(ends, 0).unwrap().script.len(), script.len());
}
