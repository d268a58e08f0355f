//! Names the tensors of each family of transformers as `named_parameters()` of the library does.
//!
//! An empty name means that a family has no such tensor.

use super::{Kind, Transformer};

/// The names of one stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    /// The token embedding.
    pub embedding: &'static str,
    /// The table of positions.
    pub positions: &'static str,
    /// The segment embedding.
    pub token_types: &'static str,
    /// The norm behind the embeddings.
    pub embedding_norm: &'static str,
    /// The list of layers; the names below are within a layer.
    pub layers: &'static str,
    /// Projections of queries, keys and values; only the first where all three are one matrix.
    pub query: &'static str,
    pub key: &'static str,
    pub value: &'static str,
    pub output: &'static str,
    /// Norms of queries and keys.
    pub query_norm: &'static str,
    pub key_norm: &'static str,
    /// The MLP: the gate is empty where gate and up-projection are one matrix, or where there is none.
    pub gate: &'static str,
    pub up: &'static str,
    pub down: &'static str,
    /// The mixture of experts, its router and its shared MLP.
    pub experts: &'static str,
    pub router: &'static str,
    pub shared: &'static str,
    pub shared_gate: &'static str,
    /// Norms of the residual stream, in the order of their use.
    pub norms: &'static [&'static str],
    /// Attention to an encoder: its prefix, within which projections have the names above, and its norm.
    pub cross: &'static str,
    pub cross_norm: &'static str,
    pub final_norm: &'static str,
    pub head: &'static str,
    /// Whether matrices are stored input first, as GPT-2's `Conv1D` does.
    pub transposed: bool,
}

pub(super) const LLAMA: Names = Names {
    embedding: "model.embed_tokens",
    positions: "",
    token_types: "",
    embedding_norm: "",
    layers: "model.layers",
    query: "self_attn.q_proj",
    key: "self_attn.k_proj",
    value: "self_attn.v_proj",
    output: "self_attn.o_proj",
    query_norm: "self_attn.q_norm",
    key_norm: "self_attn.k_norm",
    gate: "mlp.gate_proj",
    up: "mlp.up_proj",
    down: "mlp.down_proj",
    experts: "mlp.experts",
    router: "mlp.gate",
    shared: "mlp.shared_experts",
    shared_gate: "",
    norms: &["input_layernorm", "post_attention_layernorm"],
    cross: "",
    cross_norm: "",
    final_norm: "model.norm",
    head: "lm_head",
    transposed: false,
};

const PHI: Names = Names {
    output: "self_attn.dense",
    gate: "",
    up: "mlp.fc1",
    down: "mlp.fc2",
    norms: &["input_layernorm"],
    final_norm: "model.final_layernorm",
    query_norm: "self_attn.q_layernorm",
    key_norm: "self_attn.k_layernorm",
    ..LLAMA
};

const PHI3: Names =
    Names { query: "self_attn.qkv_proj", key: "", value: "", gate: "", up: "mlp.gate_up_proj", ..LLAMA };

const GEMMA2: Names = Names {
    norms: &["input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"],
    ..LLAMA
};

const LLAMA4: Names = Names {
    gate: "feed_forward.gate_proj",
    up: "feed_forward.up_proj",
    down: "feed_forward.down_proj",
    experts: "feed_forward.experts",
    router: "feed_forward.router",
    shared: "feed_forward.shared_expert",
    ..LLAMA
};

const QWEN2_MOE: Names = Names { shared: "mlp.shared_expert", shared_gate: "mlp.shared_expert_gate", ..LLAMA };

const ROUTER: Names = Names { router: "mlp.router", ..LLAMA };

const GLM4: Names = Names {
    gate: "",
    up: "mlp.gate_up_proj",
    norms: &["input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm"],
    ..LLAMA
};

const OLMO2: Names = Names { norms: &["post_attention_layernorm", "post_feedforward_layernorm"], ..LLAMA };

const COHERE: Names = Names { norms: &["input_layernorm"], ..LLAMA };

const STARCODER2: Names = Names { gate: "", up: "mlp.c_fc", down: "mlp.c_proj", ..LLAMA };

const NEOX: Names = Names {
    embedding: "gpt_neox.embed_in",
    layers: "gpt_neox.layers",
    query: "attention.query_key_value",
    key: "",
    value: "",
    output: "attention.dense",
    gate: "",
    up: "mlp.dense_h_to_4h",
    down: "mlp.dense_4h_to_h",
    final_norm: "gpt_neox.final_layer_norm",
    ..LLAMA
};

const BLOOM: Names = Names {
    embedding: "transformer.word_embeddings",
    embedding_norm: "transformer.word_embeddings_layernorm",
    layers: "transformer.h",
    query: "self_attention.query_key_value",
    output: "self_attention.dense",
    final_norm: "transformer.ln_f",
    ..NEOX
};

