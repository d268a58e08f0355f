//! Describes the networks of diffusion pipelines as plain values.

mod autoencoder;
mod cogvideo;
mod hunyuan;
mod ltx;
mod transformer;
mod unet;
mod video;

use serde::Serialize;

pub use ltx::LtxSide;

use super::config::Config;
use super::parameter::Parameter;
use super::{Architecture, ArchitectureError};

/// Reads the configuration of a class of diffusers, or of a VQGAN.
pub(super) fn network(config: Config<'_>, class: &str) -> Result<Architecture, ArchitectureError> {
    match class {
        "UNet2DConditionModel" | "ControlNetModel" => unet::read(config, class).map(Architecture::UNet),
        "AutoencoderKL" => autoencoder::read(config, class).map(Architecture::Autoencoder),
        "AutoencoderKLWan" | "AutoencoderKLQwenImage" => video::read(config, class).map(Architecture::Autoencoder),
        "AutoencoderKLCogVideoX" => cogvideo::read(config, class).map(Architecture::Autoencoder),
        "AutoencoderKLHunyuanVideo" => hunyuan::read(config, class).map(Architecture::Autoencoder),
        "AutoencoderKLLTXVideo" => ltx::read(config, class).map(Architecture::Autoencoder),
        "TamingVQModel" | "TamingGumbelVQ" => autoencoder::read_vqgan(config, class).map(Architecture::Autoencoder),
        _ if transformer::CLASSES.contains(&class) => {
            transformer::read(config, class).map(Architecture::DiffusionTransformer)
        }
        _ => Err(ArchitectureError::Unknown(class.to_owned())),
    }
}

impl UNet {
    pub(super) fn parameters(&self) -> Vec<Parameter> {
        unet::parameters(self)
    }
}

impl DiffusionTransformer {
    pub(super) fn parameters(&self) -> Vec<Parameter> {
        transformer::parameters(self)
    }
}

impl Autoencoder {
    pub(super) fn parameters(&self) -> Vec<Parameter> {
        match self.class.as_str() {
            "AutoencoderKL" => autoencoder::parameters(self),
            "AutoencoderKLWan" | "AutoencoderKLQwenImage" => video::parameters(self),
            "AutoencoderKLCogVideoX" => cogvideo::parameters(self),
            "AutoencoderKLHunyuanVideo" => hunyuan::parameters(self),
            "AutoencoderKLLTXVideo" => ltx::parameters(self),
            _ => autoencoder::vqgan_parameters(self),
        }
    }
}

/// A UNet that denoises latents conditioned on text (Stable Diffusion 1 and 2, SDXL), or a ControlNet, which is its
/// first half with outputs of its own.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UNet {
    /// The class of diffusers (`UNet2DConditionModel`, `ControlNetModel`).
    pub class: String,
    /// Channels of the input latents.
    pub in_channels: u64,
    /// Channels of the output; those of `in_channels` for a ControlNet, which has no such output.
    pub out_channels: u64,
    /// Side of the latent that it was trained on.
    pub sample_size: u64,
    /// The levels, the finest first.
    pub levels: Vec<Level>,
    /// Transformer layers of the middle block; 0 where it has no attention.
    pub mid_transformer_layers: u64,
    /// Width of the text's hidden states.
    pub context: u64,
    /// Groups of a group norm.
    pub norm_groups: u64,
    /// Whether the projections in and out of the transformers are linear, not 1x1 convolutions.
    pub linear_projection: bool,
    /// Width of the vector of sizes and pooled text that SDXL adds to the time embedding.
    pub added_embedding: Option<u64>,
    /// Whether a class (or noise level) is embedded too, by so many classes.
    pub classes: Option<u64>,
    /// Channels of the control image's embedding, level by level; `None` for a plain UNet.
    pub control: Option<Vec<u64>>,
    /// Channels of the control image.
    pub control_channels: u64,
}

/// One level of a UNet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Level {
    /// Channels.
    pub channels: u64,
    /// Residual blocks on the way down; there is one more on the way up.
    pub resnets: u64,
    /// Transformer layers behind each residual block on the way down; 0 where there is no attention.
    pub transformer_layers: u64,
    /// The same on the way up.
    pub up_transformer_layers: u64,
    /// Attention heads.
    pub heads: u64,
}

/// A transformer that denoises latents (SD3, Flux, PixArt, Qwen-Image, Wan, ...).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiffusionTransformer {
    /// The class of diffusers (`FluxTransformer2DModel`).
    pub class: String,
    /// Layers in which image and text have weights of their own, or all layers of a family with one kind.
    pub layers: u64,
    /// Layers that treat image and text as one sequence with the same weights (Flux).
    pub single_layers: u64,
    /// Attention heads.
    pub heads: u64,
    /// Width of a head.
    pub head_dim: u64,
    /// Width inside the MLP.
    pub intermediate: u64,
    /// Channels of the input, after packing where the family packs (64 for Flux).
    pub in_channels: u64,
    /// Channels of the output.
    pub out_channels: u64,
    /// Patch sides: time, height, width. `[1, 1, 1]` where the latents come packed.
    pub patch: [u64; 3],
    /// Latent pixels that become one token, along each side: packing and patch together (2 for SD3 and Flux).
    pub token_side: u64,
    /// Width of the text's hidden states.
    pub context: u64,
    /// Width of the pooled text vector; 0 where there is none.
    pub pooled: u64,
    /// Whether the guidance is an input (Flux dev).
    pub guidance: bool,
    /// Whether text is joined with the image in self-attention; else it is attended to by cross-attention.
    pub joint_attention: bool,
    /// Layers that attend once more to the image alone (SD3.5 medium).
    pub dual_attention_layers: u64,
    /// Whether queries and keys are normed.
    pub query_key_norm: bool,
    /// Side of the table of fixed positions, which is a buffer; 0 where positions are rotary.
    pub position_table: u64,
    /// The configuration, for what only one family has.
    #[serde(skip)]
    pub config: serde_json::Value,
}

/// An autoencoder between pixels and latents, also of video, also with a codebook (VQGAN).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Autoencoder {
    /// The class of diffusers (`AutoencoderKL`), or `VQModel` for taming-transformers' VQGAN.
    pub class: String,
    /// Colours.
    pub in_channels: u64,
    /// Channels of the latents.
    pub latent_channels: u64,
    /// Channels of the levels, the finest first.
    pub channels: Vec<u64>,
    /// Residual blocks of a level of the encoder; the decoder has one more.
    pub resnets: u64,
    /// Groups of a group norm.
    pub norm_groups: u64,
    /// Whether the middle has attention.
    pub mid_attention: bool,
    /// Whether the finest levels have attention too, by level (VQGAN).
    pub level_attention: Vec<bool>,
    /// Whether a 1x1 convolution follows the encoder.
    pub quant_conv: bool,
    /// Whether one precedes the decoder.
    pub post_quant_conv: bool,
    /// Vectors of the codebook and their width.
    pub codebook: Option<[u64; 2]>,
    /// Pixels per latent pixel along each side.
    pub scale: u64,
    /// Frames per latent frame; 1 for images.
    pub frame_scale: u64,
    /// The configuration, for what only one family has.
    #[serde(skip)]
    pub config: serde_json::Value,
}
