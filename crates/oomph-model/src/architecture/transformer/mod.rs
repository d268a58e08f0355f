//! Describes transformers of text, images and sound as plain values.

mod build;
mod decoder;
mod families;
mod names;
mod pairs;
mod read;
mod rules;
mod towers;

pub(super) use build::parameters;
pub(super) use read::transformer;

use serde::Serialize;

/// One stack of transformer layers with what precedes and follows it. A model of several stacks is the one that
/// makes its output, with the others in [`encoder`](Self::encoder) and [`vision`](Self::vision).
///
/// Counts are numbers of things, widths are numbers of features; nothing here is in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Transformer {
    /// The `model_type` of transformers (`llama`, `qwen3_moe`, `clip_vision_model`).
    pub family: String,
    /// The class that the configuration was saved from (`LlamaForCausalLM`); empty where it does not say.
    pub class: String,
    /// What the stack does.
    pub kind: Kind,
    /// What follows the stack.
    pub head: Head,
    /// Layers of the stack.
    pub layers: u64,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Query heads.
    pub heads: u64,
    /// Heads of keys and values; fewer than `heads` with grouped queries, 1 with multi-query attention.
    pub kv_heads: u64,
    /// Width of a query's and a key's head.
    pub head_dim: u64,
    /// Width inside the MLP (of dense layers, where some layers have experts).
    pub intermediate: u64,
    /// Whether the MLP has a gate in addition to its up-projection (SwiGLU, GeGLU).
    pub gated_mlp: bool,
    /// The activation function by its name in the configuration.
    pub activation: String,
    /// Rows of the token embedding; 0 for images and sound.
    pub vocabulary: u64,
    /// Width of the token embedding, where it is not `hidden` (ALBERT, ELECTRA, OPT-350m).
    pub embedding_dim: u64,
    /// Whether the output layer is the token embedding itself.
    pub tied_embeddings: bool,
    /// The longest sequence that the configuration allows.
    pub max_positions: u64,
    /// How positions are encoded.
    pub positions: Positions,
    /// Rows of the token type (segment) embedding.
    pub token_types: u64,
    /// The kind of norm.
    pub norm: Norm,
    /// Whether norms have a bias.
    pub norm_bias: bool,
    /// Norms of the residual stream in one layer (those of queries and keys are apart).
    pub norms_per_layer: u64,
    /// Whether norms follow the residual sum, as in BERT, and do not precede the block.
    pub post_norm: bool,
    /// Whether a norm follows the embeddings.
    pub embedding_norm: bool,
    /// Whether a norm follows the last layer.
    pub final_norm: bool,
    /// Norms of queries and keys.
    pub query_key_norm: QueryKeyNorm,
    /// Whether the projections of queries, keys and values have biases.
    pub attention_bias: bool,
    /// Whether the attention's output projection has one.
    pub output_bias: bool,
    /// Whether the MLP's projections have biases.
    pub mlp_bias: bool,
    /// Whether the output layer has one.
    pub head_bias: bool,
    /// Whether attention and MLP read the same input and are summed (GPT-J, NeoX, Falcon, Phi).
    pub parallel_residual: bool,
    /// Whether each layer also attends to an encoder's output.
    pub cross_attention: bool,
    /// Tokens that a windowed layer looks back.
    pub sliding_window: Option<u64>,
    /// How many of the layers have the window; the others attend to everything.
    pub windowed_layers: u64,
    /// Attention through compressed keys and values (MLA).
    pub latent: Option<LatentAttention>,
    /// Mixture of experts.
    pub experts: Option<Experts>,
    /// Dropout of the attention's probabilities.
    pub attention_dropout: f64,
    /// Dropout of the residual branches.
    pub hidden_dropout: f64,
    /// Dropout of the embeddings.
    pub embedding_dropout: f64,
    /// Soft cap of the attention's scores (Gemma 2); such attention is not fused by SDPA.
    pub attention_softcap: Option<f64>,
    /// Soft cap of the logits.
    pub logit_softcap: Option<f64>,
    /// How an image becomes tokens.
    pub image: Option<ImageInput>,
    /// How sound becomes tokens.
    pub audio: Option<AudioInput>,
    /// The encoder of this decoder.
    pub encoder: Option<Box<Transformer>>,
    /// The vision tower of this text model.
    pub vision: Option<Box<Transformer>>,
    /// Whether [`parameters`](crate::Architecture::parameters) is known to name the tensors of this family as the
    /// library has them; where it is not, they are a Llama's with these widths, which is near for most decoders.
    pub exact: bool,
}

/// What a stack does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Makes text token by token, with a KV cache.
    Decoder,
    /// Reads text in both directions.
    Encoder,
    /// Reads an image.
    Vision,
    /// Reads sound.
    Audio,
}

