//! How fast a large snapshot is read, and how much memory that takes.
//!
//! `cargo bench -p oomph-trace` reads a generated snapshot of a million events, and has CPython's `pickle` read it as
//! well, for comparison.

mod generate;

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use oomph_trace::write::{StackSharing, snapshot};
use oomph_trace::{ReadOptions, read};

/// Reads a file with CPython and prints the seconds and the memory.
const CPYTHON: &str = "
import pickle, resource, sys, time
start = time.perf_counter()
snapshot = pickle.load(open(sys.argv[1], 'rb'))
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print(f'CPython {sys.version.split()[0]}: {seconds:.2f} s, {peak} MiB at the peak')
";

fn million(criterion: &mut Criterion) {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("million.pickle");
    if !path.exists() {
        let file = File::create(&path).expect("the target folder can be written");
        snapshot(&generate::trace(1_000_000), StackSharing::Neighbours, file).expect("the disk has room");
    }
    let bytes = path.metadata().expect("the file was just written").len();
    println!("{}: {} MiB", path.display(), bytes >> 20);
    let before = peak_memory();
    let trace = read(&path, &ReadOptions::default()).expect("what was written can be read");
    let after = peak_memory();
    println!("{} events; at the peak {} MiB, {} before", trace.devices[0].events.len(), after >> 20, before >> 20);
    drop(trace);

    let mut group = criterion.benchmark_group("read");
    group.throughput(Throughput::Bytes(bytes)).sample_size(10).measurement_time(Duration::from_secs(8));
    group.bench_function("a million events", |bencher| {
        bencher.iter(|| read(&path, &ReadOptions::default()).expect("what was written can be read"));
    });
    group.finish();
    match Command::new("python3").args(["-c", CPYTHON]).arg(&path).output() {
        Ok(output) => print!("{}", String::from_utf8_lossy(&output.stdout)),
        Err(error) => println!("no CPython to compare with: {error}"),
    }
}

/// The most memory that this process had so far, in bytes; 0 where the system does not say.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) << 10
}

criterion_group!(benches, million);
criterion_main!(benches);
