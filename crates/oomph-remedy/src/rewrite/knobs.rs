//! Reads the settings on a command line and in its file: batch, accumulation, length, context, share of the card.

use super::arguments::{Takes, places};
use super::config::{self, Config};
use super::line::Line;
use super::program::Program;
use crate::framework::Framework;
use crate::situation::Settings;

/// A setting of a run.
#[derive(Clone, Copy)]
enum Knob {
    Batch,
    Accumulation,
    Length,
    Context,
    Sequences,
    Utilization,
    Layers,
    Resolution,
}

/// Where a setting is written, and what holds where it is not given. A default that differs from script to script is
/// left out: halving a guess would be a lie.
const KNOBS: &[(Framework, Knob, &str, Option<&str>)] = &[
    (Framework::Transformers, Knob::Batch, "--per_device_train_batch_size", Some("8")),
    (Framework::Transformers, Knob::Accumulation, "--gradient_accumulation_steps", Some("1")),
    (Framework::Transformers, Knob::Length, "--max_seq_length", None),
    (Framework::Trl, Knob::Batch, "--per_device_train_batch_size", Some("8")),
    (Framework::Trl, Knob::Accumulation, "--gradient_accumulation_steps", Some("1")),
    (Framework::Trl, Knob::Length, "--max_length", None),
    (Framework::DiffusersScripts, Knob::Batch, "--train_batch_size", None),
    (Framework::DiffusersScripts, Knob::Accumulation, "--gradient_accumulation_steps", Some("1")),
    (Framework::DiffusersScripts, Knob::Resolution, "--resolution", None),
    (Framework::Kohya, Knob::Batch, "--train_batch_size", Some("1")),
    (Framework::Kohya, Knob::Accumulation, "--gradient_accumulation_steps", Some("1")),
    (Framework::Kohya, Knob::Resolution, "--resolution", None),
    (Framework::Torchtune, Knob::Batch, "batch_size", None),
    (Framework::Torchtune, Knob::Accumulation, "gradient_accumulation_steps", None),
    (Framework::Torchtune, Knob::Length, "tokenizer.max_seq_len", None),
    (Framework::LlamaFactory, Knob::Batch, "per_device_train_batch_size", None),
    (Framework::LlamaFactory, Knob::Accumulation, "gradient_accumulation_steps", None),
    (Framework::LlamaFactory, Knob::Length, "cutoff_len", None),
    (Framework::Axolotl, Knob::Batch, "--micro-batch-size", None),
    (Framework::Axolotl, Knob::Accumulation, "--gradient-accumulation-steps", None),
    (Framework::Axolotl, Knob::Length, "--sequence-len", None),
    (Framework::Timm, Knob::Batch, "--batch-size", Some("128")),
    (Framework::Timm, Knob::Accumulation, "--grad-accum-steps", Some("1")),
    (Framework::Timm, Knob::Resolution, "--img-size", None),
    (Framework::Ultralytics, Knob::Batch, "batch", Some("16")),
    (Framework::Ultralytics, Knob::Resolution, "imgsz", Some("640")),
    (Framework::Detectron2, Knob::Batch, "SOLVER.IMS_PER_BATCH", None),
    (Framework::Fairseq, Knob::Batch, "--batch-size", None),
    (Framework::Fairseq, Knob::Accumulation, "--update-freq", Some("1")),
    (Framework::Fairseq, Knob::Length, "--tokens-per-sample", None),
    (Framework::Megatron, Knob::Batch, "--micro-batch-size", None),
    (Framework::Megatron, Knob::Length, "--seq-length", None),
    (Framework::Vllm, Knob::Context, "--max-model-len", None),
    (Framework::Vllm, Knob::Sequences, "--max-num-seqs", None),
    (Framework::Vllm, Knob::Utilization, "--gpu-memory-utilization", None),
    (Framework::Sglang, Knob::Context, "--context-length", None),
    (Framework::Sglang, Knob::Sequences, "--max-running-requests", None),
    (Framework::Sglang, Knob::Utilization, "--mem-fraction-static", None),
    (Framework::Tgi, Knob::Context, "--max-total-tokens", None),
    (Framework::TensorrtLlm, Knob::Context, "--max_seq_len", None),
    (Framework::TensorrtLlm, Knob::Batch, "--max_batch_size", None),
    (Framework::TensorrtLlm, Knob::Sequences, "--max_batch_size", None),
    (Framework::LlamaCpp, Knob::Context, "-c", None),
    (Framework::LlamaCpp, Knob::Layers, "-ngl", None),
    (Framework::VqganClip, Knob::Resolution, "-s", None),
];

/// Puts what the command line says into the settings, and where it says nothing, what the program's file does. The last
/// of several counts; what cannot be read is left out.
pub fn read(line: &Line, program: &Program, config: Option<&Config>, settings: &mut Settings) {
    let words = &line.words;
    let document = config.and_then(|config| line.document(&config.name));
    for (_, knob, name, default) in KNOBS.iter().filter(|(framework, ..)| *framework == program.framework) {
        let found = places(words, &program.arguments, program.framework, name, Takes::Anything).pop();
        let behind = found.as_ref().and_then(|place| words[..program.arguments.end].get(place.words.end));
        let in_file = || config::setting(document?, program.framework, name);
        let given = found.and_then(|place| place.value).or_else(in_file);
        let Some(value) = given.as_deref().or(*default) else { continue };
        let count = || value.parse::<u64>().ok();
        match knob {
            // A batch of -1 or a share of the card (Ultralytics) is the program's own search, and no number to halve.
            Knob::Batch => settings.batch_size = count().filter(|&batch| batch > 0),
            Knob::Accumulation => settings.gradient_accumulation = count(),
            Knob::Length => settings.sequence_length = count(),
            Knob::Context => settings.context_length = count().filter(|&context| context > 0),
            Knob::Sequences => settings.concurrent_sequences = count(),
            Knob::Utilization => settings.memory_utilization = value.parse().ok(),
            Knob::Layers => settings.gpu_layers = count(),
            Knob::Resolution => {
                let (width, height) = value.split_once(',').unwrap_or((value, value));
                // VQGAN-CLIP's two numbers are two words.
                let height =
                    behind.filter(|_| program.framework == Framework::VqganClip).map_or(height, String::as_str);
                settings.resolution = width.trim().parse().ok().zip(height.trim().parse().ok());
            }
        }
    }
}
