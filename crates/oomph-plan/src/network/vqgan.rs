//! The VQGAN of taming-transformers, whose decoder an image is made with.

use oomph_model::architecture::Autoencoder;

use super::parts::{Norm, NormStyle, Use, Weights};
use crate::tape::{Convolution, Extent, Kind, Tape, Tensor, product};

/// Groups of every norm.
const GROUPS: u64 = 32;

/// What turns codes into an image, and the codes.
pub(crate) struct Vqgan {
    codebook: Tensor,
    codes: u64,
    width: u64,
    entry: [Convolution; 2],
    middle: (Block, Attention, Block),
    levels: Vec<Level>,
    exit: (Norm, Convolution),
}

/// Two convolutions, each behind a norm and `x sigmoid(x)`.
struct Block {
    norms: [Norm; 2],
    convolutions: [Convolution; 2],
    shortcut: Option<Convolution>,
}

/// Attention of every place to every other, written out.
struct Attention {
    norm: Norm,
    /// Queries, keys, values, and what their mixture becomes.
    projections: [Convolution; 4],
}

struct Level {
    blocks: Vec<(Block, Option<Attention>)>,
    larger: Option<Convolution>,
}

fn norm(weights: &mut Weights<'_>, width: u64) -> Norm {
    weights.norm(width, NormStyle::Layer, true, true)
}

fn normed(tape: &Tape, norm: &Norm, x: &Tensor) -> Tensor {
    tape.group_norm(x, norm.weight.as_ref(), norm.bias.as_ref(), GROUPS)
}

/// `x * torch.sigmoid(x)`, which keeps both factors.
fn swish(tape: &Tape, x: &Tensor) -> Tensor {
    tape.mul(x, &tape.keeping_output(x))
}

impl Block {
    fn new(weights: &mut Weights<'_>, from: u64, to: u64) -> Self {
        Self {
            norms: [norm(weights, from), norm(weights, to)],
            convolutions: [weights.convolution(from, to, 9), weights.convolution(to, to, 9)],
            shortcut: (from != to).then(|| weights.convolution(from, to, 1)),
        }
    }

    fn forward(&self, tape: &Tape, input: &Tensor, extent: Extent) -> Tensor {
        let mut hidden = normed(tape, &self.norms[0], input);
        hidden = swish(tape, &hidden);
        hidden = tape.convolve(&self.convolutions[0], &hidden, extent);
        hidden = normed(tape, &self.norms[1], &hidden);
        hidden = swish(tape, &hidden);
        hidden = tape.convolve(&self.convolutions[1], &hidden, extent);
        let shortcut = self.shortcut.as_ref().map(|layer| tape.convolve(layer, input, extent));
        tape.add(shortcut.as_ref().unwrap_or(input), &hidden)
    }
}

impl Attention {
    fn new(weights: &mut Weights<'_>, width: u64) -> Self {
        Self { norm: norm(weights, width), projections: [0; 4].map(|_| weights.convolution(width, width, 1)) }
    }

    fn forward(&self, tape: &Tape, input: &Tensor, extent: Extent) -> Tensor {
        let [query, key, value, out] = &self.projections;
        let hidden = normed(tape, &self.norm, input);
        let [query, key, value] = [query, key, value].map(|layer| tape.convolve(layer, &hidden, extent));
        let pairs = product([extent.samples, extent.places, extent.places]);
        let mut scores = tape.matmul(&query, &key, pairs);
        scores = tape.keeping_nothing(&scores);
        scores = tape.softmax(&scores, input.kind);
        let mixed = tape.matmul(&value, &scores, value.count);
        drop((query, key, value, scores));
        tape.add(input, &tape.convolve(out, &mixed, extent))
    }
}

impl Vqgan {
    /// Makes the weights; those of the encoder and of what only its training had are not used once the start is encoded.
    pub fn new(weights: &mut Weights<'_>, shape: &Autoencoder, numbers: u64) -> Self {
        let [codes, width] = shape.codebook.unwrap_or([0, shape.latent_channels]);
        let latent = shape.latent_channels;
        let deepest = shape.channels.last().copied().unwrap_or(512);
        let before = weights.parameters;
        let codebook = weights.bare(codes, width, Use::Table);
        let entry = [weights.convolution(width, latent, 1), weights.convolution(latent, deepest, 9)];
        let middle = (
            Block::new(weights, deepest, deepest),
            Attention::new(weights, deepest),
            Block::new(weights, deepest, deepest),
        );
        let mut from = deepest;
        let mut levels = Vec::new();
        for (level, &channels) in shape.channels.iter().enumerate().rev() {
            let attends = shape.level_attention.get(level).copied().unwrap_or(false);
            let mut blocks = Vec::new();
            for _ in 0..=shape.resnets {
                let block = Block::new(weights, from, channels);
                from = channels;
                blocks.push((block, attends.then(|| Attention::new(weights, channels))));
            }
            levels.push(Level { blocks, larger: (level > 0).then(|| weights.convolution(from, from, 9)) });
        }
        let exit = (norm(weights, from), weights.convolution(from, shape.in_channels, 9));
        let rest = numbers.saturating_sub(weights.parameters - before);
        weights.bare(rest, 0, Use::Other);
        Self { codebook, codes, width, entry, middle, levels, exit }
    }

    /// The nearest code of every place: distances to all codes, and the row of a matrix of ones and zeros for each. The
    /// gradient goes past it.
    fn quantized(&self, tape: &Tape, z: &Tensor, places: u64) -> Tensor {
        let pairs = places.saturating_mul(self.codes);
        tape.no_grad(|| {
            let distances = [0; 3].map(|_| tape.empty(pairs, Kind::Single));
            drop(distances);
            let ones = tape.empty(pairs, Kind::Long);
            let numbers = tape.empty(pairs, Kind::Single);
            drop(ones);
            drop(tape.matmul(&numbers, &self.codebook, places.saturating_mul(self.width)));
        });
        tape.contiguous(z)
    }

    /// The image of codes `z`, an extent of places.
    pub fn decode(&self, tape: &Tape, z: &Tensor, places: Extent) -> Tensor {
        let mut extent = places;
        let mut sample = self.quantized(tape, z, places.places);
        for layer in &self.entry {
            sample = tape.convolve(layer, &sample, extent);
        }
        let (first, attention, second) = &self.middle;
        sample = first.forward(tape, &sample, extent);
        sample = attention.forward(tape, &sample, extent);
        sample = second.forward(tape, &sample, extent);
        for level in &self.levels {
            for (block, attention) in &level.blocks {
                sample = block.forward(tape, &sample, extent);
                if let Some(attention) = attention {
                    sample = attention.forward(tape, &sample, extent);
                }
            }
            if let Some(layer) = &level.larger {
                extent = extent.doubled();
                sample = tape.resized(&sample, extent.numbers(layer.inputs));
                sample = tape.convolve(layer, &sample, extent);
            }
        }
        let (last, exit) = &self.exit;
        sample = normed(tape, last, &sample);
        sample = swish(tape, &sample);
        tape.convolve(exit, &sample, extent)
    }
}
