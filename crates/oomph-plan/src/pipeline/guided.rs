//! Plans VQGAN+CLIP: an image's code, the only thing that is trained, is moved until CLIP likes the image, and each
//! step looks at many cutouts of what the VQGAN makes of it.

use oomph_model::Architecture;
use oomph_model::architecture::{Autoencoder, Transformer};

use super::{Network, Pipeline, Run};
use crate::answer::CardCost;
use crate::network::{Stack, Trained, Vqgan, Weights};
use crate::run::{self, Pass};
use crate::tape::{Extent, Kind, Memory, Tape, TapeOwner, TapePhase, Tensor};
use crate::workload::{Precision, Workload};

/// Cutouts of a step (`cutn` of the scripts that made this popular).
pub const CUTOUTS: u64 = 32;

/// The networks of such a pipeline.
pub(super) struct Parts<'a> {
    vqgan: (&'a Network, &'a Autoencoder),
    clip: &'a Transformer,
}

impl<'a> Parts<'a> {
    /// Of a pipeline that has them.
    pub(super) fn of(pipeline: &'a Pipeline) -> Option<Self> {
        let vqgan = pipeline.autoencoder().filter(|(_, vae)| vae.codebook.is_some())?;
        let clip = pipeline.networks.iter().find_map(|network| match &network.architecture {
            Some(Architecture::Transformer(shape)) if shape.vision.is_some() => Some(shape.as_ref()),
            _ => None,
        })?;
        Some(Self { vqgan, clip })
    }
}

/// Runs steps of the optimizer.
pub(super) fn run(parts: &Parts<'_>, workload: &Workload, card: CardCost, reserved: bool) -> Run {
    let memory = Memory::new(reserved);
    let tape = Tape::new(memory.clone(), card.traits);
    let (network, shape) = parts.vqgan;
    let mut made = Weights::new(&tape, workload);
    let vqgan = Vqgan::new(&mut made, shape, network.numbers);
    let (_, frozen, _) = made.finish();
    // CLIP's own loader gives it 16 bits on a card.
    let half = Workload { precision: Precision::Fp16, ..workload.clone() };
    let mut made = Weights::new(&tape, &half);
    let _text = Stack::new(&mut made, parts.clip);
    let eye = parts.clip.vision.as_deref().map(|shape| (Stack::new(&mut made, shape), shape));
    let (_, seeing, _) = made.finish();
    let weights = memory.owners()[TapeOwner::Weights as usize];
    memory.reset_peaks();
    let image = workload.image;
    let side = |pixels: u64| pixels / shape.scale.max(1);
    let latent = Extent { samples: 1, places: side(image.width).saturating_mul(side(image.height)) };
    let numbers = latent.numbers(shape.latent_channels);
    let kind = super::kind(workload);
    let z = tape.owned(TapeOwner::Inputs, || tape.empty(numbers, kind));
    let z = tape.leaf(&z);
    let trained = [Trained { tensor: z.clone(), rows: numbers, columns: 0, is_table: false, share: (z.count, z.kind) }];
    let forward = |tape: &Tape| -> Tensor {
        let image = vqgan.decode(tape, &z, latent);
        // From -1..1 to 0..1, and clamped with a gradient.
        let image = tape.keeping_nothing(&tape.keeping_shared(&image));
        let image = tape.keeping_input(&image);
        let Some((eye, seen)) = &eye else { return image };
        let size = seen.image.map_or(224, |image| image.size);
        let pixels = size.saturating_mul(size);
        let pooled: Vec<Tensor> = (0..CUTOUTS).map(|_| cutout(tape, &image, pixels.saturating_mul(3))).collect();
        drop(image);
        let batch = tape.cat(&pooled.iter().collect::<Vec<_>>());
        // Turned a little, with noise, and made what CLIP reads.
        let grid = tape.empty(CUTOUTS.saturating_mul(pixels).saturating_mul(2), kind);
        let turned = turned(tape, &batch, &grid);
        drop((batch, pooled));
        let noise = tape.keeping_nothing(&tape.empty(turned.count, kind));
        let noisy = tape.add(&turned, &noise);
        let normal = tape.keeping_nothing(&tape.keeping_shared(&noisy));
        eye.judge(tape, &half, CUTOUTS, &tape.cast(&normal, Kind::Half))
    };
    let mut state = Vec::new();
    run::train(&tape, &Pass { trained: &trained, workload, forward: &forward, generate: &|_| {} }, &mut state);
    memory.enter(TapePhase::Step);
    drop((frozen, seeing));
    Run { usage: memory.usage(), weights, trained: numbers }
}

/// The mean of average and maximum over the places that fall together; the maximum keeps where it was.
fn cutout(tape: &Tape, image: &Tensor, numbers: u64) -> Tensor {
    let average = tape.resized(image, numbers);
    let places = tape.empty(numbers, Kind::Long);
    let largest = tape.gather_along(image, &places, numbers);
    tape.keeping_nothing(&tape.add(&average, &largest))
}

/// `grid_sample`: the input and the grid are kept.
fn turned(tape: &Tape, batch: &Tensor, grid: &Tensor) -> Tensor {
    tape.gather_along(batch, grid, batch.count)
}
