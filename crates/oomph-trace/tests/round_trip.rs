//! What the snapshot writer writes, the reader reads: any trace comes back as it was.

use oomph_trace::write::{StackSharing, snapshot};
use oomph_trace::{
    Action, Annotation, Block, BlockState, Device, DeviceKind, Event, Frame, FrameId, PoolId, ReadOptions, Segment,
    Settings, StackId, Stage, Trace, read_from,
};
use proptest::prelude::*;

/// A trace with its ids resolved, so that two traces with other tables compare.
fn plain(trace: &Trace) -> String {
    let text = |id| trace.strings.get(id).to_owned();
    let stack = |id: StackId| -> Vec<(String, String, u32)> {
        let frames = trace.stacks.innermost_first(id).filter_map(|id| trace.frames.get(id));
        frames.map(|frame| (text(frame.name), text(frame.file), frame.line)).collect()
    };
    let mut lines = Vec::new();
    for device in &trace.devices {
        lines.push(format!("{:?} {}", device.kind, device.index));
        for event in device.events.iter() {
            let (label, stack) = (text(event.label), stack(event.stack));
            lines.push(format!(
                "{:?} {label} {stack:?}",
                Event { label: Default::default(), stack: StackId::NONE, ..event }
            ));
        }
        for segment in &device.segments {
            lines.push(format!("{:?} {:?}", Segment { stack: StackId::NONE, ..*segment }, stack(segment.stack)));
            for block in device.blocks_of(segment) {
                lines.push(format!("{:?} {:?}", Block { stack: StackId::NONE, ..*block }, stack(block.stack)));
            }
        }
    }
    for annotation in &trace.annotations {
        let (stage, device, time_us) = (annotation.stage, annotation.device, annotation.time_us);
        lines.push(format!("{stage:?} {} {device} {time_us}", text(annotation.name)));
    }
    lines.push(format!("{:?}", trace.settings));
    lines.join("\n")
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
    Action::Annotate,
];

/// A number of bytes, of every width that a pickle knows. Numbers of 64 bits with the highest bit set are not sizes.
fn bytes() -> impl Strategy<Value = u64> {
    number().prop_map(|number| number >> 1)
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..300_u64, 0..70_000_u64, any::<u32>().prop_map(u64::from), any::<u64>()]
}

/// Action; address, size and stream; pool; stack; time; label.
type EventRecipe = (usize, [u64; 3], Option<(u64, u64)>, usize, i64, usize);

/// Address, sizes of its blocks, stack.
type SegmentRecipe = (u64, Vec<u64>, usize);

/// Conf, max_split_size, expandable_segments, roundup_power2_divisions.
type SettingsRecipe = (Option<String>, Option<u64>, Option<bool>, Vec<(u64, u64)>);

/// Numbers of which a trace is made; those that choose something are taken modulo how much there is.
#[derive(Clone, Debug)]
struct Recipe {
    names: Vec<String>,
    frames: Vec<(usize, usize, u32)>,
    stacks: Vec<Vec<usize>>,
    devices: Vec<(bool, u32, Vec<EventRecipe>, Vec<SegmentRecipe>)>,
    annotations: Vec<(bool, usize, i64)>,
    settings: SettingsRecipe,
}

fn recipe() -> impl Strategy<Value = Recipe> {
    let names = prop::collection::vec(".{0,300}", 1..8);
    let frames = prop::collection::vec((any::<usize>(), any::<usize>(), any::<u32>()), 1..20);
    let stacks = prop::collection::vec(prop::collection::vec(any::<usize>(), 0..40), 1..8);
    let pool = prop::option::of((0..3_u64, number()));
    let event = (any::<usize>(), [number(), number(), number()], pool, any::<usize>(), any::<i64>(), any::<usize>());
    let segment = (number(), prop::collection::vec(bytes(), 0..6), any::<usize>());
    let device = (any::<bool>(), 0..5_u32, prop::collection::vec(event, 0..40), prop::collection::vec(segment, 0..6));
    let annotations = prop::collection::vec((any::<bool>(), any::<usize>(), any::<i64>()), 0..10);
    let divisions = prop::collection::btree_map(0..20_u64, 0..64_u64, 0..5);
    let settings = (
        prop::option::of(".{0,40}"),
        prop::option::of(number()),
        prop::option::of(any::<bool>()),
        divisions.prop_map(|map| map.into_iter().collect()),
    );
    (names, frames, stacks, prop::collection::vec(device, 0..4), annotations, settings).prop_map(
        |(names, frames, stacks, devices, annotations, settings)| Recipe {
            names,
            frames,
            stacks,
            devices,
            annotations,
            settings,
        },
    )
}

