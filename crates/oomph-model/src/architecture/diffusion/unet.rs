//! `UNet2DConditionModel` and `ControlNetModel` of diffusers.

use super::super::ArchitectureError;
use super::super::builder::Builder;
use super::super::config::Config;
use super::super::parameter::{Parameter, Role};
use super::{Level, UNet};

/// Reads the configuration of either class.
pub(super) fn read(config: Config<'_>, class: &str) -> Result<UNet, ArchitectureError> {
    let unknown = |what: &str| ArchitectureError::Unknown(format!("{class} with {what}"));
    let channels = config.sizes(&["block_out_channels"]).unwrap_or_else(|| vec![320, 640, 1280, 1280]);
    let count = channels.len();
    let per_level = |names: &[&str], default: u64| -> Option<Vec<u64>> {
        let values = config.sizes(names).unwrap_or_else(|| vec![default]);
        match values.len() {
            1 => Some(vec![values[0]; count]),
            length if length == count => Some(values),
            _ => None,
        }
    };
    let short = || unknown("a list of another length than its levels");
    let resnets = per_level(&["layers_per_block"], 2).ok_or_else(short)?;
    let transformers = per_level(&["transformer_layers_per_block"], 1)
        .ok_or_else(|| unknown("transformer layers that differ within a level"))?;
    // What these classes call the width of a head is the number of heads.
    let heads = per_level(&["num_attention_heads", "attention_head_dim"], 8).ok_or_else(short)?;
    let last_plain = |index: usize, default: &[bool]| default.get(index).copied().unwrap_or(true);
    let down = attentive(config, "down_block_types", count).unwrap_or_else(|| {
        // The coarsest level of the default has no attention.
        (0..count).map(|level| level + 1 < count).collect()
    });
    let mut up = attentive(config, "up_block_types", count).unwrap_or_else(|| down.iter().rev().copied().collect());
    up.reverse();
    if channels.iter().any(|&width| width == 0 || width > 1 << 20)
        || resnets.iter().chain(&transformers).any(|&count| count > 64)
    {
        return Err(unknown("levels of an absurd size"));
    }
    let attention = |present: bool, level: usize| if present { transformers[level] } else { 0 };
    let levels: Vec<Level> = (0..count)
        .map(|level| Level {
            channels: channels[level],
            resnets: resnets[level],
            transformer_layers: attention(last_plain(level, &down), level),
            up_transformer_layers: attention(last_plain(level, &up), level),
            heads: heads[level],
        })
        .collect();
    let middle = config.text(&["mid_block_type"]).unwrap_or("UNetMidBlock2DCrossAttn");
    let control = (class == "ControlNetModel")
        .then(|| config.sizes(&["conditioning_embedding_out_channels"]).unwrap_or_else(|| vec![16, 32, 96, 256]));
    let in_channels = config.size(&["in_channels"]).unwrap_or(4);
    Ok(UNet {
        class: class.to_owned(),
        in_channels,
        out_channels: if control.is_some() { in_channels } else { config.size(&["out_channels"]).unwrap_or(4) },
        sample_size: config.size(&["sample_size"]).unwrap_or(64),
        mid_transformer_layers: if middle.contains("CrossAttn") {
            transformers.last().copied().unwrap_or(0)
        } else {
            0
        },
        context: config.size(&["cross_attention_dim"]).unwrap_or(1280),
        norm_groups: config.size(&["norm_num_groups"]).unwrap_or(32),
        linear_projection: config.flag(&["use_linear_projection"]).unwrap_or(false),
        added_embedding: config
            .text(&["addition_embed_type"])
            .and_then(|_| config.size(&["projection_class_embeddings_input_dim"])),
        classes: config.size(&["num_class_embeds"]),
        control,
        control_channels: config.size(&["conditioning_channels"]).unwrap_or(3),
        levels,
    })
}

/// Which of the listed blocks attend to text.
fn attentive(config: Config<'_>, key: &str, count: usize) -> Option<Vec<bool>> {
    let types = config.texts(&[key]).filter(|types| types.len() == count)?;
    Some(types.iter().map(|kind| kind.contains("CrossAttn")).collect())
}

