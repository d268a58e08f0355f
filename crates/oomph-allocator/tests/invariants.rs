//! What has to hold whatever the program does and whatever a file says.

use oomph_allocator::{
    BfcSettings, BlockId, Capacity, Card, INTERVALS, Model, Native, PoolOptions, Reserve, Script, Settings, Start,
    State, Version, start_state, verify,
};
use oomph_trace::{Action, Block, BlockState, Device, Event, PoolId, Segment, StackId, StringId, Trace};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

#[derive(Clone, Debug)]
enum Request {
    Allocate { bytes: u64, stream: u64, pool: u64 },
    Free(usize),
    RecordStream(usize, u64),
    CompleteAll,
    EmptyCache,
    Capture(bool),
    ReleasePool(u64),
}

fn sizes() -> impl Strategy<Value = u64> {
    prop_oneof![1..8192u64, 1..2 * MIB, MIB..12 * MIB, 8 * MIB..120 * MIB, Just(u64::MAX), Just(0), Just(20 * MIB)]
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let request = prop_oneof![
        8 => (sizes(), 0..3u64, 0..3u64).prop_map(|(bytes, stream, pool)| Request::Allocate { bytes, stream, pool }),
        6 => any::<usize>().prop_map(Request::Free),
        1 => (any::<usize>(), 0..3u64).prop_map(|(block, stream)| Request::RecordStream(block, stream)),
        1 => Just(Request::CompleteAll),
        1 => Just(Request::EmptyCache),
        1 => any::<bool>().prop_map(Request::Capture),
        1 => (1..3u64).prop_map(Request::ReleasePool),
    ];
    prop::collection::vec(request, 0..250)
}

fn settings() -> impl Strategy<Value = Settings> {
    let divisions = prop_oneof![
        Just([0; INTERVALS]),
        (0..5u32).prop_map(|power| [1 << power; INTERVALS]),
        prop::array::uniform16(prop_oneof![Just(0u64), Just(1), Just(2), Just(8)]),
    ];
    let reserve = prop_oneof![
        Just(None),
        (1..200u32).prop_map(|percent| Some(Reserve::Fraction(f64::from(percent) / 100.0))),
        (1..80u32).prop_map(|size| Some(Reserve::Gibibytes(f64::from(size)))),
    ];
    let sizes = (11..64u64, prop_oneof![Just(None), (64..256u64).prop_map(Some)], 64..256u64);
    (sizes, divisions, reserve, any::<[bool; 3]>(), 1..100u32, 1..=100u32).prop_map(
        |((large, max_split, rounding), divisions, reserve, switches, threshold, fraction)| Settings {
            large_segment_size: large * MIB,
            max_split_size: max_split.map_or(u64::MAX, |size| size * MIB),
            max_non_split_rounding: rounding * MIB,
            garbage_collection_threshold: if switches[0] { f64::from(threshold) / 100.0 } else { 0.0 },
            roundup_power2_divisions: divisions,
            expandable_segments: switches[1],
            expandable_segments_reserve: reserve,
            per_process_memory_fraction: f64::from(fraction) / 100.0,
            throw_on_cudamalloc_oom: switches[2],
            ..Settings::default()
        },
    )
}

fn versions() -> impl Strategy<Value = Version> {
    (0..=15u32).prop_map(|minor| Version { major: 2, minor })
}

fn sum(state: &State, wanted: impl Fn(BlockState) -> bool) -> u64 {
    let blocks = state.segments.iter().flat_map(|segment| &segment.blocks);
    blocks.filter(|block| wanted(block.state)).map(|block| block.size).sum()
}

