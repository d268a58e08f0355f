//! Lists the tensors of a [`Transformer`], as transformers builds it.

use super::super::builder::Builder;
use super::super::parameter::{Parameter, Role};
use super::names::{self, Names};
use super::{Experts, Head, Kind, Norm, Positions, QueryKeyNorm, Transformer};
use crate::Dtype;

/// Every parameter and buffer of the model with its encoder and its vision tower.
pub(in super::super) fn parameters(model: &Transformer) -> Vec<Parameter> {
    let mut builder = Builder::default();
    if let Some(encoder) = &model.encoder {
        stack(&mut builder, encoder);
    }
    match &model.vision {
        Some(vision) if model.kind == Kind::Decoder => vision_and_text(&mut builder, model, vision),
        Some(vision) => {
            // CLIP and SigLIP: two towers that meet.
            builder.within("text_model", |builder| stack(builder, model));
            builder.within("vision_model", |builder| stack(builder, vision));
            meeting(&mut builder, model, vision);
        }
        None => {
            let base = base_prefix(model);
            if base.is_empty() {
                stack(&mut builder, model);
            } else {
                builder.within(base, |builder| stack(builder, model));
            }
            projection(&mut builder, model);
        }
    }
    heads(&mut builder, model);
    let mut parameters = builder.finish();
    if model.kind == Kind::Decoder {
        place(model, &mut parameters);
    }
    parameters
}

/// What a class with a head puts before the names of the stack.
fn base_prefix(model: &Transformer) -> &'static str {
    let bare = model.head == Head::None;
    match model.family.as_str() {
        "clip_text_model" if matches!(model.head, Head::Projection(_)) => "text_model",
        "clip_vision_model" if matches!(model.head, Head::Projection(_)) => "vision_model",
        _ if bare => "",
        "bert" => "bert",
        "roberta" | "xlm-roberta" => "roberta",
        "electra" => "electra",
        "deberta-v2" => "deberta",
        "distilbert" => "distilbert",
        "albert" => "albert",
        "vit" => "vit",
        "deit" => "deit",
        _ => "",
    }
}

/// Moves a decoder's names to where its class has them: a bare model has no `model.` before them, a model with a
/// vision tower has `model.language_model.`.
fn place(model: &Transformer, parameters: &mut [Parameter]) {
    let bare = model.head == Head::None;
    let (from, to) = match (model.vision.is_some(), model.family.as_str()) {
        (true, "llama4_text") => ("", "language_model."),
        (true, _) => ("model.", "model.language_model."),
        (false, _) if bare => {
            let embedding = names::of(model).embedding;
            (embedding.split_inclusive('.').next().unwrap_or_default(), "")
        }
        _ => return,
    };
    let outside_text = [
        "model.vision_tower.",
        "model.visual.",
        "model.multi_modal_projector.",
        "vision_model.",
        "multi_modal_projector.",
        "lm_head.",
    ];
    for parameter in parameters {
        let moved = |name: &str| model.vision.is_some() && outside_text.iter().any(|prefix| name.starts_with(prefix));
        // Only where the whole model moves does its head move too.
        let stays = moved(&parameter.name) && !(from.is_empty() && parameter.name.starts_with("lm_head."));
        if !stays && let Some(rest) = parameter.name.strip_prefix(from) {
            parameter.name = format!("{to}{rest}");
        }
    }
}

/// One stack: embeddings, layers, final norm.
fn stack(out: &mut Builder, model: &Transformer) {
    let names = names::of(model);
    embeddings(out, model, names);
    // ALBERT's layers are one layer, used again and again.
    let layers = if model.family == "albert" { 1 } else { model.layers };
    out.layers(names.layers, layers, |out, index| layer(out, model, names, index));
    if model.final_norm {
        norm(out, model, names.final_norm, model.hidden);
    }
    if model.kind == Kind::Decoder {
        rotary(out, model);
    }
}

