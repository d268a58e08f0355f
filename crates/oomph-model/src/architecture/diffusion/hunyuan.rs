//! `AutoencoderKLHunyuanVideo`: a causal autoencoder of video, whose levels are those of `AutoencoderKL` with time.

use super::super::ArchitectureError;
use super::super::builder::Builder;
use super::super::config::Config;
use super::super::parameter::{Parameter, Role};
use super::Autoencoder;
use super::autoencoder::{WIDEST, bounded, middle_attention};

/// Reads the class. Only a quarter of the frames, as the class itself decodes them.
pub(super) fn read(config: Config<'_>, class: &str) -> Result<Autoencoder, ArchitectureError> {
    let scale = config.size(&["spatial_compression_ratio"]).unwrap_or(8);
    let frame_scale = config.size(&["temporal_compression_ratio"]).unwrap_or(4);
    if frame_scale != 4 || !scale.is_power_of_two() {
        return Err(ArchitectureError::Unknown(format!("{class} with {frame_scale} frames in one")));
    }
    let mut channels = config.sizes(&["block_out_channels"]).unwrap_or_else(|| vec![128, 256, 512, 512]);
    channels.iter_mut().for_each(|width| *width = (*width).min(WIDEST));
    Ok(Autoencoder {
        class: class.to_owned(),
        in_channels: config.size(&["in_channels"]).unwrap_or(3),
        latent_channels: config.size(&["latent_channels"]).unwrap_or(16),
        resnets: bounded(config, "layers_per_block", 2)?,
        norm_groups: config.size(&["norm_num_groups"]).unwrap_or(32),
        mid_attention: config.flag(&["mid_block_add_attention"]).unwrap_or(true),
        level_attention: vec![false; channels.len()],
        quant_conv: true,
        post_quant_conv: true,
        codebook: None,
        scale,
        frame_scale,
        channels,
        config: config.json().clone(),
    })
}

/// Every parameter of the autoencoder.
pub(super) fn parameters(vae: &Autoencoder) -> Vec<Parameter> {
    let mut out = Builder::default();
    let Some((&first, &last)) = vae.channels.first().zip(vae.channels.last()) else { return Vec::new() };
    let sampled = vae.sampled();
    out.within("encoder", |out| {
        cube(out, "conv_in", first, vae.in_channels);
        let mut width = first;
        for (level, &channels) in vae.channels.iter().enumerate() {
            out.within(&format!("down_blocks.{level}"), |out| {
                for block in 0..vae.resnets {
                    resnet(out, &format!("resnets.{block}"), width, channels);
                    width = channels;
                }
                if sampled.get(level).is_some_and(|step| *step != [1, 1]) {
                    cube(out, "downsamplers.0.conv", width, width);
                }
            });
        }
        middle(out, vae, last);
        out.norm("conv_norm_out", last, true);
        cube(out, "conv_out", vae.latent_channels * 2, last);
    });
    out.within("decoder", |out| {
        cube(out, "conv_in", last, vae.latent_channels);
        middle(out, vae, last);
        let mut width = last;
        for (level, &channels) in vae.channels.iter().rev().enumerate() {
            out.within(&format!("up_blocks.{level}"), |out| {
                for block in 0..=vae.resnets {
                    resnet(out, &format!("resnets.{block}"), width, channels);
                    width = channels;
                }
                if sampled.get(level).is_some_and(|step| *step != [1, 1]) {
                    cube(out, "upsamplers.0.conv", width, width);
                }
            });
        }
        out.norm("conv_norm_out", first, true);
        cube(out, "conv_out", vae.in_channels, first);
    });
    for (name, width) in [("quant_conv", vae.latent_channels * 2), ("post_quant_conv", vae.latent_channels)] {
        out.convolution(name, width, width, &[1, 1, 1], true, Role::Convolution);
    }
    out.finish()
}

impl Autoencoder {
    /// By how much each level of a HunyuanVideo autoencoder changes frames and each side: the first as many levels as the
    /// sides are halved, and of all but the last level the last ones for the frames.
    #[must_use]
    pub fn sampled(&self) -> Vec<[u64; 2]> {
        let (levels, sides) = (self.channels.len(), self.scale.checked_ilog2().unwrap_or(0) as usize);
        let times = self.frame_scale.checked_ilog2().unwrap_or(0) as usize;
        let step = |level: usize| {
            let time = level + 1 < levels && level + 1 + times >= levels;
            [1 + u64::from(time), 1 + u64::from(level < sides)]
        };
        (0..levels).map(step).collect()
    }
}

fn cube(out: &mut Builder, name: &str, outputs: u64, inputs: u64) {
    out.convolution(&format!("{name}.conv"), outputs, inputs, &[3, 3, 3], true, Role::Convolution);
}

fn resnet(out: &mut Builder, name: &str, inputs: u64, outputs: u64) {
    out.within(name, |out| {
        out.norm("norm1", inputs, true);
        cube(out, "conv1", outputs, inputs);
        out.norm("norm2", outputs, true);
        cube(out, "conv2", outputs, outputs);
        if inputs != outputs {
            out.convolution("conv_shortcut.conv", outputs, inputs, &[1, 1, 1], true, Role::Convolution);
        }
    });
}

fn middle(out: &mut Builder, vae: &Autoencoder, width: u64) {
    out.within("mid_block", |out| {
        resnet(out, "resnets.0", width, width);
        if vae.mid_attention {
            middle_attention(out, width);
        }
        resnet(out, "resnets.1", width, width);
    });
}
