//! The description of a workload: the task, the model's precision, the batch and the cards.

use serde::Serialize;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// One forward pass without gradients.
    Inference,
    /// Text token by token, with a KV cache.
    Generate,
    /// Text for many at once, by a server (vLLM, llama.cpp).
    Serve,
    /// All weights are trained.
    Full,
    /// Adapters are trained, the weights stay (LoRA).
    Lora,
    /// The same on weights of four bits.
    Qlora,
    /// Only the output layer is trained.
    Freeze,
    /// Images (or a video) from text.
    Image,
    /// What HF Trainer does with an evaluation set: forward passes whose logits are gathered on the card.
    Evaluate,
}

/// What a training run learns from, which decides what a step computes. [`Task`] says which weights are trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// The labels of the samples, as the model's own loss has it.
    #[default]
    Labels,
    /// Pairs of a chosen and a rejected answer, with a reference model (TRL's `DPOTrainer`).
    Dpo,
    /// Groups of answers that the model writes in the run (TRL's `GRPOTrainer`).
    Grpo,
    /// The same with a value model, a reference model and a reward model.
    Ppo,
    /// A score for each of a chosen and a rejected answer (TRL's `RewardTrainer`).
    Reward,
    /// Embeddings of pairs of texts (`MultipleNegativesRankingLoss` of sentence-transformers).
    Contrastive,
}

impl Objective {
    /// The name that is typed, where it is not the labels'.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        match self {
            Objective::Labels => None,
            Objective::Dpo => Some("dpo"),
            Objective::Grpo => Some("grpo"),
            Objective::Ppo => Some("ppo"),
            Objective::Reward => Some("reward"),
            Objective::Contrastive => Some("contrastive"),
        }
    }

    /// How many sequences the model reads at once for one sample.
    #[must_use]
    pub fn sequences(self) -> u64 {
        match self {
            Objective::Dpo | Objective::Reward => 2,
            _ => 1,
        }
    }

    /// Whether the run generates text before it learns from it.
    #[must_use]
    pub fn generates(self) -> bool {
        matches!(self, Objective::Grpo | Objective::Ppo)
    }
}

impl Task {
    /// Whether there is a backward pass.
    #[must_use]
    pub fn trains(self) -> bool {
        matches!(self, Task::Full | Task::Lora | Task::Qlora | Task::Freeze)
    }

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Task::Inference => "inference",
            Task::Generate => "generate",
            Task::Serve => "serve",
            Task::Full => "full",
            Task::Lora => "lora",
            Task::Qlora => "qlora",
            Task::Freeze => "freeze",
            Task::Image => "image",
            Task::Evaluate => "evaluate",
        }
    }
}

/// How numbers are kept and computed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// All in fp32.
    Fp32,
    /// fp32 weights under autocast to bf16. Weights that are not trained are bf16.
    AmpBf16,
    /// fp32 weights under autocast to fp16.
    AmpFp16,
    /// All in bf16.
    Bf16,
    /// All in fp16.
    Fp16,
    /// Weights of linear layers in 8 bits (bitsandbytes).
    Int8,
    /// Weights of linear layers in NF4 (bitsandbytes).
    Nf4,
}

impl Precision {
    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Precision::Fp32 => "fp32",
            Precision::AmpBf16 => "amp-bf16",
            Precision::AmpFp16 => "amp-fp16",
            Precision::Bf16 => "bf16",
            Precision::Fp16 => "fp16",
            Precision::Int8 => "int8",
            Precision::Nf4 => "nf4",
        }
    }

    /// Whether autocast is on in training.
    #[must_use]
    pub fn is_amp(self) -> bool {
        matches!(self, Precision::AmpBf16 | Precision::AmpFp16)
    }
}

/// An optimizer, as far as memory depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Optimizer {
    /// AdamW in one kernel: no temporaries. What Trainer takes.
    AdamwFused,
    /// AdamW over lists of tensors, with temporaries as large as the weights. What `torch.optim.AdamW` takes.
    AdamwForeach,
    /// AdamW with moments of 8 bits (bitsandbytes); tables of embeddings keep 32.
    Adamw8bit,
    /// The same in memory that can be paged to the host.
    PagedAdamw8bit,
    /// AdamW with moments of 4 bits (torchao).
    Adamw4bit,
    /// Adafactor without momentum: a row and a column a matrix.
    Adafactor,
    /// No state.
    Sgd,
    /// One moment.
    SgdMomentum,
    /// One moment.
    Lion,
    /// One moment of 8 bits.
    Lion8bit,
    /// One moment for matrices, AdamW for the rest.
    Muon,
    /// Moments of a low rank (GaLore), as large as rank 128 of each matrix.
    Galore,
}

