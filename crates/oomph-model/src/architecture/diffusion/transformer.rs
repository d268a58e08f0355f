//! Reads the configurations of diffusers' transformer denoisers, and names their tensors.

use super::super::ArchitectureError;
use super::super::builder::Builder;
use super::super::config::Config;
use super::super::parameter::{Parameter, Role};
use super::DiffusionTransformer;

/// Classes that are described here.
pub(super) const CLASSES: &[&str] = &[
    "CogVideoXTransformer3DModel",
    "FluxControlNetModel",
    "FluxTransformer2DModel",
    "HunyuanVideoTransformer3DModel",
    "LTXVideoTransformer3DModel",
    "PixArtTransformer2DModel",
    "QwenImageTransformer2DModel",
    "SD3Transformer2DModel",
    "WanTransformer3DModel",
];

/// Frequencies of a time step's embedding, in all of these.
const TIME: u64 = 256;

/// Reads the configuration of any of [`CLASSES`].
pub(super) fn read(config: Config<'_>, class: &str) -> Result<DiffusionTransformer, ArchitectureError> {
    let heads = config.needed(&["num_attention_heads"])?;
    let head_dim = config.needed(&["attention_head_dim"])?;
    let hidden = heads.saturating_mul(head_dim);
    let usual = match class {
        "FluxTransformer2DModel" | "FluxControlNetModel" | "LTXVideoTransformer3DModel" => vec![1],
        "WanTransformer3DModel" => vec![1, 2, 2],
        _ => vec![2],
    };
    let sides = config.sizes(&["patch_size"]).unwrap_or(usual);
    let patch = match sides[..] {
        [time, height, width] => [time, height, width],
        [side] => [config.size(&["patch_size_t"]).unwrap_or(1), side, side],
        _ => return Err(ArchitectureError::Unknown(format!("{class} with patches of {} sides", sides.len()))),
    };
    let in_channels = config.needed(&["in_channels"])?;
    let packed = matches!(class, "FluxTransformer2DModel" | "FluxControlNetModel" | "QwenImageTransformer2DModel");
    let dual = config.sizes(&["dual_attention_layers"]).unwrap_or_default();
    let single_layers = match config.size(&["num_single_layers"]) {
        Some(0) | None => 0,
        Some(_) => config.layers(&["num_single_layers"])?,
    };
    Ok(DiffusionTransformer {
        class: class.to_owned(),
        layers: config.layers(&["num_layers"])?,
        single_layers,
        heads,
        head_dim,
        intermediate: config.size(&["ffn_dim"]).unwrap_or(hidden.saturating_mul(4)),
        in_channels,
        out_channels: config.size(&["out_channels"]).unwrap_or(in_channels),
        patch,
        token_side: if packed { 2 } else { patch[1] },
        context: config
            .size(&["joint_attention_dim", "text_embed_dim", "text_dim", "caption_channels"])
            .unwrap_or(4096),
        pooled: config.size(&["pooled_projection_dim"]).unwrap_or(0),
        guidance: config.flag(&["guidance_embeds"]).unwrap_or(false),
        joint_attention: !matches!(
            class,
            "PixArtTransformer2DModel" | "WanTransformer3DModel" | "LTXVideoTransformer3DModel"
        ),
        dual_attention_layers: dual.len() as u64,
        query_key_norm: match class {
            "SD3Transformer2DModel" => config.text(&["qk_norm"]).is_some(),
            "PixArtTransformer2DModel" => false,
            _ => true,
        },
        position_table: match class {
            "SD3Transformer2DModel" => config.size(&["pos_embed_max_size"]).unwrap_or(96),
            "PixArtTransformer2DModel" => config.size(&["sample_size"]).unwrap_or(128) / patch[1].max(1),
            _ => 0,
        },
        config: config.json().clone(),
    })
}

