//! Computes how many bytes a remedy frees: one formula for each kind, with its source.
//!
//! The free functions say what a thing takes. [`Formula`] says what a remedy frees of one owner in one situation. Where a
//! dry run is possible its figure replaces all of these.

use serde::Deserialize;

use crate::situation::{Cause, OwnerGroup, Situation};

/// Bytes per weight and state: fp32 moments of AdamW (two of four bytes).
pub const ADAMW: f64 = 8.0;
/// Bytes per trained weight of the moments of 8-bit AdamW: two of one byte, and a 4-byte scale per 256 values
/// (bitsandbytes, blockwise quantisation).
pub const ADAMW_8BIT: f64 = 2.0 * (1.0 + 4.0 / 256.0);
/// Bytes per trained weight of the moments of 4-bit AdamW: two of half a byte, and a 4-byte scale per 128 values
/// (torchao).
pub const ADAMW_4BIT: f64 = 2.0 * (0.5 + 4.0 / 128.0);
/// Bytes per trained weight where there is one fp32 moment: SGD with momentum, Lion.
pub const ONE_MOMENT: f64 = 4.0;
/// Bytes per weight as NF4: four bits and a 4-byte scale per 64 values (QLoRA, arXiv 2305.14314).
pub const NF4: f64 = 0.5 + 4.0 / 64.0;
/// Bytes per weight as NF4 with double quantisation: 8-bit scales, with a 4-byte scale per 256 of them (QLoRA).
pub const NF4_DOUBLE: f64 = 0.5 + 1.0 / 64.0 + 4.0 / (64.0 * 256.0);

/// Into how many chunks the tokens of a chunked cross-entropy go (torchtune, `CEWithChunkedOutputLoss`).
const CHUNKS: u64 = 8;
/// The share of all memory that a chunked loss freed (torchtune README, Llama-3.2-3B).
const TORCHTUNE_CHUNKED_LOSS: f64 = 0.158;

fn bytes(count: f64) -> u64 {
    // A cast from floating point saturates, so a nonsensical count gives a nonsensical size and nothing worse.
    count.max(0.0).round() as u64
}

/// Moments of an optimizer, in bytes: trained weights times bytes per weight, for example [`ADAMW_8BIT`].
pub fn optimizer_state(trained: u64, bytes_per_weight: f64) -> u64 {
    bytes(trained as f64 * bytes_per_weight)
}

/// What Adafactor without momentum keeps of one matrix, in bytes: a row and a column of fp32 (arXiv 1804.04235).
pub fn adafactor_state(rows: u64, columns: u64) -> u64 {
    rows.saturating_add(columns).saturating_mul(4)
}

/// How weights, gradients and AdamW moments are kept in a full training run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainingPrecision {
    /// All in fp32: 4 + 4 + 8.
    Float32,
    /// 16-bit weights and gradients, and an fp32 master copy with fp32 moments: 2 + 2 + 12 (DeepSpeed).
    MixedWithMaster,
    /// fp32 weights and moments, fp32 gradients and a cached half copy: 4 + 4 + 8 + 2 (Hugging Face's count).
    AutocastWithCache,
    /// Weights, gradients and moments in bf16: 2 + 2 + 4 (the torchtune default; torchao README measures it).
    PureBf16,
}

/// Weights, gradients and AdamW moments of a full training run, in bytes.
pub fn training_static(parameters: u64, precision: TrainingPrecision) -> u64 {
    let each = match precision {
        TrainingPrecision::Float32 | TrainingPrecision::MixedWithMaster => 16,
        TrainingPrecision::AutocastWithCache => 18,
        TrainingPrecision::PureBf16 => 8,
    };
    parameters.saturating_mul(each)
}

/// The weights that LoRA adds to one matrix: `r * (in + out)` (arXiv 2106.09685).
pub fn lora_parameters(rank: u64, inputs: u64, outputs: u64) -> u64 {
    rank.saturating_mul(inputs.saturating_add(outputs))
}

/// One transformer layer's shape, for the activation formulas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Samples in the micro-batch.
    pub batch: u64,
    /// Tokens in a sample.
    pub tokens: u64,
    /// The hidden size.
    pub hidden: u64,
    /// Attention heads.
    pub heads: u64,
    /// Whether attention is fused (SDPA, FlashAttention), so that its scores are never kept.
    pub fused_attention: bool,
}

