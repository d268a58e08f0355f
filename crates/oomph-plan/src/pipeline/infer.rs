//! Plans images from text.

use oomph_model::Architecture;

use super::{Denoising, Network, Pipeline, Run, kind, latents};
use crate::answer::CardCost;
use crate::network::{Weights, autoencoder};
use crate::tape::{Memory, Tape, TapeOwner, TapePhase, Tensor};
use crate::workload::{Offloading, Workload};

/// Runs the pipeline: every network's weights, one step of the denoiser, and the decoder.
pub(super) fn run(pipeline: &Pipeline, workload: &Workload, card: CardCost, reserved: bool) -> Run {
    let workload = &pipeline.binned(workload);
    let memory = Memory::new(reserved);
    let tape = Tape::new(memory.clone(), card.traits);
    memory.enter(TapePhase::Forward);
    let mut weights = 0;
    tape.no_grad(|| {
        let mut inference = Inference {
            pipeline,
            workload,
            memory: &memory,
            tape: &tape,
            denoisers: Vec::new(),
            resident: Vec::new(),
            weights: 0,
        };
        match workload.image.offload {
            Offloading::None => inference.all_networks(),
            Offloading::Model => inference.one_network_at_a_time(),
            Offloading::Sequential => inference.one_module_at_a_time(card),
        }
        weights = inference.weights;
    });
    Run { usage: memory.usage(), weights, trained: 0 }
}

/// A pipeline at work.
struct Inference<'a> {
    pipeline: &'a Pipeline,
    workload: &'a Workload,
    memory: &'a Memory,
    tape: &'a Tape,
    /// The denoisers on the card, with their places in the pipeline.
    denoisers: Vec<(usize, Denoising)>,
    /// Weights on the card.
    resident: Vec<Tensor>,
    /// Bytes of all weights that were brought to the card.
    weights: u64,
}

impl Inference<'_> {
    /// Brings a network to the card.
    fn put(&mut self, index: usize) {
        let network = &self.pipeline.networks[index];
        let before = self.memory.owners()[TapeOwner::Weights as usize];
        let mut made = Weights::new(self.tape, self.workload);
        if let Some(denoiser) = network.denoising(&mut made) {
            let (_, frozen, _) = made.finish();
            self.resident.extend(frozen);
            self.denoisers.push((index, denoiser));
        } else {
            self.resident.extend(network.load(self.tape, self.workload));
        }
        self.weights += self.memory.owners()[TapeOwner::Weights as usize].saturating_sub(before);
    }

    /// Sends away what was brought.
    fn clear(&mut self) {
        self.resident.clear();
        self.memory.empty_cache();
    }

    fn denoise(&self) {
        denoise(self.tape, self.pipeline, &self.denoisers, self.workload);
    }

    fn decode(&self) {
        decode(self.tape, self.pipeline, self.workload);
    }

    fn all_networks(&mut self) {
        for index in 0..self.pipeline.networks.len() {
            self.put(index);
        }
        self.denoise();
        self.decode();
    }

    /// One network at a time, the cache emptied between them (accelerate's `CpuOffload`), but a ControlNet stays while its
    /// UNet works.
    fn one_network_at_a_time(&mut self) {
        let networks = &self.pipeline.networks;
        let is_decoder = |index: &usize| matches!(networks[*index].architecture, Some(Architecture::Autoencoder(_)));
        let is_encoder = |index: &usize| !networks[*index].is_denoiser() && !is_decoder(index);
        let encoders: Vec<usize> = (0..networks.len()).filter(is_encoder).collect();
        for &index in &encoders {
            self.put(index);
            self.clear();
        }
        if let (true, [.., before, last]) = (self.pipeline.encodes_twice(self.workload), encoders.as_slice()) {
            // The second prompt comes to the others while the last one has not been sent away.
            self.put(*last);
            self.put(*before);
            self.clear();
        }
        for index in (0..networks.len()).filter(|index| networks[*index].is_denoiser()) {
            self.put(index);
        }
        self.denoise();
        self.denoisers.clear();
        self.clear();
        if let Some(index) = (0..networks.len()).find(is_decoder) {
            self.put(index);
        }
        self.decode();
    }

    /// Every module's weights are brought for the moment in which it runs: the largest of them is what counts.
    fn one_module_at_a_time(&mut self, card: CardCost) {
        let bytes = kind(self.workload).bytes();
        let networks = &self.pipeline.networks;
        let largest = networks.iter().flat_map(|part| &part.parameters).map(|one| one.elements()).max();
        let of_network = |part: &Network| part.numbers.saturating_mul(bytes);
        self.weights = networks.iter().map(of_network).fold(0_u64, u64::saturating_add);
        let one = self.tape.owned(TapeOwner::Weights, || self.tape.bytes(largest.unwrap_or(0).saturating_mul(bytes)));
        let unheld = Tape::new(Memory::new(false), card.traits);
        let mut made = Weights::new(&unheld, self.workload);
        for (index, network) in networks.iter().enumerate() {
            self.denoisers.extend(network.denoising(&mut made).map(|denoiser| (index, denoiser)));
        }
        self.denoise();
        self.decode();
        drop((one, made));
    }
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
