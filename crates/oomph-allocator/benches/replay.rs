//! How fast a trace is prepared, replayed and verified: a generated training run of a million events.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use oomph_allocator::{Capacity, Model, Script, Settings, Start, Version, start_state, verify};
use oomph_trace::{Device, Trace};
use traces::{allocate, collect, end_with, recorder};

#[path = "../tests/traces/mod.rs"]
mod traces;

const EVENTS: usize = 1_000_000;

/// A small generator of its own, so that the trace is the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Training steps of a model with 48 layers: parameters that stay, activations that are freed in reverse order, and
/// temporaries in between, with a batch whose length changes from step to step.
fn training() -> Trace {
    let mut native = recorder();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut device = Device::default();
    let _parameters: Vec<_> = (0..48 * 12).map(|index| allocate(&mut native, 4096 << (index % 12))).collect();
    while device.events.len() < EVENTS {
        let length = 256 + 64 * random.below(28);
        let mut saved = Vec::new();
        for _ in 0..48 {
            for part in 0..10 {
                let bytes = length * 2 * [4096, 4096, 12_288, 128, 4096, 4096, 16_384, 16_384, 4096, 32][part];
                saved.push(allocate(&mut native, bytes));
                let (first, second) = (1 + random.below(4096), length * (1 + random.below(8192)));
                let temporaries = [allocate(&mut native, first), allocate(&mut native, second)];
                for id in temporaries {
                    native.free(id);
                }
            }
        }
        for id in saved.into_iter().rev() {
            let gradient = allocate(&mut native, length * 8192);
            native.free(id);
            native.free(gradient);
        }
        collect(&mut native, &mut device);
    }
    end_with(device, &native.state())
}

fn benchmarks(criterion: &mut Criterion) {
    let trace = training();
    let device = &trace.devices[0];
    let settings = Settings::default();
    let script = Script::new(device, &settings);
    assert!(verify(&trace, device).is_exact());
    let mut group = criterion.benchmark_group("training");
    group.throughput(Throughput::Elements(device.events.len() as u64)).sample_size(10);
    for conf in ["", "expandable_segments:True", "roundup_power2_divisions:8"] {
        let model = Model::pytorch(conf.parse().unwrap(), Version::NEWEST);
        let name = if conf.is_empty() { "default" } else { conf };
        group.bench_function(format!("replay {name}"), |bencher| {
            bencher.iter(|| script.replay(&model, Capacity::UNLIMITED, Start::Cold));
        });
    }
    group.bench_function("prepare", |bencher| bencher.iter(|| Script::new(device, &settings)));
    group.bench_function("start state", |bencher| bencher.iter(|| start_state(device, &settings)));
    group.bench_function("verify", |bencher| bencher.iter(|| verify(&trace, device)));
    let model = Model::pytorch(settings.clone(), Version::NEWEST);
    group.bench_function("smallest card", |bencher| {
        bencher.iter_batched(|| (), |()| script.smallest_card(&model, 0), BatchSize::PerIteration);
    });
    group.finish();
}

criterion_group!(benches, benchmarks);
criterion_main!(benches);
