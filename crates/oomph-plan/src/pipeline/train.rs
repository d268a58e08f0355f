//! Plans the training of a denoiser, as `train_text_to_image.py`, `train_text_to_image_lora.py` and similar scripts of
//! diffusers do it: the autoencoder and the text encoders are frozen and on the card in the type of computation, an
//! image is encoded without a graph, and noise is predicted.

use oomph_model::Architecture;

use super::{Denoising, Pipeline, Run, latents};
use crate::answer::CardCost;
use crate::network::{Weights, autoencoder};
use crate::run::{self, Pass};
use crate::tape::{Kind, Memory, Tape, TapeOwner, TapePhase, Tensor};
use crate::workload::{Precision, Workload};

/// Runs two steps of training.
pub(super) fn run(pipeline: &Pipeline, workload: &Workload, card: CardCost, reserved: bool) -> Run {
    let memory = Memory::new(reserved);
    let tape = Tape::new(memory.clone(), card.traits);
    let kind = if workload.precision == Precision::Fp32 { Kind::Single } else { Kind::Half };
    let mut resident: Vec<Tensor> = Vec::new();
    let mut denoisers = Vec::new();
    let mut made = Weights::new(&tape, workload);
    // What is trained is the ControlNet where there is one, and its UNet is frozen; that pair is not planned yet, so the
    // first denoiser is.
    for network in &pipeline.networks {
        if !network.is_denoiser() {
            resident.extend(network.load(&tape, workload));
        } else if denoisers.is_empty() {
            denoisers.extend(network.denoising(&mut made).map(|denoiser| (network, denoiser)));
        }
    }
    let (trained, frozen, _) = made.finish();
    let weights = memory.owners()[TapeOwner::Weights as usize];
    memory.reset_peaks();
    let mut state = Vec::new();
    let image = workload.image;
    let pixels = image.width.saturating_mul(image.height).saturating_mul(image.frames.max(1)).saturating_mul(3);
    let forward = |tape: &Tape| -> Tensor {
        let given = tape.owned(TapeOwner::Inputs, || tape.empty(workload.batch.saturating_mul(pixels), Kind::Single));
        if let Some((_, vae)) = pipeline.autoencoder().filter(|_| image.frames <= 1) {
            tape.no_grad(|| autoencoder::encode(tape, vae, workload, kind));
        }
        let predicted = denoisers.first().map(|(network, denoiser)| match (denoiser, &network.architecture) {
            (Denoising::UNet(unet), Some(Architecture::UNet(shape))) => {
                let step = latents::unet_step(workload);
                let latents = tape.empty(step.latent.numbers(shape.in_channels), kind);
                unet.forward(tape, &latents, &step, Vec::new()).pop()
            }
            (Denoising::Transformer(network), Some(Architecture::DiffusionTransformer(shape))) => {
                Some(network.forward(tape, kind, &latents::transformer_step(shape, workload)))
            }
            _ => None,
        });
        let predicted = predicted.flatten().unwrap_or_else(|| tape.empty(0, kind));
        // accelerate makes the output fp32, and so does the loss.
        let target = tape.empty(predicted.count, Kind::Single);
        let loss = tape.squared_error(&predicted, &target);
        drop(given);
        loss
    };
    run::train(&tape, &Pass { trained: &trained, workload, forward: &forward, generate: &|_| {} }, &mut state);
    memory.enter(TapePhase::Step);
    let count = trained.iter().map(|one| one.rows.saturating_mul(one.columns.max(1))).fold(0, u64::saturating_add);
    drop((resident, frozen));
    Run { usage: memory.usage(), weights, trained: count }
}
