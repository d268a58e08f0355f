//! Translates the settings of a GGUF file into a configuration of transformers.
//!
//! The settings' names are those of <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

use serde_json::{Map, Value, json};

use super::ArchitectureError;
use crate::Tensor;

/// The family of transformers that an architecture of llama.cpp is.
const FAMILIES: &[(&str, &str)] = &[
    ("bloom", "bloom"),
    ("command-r", "cohere"),
    ("deepseek2", "deepseek_v3"),
    ("falcon", "falcon"),
    ("gemma", "gemma"),
    ("gemma2", "gemma2"),
    ("gemma3", "gemma3_text"),
    ("glm4", "glm4"),
    ("gpt-oss", "gpt_oss"),
    ("gpt2", "gpt2"),
    ("gptneox", "gpt_neox"),
    ("granite", "granite"),
    ("llama", "llama"),
    ("llama4", "llama4_text"),
    ("mpt", "mpt"),
    ("olmo2", "olmo2"),
    ("phi2", "phi"),
    ("phi3", "phi3"),
    ("qwen2", "qwen2"),
    ("qwen2moe", "qwen2_moe"),
    ("qwen2vl", "qwen2"),
    ("qwen3", "qwen3"),
    ("qwen3moe", "qwen3_moe"),
    ("smollm3", "smollm3"),
    ("stablelm", "stablelm"),
    ("starcoder2", "starcoder2"),
];

/// What settings say, under the names of transformers. The first name is the setting's, behind the architecture's.
const KEYS: &[(&str, &[&str])] = &[
    ("block_count", &["num_hidden_layers"]),
    ("embedding_length", &["hidden_size"]),
    ("feed_forward_length", &["intermediate_size", "intermediate_size_mlp", "ffn_hidden_size"]),
    ("attention.head_count", &["num_attention_heads"]),
    ("attention.head_count_kv", &["num_key_value_heads"]),
    ("attention.key_length", &["head_dim"]),
    ("context_length", &["max_position_embeddings"]),
    ("attention.sliding_window", &["sliding_window"]),
    ("expert_count", &["num_local_experts"]),
    ("expert_used_count", &["num_experts_per_tok"]),
    ("expert_feed_forward_length", &["moe_intermediate_size"]),
    ("expert_shared_feed_forward_length", &["shared_expert_intermediate_size"]),
    ("expert_shared_count", &["n_shared_experts"]),
    ("leading_dense_block_count", &["first_k_dense_replace"]),
    ("interleave_moe_layer_step", &["interleave_moe_layer_step"]),
    ("attention.q_lora_rank", &["q_lora_rank"]),
    ("attention.kv_lora_rank", &["kv_lora_rank"]),
    ("rope.dimension_count", &["rotary_dim"]),
];

/// The configuration that these settings would have been made from.
pub(super) fn config(settings: &Value, tensors: &[Tensor]) -> Result<Value, ArchitectureError> {
    let missing = |key: &str| ArchitectureError::Missing { key: key.to_owned(), family: "GGUF".to_owned() };
    let architecture =
        settings.get("general.architecture").and_then(Value::as_str).ok_or_else(|| missing("general.architecture"))?;
    let setting = |name: &str| settings.get(format!("{architecture}.{name}"));
    let known = FAMILIES.iter().find(|(name, _)| *name == architecture);
    let has_experts = setting("expert_count").and_then(Value::as_u64).is_some_and(|count| count > 0);
    let family = match known.map_or(architecture, |(_, family)| family) {
        "llama" if has_experts => "mixtral",
        family => family,
    };
    let mut config = Map::new();
    config.insert("model_type".into(), family.into());
    for (name, keys) in KEYS {
        // Where layers differ, a setting is a list; the largest is what a layer may need.
        let value = setting(name).and_then(|value| match value {
            Value::Array(values) => values.iter().filter_map(Value::as_u64).max(),
            value => value.as_u64(),
        });
        if let Some(value) = value {
            for key in *keys {
                config.insert((*key).into(), value.into());
            }
        }
    }
    if family == "deepseek_v3" {
        latent(&mut config, &setting);
    }
    let rows = |name: &str| {
        // A file has the fastest dimension first, so that the number of tokens is the second.
        tensors.iter().find(|tensor| tensor.name == name).and_then(|tensor| tensor.shape.get(1).copied())
    };
    let listed = settings.get("tokenizer.ggml.tokens").and_then(|tokens| match tokens {
        Value::Array(tokens) => Some(tokens.len() as u64),
        tokens => tokens.get("length").and_then(Value::as_u64),
    });
    let stated = setting("vocab_size").and_then(Value::as_u64);
    if let Some(vocabulary) = rows("token_embd.weight").or(listed).or(stated) {
        config.insert("vocab_size".into(), vocabulary.into());
    }
    if !tensors.is_empty() {
        let untied = tensors.iter().any(|tensor| tensor.name == "output.weight");
        config.insert("tie_word_embeddings".into(), (!untied).into());
    }
    if family == "falcon" {
        // Its first generation has one head of keys, its second several.
        let several = config.get("num_key_value_heads").and_then(Value::as_u64).is_some_and(|heads| heads > 1);
        config.insert("new_decoder_architecture".into(), several.into());
        if let Some(heads) = config.get("num_key_value_heads").cloned() {
            config.insert("num_kv_heads".into(), heads);
        }
    }
    if !matches!(family, "gptj" | "phi" | "gpt_neox") {
        config.remove("rotary_dim");
    }
    Ok(Value::Object(config))
}

/// DeepSeek's widths of a head, which a file gives in two ways: of the compressed form, and separately from it.
fn latent<'a>(config: &mut Map<String, Value>, setting: &impl Fn(&str) -> Option<&'a Value>) {
    let number = |name: &str| setting(name).and_then(Value::as_u64);
    let rope = number("rope.dimension_count").unwrap_or(64);
    let whole = number("attention.key_length_mla").or_else(|| number("attention.key_length")).unwrap_or(192);
    let value = number("attention.value_length_mla").or_else(|| number("attention.value_length")).unwrap_or(128);
    config.insert("qk_rope_head_dim".into(), json!(rope));
    config.insert("qk_nope_head_dim".into(), json!(whole.saturating_sub(rope)));
    config.insert("v_head_dim".into(), json!(value));
    config.entry("q_lora_rank").or_insert(json!(0));
    if let Some(experts) = config.remove("num_local_experts") {
        config.insert("n_routed_experts".into(), experts);
    }
}