/// What follows a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Head {
    /// Nothing: the hidden states are the result.
    None,
    /// Logits over the vocabulary for every token.
    Language,
    /// Logits over the vocabulary behind one more dense layer and norm, as BERT has.
    MaskedLanguage,
    /// Logits over so many classes.
    Classes(u64),
    /// One vector of this width for a whole text or image (CLIP).
    Projection(u64),
}

/// How positions are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Positions {
    /// Nothing, or something that has no tensors (ALiBi).
    None,
    /// Rotated queries and keys, of which the first so many features of a head turn.
    Rotary(u64),
    /// A table with so many rows, learned.
    Learned(u64),
    /// A table with so many rows that is computed and not trained.
    Fixed(u64),
    /// So many buckets of distances, shared by the layers (T5) or in each (UMT5).
    Buckets(u64),
    /// A table of so many relative positions, shared by the layers (DeBERTa).
    Relative(u64),
}

/// The kind of norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Norm {
    /// Mean and variance.
    Layer,
    /// Root mean square.
    Rms,
    /// Mean and variance without weights (OLMo).
    Plain,
}

/// Norms of queries and keys before they meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueryKeyNorm {
    /// None.
    None,
    /// One weight of a head's width, shared by the heads (Qwen 3, Gemma 3).
    PerHead,
    /// One weight of the whole projection's width (OLMo 2).
    Whole,
}

/// Attention whose keys and values come from a compressed vector, which is what the cache could hold (DeepSeek).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LatentAttention {
    /// Width of the compressed query; `None` where queries are projected directly.
    pub query_rank: Option<u64>,
    /// Width of the compressed keys and values.
    pub kv_rank: u64,
    /// Rotated features of a head; one key of this width is shared by the heads.
    pub rope_dim: u64,
    /// Features of a head that are not rotated.
    pub nope_dim: u64,
    /// Width of a value's head.
    pub value_dim: u64,
}

/// A mixture of experts in place of the MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Experts {
    /// Experts in a layer.
    pub count: u64,
    /// Experts that each token meets, not counting shared ones.
    pub active: u64,
    /// Width inside one expert.
    pub intermediate: u64,
    /// Width inside the MLP that every token meets in addition to the experts; 0 where there is none.
    pub shared_intermediate: u64,
    /// Whether a gate weighs that MLP (Qwen 2 MoE).
    pub shared_gate: bool,
    /// Layers that have experts; the others have the plain MLP.
    pub layers: u64,
    /// The first layer that has them.
    pub first_layer: u64,
    /// They are in every so many-th layer from there on.
    pub every: u64,
    /// Whether the router adds a correction to its scores (DeepSeek V3: a buffer).
    pub router_correction: bool,
}

impl Experts {
    /// Whether this layer has experts.
    #[must_use]
    pub fn in_layer(&self, layer: u64) -> bool {
        layer >= self.first_layer
            && (layer - self.first_layer).is_multiple_of(self.every.max(1))
            && (layer - self.first_layer) / self.every.max(1) < self.layers
    }
}

/// How an image becomes tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ImageInput {
    /// Side of the (square) image in pixels.
    pub size: u64,
    /// Side of a patch in pixels.
    pub patch: u64,
    /// Colours.
    pub channels: u64,
    /// Tokens that are added to the patches (class, distillation, registers).
    pub extra_tokens: u64,
}

impl ImageInput {
    /// Tokens of one image of the configured size.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        let side = self.size.checked_div(self.patch).unwrap_or(0);
        side.saturating_mul(side).saturating_add(self.extra_tokens)
    }
}

/// How sound becomes tokens (Whisper).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AudioInput {
    /// Bands of the spectrogram.
    pub mel_bins: u64,
    /// Positions after the convolutions; the spectrogram has twice as many frames.
    pub positions: u64,
}

impl Transformer {
    /// Width of all query heads together.
    #[must_use]
    pub fn query_width(&self) -> u64 {
        self.heads.saturating_mul(self.head_dim)
    }

    /// Width of all key heads together.
    #[must_use]
    pub fn kv_width(&self) -> u64 {
        self.kv_heads.saturating_mul(self.head_dim)
    }

    /// Width of the attention's output before its output projection.
    #[must_use]
    pub fn value_width(&self) -> u64 {
        self.heads.saturating_mul(self.latent.map_or(self.head_dim, |latent| latent.value_dim))
    }

    /// Whether this layer looks back only [`sliding_window`](Self::sliding_window) tokens. Which of several layers do
    /// is a matter of the family; this spreads the full layers evenly, which is right for counts.
    #[must_use]
    pub fn is_windowed(&self, layer: u64) -> bool {
        let full = self.layers.saturating_sub(self.windowed_layers);
        if self.sliding_window.is_none() || full == 0 {
            return self.sliding_window.is_some();
        }
        // A full layer is the last of its group.
        (layer + 1).saturating_mul(full) / self.layers.max(1) == layer.saturating_mul(full) / self.layers.max(1)
    }
}
