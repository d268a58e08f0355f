//! `AutoencoderKLWan` and `AutoencoderKLQwenImage`: causal autoencoders of video, the latter used for one frame.

use super::super::ArchitectureError;
use super::super::builder::Builder;
use super::super::config::Config;
use super::super::parameter::{Parameter, Role};
use super::Autoencoder;
use super::autoencoder::WIDEST;

/// Reads either class.
pub(super) fn read(config: Config<'_>, class: &str) -> Result<Autoencoder, ArchitectureError> {
    let base = config.size(&["base_dim"]).unwrap_or(96);
    let factors = config.sizes(&["dim_mult"]).unwrap_or_else(|| vec![1, 2, 4, 4]);
    if config.flag(&["is_residual"]) == Some(true) {
        return Err(ArchitectureError::Unknown(format!("{class} with residual sampling")));
    }
    let resnets = config.size(&["num_res_blocks"]).unwrap_or(2);
    if resnets > 64 {
        return Err(ArchitectureError::TooMany { what: "blocks in a level", count: resnets });
    }
    let timed = sampled(config, factors.len()).iter().filter(|timed| **timed).count() as u32;
    Ok(Autoencoder {
        class: class.to_owned(),
        in_channels: config.size(&["in_channels", "input_channels"]).unwrap_or(3),
        latent_channels: config.size(&["z_dim"]).unwrap_or(16),
        resnets,
        norm_groups: 1,
        mid_attention: true,
        level_attention: vec![false; factors.len()],
        quant_conv: true,
        post_quant_conv: true,
        codebook: None,
        scale: 1 << (factors.len().saturating_sub(1).min(32)),
        frame_scale: 1 << timed.min(32),
        channels: factors.iter().map(|factor| factor.saturating_mul(base).min(WIDEST)).collect(),
        config: config.json().clone(),
    })
}

/// Whether each step to a coarser level halves the frames too (the key is spelt so).
fn sampled(config: Config<'_>, levels: usize) -> Vec<bool> {
    let given = config.json().get("temperal_downsample").and_then(serde_json::Value::as_array);
    let given: Option<Vec<bool>> = given.map(|list| list.iter().filter_map(serde_json::Value::as_bool).collect());
    let mut steps = given.unwrap_or_else(|| vec![false, true, true]);
    steps.resize(levels.saturating_sub(1), true);
    steps
}

/// Every parameter of the autoencoder.
pub(super) fn parameters(vae: &Autoencoder) -> Vec<Parameter> {
    let mut out = Builder::default();
    let Some((&first, &last)) = vae.channels.first().zip(vae.channels.last()) else { return Vec::new() };
    let timed = sampled(Config::new(&vae.config), vae.channels.len());
    let moments = vae.latent_channels * 2;
    out.within("encoder", |out| {
        cube(out, "conv_in", first, vae.in_channels);
        // The blocks of all levels are one list.
        let mut index = 0_u64;
        let mut width = first;
        for (level, &channels) in vae.channels.iter().enumerate() {
            for _ in 0..vae.resnets {
                block(out, &format!("down_blocks.{index}"), width, channels);
                (index, width) = (index + 1, channels);
            }
            if let Some(&timed) = timed.get(level) {
                out.within(&format!("down_blocks.{index}"), |out| {
                    out.convolution("resample.1", width, width, &[3, 3], true, Role::Convolution);
                    if timed {
                        out.convolution("time_conv", width, width, &[3, 1, 1], true, Role::Convolution);
                    }
                });
                index += 1;
            }
        }
        middle(out, last);
        out.bare("norm_out.gamma", &[last, 1, 1, 1], Role::Norm);
        cube(out, "conv_out", moments, last);
    });
    out.convolution("quant_conv", moments, moments, &[1, 1, 1], true, Role::Convolution);
    let latent = vae.latent_channels;
    out.convolution("post_quant_conv", latent, latent, &[1, 1, 1], true, Role::Convolution);
    out.within("decoder", |out| {
        cube(out, "conv_in", last, latent);
        middle(out, last);
        let mut width = last;
        for (index, &channels) in vae.channels.iter().rev().enumerate() {
            out.within(&format!("up_blocks.{index}"), |out| {
                for resnet in 0..=vae.resnets {
                    block(out, &format!("resnets.{resnet}"), width, channels);
                    width = channels;
                }
                let Some(&timed) = timed.len().checked_sub(index + 1).and_then(|step| timed.get(step)) else { return };
                out.within("upsamplers.0", |out| {
                    // Each step up halves the channels.
                    out.convolution("resample.1", width / 2, width, &[3, 3], true, Role::Convolution);
                    if timed {
                        out.convolution("time_conv", width * 2, width, &[3, 1, 1], true, Role::Convolution);
                    }
                });
                width /= 2;
            });
        }
        out.bare("norm_out.gamma", &[first, 1, 1, 1], Role::Norm);
        cube(out, "conv_out", vae.in_channels, first);
    });
    out.finish()
}

fn cube(out: &mut Builder, name: &str, outputs: u64, inputs: u64) {
    out.convolution(name, outputs, inputs, &[3, 3, 3], true, Role::Convolution);
}

fn block(out: &mut Builder, name: &str, inputs: u64, outputs: u64) {
    out.within(name, |out| {
        out.bare("norm1.gamma", &[inputs, 1, 1, 1], Role::Norm);
        cube(out, "conv1", outputs, inputs);
        out.bare("norm2.gamma", &[outputs, 1, 1, 1], Role::Norm);
        cube(out, "conv2", outputs, outputs);
        if inputs != outputs {
            out.convolution("conv_shortcut", outputs, inputs, &[1, 1, 1], true, Role::Convolution);
        }
    });
}

fn middle(out: &mut Builder, width: u64) {
    out.within("mid_block", |out| {
        block(out, "resnets.0", width, width);
        out.within("attentions.0", |out| {
            out.bare("norm.gamma", &[width, 1, 1], Role::Norm);
            out.convolution("to_qkv", width * 3, width, &[1, 1], true, Role::Attention);
            out.convolution("proj", width, width, &[1, 1], true, Role::Attention);
        });
        block(out, "resnets.1", width, width);
    });
}