fn embeddings(out: &mut Builder, model: &Transformer, names: &Names) {
    let width = model.embedding_dim;
    if model.vocabulary > 0 && !names.embedding.is_empty() {
        out.table(names.embedding, model.vocabulary, width);
    }
    if let Some(image) = model.image {
        patches(out, model, image.channels, image.patch);
    }
    if let Some(audio) = model.audio {
        let hidden = model.hidden;
        out.convolution("model.encoder.conv1", hidden, audio.mel_bins, &[3], true, Role::Embedding);
        out.convolution("model.encoder.conv2", hidden, hidden, &[3], true, Role::Embedding);
    }
    match model.positions {
        Positions::Learned(rows) if matches!(model.family.as_str(), "vit" | "deit" | "dinov2") => {
            out.bare(names.positions, &[1, rows, model.hidden], Role::Embedding);
        }
        Positions::Learned(rows) if model.family == "llama4_vision_model" => {
            out.bare("positional_embedding_vlm", &[rows, model.hidden], Role::Embedding);
        }
        Positions::Learned(rows) | Positions::Fixed(rows) if !names.positions.is_empty() => {
            let width = if model.kind == Kind::Encoder { width } else { model.hidden };
            out.table(names.positions, rows, width);
            index_buffers(out, model, rows);
        }
        Positions::Relative(rows) => {
            out.table("encoder.rel_embeddings", rows, model.hidden);
            norm(out, model, "encoder.LayerNorm", model.hidden);
            index_buffers(out, model, model.max_positions);
        }
        _ => {}
    }
    if model.token_types > 0 {
        out.table(names.token_types, model.token_types, width);
    }
    if model.embedding_norm {
        norm(out, model, names.embedding_norm, if model.kind == Kind::Encoder { width } else { model.hidden });
    }
    if width != model.hidden {
        match model.family.as_str() {
            "electra" => out.linear("embeddings_project", model.hidden, width, true, Role::Embedding),
            "albert" => out.linear("encoder.embedding_hidden_mapping_in", model.hidden, width, true, Role::Embedding),
            "opt" => {
                out.linear("model.decoder.project_in", model.hidden, width, false, Role::Embedding);
                out.linear("model.decoder.project_out", width, model.hidden, false, Role::Head);
            }
            _ => {}
        }
    }
    match model.family.as_str() {
        "gemma" | "gemma2" | "gemma3_text" => out.buffer("model.embed_tokens.embed_scale", &[], Some(Dtype::Float32)),
        "gpt_bigcode" => {
            let side = model.max_positions;
            out.buffer("transformer.bias", &[side, side], Some(Dtype::Bool));
        }
        _ => {}
    }
}

/// Indices that some libraries keep with a table of positions.
fn index_buffers(out: &mut Builder, model: &Transformer, rows: u64) {
    let segments = match model.family.as_str() {
        "bert" | "roberta" | "xlm-roberta" | "electra" | "albert" => true,
        "distilbert"
        | "deberta-v2"
        | "clip_text_model"
        | "siglip_text_model"
        | "clip_vision_model"
        | "siglip_vision_model" => false,
        _ => return,
    };
    out.buffer("embeddings.position_ids", &[1, rows], Some(Dtype::Int64));
    if segments {
        out.buffer("embeddings.token_type_ids", &[1, rows], Some(Dtype::Int64));
    }
}

fn patches(out: &mut Builder, model: &Transformer, channels: u64, patch: u64) {
    let hidden = model.hidden;
    match model.family.as_str() {
        "vit" | "deit" | "dinov2" => {
            out.bare("embeddings.cls_token", &[1, 1, hidden], Role::Embedding);
            match model.family.as_str() {
                "deit" => out.bare("embeddings.distillation_token", &[1, 1, hidden], Role::Embedding),
                "dinov2" => out.bare("embeddings.mask_token", &[1, hidden], Role::Embedding),
                _ => {}
            }
            let name = "embeddings.patch_embeddings.projection";
            out.convolution(name, hidden, channels, &[patch, patch], true, Role::Embedding);
        }
        "llama4_vision_model" => {
            out.bare("class_embedding", &[hidden], Role::Embedding);
            out.linear(
                "patch_embedding.linear",
                hidden,
                channels.saturating_mul(patch).saturating_mul(patch),
                false,
                Role::Embedding,
            );
        }
        "qwen2_vl" | "qwen2_5_vl" => {
            // Two frames make one patch.
            out.convolution("patch_embed.proj", hidden, channels, &[2, patch, patch], false, Role::Embedding);
        }
        family => {
            let clip = family == "clip_vision_model";
            if clip {
                out.bare("embeddings.class_embedding", &[hidden], Role::Embedding);
            }
            let name = "embeddings.patch_embedding";
            out.convolution(name, hidden, channels, &[patch, patch], !clip, Role::Embedding);
        }
    }
}

