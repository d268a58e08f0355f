//! How long it takes to know a model: from a folder of 150 files of weights, and by name.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use criterion::{Criterion, criterion_group, criterion_main};
use oomph_model::Resolver;

/// A folder like that of a large Llama: 150 shards, 1,138 tensors, and only headers.
fn write_shards(folder: &Path) {
    const SHARDS: usize = 150;
    let entry = Resolver::offline().library.find("llama-3.1-405b").expect("a built-in name");
    let parameters = entry.architecture().expect("a known architecture").parameters();
    let trained: Vec<_> = parameters.iter().filter(|parameter| !parameter.is_buffer()).collect();
    let mut map = String::new();
    for (index, shard) in trained.chunks(trained.len().div_ceil(SHARDS)).enumerate() {
        let name = format!("model-{:05}-of-{SHARDS:05}.safetensors", index + 1);
        let (mut header, mut at) = (String::from("{"), 0);
        for parameter in shard {
            let end = at + parameter.elements() * 2;
            let comma = if at == 0 { "" } else { "," };
            let _ = write!(
                header,
                r#"{comma}"{}":{{"dtype":"BF16","shape":{:?},"data_offsets":[{at},{end}]}}"#,
                parameter.name, parameter.shape
            );
            let _ = write!(map, r#"{}"{}":"{name}""#, if map.is_empty() { "" } else { "," }, parameter.name);
            at = end;
        }
        header.push('}');
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        fs::write(folder.join(name), bytes).expect("a file in a temporary folder");
    }
    fs::write(folder.join("model.safetensors.index.json"), format!(r#"{{"weight_map":{{{map}}}}}"#)).expect("an index");
    fs::write(folder.join("config.json"), r#"{"model_type":"llama","architectures":["LlamaForCausalLM"]}"#)
        .expect("a configuration");
}

fn open(criterion: &mut Criterion) {
    let resolver = Resolver::offline();
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_shards(folder.path());
    let path = folder.path().to_str().expect("a path in Unicode");
    criterion.bench_function("150 shards", |bencher| bencher.iter(|| resolver.resolve(path)));
    criterion.bench_function("llama-3-8b", |bencher| bencher.iter(|| resolver.resolve("llama-3-8b")));
    criterion.bench_function("flux.1-dev", |bencher| bencher.iter(|| resolver.resolve("flux.1-dev")));
    criterion.bench_function("a name that is not known", |bencher| bencher.iter(|| resolver.resolve("lama-9")));
}

criterion_group!(benches, open);
criterion_main!(benches);