impl Layer {
    /// What the forward pass of a layer saves in 16 bits, in bytes: `s b h (34 + 5 a s / h)`, without the second term
    /// where attention is fused (Korthikanti et al., arXiv 2205.05198, equation 2).
    pub fn saved(self) -> u64 {
        let Layer { batch, tokens, hidden, heads, fused_attention } = self;
        let scores = if fused_attention { 0.0 } else { 5.0 * heads as f64 * tokens as f64 / hidden.max(1) as f64 };
        bytes(tokens as f64 * batch as f64 * hidden as f64 * (34.0 + scores))
    }

    /// What a checkpointed layer saves, in bytes: its input, `2 s b h` (same source).
    pub fn saved_when_checkpointed(self) -> u64 {
        bytes(2.0 * self.tokens as f64 * self.batch as f64 * self.hidden as f64)
    }

    /// The scores of eager attention, in bytes: `b a s^2` values.
    pub fn attention_scores(self, bytes_per_value: u64) -> u64 {
        self.batch
            .saturating_mul(self.heads)
            .saturating_mul(self.tokens)
            .saturating_mul(self.tokens)
            .saturating_mul(bytes_per_value)
    }
}

/// Activations of a stack of layers under full checkpointing, in bytes: every layer's input, and one layer live.
pub fn checkpointed_stack(layer: Layer, layers: u64) -> u64 {
    layer.saved_when_checkpointed().saturating_mul(layers).saturating_add(layer.saved())
}

/// Logits and their cross-entropy, in bytes: 16-bit logits, an fp32 copy and an fp32 gradient, `b s V (2 + 4 + 4)`.
pub fn cross_entropy(tokens: u64, vocabulary: u64) -> u64 {
    tokens.saturating_mul(vocabulary).saturating_mul(10)
}

/// The same in chunks, in bytes: one chunk lives at a time.
pub fn chunked_cross_entropy(tokens: u64, vocabulary: u64, chunks: u64) -> u64 {
    cross_entropy(tokens.div_ceil(chunks.max(1)), vocabulary)
}

/// The keys and values of one token, in bytes: `2 L kv_heads d` values.
pub fn kv_cache_per_token(layers: u64, kv_heads: u64, head_size: u64, bytes_per_value: f64) -> u64 {
    bytes(2.0 * layers as f64 * kv_heads as f64 * head_size as f64 * bytes_per_value)
}

/// A GGUF file's weights, in bytes, from bits per weight (Q4_K_M of Llama-3.1-8B: 4.89; llama.cpp's quantize README).
pub fn gguf_weights(parameters: u64, bits_per_weight: f64) -> u64 {
    bytes(parameters as f64 * bits_per_weight / 8.0)
}

/// A ZeRO stage of DeepSpeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroStage {
    /// The optimizer's state is split.
    One,
    /// Gradients too.
    Two,
    /// Weights too; `largest_layer` weights are gathered at a time.
    Three {
        /// Weights of the largest layer.
        largest_layer: u64,
    },
}

/// Weights, gradients and AdamW state per GPU under ZeRO, in bytes, before activations and communication buckets.
///
/// Stage 1 is 16-bit weights and gradients whole and `12 P / N` of state; stages 2 and 3 are the counts of DeepSpeed's
/// own estimators (`estimate_zero2_model_states_mem_needs`, `estimate_zero3_model_states_mem_needs`).
pub fn zero_states(parameters: u64, gpus: u64, stage: ZeroStage) -> u64 {
    let (p, n) = (parameters as f64, gpus.max(1) as f64);
    match stage {
        ZeroStage::One => bytes(4.0 * p + 12.0 * p / n),
        ZeroStage::Two => bytes(2.0 * p + 18.0 * p / n),
        ZeroStage::Three { largest_layer } => bytes(4.0 * largest_layer as f64 + 18.0 * p / n),
    }
}

