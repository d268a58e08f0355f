//! The rules of families of text decoders that are more than a value: [`families`](super::families) names them.

use super::super::ArchitectureError;
use super::super::config::Config;
use super::{Experts, LatentAttention, Positions, Transformer};

/// No layer has a sliding window.
pub(super) fn no_layers(_: Config<'_>, _: u64) -> u64 {
    0
}

/// All layers have a sliding window.
pub(super) fn all_layers(_: Config<'_>, layers: u64) -> u64 {
    layers
}

/// Windowed and full layers take turns; a windowed one is first.
pub(super) fn every_other_layer(_: Config<'_>, layers: u64) -> u64 {
    layers.div_ceil(2)
}

/// Of each group of layers the last is full (Gemma 3).
pub(super) fn every_pattern(config: Config<'_>, layers: u64) -> u64 {
    let pattern = config.size(&["sliding_window_pattern", "_sliding_window_pattern"]).unwrap_or(6).max(1);
    layers - layers / pattern
}

/// The layers after the first few, if a file wants windows at all (Qwen).
pub(super) fn as_max_window_layers(config: Config<'_>, layers: u64) -> u64 {
    if config.flag(&["use_sliding_window"]) != Some(true) {
        return 0;
    }
    layers.saturating_sub(config.size(&["max_window_layers"]).unwrap_or(layers))
}

/// A dense MLP in every layer.
pub(super) fn no_experts(_: &Transformer, _: Config<'_>) -> Option<Experts> {
    None
}

/// Experts in every layer, as wide as the MLP that they replace.
pub(super) fn experts_everywhere(model: &Transformer, config: Config<'_>) -> Option<Experts> {
    experts(model, config, model.intermediate)
}

/// Experts in every n-th layer, perhaps with one more that every token meets (Qwen).
pub(super) fn sparse_experts(model: &Transformer, config: Config<'_>) -> Option<Experts> {
    let mut experts = narrow_experts(model, config)?;
    experts.every = config.size(&["decoder_sparse_step"]).unwrap_or(1).max(1);
    experts.first_layer = experts.every - 1;
    experts.layers = model.layers / experts.every;
    experts.shared_intermediate = config.size(&["shared_expert_intermediate_size"]).unwrap_or(0);
    experts.shared_gate = experts.shared_intermediate > 0;
    Some(experts)
}

/// Experts in every layer, of a width of their own where the file names one.
pub(super) fn narrow_experts(model: &Transformer, config: Config<'_>) -> Option<Experts> {
    experts(model, config, config.size(&["moe_intermediate_size"]).unwrap_or(model.intermediate))
}

/// Experts of this width in every layer, as most families have them.
fn experts(model: &Transformer, config: Config<'_>, intermediate: u64) -> Option<Experts> {
    let count = config.size(&["num_local_experts", "num_experts", "n_routed_experts"]).filter(|&count| count > 0)?;
    Some(Experts {
        count,
        active: config.size(&["num_experts_per_tok", "top_k", "moe_topk"]).unwrap_or(1),
        intermediate,
        shared_intermediate: 0,
        shared_gate: false,
        layers: model.layers,
        first_layer: 0,
        every: 1,
        router_correction: false,
    })
}

/// The table of families says everything.
pub(super) fn nothing(_: &mut Transformer, _: Config<'_>) -> Result<(), ArchitectureError> {
    Ok(())
}

pub(super) fn bloom(model: &mut Transformer, _: Config<'_>) -> Result<(), ArchitectureError> {
    model.intermediate = model.hidden * 4;
    model.embedding_norm = true;
    Ok(())
}

pub(super) fn cohere(model: &mut Transformer, config: Config<'_>) -> Result<(), ArchitectureError> {
    // Norms of queries and keys have a weight for each head here, which is not described.
    model.exact = model.exact && config.flag(&["use_qk_norm"]) != Some(true);
    Ok(())
}

