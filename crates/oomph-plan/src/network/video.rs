//! Decoders of video, on sizes: `AutoencoderKLHunyuanVideo` and `AutoencoderKLLTXVideo` of diffusers, and below them that of
//! CogVideoX.
//!
//! Each function is one of diffusers', and holds what its local variables hold.

mod cogvideo;
mod maps;

use oomph_model::architecture::Autoencoder;

pub use self::maps::Maps;
use self::maps::{convolution, parts};
use crate::tape::{Kind, Tape, Tensor};

/// The tiles that a decoder works in: the length of a side in latents, and how far they are apart.
const HUNYUAN_TILE: (u64, u64) = (32, 24);
const LTX_TILE: (u64, u64) = (16, 14);
/// Latent frames that HunyuanVideo's decoder takes at a time, one of them from the frames before, and how far they are
/// apart.
const HUNYUAN_FRAMES: (u64, u64) = (5, 3);

/// Decodes videos where the class is one of these.
pub fn decode(tape: &Tape, vae: &Autoencoder, latent: Maps, tiling: bool, kind: Kind) -> Option<Tensor> {
    let hunyuan = match vae.class.as_str() {
        "AutoencoderKLCogVideoX" => return Some(cogvideo::decode(tape, vae, latent, tiling, kind)),
        "AutoencoderKLHunyuanVideo" => true,
        "AutoencoderKLLTXVideo" => false,
        _ => return None,
    };
    let one = |maps: Maps| if hunyuan { self::hunyuan(tape, vae, maps, kind) } else { ltx(tape, vae, maps, kind) };
    let (tile, stride) = if hunyuan { HUNYUAN_TILE } else { LTX_TILE };
    let tiled = |maps: Maps| {
        if !tiling || maps.height.max(maps.width) <= tile {
            return one(maps);
        }
        let mut tiles = Vec::new();
        for (height, width) in parts(maps.height, tile, stride)
            .flat_map(|height| parts(maps.width, tile, stride).map(move |width| (height, width)))
        {
            tiles.push(one(Maps { height, width, ..maps }));
        }
        // The rows of tiles are put together, and then the whole of them.
        let count = maps.larger([vae.frame_scale, vae.scale]).numbers(vae.in_channels);
        let _rows = tape.empty(count, kind);
        tape.empty(count, kind)
    };
    let (frames, apart) = HUNYUAN_FRAMES;
    if !hunyuan || latent.frames < frames {
        return Some(tiled(latent));
    }
    let clips: Vec<Tensor> =
        parts(latent.frames, frames, apart).map(|frames| tiled(Maps { frames, ..latent })).collect();
    let whole = tape.empty(latent.larger([vae.frame_scale, vae.scale]).numbers(vae.in_channels), kind);
    drop(clips);
    Some(whole)
}

/// A norm and an activation behind it.
fn normed(tape: &Tape, x: &Tensor) -> Tensor {
    tape.keeping_nothing(&tape.keeping_nothing(x))
}

/// `HunyuanVideoDecoder3D`.
fn hunyuan(tape: &Tape, vae: &Autoencoder, latent: Maps, kind: Kind) -> Tensor {
    let last = vae.channels.last().copied().unwrap_or(512);
    let z = tape.empty(latent.numbers(vae.latent_channels), kind);
    let z = convolution(tape, &z, [vae.latent_channels; 2], 1, latent);
    let mut hidden = causal(tape, &z, [vae.latent_channels, last], 27, latent);
    hidden = hunyuan_middle(tape, vae, hidden, last, latent);
    let (mut maps, mut width) = (latent, last);
    for (&channels, step) in vae.channels.iter().rev().zip(vae.sampled()) {
        // The decoder holds what it gave to a level until the level is done.
        let given = hidden;
        let mut inner = given.clone();
        for _ in 0..=vae.resnets {
            inner = hunyuan_block(tape, &inner, [width, channels], maps);
            width = channels;
        }
        if step != [1, 1] {
            inner = hunyuan_upsample(tape, &inner, width, maps, step);
            maps = maps.larger(step);
        }
        hidden = inner;
    }
    hidden = normed(tape, &hidden);
    causal(tape, &hidden, [width, vae.in_channels], 27, maps)
}

/// `HunyuanVideoCausalConv3d`: the edges are repeated in a copy first.
fn causal(tape: &Tape, x: &Tensor, channels: [u64; 2], taps: u64, maps: Maps) -> Tensor {
    let edged = if taps > 1 { maps.padded(2, 1) } else { maps };
    let copy = tape.empty(edged.numbers(channels[0]), x.kind);
    convolution(tape, &copy, channels, taps, maps)
}

/// `HunyuanVideoResnetBlockCausal3D`.
fn hunyuan_block(tape: &Tape, input: &Tensor, [from, to]: [u64; 2], maps: Maps) -> Tensor {
    let mut hidden = normed(tape, input);
    hidden = causal(tape, &hidden, [from, to], 27, maps);
    hidden = normed(tape, &hidden);
    hidden = causal(tape, &hidden, [to, to], 27, maps);
    let shortcut = (from != to).then(|| causal(tape, input, [from, to], 1, maps));
    tape.add(&hidden, shortcut.as_ref().unwrap_or(input))
}

