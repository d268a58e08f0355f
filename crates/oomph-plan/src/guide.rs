//! Writes the page of the documentation that corrects the numbers of popular guides.

use std::fmt::Write;

use oomph_gpu::Catalogue;
use oomph_model::{Architecture, Library};

use crate::answer::{CardCost, Estimate};
use crate::estimate::{Subject, estimate};
use crate::pipeline::Pipeline;
use crate::workload::{Offloading, Precision, Task, Workload};

/// Llama 2 of three sizes.
const LLAMA: [&str; 3] = ["llama-2-7b", "llama-2-13b", "llama-2-70b"];

/// A row of the tables of language models: what it is called, what guides print for the three sizes in GB, what is done.
type Row = (&'static str, Option<[f64; 3]>, Task, Precision, bool);

/// Loading and running a model.
const RUNNING: [Row; 4] = [
    ("fp32", Some([28.0, 52.0, 280.0]), Task::Inference, Precision::Fp32, false),
    ("fp16", Some([14.0, 26.0, 140.0]), Task::Inference, Precision::Fp16, false),
    ("8 bits", Some([7.0, 13.0, 70.0]), Task::Inference, Precision::Int8, false),
    ("4 bits (NF4)", Some([3.5, 6.5, 35.0]), Task::Inference, Precision::Nf4, false),
];

/// Training all weights.
const TRAINING: [Row; 4] = [
    ("autocast to bf16", Some([56.0, 104.0, 560.0]), Task::Full, Precision::AmpBf16, false),
    ("the same, checkpointed", None, Task::Full, Precision::AmpBf16, true),
    ("all in bf16", Some([56.0, 104.0, 560.0]), Task::Full, Precision::Bf16, false),
    ("the same, checkpointed", None, Task::Full, Precision::Bf16, true),
];

/// What guides call fine-tuning, in 16 bits.
const TUNING: [Row; 4] = [
    ("all weights, bf16, checkpointed", Some([20.0, 40.0, 200.0]), Task::Full, Precision::Bf16, true),
    ("LoRA on bf16", Some([20.0, 40.0, 200.0]), Task::Lora, Precision::Bf16, false),
    ("LoRA on bf16, checkpointed", Some([20.0, 40.0, 200.0]), Task::Lora, Precision::Bf16, true),
    ("QLoRA, checkpointed", None, Task::Qlora, Precision::AmpBf16, true),
];

/// The least and the recommended memory that guides print of pipelines, in GB; the ControlNet, the type and the side of
/// the image.
const IMAGES: [(&str, Option<&str>, &str, Precision, u64); 5] = [
    ("sd-1.5", None, "4", Precision::Fp16, 512),
    ("sd-1.5", Some("controlnet-sd15"), "-", Precision::Fp16, 512),
    ("sdxl", None, "8 / 12", Precision::Fp16, 1024),
    ("sdxl", Some("controlnet-sdxl"), "12 / 16", Precision::Fp16, 1024),
    ("flux.1-dev", None, "16 / 24", Precision::Bf16, 1024),
];

const TOP: &str = "\
# Memory of models: the numbers of guides, and what they should be

Made by `oomph plan --guide`. GB is 10^9 bytes, GiB 2^30. Guides print weights times bytes, mostly. Ours is the peak of a
PyTorch process on an A100 with 80 GB (as if it had enough), the CUDA context included, with the interval in which it lies.
The last column is what has to be added to the guide's figure (or taken from it).

## Llama 2, running

One prompt of 64 tokens. What a long context adds is its cache: 0.5 MiB a token at 7 B, 0.8 at 13 B, 0.3 at 70 B (16 bits).

";

const MIDDLE: &str = "
## Llama 2, training all weights

One sample of 2048 tokens, AdamW. 56, 104 and 560 GB are eight bytes a parameter: weights, gradients and two moments in 16
bits, and nothing else. Autocast keeps all four in 32 bits, 16 bytes a parameter. Activations come on top, and nearly go
with checkpointing.

";

const TUNED: &str = "
## Llama 2, fine-tuning

One sample of 2048 tokens. Guides give 20, 40 and 200 GB to \"fine-tuning in fp16\". That is what LoRA on 16-bit weights takes
with checkpointing; all weights take nearly three times as much even in bf16.

";

const PICTURES: &str = "
## Stable Diffusion and Flux

One image, the safety checker of SD 1.5 included, GiB. \"All\": everything on the card. \"Networks\":
`enable_model_cpu_offload`, one network at a time on the card. \"Modules\": `enable_sequential_cpu_offload`, which is many
times slower. \"Tiles\": modules, and the image decoded in tiles. \"NF4\": the large networks in 4 bits, all on the card.

| pipeline | guides say, GB | all | networks | modules | tiles | NF4 |
|---|---|---|---|---|---|---|
";

/// The page, in Markdown. Every figure of ours is computed when the page is made.
#[must_use]
pub fn page() -> String {
    let mut text = String::from(TOP);
    let Some(card) = Catalogue::builtin().get("a100-80gb").map(CardCost::of) else { return text };
    language(&mut text, &RUNNING, card);
    text.push_str(MIDDLE);
    language(&mut text, &TRAINING, card);
    text.push_str(TUNED);
    language(&mut text, &TUNING, card);
    text.push_str(PICTURES);
    for image in IMAGES {
        pictures(&mut text, image, card);
    }
    text
}

fn gb(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

fn language(text: &mut String, rows: &[Row], card: CardCost) {
    text.push_str("| model | how | guides say, GB | weights, GB | the process, GB | between | correction |\n");
    text.push_str("|---|---|---|---|---|---|---|\n");
    for (index, name) in LLAMA.into_iter().enumerate() {
        for (how, says, task, precision, checkpointing) in rows {
            let length = if task.trains() { 2048 } else { 64 };
            let workload = Workload {
                task: *task,
                precision: *precision,
                checkpointing: *checkpointing,
                length,
                ..Workload::default()
            };
            let Some(answer) = transformer(name, &workload, card) else { continue };
            let weights = gb(answer.owners[crate::TapeOwner::Weights as usize]);
            let [low, expected, high] = [answer.total.low, answer.total.expected, answer.total.high].map(gb);
            let says = says.map(|says| says[index]);
            let published = says.map_or("-".to_owned(), |says| says.to_string());
            let correction = says.map_or("-".to_owned(), |says| format!("{:+.0} %", 100.0 * (expected / says - 1.0)));
            let _ = writeln!(
                text,
                "| {name} | {how} | {published} | {weights:.2} | {expected:.1} | {low:.1} to {high:.1} | {correction} |"
            );
        }
    }
}

fn transformer(name: &str, workload: &Workload, card: CardCost) -> Option<Estimate> {
    let model = Library::builtin().model(name).ok()?;
    let architecture = model.components.first()?.architecture.clone()?;
    let Architecture::Transformer(shape) = architecture else { return None };
    Some(estimate(&Subject::Transformer { shape, stored: None }, workload, card))
}

fn pictures(
    text: &mut String,
    (name, control, says, precision, side): (&str, Option<&str>, &str, Precision, u64),
    card: CardCost,
) {
    let Ok(model) = Library::builtin().model(name) else { return };
    let mut pipeline = Pipeline::of(&model.components);
    if let Some(control) = control.and_then(|control| Library::builtin().model(control).ok()) {
        pipeline.networks.extend(Pipeline::of(&control.components).networks);
    }
    let subject = Subject::Pipeline(Box::new(pipeline));
    let figure = |precision: Precision, offload: Offloading, tiling: bool| {
        let mut workload = Workload { task: Task::Image, precision, ..Workload::default() };
        (workload.image.width, workload.image.height) = (side, side);
        (workload.image.offload, workload.image.tiling) = (offload, tiling);
        let total = estimate(&subject, &workload, card).total.expected;
        format!("{:.1}", total as f64 / 1_073_741_824.0)
    };
    let suffix = if control.is_some() { " + ControlNet" } else { "" };
    let _ = writeln!(
        text,
        "| {name}{suffix}, {}, {side} x {side} | {says} | {} | {} | {} | {} | {} |",
        precision.name(),
        figure(precision, Offloading::None, false),
        figure(precision, Offloading::Model, false),
        figure(precision, Offloading::Sequential, false),
        figure(precision, Offloading::Sequential, true),
        figure(Precision::Nf4, Offloading::None, false),
    );
}
