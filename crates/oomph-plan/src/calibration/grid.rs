//! Compares readings of real programs on the virtual GPU (`calibration/*.csv`) with estimates for the same settings.

use std::collections::HashMap;

use oomph_model::architecture::{Head, Kind, Transformer};

use crate::run;
use crate::tape::CardTraits;
use crate::workload::{Attention, Image, Lora, Offloading, Optimizer, Precision, Targets, Task, Workload};

/// One setting of the text grid and what was read of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The model's name.
    pub model: String,
    /// What follows the stack.
    pub head: String,
    /// What was done.
    pub workload: Workload,
    /// Peak of allocated bytes.
    pub allocated: u64,
    /// Peak of reserved bytes.
    pub reserved: u64,
    /// Peaks of allocated bytes of the forward pass, the backward pass and the step; 0 where there was none.
    pub phases: [u64; 3],
    /// Bytes of the weights.
    pub weights: u64,
    /// Bytes that the forward pass left for the backward pass.
    pub saved: u64,
}

/// Reads a CSV file of the grid. Rows that cannot be read are left out, with the reason.
#[must_use]
pub fn read(text: &str) -> (Vec<Reading>, Vec<String>) {
    rows(text, reading)
}

fn reading(cells: &HashMap<&str, &str>) -> Option<Reading> {
    let text = |name: &str| cells.get(name).copied();
    let number = |name: &str| text(name)?.parse::<u64>().ok();
    let flag = |name: &str| text(name) == Some("1");
    let task = match text("task")? {
        "full" => Task::Full,
        "lora" => Task::Lora,
        "qlora" => Task::Qlora,
        "forward" => Task::Inference,
        "generate" => Task::Generate,
        _ => return None,
    };
    let precision = match text("dtype")? {
        "fp32" => Precision::Fp32,
        "amp-bf16" => Precision::AmpBf16,
        "bf16" => Precision::Bf16,
        _ => return None,
    };
    let optimizer = match text("optimizer")? {
        "" => Optimizer::AdamwFused,
        name => Optimizer::ALL.iter().find(|(_, known)| *known == name)?.0,
    };
    let workload = Workload {
        task,
        precision,
        batch: number("batch")?,
        length: number("length")?,
        new_tokens: number("new_tokens")?,
        optimizer,
        checkpointing: text("checkpointing")? == "full",
        attention: if text("attention")? == "eager" { Attention::Eager } else { Attention::Sdpa },
        padding: flag("padding"),
        lora: Lora {
            rank: number("lora_rank")?,
            targets: if text("lora_targets")? == "all-linear" { Targets::AllLinear } else { Targets::Default },
            dropout: text("lora_dropout")?.parse::<f64>().ok()? > 0.0,
        },
        double_quantization: flag("double_quant"),
        prepared: flag("kbit_prepare"),
        trainer: text("loop")? == "trainer",
        ..Workload::default()
    };
    Some(Reading {
        model: text("model")?.to_owned(),
        head: text("head")?.to_owned(),
        workload,
        allocated: number("peak_allocated")?,
        reserved: number("peak_reserved")?,
        phases: ["peak_forward", "peak_backward", "peak_step"].map(|name| number(name).unwrap_or(0)),
        weights: number("weights")?,
        saved: number("saved_for_backward").unwrap_or(0),
    })
}

/// One setting of the image grid and what was read of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageReading {
    /// The pipeline's name.
    pub model: String,
    /// What was done.
    pub workload: Workload,
    /// Peak of allocated bytes.
    pub allocated: u64,
    /// Peak of reserved bytes.
    pub reserved: u64,
    /// Peaks of allocated bytes while text was encoded, latents denoised and images decoded.
    pub phases: [u64; 3],
}

/// Reads a CSV file of the image grid.
#[must_use]
pub fn read_images(text: &str) -> (Vec<ImageReading>, Vec<String>) {
    rows(text, image_reading)
}

