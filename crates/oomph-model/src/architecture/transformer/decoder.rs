//! Decoders of text, and what the readers of all stacks share.

use super::super::ArchitectureError;
use super::super::config::Config;
use super::{Experts, Head, Kind, LatentAttention, Norm, Positions, QueryKeyNorm, Transformer};

/// Families whose tensors are known by name and shape; others are read as a Llama.
const KNOWN: &[&str] = &[
    "bloom",
    "cohere",
    "deepseek_v2",
    "deepseek_v3",
    "falcon",
    "gemma",
    "gemma2",
    "gemma3_text",
    "glm4",
    "gpt2",
    "gpt_bigcode",
    "gpt_neo",
    "gpt_neox",
    "gpt_oss",
    "gptj",
    "granite",
    "llama",
    "llama4_text",
    "mistral",
    "mixtral",
    "mpt",
    "olmo",
    "olmo2",
    "opt",
    "phi",
    "phi3",
    "phimoe",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "smollm3",
    "stablelm",
    "starcoder2",
];

/// The class that the file was saved from.
pub(super) fn class(config: Config<'_>) -> Option<&str> {
    config.json().pointer("/architectures/0").and_then(serde_json::Value::as_str)
}

/// Whether a class is a stack without an output layer (`LlamaModel`, but not `GPT2LMHeadModel`).
pub(super) fn is_bare(class: &str) -> bool {
    class.ends_with("Model") && !class.contains("Head") && !class.contains("For")
}

/// Classes of a classifier; two where nothing is said, as the library has it.
pub(super) fn labels(config: Config<'_>) -> u64 {
    let named = config.part("id2label").and_then(serde_json::Value::as_object).map(|labels| labels.len() as u64);
    config.size(&["num_labels", "num_classes"]).or(named).unwrap_or(2)
}

/// What all stacks have, with a Llama's habits where a family has its own.
pub(super) fn base(config: Config<'_>, family: &str) -> Result<Transformer, ArchitectureError> {
    let hidden = config.needed(&["hidden_size", "n_embd", "d_model", "dim"])?;
    let layers = config.layers(&["num_hidden_layers", "n_layer", "n_layers", "num_layers"])?;
    let heads = config.needed(&["num_attention_heads", "n_head", "n_heads", "num_heads"])?;
    let head_dim = config.size(&["head_dim", "d_kv"]).unwrap_or(hidden / heads);
    let intermediate = ["intermediate_size", "n_inner", "ffn_dim", "d_ff", "ffn_hidden_size", "hidden_dim"];
    let attention_bias = config.flag(&["attention_bias"]).unwrap_or(false);
    let mlp_bias = config.flag(&["mlp_bias"]).unwrap_or(false);
    let vocabulary = config.size(&["vocab_size"]).unwrap_or(0);
    Ok(Transformer {
        family: family.to_owned(),
        class: String::new(),
        kind: Kind::Decoder,
        head: Head::Language,
        layers,
        hidden,
        heads,
        kv_heads: config.size(&["num_key_value_heads", "num_kv_heads"]).unwrap_or(heads),
        head_dim,
        intermediate: config.size(&intermediate).unwrap_or(hidden * 4),
        gated_mlp: true,
        activation: config
            .text(&["hidden_act", "hidden_activation", "activation_function", "activation", "dense_act_fn"])
            .unwrap_or("silu")
            .to_owned(),
        vocabulary,
        embedding_dim: hidden,
        tied_embeddings: config.flag(&["tie_word_embeddings"]).unwrap_or(false),
        max_positions: config.size(&["max_position_embeddings", "n_positions", "max_seq_len"]).unwrap_or(0),
        positions: Positions::Rotary(rotary(config, head_dim)),
        token_types: 0,
        norm: Norm::Rms,
        norm_bias: false,
        norms_per_layer: 2,
        post_norm: false,
        embedding_norm: false,
        final_norm: true,
        query_key_norm: QueryKeyNorm::None,
        attention_bias,
        output_bias: attention_bias,
        mlp_bias,
        head_bias: false,
        parallel_residual: false,
        cross_attention: false,
        sliding_window: None,
        windowed_layers: 0,
        latent: None,
        experts: None,
        attention_dropout: config
            .float(&["attention_dropout", "attn_pdrop", "attention_probs_dropout_prob", "dropout_rate"])
            .unwrap_or(0.0),
        hidden_dropout: config
            .float(&["hidden_dropout", "resid_pdrop", "hidden_dropout_prob", "dropout_rate", "dropout"])
            .unwrap_or(0.0),
        embedding_dropout: config.float(&["embd_pdrop", "emb_pdrop"]).unwrap_or(0.0),
        attention_softcap: None,
        logit_softcap: None,
        image: None,
        audio: None,
        encoder: None,
        vision: None,
        exact: KNOWN.contains(&family),
    })
}

