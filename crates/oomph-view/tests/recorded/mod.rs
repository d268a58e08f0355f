//! Recordings that the tests make themselves.

use std::collections::HashMap;

use oomph_trace::{Action, Device, Event, Frame, StackId, StringId, Trace};

/// Memory is taken from the driver in pieces of this size.
const SEGMENT: u64 = 256 << 20;

/// An allocator with a free list for each size: not PyTorch's, but blocks never overlap.
struct Pool<'a> {
    trace: &'a mut Trace,
    device: Device,
    free: HashMap<u64, Vec<u64>>,
    end: u64,
    next: u64,
    time: i64,
    random: u64,
}

impl Pool<'_> {
    fn event(&mut self, action: Action, address: u64, size: u64, stack: StackId) {
        self.time += 3;
        let label = StringId::EMPTY;
        self.device.events.push(Event {
            action,
            address,
            size,
            stream: 0,
            pool: None,
            stack,
            time_us: self.time,
            label,
        });
    }

    fn alloc(&mut self, size: u64, stack: StackId) -> (u64, u64) {
        if let Some(address) = self.free.get_mut(&size).and_then(Vec::pop) {
            self.event(Action::Alloc, address, size, stack);
            return (address, size);
        }
        if self.next + size > self.end {
            self.next = self.end.next_multiple_of(SEGMENT) + SEGMENT;
            self.end = self.next + SEGMENT.max(size);
            self.event(Action::SegmentAlloc, self.next, self.end - self.next, stack);
        }
        let address = self.next;
        self.next += size.next_multiple_of(512);
        self.event(Action::Alloc, address, size, stack);
        (address, size)
    }

    fn give_back(&mut self, (address, size): (u64, u64), stack: StackId) {
        self.event(Action::FreeCompleted, address, size, stack);
        self.free.entry(size).or_default().push(address);
    }

    /// A number below `most`, the same ones in every run.
    fn random(&mut self, most: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % most
    }

    /// A stack as deep as those of real programs.
    fn stack(&mut self, names: &[(&str, &str, u32)]) -> StackId {
        let Trace { strings, frames, stacks, .. } = &mut *self.trace;
        let mut at = StackId::NONE;
        for (file, name, line) in names {
            let frame = Frame { name: strings.intern(name), file: strings.intern(file), line: *line };
            at = stacks.push(at, frames.intern(frame));
        }
        at
    }
}

/// A training of a transformer with at least so many events.
pub fn training(events: usize) -> Trace {
    let mut trace = Trace::default();
    let mut device = training_on(&mut trace, events);
    device.index = 0;
    trace.devices.push(device);
    trace
}

fn training_on(trace: &mut Trace, events: usize) -> Device {
    let torch = "/usr/lib/python3.12/site-packages/torch/nn/modules/module.py";
    let mut pool = Pool {
        trace,
        device: Device::default(),
        free: HashMap::new(),
        end: SEGMENT,
        next: SEGMENT,
        time: 1,
        random: 1,
    };
    const LAYERS: u32 = 48;
    let program = "/home/someone/project/train.py";
    let load = pool.stack(&[(program, "<module>", 90), (program, "build", 20), (torch, "_apply", 900)]);
    let weights: Vec<(u64, u64)> =
        (0..LAYERS * 6).map(|layer| pool.alloc((4 << 20) + u64::from(layer % 6) * (3 << 20), load)).collect();
    let mut forward = Vec::new();
    for layer in 0..LAYERS {
        for operation in 0..12 {
            let model = "/home/someone/project/model.py";
            let mut frames = vec![(program, "<module>", 90), (program, "step", 44)];
            for depth in 0..8 {
                frames.push((torch, "_wrapped_call_impl", 1773 + depth % 2));
                frames.push((torch, "_call_impl", 1784));
                frames.push((model, "forward", 10 + layer * 20 + depth));
            }
            frames.push((model, "forward", 300 + operation));
            frames.push(("/usr/lib/python3.12/site-packages/torch/nn/functional.py", "linear", 2100 + operation));
            forward.push(pool.stack(&frames));
        }
    }
    let step = pool.stack(&[
        (program, "<module>", 90),
        (program, "step", 47),
        ("/usr/lib/python3.12/site-packages/torch/optim/adamw.py", "step", 240),
    ]);
    let (mut state, mut leaked) = (Vec::new(), Vec::new());
    while pool.device.events.len() < events {
        let mut saved = Vec::new();
        for (place, &stack) in forward.iter().enumerate() {
            let jitter = [pool.random(512), pool.random(64)].map(|steps| steps * 512);
            let temporary = pool.alloc((2 << 20) + (place as u64 % 7) * (512 << 10) + jitter[0], stack);
            saved.push(pool.alloc((1 << 20) + (place as u64 % 5) * (256 << 10) + jitter[1], stack));
            pool.give_back(temporary, stack);
        }
        leaked.push(pool.alloc(12 << 20, forward[forward.len() - 1]));
        let mut gradients = Vec::new();
        for (place, block) in saved.into_iter().rev().enumerate() {
            if place % 2 == 0 {
                let size = weights[place / 2 % weights.len()].1;
                gradients.push(pool.alloc(size, StackId::NONE));
            }
            pool.give_back(block, StackId::NONE);
        }
        if state.is_empty() {
            state = weights.iter().map(|weight| pool.alloc(weight.1 * 2, step)).collect();
        }
        for gradient in gradients {
            pool.give_back(gradient, step);
        }
    }
    pool.event(Action::Oom, 300 << 20, 2 << 30, forward[3]);
    pool.device
}

/// The same without segments, as a profiler records it.
pub fn without_segments(events: usize) -> Trace {
    let mut trace = training(events);
    for device in &mut trace.devices {
        let events = std::mem::take(&mut device.events);
        let is_segment =
            |event: &Event| matches!(event.action, Action::SegmentAlloc | Action::SegmentFree | Action::Oom);
        for event in events.iter().filter(|event| !is_segment(event)) {
            device.events.push(event);
        }
    }
    trace
}

/// A recording whose names try to leave their place in the page.
pub fn hostile() -> Trace {
    let mut trace = Trace::default();
    let mut pool = Pool {
        trace: &mut trace,
        device: Device::default(),
        free: HashMap::new(),
        end: SEGMENT,
        next: SEGMENT,
        time: 1,
        random: 1,
    };
    let names = [
        ("/home/zoe/</script><script>stolen=1</script>.py", "<img src=x onerror=stolen=1>", 3),
        ("C:\\zoe\\\"'><iframe>.py", "\u{202e}gnp.x\u{1b}[2J", u32::MAX),
        ("", "", 0),
    ];
    let stack = pool.stack(&names);
    for size in [1, 512, 40 << 20, u64::MAX / 4, 0] {
        let block = pool.alloc(size, stack);
        pool.give_back(block, stack);
        pool.alloc(size, stack);
    }
    pool.event(Action::SegmentFree, 5, u64::MAX, stack);
    pool.event(Action::FreeCompleted, u64::MAX, u64::MAX, stack);
    pool.event(Action::Oom, 0, u64::MAX, stack);
    let device = pool.device;
    trace.devices.push(device);
    trace
}