fn norm(out: &mut Builder, model: &Transformer, name: &str, width: u64) {
    if model.norm != Norm::Plain && !name.is_empty() {
        out.norm(name, width, model.norm_bias);
    }
}

fn layer(out: &mut Builder, model: &Transformer, names: &Names, index: u64) {
    if model.latent.is_some() {
        latent_attention(out, model);
    } else {
        attention(out, model, names, index);
    }
    if model.cross_attention {
        let last = |name: &'static str| name.rsplit('.').next().unwrap_or(name);
        let cross = |name| format!("{}.{}", names.cross, last(name));
        let (query, hidden) = (model.query_width(), model.hidden);
        let biased = model.attention_bias;
        out.linear(&cross(names.query), query, hidden, biased, Role::Attention);
        out.linear(&cross(names.key), model.kv_width(), hidden, key_bias(model), Role::Attention);
        out.linear(&cross(names.value), model.kv_width(), hidden, biased, Role::Attention);
        out.linear(&cross(names.output), hidden, query, model.output_bias, Role::Attention);
        norm(out, model, names.cross_norm, hidden);
    }
    match &model.experts {
        Some(experts) if experts.in_layer(index) => mixture(out, model, names, experts),
        _ => mlp(out, model, names),
    }
    let in_stack = model.norms_per_layer.saturating_sub(u64::from(model.cross_attention)) as usize;
    for name in names.norms.iter().take(in_stack) {
        norm(out, model, name, model.hidden);
    }
    if model.family == "dinov2" {
        out.bare("layer_scale1.lambda1", &[model.hidden], Role::Norm);
        out.bare("layer_scale2.lambda1", &[model.hidden], Role::Norm);
    }
}

/// Whisper's keys have no bias, where its queries and values have.
fn key_bias(model: &Transformer) -> bool {
    model.attention_bias && model.family != "whisper"
}

fn attention(out: &mut Builder, model: &Transformer, names: &Names, index: u64) {
    let (query, kv, hidden) = (model.query_width(), model.kv_width(), model.hidden);
    let linear = if names.transposed { Builder::transposed } else { Builder::linear };
    if names.key.is_empty() {
        let all = query.saturating_add(kv.saturating_mul(2));
        linear(out, names.query, all, hidden, model.attention_bias, Role::Attention);
    } else {
        linear(out, names.query, query, hidden, model.attention_bias, Role::Attention);
        linear(out, names.key, kv, hidden, key_bias(model), Role::Attention);
        linear(out, names.value, kv, hidden, model.attention_bias, Role::Attention);
    }
    linear(out, names.output, hidden, query, model.output_bias, Role::Attention);
    match model.query_key_norm {
        QueryKeyNorm::None => {}
        QueryKeyNorm::PerHead => {
            out.norm(names.query_norm, model.head_dim, false);
            out.norm(names.key_norm, model.head_dim, false);
        }
        QueryKeyNorm::Whole => {
            out.norm(names.query_norm, query, false);
            out.norm(names.key_norm, kv, false);
        }
    }
    match (model.family.as_str(), model.positions) {
        ("gpt_oss", _) => out.bare("self_attn.sinks", &[model.heads], Role::Attention),
        // T5 keeps the biases of distances in its first layer, UMT5 in each.
        (family, Positions::Buckets(buckets)) if index == 0 || family == "umt5" => {
            out.table(names.positions, buckets, model.heads);
        }
        ("gptj", Positions::Rotary(width)) => {
            out.buffer("attn.embed_positions", &[model.max_positions, width], Some(Dtype::Float32));
        }
        ("gpt_neo", _) => {
            let side = model.max_positions;
            out.buffer("attn.attention.bias", &[1, 1, side, side], Some(Dtype::Bool));
        }
        _ => {}
    }
}

