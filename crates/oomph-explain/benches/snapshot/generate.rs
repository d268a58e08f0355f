//! A recording of a training run of any length: parameters, then steps of forward, backward and optimizer.

use oomph_trace::{Action, Device, Event, Frame, PoolId, StackId, StringId, Trace};

const MIB: u64 = 1 << 20;
/// Layers of the model. Each has one parameter, one saved activation and one temporary.
const LAYERS: u64 = 400;

struct Writer {
    trace: Trace,
    device: Device,
    time_us: i64,
}

impl Writer {
    fn stack(&mut self, frames: &[(&str, &str)]) -> StackId {
        let trace = &mut self.trace;
        let ids: Vec<_> = frames
            .iter()
            .map(|(file, name)| {
                let (name, file) = (trace.strings.intern(name), trace.strings.intern(file));
                trace.frames.intern(Frame { name, file, line: 7 })
            })
            .collect();
        trace.stacks.intern(ids)
    }

    fn event(&mut self, action: Action, address: u64, size: u64, stack: StackId) {
        self.time_us += 3;
        self.device.events.push(Event {
            action,
            address,
            size,
            stream: 0,
            pool: Some(PoolId::DEFAULT),
            stack,
            time_us: self.time_us,
            label: StringId::EMPTY,
        });
    }

    fn free(&mut self, address: u64, size: u64) {
        self.event(Action::FreeRequested, address, size, StackId::NONE);
        self.event(Action::FreeCompleted, address, size, StackId::NONE);
    }
}

/// A recording of about `count` events.
pub fn training(count: usize) -> Trace {
    let mut writer = Writer { trace: Trace::default(), device: Device::default(), time_us: 1 };
    const MODULE: &str = "/v/site-packages/torch/nn/modules/module.py";
    let load = writer.stack(&[("train.py", "<module>"), (MODULE, "to"), (MODULE, "_apply")]);
    let step = writer.stack(&[("train.py", "<module>"), ("/v/site-packages/torch/optim/adam.py", "step")]);
    let layers: Vec<StackId> = (0..LAYERS)
        .map(|layer| {
            let name = format!("layer_{layer}");
            writer.stack(&[
                ("train.py", "<module>"),
                (MODULE, "_call_impl"),
                ("model.py", &name),
                (MODULE, "_call_impl"),
            ])
        })
        .collect();
    // Each tensor has a segment of its own, so that its address is its index.
    let address = |index: u64| (1 << 40) + index * 16 * MIB;
    let (parameters, states, gradients, activations) = (0, LAYERS, 3 * LAYERS, 4 * LAYERS);
    let temporary = 5 * LAYERS;
    for index in 0..=temporary {
        writer.event(Action::SegmentAlloc, address(index), 16 * MIB, load);
    }
    for layer in 0..LAYERS {
        writer.event(Action::Alloc, address(parameters + layer), 16 * MIB, load);
    }
    let mut first = true;
    while writer.device.events.len() < count {
        for (layer, &stack) in (0..LAYERS).zip(&layers) {
            writer.event(Action::Alloc, address(temporary), 12 * MIB, stack);
            writer.event(Action::Alloc, address(activations + layer), 16 * MIB, stack);
            writer.free(address(temporary), 12 * MIB);
        }
        for layer in (0..LAYERS).rev() {
            writer.event(Action::Alloc, address(gradients + layer), 16 * MIB, StackId::NONE);
            writer.free(address(activations + layer), 16 * MIB);
        }
        if first {
            for state in 0..2 * LAYERS {
                writer.event(Action::Alloc, address(states + state), 16 * MIB, step);
            }
            first = false;
        } else {
            writer.event(Action::Alloc, address(temporary), 12 * MIB, step);
            writer.free(address(temporary), 12 * MIB);
        }
        for layer in 0..LAYERS {
            writer.free(address(gradients + layer), 16 * MIB);
        }
    }
    let mut trace = writer.trace;
    trace.devices.push(writer.device);
    trace
}
