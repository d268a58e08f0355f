//! How long the explanation of a recording with a million events takes.

mod generate;

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use oomph_explain::snapshot::{Options, explain};

fn million(criterion: &mut Criterion) {
    let trace = generate::training(1_000_000);
    let mut group = criterion.benchmark_group("explain");
    group.throughput(Throughput::Elements(trace.devices[0].events.len() as u64));
    group.sample_size(10).measurement_time(Duration::from_secs(10));
    for (name, what_if) in [("a million events", false), ("a million events, with what-if", true)] {
        let options = Options { capacity: Some(80 << 30), what_if, ..Options::default() };
        group.bench_function(name, |bench| bench.iter(|| explain(&trace, &options, None)));
    }
    group.finish();
}

criterion_group!(benches, million);
criterion_main!(benches);