/// DeepSeek's attention through compressed keys and values.
fn latent_attention(out: &mut Builder, model: &Transformer) {
    let Some(latent) = model.latent else { return };
    let (hidden, bias) = (model.hidden, model.attention_bias);
    let query = model.heads.saturating_mul(latent.nope_dim + latent.rope_dim);
    out.within("self_attn", |out| {
        match latent.query_rank {
            Some(rank) => {
                out.linear("q_a_proj", rank, hidden, bias, Role::Attention);
                out.norm("q_a_layernorm", rank, false);
                out.linear("q_b_proj", query, rank, false, Role::Attention);
            }
            None => out.linear("q_proj", query, hidden, false, Role::Attention),
        }
        out.linear("kv_a_proj_with_mqa", latent.kv_rank + latent.rope_dim, hidden, bias, Role::Attention);
        out.norm("kv_a_layernorm", latent.kv_rank, false);
        let decompressed = model.heads.saturating_mul(latent.nope_dim + latent.value_dim);
        out.linear("kv_b_proj", decompressed, latent.kv_rank, false, Role::Attention);
        out.linear("o_proj", hidden, model.value_width(), bias, Role::Attention);
    });
}

fn mlp(out: &mut Builder, model: &Transformer, names: &Names) {
    let (hidden, inner, bias) = (model.hidden, model.intermediate, model.mlp_bias);
    let linear = if names.transposed { Builder::transposed } else { Builder::linear };
    match (model.gated_mlp, names.gate) {
        (true, "") => linear(out, names.up, inner.saturating_mul(2), hidden, bias, Role::Mlp),
        (true, gate) => {
            linear(out, gate, inner, hidden, bias, Role::Mlp);
            linear(out, names.up, inner, hidden, bias, Role::Mlp);
        }
        // T5's one projection up is `wi` where two are `wi_0` and `wi_1`.
        (false, _) => linear(out, names.up.trim_end_matches("_1"), inner, hidden, bias, Role::Mlp),
    }
    linear(out, names.down, hidden, inner, bias, Role::Mlp);
}

/// Experts as transformers 5 keeps them: two tensors for all of a layer.
fn mixture(out: &mut Builder, model: &Transformer, names: &Names, experts: &Experts) {
    let (hidden, inner, count) = (model.hidden, experts.intermediate, experts.count);
    let both = inner.saturating_mul(2);
    let input_first = matches!(model.family.as_str(), "llama4_text" | "gpt_oss");
    out.within(names.experts, |out| {
        if input_first {
            out.bare("gate_up_proj", &[count, hidden, both], Role::Expert);
            out.bare("down_proj", &[count, inner, hidden], Role::Expert);
        } else {
            out.bare("gate_up_proj", &[count, both, hidden], Role::Expert);
            out.bare("down_proj", &[count, hidden, inner], Role::Expert);
        }
        if model.family == "gpt_oss" {
            out.bare("gate_up_proj_bias", &[count, both], Role::Expert);
            out.bare("down_proj_bias", &[count, hidden], Role::Expert);
        }
    });
    out.bare(&format!("{}.weight", names.router), &[count, hidden], Role::Router);
    if model.family == "gpt_oss" {
        out.bare(&format!("{}.bias", names.router), &[count], Role::Router);
    }
    if experts.router_correction {
        out.buffer(&format!("{}.e_score_correction_bias", names.router), &[count], Some(Dtype::Float32));
    }
    if experts.shared_intermediate > 0 {
        out.within(names.shared, |out| {
            out.linear("gate_proj", experts.shared_intermediate, hidden, false, Role::Mlp);
            out.linear("up_proj", experts.shared_intermediate, hidden, false, Role::Mlp);
            out.linear("down_proj", hidden, experts.shared_intermediate, false, Role::Mlp);
        });
        if experts.shared_gate {
            out.linear(names.shared_gate, 1, hidden, false, Role::Router);
        }
    }
}

/// The frequencies of rotary positions: transformers keeps them twice, and for each kind of attention in Gemma 3.
fn rotary(out: &mut Builder, model: &Transformer) {
    let Positions::Rotary(width) = model.positions else { return };
    let names = names::of(model);
    if model.family == "gptj" {
        return;
    }
    let base = names.embedding.rsplit_once('.').map_or("", |(base, _)| base);
    let kinds: &[&str] = match (model.family.as_str(), model.windowed_layers) {
        ("gemma3_text", windowed) if windowed == model.layers => &["sliding_attention_"],
        ("gemma3_text", 0) => &["full_attention_"],
        ("gemma3_text", _) => &["sliding_attention_", "full_attention_"],
        _ => &[""],
    };
    for kind in kinds {
        for copy in ["inv_freq", "original_inv_freq"] {
            out.buffer(&format!("{base}.rotary_emb.{kind}{copy}"), &[width / 2], Some(Dtype::Float32));
        }
    }
}