/// Blocks fill their segments, nothing overlaps, the counters are the sums, and free neighbours are one block.
fn check(native: &Native) {
    let state = native.state();
    let mut end = 0;
    for segment in &state.segments {
        assert!(segment.address >= end, "segments overlap");
        let mut at = segment.address;
        for (index, block) in segment.blocks.iter().enumerate() {
            assert_eq!(block.address, at, "a gap between blocks");
            assert!(block.size > 0);
            at += block.size;
            let before = index.checked_sub(1).map(|before| segment.blocks[before].state);
            assert!(!(block.state == BlockState::Inactive && before == Some(BlockState::Inactive)), "not joined");
            if block.state != BlockState::Inactive {
                assert!(block.size >= block.requested);
            }
        }
        end = segment.address + segment.size;
        assert_eq!(at, end);
    }
    let statistics = native.statistics();
    assert_eq!(statistics.reserved.current, state.reserved());
    assert_eq!(statistics.allocated.current, sum(&state, |state| state == BlockState::ActiveAllocated));
    assert_eq!(statistics.active.current, sum(&state, |state| state != BlockState::Inactive));
    assert!(statistics.at_peak.reserved <= statistics.reserved.peak);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn blocks_never_overlap_and_sums_agree(requests in requests(), settings in settings(), version in versions()) {
        let capacity = 700 * MIB;
        let mut native = Native::new(settings, version, capacity, Card::new(capacity));
        let mut live: Vec<BlockId> = Vec::new();
        for request in requests {
            match request {
                Request::Allocate { bytes, stream, pool } => {
                    if let Ok(id) = native.malloc(bytes, stream, PoolId(0, pool)) {
                        prop_assert!(native.size(id).unwrap() >= bytes);
                        live.push(id);
                    }
                }
                Request::Free(index) if !live.is_empty() => {
                    let id = live.swap_remove(index % live.len());
                    prop_assert!(native.free(id));
                    prop_assert!(!native.free(id), "freed twice");
                }
                Request::RecordStream(index, stream) if !live.is_empty() => {
                    native.record_stream(live[index % live.len()], stream);
                }
                Request::CompleteAll => native.complete_all(),
                Request::EmptyCache => native.empty_cache(),
                Request::Capture(capturing) => native.set_capturing(capturing),
                Request::ReleasePool(pool) => {
                    native.set_pool(PoolId(0, pool), PoolOptions { released: true, ..PoolOptions::default() });
                }
                _ => {}
            }
            prop_assert!(native.statistics().reserved.current <= capacity);
            check(&native);
        }
        // When everything is free and given back, nothing is left.
        native.set_capturing(false);
        for id in live {
            native.free(id);
        }
        for pool in 1..3 {
            native.set_pool(PoolId(0, pool), PoolOptions { released: true, ..PoolOptions::default() });
        }
        native.empty_cache();
        prop_assert_eq!(native.state(), State::default());
        prop_assert_eq!(native.statistics().reserved.current, 0);
    }

    /// A state that is adopted is the same state, and the allocator goes on from it.
    #[test]
    fn a_state_can_be_resumed(requests in requests(), expandable in any::<bool>()) {
        let settings = Settings { expandable_segments: expandable, ..Settings::default() };
        let mut native = Native::new(settings.clone(), Version::NEWEST, 1 << 40, Card::new(u64::MAX));
        let mut live: Vec<BlockId> = Vec::new();
        for request in requests {
            match request {
                Request::Allocate { bytes, stream, pool } => {
                    live.extend(native.malloc(bytes, stream, PoolId(0, pool)));
                }
                Request::Free(index) if !live.is_empty() => {
                    native.free(live.swap_remove(index % live.len()));
                }
                _ => {}
            }
        }
        let state = native.state();
        let mut resumed = Native::new(settings, Version::NEWEST, 1 << 40, Card::new(u64::MAX));
        let active = resumed.resume(&state);
        prop_assert_eq!(&resumed.state(), &state);
        prop_assert_eq!(active.len(), live.len());
        check(&resumed);
        for (_, id) in active {
            resumed.free(id);
        }
        check(&resumed);
    }

    #[test]
    fn settings_are_written_as_they_are_read(settings in settings()) {
        let text = settings.to_string();
        prop_assert_eq!(text.parse::<Settings>(), Ok(settings), "{}", text);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[a-z_0-9:,\\[\\]> .-]{0,80}") {
        if let Ok(settings) = text.parse::<Settings>() {
            prop_assert_eq!(settings.to_string().parse::<Settings>().is_ok(), true);
        }
    }

    /// Whatever a file says, nothing panics and no replay takes forever.
    #[test]
    fn garbage_is_survived(
        events in prop::collection::vec(events(), 0..300),
        segments in prop::collection::vec(segments(), 0..20),
        settings in settings(),
    ) {
        let trace = trace(events, segments);
        let device = &trace.devices[0];
        verify(&trace, device);
        start_state(device, &settings);
        let script = Script::new(device, &settings);
        let capacity = Capacity::card(500 * MIB, 10 * MIB);
        for start in [Start::Cold, Start::Recorded] {
            for model in [
                Model::pytorch(settings.clone(), Version::NEWEST),
                Model::Async { settings: settings.clone() },
                Model::Bfc(BfcSettings { allow_growth: true, ..BfcSettings::tensorflow() }),
            ] {
                script.replay(&model, capacity, start);
                script.replay(&model, Capacity::UNLIMITED, start);
            }
        }
    }
}