/// `HunyuanVideoMidBlock3D`.
fn hunyuan_middle(tape: &Tape, vae: &Autoencoder, given: Tensor, width: u64, maps: Maps) -> Tensor {
    let mut hidden = hunyuan_block(tape, &given, [width; 2], maps);
    if vae.mid_attention {
        // Which place comes before which, for all pairs: as a truth, in 32 bits, and in the type of the maps.
        let places = maps.numbers(1) / maps.samples.max(1);
        let pairs = places.saturating_mul(places);
        let earlier = tape.bytes(pairs);
        let wide = tape.empty(pairs, Kind::Single);
        drop(earlier);
        let mask = tape.cast(&wide, hidden.kind);
        drop(wide);
        let heads: Vec<Tensor> = (0..4).map(|_| tape.keeping_nothing(&hidden)).collect();
        hidden = tape.keeping_nothing(&hidden);
        drop((mask, heads));
    }
    hunyuan_block(tape, &hidden, [width; 2], maps)
}

/// `HunyuanVideoUpsampleCausal3D`.
fn hunyuan_upsample(tape: &Tape, x: &Tensor, width: u64, maps: Maps, step: [u64; 2]) -> Tensor {
    let larger = maps.larger(step);
    let first = tape.empty(Maps { frames: 1, ..larger }.numbers(width), x.kind);
    let others = (maps.frames > 1).then(|| {
        let copy = tape.empty(Maps { frames: maps.frames - 1, ..maps }.numbers(width), x.kind);
        let others = tape.empty(Maps { frames: larger.frames - 1, ..larger }.numbers(width), x.kind);
        drop(copy);
        others
    });
    let joined = others.as_ref().map(|_| tape.empty(larger.numbers(width), x.kind));
    causal(tape, joined.as_ref().unwrap_or(&first), [width; 2], 27, larger)
}

/// `LTXVideoDecoder3d`.
fn ltx(tape: &Tape, vae: &Autoencoder, latent: Maps, kind: Kind) -> Tensor {
    let (side, patch) = vae.ltx_decoder();
    let mut width = side.levels.first().map_or(128, |level| level.0);
    let mut maps = latent;
    let z = tape.empty(maps.numbers(vae.latent_channels), kind);
    let mut hidden = edged(tape, &z, [vae.latent_channels, width], 27, maps);
    let given = hidden.clone();
    for _ in 0..side.middle {
        hidden = ltx_block(tape, &hidden, [width; 2], maps);
    }
    drop(given);
    for (channels, blocks, doubled) in side.levels {
        let given = hidden;
        let mut inner = given.clone();
        if width != channels {
            inner = ltx_block(tape, &inner, [width, channels], maps);
            width = channels;
        }
        if doubled {
            let apart = edged(tape, &inner, [width, width.saturating_mul(8)], 27, maps);
            // Channels become places in a copy, of which the first frame is left out.
            inner = tape.empty(apart.count, apart.kind);
            maps = maps.larger([2, 2]);
            inner = inner.viewed(maps.numbers(width));
        }
        for _ in 0..blocks {
            inner = ltx_block(tape, &inner, [width; 2], maps);
        }
        hidden = inner;
    }
    hidden = tape.keeping_nothing(&root_mean_square(tape, &hidden));
    hidden = edged(tape, &hidden, [width, vae.in_channels.saturating_mul(patch * patch)], 27, maps);
    tape.keeping_nothing(&hidden)
}

/// `LTXVideoCausalConv3d` as the decoder has it: the first and the last frame are repeated in a copy.
fn edged(tape: &Tape, x: &Tensor, channels: [u64; 2], taps: u64, maps: Maps) -> Tensor {
    let edge = |frames: u64| Maps { frames, ..maps }.numbers(channels[0]);
    let repeated = u64::from(taps > 1);
    let _edges = [tape.empty(edge(repeated), x.kind), tape.empty(edge(repeated), x.kind)];
    let copy = tape.empty(edge(maps.frames.saturating_add(2 * repeated)), x.kind);
    convolution(tape, &copy, channels, taps, maps)
}

/// `RMSNorm` without weights: squared in 32 bits, and multiplied in 32 bits.
fn root_mean_square(tape: &Tape, x: &Tensor) -> Tensor {
    drop([tape.empty(x.count, Kind::Single), tape.empty(x.count, Kind::Single)]);
    let wide = tape.empty(x.count, Kind::Single);
    tape.cast(&wide, x.kind)
}

/// `LTXVideoResnetBlock3d`.
fn ltx_block(tape: &Tape, input: &Tensor, [from, to]: [u64; 2], maps: Maps) -> Tensor {
    let mut hidden = tape.keeping_nothing(&root_mean_square(tape, input));
    hidden = edged(tape, &hidden, [from, to], 27, maps);
    hidden = tape.keeping_nothing(&root_mean_square(tape, &hidden));
    hidden = edged(tape, &hidden, [to, to], 27, maps);
    let shortcut = (from != to).then(|| edged(tape, &tape.keeping_nothing(input), [from, to], 1, maps));
    tape.add(&hidden, shortcut.as_ref().unwrap_or(input))
}
