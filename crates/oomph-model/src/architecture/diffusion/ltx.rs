//! `AutoencoderKLLTXVideo` of LTX-Video 0.9: an autoencoder of video that packs pixels into patches first.

use super::super::ArchitectureError;
use super::super::builder::Builder;
use super::super::config::Config;
use super::super::parameter::{Parameter, Role};
use super::Autoencoder;
use super::autoencoder::WIDEST;

/// What a side of the autoencoder is made of, in the order of its levels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LtxSide {
    /// Residual blocks of the middle.
    pub middle: u64,
    /// Of each level: its channels, its residual blocks, and whether frames and sides are halved or doubled.
    pub levels: Vec<(u64, u64, bool)>,
}

/// Reads the class.
pub(super) fn read(config: Config<'_>, class: &str) -> Result<Autoencoder, ArchitectureError> {
    let json = config.json();
    let later = |key: &str| {
        let on = |value: &serde_json::Value| value.as_bool() == Some(true) || value.as_u64().is_some_and(|n| n > 1);
        json.get(key).is_some_and(|value| on(value) || value.as_array().is_some_and(|list| list.iter().any(on)))
    };
    let types = config.texts(&["down_block_types"]).unwrap_or_default();
    let changed =
        ["timestep_conditioning", "decoder_inject_noise", "upsample_residual", "upsample_factor", "patch_size_t"];
    if changed.into_iter().any(later) || types.iter().any(|name| *name != "LTXVideoDownBlock3D") {
        return Err(ArchitectureError::Unknown(format!("{class} of a later LTX-Video")));
    }
    let channels = widths(config, "block_out_channels");
    let halved = flags(config, "spatio_temporal_scaling", channels.len());
    let steps = halved.iter().filter(|halved| **halved).count().min(16) as u32;
    let mut vae = Autoencoder {
        class: class.to_owned(),
        in_channels: config.size(&["in_channels"]).unwrap_or(3),
        latent_channels: config.size(&["latent_channels"]).unwrap_or(128),
        resnets: 0,
        norm_groups: 1,
        mid_attention: false,
        level_attention: vec![false; channels.len()],
        quant_conv: false,
        post_quant_conv: false,
        codebook: None,
        scale: patch(config) << steps,
        frame_scale: 1 << steps,
        channels,
        config: json.clone(),
    };
    for side in [encoder(&vae), decoder(&vae)] {
        let most = side.levels.iter().map(|level| level.1).chain([side.middle]).max().unwrap_or(0);
        if most > 64 {
            return Err(ArchitectureError::TooMany { what: "blocks in a level", count: most });
        }
        vae.resnets = vae.resnets.max(most);
    }
    Ok(vae)
}

fn patch(config: Config<'_>) -> u64 {
    config.size(&["patch_size"]).unwrap_or(4).clamp(1, 64)
}

fn widths(config: Config<'_>, key: &'static str) -> Vec<u64> {
    let widths = config.sizes(&[key]).unwrap_or_else(|| vec![128, 256, 512, 512]);
    widths.into_iter().map(|width| width.min(WIDEST)).collect()
}

fn flags(config: Config<'_>, key: &str, levels: usize) -> Vec<bool> {
    let given = config.json().get(key).and_then(serde_json::Value::as_array);
    let mut flags = match given {
        Some(list) => list.iter().filter_map(serde_json::Value::as_bool).collect(),
        None => vec![true, true, true, false],
    };
    flags.resize(levels, false);
    flags
}

fn blocks(config: Config<'_>, key: &'static str, levels: usize) -> Vec<u64> {
    let mut blocks = config.sizes(&[key]).unwrap_or_else(|| vec![4, 3, 3, 3, 4]);
    blocks.resize(levels + 1, 1);
    blocks
}

/// The encoder, from pixels to latents.
fn encoder(vae: &Autoencoder) -> LtxSide {
    let config = Config::new(&vae.config);
    let blocks = blocks(config, "layers_per_block", vae.channels.len());
    let halved = flags(config, "spatio_temporal_scaling", vae.channels.len());
    let levels = vae.channels.iter().zip(&blocks).zip(halved);
    LtxSide {
        middle: blocks.last().copied().unwrap_or(1),
        levels: levels.map(|((&channels, &blocks), halved)| (channels, blocks, halved)).collect(),
    }
}