/// Every parameter and buffer of the network.
pub(super) fn parameters(model: &DiffusionTransformer) -> Vec<Parameter> {
    let mut out = Builder::default();
    match model.class.as_str() {
        "SD3Transformer2DModel" => sd3(&mut out, model),
        "FluxTransformer2DModel" | "FluxControlNetModel" => flux(&mut out, model),
        "HunyuanVideoTransformer3DModel" => hunyuan_video(&mut out, model),
        "QwenImageTransformer2DModel" => qwen_image(&mut out, model),
        "PixArtTransformer2DModel" => pixart(&mut out, model),
        "WanTransformer3DModel" => wan(&mut out, model),
        "LTXVideoTransformer3DModel" => ltx(&mut out, model),
        "CogVideoXTransformer3DModel" => cogvideox(&mut out, model),
        _ => {}
    }
    out.finish()
}

impl DiffusionTransformer {
    fn hidden(&self) -> u64 {
        self.heads.saturating_mul(self.head_dim)
    }

    /// Channels of the output of one token.
    fn token_outputs(&self) -> u64 {
        self.patch.iter().fold(self.out_channels, |product, &side| product.saturating_mul(side))
    }
}

/// Two linear layers with an activation between them.
fn embedder(out: &mut Builder, name: &str, inputs: u64, width: u64) {
    out.linear(&format!("{name}.linear_1"), width, inputs, true, Role::Modulation);
    out.linear(&format!("{name}.linear_2"), width, width, true, Role::Modulation);
}

/// What makes a condition of the time step, the pooled text and the guidance.
fn time_text(out: &mut Builder, model: &DiffusionTransformer) {
    let hidden = model.hidden();
    out.within("time_text_embed", |out| {
        embedder(out, "timestep_embedder", TIME, hidden);
        if model.guidance {
            embedder(out, "guidance_embedder", TIME, hidden);
        }
        if model.pooled > 0 {
            embedder(out, "text_embedder", model.pooled, hidden);
        }
    });
}

fn modulation(out: &mut Builder, name: &str, parts: u64, hidden: u64) {
    out.linear(name, hidden.saturating_mul(parts), hidden, true, Role::Modulation);
}

fn feed_forward(out: &mut Builder, name: &str, hidden: u64, inner: u64) {
    out.linear(&format!("{name}.net.0.proj"), inner, hidden, true, Role::Mlp);
    out.linear(&format!("{name}.net.2"), hidden, inner, true, Role::Mlp);
}

/// Projections with biases; `source` is the width of what keys and values are made of.
fn attention(out: &mut Builder, name: &str, hidden: u64, source: u64) {
    out.within(name, |out| {
        out.linear("to_q", hidden, hidden, true, Role::Attention);
        out.linear("to_k", hidden, source, true, Role::Attention);
        out.linear("to_v", hidden, source, true, Role::Attention);
        out.linear("to_out.0", hidden, hidden, true, Role::Attention);
    });
}

fn norms(out: &mut Builder, name: &str, of: [&str; 2], width: u64, bias: bool) {
    for norm in of {
        out.norm(&format!("{name}.{norm}"), width, bias);
    }
}

/// Attention over image and text together, each with projections of its own.
fn joint_attention(out: &mut Builder, model: &DiffusionTransformer, text_output: bool) {
    let hidden = model.hidden();
    attention(out, "attn", hidden, hidden);
    for name in ["add_q_proj", "add_k_proj", "add_v_proj"] {
        out.linear(&format!("attn.{name}"), hidden, hidden, true, Role::Attention);
    }
    if text_output {
        out.linear("attn.to_add_out", hidden, hidden, true, Role::Attention);
    }
    if model.query_key_norm {
        norms(out, "attn", ["norm_q", "norm_k"], model.head_dim, false);
        norms(out, "attn", ["norm_added_q", "norm_added_k"], model.head_dim, false);
    }
}