/// CLIP's projection behind one tower.
fn projection(out: &mut Builder, model: &Transformer) {
    if model.class == "StableDiffusionSafetyChecker" {
        // 17 concepts that it looks for and 3 for which it looks harder.
        for (kind, count) in [("concept", 17), ("special_care", 3)] {
            out.bare(&format!("{kind}_embeds"), &[count, 768], Role::Head);
            out.bare(&format!("{kind}_embeds_weights"), &[count], Role::Head);
        }
    }
    if let Head::Projection(width) = model.head {
        match model.family.as_str() {
            "clip_text_model" => out.linear("text_projection", width, model.hidden, false, Role::Head),
            "clip_vision_model" => out.linear("visual_projection", width, model.hidden, false, Role::Head),
            "siglip_text_model" => out.linear("head", width, model.hidden, true, Role::Head),
            _ => {}
        }
    }
    if model.family == "siglip_vision_model" && model.head != Head::None {
        pooling_head(out, model);
    }
}

/// SigLIP's vision tower ends in an attention whose one query is learned.
fn pooling_head(out: &mut Builder, model: &Transformer) {
    let hidden = model.hidden;
    out.within("head", |out| {
        out.bare("probe", &[1, 1, hidden], Role::Head);
        out.bare("attention.in_proj_weight", &[hidden.saturating_mul(3), hidden], Role::Head);
        out.bare("attention.in_proj_bias", &[hidden.saturating_mul(3)], Role::Head);
        out.linear("attention.out_proj", hidden, hidden, true, Role::Head);
        out.norm("layernorm", hidden, true);
        out.linear("mlp.fc1", model.intermediate, hidden, true, Role::Head);
        out.linear("mlp.fc2", hidden, model.intermediate, true, Role::Head);
    });
}

/// What follows where CLIP's and SigLIP's towers meet.
fn meeting(out: &mut Builder, text: &Transformer, vision: &Transformer) {
    if text.family == "clip_text_model" {
        out.bare("logit_scale", &[], Role::Head);
        projection(out, text);
        projection(out, vision);
    } else {
        out.bare("logit_scale", &[1], Role::Head);
        out.bare("logit_bias", &[1], Role::Head);
        out.within("text_model", |out| projection(out, text));
        out.within("vision_model", |out| projection(out, vision));
    }
}

/// A language model and its vision tower. [`place`] moves the text's names.
fn vision_and_text(out: &mut Builder, text: &Transformer, vision: &Transformer) {
    stack(out, text);
    match (text.family.as_str(), vision.family.as_str()) {
        ("gemma3_text", _) => {
            out.within("model.vision_tower", |out| {
                stack(out, vision);
                projection(out, vision);
            });
            out.within("model.multi_modal_projector", |out| {
                out.bare("mm_input_projection_weight", &[vision.hidden, text.hidden], Role::Embedding);
                out.norm("mm_soft_emb_norm", vision.hidden, false);
            });
        }
        (_, "llama4_vision_model") => {
            out.within("vision_model", |out| {
                stack(out, vision);
                let Some(image) = vision.image else { return };
                if let (Head::Projection(width), Positions::Rotary(_) | Positions::Learned(_)) =
                    (vision.head, vision.positions)
                {
                    // A shuffle of pixels makes tokens four times as wide, which `intermediate` is.
                    out.linear("vision_adapter.mlp.fc1", width, vision.intermediate, false, Role::Embedding);
                    out.linear("vision_adapter.mlp.fc2", width, width, false, Role::Embedding);
                }
                let frequencies = vision.head_dim / 2;
                out.buffer("rotary_embedding.freqs_ci", &[image.tokens(), 1, frequencies], Some(Dtype::Complex64));
            });
            let width = vision.embedding_dim;
            out.linear("multi_modal_projector.linear_1", text.hidden, width, false, Role::Embedding);
        }
        (_, "qwen2_5_vl" | "qwen2_vl") => out.within("model.visual", |out| {
            stack(out, vision);
            let merged = vision.hidden.saturating_mul(4);
            out.norm("merger.ln_q", vision.hidden, vision.norm_bias);
            out.linear("merger.mlp.0", merged, merged, true, Role::Embedding);
            out.linear("merger.mlp.2", text.hidden, merged, true, Role::Embedding);
            for copy in ["inv_freq", "original_inv_freq"] {
                out.buffer(&format!("rotary_pos_emb.{copy}"), &[vision.head_dim / 4], Some(Dtype::Float32));
            }
        }),
        _ => {
            out.within("model.vision_tower", |out| stack(out, vision));
            out.within("model.multi_modal_projector", |out| {
                out.linear("linear_1", text.hidden, vision.hidden, true, Role::Embedding);
                out.linear("linear_2", text.hidden, text.hidden, true, Role::Embedding);
            });
        }
    }
}