/// The decoder, from latents to pixels.
fn decoder(vae: &Autoencoder) -> LtxSide {
    let config = Config::new(&vae.config);
    let widths = widths(config, "decoder_block_out_channels");
    let blocks = blocks(config, "decoder_layers_per_block", widths.len());
    let doubled = flags(config, "decoder_spatio_temporal_scaling", widths.len());
    let levels = widths.iter().rev().zip(blocks.iter().rev().skip(1)).zip(doubled.into_iter().rev());
    LtxSide {
        middle: blocks.last().copied().unwrap_or(1),
        levels: levels.map(|((&channels, &blocks), doubled)| (channels, blocks, doubled)).collect(),
    }
}

impl Autoencoder {
    /// The decoder of LTX-Video's autoencoder, and the side of its patches in pixels.
    #[must_use]
    pub fn ltx_decoder(&self) -> (LtxSide, u64) {
        (decoder(self), patch(Config::new(&self.config)))
    }
}

/// Every parameter of the autoencoder.
pub(super) fn parameters(vae: &Autoencoder) -> Vec<Parameter> {
    let mut out = Builder::default();
    let patch = patch(Config::new(&vae.config));
    let packed = vae.in_channels.min(WIDEST) * patch * patch;
    out.within("encoder", |out| {
        let LtxSide { middle, levels } = encoder(vae);
        let mut width = levels.first().map_or(128, |level| level.0);
        cube(out, "conv_in", width, packed);
        for (index, &(_, blocks, halved)) in levels.iter().enumerate() {
            // The blocks of a level have the width that comes in, and a last one goes on to the next level's.
            let next = levels.get(index + 1).map_or(width, |level| level.0);
            out.within(&format!("down_blocks.{index}"), |out| {
                list(out, blocks, width);
                if halved {
                    cube(out, "downsamplers.0", width, width);
                }
                if next != width {
                    resnet(out, "conv_out", width, next);
                }
            });
            width = next;
        }
        out.within("mid_block", |out| list(out, middle, width));
        cube(out, "conv_out", vae.latent_channels + 1, width);
    });
    out.within("decoder", |out| {
        let LtxSide { middle, levels } = decoder(vae);
        let mut width = levels.first().map_or(128, |level| level.0);
        cube(out, "conv_in", width, vae.latent_channels);
        out.within("mid_block", |out| list(out, middle, width));
        for (index, &(channels, blocks, doubled)) in levels.iter().enumerate() {
            out.within(&format!("up_blocks.{index}"), |out| {
                if width != channels {
                    resnet(out, "conv_in", width, channels);
                }
                if doubled {
                    cube(out, "upsamplers.0.conv", channels * 8, channels);
                }
                list(out, blocks, channels);
            });
            width = channels;
        }
        cube(out, "conv_out", packed, width);
    });
    for name in ["latents_mean", "latents_std"] {
        out.buffer(name, &[vae.latent_channels], None);
    }
    out.finish()
}

fn cube(out: &mut Builder, name: &str, outputs: u64, inputs: u64) {
    out.convolution(&format!("{name}.conv"), outputs, inputs, &[3, 3, 3], true, Role::Convolution);
}

fn list(out: &mut Builder, blocks: u64, width: u64) {
    for block in 0..blocks {
        resnet(out, &format!("resnets.{block}"), width, width);
    }
}

fn resnet(out: &mut Builder, name: &str, inputs: u64, outputs: u64) {
    out.within(name, |out| {
        cube(out, "conv1", outputs, inputs);
        cube(out, "conv2", outputs, outputs);
        if inputs != outputs {
            out.norm("norm3", inputs, true);
            out.convolution("conv_shortcut.conv", outputs, inputs, &[1, 1, 1], true, Role::Convolution);
        }
    });
}