fn sd3(out: &mut Builder, model: &DiffusionTransformer) {
    let hidden = model.hidden();
    let side = model.patch[1];
    out.convolution("pos_embed.proj", hidden, model.in_channels, &[side, side], true, Role::Embedding);
    let places = model.position_table.saturating_mul(model.position_table);
    out.buffer("pos_embed.pos_embed", &[1, places, hidden], None);
    time_text(out, model);
    out.linear("context_embedder", hidden, model.context, true, Role::Embedding);
    let dual = Config::new(&model.config).sizes(&["dual_attention_layers"]).unwrap_or_default();
    out.layers("transformer_blocks", model.layers, |out, layer| {
        // The last layer makes no more text.
        let last = layer + 1 == model.layers;
        let twice = dual.contains(&layer);
        modulation(out, "norm1.linear", if twice { 9 } else { 6 }, hidden);
        modulation(out, "norm1_context.linear", if last { 2 } else { 6 }, hidden);
        joint_attention(out, model, !last);
        if twice {
            attention(out, "attn2", hidden, hidden);
            if model.query_key_norm {
                norms(out, "attn2", ["norm_q", "norm_k"], model.head_dim, false);
            }
        }
        feed_forward(out, "ff", hidden, model.intermediate);
        if !last {
            feed_forward(out, "ff_context", hidden, model.intermediate);
        }
    });
    modulation(out, "norm_out.linear", 2, hidden);
    out.linear("proj_out", model.token_outputs(), hidden, true, Role::Head);
}

/// Layers of Flux, which HunyuanVideo has too.
fn flux_layers(out: &mut Builder, model: &DiffusionTransformer) {
    let hidden = model.hidden();
    out.layers("transformer_blocks", model.layers, |out, _| {
        modulation(out, "norm1.linear", 6, hidden);
        modulation(out, "norm1_context.linear", 6, hidden);
        joint_attention(out, model, true);
        feed_forward(out, "ff", hidden, model.intermediate);
        feed_forward(out, "ff_context", hidden, model.intermediate);
    });
    out.layers("single_transformer_blocks", model.single_layers, |out, _| {
        modulation(out, "norm.linear", 3, hidden);
        for name in ["to_q", "to_k", "to_v"] {
            out.linear(&format!("attn.{name}"), hidden, hidden, true, Role::Attention);
        }
        norms(out, "attn", ["norm_q", "norm_k"], model.head_dim, false);
        out.linear("proj_mlp", model.intermediate, hidden, true, Role::Mlp);
        // The outputs of attention and MLP, side by side.
        out.linear("proj_out", hidden, model.intermediate.saturating_add(hidden), true, Role::Mlp);
    });
}

fn flux(out: &mut Builder, model: &DiffusionTransformer) {
    let hidden = model.hidden();
    time_text(out, model);
    out.linear("context_embedder", hidden, model.context, true, Role::Embedding);
    out.linear("x_embedder", hidden, model.in_channels, true, Role::Embedding);
    flux_layers(out, model);
    if model.class == "FluxControlNetModel" {
        for layer in 0..model.layers {
            out.linear(&format!("controlnet_blocks.{layer}"), hidden, hidden, true, Role::Head);
        }
        for layer in 0..model.single_layers {
            out.linear(&format!("controlnet_single_blocks.{layer}"), hidden, hidden, true, Role::Head);
        }
        out.linear("controlnet_x_embedder", hidden, model.in_channels, true, Role::Embedding);
        if let Some(modes) = Config::new(&model.config).size(&["num_mode"]) {
            out.table("controlnet_mode_embedder", modes, hidden);
        }
        return;
    }
    modulation(out, "norm_out.linear", 2, hidden);
    out.linear("proj_out", model.token_outputs(), hidden, true, Role::Head);
}