/// What VQGAN-CLIP takes at 32 cuts, in bytes: a fit of its README's points, 3.3 GB and 25.5 kB per pixel.
pub fn vqgan_clip(width: u64, height: u64) -> u64 {
    width.saturating_mul(height).saturating_mul(25_500).saturating_add(3_300_000_000)
}

/// How many bytes a remedy frees of one owner, where that is more than a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Formula {
    /// At most what is reserved and not allocated.
    Slack,
    /// All that other processes hold.
    OtherProcesses,
    /// All that CUDA graphs' pools hold.
    GraphPools,
    /// The batch goes from `b` to `b / 2`, or to what the settings say, rounded up.
    HalvedBatch,
    /// Sixteen samples at a time instead of the batch; about seven times less where that is not known.
    SixteenSamples,
    /// One image at a time instead of all.
    OneImageAtATime,
    /// Only LoRA's weights have gradients and optimizer state: about one in a hundred (Llama-2 7B, all linear layers,
    /// rank 16: 40.0 M of 6.7 G).
    OnlyAdapters,
    /// fp32 or bf16 moments become 8-bit ones.
    EightBitMoments,
    /// fp32 or bf16 moments become 4-bit ones.
    FourBitMoments,
    /// One byte per weight.
    OneBytePerWeight,
    /// NF4 weights.
    Nf4Weights,
    /// Two bytes per value instead of four.
    SixteenBits,
    /// Split evenly over the GPUs.
    SplitOverGpus,
    /// The context goes to what fits, or to half where that is not known.
    ShorterContext,
    /// As many layers stay as fit, or three quarters where that is not known.
    FewerLayers,
    /// Logits and their cross-entropy, of which one chunk is left; where batch, length or vocabulary are not known, the
    /// share that the torchtune README gives for a model of its kind.
    Logits,
}

impl Formula {
    /// Bytes freed of an owner; `None` where the situation does not say enough.
    pub fn frees(self, situation: &Situation, owner: OwnerGroup) -> Option<u64> {
        let (memory, settings) = (&situation.memory, &situation.settings);
        let held = || owner_bytes(situation, owner);
        let weight = settings.bytes_per_parameter;
        let share_left = match self {
            Formula::Slack => return memory.slack(),
            Formula::OtherProcesses => return memory.other_processes.or_else(held),
            Formula::GraphPools => return memory.graph_pools.or_else(held),
            Formula::Logits => match (settings.batch_size, settings.sequence_length, settings.vocabulary) {
                (Some(batch), Some(length), Some(vocabulary)) => {
                    let tokens = batch.saturating_mul(length);
                    let left = chunked_cross_entropy(tokens, vocabulary, CHUNKS);
                    return Some(cross_entropy(tokens, vocabulary).saturating_sub(left).min(held()?));
                }
                _ => 1.0 - TORCHTUNE_CHUNKED_LOSS,
            },
            Formula::HalvedBatch => match settings.batch_size {
                Some(batch) => batch.div_ceil(settings.divisor()).max(1) as f64 / batch.max(1) as f64,
                None => 1.0 / settings.divisor() as f64,
            },
            Formula::SixteenSamples => settings.batch_size.map_or(0.15, |batch| 16.0 / batch.max(1) as f64),
            Formula::OneImageAtATime => 1.0 / settings.images? as f64,
            Formula::OnlyAdapters => 0.01,
            // Moments have the type of the weights: 8 bytes a weight for fp32, 4 for 16 bits.
            Formula::EightBitMoments => ADAMW_8BIT / (2.0 * weight.unwrap_or(4.0)),
            Formula::FourBitMoments => ADAMW_4BIT / (2.0 * weight.unwrap_or(4.0)),
            Formula::OneBytePerWeight => 1.0 / weight.unwrap_or(2.0),
            Formula::Nf4Weights => NF4 / weight.unwrap_or(2.0),
            Formula::SixteenBits => 2.0 / weight.unwrap_or(4.0),
            Formula::SplitOverGpus => 1.0 / settings.world_size.or(situation.gpus.map(u64::from))? as f64,
            Formula::ShorterContext => match (settings.context_that_fits, settings.context_length) {
                (Some(fits), Some(context)) => fits as f64 / context.max(1) as f64,
                _ => 0.5,
            },
            Formula::FewerLayers => match (settings.layers_that_fit, settings.gpu_layers) {
                (Some(fit), Some(layers)) => fit as f64 / layers.max(1) as f64,
                _ => 0.75,
            },
        };
        Some(freed(held()?, share_left))
    }
}