/// Every parameter of the network.
pub(super) fn parameters(unet: &UNet) -> Vec<Parameter> {
    let mut out = Builder::default();
    let Some((first, last)) = unet.levels.first().zip(unet.levels.last()) else { return Vec::new() };
    let time = first.channels * 4;
    out.convolution("conv_in", first.channels, unet.in_channels, &[3, 3], true, Role::Convolution);
    embedding(&mut out, "time_embedding", first.channels, time);
    if let Some(added) = unet.added_embedding {
        embedding(&mut out, "add_embedding", added, time);
    }
    if let Some(classes) = unet.classes {
        out.table("class_embedding", classes, time);
    }
    // The width of what each step of the downward path leaves for the upward path.
    let mut skips = vec![first.channels];
    let mut width = first.channels;
    for (index, level) in unet.levels.iter().enumerate() {
        out.layer = Some(index as u64);
        out.within(&format!("down_blocks.{index}"), |out| {
            for block in 0..level.resnets {
                resnet(out, &format!("resnets.{block}"), width, level.channels, Some(time));
                width = level.channels;
                if level.transformer_layers > 0 {
                    let name = format!("attentions.{block}");
                    transformer(out, unet, &name, level.channels, level.transformer_layers);
                }
                skips.push(level.channels);
            }
            if index + 1 < unet.levels.len() {
                out.convolution("downsamplers.0.conv", width, width, &[3, 3], true, Role::Convolution);
                skips.push(width);
            }
        });
    }
    out.layer = None;
    let deepest = last.channels;
    out.within("mid_block", |out| {
        resnet(out, "resnets.0", deepest, deepest, Some(time));
        if unet.mid_transformer_layers > 0 {
            transformer(out, unet, "attentions.0", deepest, unet.mid_transformer_layers);
            resnet(out, "resnets.1", deepest, deepest, Some(time));
        } else if unet.control.is_none() {
            resnet(out, "resnets.1", deepest, deepest, Some(time));
        }
    });
    if let Some(control) = &unet.control {
        controls(&mut out, unet, control, &skips, deepest);
        return out.finish();
    }
    for (index, level) in unet.levels.iter().rev().enumerate() {
        out.layer = Some(index as u64);
        out.within(&format!("up_blocks.{index}"), |out| {
            for block in 0..=level.resnets {
                let skip = skips.pop().unwrap_or(level.channels);
                resnet(out, &format!("resnets.{block}"), width + skip, level.channels, Some(time));
                width = level.channels;
                if level.up_transformer_layers > 0 {
                    let name = format!("attentions.{block}");
                    transformer(out, unet, &name, level.channels, level.up_transformer_layers);
                }
            }
            if index + 1 < unet.levels.len() {
                out.convolution("upsamplers.0.conv", width, width, &[3, 3], true, Role::Convolution);
            }
        });
    }
    out.layer = None;
    out.norm("conv_norm_out", first.channels, true);
    out.convolution("conv_out", unet.out_channels, first.channels, &[3, 3], true, Role::Convolution);
    out.finish()
}

fn embedding(out: &mut Builder, name: &str, inputs: u64, outputs: u64) {
    out.linear(&format!("{name}.linear_1"), outputs, inputs, true, Role::Modulation);
    out.linear(&format!("{name}.linear_2"), outputs, outputs, true, Role::Modulation);
}

/// Two convolutions, each behind a norm; autoencoders have no time between them.
pub(super) fn resnet(out: &mut Builder, name: &str, inputs: u64, outputs: u64, time: Option<u64>) {
    out.within(name, |out| {
        out.norm("norm1", inputs, true);
        out.convolution("conv1", outputs, inputs, &[3, 3], true, Role::Convolution);
        if let Some(time) = time {
            out.linear("time_emb_proj", outputs, time, true, Role::Modulation);
        }
        out.norm("norm2", outputs, true);
        out.convolution("conv2", outputs, outputs, &[3, 3], true, Role::Convolution);
        if inputs != outputs {
            out.convolution("conv_shortcut", outputs, inputs, &[1, 1], true, Role::Convolution);
        }
    });
}

fn transformer(out: &mut Builder, unet: &UNet, name: &str, width: u64, layers: u64) {
    let projection = |out: &mut Builder, name: &str| {
        if unet.linear_projection {
            out.linear(name, width, width, true, Role::Attention);
        } else {
            out.convolution(name, width, width, &[1, 1], true, Role::Attention);
        }
    };
    out.within(name, |out| {
        out.norm("norm", width, true);
        projection(out, "proj_in");
        for layer in 0..layers {
            out.within(&format!("transformer_blocks.{layer}"), |out| {
                for norm in ["norm1", "norm2", "norm3"] {
                    out.norm(norm, width, true);
                }
                for (attention, source) in [("attn1", width), ("attn2", unet.context)] {
                    out.linear(&format!("{attention}.to_q"), width, width, false, Role::Attention);
                    out.linear(&format!("{attention}.to_k"), width, source, false, Role::Attention);
                    out.linear(&format!("{attention}.to_v"), width, source, false, Role::Attention);
                    out.linear(&format!("{attention}.to_out.0"), width, width, true, Role::Attention);
                }
                // Half of the projection is the gate of a GEGLU.
                out.linear("ff.net.0.proj", width * 8, width, true, Role::Mlp);
                out.linear("ff.net.2", width, width * 4, true, Role::Mlp);
            });
        }
        projection(out, "proj_out");
    });
}

/// What makes a first half into a ControlNet: the image's embedding, and an output for each skip.
fn controls(out: &mut Builder, unet: &UNet, control: &[u64], skips: &[u64], deepest: u64) {
    let first = skips.first().copied().unwrap_or(deepest);
    out.within("controlnet_cond_embedding", |out| {
        let widest = control.first().copied().unwrap_or(16);
        out.convolution("conv_in", widest, unet.control_channels, &[3, 3], true, Role::Convolution);
        for (index, pair) in control.windows(2).enumerate() {
            let (same, next) = (format!("blocks.{}", 2 * index), format!("blocks.{}", 2 * index + 1));
            out.convolution(&same, pair[0], pair[0], &[3, 3], true, Role::Convolution);
            out.convolution(&next, pair[1], pair[0], &[3, 3], true, Role::Convolution);
        }
        out.convolution("conv_out", first, control.last().copied().unwrap_or(widest), &[3, 3], true, Role::Convolution);
    });
    for (index, &width) in skips.iter().enumerate() {
        let name = format!("controlnet_down_blocks.{index}");
        out.convolution(&name, width, width, &[1, 1], true, Role::Convolution);
    }
    out.convolution("controlnet_mid_block", deepest, deepest, &[1, 1], true, Role::Convolution);
}
