//! Measurements that others published, where they say enough to be planned.

use std::collections::HashMap;

use oomph_gpu::Catalogue;
use oomph_model::{Architecture, Library, Model};

use crate::estimate::{CardCost, Estimate, Subject, estimate};
use crate::pipeline::Pipeline;
use crate::workload::{Image, Optimizer, Precision, Task, Workload};

/// One published measurement, as far as it could be planned.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Its number in the file.
    pub id: String,
    /// Whose table it is from.
    pub family: String,
    /// The model as the table calls it.
    pub model: String,
    /// What was measured, in bytes; `None` where only whether it fitted is known.
    pub bytes: Option<u64>,
    /// Whether it ran out of memory.
    pub oom: bool,
    /// The capacity of the card, where the catalogue has it, in bytes.
    pub capacity: Option<u64>,
    /// What is said of it, or why nothing can be.
    pub planned: Result<Estimate, &'static str>,
}

/// Splits a line of a CSV file, whose cells may be quoted.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                cell.push('"');
                characters.next();
            }
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(std::mem::take(&mut cell)),
            other => cell.push(other),
        }
    }
    cells.push(cell);
    cells
}

/// Reads the file and plans every row that says enough.
#[must_use]
pub fn read(text: &str) -> Vec<Measured> {
    let mut lines = text.lines();
    let columns = cells(lines.next().unwrap_or_default());
    lines
        .map(|line| {
            let row: HashMap<&str, String> = columns.iter().map(String::as_str).zip(cells(line)).collect();
            measured(&row)
        })
        .collect()
}

fn measured(row: &HashMap<&str, String>) -> Measured {
    let text = |name: &str| row.get(name).map_or("", String::as_str).trim();
    let unit = match text("unit") {
        "GB" => 1e9,
        "MB" => 1e6,
        "MiB" => 1_048_576.0,
        _ => 1_073_741_824.0,
    };
    let binary = text("notes").contains("1024**3");
    let unit = if binary { 1_073_741_824.0 } else { unit };
    let frontier = text("metric").contains("frontier") || text("notes").contains("card size");
    let bytes = text("value").parse::<f64>().ok().filter(|_| !frontier).map(|value| (value * unit) as u64);
    let gpu = Catalogue::builtin().find(&text("gpu").replace(" 16GB", "")).ok();
    let planned = workload(&text).and_then(|(subject, workload)| {
        let card = gpu.or_else(|| Catalogue::builtin().get("a100-80gb")).map(CardCost::of).ok_or("no card")?;
        Ok(estimate(&subject, &workload, card))
    });
    Measured {
        id: text("id").into(),
        family: text("family").into(),
        model: text("model").into(),
        bytes,
        oom: text("outcome").starts_with("OOM"),
        capacity: gpu.map(|gpu| gpu.capacity_bytes),
        planned,
    }
}

/// The name under which the library has a model of the tables.
fn library_name(name: &str) -> String {
    let plain = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase().replace(' ', "-");
    match plain.as_str() {
        "llama2-7b" => "llama-2-7b".into(),
        "sdxl-base-1.0" => "sdxl".into(),
        "stable-diffusion-v1-5" => "sd-1.5".into(),
        "pixart-sigma-xl-2-1024" => "pixart-sigma".into(),
        "llama-3.1-8b-instruct" | "llama-3.1-8b" => "llama-3.1-8b".into(),
        other => other.into(),
    }
}

fn subject(model: &Model) -> Option<Subject> {
    if let [part] = model.components.as_slice() {
        let Some(Architecture::Transformer(shape)) = &part.architecture else { return None };
        return Some(Subject::Transformer { shape: shape.clone(), stored: None });
    }
    let pipeline = Pipeline::of(&model.components);
    pipeline.denoises().then(|| Subject::Pipeline(Box::new(pipeline)))
}

/// What a row describes, or why it does not say enough.
fn workload<'a>(text: &impl Fn(&str) -> &'a str) -> Result<(Subject, Workload), &'static str> {
    let model = Library::builtin().model(&library_name(text("model"))).map_err(|_| "the model is not built in")?;
    let subject = subject(&model).ok_or("the model is of a kind that is not planned")?;
    let (task, quant, dtype) = (text("task"), text("quant"), text("dtype"));
    let batch = text("batch").parse::<u64>().ok();
    let details = text("details").to_ascii_lowercase();
    if text("n_gpu") != "1" {
        return Err("on several cards, whose split is not told");
    }
    if ["tome", "offload", "compile", "fsdp", "zero", "int8", "quanto", "fp8", "unsloth"]
        .iter()
        .any(|word| details.contains(word) || quant.to_ascii_lowercase().contains(word))
    {
        return Err("with a technique that is not planned");
    }
    if let Subject::Pipeline(_) = subject {
        if task != "text-to-image" || !quant.is_empty() {
            return Err("a task that is not planned for pipelines");
        }
        let size = text("seq_or_resolution");
        let (width, height) = size.split_once('x').ok_or("the resolution is not told")?;
        let side = |text: &str| text.parse::<u64>().map_err(|_| "the resolution is not told");
        let image = Image { width: side(width)?, height: side(height)?, ..Image::default() };
        let precision = match dtype {
            "fp32" => Precision::Fp32,
            "bf16" => Precision::Bf16,
            _ => Precision::Fp16,
        };
        let batch = batch.ok_or("the number of images is not told")?;
        return Ok((subject, Workload { task: Task::Image, precision, batch, image, ..Workload::default() }));
    }
    let length = text("seq_or_resolution").split_whitespace().next().and_then(|first| first.parse::<u64>().ok());
    let (batch, length) = (batch.ok_or("the batch is not told")?, length.ok_or("the length is not told")?);
    let (task, precision) = match task {
        "QLoRA fine-tune" | "QLoRA" => (Task::Qlora, Precision::AmpBf16),
        "LoRA" => (Task::Lora, Precision::Bf16),
        "full finetune" | "pretrain" => {
            (Task::Full, if dtype == "bf16" { Precision::Bf16 } else { Precision::AmpBf16 })
        }
        _ => return Err("a task that is not planned"),
    };
    let optimizer = match text("optimizer") {
        "" | "AdamW" | "adamw" => Optimizer::AdamwFused,
        name if name.contains("8") => Optimizer::Adamw8bit,
        _ => return Err("with an optimizer that is not planned"),
    };
    let checkpointing = matches!(text("act_checkpointing"), "yes" | "full");
    Ok((subject, Workload { task, precision, batch, length, optimizer, checkpointing, ..Workload::default() }))
}
