//! `AutoencoderKLCogVideoX`: a causal autoencoder of video, whose decoder's norms read the latents.

use super::super::ArchitectureError;
use super::super::builder::Builder;
use super::super::config::Config;
use super::super::parameter::{Parameter, Role};
use super::Autoencoder;
use super::autoencoder::{WIDEST, bounded};

/// Reads the class.
pub(super) fn read(config: Config<'_>, class: &str) -> Result<Autoencoder, ArchitectureError> {
    if ["use_quant_conv", "use_post_quant_conv"].into_iter().any(|key| config.flag(&[key]) == Some(true)) {
        return Err(ArchitectureError::Unknown(format!("{class} with convolutions between its halves")));
    }
    let mut channels = config.sizes(&["block_out_channels"]).unwrap_or_else(|| vec![128, 256, 256, 512]);
    channels.iter_mut().for_each(|width| *width = (*width).min(WIDEST));
    Ok(Autoencoder {
        class: class.to_owned(),
        in_channels: config.size(&["in_channels"]).unwrap_or(3),
        latent_channels: config.size(&["latent_channels"]).unwrap_or(16),
        resnets: bounded(config, "layers_per_block", 3)?,
        norm_groups: config.size(&["norm_num_groups"]).unwrap_or(32),
        mid_attention: false,
        level_attention: vec![false; channels.len()],
        quant_conv: false,
        post_quant_conv: false,
        codebook: None,
        scale: 1 << channels.len().saturating_sub(1).min(32),
        frame_scale: config.size(&["temporal_compression_ratio"]).unwrap_or(4).max(1),
        channels,
        config: config.json().clone(),
    })
}

/// Every parameter of the autoencoder.
pub(super) fn parameters(vae: &Autoencoder) -> Vec<Parameter> {
    let mut out = Builder::default();
    let Some((&first, &last)) = vae.channels.first().zip(vae.channels.last()) else { return Vec::new() };
    let latent = Some(vae.latent_channels);
    out.within("encoder", |out| {
        cube(out, "conv_in", first, vae.in_channels);
        levels(out, vae, "down_blocks", &mut vae.channels.iter(), vae.resnets, None, "downsamplers.0.conv");
        middle(out, last, None);
        out.norm("norm_out", last, true);
        cube(out, "conv_out", vae.latent_channels * 2, last);
    });
    out.within("decoder", |out| {
        cube(out, "conv_in", last, vae.latent_channels);
        middle(out, last, latent);
        levels(out, vae, "up_blocks", &mut vae.channels.iter().rev(), vae.resnets + 1, latent, "upsamplers.0.conv");
        norm(out, "norm_out", first, latent);
        cube(out, "conv_out", vae.in_channels, first);
    });
    out.finish()
}

/// The levels of one side, of which all but the last change the size of frames.
fn levels(
    out: &mut Builder,
    vae: &Autoencoder,
    name: &str,
    channels: &mut dyn Iterator<Item = &u64>,
    resnets: u64,
    latent: Option<u64>,
    sampler: &str,
) {
    let mut width = None;
    for (level, &channels) in channels.enumerate() {
        out.within(&format!("{name}.{level}"), |out| {
            for block in 0..resnets {
                resnet(out, &format!("resnets.{block}"), width.unwrap_or(channels), channels, latent);
                width = Some(channels);
            }
            if level + 1 < vae.channels.len() {
                out.convolution(sampler, channels, channels, &[3, 3], true, Role::Convolution);
            }
        });
    }
}

fn cube(out: &mut Builder, name: &str, outputs: u64, inputs: u64) {
    out.convolution(&format!("{name}.conv"), outputs, inputs, &[3, 3, 3], true, Role::Convolution);
}

/// A group norm, which the latents shift and scale where there are any.
fn norm(out: &mut Builder, name: &str, width: u64, latent: Option<u64>) {
    let Some(latent) = latent else { return out.norm(name, width, true) };
    out.within(name, |out| {
        out.norm("norm_layer", width, true);
        for name in ["conv_y.conv", "conv_b.conv"] {
            out.convolution(name, width, latent, &[1, 1, 1], true, Role::Convolution);
        }
    });
}

fn resnet(out: &mut Builder, name: &str, inputs: u64, outputs: u64, latent: Option<u64>) {
    out.within(name, |out| {
        norm(out, "norm1", inputs, latent);
        cube(out, "conv1", outputs, inputs);
        norm(out, "norm2", outputs, latent);
        cube(out, "conv2", outputs, outputs);
        if inputs != outputs {
            out.convolution("conv_shortcut", outputs, inputs, &[1, 1, 1], true, Role::Convolution);
        }
    });
}

fn middle(out: &mut Builder, width: u64, latent: Option<u64>) {
    for block in 0..2 {
        resnet(out, &format!("mid_block.resnets.{block}"), width, width, latent);
    }
}