const FALCON: Names = Names { norms: &["input_layernorm"], ..BLOOM };

const FALCON_NEW: Names = Names { norms: &["ln_attn", "ln_mlp"], ..BLOOM };

const GPT2: Names = Names {
    embedding: "transformer.wte",
    positions: "transformer.wpe",
    layers: "transformer.h",
    query: "attn.c_attn",
    key: "",
    value: "",
    output: "attn.c_proj",
    gate: "",
    up: "mlp.c_fc",
    down: "mlp.c_proj",
    norms: &["ln_1", "ln_2"],
    final_norm: "transformer.ln_f",
    transposed: true,
    ..LLAMA
};

const GPT_BIGCODE: Names = Names { transposed: false, ..GPT2 };

const GPT_NEO: Names = Names {
    query: "attn.attention.q_proj",
    key: "attn.attention.k_proj",
    value: "attn.attention.v_proj",
    output: "attn.attention.out_proj",
    transposed: false,
    ..GPT2
};

const GPTJ: Names = Names {
    query: "attn.q_proj",
    key: "attn.k_proj",
    value: "attn.v_proj",
    output: "attn.out_proj",
    up: "mlp.fc_in",
    down: "mlp.fc_out",
    norms: &["ln_1"],
    positions: "",
    transposed: false,
    ..GPT2
};

const MPT: Names = Names {
    layers: "transformer.blocks",
    query: "attn.Wqkv",
    output: "attn.out_proj",
    up: "ffn.up_proj",
    down: "ffn.down_proj",
    norms: &["norm_1", "norm_2"],
    final_norm: "transformer.norm_f",
    positions: "",
    transposed: false,
    ..GPT2
};

const OPT: Names = Names {
    embedding: "model.decoder.embed_tokens",
    positions: "model.decoder.embed_positions",
    layers: "model.decoder.layers",
    output: "self_attn.out_proj",
    gate: "",
    up: "fc1",
    down: "fc2",
    norms: &["self_attn_layer_norm", "final_layer_norm"],
    final_norm: "model.decoder.final_layer_norm",
    ..LLAMA
};

const BART_DECODER: Names = Names {
    embedding: "model.shared",
    embedding_norm: "model.decoder.layernorm_embedding",
    cross: "encoder_attn",
    cross_norm: "encoder_attn_layer_norm",
    final_norm: "model.decoder.layer_norm",
    ..OPT
};

const BART_ENCODER: Names = Names {
    embedding: "",
    positions: "model.encoder.embed_positions",
    embedding_norm: "model.encoder.layernorm_embedding",
    layers: "model.encoder.layers",
    final_norm: "model.encoder.layer_norm",
    head: "",
    ..OPT
};

const WHISPER_DECODER: Names = Names { embedding: "model.decoder.embed_tokens", ..BART_DECODER };

const T5_DECODER: Names = Names {
    embedding: "shared",
    positions: "layer.0.SelfAttention.relative_attention_bias",
    layers: "decoder.block",
    query: "layer.0.SelfAttention.q",
    key: "layer.0.SelfAttention.k",
    value: "layer.0.SelfAttention.v",
    output: "layer.0.SelfAttention.o",
    gate: "layer.2.DenseReluDense.wi_0",
    up: "layer.2.DenseReluDense.wi_1",
    down: "layer.2.DenseReluDense.wo",
    norms: &["layer.0.layer_norm", "layer.2.layer_norm"],
    cross: "layer.1.EncDecAttention",
    cross_norm: "layer.1.layer_norm",
    final_norm: "decoder.final_layer_norm",
    ..LLAMA
};

const T5_ENCODER: Names = Names {
    layers: "encoder.block",
    gate: "layer.1.DenseReluDense.wi_0",
    up: "layer.1.DenseReluDense.wi_1",
    down: "layer.1.DenseReluDense.wo",
    norms: &["layer.0.layer_norm", "layer.1.layer_norm"],
    cross: "",
    cross_norm: "",
    final_norm: "encoder.final_layer_norm",
    head: "",
    ..T5_DECODER
};

const BERT: Names = Names {
    embedding: "embeddings.word_embeddings",
    positions: "embeddings.position_embeddings",
    token_types: "embeddings.token_type_embeddings",
    embedding_norm: "embeddings.LayerNorm",
    layers: "encoder.layer",
    query: "attention.self.query",
    key: "attention.self.key",
    value: "attention.self.value",
    output: "attention.output.dense",
    gate: "",
    up: "intermediate.dense",
    down: "output.dense",
    norms: &["attention.output.LayerNorm", "output.LayerNorm"],
    final_norm: "",
    ..LLAMA
};

const DEBERTA_V2: Names = Names {
    query: "attention.self.query_proj",
    key: "attention.self.key_proj",
    value: "attention.self.value_proj",
    ..BERT
};

