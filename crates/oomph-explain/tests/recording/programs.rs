//! Programs that several tests record.

use oomph_trace::{StackId, Stage, Trace};

use super::{MAIN, MIB, MODULE, OPTIMIZER, Recording};

/// A model of two parameters, trained for some steps with an optimizer that keeps one state for each parameter. Each
/// tensor has a segment of 32 MiB and the index of its segment. Returns where each step's backward pass ended.
pub fn training(recording: &mut Recording, steps: usize, keep: &mut dyn FnMut(usize) -> bool) -> Vec<u64> {
    let forward = recording.stack(&[MAIN, (MODULE, "_call_impl"), ("model.py", "forward")]);
    train(recording, steps, keep, forward, false)
}

/// The same, with forward and backward in a closure that the optimizer's step calls, as Lightning does it.
pub fn training_in_closures(recording: &mut Recording, steps: usize) -> Vec<u64> {
    let closure = [("/v/site-packages/lightning/pytorch/plugins/precision/precision.py", "_wrap_closure")];
    let module = [(MODULE, "_call_impl"), ("model.py", "forward")];
    let forward = recording.stack(&[&STEP[..], &closure, &module].concat());
    train(recording, steps, &mut |_| false, forward, true)
}

const STEP: [(&str, &str); 3] = [MAIN, (OPTIMIZER, "wrapper"), ("/v/site-packages/torch/optim/adam.py", "step")];

fn train(
    recording: &mut Recording,
    steps: usize,
    keep: &mut dyn FnMut(usize) -> bool,
    forward: StackId,
    closures: bool,
) -> Vec<u64> {
    let load = recording.stack(&[MAIN, (MODULE, "to"), (MODULE, "_apply")]);
    let optimizer = recording.stack(&STEP);
    let input = recording.stack(&[MAIN]);
    let segment = |index: u64| (1 << 40) + index * 32 * MIB;
    for index in 0..10 + steps as u64 {
        recording.segment(segment(index), 32 * MIB);
    }
    recording.alloc(segment(0), 32 * MIB, load);
    recording.alloc(segment(1), 16 * MIB, load);
    let mut ends = Vec::new();
    for step in 0..steps {
        recording.alloc(segment(8), 4 * MIB, input);
        let kept = segment(10 + step as u64);
        if closures {
            recording.mark("Optimizer.step#Adam.step", Stage::Start);
        }
        recording.alloc(kept, 24 * MIB, forward);
        recording.alloc(segment(4), 20 * MIB, forward);
        recording.free(segment(4));
        recording.alloc(segment(5), 32 * MIB, StackId::NONE);
        recording.alloc(segment(4), 20 * MIB, StackId::NONE);
        recording.alloc(segment(6), 16 * MIB, StackId::NONE);
        recording.free(segment(4));
        if !keep(step) {
            recording.free(kept);
        }
        ends.push(recording.len());
        if !closures {
            recording.mark("Optimizer.step#Adam.step", Stage::Start);
        }
        if step == 0 {
            recording.alloc(segment(2), 32 * MIB, optimizer);
            recording.alloc(segment(3), 16 * MIB, optimizer);
        }
        recording.alloc(segment(4), 20 * MIB, optimizer);
        recording.free(segment(4));
        recording.mark("Optimizer.step#Adam.step", Stage::End);
        recording.free(segment(5));
        recording.free(segment(6));
        recording.free(segment(8));
    }
    ends
}

/// Two segments of 100 MiB, each with a block of 4 MiB at its start, and a request that fits in neither.
pub fn fragmented(stream: u64) -> Trace {
    let mut recording = Recording { stream, ..Recording::default() };
    let site = recording.stack(&[MAIN, ("work.py", "build")]);
    for index in 0..2 {
        let address = (1 << 40) + index * 1000 * MIB;
        recording.hold(address, 100 * MIB, site);
        recording.free(address);
        recording.alloc(address, 4 * MIB, site);
        recording.alloc(address + 4 * MIB, 96 * MIB, site);
    }
    for index in 0..2 {
        recording.free((1 << 40) + index * 1000 * MIB + 4 * MIB);
    }
    recording.stream = 0;
    recording.oom(120 * MIB, 20 * MIB, site);
    recording.finish()
}

/// A full segment, and two of 100 MiB with 96 MiB free in each. The lower one gets the next 90 MiB, and only the other one could
/// have held the 100 MiB that come then.
pub fn decided_by_addresses() -> (Recording, StackId) {
    let mut recording = Recording::default();
    let site = recording.stack(&[MAIN, ("work.py", "build")]);
    let address = |index: u64| (1 << 40) + index * 1000 * MIB;
    recording.hold(1 << 39, 100 * MIB, site);
    for index in 0..2 {
        recording.hold(address(index), 100 * MIB, site);
        recording.free(address(index));
        recording.alloc(address(index), 4 * MIB, site);
        recording.alloc(address(index) + 4 * MIB, 96 * MIB, site);
    }
    for index in 0..2 {
        recording.free(address(index) + 4 * MIB);
    }
    recording.alloc(address(0) + 4 * MIB, 90 * MIB, site);
    recording.free(address(0));
    (recording, site)
}

/// Two small blocks in a segment each. PyTorch would have put both in one, so that this recording cannot have happened.
pub fn apart() -> (Recording, StackId) {
    let mut recording = Recording::default();
    let site = recording.stack(&[MAIN]);
    for index in 0..2 {
        recording.segment((1 << 40) + index * 1000 * MIB, 100 * MIB);
        recording.alloc((1 << 40) + index * 1000 * MIB, 4 * MIB, site);
    }
    (recording, site)
}
