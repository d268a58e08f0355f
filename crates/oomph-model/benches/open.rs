//! How long it takes to know a model: from a folder of 150 files of weights, and by name.

mod shards;

use criterion::{Criterion, criterion_group, criterion_main};
use oomph_model::Resolver;

fn open(criterion: &mut Criterion) {
    let resolver = Resolver::offline();
    let folder = tempfile::tempdir().expect("a temporary folder");
    shards::write(folder.path());
    let path = folder.path().to_str().expect("a path in Unicode");
    criterion.bench_function("150 shards", |bencher| bencher.iter(|| resolver.resolve(path)));
    criterion.bench_function("llama-3-8b", |bencher| bencher.iter(|| resolver.resolve("llama-3-8b")));
    criterion.bench_function("flux.1-dev", |bencher| bencher.iter(|| resolver.resolve("flux.1-dev")));
    criterion.bench_function("a name that is not known", |bencher| bencher.iter(|| resolver.resolve("lama-9")));
}

criterion_group!(benches, open);
criterion_main!(benches);
