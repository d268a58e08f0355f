//! Autoencoders: `AutoencoderKL` of diffusers, and the VQGAN of taming-transformers.

use super::super::ArchitectureError;
use super::super::builder::Builder;
use super::super::config::Config;
use super::super::parameter::{Parameter, Role};
use super::{Autoencoder, unet};

/// Wider than any level; products of a few such widths stay below 2^64.
pub(super) const WIDEST: u64 = 1 << 32;

/// Reads `AutoencoderKL`.
pub(super) fn read(config: Config<'_>, class: &str) -> Result<Autoencoder, ArchitectureError> {
    let channels = config.sizes(&["block_out_channels"]).unwrap_or_else(|| vec![64]);
    let levels = channels.len() as u32;
    Ok(Autoencoder {
        class: class.to_owned(),
        in_channels: config.size(&["in_channels"]).unwrap_or(3),
        latent_channels: config.size(&["latent_channels"]).unwrap_or(4),
        resnets: bounded(config, "layers_per_block", 1)?,
        norm_groups: config.size(&["norm_num_groups"]).unwrap_or(32),
        mid_attention: config.flag(&["mid_block_add_attention"]).unwrap_or(true),
        level_attention: vec![false; channels.len()],
        quant_conv: config.flag(&["use_quant_conv"]).unwrap_or(true),
        post_quant_conv: config.flag(&["use_post_quant_conv"]).unwrap_or(true),
        codebook: None,
        scale: 1 << levels.saturating_sub(1),
        frame_scale: 1,
        channels,
        config: config.json().clone(),
    })
}

/// Reads the settings of taming-transformers' `VQModel` or `GumbelVQ` (its `ddconfig` with the sizes of the codebook).
pub(super) fn read_vqgan(config: Config<'_>, class: &str) -> Result<Autoencoder, ArchitectureError> {
    let width = config.needed(&["ch"])?;
    let factors = config.sizes(&["ch_mult"]).unwrap_or_else(|| vec![1, 1, 2, 2, 4]);
    let resolution = config.size(&["resolution"]).unwrap_or(256);
    let attended = config.sizes(&["attn_resolutions"]).unwrap_or_default();
    Ok(Autoencoder {
        class: class.to_owned(),
        in_channels: config.size(&["in_channels"]).unwrap_or(3),
        latent_channels: config.size(&["z_channels"]).unwrap_or(256),
        resnets: bounded(config, "num_res_blocks", 2)?,
        norm_groups: 32,
        mid_attention: true,
        level_attention: (0..factors.len()).map(|level| attended.contains(&(resolution >> level))).collect(),
        quant_conv: true,
        post_quant_conv: true,
        codebook: Some([config.needed(&["n_embed"])?, config.size(&["embed_dim"]).unwrap_or(256)]),
        scale: 1 << factors.len().saturating_sub(1),
        frame_scale: 1,
        channels: factors.iter().map(|factor| factor.saturating_mul(width).min(WIDEST)).collect(),
        config: config.json().clone(),
    })
}

pub(super) fn bounded(config: Config<'_>, key: &'static str, default: u64) -> Result<u64, ArchitectureError> {
    let count = config.size(&[key]).unwrap_or(default);
    if count > 64 { Err(ArchitectureError::TooMany { what: "blocks in a level", count }) } else { Ok(count) }
}

/// Every parameter of an `AutoencoderKL`.
pub(super) fn parameters(vae: &Autoencoder) -> Vec<Parameter> {
    let mut out = Builder::default();
    let Some((&first, &last)) = vae.channels.first().zip(vae.channels.last()) else { return Vec::new() };
    // Mean and variance.
    let moments = vae.latent_channels * 2;
    out.within("encoder", |out| {
        out.convolution("conv_in", first, vae.in_channels, &[3, 3], true, Role::Convolution);
        let mut width = first;
        for (index, &channels) in vae.channels.iter().enumerate() {
            out.within(&format!("down_blocks.{index}"), |out| {
                for block in 0..vae.resnets {
                    unet::resnet(out, &format!("resnets.{block}"), width, channels, None);
                    width = channels;
                }
                if index + 1 < vae.channels.len() {
                    out.convolution("downsamplers.0.conv", width, width, &[3, 3], true, Role::Convolution);
                }
            });
        }
        middle(out, vae, last);
        out.norm("conv_norm_out", last, true);
        out.convolution("conv_out", moments, last, &[3, 3], true, Role::Convolution);
    });
    out.within("decoder", |out| {
        out.convolution("conv_in", last, vae.latent_channels, &[3, 3], true, Role::Convolution);
        middle(out, vae, last);
        let mut width = last;
        for (index, &channels) in vae.channels.iter().rev().enumerate() {
            out.within(&format!("up_blocks.{index}"), |out| {
                for block in 0..=vae.resnets {
                    unet::resnet(out, &format!("resnets.{block}"), width, channels, None);
                    width = channels;
                }
                if index + 1 < vae.channels.len() {
                    out.convolution("upsamplers.0.conv", width, width, &[3, 3], true, Role::Convolution);
                }
            });
        }
        out.norm("conv_norm_out", first, true);
        out.convolution("conv_out", vae.in_channels, first, &[3, 3], true, Role::Convolution);
    });
    if vae.quant_conv {
        out.convolution("quant_conv", moments, moments, &[1, 1], true, Role::Convolution);
    }
    if vae.post_quant_conv {
        let width = vae.latent_channels;
        out.convolution("post_quant_conv", width, width, &[1, 1], true, Role::Convolution);
    }
    out.finish()
}

