//! Turns a row of a published table into a workload.

use oomph_model::{Architecture, Library, Model};

use crate::estimate::Subject;
use crate::pipeline::Pipeline;
use crate::workload::{Attention, Image, Lora, Offloading, Optimizer, Precision, Targets, Task, Workload};

/// A row that can be planned.
pub(super) struct Described {
    /// The model.
    pub subject: Subject,
    /// What is done with it.
    pub workload: Workload,
    /// Whether batch or length are not given, and the least is taken.
    pub least: bool,
}

/// The least length of a row that does not give one.
const LEAST_LENGTH: u64 = 64;

/// Words of techniques that no plan is made for.
const NOT_PLANNED: [&str; 14] = [
    "tome",
    "compile",
    "fsdp",
    "zero",
    "quanto",
    "fp8",
    "unsloth",
    "float8",
    "tiny autoencoder",
    "precomputed",
    "cached",
    "gguf",
    "torchao",
    "layerwise",
];

/// The name under which the library has a model of the tables.
fn library_name(name: &str) -> String {
    let plain = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
    let plain = plain.split(" (").next().unwrap_or_default().replace(' ', "-");
    match plain.as_str() {
        "sdxl-base-1.0" => "sdxl".into(),
        "stable-diffusion-v1-5" | "stable-diffusion-v1-4" => "sd-1.5".into(),
        "pixart-sigma-xl-2-1024" => "pixart-sigma".into(),
        "vicuna-7b" => "llama-2-7b".into(),
        "vicuna-13b" => "llama-2-13b".into(),
        // T0 is T5 1.1 trained further, and BLOOMZ is BLOOM.
        "t0_3b" => "flan-t5-xl".into(),
        "bloomz-7b1" => "bloom-7b1".into(),
        other => other.trim_end_matches("-hf").trim_end_matches("-instruct").into(),
    }
}

fn subject(model: &Model) -> Option<Subject> {
    if let [part] = model.components.as_slice() {
        let Some(Architecture::Transformer(shape)) = &part.architecture else { return None };
        return Some(Subject::Transformer { shape: shape.clone(), stored: None });
    }
    let mut pipeline = Pipeline::of(&model.components);
    // Tables of diffusers are made without it.
    pipeline.networks.retain(|network| !network.name.contains("safety"));
    pipeline.denoises().then(|| Subject::Pipeline(Box::new(pipeline)))
}

/// What a row describes, or why it does not say enough.
pub(super) fn described<'a>(text: &impl Fn(&str) -> &'a str) -> Result<Described, &'static str> {
    let model = Library::builtin().model(&library_name(text("model"))).map_err(|_| "the model is not built in")?;
    let subject = subject(&model).ok_or("the model is of a kind that is not planned")?;
    if text("n_gpu") != "1" && !text("n_gpu").is_empty() {
        return Err("on several cards, whose split is not given");
    }
    let words = format!("{} {} {}", text("details"), text("quant"), text("task")).to_ascii_lowercase();
    if NOT_PLANNED.iter().any(|word| words.contains(word)) {
        return Err("with a technique that is not planned");
    }
    if text("framework").contains("vLLM") {
        return Err("a server's own accounting");
    }
    match subject {
        Subject::Pipeline(_) => pipeline(subject, text, &words),
        Subject::Transformer { .. } => transformer(subject, text, &words),
    }
}

