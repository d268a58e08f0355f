//! Computes how large the latents of an image or a video are, for each family of denoisers.

use oomph_model::Architecture;
use oomph_model::architecture::DiffusionTransformer;

use super::Pipeline;
use crate::network::Step;
use crate::tape::Extent;
use crate::workload::Workload;

/// Pixels of PixArt's images, whatever is asked for: its pipeline takes the nearest of a list of sizes, which all have
/// about as many, and scales the result.
const BINNED_PIXELS: u64 = 1024 * 1024;
/// Text tokens of a UNet's encoder (CLIP).
const CLIP_TOKENS: u64 = 77;

/// What a family of transformers has in addition to an image's tokens, and how its autoencoder packs pixels and frames.
struct Family {
    /// Tokens of the text, padded to this by the pipeline.
    text: u64,
    /// Pixels of a latent along each side.
    pixels: u64,
    /// Frames of a latent.
    frames: u64,
    /// Whether guidance doubles the batch; otherwise it is an input, or the network runs twice.
    doubles: bool,
}

impl Family {
    /// Of a class of diffusers, from its pipeline's defaults (`max_sequence_length`, `vae_scale_factor_*`).
    fn of(shape: &DiffusionTransformer) -> Self {
        let plain = Self { text: 512, pixels: 8, frames: 4, doubles: false };
        match shape.class.as_str() {
            // T5's 256 and CLIP's 77.
            "SD3Transformer2DModel" => Self { text: 333, doubles: true, ..plain },
            "PixArtTransformer2DModel" => Self { text: 300, doubles: true, ..plain },
            "CogVideoXTransformer3DModel" => Self { text: 226, doubles: true, ..plain },
            "LTXVideoTransformer3DModel" => Self { text: 128, pixels: 32, frames: 8, doubles: true },
            "HunyuanVideoTransformer3DModel" => Self { text: 256, ..plain },
            _ => plain,
        }
    }
}

impl Pipeline {
    /// Whether the text encoders are asked for the prompt and then, one after the other again, for the negative prompt
    /// (SD3; SDXL takes zeros where there is none).
    pub(super) fn encodes_twice(&self, workload: &Workload) -> bool {
        workload.image.guided
            && self.networks.iter().any(|network| {
                matches!(&network.architecture, Some(Architecture::DiffusionTransformer(shape)) if shape.class.starts_with("SD3"))
            })
    }

    /// The size that the pipeline works at.
    pub(super) fn binned(&self, workload: &Workload) -> Workload {
        let mut workload = workload.clone();
        let bins = self.networks.iter().any(|network| {
            matches!(&network.architecture, Some(Architecture::DiffusionTransformer(shape)) if shape.class.starts_with("PixArt"))
        });
        let image = &mut workload.image;
        let pixels = image.width.saturating_mul(image.height).max(1);
        if bins && !workload.task.trains() {
            let factor = (BINNED_PIXELS as f64 / pixels as f64).sqrt();
            let scaled = |side: u64| ((side as f64 * factor / 32.0).round() as u64).saturating_mul(32).max(32);
            (image.width, image.height) = (scaled(image.width), scaled(image.height));
        }
        workload
    }
}

/// A step of a UNet, on latents an eighth of the image's side.
pub(super) fn unet_step(workload: &Workload) -> Step {
    let image = workload.image;
    let places = (image.width / 8).saturating_mul(image.height / 8);
    Step::of(workload, Extent { samples: samples(workload, true), places }, CLIP_TOKENS)
}

/// A step of a transformer, whose places are tokens.
pub(super) fn transformer_step(shape: &DiffusionTransformer, workload: &Workload) -> Step {
    let image = workload.image;
    let family = Family::of(shape);
    let side = family.pixels.saturating_mul(shape.token_side).max(1);
    let frames = (image.frames.max(1) - 1) / family.frames + 1;
    let frames = frames.div_ceil(shape.patch[0].max(1));
    let places = (image.width / side).saturating_mul(image.height / side).saturating_mul(frames);
    let doubles = family.doubles && !shape.guidance;
    Step::of(workload, Extent { samples: samples(workload, doubles), places }, family.text)
}

/// Samples of a step: guided pipelines denoise each image with and without the prompt.
fn samples(workload: &Workload, doubles: bool) -> u64 {
    let guided = workload.image.guided && !workload.task.trains();
    workload.batch.saturating_mul(if guided && doubles { 2 } else { 1 })
}