impl Optimizer {
    /// All, with the name that is typed.
    pub const ALL: [(Optimizer, &'static str); 12] = [
        (Optimizer::AdamwFused, "adamw-fused"),
        (Optimizer::AdamwForeach, "adamw-foreach"),
        (Optimizer::Adamw8bit, "adamw-8bit"),
        (Optimizer::PagedAdamw8bit, "paged-adamw-8bit"),
        (Optimizer::Adamw4bit, "adamw-4bit"),
        (Optimizer::Adafactor, "adafactor"),
        (Optimizer::Sgd, "sgd"),
        (Optimizer::SgdMomentum, "sgd-momentum"),
        (Optimizer::Lion, "lion"),
        (Optimizer::Lion8bit, "lion-8bit"),
        (Optimizer::Muon, "muon"),
        (Optimizer::Galore, "galore"),
    ];

    /// The name that is typed.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(optimizer, _)| *optimizer == self).map_or("", |(_, name)| name)
    }
}

/// How attention is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attention {
    /// Fused, without a matrix of scores.
    Sdpa,
    /// Score by score.
    Eager,
}

/// What LoRA adapts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Targets {
    /// PEFT's choice for the model: queries and values, or the fused projection.
    Default,
    /// Every linear layer but the head.
    AllLinear,
}

/// LoRA's settings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lora {
    /// The rank.
    pub rank: u64,
    /// What is adapted.
    pub targets: Targets,
    /// Whether there is dropout before the adapters.
    pub dropout: bool,
}

/// How the work is spread over cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Parallel {
    /// Cards.
    pub gpus: u64,
    /// ZeRO stage; FSDP's full sharding is 3.
    pub zero: u8,
    /// Whether FSDP shards (`fully_shard` of PyTorch), rather than DeepSpeed.
    pub fsdp: bool,
    /// Tensor parallel degree.
    pub tensor: u64,
    /// Pipeline stages.
    pub pipeline: u64,
    /// Sequence (or context) parallel degree.
    pub sequence: u64,
    /// Whether optimizer states are on the host.
    pub offload_optimizer: bool,
    /// Whether weights are on the host when they are not used.
    pub offload_weights: bool,
}

impl Default for Parallel {
    fn default() -> Self {
        Self {
            gpus: 1,
            zero: 0,
            fsdp: false,
            tensor: 1,
            pipeline: 1,
            sequence: 1,
            offload_optimizer: false,
            offload_weights: false,
        }
    }
}

/// What of a diffusion pipeline waits on the host while it does not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Offloading {
    /// Nothing.
    None,
    /// Whole networks (`enable_model_cpu_offload`).
    Model,
    /// Every module's weights (`enable_sequential_cpu_offload`, or group offload by leaves).
    Sequential,
}

/// How a diffusion pipeline is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Image {
    /// Pixels across.
    pub width: u64,
    /// Pixels down.
    pub height: u64,
    /// Frames; 1 for images.
    pub frames: u64,
    /// Whether each image is denoised with and without the prompt (classifier-free guidance).
    pub guided: bool,
    /// What waits on the host.
    pub offload: Offloading,
    /// Whether the autoencoder takes one image at a time.
    pub slicing: bool,
    /// Whether the autoencoder works in tiles.
    pub tiling: bool,
}

impl Default for Image {
    fn default() -> Self {
        Self {
            width: 1024,
            height: 1024,
            frames: 1,
            guided: true,
            offload: Offloading::None,
            slicing: false,
            tiling: false,
        }
    }
}

/// What is done with a model, in full.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Workload {
    /// What is done.
    pub task: Task,
    /// What training learns from.
    pub objective: Objective,
    /// How numbers are kept.
    pub precision: Precision,
    /// Samples (or images) at a time.
    pub batch: u64,
    /// Tokens of a sample.
    pub length: u64,
    /// Tokens to make.
    pub new_tokens: u64,
    /// Samples of an evaluation set.
    pub samples: u64,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// Whether each layer is checkpointed.
    pub checkpointing: bool,
    /// How attention is computed.
    pub attention: Attention,
    /// Whether samples are padded, so that a mask is given.
    pub padding: bool,
    /// LoRA's settings.
    pub lora: Lora,
    /// Whether NF4's scales are quantized too.
    pub double_quantization: bool,
    /// Whether PEFT's preparation for k-bit training made what is not quantized fp32.
    pub prepared: bool,
    /// Whether accelerate's wrapper is around the model (Trainer), which makes the outputs fp32.
    pub trainer: bool,
    /// Micro-batches to one step of the optimizer.
    pub accumulation: u64,
    /// Bytes of a number in the KV cache.
    pub cache_bytes: f64,
    /// How it is spread over cards.
    pub parallel: Parallel,
    /// How images are made.
    pub image: Image,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            task: Task::Inference,
            objective: Objective::Labels,
            precision: Precision::Bf16,
            batch: 1,
            length: 2048,
            new_tokens: 0,
            samples: 0,
            optimizer: Optimizer::AdamwFused,
            checkpointing: false,
            attention: Attention::Sdpa,
            padding: false,
            lora: Lora { rank: 16, targets: Targets::AllLinear, dropout: false },
            double_quantization: false,
            prepared: false,
            trainer: false,
            accumulation: 1,
            cache_bytes: 2.0,
            parallel: Parallel::default(),
            image: Image::default(),
        }
    }
}