/// DeepSeek: compressed keys and values, and experts behind a few dense layers.
pub(super) fn deepseek(model: &mut Transformer, config: Config<'_>) -> Result<(), ArchitectureError> {
    let latent = LatentAttention {
        query_rank: config.size(&["q_lora_rank"]).filter(|&rank| rank > 0),
        kv_rank: config.needed(&["kv_lora_rank"])?,
        rope_dim: config.needed(&["qk_rope_head_dim"])?,
        nope_dim: config.needed(&["qk_nope_head_dim"])?,
        value_dim: config.needed(&["v_head_dim"])?,
    };
    model.head_dim = latent.rope_dim + latent.nope_dim;
    model.positions = Positions::Rotary(latent.rope_dim);
    model.latent = Some(latent);
    let mut found = narrow_experts(model, config);
    if let Some(experts) = &mut found {
        experts.first_layer = config.size(&["first_k_dense_replace"]).unwrap_or(0);
        experts.every = config.size(&["moe_layer_freq"]).unwrap_or(1).max(1);
        experts.layers = model.layers.saturating_sub(experts.first_layer).div_ceil(experts.every);
        let shared = config.size(&["n_shared_experts"]).unwrap_or(0);
        experts.shared_intermediate = shared.saturating_mul(experts.intermediate);
        experts.router_correction = model.family == "deepseek_v3";
    }
    model.experts = found;
    Ok(())
}

pub(super) fn falcon(model: &mut Transformer, config: Config<'_>) -> Result<(), ArchitectureError> {
    let new = config.flag(&["new_decoder_architecture"]).unwrap_or(false);
    let multi_query = config.flag(&["multi_query"]).unwrap_or(true);
    model.kv_heads = match (new, multi_query) {
        (true, _) => model.kv_heads,
        (false, true) => 1,
        (false, false) => model.heads,
    };
    model.parallel_residual = new || config.flag(&["parallel_attn"]).unwrap_or(true);
    let norms = config.size(&["num_ln_in_parallel_attn"]).unwrap_or(if new { 2 } else { 1 });
    model.norms_per_layer = if model.parallel_residual { norms } else { 2 };
    if config.flag(&["alibi"]) == Some(true) {
        model.positions = Positions::None;
    }
    Ok(())
}

pub(super) fn gpt_bigcode(model: &mut Transformer, config: Config<'_>) -> Result<(), ArchitectureError> {
    if config.flag(&["multi_query"]).unwrap_or(true) {
        model.kv_heads = 1;
    }
    Ok(())
}

pub(super) fn gpt_neo(model: &mut Transformer, config: Config<'_>) -> Result<(), ArchitectureError> {
    model.sliding_window = config.size(&["window_size"]);
    model.windowed_layers = model.layers / 2;
    Ok(())
}

/// Llama 4: experts in every n-th layer with one shared expert, a wider MLP in the other layers. Attention is within
/// chunks, but in every n-th layer.
pub(super) fn llama4(model: &mut Transformer, config: Config<'_>) -> Result<(), ArchitectureError> {
    let full = config.size(&["no_rope_layer_interval"]).unwrap_or(4).max(1);
    model.sliding_window = config.size(&["attention_chunk_size"]);
    model.windowed_layers = if model.sliding_window.is_some() { model.layers - model.layers / full } else { 0 };
    let mut found = experts_everywhere(model, config);
    if let Some(experts) = &mut found {
        experts.every = config.size(&["interleave_moe_layer_step"]).unwrap_or(1).max(1);
        experts.first_layer = experts.every - 1;
        experts.layers = model.layers / experts.every;
        experts.shared_intermediate = experts.intermediate;
    }
    model.experts = found;
    model.intermediate = config.size(&["intermediate_size_mlp"]).unwrap_or(model.intermediate);
    Ok(())
}

pub(super) fn mpt(model: &mut Transformer, config: Config<'_>) -> Result<(), ArchitectureError> {
    model.intermediate = model.hidden.saturating_mul(config.size(&["expansion_ratio"]).unwrap_or(4));
    Ok(())
}

pub(super) fn opt(model: &mut Transformer, config: Config<'_>) -> Result<(), ArchitectureError> {
    model.embedding_dim = config.size(&["word_embed_proj_dim"]).unwrap_or(model.hidden);
    model.post_norm = config.flag(&["do_layer_norm_before"]) == Some(false);
    model.final_norm = !model.post_norm && config.flag(&["_remove_final_layer_norm"]) != Some(true);
    Ok(())
}

/// Gemma: scores and logits are kept within bounds.
pub(super) fn soft_caps(model: &mut Transformer, config: Config<'_>) -> Result<(), ArchitectureError> {
    model.attention_softcap = config.float(&["attn_logit_softcapping"]);
    model.logit_softcap = config.float(&["final_logit_softcapping"]);
    Ok(())
}

pub(super) fn stablelm(model: &mut Transformer, _: Config<'_>) -> Result<(), ArchitectureError> {
    if model.parallel_residual {
        model.norms_per_layer = 1;
    }
    Ok(())
}
