//! The decoder of `AutoencoderKLCogVideoX`, on sizes.
//!
//! It takes two latent frames at a time, and what its convolutions keep of one clip for the next weighs more than the
//! maps themselves: those of one place, by which the latents shift and scale the norms, keep all of their input.

use std::cell::RefCell;

use oomph_model::architecture::Autoencoder;

use super::maps::{Maps, convolution, parts};
use crate::tape::{Kind, Tape, Tensor};

/// Latent frames that are decoded at once; an odd one goes with the first of them.
const FRAMES: u64 = 2;
/// The height and the width of a tile in latents, and how far tiles are apart.
const TILE: [(u64, u64); 2] = [(30, 25), (45, 36)];
/// Numbers of a map beyond which a convolution takes it in parts: 2 GiB of 16 bits (`CogVideoXSafeConv3d`).
const PART: u64 = 1 << 30;

/// Decodes videos.
pub(super) fn decode(tape: &Tape, vae: &Autoencoder, latent: Maps, tiling: bool, kind: Kind) -> Tensor {
    let [(high, down), (wide, across)] = TILE;
    if !tiling || (latent.height <= high && latent.width <= wide) {
        return clips(tape, vae, latent, kind);
    }
    let mut rows = Vec::new();
    for height in parts(latent.height, high, down) {
        let tiles: Vec<Tensor> = parts(latent.width, wide, across)
            .map(|width| clips(tape, vae, Maps { height, width, ..latent }, kind))
            .collect();
        rows.push(tiles);
    }
    let frames = rows.iter().flatten().map(|tile| tile.count).sum::<u64>();
    // What overlaps is left out of the rows, and the rows are put together.
    let whole = Maps { frames: 1, ..latent }.scaled(1, vae.scale).numbers(vae.in_channels);
    let tile = rows.first().and_then(|row| row.first()).map_or(0, |tile| tile.count);
    let first = Maps { frames: 1, height: latent.height.min(high), width: latent.width.min(wide), ..latent };
    let shown = tile / first.scaled(1, vae.scale).numbers(vae.in_channels).max(1);
    let count = whole.saturating_mul(shown).min(frames);
    let _rows = tape.empty(count, kind);
    tape.empty(count, kind)
}

/// Decodes a video clip by clip.
fn clips(tape: &Tape, vae: &Autoencoder, latent: Maps, kind: Kind) -> Tensor {
    let mut kept = Vec::new();
    let mut decoded = Vec::new();
    for clip in 0..(latent.frames / FRAMES).clamp(1, 4096) {
        let odd = if clip == 0 { latent.frames % FRAMES } else { 0 };
        let frames = (FRAMES + odd).min(latent.frames);
        let decoder = Decoder { tape, vae, latent: Maps { frames, ..latent }, kept: RefCell::default() };
        decoded.push(decoder.forward(kind));
        // What was kept of the clip before is there until this one is done.
        kept = decoder.kept.into_inner();
    }
    let whole = tape.empty(decoded.iter().map(|clip| clip.count).fold(0, u64::saturating_add), kind);
    drop((kept, decoded));
    whole
}

/// `CogVideoXDecoder3D` on one clip.
struct Decoder<'a> {
    tape: &'a Tape,
    vae: &'a Autoencoder,
    latent: Maps,
    /// What its convolutions keep for the next clip.
    kept: RefCell<Vec<Tensor>>,
}