/// The output layers.
fn heads(out: &mut Builder, model: &Transformer) {
    let names = names::of(model);
    let hidden = model.hidden;
    match (model.head, model.family.as_str()) {
        (Head::Language, _) => {
            if !model.tied_embeddings && model.vocabulary > 0 && !names.head.is_empty() {
                let bias = model.head_bias;
                out.linear(names.head, model.vocabulary, model.embedding_dim, bias, Role::Head);
            }
            if matches!(model.family.as_str(), "bart" | "mbart" | "pegasus") {
                out.buffer("final_logits_bias", &[1, model.vocabulary], None);
            }
        }
        (Head::MaskedLanguage, _) => masked_language(out, model),
        (Head::Classes(classes), "bert" | "albert" | "deberta-v2" | "distilbert") => {
            match model.family.as_str() {
                "bert" => out.linear("bert.pooler.dense", hidden, hidden, true, Role::Head),
                "albert" => out.linear("albert.pooler", hidden, hidden, true, Role::Head),
                "deberta-v2" => out.linear("pooler.dense", hidden, hidden, true, Role::Head),
                _ => out.linear("pre_classifier", hidden, hidden, true, Role::Head),
            }
            out.linear("classifier", classes, hidden, true, Role::Head);
        }
        (Head::Classes(_), "electra") if model.class == "ElectraForPreTraining" => {
            out.within("discriminator_predictions", |out| {
                out.linear("dense", hidden, hidden, true, Role::Head);
                out.linear("dense_prediction", 1, hidden, true, Role::Head);
            })
        }
        (Head::Classes(classes), "roberta" | "xlm-roberta" | "electra") => out.within("classifier", |out| {
            out.linear("dense", hidden, hidden, true, Role::Head);
            out.linear("out_proj", classes, hidden, true, Role::Head);
        }),
        (Head::Classes(classes), "vit" | "deit") => out.linear("classifier", classes, hidden, true, Role::Head),
        (Head::Classes(classes), _) => out.linear("score", classes, hidden, false, Role::Head),
        (Head::None, "bert" | "roberta" | "xlm-roberta" | "vit" | "deit") => {
            out.linear("pooler.dense", hidden, hidden, true, Role::Head);
        }
        (Head::None, "albert") => out.linear("pooler", hidden, hidden, true, Role::Head),
        _ => {}
    }
}

/// BERT's head: a dense layer, a norm, and the embedding once more with a bias of its own.
fn masked_language(out: &mut Builder, model: &Transformer) {
    let (hidden, width) = (model.hidden, model.embedding_dim);
    let [dense, norm, bias] = match model.family.as_str() {
        "roberta" | "xlm-roberta" => ["lm_head.dense", "lm_head.layer_norm", "lm_head.bias"],
        "distilbert" => ["vocab_transform", "vocab_layer_norm", "vocab_projector.bias"],
        "albert" => ["predictions.dense", "predictions.LayerNorm", "predictions.bias"],
        "electra" => ["generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias"],
        _ => ["cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"],
    };
    out.linear(dense, width, hidden, true, Role::Head);
    out.norm(norm, width, true);
    out.bare(bias, &[model.vocabulary], Role::Head);
}