/// The attention of a middle.
pub(super) fn middle_attention(out: &mut Builder, width: u64) {
    out.within("attentions.0", |out| {
        out.norm("group_norm", width, true);
        for name in ["to_q", "to_k", "to_v", "to_out.0"] {
            out.linear(name, width, width, true, Role::Attention);
        }
    });
}

fn middle(out: &mut Builder, vae: &Autoencoder, width: u64) {
    out.within("mid_block", |out| {
        unet::resnet(out, "resnets.0", width, width, None);
        if vae.mid_attention {
            middle_attention(out, width);
        }
        unet::resnet(out, "resnets.1", width, width, None);
    });
}

/// Every parameter of a VQGAN, without the losses that only its training had.
pub(super) fn vqgan_parameters(vae: &Autoencoder) -> Vec<Parameter> {
    let mut out = Builder::default();
    let Some((&first, &last)) = vae.channels.first().zip(vae.channels.last()) else { return Vec::new() };
    let latent = vae.latent_channels;
    let levels = vae.channels.len();
    let attends = |level: usize| vae.level_attention.get(level).copied().unwrap_or(false);
    out.within("encoder", |out| {
        out.convolution("conv_in", first, vae.in_channels, &[3, 3], true, Role::Convolution);
        let mut width = first;
        for (level, &channels) in vae.channels.iter().enumerate() {
            out.within(&format!("down.{level}"), |out| {
                for block in 0..vae.resnets {
                    vqgan_block(out, &format!("block.{block}"), width, channels);
                    width = channels;
                    if attends(level) {
                        vqgan_attention(out, &format!("attn.{block}"), width);
                    }
                }
                if level + 1 < levels {
                    out.convolution("downsample.conv", width, width, &[3, 3], true, Role::Convolution);
                }
            });
        }
        vqgan_middle(out, last);
        out.norm("norm_out", last, true);
        out.convolution("conv_out", latent, last, &[3, 3], true, Role::Convolution);
    });
    out.within("decoder", |out| {
        out.convolution("conv_in", last, latent, &[3, 3], true, Role::Convolution);
        vqgan_middle(out, last);
        let mut width = last;
        for (level, &channels) in vae.channels.iter().enumerate().rev() {
            out.within(&format!("up.{level}"), |out| {
                for block in 0..=vae.resnets {
                    vqgan_block(out, &format!("block.{block}"), width, channels);
                    width = channels;
                    if attends(level) {
                        vqgan_attention(out, &format!("attn.{block}"), width);
                    }
                }
                if level > 0 {
                    out.convolution("upsample.conv", width, width, &[3, 3], true, Role::Convolution);
                }
            });
        }
        out.norm("norm_out", first, true);
        out.convolution("conv_out", vae.in_channels, first, &[3, 3], true, Role::Convolution);
    });
    let [vectors, width] = vae.codebook.unwrap_or([0, latent]);
    if vae.class == "TamingGumbelVQ" {
        out.convolution("quantize.proj", vectors, latent, &[1, 1], true, Role::Convolution);
        out.table("quantize.embed", vectors, width);
    } else {
        out.table("quantize.embedding", vectors, width);
    }
    out.convolution("quant_conv", width, latent, &[1, 1], true, Role::Convolution);
    out.convolution("post_quant_conv", latent, width, &[1, 1], true, Role::Convolution);
    out.finish()
}

fn vqgan_block(out: &mut Builder, name: &str, inputs: u64, outputs: u64) {
    out.within(name, |out| {
        out.norm("norm1", inputs, true);
        out.convolution("conv1", outputs, inputs, &[3, 3], true, Role::Convolution);
        out.norm("norm2", outputs, true);
        out.convolution("conv2", outputs, outputs, &[3, 3], true, Role::Convolution);
        if inputs != outputs {
            out.convolution("nin_shortcut", outputs, inputs, &[1, 1], true, Role::Convolution);
        }
    });
}

fn vqgan_attention(out: &mut Builder, name: &str, width: u64) {
    out.within(name, |out| {
        out.norm("norm", width, true);
        for name in ["q", "k", "v", "proj_out"] {
            out.convolution(name, width, width, &[1, 1], true, Role::Attention);
        }
    });
}

fn vqgan_middle(out: &mut Builder, width: u64) {
    out.within("mid", |out| {
        vqgan_block(out, "block_1", width, width);
        vqgan_attention(out, "attn_1", width);
        vqgan_block(out, "block_2", width, width);
    });
}
