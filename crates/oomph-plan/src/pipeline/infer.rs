//! Plans images from text.

use oomph_model::Architecture;

use super::{Denoising, Pipeline, Run, kind, latents};
use crate::answer::CardCost;
use crate::network::{Weights, autoencoder};
use crate::tape::{Memory, Tape, TapeOwner, TapePhase, Tensor};
use crate::workload::{Offloading, Workload};

/// Runs the pipeline: every network's weights, one step of the denoiser, and the decoder.
pub(super) fn run(pipeline: &Pipeline, workload: &Workload, card: CardCost, reserved: bool) -> Run {
    let workload = &pipeline.binned(workload);
    let memory = Memory::new(reserved);
    let tape = Tape::new(memory.clone(), card.traits);
    let offload = workload.image.offload;
    memory.enter(TapePhase::Forward);
    let mut weights = 0;
    tape.no_grad(|| {
        let mut resident: Vec<Tensor> = Vec::new();
        let mut denoisers = Vec::new();
        let mut put = |denoisers: &mut Vec<_>, resident: &mut Vec<Tensor>, index: usize| {
            let network = &pipeline.networks[index];
            let before = memory.owners()[TapeOwner::Weights as usize];
            let mut made = Weights::new(&tape, workload);
            if let Some(denoiser) = network.denoising(&mut made) {
                let (_, frozen, _) = made.finish();
                resident.extend(frozen);
                denoisers.push((index, denoiser));
            } else {
                resident.extend(network.load(&tape, workload));
            }
            weights += memory.owners()[TapeOwner::Weights as usize].saturating_sub(before);
        };
        match offload {
            Offloading::None => {
                for index in 0..pipeline.networks.len() {
                    put(&mut denoisers, &mut resident, index);
                }
                denoise(&tape, pipeline, &denoisers, workload);
                decode(&tape, pipeline, workload);
            }
            Offloading::Model => {
                // One network at a time, the cache emptied between them (accelerate's `CpuOffload`), but a ControlNet stays
                // while its UNet works.
                let is_encoder = |index: &usize| {
                    let network = &pipeline.networks[*index];
                    !network.is_denoiser() && !matches!(network.architecture, Some(Architecture::Autoencoder(_)))
                };
                let encoders: Vec<usize> = (0..pipeline.networks.len()).filter(is_encoder).collect();
                for &index in &encoders {
                    put(&mut denoisers, &mut resident, index);
                    resident.clear();
                    memory.empty_cache();
                }
                if let (true, [.., before, last]) = (pipeline.encodes_twice(workload), encoders.as_slice()) {
                    // The second prompt comes to the others while the last one has not been sent away.
                    put(&mut denoisers, &mut resident, *last);
                    put(&mut denoisers, &mut resident, *before);
                    resident.clear();
                    memory.empty_cache();
                }
                for index in 0..pipeline.networks.len() {
                    if pipeline.networks[index].is_denoiser() {
                        put(&mut denoisers, &mut resident, index);
                    }
                }
                denoise(&tape, pipeline, &denoisers, workload);
                denoisers.clear();
                resident.clear();
                memory.empty_cache();
                let decoder = pipeline
                    .networks
                    .iter()
                    .position(|part| matches!(part.architecture, Some(Architecture::Autoencoder(_))));
                if let Some(index) = decoder {
                    put(&mut denoisers, &mut resident, index);
                }
                decode(&tape, pipeline, workload);
            }
            Offloading::Sequential => {
                // Every module's weights are brought for the moment in which it runs: the largest of them is what counts.
                let bytes = kind(workload).bytes();
                let parameters = pipeline.networks.iter().flat_map(|part| &part.parameters);
                let largest = parameters.map(|one| one.elements()).max();
                weights = pipeline
                    .networks
                    .iter()
                    .fold(0_u64, |sum, part| sum.saturating_add(part.numbers.saturating_mul(bytes)));
                let one = tape.owned(TapeOwner::Weights, || tape.bytes(largest.unwrap_or(0).saturating_mul(bytes)));
                let unheld = Tape::new(Memory::new(false), card.traits);
                let mut made = Weights::new(&unheld, workload);
                for (index, network) in pipeline.networks.iter().enumerate() {
                    denoisers.extend(network.denoising(&mut made).map(|denoiser| (index, denoiser)));
                }
                denoise(&tape, pipeline, &denoisers, workload);
                decode(&tape, pipeline, workload);
                drop((one, made));
            }
        }
    });
    Run { usage: memory.usage(), weights, trained: 0 }
}

/// One step of the denoisers: ControlNets first, whose outputs the UNet adds to its own.
fn denoise(tape: &Tape, pipeline: &Pipeline, denoisers: &[(usize, Denoising)], workload: &Workload) {
    let kind = kind(workload);
    let mut controls = Vec::new();
    let is_control = |index: usize| pipeline.networks[index].is_control();
    let ordered = denoisers.iter().filter(|(index, _)| is_control(*index));
    for (index, denoiser) in ordered.chain(denoisers.iter().filter(|(index, _)| !is_control(*index))) {
        match (denoiser, &pipeline.networks[*index].architecture) {
            (Denoising::UNet(unet), Some(Architecture::UNet(shape))) => {
                let step = latents::unet_step(workload);
                let latents = tape.empty(step.latent.numbers(shape.in_channels), kind);
                let made = unet.forward(tape, &latents, &step, std::mem::take(&mut controls));
                if shape.control.is_some() {
                    controls = made;
                }
            }
            (Denoising::Transformer(network), Some(Architecture::DiffusionTransformer(shape))) => {
                drop(network.forward(tape, kind, &latents::transformer_step(shape, workload)));
            }
            _ => {}
        }
    }
}

fn decode(tape: &Tape, pipeline: &Pipeline, workload: &Workload) {
    let Some((network, vae)) = pipeline.autoencoder() else { return };
    let trained = pipeline.networks.iter().find_map(|network| match &network.architecture {
        Some(Architecture::UNet(unet)) => Some(unet.sample_size.saturating_mul(8)),
        _ => None,
    });
    // fp16 overflows in SDXL's autoencoder, which its pipeline makes fp32 for the decoding.
    let upcasts = pipeline.networks.iter().any(
        |network| matches!(&network.architecture, Some(Architecture::UNet(unet)) if unet.added_embedding.is_some()),
    );
    let numbers = network.numbers;
    autoencoder::decode(tape, vae, workload, kind(workload), trained, upcasts.then_some(numbers));
}