fn hunyuan_video(out: &mut Builder, model: &DiffusionTransformer) {
    let hidden = model.hidden();
    out.convolution("x_embedder.proj", hidden, model.in_channels, &model.patch, true, Role::Embedding);
    out.within("context_embedder", |out| {
        out.within("time_text_embed", |out| {
            embedder(out, "timestep_embedder", TIME, hidden);
            embedder(out, "text_embedder", model.context, hidden);
        });
        out.linear("proj_in", hidden, model.context, true, Role::Embedding);
        let refiners = Config::new(&model.config).size(&["num_refiner_layers"]).unwrap_or(2).min(64);
        for layer in 0..refiners {
            out.within(&format!("token_refiner.refiner_blocks.{layer}"), |out| {
                out.norm("norm1", hidden, true);
                attention(out, "attn", hidden, hidden);
                out.norm("norm2", hidden, true);
                feed_forward(out, "ff", hidden, hidden.saturating_mul(4));
                modulation(out, "norm_out.linear", 2, hidden);
            });
        }
    });
    time_text(out, model);
    flux_layers(out, model);
    modulation(out, "norm_out.linear", 2, hidden);
    out.linear("proj_out", model.token_outputs(), hidden, true, Role::Head);
}

fn qwen_image(out: &mut Builder, model: &DiffusionTransformer) {
    let hidden = model.hidden();
    time_text(out, model);
    out.norm("txt_norm", model.context, false);
    out.linear("img_in", hidden, model.in_channels, true, Role::Embedding);
    out.linear("txt_in", hidden, model.context, true, Role::Embedding);
    out.layers("transformer_blocks", model.layers, |out, _| {
        modulation(out, "img_mod.1", 6, hidden);
        modulation(out, "txt_mod.1", 6, hidden);
        joint_attention(out, model, true);
        feed_forward(out, "img_mlp", hidden, model.intermediate);
        feed_forward(out, "txt_mlp", hidden, model.intermediate);
    });
    modulation(out, "norm_out.linear", 2, hidden);
    out.linear("proj_out", model.token_outputs(), hidden, true, Role::Head);
}

fn pixart(out: &mut Builder, model: &DiffusionTransformer) {
    let hidden = model.hidden();
    let side = model.patch[1];
    out.convolution("pos_embed.proj", hidden, model.in_channels, &[side, side], true, Role::Embedding);
    let places = model.position_table.saturating_mul(model.position_table);
    out.buffer("pos_embed.pos_embed", &[1, places, hidden], None);
    out.within("adaln_single", |out| {
        embedder(out, "emb.timestep_embedder", TIME, hidden);
        let config = Config::new(&model.config);
        // Models of 1024 pixels are given the size of the image unless the file says otherwise.
        let sized = config.size(&["sample_size"]).unwrap_or(128) == 128;
        if config.flag(&["use_additional_conditions"]).unwrap_or(sized) {
            embedder(out, "emb.resolution_embedder", TIME, hidden / 3);
            embedder(out, "emb.aspect_ratio_embedder", TIME, hidden / 3);
        }
        modulation(out, "linear", 6, hidden);
    });
    embedder(out, "caption_projection", model.context, hidden);
    out.layers("transformer_blocks", model.layers, |out, _| {
        attention(out, "attn1", hidden, hidden);
        attention(out, "attn2", hidden, hidden);
        feed_forward(out, "ff", hidden, model.intermediate);
        out.bare("scale_shift_table", &[6, hidden], Role::Modulation);
    });
    out.bare("scale_shift_table", &[2, hidden], Role::Modulation);
    out.linear("proj_out", model.token_outputs(), hidden, true, Role::Head);
}