/// Features of a head that are rotated.
fn rotary(config: Config<'_>, head_dim: u64) -> u64 {
    let partial = config
        .json()
        .pointer("/rope_parameters/partial_rotary_factor")
        .and_then(serde_json::Value::as_f64)
        .or_else(|| config.float(&["partial_rotary_factor", "rotary_pct"]));
    // The shares that classes have where a file names none.
    let habit = match config.text(&["model_type"]).unwrap_or_default() {
        "gpt_neox" | "stablelm" => Some(0.25),
        "phi" | "glm4" => Some(0.5),
        _ => None,
    };
    let partial = partial.or(habit);
    let of_head = partial.filter(|part| (0.0..=1.0).contains(part)).map(|part| (head_dim as f64 * part) as u64);
    config.size(&["rotary_dim"]).or(of_head).unwrap_or(head_dim)
}

/// A decoder of text.
pub(super) fn decoder(config: Config<'_>, family: &str) -> Result<Transformer, ArchitectureError> {
    let mut model = base(config, family)?;
    let layers = model.layers;
    match family {
        "mistral" | "phi3" | "starcoder2" => window(&mut model, config, layers),
        "qwen2" | "qwen3" | "qwen2_moe" | "qwen3_moe" if config.flag(&["use_sliding_window"]) == Some(true) => {
            let from = config.size(&["max_window_layers"]).unwrap_or(layers);
            window(&mut model, config, layers.saturating_sub(from));
        }
        "gemma2" | "gpt_oss" => window(&mut model, config, layers.div_ceil(2)),
        "gemma3_text" => {
            let pattern = config.size(&["sliding_window_pattern", "_sliding_window_pattern"]).unwrap_or(6).max(1);
            window(&mut model, config, layers - layers / pattern);
        }
        "llama4_text" => {
            let full = config.size(&["no_rope_layer_interval"]).unwrap_or(4).max(1);
            model.sliding_window = config.size(&["attention_chunk_size"]);
            model.windowed_layers = if model.sliding_window.is_some() { layers - layers / full } else { 0 };
        }
        _ => {}
    }
    match family {
        "mixtral" | "phimoe" => model.experts = experts(&model, config, model.intermediate),
        "qwen2" => (model.attention_bias, model.output_bias) = (true, false),
        "qwen2_moe" => {
            (model.attention_bias, model.output_bias) = (config.flag(&["qkv_bias"]).unwrap_or(true), false);
        }
        "qwen3" | "qwen3_moe" => model.query_key_norm = QueryKeyNorm::PerHead,
        "gemma2" | "gemma3_text" => {
            model.norms_per_layer = 4;
            model.attention_softcap = config.float(&["attn_logit_softcapping"]);
            model.logit_softcap = config.float(&["final_logit_softcapping"]);
            if family == "gemma3_text" {
                model.query_key_norm = QueryKeyNorm::PerHead;
            }
        }
        "phi" => {
            biased_layer_norm(&mut model);
            plain_mlp(&mut model, true);
            (model.attention_bias, model.output_bias, model.head_bias) = (true, true, true);
            (model.parallel_residual, model.norms_per_layer) = (true, 1);
        }
        "deepseek_v2" | "deepseek_v3" => latent(&mut model, config)?,
        "gpt_oss" => {
            model.experts = experts(&model, config, model.intermediate);
        }
        "llama4_text" => llama4(&mut model, config),
        "gpt_neox" => {
            biased_layer_norm(&mut model);
            plain_mlp(&mut model, true);
            model.parallel_residual = config.flag(&["use_parallel_residual"]).unwrap_or(true);
        }
        "opt" => {
            biased_layer_norm(&mut model);
            let bias = config.flag(&["enable_bias"]).unwrap_or(true);
            plain_mlp(&mut model, bias);
            (model.attention_bias, model.output_bias) = (bias, bias);
            // The first two rows stand for padding.
            model.positions = Positions::Learned(model.max_positions.saturating_add(2));
            model.embedding_dim = config.size(&["word_embed_proj_dim"]).unwrap_or(model.hidden);
            model.post_norm = config.flag(&["do_layer_norm_before"]) == Some(false);
            model.final_norm = !model.post_norm && config.flag(&["_remove_final_layer_norm"]) != Some(true);
        }
        "bloom" => {
            biased_layer_norm(&mut model);
            plain_mlp(&mut model, true);
            model.intermediate = model.hidden * 4;
            (model.attention_bias, model.output_bias) = (true, true);
            (model.positions, model.embedding_norm) = (Positions::None, true);
        }
        "falcon" => falcon(&mut model, config),
        "gpt2" | "gpt_bigcode" => {
            biased_layer_norm(&mut model);
            plain_mlp(&mut model, true);
            (model.attention_bias, model.output_bias) = (true, true);
            model.positions = Positions::Learned(model.max_positions);
            if family == "gpt_bigcode" && config.flag(&["multi_query"]).unwrap_or(true) {
                model.kv_heads = 1;
            }
        }
        "gpt_neo" => {
            biased_layer_norm(&mut model);
            plain_mlp(&mut model, true);
            (model.attention_bias, model.output_bias) = (false, true);
            model.positions = Positions::Learned(model.max_positions);
            model.sliding_window = config.size(&["window_size"]);
            model.windowed_layers = layers / 2;
        }
        "gptj" => {
            biased_layer_norm(&mut model);
            plain_mlp(&mut model, true);
            model.head_bias = true;
            (model.parallel_residual, model.norms_per_layer) = (true, 1);
        }
        "mpt" => {
            model.norm = Norm::Layer;
            plain_mlp(&mut model, false);
            model.intermediate = model.hidden.saturating_mul(config.size(&["expansion_ratio"]).unwrap_or(4));
            model.positions = Positions::None;
        }
        "stablelm" => {
            biased_layer_norm(&mut model);
            (model.attention_bias, model.output_bias) = (config.flag(&["use_qkv_bias"]).unwrap_or(false), false);
            if config.flag(&["use_parallel_residual"]) == Some(true) {
                (model.parallel_residual, model.norms_per_layer) = (true, 1);
            }
        }
        "starcoder2" => {
            biased_layer_norm(&mut model);
            let bias = config.flag(&["use_bias"]).unwrap_or(true);
            plain_mlp(&mut model, bias);
            (model.attention_bias, model.output_bias) = (bias, bias);
        }
        "olmo" => model.norm = Norm::Plain,
        "olmo2" | "olmo3" => {
            model.query_key_norm = QueryKeyNorm::Whole;
            model.post_norm = true;
        }
        "cohere" | "cohere2" => {
            model.norm = Norm::Layer;
            (model.parallel_residual, model.norms_per_layer) = (true, 1);
            // Whose norms of queries have a weight for each head.
            model.exact = model.exact && config.flag(&["use_qk_norm"]) != Some(true);
        }
        "glm4" => {
            (model.attention_bias, model.output_bias) = (config.flag(&["attention_bias"]).unwrap_or(true), false);
            model.norms_per_layer = 4;
        }
        _ => {}
    }
    match family {
        "phimoe" => {
            biased_layer_norm(&mut model);
            model.head_bias = config.flag(&["lm_head_bias"]).unwrap_or(false);
        }
        "qwen2_moe" | "qwen3_moe" => {
            let width = config.size(&["moe_intermediate_size"]).unwrap_or(model.intermediate);
            let mut found = experts(&model, config, width);
            if let Some(experts) = &mut found {
                experts.every = config.size(&["decoder_sparse_step"]).unwrap_or(1).max(1);
                experts.first_layer = experts.every - 1;
                experts.layers = layers / experts.every;
                experts.shared_intermediate = config.size(&["shared_expert_intermediate_size"]).unwrap_or(0);
                experts.shared_gate = experts.shared_intermediate > 0;
            }
            model.experts = found;
        }
        _ => {}
    }
    if !model.exact {
        // What a family of its own is likely to have is taken from the keys that families share.
        model.query_key_norm = match config.flag(&["use_qk_norm", "qk_norm"]) {
            Some(true) => QueryKeyNorm::PerHead,
            _ => model.query_key_norm,
        };
        if model.experts.is_none() {
            let width = config.size(&["moe_intermediate_size"]).unwrap_or(model.intermediate);
            model.experts = experts(&model, config, width);
        }
        window(&mut model, config, layers);
    }
    // What the file says of its layers one by one is better than a habit of the family.
    if let Some(types) = config.texts(&["layer_types"])
        && model.sliding_window.is_some()
    {
        let windowed = types.iter().filter(|kind| matches!(**kind, "sliding_attention" | "chunked_attention"));
        model.windowed_layers = (windowed.count() as u64).min(layers);
    }
    Ok(model)
}

