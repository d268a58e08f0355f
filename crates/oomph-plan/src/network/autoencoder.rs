//! Autoencoders: `AutoencoderKL` of diffusers, block by block, on sizes.

use oomph_model::architecture::Autoencoder;

use super::video::{self, Maps};
use crate::tape::{Extent, Kind, Tape, TapeOwner, Tensor};
use crate::workload::Workload;

/// Numbers that Wan's decoder holds at once for each pixel of a frame, its caches of features included. It goes through a
/// video four frames at a time. Readings at 832 x 480 in fp32: 8,163 MiB for 33 frames and 8,393 for 81 beyond what rested
/// on the card, of which the decoded video is 151 and 370.
const WAN_NUMBERS: u64 = 5262;

/// Whether an autoencoder is Wan's, which is kept in fp32 (as the model's own page loads it).
pub fn is_wan(vae: &Autoencoder) -> bool {
    vae.class == "AutoencoderKLWan"
}

/// Decodes a video of Wan's.
fn decode_wan(tape: &Tape, workload: &Workload) {
    let image = workload.image;
    let frame = image.width.saturating_mul(image.height);
    let video = frame.saturating_mul(image.frames.max(1)).saturating_mul(3);
    let _decoded = tape.empty(workload.batch.saturating_mul(video), Kind::Single);
    let samples = if image.slicing { 1 } else { workload.batch };
    // Its tiles are 256 pixels wide.
    let pixels = if image.tiling { frame.min(256 * 256) } else { frame };
    drop(tape.empty(samples.saturating_mul(pixels).saturating_mul(WAN_NUMBERS), Kind::Single));
}

/// Decodes all images, or one after the other (slicing), or in tiles of the size that the autoencoder was trained on.
/// With `upcasts` an autoencoder of so many numbers is made fp32 for it where it has 16 bits and asks for that.
pub fn decode(
    tape: &Tape,
    vae: &Autoencoder,
    workload: &Workload,
    kind: Kind,
    trained: Option<u64>,
    upcasts: Option<u64>,
) {
    if is_wan(vae) {
        return decode_wan(tape, workload);
    }
    let image = workload.image;
    let (scale, frame_scale) = (vae.scale.max(1), vae.frame_scale.max(1));
    let video = Maps {
        samples: if image.slicing { 1 } else { workload.batch },
        frames: (image.frames.max(1) - 1) / frame_scale + 1,
        height: image.height / scale,
        width: image.width / scale,
    };
    if let Some(decoded) = video::decode(tape, vae, video, image.tiling, kind) {
        return drop(decoded);
    }
    let pixels = image.width.saturating_mul(image.height);
    let own = vae.config.get("sample_size").and_then(serde_json::Value::as_u64).unwrap_or(512);
    let trained = own.max(trained.unwrap_or(0));
    let tile = if image.tiling { pixels.min(trained.saturating_mul(trained)) } else { pixels };
    let samples = if image.slicing { 1 } else { workload.batch };
    let upcast = upcasts.is_some()
        && workload.precision == crate::workload::Precision::Fp16
        && vae.config.get("force_upcast").and_then(serde_json::Value::as_bool).unwrap_or(false);
    let kind = if upcast { Kind::Single } else { kind };
    // The weights in 16 bits, whose place the larger ones take, are counted with the network.
    let wider = upcasts.filter(|_| upcast).unwrap_or(0);
    let _weights = tape.owned(TapeOwner::Weights, || tape.empty(wider, Kind::Half));
    let decoded = tape.empty(workload.batch.saturating_mul(pixels).saturating_mul(3), kind);
    let latent = pixels_of(tile, vae.scale);
    let one = once(tape, vae, Extent { samples, places: latent }, kind);
    drop((one, decoded));
}

fn pixels_of(pixels: u64, scale: u64) -> u64 {
    pixels / scale.saturating_mul(scale).max(1)
}

