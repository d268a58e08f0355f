//! A snapshot of any size with the pattern of a training run: stacks of some fifty frames over a few hundred functions,
//! the same few thousand stacks step after step, every allocation freed within the step.

use oomph_trace::{Action, Block, BlockState, Device, Event, Frame, FrameId, Segment, StackId, StringId, Trace};

/// A small generator of numbers (Knuth's MMIX multiplier), so that the file is the same each time.
pub struct Random(pub u64);

impl Random {
    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A trace of about `count` events.
pub fn trace(count: usize) -> Trace {
    let mut trace = Trace::default();
    let mut random = Random(1);
    let frames: Vec<FrameId> = (0..668)
        .map(|i| {
            let name = trace.strings.intern(&format!("torch::autograd::some_function_{i}(at::Tensor const&)"));
            let file =
                trace.strings.intern(&format!("/home/user/lib/python3.13/site-packages/torch/file_{}.py", i / 8));
            trace.frames.intern(Frame { name, file, line: i * 7 })
        })
        .collect();
    // Stacks share their callers, as a program's do: each goes on from the middle of another.
    let mut stacks: Vec<StackId> = vec![trace.stacks.intern(frames[..30].iter().copied())];
    for _ in 0..4000 {
        let mut stack = stacks[random.below(stacks.len() as u64) as usize];
        let depth = trace.stacks.innermost_first(stack).count();
        (0..depth / 2).for_each(|_| stack = trace.stacks.caller(stack));
        for _ in depth / 2..48 + random.below(14) as usize {
            stack = trace.stacks.push(stack, frames[random.below(668) as usize]);
        }
        stacks.push(stack);
    }
    let mut device = Device::default();
    let mut live: Vec<(u64, u64)> = Vec::new();
    let mut time_us = 1_748_730_219_595_970;
    while device.events.len() < count {
        time_us += random.below(30) as i64;
        let stack = stacks[random.below(stacks.len() as u64) as usize];
        let event = |action, address, size| Event {
            action,
            address,
            size,
            stream: 0,
            pool: None,
            stack,
            time_us,
            label: StringId::EMPTY,
        };
        if live.len() > 400 || (live.len() > 20 && random.below(2) == 0) {
            let (address, size) = live.swap_remove(random.below(live.len() as u64) as usize);
            device.events.push(event(Action::FreeRequested, address, size));
            device.events.push(event(Action::FreeCompleted, address, size));
        } else {
            let address = 0x7f00_0000_0000 + random.below(1 << 34) * 512;
            let size = random.below(64 << 20);
            device.events.push(event(Action::Alloc, address, size));
            live.push((address, size));
        }
    }
    for (address, size) in live {
        let total_size = size.next_multiple_of(2 << 20).max(2 << 20);
        let first_block = device.blocks.len() as u32;
        let block = Block {
            address,
            size: total_size,
            requested: size,
            state: BlockState::ActiveAllocated,
            ..Block::default()
        };
        device.blocks.push(block);
        let end_block = first_block + 1;
        device.segments.push(Segment {
            address,
            total_size,
            large: true,
            first_block,
            end_block,
            ..Segment::default()
        });
    }
    trace.devices.push(device);
    trace
}
