//! Whatever a recording holds, the explanation does not panic and the bytes add up.

use oomph_explain::snapshot::{At, Names, Options, explain};
use oomph_trace::{
    Action, Annotation, Block, BlockState, Device, Event, Frame, PoolId, Segment, StackId, Stage, StringId, Trace,
};
use proptest::prelude::*;

const ACTIONS: [Action; 11] = [
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
    Action::Other,
];

/// Few addresses, so that events meet; some at the end of the address space, so that sums would overflow.
fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => (0u64..24).prop_map(|page| page << 20),
        1 => Just(u64::MAX - 100),
        1 => any::<u64>(),
    ]
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0u64..4 << 20,
        4 => (0u64..5).prop_map(|size| (size * 4) << 20),
        1 => any::<u64>(),
    ]
}

fn events() -> impl Strategy<Value = Vec<(usize, u64, u64, u64, u32, bool)>> {
    let event = (0..ACTIONS.len(), address(), size(), 0u64..3, 0u32..9, any::<bool>());
    // Most events are allocations and frees.
    let event = (event, any::<bool>()).prop_map(|(mut event, plain)| {
        if plain {
            event.0 %= 3;
        }
        event
    });
    prop::collection::vec(event, 0..120)
}

fn blocks() -> impl Strategy<Value = Vec<(u64, u64, u64, u8, u8)>> {
    prop::collection::vec((address(), size(), size(), 0u8..3, 0u8..6), 0..12)
}

const FILES: [(&str, &str); 8] = [
    ("train.py", "<module>"),
    ("/x/site-packages/torch/nn/modules/module.py", "_call_impl"),
    ("/x/site-packages/torch/nn/modules/module.py", "to"),
    ("/x/site-packages/torch/optim/optimizer.py", "wrapper"),
    ("/x/site-packages/torch/optim/adam.py", "_init_group"),
    ("/x/site-packages/torch/utils/checkpoint.py", "recompute_fn"),
    ("/x/site-packages/transformers/cache_utils.py", "update"),
    ("??", "torch::autograd::Engine::thread_main"),
];

fn trace(
    events: Vec<(usize, u64, u64, u64, u32, bool)>,
    blocks: Vec<(u64, u64, u64, u8, u8)>,
    marks: Vec<(i64, bool)>,
) -> Trace {
    let mut trace = Trace::default();
    let stacks: Vec<StackId> = (0..FILES.len())
        .map(|at| {
            let ids: Vec<_> = [FILES[0], FILES[at]]
                .iter()
                .map(|(file, name)| {
                    let (file, name) = (trace.strings.intern(file), trace.strings.intern(name));
                    trace.frames.intern(Frame { name, file, line: 1 })
                })
                .collect();
            trace.stacks.intern(ids)
        })
        .collect();
    let name = trace.strings.intern("Optimizer.step#Adam.step");
    trace.annotations = marks
        .into_iter()
        .map(|(time_us, start)| Annotation {
            stage: if start { Stage::Start } else { Stage::End },
            name,
            device: 0,
            time_us,
        })
        .collect();
    let mut device = Device::default();
    for (time, (action, address, size, stream, stack, default)) in events.into_iter().enumerate() {
        device.events.push(Event {
            action: ACTIONS[action],
            address,
            size,
            stream,
            pool: Some(if default { PoolId::DEFAULT } else { PoolId(0, stream) }),
            // One past the last stack does not exist, nor does it in a file that lies.
            stack: stacks.get(stack as usize).copied().unwrap_or(StackId(77)),
            time_us: time as i64,
            label: StringId::EMPTY,
        });
    }
    for (address, size, requested, state, kind) in blocks {
        let state = [BlockState::ActiveAllocated, BlockState::ActivePendingFree, BlockState::Inactive][state as usize];
        device.blocks.push(Block { address, size, requested, state, stack: StackId::NONE });
        let at = device.blocks.len() as u32;
        device.segments.push(Segment {
            address: address.saturating_sub(u64::from(kind) << 19),
            total_size: size.saturating_add(u64::from(kind) << 20),
            large: kind > 2,
            expandable: kind == 5,
            first_block: at - 1,
            // Sometimes a segment claims the blocks of its neighbour, or ones that are not there.
            end_block: at + u32::from(kind == 4),
            ..Segment::default()
        });
    }
    trace.devices.push(device);
    trace
}

fn moment() -> impl Strategy<Value = At> {
    prop_oneof![
        Just(At::Peak),
        Just(At::Oom),
        Just(At::End),
        any::<u64>().prop_map(At::Event),
        (0u64..130).prop_map(At::Event),
        any::<i64>().prop_map(At::Time),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn the_bytes_always_add_up(
        events in events(),
        blocks in blocks(),
        marks in prop::collection::vec((0i64..120, any::<bool>()), 0..6),
        at in moment(),
        capacity in prop::option::of(prop_oneof![size(), Just(1u64 << 34)]),
        context_bytes in prop::option::of(size()),
        observed in prop::collection::vec((-3i64..90, address(), 0usize..4), 0..12),
    ) {
        let trace = trace(events, blocks, marks);
        let names = observed
            .iter()
            .map(|(at, address, owner)| {
                let owner = ["parameter", "gradient", "activation", "nonsense"][*owner];
                format!(r#"{{"device":0,"at":{at},"address":{address},"size":512,"owner":"{owner}","name":"a.b"}}"#)
            })
            .collect::<Vec<_>>()
            .join(",");
        let text = format!(r#"{{"schema":"oomph.names/1","names":[{names}]}}"#);
        let names = Names::parse(text.as_bytes()).unwrap();
        for names in [None, Some(&names)] {
            let options = Options { at, capacity, context_bytes, what_if: false, ..Options::default() };
            for device in explain(&trace, &options, names).devices {
                let total = device.card.map_or(device.peak.reserved_bytes, |card| card.capacity_bytes);
                let owners: u128 = device.owners.iter().map(|row| u128::from(row.bytes)).sum();
                let causes: u128 = device.causes.iter().map(|cause| u128::from(cause.bytes)).sum();
                prop_assert_eq!(owners, u128::from(total));
                prop_assert_eq!(causes, u128::from(total));
            }
        }
    }

    #[test]
    fn names_never_panic(text in "\\PC{0,60}") {
        let _ = Names::parse(text.as_bytes());
    }
}
