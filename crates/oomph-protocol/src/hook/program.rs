//! The hook's description of the program, from which a search for remedies starts.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// What a program is made of. Every field may be absent: the hook writes what it saw at next to no cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookProgram {
    /// Versions of the libraries that matter to remedies, by name.
    pub libraries: BTreeMap<String, String>,
    /// Packages that remedies import and that the program's environment does not have.
    pub missing: Vec<String>,
    /// `training`, `inference` or `evaluation`.
    pub task: Option<String>,
    /// The Trainer of transformers, or a descendant of it.
    pub trainer: Option<HookTrainer>,
    /// The root models that were called or moved to a card.
    pub models: Vec<HookModel>,
    /// The optimizers that were made.
    pub optimizers: Vec<HookOptimizer>,
    /// The type of autocast that was in effect around a model: `float16` or `bfloat16`.
    pub autocast: Option<String>,
    /// Whether a gradient scaler was made.
    pub grad_scaler: bool,
    /// Whether a loss compares the samples of a batch with each other; absent where no backward pass was seen.
    pub compares_samples: Option<bool>,
    /// The data loaders that gave a batch.
    pub loaders: Vec<HookLoader>,
    /// A plain training loop whose batch the hook can split.
    #[serde(rename = "loop")]
    pub plain_loop: Option<HookLoop>,
    /// The pipelines of diffusers that were called.
    pub pipelines: Vec<HookPipeline>,
    /// Tensors with a graph that the program keeps more and more of.
    pub kept: Vec<HookKept>,
    /// Calls of models that no optimizer changes, with gradients on, in addition to others that are trained.
    pub untrained: Vec<HookUntrained>,
    /// The top-level packages from site-packages that were imported.
    pub imports: Vec<String>,
}

/// A call of a model that is not trained which makes a graph that leads to nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookUntrained {
    /// Its class.
    pub class: String,
    /// The file of the call.
    pub file: String,
    /// The line, counted from 1.
    pub line: u64,
}

/// A Trainer and its arguments.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookTrainer {
    /// Its class.
    pub class: String,
    /// Those of its arguments that remedies change.
    pub arguments: HookTrainerArguments,
}

/// The arguments of a Trainer that remedies change. What is null or not a value of its kind is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[allow(missing_docs, reason = "the names are those of transformers.TrainingArguments")]
pub struct HookTrainerArguments {
    #[serde(deserialize_with = "lenient")]
    pub per_device_train_batch_size: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    pub gradient_accumulation_steps: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    pub bf16: Option<bool>,
    #[serde(deserialize_with = "lenient")]
    pub fp16: Option<bool>,
    #[serde(deserialize_with = "lenient")]
    pub gradient_checkpointing: Option<bool>,
    #[serde(deserialize_with = "lenient")]
    pub optim: Option<String>,
    #[serde(deserialize_with = "lenient")]
    pub per_device_eval_batch_size: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    pub eval_accumulation_steps: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    pub use_liger_kernel: Option<bool>,
    #[serde(deserialize_with = "lenient")]
    pub max_length: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    pub packing: Option<bool>,
}

/// A model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookModel {
    /// Its class.
    pub class: String,
    /// `transformers`, `diffusers`, `timm`, `torchvision` or `plain`.
    pub library: String,
    /// How many weights it has.
    pub parameters: u64,
    /// How many of them are trained.
    pub trainable: u64,
    /// The type of most of its weights, without `torch.`.
    pub dtype: String,
    /// Its weights, in bytes.
    pub bytes: u64,
    /// Modules that are repeated, each of which can be recomputed separately.
    pub blocks: Vec<HookBlocks>,
    /// The entries of its vocabulary.
    pub vocabulary: Option<u64>,
    /// `sdpa`, `eager`, `flash_attention_2`.
    pub attention: Option<String>,
    /// `4bit` or `8bit`.
    pub quantized: Option<String>,
    /// Whether gradient checkpointing is on.
    pub checkpointing: bool,
    /// `lora`.
    pub adapters: Option<String>,
    /// Whether it normalises by the statistics of a batch; `None` where an older hook did not say.
    pub batch_norm: Option<bool>,
    /// Whether it is made of convolutions and has no attention; `None` where an older hook did not say.
    pub convolutional: Option<bool>,
}

/// Modules of one class in a row.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookBlocks {
    /// The path of the list that holds them.
    pub path: String,
    /// Their class.
    pub class: String,
    /// How many there are.
    pub count: u64,
}

/// An optimizer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookOptimizer {
    /// Its class.
    pub class: String,
    /// The module that defines it.
    pub module: String,
    /// Whether it works on all tensors at once; `None` where torch decides.
    pub foreach: Option<bool>,
    /// Whether it runs as one kernel.
    pub fused: Option<bool>,
    /// How many weights it changes.
    pub parameters: u64,
}

/// A data loader.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookLoader {
    /// Samples per batch; `None` where a sampler decides.
    pub batch_size: Option<u64>,
    /// The shapes of the tensors of its first batch, by name.
    pub first_batch: BTreeMap<String, Vec<u64>>,
}

/// Where a training loop stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookLoop {
    /// Whether its batch can be split.
    pub recognized: bool,
    /// The file.
    pub file: Option<String>,
    /// The line, counted from 1.
    pub line: Option<u32>,
}

/// A pipeline of diffusers and how it was called.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookPipeline {
    /// Its class.
    pub class: String,
    /// Images made at a time.
    pub images: Option<u64>,
    /// Their height in pixels.
    pub height: Option<u64>,
    /// Their width in pixels.
    pub width: Option<u64>,
    /// `model` or `sequential`.
    pub offload: Option<String>,
    /// Whether its decoder takes one image at a time.
    pub vae_slicing: bool,
    /// Whether its decoder takes one tile at a time.
    pub vae_tiling: bool,
    /// The type of its weights, without `torch.`.
    pub dtype: Option<String>,
}

/// Tensors that a program keeps more and more of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookKept {
    /// `loss-history`, `graph-history`, `running-total` and `carried-state`: what grows in every step has a graph.
    /// `results`: it has none and lies on the card.
    pub kind: String,
    /// The file of the line that keeps them.
    pub file: Option<String>,
    /// The line, counted from 1.
    pub line: Option<u32>,
    /// How many there are.
    pub count: u64,
    /// What they hold, where it is known, in bytes.
    pub bytes: Option<u64>,
    /// What the program calls the container.
    pub name: Option<String>,
}

impl HookKept {
    /// Whether what is kept are results on the card, without the graphs behind them.
    pub fn is_results(&self) -> bool {
        self.kind == "results"
    }
}

/// A value of the wanted kind, or nothing. One odd value must not cost the whole report.
pub(super) fn lenient<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: serde::de::DeserializeOwned,
{
    Ok(serde_json::from_value(serde_json::Value::deserialize(deserializer)?).ok())
}