/// Reads the rows of a CSV file whose cells hold no commas. Those that cannot be read are left out, with the reason.
fn rows<T>(text: &str, read: impl Fn(&HashMap<&str, &str>) -> Option<T>) -> (Vec<T>, Vec<String>) {
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let (mut readings, mut left_out) = (Vec::new(), Vec::new());
    for (number, line) in lines.enumerate() {
        let cells: HashMap<&str, &str> = columns.iter().copied().zip(line.split(',')).collect();
        match read(&cells) {
            Some(reading) => readings.push(reading),
            None => left_out.push(format!("row {}: not understood", number + 2)),
        }
    }
    (readings, left_out)
}

/// Reads a CSV file of the grid of image training.
#[must_use]
pub fn read_training(text: &str) -> (Vec<ImageReading>, Vec<String>) {
    rows(text, training_reading)
}

fn training_reading(cells: &HashMap<&str, &str>) -> Option<ImageReading> {
    let text = |name: &str| cells.get(name).copied();
    let number = |name: &str| text(name)?.parse::<u64>().ok();
    let task = match text("task")? {
        "full" => Task::Full,
        "lora" => Task::Lora,
        _ => return None,
    };
    let workload = Workload {
        task,
        precision: if text("dtype")? == "fp32" { Precision::Fp32 } else { Precision::AmpBf16 },
        batch: number("images")?,
        image: Image { width: number("width")?, height: number("height")?, ..Image::default() },
        optimizer: Optimizer::ALL.iter().find(|(_, known)| Some(*known) == text("optimizer"))?.0,
        checkpointing: text("checkpointing")? == "full",
        lora: Lora { rank: number("lora_rank")?, targets: Targets::Default, dropout: false },
        ..Workload::default()
    };
    Some(ImageReading {
        model: text("model")?.to_owned(),
        workload,
        allocated: number("peak_allocated")?,
        reserved: number("peak_reserved")?,
        phases: ["peak_forward", "peak_backward", "peak_step"].map(|name| number(name).unwrap_or(0)),
    })
}

fn image_reading(cells: &HashMap<&str, &str>) -> Option<ImageReading> {
    let text = |name: &str| cells.get(name).copied();
    let number = |name: &str| text(name)?.parse::<u64>().ok();
    let flag = |name: &str| text(name) == Some("1");
    let precision = match text("dtype")? {
        "fp32" => Precision::Fp32,
        "fp16" => Precision::Fp16,
        "bf16" => Precision::Bf16,
        _ => return None,
    };
    let image = Image {
        width: number("width")?,
        height: number("height")?,
        frames: 1,
        guided: flag("guidance"),
        offload: if text("offload")? == "model" { Offloading::Model } else { Offloading::None },
        slicing: flag("vae_slicing"),
        tiling: flag("vae_tiling"),
    };
    let workload = Workload { task: Task::Image, precision, batch: number("images")?, image, ..Workload::default() };
    Some(ImageReading {
        model: text("model")?.to_owned(),
        workload,
        allocated: number("peak_allocated")?,
        reserved: number("peak_reserved")?,
        phases: ["peak_encode", "peak_denoise", "peak_decode"].map(|name| number(name).unwrap_or(0)),
    })
}

/// What this crate says of a reading's setting.
#[must_use]
pub fn planned(reading: &Reading, shape: &Transformer) -> run::Run {
    let mut shape = shape.clone();
    if shape.kind == Kind::Decoder {
        // The readings are of the language model alone.
        shape.vision = None;
    }
    // The column says "head", or nothing where the model has its usual one.
    match reading.head.as_str() {
        "sequence-classification" => shape.head = Head::Classes(2),
        "image-classification" => shape.head = Head::Classes(1000),
        "masked-lm" => shape.head = Head::MaskedLanguage,
        _ if shape.kind == Kind::Decoder => shape.head = Head::Language,
        _ => {}
    }
    run::transformer(&shape, &reading.workload, CardTraits { capability: 90 }, true)
}
