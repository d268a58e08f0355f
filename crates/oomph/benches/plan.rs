//! How long a whole answer of `oomph plan` takes, from the start of the process to its end.
//!
//! A built-in model should be answered in less than 20 ms, a folder of 150 shards in less than 50 ms. On 2026-11-22, on one
//! of two cores that other work shared, the fastest of 40 answers took 7 ms for gpt2, 11 for SDXL, 14 for llama-3-8b with
//! QLoRA, 16 for llama-3-70b with ZeRO-3 and 39 for generation with the 150 shards.
//!
//! `cargo bench -p oomph --bench plan`; the parts are measured by the benchmarks of `oomph-plan` and `oomph-model`.

#[path = "../../oomph-model/benches/shards/mod.rs"]
mod shards;

use std::process::{Command, Stdio};

use criterion::{Criterion, criterion_group, criterion_main};

fn answer(arguments: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oomph"));
    command.arg("plan").args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    // 1 says that it does not fit, which is an answer.
    let status = command.status().expect("the program that cargo built");
    assert!(matches!(status.code(), Some(0 | 1)), "{arguments:?}: {status}");
}

fn answers(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    shards::write(folder.path());
    let path = folder.path().to_str().expect("a path in Unicode");
    let asked: [(&str, &[&str]); 6] = [
        ("gpt2", &["gpt2", "--gpu", "rtx-4090"]),
        ("sdxl", &["sdxl", "--gpu", "rtx-4090"]),
        ("llama-3-8b, qlora", &["llama-3-8b", "--task", "qlora", "--batch", "2", "--seq", "4096", "--gpu", "rtx-4090"]),
        ("llama-3-70b, ZeRO-3", &["llama-3-70b", "--task", "full", "--gpus", "8xh100", "--zero", "3"]),
        ("150 shards", &[path, "--gpu", "h100"]),
        ("150 shards, qlora", &[path, "--task", "qlora", "--gpu", "h100"]),
    ];
    for (name, arguments) in asked {
        criterion.bench_function(name, |bencher| bencher.iter(|| answer(arguments)));
    }
}

criterion_group!(benches, answers);
criterion_main!(benches);