impl Decoder<'_> {
    fn forward(&self, kind: Kind) -> Tensor {
        let vae = self.vae;
        let mut width = vae.channels.last().copied().unwrap_or(512);
        let mut maps = self.latent;
        let sample = self.tape.empty(maps.numbers(vae.latent_channels), kind);
        let mut hidden = self.causal(&sample, [vae.latent_channels, width], maps);
        let given = hidden.clone();
        for _ in 0..2 {
            hidden = self.block(&hidden, [width; 2], maps, false);
        }
        drop(given);
        let timed = vae.frame_scale.checked_ilog2().unwrap_or(0) as usize;
        for (level, &channels) in vae.channels.iter().rev().enumerate() {
            let given = hidden;
            let mut inner = given.clone();
            for block in 0..=vae.resnets {
                inner = self.block(&inner, [width, channels], maps, level > 0 && block == 0);
                width = channels;
            }
            if level + 1 < vae.channels.len() {
                (inner, maps) = self.upsample(&inner, width, maps, level < timed);
            }
            hidden = inner;
        }
        hidden = self.norm(&hidden, width, maps, false);
        hidden = self.tape.keeping_nothing(&hidden);
        self.causal(&hidden, [width, vae.in_channels], maps)
    }

    /// `CogVideoXCausalConv3d`, whose two frames before the clip are the last of the clip before, or its first repeated.
    fn causal(&self, x: &Tensor, channels: [u64; 2], maps: Maps) -> Tensor {
        let tape = self.tape;
        let longer = Maps { frames: maps.frames.saturating_add(2), ..maps };
        let joined = tape.empty(longer.numbers(channels[0]), x.kind);
        self.keep(Maps { frames: 2, ..maps }.numbers(channels[0]), x.kind);
        if joined.count <= PART {
            return convolution(tape, &joined, channels, 27, maps);
        }
        // `torch.chunk` gives parts of as many frames each, and each but the first is joined with two frames before it.
        let count = joined.count / PART + 1;
        let each = longer.frames.div_ceil(count).max(1);
        let pieces: Vec<(Tensor, u64)> = parts(longer.frames, each, each)
            .enumerate()
            .map(|(index, frames)| {
                if index == 0 {
                    return (joined.viewed(Maps { frames, ..maps }.numbers(channels[0])), frames.saturating_sub(2));
                }
                let frames_in = Maps { frames: frames + 2, ..maps };
                (tape.empty(frames_in.numbers(channels[0]), x.kind), frames)
            })
            .collect();
        let outputs: Vec<Tensor> = pieces
            .iter()
            .map(|(piece, frames)| convolution(tape, piece, channels, 27, Maps { frames: *frames, ..maps }))
            .collect();
        let whole = tape.empty(maps.numbers(channels[1]), x.kind);
        drop(outputs);
        whole
    }

    fn keep(&self, numbers: u64, kind: Kind) {
        self.kept.borrow_mut().push(self.tape.empty(numbers, kind));
    }

    /// `CogVideoXSpatialNorm3D`. What an upsampling gives lies in another order, and is copied for the norm.
    fn norm(&self, x: &Tensor, width: u64, maps: Maps, reordered: bool) -> Tensor {
        let (tape, channels) = (self.tape, self.vae.latent_channels);
        let of = |frames: u64| tape.empty(Maps { frames, ..maps }.numbers(channels), x.kind);
        let split = maps.frames > 1 && maps.frames % 2 == 1;
        let parts = split.then(|| [of(1), of(maps.frames - 1)]);
        let latents = of(maps.frames);
        let [scale, shift] = [(); 2].map(|()| {
            self.keep(latents.count, x.kind);
            convolution(tape, &latents, [channels, width], 1, maps)
        });
        let normed = {
            let _copy = reordered.then(|| tape.empty(x.count, x.kind));
            tape.keeping_nothing(x)
        };
        let scaled = tape.mul(&normed, &scale);
        let result = tape.add(&scaled, &shift);
        // Python gives back local variables in the order in which they were made.
        drop((scaled, latents, parts, scale, shift, normed));
        result
    }

    /// `CogVideoXResnetBlock3D`.
    fn block(&self, input: &Tensor, [from, to]: [u64; 2], maps: Maps, reordered: bool) -> Tensor {
        let tape = self.tape;
        let mut hidden = self.norm(input, from, maps, reordered);
        hidden = tape.keeping_nothing(&hidden);
        hidden = self.causal(&hidden, [from, to], maps);
        hidden = self.norm(&hidden, to, maps, false);
        hidden = tape.keeping_nothing(&hidden);
        hidden = self.causal(&hidden, [to, to], maps);
        let shortcut = (from != to).then(|| convolution(tape, input, [from, to], 1, maps));
        tape.add(&hidden, shortcut.as_ref().unwrap_or(input))
    }

    /// `CogVideoXUpsample3D`: larger frames, and twice as many where time is `doubled`, then a convolution of each.
    fn upsample(&self, x: &Tensor, width: u64, maps: Maps, doubled: bool) -> (Tensor, Maps) {
        let tape = self.tape;
        let split = doubled && maps.frames > 1 && maps.frames % 2 == 1;
        let times = if doubled && maps.frames > 1 { 2 } else { 1 };
        let larger = match split {
            true => maps.larger([2, 2]),
            false => maps.scaled(times, 2),
        };
        let of = |frames: u64| tape.empty(Maps { frames, ..larger }.numbers(width), x.kind);
        // What lies in another order is copied before it is made larger.
        let scaled_from = |copied: Option<u64>, frames: u64| {
            let _copy = copied.map(|frames| tape.empty(Maps { frames, ..maps }.numbers(width), x.kind));
            of(frames)
        };
        let parts = split.then(|| {
            let first = scaled_from(Some(1), 1);
            (first, scaled_from(Some(maps.frames - 1), larger.frames - 1))
        });
        let mut scaled = scaled_from((!doubled && maps.frames > 1).then_some(maps.frames), larger.frames);
        if doubled && larger.frames > 1 {
            scaled = tape.keeping_nothing(&scaled);
        }
        let out = convolution(tape, &scaled, [width; 2], 9, larger);
        drop(scaled);
        drop(parts);
        (out, larger)
    }
}
