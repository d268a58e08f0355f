//! How long a whole answer of `oomph plan` takes, from the model's name to what to change.

use criterion::{Criterion, criterion_group, criterion_main};
use oomph_gpu::Catalogue;
use oomph_model::{Architecture, Library};
use oomph_plan::{CardCost, Nearby, Precision, Stored, Subject, Task, Workload, estimate};

fn subject(name: &str, stored: Option<Stored>) -> Subject {
    let model = Library::builtin().model(name).expect("a built-in name");
    let part = model.components.first().expect("a network");
    let Some(Architecture::Transformer(shape)) = part.architecture.clone() else {
        panic!("{name} is not a transformer")
    };
    Subject::Transformer { shape, stored }
}

fn answers(criterion: &mut Criterion) {
    let gpu = Catalogue::builtin().get("rtx-4090").expect("a card of the catalogue");
    let card = CardCost::of(gpu);
    let training = Workload { task: Task::Full, precision: Precision::AmpBf16, ..Workload::default() };
    let adapters = Workload { task: Task::Qlora, precision: Precision::AmpBf16, batch: 2, ..Workload::default() };
    let writing = Workload { task: Task::Generate, new_tokens: 128, ..Workload::default() };
    let stored = Stored { bytes: 4_920_734_720, format: "Q4_K_M".into(), llama_cpp: Some(295_479_936) };
    for (name, model, workload, stored) in [
        ("llama-3-8b, full", "llama-3-8b", &training, None),
        ("llama-3-8b, qlora", "llama-3-8b", &adapters, None),
        ("llama-3-8b, generate", "llama-3-8b", &writing, None),
        ("llama-3.1-8b, GGUF", "llama-3.1-8b", &writing, Some(stored)),
        ("llama-3.1-405b, full", "llama-3.1-405b", &training, None),
    ] {
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| {
                let subject = subject(model, stored.clone());
                let answer = estimate(&subject, workload, card);
                let nearby = Nearby::new(&subject, workload, card, &answer);
                (nearby.limits(gpu.capacity_bytes), nearby.changes(gpu.capacity_bytes))
            });
        });
    }
}

criterion_group!(benches, answers);
criterion_main!(benches);