const DISTILBERT: Names = Names {
    layers: "transformer.layer",
    query: "attention.q_lin",
    key: "attention.k_lin",
    value: "attention.v_lin",
    output: "attention.out_lin",
    up: "ffn.lin1",
    down: "ffn.lin2",
    norms: &["sa_layer_norm", "output_layer_norm"],
    ..BERT
};

const ALBERT: Names = Names {
    layers: "encoder.albert_layer_groups.0.albert_layers",
    query: "attention.query",
    key: "attention.key",
    value: "attention.value",
    output: "attention.dense",
    up: "ffn",
    down: "ffn_output",
    norms: &["attention.LayerNorm", "full_layer_layer_norm"],
    ..BERT
};

const VIT: Names = Names {
    embedding: "",
    positions: "embeddings.position_embeddings",
    layers: "layers",
    query: "attention.q_proj",
    key: "attention.k_proj",
    value: "attention.v_proj",
    output: "attention.o_proj",
    gate: "",
    up: "mlp.fc1",
    down: "mlp.fc2",
    norms: &["layernorm_before", "layernorm_after"],
    final_norm: "layernorm",
    head: "classifier",
    ..LLAMA
};

const DINOV2: Names = Names { layers: "encoder.layer", norms: &["norm1", "norm2"], ..VIT };

const CLIP_TEXT: Names = Names {
    embedding: "embeddings.token_embedding",
    positions: "embeddings.position_embedding",
    layers: "encoder.layers",
    output: "self_attn.out_proj",
    gate: "",
    up: "mlp.fc1",
    down: "mlp.fc2",
    norms: &["layer_norm1", "layer_norm2"],
    final_norm: "final_layer_norm",
    ..LLAMA
};

const CLIP_VISION: Names =
    Names { embedding: "", embedding_norm: "pre_layrnorm", final_norm: "post_layernorm", ..CLIP_TEXT };

const LLAMA4_VISION: Names = Names {
    layers: "model.layers",
    gate: "",
    up: "mlp.fc1",
    down: "mlp.fc2",
    embedding_norm: "layernorm_pre",
    final_norm: "layernorm_post",
    head: "",
    ..LLAMA
};

const QWEN_VISION: Names = Names {
    layers: "blocks",
    query: "attn.qkv",
    key: "",
    value: "",
    output: "attn.proj",
    norms: &["norm1", "norm2"],
    final_norm: "",
    head: "",
    ..LLAMA
};

/// The names of a stack's family; those of a Llama where it is not known.
pub(super) fn of(stack: &Transformer) -> &'static Names {
    // The encoder of a pair.
    let reads = stack.kind != Kind::Decoder;
    match stack.family.as_str() {
        "phi" => &PHI,
        "phi3" => &PHI3,
        "gemma2" | "gemma3_text" => &GEMMA2,
        "llama4_text" => &LLAMA4,
        "qwen2_moe" => &QWEN2_MOE,
        "gpt_oss" | "phimoe" => &ROUTER,
        "glm4" => &GLM4,
        "olmo2" | "olmo3" => &OLMO2,
        "cohere" | "cohere2" => &COHERE,
        "starcoder2" => &STARCODER2,
        "gpt_neox" => &NEOX,
        "bloom" => &BLOOM,
        "falcon" if !stack.parallel_residual => &BLOOM,
        "falcon" if stack.norms_per_layer == 2 => &FALCON_NEW,
        "falcon" => &FALCON,
        "gpt2" => &GPT2,
        "gpt_bigcode" => &GPT_BIGCODE,
        "gpt_neo" => &GPT_NEO,
        "gptj" => &GPTJ,
        "mpt" => &MPT,
        "opt" => &OPT,
        "bart" | "mbart" | "pegasus" | "whisper" if reads => &BART_ENCODER,
        "bart" | "mbart" | "pegasus" => &BART_DECODER,
        "whisper" => &WHISPER_DECODER,
        "t5" | "mt5" | "umt5" if reads => &T5_ENCODER,
        "t5" | "mt5" | "umt5" => &T5_DECODER,
        "bert" | "roberta" | "xlm-roberta" | "electra" => &BERT,
        "deberta-v2" => &DEBERTA_V2,
        "distilbert" => &DISTILBERT,
        "albert" => &ALBERT,
        "vit" | "deit" => &VIT,
        "dinov2" => &DINOV2,
        "clip_text_model" | "siglip_text_model" => &CLIP_TEXT,
        "clip_vision_model" | "siglip_vision_model" => &CLIP_VISION,
        "llama4_vision_model" => &LLAMA4_VISION,
        "qwen2_vl" | "qwen2_5_vl" if reads => &QWEN_VISION,
        _ => &LLAMA,
    }
}
