//! `oomph plan`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use oomph_gpu::size::Size;
use oomph_model::gguf::Recipe;
use oomph_plan::Optimizer;

use super::{FormatArgs, PageArgs};
use crate::syntax::{
    NamedCards, Syntax, Typed, capacity, counted_cards, optimizer, planned_cards, recipe, resolution, typed,
};

pub(super) const HELP: &str = "\
Examples:
  Does fine-tuning with QLoRA fit on one card?
      oomph plan llama-3-8b --task qlora --batch 2 --seq 4096 --gpu rtx-4090

  Full training on eight cards with ZeRO-3:
      oomph plan ./my-model/ --task full --gpus 8xh100 --zero 3

  The same with FSDP, and a model too large for one card split over two:
      oomph plan llama-3.2-3b --task full --gpus 8xh100 --fsdp
      oomph plan qwen2.5-14b --task generate --gpu rtx-4090:2

  Preferences, and an evaluation whose logits are gathered on the card:
      oomph plan qwen2.5-1.5b --task dpo --batch 8 --seq 2048 --gpu a100-80gb
      oomph plan qwen2.5-0.5b --task evaluate --batch 4 --samples 150

  A GGUF file and its context:
      oomph plan model.Q4_K_M.gguf --context 32768 --gpu rtx-3060
      oomph plan llama-3.1-8b --gguf Q4_K_M --context 32768 --kv-cache q8_0

  A server: how many requests at a time, and how long?
      oomph plan qwen2.5-7b --task serve --batch 16 --context 8192 --gpu l4

  The sum term by term, and the usual table of cards and precisions:
      oomph plan llama-2-7b --task full --explain
      oomph plan llama-2-7b --table

  Images, and a LoRA for the model that makes them:
      oomph plan sdxl --controlnet controlnet-sdxl --images 4 --gpu rtx-4070
      oomph plan sdxl --task lora --resolution 1024 --checkpointing

  The plan as a program, and a dry run of it:
      oomph plan llama-3-8b --task lora --script lora.py --verify

MODEL is a folder, a file, a built-in name, or a name on the Hub. For a name on
the Hub oomph reads only headers, from the local cache or over the network, and
no weights. Nothing is run without --verify. Sizes are in GiB of 2^30 bytes;
figures are the peak of the process on one card, including the CUDA context.

Exit status:
  0    it fits, the card's size lies within the interval, or no card was given
  1    it does not fit
  2    wrong usage, or the model is unknown or unreadable";

/// What `oomph plan` takes.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// The model: a folder, a file, or a name
    #[arg(value_name = "MODEL", required_unless_present = "guide")]
    pub model: Option<String>,

    /// The task
    #[arg(long, value_enum)]
    pub task: Option<TaskArg>,

    /// Which weights dpo, grpo, ppo, reward and contrastive train [default: full]
    #[arg(long, value_enum)]
    pub method: Option<MethodArg>,

    /// Samples (or images) per batch [default: 1; 8 for grpo, as in TRL]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub batch: Option<u64>,

    /// Sequence length in tokens
    #[arg(long, visible_alias = "context", value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub seq: Option<u64>,

    /// Tokens to generate [default: 128; 256 for grpo and ppo]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=100_000_000))]
    pub new_tokens: Option<u64>,

    /// Samples of the evaluation set
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub samples: u64,

    /// Precision of weights and computation [default: bf16 for inference and LoRA, amp-bf16 for full training]
    #[arg(long, value_enum, visible_alias = "dtype")]
    pub precision: Option<PrecisionArg>,

    /// Plan for llama.cpp with a GGUF file of this quantization: Q4_K_M, Q8_0, ...
    #[arg(long, value_name = "NAME", value_parser = Syntax(recipe))]
    pub gguf: Option<Recipe>,

    /// Precision of a server's KV cache [default: f16]
    #[arg(long, value_enum)]
    pub kv_cache: Option<CacheArg>,

    /// The optimizer [default: adamw-fused]
    #[arg(long, value_name = "NAME", value_parser = Syntax(optimizer))]
    pub optimizer: Option<Optimizer>,

    /// Checkpoint every layer [default for qlora, dpo, grpo and reward, as in PEFT and TRL]
    #[arg(long, visible_alias = "gradient-checkpointing")]
    pub checkpointing: bool,

    /// Checkpoint no layer
    #[arg(long, conflicts_with = "checkpointing")]
    pub no_checkpointing: bool,

    /// Use eager attention, without the fused kernel
    #[arg(long)]
    pub eager: bool,

    /// The batch is padded, so attention takes a mask
    #[arg(long)]
    pub padding: bool,

    /// LoRA rank
    #[arg(long, value_name = "R", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub lora_rank: u64,

    /// Adapt only PEFT's default target modules, not every linear layer
    #[arg(long)]
    pub lora_default_targets: bool,

    /// Micro-batches per optimizer step
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub accumulation: u64,

    /// A card, NAME or NAME:COUNT
    #[arg(long, value_name = "NAME[:COUNT]", value_parser = Syntax(planned_cards))]
    pub gpu: Option<NamedCards>,

    /// Give the card this much memory instead of its own
    #[arg(long, value_name = "SIZE", value_parser = Syntax(typed(capacity)))]
    pub vram: Option<Typed<Size>>,

    /// Several cards, as 8xh100
    #[arg(long, value_name = "COUNTxNAME", value_parser = Syntax(counted_cards), conflicts_with = "gpu")]
    pub gpus: Option<NamedCards>,

    /// DeepSpeed ZeRO stage
    #[arg(long, value_name = "STAGE", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=3))]
    pub zero: u8,

    /// Shard parameters, gradients and optimizer with FSDP (`fully_shard`)
    #[arg(long, conflicts_with = "zero")]
    pub fsdp: bool,

    /// Tensor parallel degree
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub tensor_parallel: u64,

    /// Pipeline stages
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub pipeline_parallel: u64,

    /// Sequence (or context) parallel degree
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub sequence_parallel: u64,

    /// Offload to host memory
    #[arg(long, value_enum, value_name = "WHAT")]
    pub offload: Vec<OffloadArg>,

    /// Pixels along a side of the image, or WIDTHxHEIGHT
    #[arg(long, value_name = "PIXELS", value_parser = Syntax(resolution))]
    pub resolution: Option<(u64, u64)>,

    /// Images per batch
    #[arg(long, value_name = "N", conflicts_with = "batch", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub images: Option<u64>,

    /// Frames of a video [default: 81 for models of videos]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub frames: Option<u64>,

    /// A ControlNet to run with the UNet: a folder, a file, or a name
    #[arg(long, value_name = "MODEL")]
    pub controlnet: Option<String>,

    /// The autoencoder takes one image at a time
    #[arg(long)]
    pub vae_slicing: bool,

    /// The autoencoder works in tiles
    #[arg(long)]
    pub vae_tiling: bool,

    /// Show the sum term by term
    #[arg(long)]
    pub explain: bool,

    /// Show which cards it fits on in which precision
    #[arg(long)]
    pub table: bool,

    /// Show the settings to paste for a framework
    #[arg(long, value_enum, value_name = "FRAMEWORK")]
    pub config: Option<ConfigArg>,

    /// Write the plan to FILE as a small program
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,

    /// Run that program on the virtual GPU, and show both figures
    #[arg(long)]
    pub verify: bool,

    /// Verify in an environment with this package (any pip requirement; repeatable)
    #[arg(long, value_name = "PKG", requires = "verify")]
    pub with: Vec<String>,

    /// The answer as a page.
    #[command(flatten)]
    pub page: PageArgs,

    /// How the answer is written.
    #[command(flatten)]
    pub format: FormatArgs,

    /// Write the documentation's page of model sizes
    #[arg(long, hide = true)]
    pub guide: bool,
}

