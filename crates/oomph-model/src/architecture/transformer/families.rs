//! The families of text decoders as a table: how each differs from a Llama.

use super::super::ArchitectureError;
use super::super::config::Config;
use super::rules::{
    all_layers, as_max_window_layers, bloom, cohere, deepseek, every_other_layer, every_pattern, experts_everywhere,
    falcon, gpt_bigcode, gpt_neo, llama4, mpt, no_experts, no_layers, nothing, opt, soft_caps, sparse_experts,
    stablelm,
};
use super::{Experts, Norm, QueryKeyNorm, Transformer};

/// A family of text decoders. A field that a family does not name is a Llama's.
pub(super) struct Family {
    /// Its `model_type`.
    pub(super) name: &'static str,
    /// Whether its tensors are known by name and shape.
    pub(super) exact: bool,
    pub(super) norm: Norm,
    pub(super) norm_bias: bool,
    pub(super) norms_per_layer: u64,
    pub(super) post_norm: bool,
    pub(super) query_key_norm: QueryKeyNorm,
    pub(super) attention_bias: Setting,
    pub(super) output_bias: Setting,
    pub(super) gated_mlp: bool,
    pub(super) mlp_bias: Setting,
    pub(super) head_bias: Setting,
    pub(super) parallel_residual: Setting,
    pub(super) places: Places,
    /// The share of a head's features that is rotated where a file names none.
    pub(super) rotated: Option<f64>,
    /// How many of so many layers have a sliding window.
    pub(super) windowed: fn(Config<'_>, layers: u64) -> u64,
    pub(super) experts: fn(&Transformer, Config<'_>) -> Option<Experts>,
    /// What the other fields cannot say. It sees the model that they have made.
    pub(super) further: fn(&mut Transformer, Config<'_>) -> Result<(), ArchitectureError>,
}

/// A yes or no.
#[derive(Clone, Copy)]
pub(super) enum Setting {
    Always(bool),
    /// What the configuration has under this key, and what holds where it has nothing.
    Key(&'static str, bool),
}

impl Setting {
    pub(super) fn of(self, config: Config<'_>) -> bool {
        match self {
            Setting::Always(value) => value,
            Setting::Key(key, otherwise) => config.flag(&[key]).unwrap_or(otherwise),
        }
    }
}

/// How a family encodes positions.
#[derive(Clone, Copy)]
pub(super) enum Places {
    Rotary,
    /// A learned table with so many rows more than there are positions.
    Learned(u64),
    /// Nothing that has tensors.
    None,
}

use Setting::{Always, Key};

/// The family that others are compared with.
const LLAMA: Family = Family {
    name: "llama",
    exact: true,
    norm: Norm::Rms,
    norm_bias: false,
    norms_per_layer: 2,
    post_norm: false,
    query_key_norm: QueryKeyNorm::None,
    attention_bias: Key("attention_bias", false),
    output_bias: Key("attention_bias", false),
    gated_mlp: true,
    mlp_bias: Key("mlp_bias", false),
    head_bias: Always(false),
    parallel_residual: Always(false),
    places: Places::Rotary,
    rotated: None,
    windowed: no_layers,
    experts: no_experts,
    further: nothing,
};

/// What is not in the table is read as a Llama, whose tensors it may not have.
const OTHER: Family = Family { name: "", exact: false, ..LLAMA };

/// As families before Llama have it: norms with a mean and a bias, an MLP without a gate.
const CLASSIC: Family =
    Family { norm: Norm::Layer, norm_bias: true, gated_mlp: false, mlp_bias: Always(true), ..LLAMA };

/// As [`CLASSIC`], with biases everywhere in the attention.
const GPT2: Family = Family {
    name: "gpt2",
    attention_bias: Always(true),
    output_bias: Always(true),
    places: Places::Learned(0),
    ..CLASSIC
};

const GEMMA2: Family =
    Family { name: "gemma2", norms_per_layer: 4, windowed: every_other_layer, further: soft_caps, ..LLAMA };

const QWEN2: Family = Family {
    name: "qwen2",
    attention_bias: Always(true),
    output_bias: Always(false),
    windowed: as_max_window_layers,
    ..LLAMA
};

const QWEN3: Family =
    Family { name: "qwen3", query_key_norm: QueryKeyNorm::PerHead, windowed: as_max_window_layers, ..LLAMA };

const OLMO2: Family = Family { name: "olmo2", query_key_norm: QueryKeyNorm::Whole, post_norm: true, ..LLAMA };

const COHERE: Family = Family {
    name: "cohere",
    norm: Norm::Layer,
    parallel_residual: Always(true),
    norms_per_layer: 1,
    further: cohere,
    ..LLAMA
};

static FAMILIES: &[Family] = &[
    Family { name: "bloom", places: Places::None, further: bloom, ..GPT2 },
    COHERE,
    Family { name: "cohere2", exact: false, ..COHERE },
    Family { name: "deepseek_v2", further: deepseek, ..LLAMA },
    Family { name: "deepseek_v3", further: deepseek, ..LLAMA },
    Family {
        name: "falcon",
        attention_bias: Key("bias", false),
        output_bias: Key("bias", false),
        mlp_bias: Key("bias", false),
        further: falcon,
        ..CLASSIC
    },
    Family { name: "gemma", ..LLAMA },
    GEMMA2,
    Family { name: "gemma3_text", query_key_norm: QueryKeyNorm::PerHead, windowed: every_pattern, ..GEMMA2 },
    Family {
        name: "glm4",
        attention_bias: Key("attention_bias", true),
        output_bias: Always(false),
        norms_per_layer: 4,
        rotated: Some(0.5),
        ..LLAMA
    },
    GPT2,
    Family { name: "gpt_bigcode", further: gpt_bigcode, ..GPT2 },
    Family { name: "gpt_neo", attention_bias: Always(false), further: gpt_neo, ..GPT2 },
    Family { name: "gpt_neox", parallel_residual: Key("use_parallel_residual", true), rotated: Some(0.25), ..CLASSIC },
    Family { name: "gpt_oss", windowed: every_other_layer, experts: experts_everywhere, ..LLAMA },
    Family { name: "gptj", head_bias: Always(true), parallel_residual: Always(true), norms_per_layer: 1, ..CLASSIC },
    Family { name: "granite", ..LLAMA },
    LLAMA,
    Family { name: "llama4_text", further: llama4, ..LLAMA },
    Family { name: "mistral", windowed: all_layers, ..LLAMA },
    Family { name: "mixtral", experts: experts_everywhere, ..LLAMA },
    Family { name: "mpt", norm_bias: false, mlp_bias: Always(false), places: Places::None, further: mpt, ..CLASSIC },
    Family { name: "olmo", norm: Norm::Plain, ..LLAMA },
    OLMO2,
    Family { name: "olmo3", exact: false, ..OLMO2 },
    Family {
        name: "opt",
        attention_bias: Key("enable_bias", true),
        output_bias: Key("enable_bias", true),
        mlp_bias: Key("enable_bias", true),
        // The first two rows are for padding.
        places: Places::Learned(2),
        further: opt,
        ..CLASSIC
    },
    Family {
        name: "phi",
        head_bias: Always(true),
        parallel_residual: Always(true),
        norms_per_layer: 1,
        places: Places::Rotary,
        rotated: Some(0.5),
        ..GPT2
    },
    Family { name: "phi3", windowed: all_layers, ..LLAMA },
    Family {
        name: "phimoe",
        norm: Norm::Layer,
        norm_bias: true,
        head_bias: Key("lm_head_bias", false),
        experts: experts_everywhere,
        ..LLAMA
    },
    QWEN2,
    Family { name: "qwen2_moe", attention_bias: Key("qkv_bias", true), experts: sparse_experts, ..QWEN2 },
    QWEN3,
    Family { name: "qwen3_moe", experts: sparse_experts, ..QWEN3 },
    Family { name: "smollm3", ..LLAMA },
    Family {
        name: "stablelm",
        norm: Norm::Layer,
        norm_bias: true,
        attention_bias: Key("use_qkv_bias", false),
        output_bias: Always(false),
        parallel_residual: Key("use_parallel_residual", false),
        rotated: Some(0.25),
        further: stablelm,
        ..LLAMA
    },
    Family {
        name: "starcoder2",
        attention_bias: Key("use_bias", true),
        output_bias: Key("use_bias", true),
        mlp_bias: Key("use_bias", true),
        windowed: all_layers,
        ..CLASSIC
    },
];

/// The family of this `model_type`.
pub(super) fn family(name: &str) -> &'static Family {
    FAMILIES.iter().find(|family| family.name == name).unwrap_or(&OTHER)
}