fn once(tape: &Tape, vae: &Autoencoder, latent: Extent, kind: Kind) -> Tensor {
    let last = vae.channels.last().copied().unwrap_or(512);
    let mut maps = latent;
    let z = tape.empty(maps.numbers(vae.latent_channels), kind);
    let mut sample = convolution(tape, &z, maps, vae.latent_channels, last, 9);
    sample = resnet(tape, sample, maps, last, last);
    sample = resnet(tape, sample, maps, last, last);
    let mut width = last;
    for (index, &channels) in vae.channels.iter().rev().enumerate() {
        // The caller keeps what goes into a level until the level is done.
        let mut hidden = sample.clone();
        for _ in 0..=vae.resnets {
            hidden = resnet(tape, hidden, maps, width, channels);
            width = channels;
        }
        if index + 1 < vae.channels.len() {
            let larger = Extent { places: maps.places.saturating_mul(4), ..maps };
            let scaled = tape.empty(larger.numbers(width), kind);
            let held = std::mem::replace(&mut hidden, scaled);
            // `hidden_states` of the upsampler is replaced; that of the level's loop is not.
            let convolved = convolution(tape, &hidden, larger, width, width, 9);
            drop(held);
            hidden = convolved;
            maps = larger;
        }
        sample = hidden;
    }
    sample = tape.keeping_nothing(&sample);
    sample = tape.keeping_nothing(&sample);
    convolution(tape, &sample, maps, width, vae.in_channels, 9)
}

/// A convolution of so many taps. For one sample cuDNN turns both maps into its own layout, in a workspace; for several
/// it takes an algorithm that needs none (readings of cuDNN 9 for compute capability 9.0).
fn convolution(tape: &Tape, x: &Tensor, maps: Extent, from: u64, to: u64, taps: u64) -> Tensor {
    let out = tape.empty(maps.numbers(to), x.kind);
    if maps.samples == 1 && taps > 1 {
        let weights = from.saturating_mul(to).saturating_mul(taps);
        let numbers = x.count.saturating_add(out.count).saturating_add(weights);
        drop(tape.owned(TapeOwner::Workspaces, || tape.empty(numbers, x.kind)));
    }
    out
}

/// `ResnetBlock2D` without a time embedding.
fn resnet(tape: &Tape, input: Tensor, maps: Extent, from: u64, to: u64) -> Tensor {
    let mut hidden = tape.keeping_nothing(&input);
    hidden = tape.keeping_nothing(&hidden);
    hidden = convolution(tape, &hidden, maps, from, to, 9);
    hidden = tape.keeping_nothing(&hidden);
    hidden = tape.keeping_nothing(&hidden);
    hidden = convolution(tape, &hidden, maps, to, to, 9);
    let shortcut = (from != to).then(|| convolution(tape, &input, maps, from, to, 1));
    let sum = tape.add(shortcut.as_ref().unwrap_or(&input), &hidden);
    tape.keeping_nothing(&sum)
}

/// Encodes the images of a batch, as training does before each step.
pub fn encode(tape: &Tape, vae: &Autoencoder, workload: &Workload, kind: Kind) {
    let image = workload.image;
    let mut maps = Extent { samples: workload.batch, places: image.width.saturating_mul(image.height) };
    let first = vae.channels.first().copied().unwrap_or(128);
    let pixels = tape.owned(TapeOwner::Inputs, || tape.empty(maps.numbers(vae.in_channels), kind));
    let mut sample = convolution(tape, &pixels, maps, vae.in_channels, first, 9);
    let mut width = first;
    for (index, &channels) in vae.channels.iter().enumerate() {
        let mut hidden = sample.clone();
        for _ in 0..vae.resnets {
            hidden = resnet(tape, hidden, maps, width, channels);
            width = channels;
        }
        if index + 1 < vae.channels.len() {
            let smaller = maps.halved();
            // A row and a column of zeros are appended to the maps first.
            let padded = tape.keeping_nothing(&hidden);
            hidden = convolution(tape, &padded, smaller, width, width, 9);
            maps = smaller;
        }
        sample = hidden;
    }
    drop(resnet(tape, sample, maps, width, width));
}