/// What goes when a share is left; nothing where more would be left than there was.
pub fn freed(held: u64, share_left: f64) -> u64 {
    bytes(held as f64 * (1.0 - share_left.clamp(0.0, 1.0)))
}

/// The bytes of an owner: as measured, else as the settings, the figures of the failure or a cause give them.
pub fn owner_bytes(situation: &Situation, owner: OwnerGroup) -> Option<u64> {
    if let Some(known) = situation.owner_bytes(owner) {
        return Some(known);
    }
    let of_cause = |cause| situation.causes.iter().find(|suspect| suspect.cause == cause).and_then(|known| known.bytes);
    match owner {
        OwnerGroup::Parameters => situation.settings.weight_bytes(),
        OwnerGroup::Gradients => {
            Some(bytes(situation.settings.trainable_parameters? as f64 * situation.settings.bytes_per_parameter?))
        }
        OwnerGroup::KvCache => of_cause(Cause::KvCache),
        OwnerGroup::GraphPools => situation.memory.graph_pools.or_else(|| of_cause(Cause::GraphPools)),
        OwnerGroup::OtherProcesses => situation.memory.other_processes.or_else(|| of_cause(Cause::OtherProcess)),
        OwnerGroup::Cached => situation.memory.slack(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: f64 = 1e9;
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    const BERT_LARGE: u64 = 335_174_458;
    const LLAMA2_7B: u64 = 6_738_415_616;
    const LLAMA2_70B: u64 = 68_976_648_192;
    const LLAMA3_8B: u64 = 8_030_261_248;

    fn within(got: u64, wanted: f64, percent: f64) -> bool {
        (got as f64 - wanted).abs() <= wanted * percent / 100.0
    }

    #[test]
    fn eight_bit_adam_saves_what_the_bert_large_guide_measured() {
        // 14949 to 13085 MB there, 1864 MB; the formula gives about 6 bytes a weight (1917 MiB).
        let saved = optimizer_state(BERT_LARGE, ADAMW) - optimizer_state(BERT_LARGE, ADAMW_8BIT);
        assert!(within(saved / MIB, 1864.0, 4.0), "{}", saved / MIB);
        // Adafactor removes the moments whole: 2654 MB measured.
        assert!(within(optimizer_state(BERT_LARGE, ADAMW) / MIB, 2654.0, 4.0));
    }

    #[test]
    fn four_bit_and_eight_bit_moments_take_what_their_formats_say() {
        assert!((ADAMW_8BIT - 2.03).abs() < 0.005);
        assert!((ADAMW_4BIT - 1.06).abs() < 0.005);
        assert!((NF4 - 0.5625).abs() < 1e-12);
        assert!((NF4_DOUBLE * 8.0 - 4.127).abs() < 0.001);
    }

    #[test]
    fn full_training_of_llama_2_takes_what_was_computed() {
        assert!(within(training_static(LLAMA2_7B, TrainingPrecision::MixedWithMaster), 107.8 * GB, 0.1));
        assert!(within(training_static(LLAMA2_7B, TrainingPrecision::AutocastWithCache), 121.0 * GB, 0.5));
        // torchao measured 51.6 GB for the whole run with pure bf16.
        assert!(within(training_static(LLAMA2_7B, TrainingPrecision::PureBf16), 53.9 * GB, 0.1));
        assert!(within(training_static(LLAMA2_70B, TrainingPrecision::Float32), 1104.0 * GB, 0.1));
    }

    #[test]
    fn lora_on_all_linear_layers_of_llama_2_7b_trains_forty_million() {
        let layer = 4 * lora_parameters(16, 4096, 4096)
            + 2 * lora_parameters(16, 4096, 11008)
            + lora_parameters(16, 11008, 4096);
        let trained = 32 * layer;
        assert!(within(trained, 40.0e6, 0.1), "{trained}");
        assert!(within(training_static(trained, TrainingPrecision::Float32), 0.64 * GB, 0.5));
    }

    #[test]
    fn kv_cache_per_token_of_known_models() {
        assert_eq!(kv_cache_per_token(32, 32, 128, 2.0), 512 * 1024);
        assert_eq!(kv_cache_per_token(40, 40, 128, 2.0), 800 * 1024);
        assert_eq!(kv_cache_per_token(80, 8, 128, 2.0), 320 * 1024);
        assert_eq!(kv_cache_per_token(32, 8, 128, 2.0), 128 * 1024);
        assert_eq!(kv_cache_per_token(32, 32, 128, 2.0) * 4096, 2 * GIB);
    }

    #[test]
    fn logits_of_eight_thousand_tokens() {
        // Llama 3: 1.96 GiB in bf16 and as much again twice in fp32 (1.96 + 3.9 for one fp32 copy).
        let tokens = 8192;
        assert!(within(tokens * 128_256 * 2, 1.96 * GIB as f64, 0.2));
        assert!(within(cross_entropy(tokens, 128_256), 5.0 * 1.957 * GIB as f64, 0.2));
        assert_eq!(chunked_cross_entropy(tokens, 128_256, 8), cross_entropy(tokens, 128_256) / 8);
    }

    #[test]
    fn q4_k_m_of_llama_3_1_8b_is_the_size_of_its_file() {
        assert!(within(gguf_weights(LLAMA3_8B, 4.89), 4.58 * GIB as f64, 0.5));
    }

    #[test]
    fn eager_attention_of_stable_diffusion_1_5_at_1024() {
        // Self-attention of the first level: 128 x 128 positions, 8 heads, two samples (with and without the prompt).
        let layer = Layer { batch: 2, tokens: 128 * 128, hidden: 320, heads: 8, fused_attention: false };
        assert_eq!(layer.attention_scores(2), 8 * GIB);
        let small = Layer { tokens: 64 * 64, ..layer };
        assert_eq!(small.attention_scores(2), GIB / 2);
    }

    #[test]
    fn checkpointing_leaves_the_inputs_of_layers_and_one_layer() {
        let layer = Layer { batch: 2, tokens: 2048, hidden: 4096, heads: 32, fused_attention: true };
        assert_eq!(layer.saved(), 2048 * 2 * 4096 * 34);
        assert_eq!(layer.saved_when_checkpointed(), 2048 * 2 * 4096 * 2);
        assert_eq!(checkpointed_stack(layer, 32), 32 * 2 * 2048 * 2 * 4096 + layer.saved());
        let eager = Layer { fused_attention: false, ..layer };
        assert_eq!(eager.saved() - layer.saved(), 5 * 2 * 32 * 2048 * 2048);
    }

    #[test]
    fn zero_splits_what_its_stage_splits() {
        let p = 1_000_000_000;
        assert_eq!(zero_states(p, 1, ZeroStage::One), 16 * p);
        assert_eq!(zero_states(p, 4, ZeroStage::One), 7 * p);
        assert_eq!(zero_states(p, 4, ZeroStage::Two), 2 * p + 18 * p / 4);
        assert_eq!(zero_states(p, 4, ZeroStage::Three { largest_layer: 0 }), 18 * p / 4);
    }

    #[test]
    fn vqgan_clip_at_the_sizes_of_its_readme() {
        for (side, gigabytes) in [(380, 8.0), (512, 10.0), (900, 24.0)] {
            assert!(within(vqgan_clip(side, side), gigabytes * GB, 13.0), "{side}: {}", vqgan_clip(side, side));
        }
    }

    #[test]
    fn nothing_overflows_on_absurd_numbers() {
        let layer = Layer { batch: u64::MAX, tokens: u64::MAX, hidden: 0, heads: u64::MAX, fused_attention: false };
        assert_eq!(layer.attention_scores(8), u64::MAX);
        assert_eq!(checkpointed_stack(Layer { hidden: u64::MAX, ..layer }, u64::MAX), u64::MAX);
        assert_eq!(cross_entropy(u64::MAX, 2), u64::MAX);
        assert_eq!(freed(100, f64::NAN), 0);
        assert_eq!(freed(100, 2.0), 0);
    }
}