fn window(model: &mut Transformer, config: Config<'_>, layers: u64) {
    model.sliding_window = config.size(&["sliding_window"]).filter(|&window| window > 0 && layers > 0);
    model.windowed_layers = if model.sliding_window.is_some() { layers.min(model.layers) } else { 0 };
}

fn biased_layer_norm(model: &mut Transformer) {
    model.norm = Norm::Layer;
    model.norm_bias = true;
}

fn plain_mlp(model: &mut Transformer, bias: bool) {
    model.gated_mlp = false;
    model.mlp_bias = bias;
}

/// Experts in every layer, as most families have them.
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

/// DeepSeek: compressed keys and values, and experts behind a few dense layers.
fn latent(model: &mut Transformer, config: Config<'_>) -> Result<(), ArchitectureError> {
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
    let width = config.size(&["moe_intermediate_size"]).unwrap_or(model.intermediate);
    let mut found = experts(model, config, width);
    if let Some(experts) = &mut found {
        experts.first_layer = config.size(&["first_k_dense_replace"]).unwrap_or(0);
        experts.every = config.size(&["moe_layer_freq"]).unwrap_or(1).max(1);
        experts.layers = model.layers.saturating_sub(experts.first_layer).div_ceil(experts.every);
        experts.shared_intermediate = config.size(&["n_shared_experts"]).unwrap_or(0).saturating_mul(width);
        experts.router_correction = model.family == "deepseek_v3";
    }
    model.experts = found;
    Ok(())
}

/// Llama 4: experts in every n-th layer with one shared expert, a wider MLP in the other layers.
fn llama4(model: &mut Transformer, config: Config<'_>) {
    let width = model.intermediate;
    let mut found = experts(model, config, width);
    if let Some(experts) = &mut found {
        experts.every = config.size(&["interleave_moe_layer_step"]).unwrap_or(1).max(1);
        experts.first_layer = experts.every - 1;
        experts.layers = model.layers / experts.every;
        experts.shared_intermediate = width;
    }
    model.experts = found;
    model.intermediate = config.size(&["intermediate_size_mlp"]).unwrap_or(width);
}

fn falcon(model: &mut Transformer, config: Config<'_>) {
    biased_layer_norm(model);
    let bias = config.flag(&["bias"]).unwrap_or(false);
    plain_mlp(model, bias);
    (model.attention_bias, model.output_bias) = (bias, bias);
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
}