fn wan(out: &mut Builder, model: &DiffusionTransformer) {
    let hidden = model.hidden();
    let config = Config::new(&model.config);
    out.convolution("patch_embedding", hidden, model.in_channels, &model.patch, true, Role::Embedding);
    out.within("condition_embedder", |out| {
        embedder(out, "time_embedder", config.size(&["freq_dim"]).unwrap_or(TIME), hidden);
        modulation(out, "time_proj", 6, hidden);
        embedder(out, "text_embedder", model.context, hidden);
    });
    // The tables of positions: cosines and sines of 64-bit floats.
    let rows = config.size(&["rope_max_seq_len"]).unwrap_or(1024);
    for table in ["freqs_cos", "freqs_sin"] {
        out.buffer(&format!("rope.{table}"), &[rows, model.head_dim], Some(crate::Dtype::Float64));
    }
    out.layers("blocks", model.layers, |out, _| {
        for name in ["attn1", "attn2"] {
            attention(out, name, hidden, hidden);
            norms(out, name, ["norm_q", "norm_k"], hidden, false);
        }
        out.norm("norm2", hidden, true);
        feed_forward(out, "ffn", hidden, model.intermediate);
        out.bare("scale_shift_table", &[1, 6, hidden], Role::Modulation);
    });
    out.bare("scale_shift_table", &[1, 2, hidden], Role::Modulation);
    out.linear("proj_out", model.token_outputs(), hidden, true, Role::Head);
}

fn ltx(out: &mut Builder, model: &DiffusionTransformer) {
    let hidden = model.hidden();
    out.linear("proj_in", hidden, model.in_channels, true, Role::Embedding);
    out.bare("scale_shift_table", &[2, hidden], Role::Modulation);
    embedder(out, "time_embed.emb.timestep_embedder", TIME, hidden);
    modulation(out, "time_embed.linear", 6, hidden);
    embedder(out, "caption_projection", model.context, hidden);
    out.layers("transformer_blocks", model.layers, |out, _| {
        for name in ["attn1", "attn2"] {
            attention(out, name, hidden, hidden);
            norms(out, name, ["norm_q", "norm_k"], hidden, false);
        }
        feed_forward(out, "ff", hidden, model.intermediate);
        out.bare("scale_shift_table", &[6, hidden], Role::Modulation);
    });
    out.linear("proj_out", model.token_outputs(), hidden, true, Role::Head);
}

fn cogvideox(out: &mut Builder, model: &DiffusionTransformer) {
    let hidden = model.hidden();
    let config = Config::new(&model.config);
    let number = |name: &str, default| config.size(&[name]).unwrap_or(default);
    let time = number("time_embed_dim", 512);
    let side = model.patch[1].max(1);
    out.convolution("patch_embed.proj", hidden, model.in_channels, &[side, side], true, Role::Embedding);
    out.linear("patch_embed.text_proj", hidden, model.context, true, Role::Embedding);
    if config.flag(&["use_rotary_positional_embeddings"]) != Some(true) {
        // Text tokens, and the places of all latent frames.
        let compression = number("temporal_compression_ratio", 4).max(1);
        let frames = number("sample_frames", 49).saturating_sub(1) / compression + 1;
        let area = (number("sample_height", 60) / side).saturating_mul(number("sample_width", 90) / side);
        let places = frames.saturating_mul(area).saturating_add(number("max_text_seq_length", 226));
        out.buffer("patch_embed.pos_embedding", &[1, places, hidden], None);
    }
    out.linear("time_embedding.linear_1", time, hidden, true, Role::Modulation);
    out.linear("time_embedding.linear_2", time, time, true, Role::Modulation);
    out.layers("transformer_blocks", model.layers, |out, _| {
        for name in ["norm1", "norm2"] {
            out.linear(&format!("{name}.linear"), hidden.saturating_mul(6), time, true, Role::Modulation);
            out.norm(&format!("{name}.norm"), hidden, true);
        }
        attention(out, "attn1", hidden, hidden);
        norms(out, "attn1", ["norm_q", "norm_k"], model.head_dim, true);
        feed_forward(out, "ff", hidden, model.intermediate);
    });
    out.norm("norm_final", hidden, true);
    out.linear("norm_out.linear", hidden.saturating_mul(2), time, true, Role::Modulation);
    out.norm("norm_out.norm", hidden, true);
    out.linear("proj_out", model.token_outputs(), hidden, true, Role::Head);
}
