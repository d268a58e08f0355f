//! A trace that has one of everything.

use oomph_trace::{
    Action, Annotation, Block, BlockState, Device, Event, Frame, PoolId, Segment, StackId, Stage, StringId, Trace,
};

/// Three events with a stack, a quote in a name, and an OOM.
pub fn trace() -> Trace {
    let mut trace = Trace::default();
    let (main, forward) = (trace.strings.intern("main"), trace.strings.intern("forward \"x\""));
    let file = trace.strings.intern("a.py");
    let outer = trace.frames.intern(Frame { name: main, file, line: 1 });
    let inner = trace.frames.intern(Frame { name: forward, file, line: 2 });
    let stack = trace.stacks.intern([outer, inner]);
    let label = trace.strings.intern("weights");
    let mut device = Device { index: 2, ..Device::default() };
    let event = |action, address, size, time_us| Event {
        action,
        address,
        size,
        stream: 3,
        pool: Some(PoolId(0, 1)),
        stack,
        time_us,
        label,
    };
    device.events.push(event(Action::SegmentAlloc, u64::MAX - 5, 2 << 20, 1_000_000));
    device.events.push(Event {
        pool: None,
        stack: StackId::NONE,
        label: StringId::EMPTY,
        ..event(Action::Alloc, 1 << 40, 1 << 20, 1_000_010)
    });
    device.events.push(event(Action::Oom, 77, 1 << 30, 1_000_020));
    device.segments.push(Segment { total_size: 2 << 20, end_block: 1, ..Segment::default() });
    let state = BlockState::ActiveAllocated;
    device.blocks.push(Block { size: 1 << 20, requested: 1 << 20, state, ..Block::default() });
    trace.devices.push(device);
    trace.annotations.push(Annotation { stage: Stage::Start, name: main, device: 0, time_us: 1_000_005 });
    trace.annotations.push(Annotation { stage: Stage::End, name: main, device: 0, time_us: 1_000_015 });
    trace
}
