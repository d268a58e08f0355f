//! The page of the documentation that sets the numbers of popular guides right.

use std::fmt::Write;

use oomph_gpu::Catalogue;
use oomph_model::{Architecture, Library};

use crate::estimate::{CardCost, Subject, estimate};
use crate::pipeline::Pipeline;
use crate::workload::{Offloading, Precision, Task, Workload};

/// What guides print of Llama 2, in GB: the model, the row, the figure.
const LLAMA: [(&str, &str, f64); 15] = [
    ("llama-2-7b", "fp32", 28.0),
    ("llama-2-7b", "fp16", 14.0),
    ("llama-2-7b", "8-bit", 7.0),
    ("llama-2-7b", "4-bit", 3.5),
    ("llama-2-7b", "training", 56.0),
    ("llama-2-13b", "fp32", 52.0),
    ("llama-2-13b", "fp16", 26.0),
    ("llama-2-13b", "8-bit", 13.0),
    ("llama-2-13b", "4-bit", 6.5),
    ("llama-2-13b", "training", 104.0),
    ("llama-2-70b", "fp32", 280.0),
    ("llama-2-70b", "fp16", 140.0),
    ("llama-2-70b", "8-bit", 70.0),
    ("llama-2-70b", "4-bit", 35.0),
    ("llama-2-70b", "training", 560.0),
];

/// The least and the recommended memory that guides print of pipelines, in GB.
const IMAGES: [(&str, &str); 3] = [("sd-1.5", "4"), ("sdxl", "8 / 12"), ("flux.1-dev", "16 / 24")];

/// What stands above the table of language models.
const TOP: &str = "\
# Memory of models: the numbers of guides, and what they should be

Made by `oomph plan --guide`. GB is 10^9 bytes, GiB 2^30. Figures of guides are mostly weights times bytes. Ours are the
peak of a PyTorch process on an A100 with 80 GB, the CUDA context included: one sample of 2048 tokens in training
(AdamW, autocast to bf16, no checkpointing), one prompt of 64 tokens otherwise.

| model | row | guides say, GB | weights alone, GB | the process, GB | between |
|---|---|---|---|---|---|
";

/// What stands between the tables.
const MIDDLE: &str = "
Guides' figures for training are those of weights, gradients and moments all in 16 bits; with autocast or fp32 they are
twice that before any activation.

| pipeline, one image | guides say, GB | all on the card, GiB | one network at a time, GiB |
|---|---|---|---|
";

/// The page, in Markdown. Every figure of ours is computed when the page is made.
#[must_use]
pub fn page() -> String {
    let mut text = String::from(TOP);
    let Some(card) = Catalogue::builtin().get("a100-80gb").map(CardCost::of) else { return text };
    let gb = |bytes: u64| bytes as f64 / 1e9;
    for (name, row, says) in LLAMA {
        let (task, precision) = match row {
            "fp32" => (Task::Inference, Precision::Fp32),
            "fp16" => (Task::Inference, Precision::Fp16),
            "8-bit" => (Task::Inference, Precision::Int8),
            "4-bit" => (Task::Inference, Precision::Nf4),
            _ => (Task::Full, Precision::AmpBf16),
        };
        let Ok(model) = Library::builtin().model(name) else { continue };
        let part = model.components.first();
        let Some(Architecture::Transformer(shape)) = part.and_then(|part| part.architecture.clone()) else { continue };
        let length = if task == Task::Full { 2048 } else { 64 };
        let workload = Workload { task, precision, length, ..Workload::default() };
        let answer = estimate(&Subject::Transformer { shape, stored: None }, &workload, card);
        let weights = answer.owners[crate::Owner::Weights as usize];
        let total = answer.total;
        let [low, expected, high] = [total.low, total.expected, total.high].map(gb);
        let _ =
            writeln!(text, "| {name} | {row} | {says} | {:.2} | {expected:.1} | {low:.1} to {high:.1} |", gb(weights));
    }
    text.push_str(MIDDLE);
    for (name, says) in IMAGES {
        let Ok(model) = Library::builtin().model(name) else { continue };
        let subject = Subject::Pipeline(Box::new(Pipeline::of(&model.components)));
        let flux = name.starts_with("flux");
        let precision = if flux { Precision::Bf16 } else { Precision::Fp16 };
        let mut workload = Workload { task: Task::Image, precision, ..Workload::default() };
        let side = if name == "sd-1.5" { 512 } else { 1024 };
        (workload.image.width, workload.image.height) = (side, side);
        let whole = estimate(&subject, &workload, card).total.expected;
        workload.image.offload = Offloading::Model;
        let alone = estimate(&subject, &workload, card).total.expected;
        let gib = |bytes: u64| bytes as f64 / 1_073_741_824.0;
        let kind = precision.name();
        let _ = writeln!(text, "| {name}, {kind}, {side} x {side} | {says} | {:.1} | {:.1} |", gib(whole), gib(alone));
    }
    text
}