/// The task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TaskArg {
    /// One forward pass
    Inference,
    /// Text generation, token by token
    Generate,
    /// A text server: vLLM, or llama.cpp for GGUF
    Serve,
    /// Train all weights
    Full,
    /// Train adapters
    Lora,
    /// Train adapters on 4-bit weights
    Qlora,
    /// Train only the output layer
    Freeze,
    /// Pairs of answers and a reference model (TRL)
    Dpo,
    /// Groups of answers that the model writes (TRL)
    Grpo,
    /// A policy, a value model, a reference and a reward model
    Ppo,
    /// A reward model over pairs of answers (TRL)
    Reward,
    /// Embeddings of pairs of texts (sentence-transformers)
    Contrastive,
    /// An evaluation of HF Trainer, its logits gathered on the card
    Evaluate,
    /// Images from text
    #[value(alias = "txt2img")]
    Image,
}

/// Which weights are trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MethodArg {
    /// All weights
    Full,
    /// Adapters
    Lora,
    /// Train adapters on 4-bit weights
    Qlora,
}

/// The precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum PrecisionArg {
    Fp32,
    AmpBf16,
    AmpFp16,
    Bf16,
    Fp16,
    Int8,
    Nf4,
}

/// The precision of a server's KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CacheArg {
    /// 16 bits
    F16,
    /// 8 bits (vLLM)
    Fp8,
    /// 8 bits and a scale for each 32 (llama.cpp)
    #[value(name = "q8_0")]
    Q8,
    /// 4 bits and a scale for each 32 (llama.cpp)
    #[value(name = "q4_0")]
    Q4,
}

impl CacheArg {
    /// Bytes of a number.
    #[must_use]
    pub fn bytes(self) -> f64 {
        match self {
            Self::F16 => 2.0,
            Self::Fp8 => 1.0,
            Self::Q8 => 34.0 / 32.0,
            Self::Q4 => 18.0 / 32.0,
        }
    }
}

/// What to offload to host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OffloadArg {
    /// The optimizer's state
    Optimizer,
    /// Weights (or a pipeline's networks, one at a time on the card)
    Weights,
    /// A pipeline's modules, one at a time on the card
    Sequential,
}

/// A framework whose settings are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConfigArg {
    /// TrainingArguments of transformers
    Trainer,
    /// accelerate's YAML
    Accelerate,
    /// DeepSpeed's JSON
    Deepspeed,
    /// BitsAndBytesConfig
    Bnb,
    /// llama.cpp's command line
    #[value(name = "llama.cpp")]
    LlamaCpp,
    /// vLLM's command line
    Vllm,
    /// diffusers
    Diffusers,
    /// AUTOMATIC1111's command line
    A1111,
    /// ComfyUI's command line
    Comfyui,
}