/// A segment with a block of each size, in states that take turns.
fn add_segment(device: &mut Device, address: u64, sizes: &[u64], at: usize, stack: &impl Fn(usize) -> StackId) {
    let first_block = device.blocks.len() as u32;
    for (i, &size) in sizes.iter().enumerate() {
        let state = [BlockState::ActiveAllocated, BlockState::ActivePendingFree, BlockState::Inactive][i % 3];
        let stack = stack(at.wrapping_add(i));
        device.blocks.push(Block { address: address ^ i as u64, size, requested: size / 2, state, stack });
    }
    let end_block = device.blocks.len() as u32;
    device.segments.push(Segment {
        address,
        total_size: at.wrapping_mul(3) as u64 >> 1,
        stream: address >> 3,
        large: at.is_multiple_of(2),
        pool: PoolId(address % 3, address % 2),
        expandable: at.is_multiple_of(3),
        stack: stack(at),
        first_block,
        end_block,
    });
}

fn build(recipe: &Recipe) -> Trace {
    let mut trace = Trace::default();
    let name = |trace: &mut Trace, index: usize| trace.strings.intern(&recipe.names[index % recipe.names.len()]);
    let frames: Vec<FrameId> = recipe
        .frames
        .iter()
        .map(|&(function, file, line)| {
            let frame = Frame { name: name(&mut trace, function), file: name(&mut trace, file), line };
            trace.frames.intern(frame)
        })
        .collect();
    let stacks: Vec<StackId> = recipe
        .stacks
        .iter()
        .map(|stack| trace.stacks.intern(stack.iter().map(|index| frames[index % frames.len()])))
        .collect();
    let stack = |index: usize| stacks[index % stacks.len()];
    for (host, index, events, segments) in &recipe.devices {
        let kind = if *host { DeviceKind::PinnedHost } else { DeviceKind::Cuda };
        let index = if *host { 0 } else { *index };
        // A device has one entry, and none if nothing is known of it.
        let known = trace.devices.iter().any(|device| device.kind == kind && device.index == index);
        if known || (events.is_empty() && segments.is_empty()) {
            continue;
        }
        let mut device = Device { kind, index, ..Device::default() };
        for &(action, [address, size, stream], pool, at, time_us, label) in events {
            let action = ACTIONS[action % ACTIONS.len()];
            device.events.push(Event {
                action,
                // That of a failure is what the card had free.
                address: if action == Action::Oom { address >> 1 } else { address },
                // Half of the numbers of 64 bits are no number of bytes.
                size: size >> 1,
                stream,
                pool: pool.map(|(a, b)| PoolId(a, b)),
                stack: stack(at),
                time_us,
                label: match recipe.names[label % recipe.names.len()].as_str() {
                    // What PyTorch writes where there is no compiled region.
                    "N/A" => Default::default(),
                    label => trace.strings.intern(label),
                },
            });
        }
        for (address, sizes, at) in segments {
            add_segment(&mut device, *address, sizes, *at, &stack);
        }
        trace.devices.push(device);
    }
    trace.devices.sort_by_key(|device| (device.kind, device.index));
    for &(start, index, time_us) in &recipe.annotations {
        let (stage, name) = (if start { Stage::Start } else { Stage::End }, name(&mut trace, index));
        trace.annotations.push(Annotation { stage, name, device: 0, time_us });
    }
    trace.annotations.sort_by_key(|annotation| annotation.time_us);
    let (conf, max_split_size, expandable_segments, divisions) = recipe.settings.clone();
    trace.settings = Settings {
        conf,
        max_split_size,
        expandable_segments,
        garbage_collection_threshold: max_split_size.map(|size| size as f64 / 7.0),
        roundup_power2_divisions: divisions,
        others: vec![
            ("release_lock_on_cudamalloc".into(), "false".into()),
            ("max_round_threshold".into(), "-1".into()),
        ],
    };
    trace
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn a_snapshot_comes_back_as_it_was_written(recipe in recipe()) {
        let trace = build(&recipe);
        for sharing in [StackSharing::All, StackSharing::Neighbours] {
            let mut bytes = Vec::new();
            snapshot(&trace, sharing, &mut bytes).expect("writing to memory");
            let back = read_from(&bytes[..], "memory", &ReadOptions::default()).expect("what was written can be read");
            prop_assert_eq!(plain(&trace), plain(&back));
        }
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), pickled in any::<bool>()) {
        let start: &[u8] = if pickled { &[0x80, 4] } else { b"" };
        let bytes = [start, &bytes].concat();
        for salvage in [false, true] {
            let _ = read_from(&bytes[..], "memory", &ReadOptions { salvage, ..ReadOptions::default() });
        }
    }
}
