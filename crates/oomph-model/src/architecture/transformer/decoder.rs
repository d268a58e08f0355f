//! Decoders of text, and what the readers of all stacks share.

use super::super::ArchitectureError;
use super::super::config::Config;
use super::families::{Places, family};
use super::rules::narrow_experts;
use super::{Head, Kind, Norm, Positions, QueryKeyNorm, Transformer};

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
pub(super) fn base(config: Config<'_>, name: &str) -> Result<Transformer, ArchitectureError> {
    let hidden = config.needed(&["hidden_size", "n_embd", "d_model", "dim"])?;
    let layers = config.layers(&["num_hidden_layers", "n_layer", "n_layers", "num_layers"])?;
    let heads = config.needed(&["num_attention_heads", "n_head", "n_heads", "num_heads"])?;
    let head_dim = config.size(&["head_dim", "d_kv"]).unwrap_or(hidden / heads);
    let intermediate = ["intermediate_size", "n_inner", "ffn_dim", "d_ff", "ffn_hidden_size", "hidden_dim"];
    let attention_bias = config.flag(&["attention_bias"]).unwrap_or(false);
    let mlp_bias = config.flag(&["mlp_bias"]).unwrap_or(false);
    let vocabulary = config.size(&["vocab_size"]).unwrap_or(0);
    Ok(Transformer {
        family: name.to_owned(),
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
        exact: family(name).exact,
    })
}

/// Features of a head that are rotated.
fn rotary(config: Config<'_>, head_dim: u64) -> u64 {
    let partial = config
        .json()
        .pointer("/rope_parameters/partial_rotary_factor")
        .and_then(serde_json::Value::as_f64)
        .or_else(|| config.float(&["partial_rotary_factor", "rotary_pct"]));
    // What classes have where a file names nothing.
    let partial = partial.or_else(|| family(config.text(&["model_type"]).unwrap_or_default()).rotated);
    let of_head = partial.filter(|part| (0.0..=1.0).contains(part)).map(|part| (head_dim as f64 * part) as u64);
    config.size(&["rotary_dim"]).or(of_head).unwrap_or(head_dim)
}

/// A decoder of text.
pub(super) fn decoder(config: Config<'_>, name: &str) -> Result<Transformer, ArchitectureError> {
    let mut model = base(config, name)?;
    let family = family(name);
    model.norm = family.norm;
    model.norm_bias = family.norm_bias;
    model.norms_per_layer = family.norms_per_layer;
    model.post_norm = family.post_norm;
    model.query_key_norm = family.query_key_norm;
    model.attention_bias = family.attention_bias.of(config);
    model.output_bias = family.output_bias.of(config);
    model.gated_mlp = family.gated_mlp;
    model.mlp_bias = family.mlp_bias.of(config);
    model.head_bias = family.head_bias.of(config);
    model.parallel_residual = family.parallel_residual.of(config);
    model.positions = match family.places {
        Places::Rotary => model.positions,
        Places::Learned(more) => Positions::Learned(model.max_positions.saturating_add(more)),
        Places::None => Positions::None,
    };
    let windowed = (family.windowed)(config, model.layers);
    window(&mut model, config, windowed);
    model.experts = (family.experts)(&model, config);
    (family.further)(&mut model, config)?;
    if !model.exact {
        guess(&mut model, config);
    }
    // What the file says of its layers one by one is better than a habit of the family.
    if let Some(types) = config.texts(&["layer_types"])
        && model.sliding_window.is_some()
    {
        let windowed = types.iter().filter(|kind| matches!(**kind, "sliding_attention" | "chunked_attention"));
        model.windowed_layers = (windowed.count() as u64).min(model.layers);
    }
    Ok(model)
}

/// What a family that is not known is likely to have, from the keys that families share.
fn guess(model: &mut Transformer, config: Config<'_>) {
    if config.flag(&["use_qk_norm", "qk_norm"]) == Some(true) {
        model.query_key_norm = QueryKeyNorm::PerHead;
    }
    if model.experts.is_none() {
        model.experts = narrow_experts(model, config);
    }
    window(model, config, model.layers);
}

fn window(model: &mut Transformer, config: Config<'_>, layers: u64) {
    model.sliding_window = config.size(&["sliding_window"]).filter(|&window| window > 0 && layers > 0);
    model.windowed_layers = if model.sliding_window.is_some() { layers.min(model.layers) } else { 0 };
}