fn pipeline<'a>(subject: Subject, text: &impl Fn(&str) -> &'a str, words: &str) -> Result<Described, &'static str> {
    let task = match text("task") {
        "text-to-image" => Task::Image,
        "LoRA" | "LoRA fine-tune" => Task::Lora,
        "QLoRA fine-tune" => Task::Qlora,
        "full finetune" => Task::Full,
        _ => return Err("a task that is not planned for pipelines"),
    };
    let (width, height) = text("seq_or_resolution").split_once('x').ok_or("the resolution is not given")?;
    let side = |text: &str| text.trim().parse::<u64>().map_err(|_| "the resolution is not given");
    let offload = match () {
        () if words.contains("sequential") => Offloading::Sequential,
        () if words.contains("offload") => Offloading::Model,
        () => Offloading::None,
    };
    let slicing = words.contains("vae slicing");
    let image = Image { width: side(width)?, height: side(height)?, offload, slicing, ..Image::default() };
    let precision = match (text("dtype"), text("quant").to_ascii_lowercase()) {
        (_, quant) if quant.contains("4-bit") || quant.contains("nf4") => Precision::Nf4,
        (_, quant) if quant.contains("8-bit") || quant.contains("int8") => Precision::Int8,
        (_, quant) if quant.contains("int4") => return Err("with a technique that is not planned"),
        ("fp32", _) => Precision::Fp32,
        (dtype, _) if task.trains() && dtype.contains("mixed") => Precision::AmpFp16,
        (dtype, _) if dtype.starts_with("bf16") => Precision::Bf16,
        _ => Precision::Fp16,
    };
    if words.contains("t5") || words.contains("transformer") {
        return Err("with one network quantized or left out");
    }
    // Before PyTorch 2 diffusers wrote attention out, unless xFormers was there.
    let fused = words.contains("xformers") || !text("framework").contains("torch 1.");
    let batch = text("batch").parse::<u64>().map_err(|_| "the number of images is not given")?;
    let workload = Workload {
        task,
        precision,
        batch,
        image,
        attention: if fused { Attention::Sdpa } else { Attention::Eager },
        checkpointing: text("act_checkpointing") == "yes",
        optimizer: Optimizer::AdamwForeach,
        lora: Lora { rank: rank(words).unwrap_or(4), targets: Targets::Default, dropout: false },
        ..Workload::default()
    };
    Ok(Described { subject, workload, least: false })
}

/// The rank that a row's details tell.
fn rank(words: &str) -> Option<u64> {
    words.split_once("rank ")?.1.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn transformer<'a>(subject: Subject, text: &impl Fn(&str) -> &'a str, words: &str) -> Result<Described, &'static str> {
    if words.contains("offload") || words.contains("dpo") || words.contains("gptq") {
        return Err("with a technique that is not planned");
    }
    let numbers: Vec<u64> = text("seq_or_resolution").split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let oom = text("outcome").starts_with("OOM");
    let batch = text("batch").parse::<u64>().ok();
    let length = numbers.first().copied();
    let least = (batch.is_none() || length.is_none()) && oom;
    let (batch, length) = if least {
        (batch.unwrap_or(1), length.unwrap_or(LEAST_LENGTH))
    } else {
        (batch.ok_or("the batch is not given")?, length.ok_or("the length is not given")?)
    };
    let quant = text("quant").to_ascii_lowercase();
    let (int8, four) = (quant.contains("int8"), quant.contains("4bit") || quant.contains("4-bit"));
    let mut new_tokens = 0;
    if text("task") == "QLoRA/LoRA fine-tune" {
        // Of 2023: no fused attention in Llama yet, and other kernels of bitsandbytes than today's.
        return Err("with software of another time, whose versions are not given");
    }
    let (task, precision) = match text("task") {
        "QLoRA fine-tune" | "QLoRA" | "QLoRA fine-tune, max context that fits" => {
            if int8 {
                (Task::Lora, Precision::Int8)
            } else {
                (Task::Qlora, Precision::AmpBf16)
            }
        }
        "LoRA" | "LoRA fine-tune" => (Task::Lora, Precision::Bf16),
        "full finetune" | "pretrain" => {
            (Task::Full, if text("dtype") == "bf16" { Precision::Bf16 } else { Precision::AmpBf16 })
        }
        "inference prefill" => (Task::Generate, if four { Precision::Nf4 } else { Precision::Fp16 }),
        "LLM inference prefill+decode" => {
            new_tokens = numbers.get(1).copied().unwrap_or(0);
            // AWQ packs 128 weights with a scale and a zero: 4.16 bits, NF4 takes 4.5.
            (Task::Generate, if quant.contains("awq") { Precision::Nf4 } else { Precision::Fp16 })
        }
        _ => return Err("a task that is not planned"),
    };
    let optimizer = match text("optimizer") {
        "" | "AdamW" | "adamw" => Optimizer::AdamwFused,
        name if name.contains('8') => Optimizer::Adamw8bit,
        _ => return Err("with an optimizer that is not planned"),
    };
    let rank = rank(words).unwrap_or(8);
    let targets = if words.contains("all") { Targets::AllLinear } else { Targets::Default };
    let workload = Workload {
        task,
        precision,
        batch,
        length,
        new_tokens,
        optimizer,
        // LLaMA-Factory checkpoints unless it is configured not to.
        checkpointing: matches!(text("act_checkpointing"), "yes" | "full") || text("family") == "LLaMA-Factory",
        lora: Lora { rank, targets, dropout: false },
        ..Workload::default()
    };
    Ok(Described { subject, workload, least })
}