const ACTIONS: [Action; 10] = [
    Action::Alloc,
    Action::FreeRequested,
    Action::FreeCompleted,
    Action::SegmentAlloc,
    Action::SegmentFree,
    Action::SegmentMap,
    Action::SegmentUnmap,
    Action::Oom,
    Action::Snapshot,
    Action::Other,
];

/// Few different addresses, so that events meet, and some at the very end of the address space.
fn addresses() -> impl Strategy<Value = u64> {
    prop_oneof![8 => (0..40u64).prop_map(|page| (1 << 30) + page * 2 * MIB), 1 => u64::MAX - 4 * MIB..=u64::MAX, 1 => Just(0)]
}

fn events() -> impl Strategy<Value = Event> {
    let kinds = (0..ACTIONS.len(), addresses(), sizes(), 0..2u64, 0..3u64);
    kinds.prop_map(|(action, address, size, stream, pool)| Event {
        action: ACTIONS[action],
        address,
        size,
        stream,
        pool: pool.checked_sub(1).map(|pool| PoolId(0, pool)),
        stack: StackId::NONE,
        time_us: 0,
        label: StringId::EMPTY,
    })
}

/// A segment and, as far apart as it says, its blocks.
fn segments() -> impl Strategy<Value = (Segment, Vec<Block>)> {
    let block = (sizes(), sizes(), 0..3usize);
    let blocks = prop::collection::vec(block, 0..6);
    (addresses(), sizes(), any::<[bool; 2]>(), 0..2u64, blocks).prop_map(
        |(address, total_size, flags, stream, blocks)| {
            let [large, expandable] = flags;
            let mut at = address;
            let states = [BlockState::ActiveAllocated, BlockState::ActivePendingFree, BlockState::Inactive];
            let blocks = blocks.into_iter().map(|(size, requested, state)| {
                let block = Block { address: at, size, requested, state: states[state], stack: StackId::NONE };
                at = at.wrapping_add(size);
                block
            });
            let blocks = blocks.collect();
            (Segment { address, total_size, large, expandable, stream, ..Segment::default() }, blocks)
        },
    )
}

fn trace(events: Vec<Event>, segments: Vec<(Segment, Vec<Block>)>) -> Trace {
    let mut device = Device::default();
    events.into_iter().for_each(|event| device.events.push(event));
    for (mut segment, blocks) in segments {
        segment.first_block = device.blocks.len() as u32;
        device.blocks.extend(blocks);
        segment.end_block = device.blocks.len() as u32;
        device.segments.push(segment);
    }
    Trace { devices: vec![device], ..Trace::default() }
}
