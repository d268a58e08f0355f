//! Diffusion pipelines, as diffusers runs them: text is encoded, latents are denoised, the autoencoder decodes them.

use oomph_model::architecture::{Autoencoder, DiffusionTransformer, UNet};
use oomph_model::{Architecture, Component};

use crate::estimate::{CardCost, Estimate, Term};
use crate::interval::{self, Interval};
use crate::network::decode;
use crate::tape::{Kind, Memory, Owner, Phase, Tape, Tensor, Usage};
use crate::workload::{Precision, Workload};

/// What one step of a denoising transformer holds at its peak beside its weights, in tensors of the size of its hidden
/// states: Flux keeps two streams and the single layers' wide projections.
const JOINT_TENSORS: f64 = 17.5;
/// The same for SD3 and PixArt, whose MLP of width 4 is the peak.
const PLAIN_TENSORS: f64 = 12.7;
/// The same for a UNet whose finest level attends, in tensors of that level: the gated MLP of width 4 and the skip
/// connections that wait for the way up.
const UNET_TENSORS: f64 = 26.1;
/// The same where the finest level does not attend, in tensors of the next level (SDXL).
const DEEP_UNET_TENSORS: f64 = 32.8;
/// Text tokens beside an image's where nothing says how many: T5's 256 and CLIP's 77.
const TEXT_TOKENS: u64 = 333;
/// Text tokens of Flux.
const FLUX_TEXT_TOKENS: u64 = 512;

/// The networks of a pipeline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pipeline {
    /// The networks, in the order of the pipeline.
    pub networks: Vec<Network>,
}

/// One network of a pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Its name in the pipeline.
    pub name: String,
    /// Its numbers, buffers included.
    pub numbers: u64,
    /// What it is made of.
    pub architecture: Option<Architecture>,
}

impl Pipeline {
    /// Of a model's components.
    #[must_use]
    pub fn of(components: &[Component]) -> Self {
        let network = |part: &Component| Network {
            name: part.name.clone(),
            numbers: part.elements(),
            architecture: part.architecture.clone(),
        };
        Self { networks: components.iter().map(network).collect() }
    }

    fn decoder(&self) -> Option<&Autoencoder> {
        self.networks.iter().find_map(|network| match &network.architecture {
            Some(Architecture::Autoencoder(vae)) => Some(vae),
            _ => None,
        })
    }

    /// Whether a network denoises.
    #[must_use]
    pub fn denoises(&self) -> bool {
        self.networks.iter().any(|network| network.is_denoiser())
    }
}

impl Network {
    fn is_denoiser(&self) -> bool {
        matches!(self.architecture, Some(Architecture::UNet(_) | Architecture::DiffusionTransformer(_)))
    }
}

/// What a pipeline needs.
pub fn estimate(pipeline: &Pipeline, workload: &Workload, card: CardCost) -> Estimate {
    let (usage, weights) = run(pipeline, workload, card);
    let mut owners = usage.owners;
    let reserved = usage.reserved.unwrap_or(usage.allocated);
    owners[Owner::Slack as usize] = reserved.saturating_sub(usage.allocated);
    owners[Owner::Context as usize] = card.context[1];
    let quantiles = interval::quantiles("diffusion", workload.task.name());
    let mut total = Interval::around(reserved, &quantiles).plus(card.context[0], card.context[1], card.context[2]);
    let sum = reserved.saturating_add(card.context[1]);
    total.expected = total.expected.max(sum);
    total.high = total.high.max(total.expected);
    owners[Owner::Slack as usize] = owners[Owner::Slack as usize].saturating_add(total.expected - sum);
    let image = workload.image;
    let host_bytes = if image.offload { weights } else { 0 };
    let term = |owner: Owner, formula: String, source: &'static str| Term {
        owner,
        formula,
        source,
        bytes: owners[owner as usize],
    };
    let pixels = format!("{} images of {} x {} pixels", workload.batch, image.width, image.height);
    let terms = vec![
        term(Owner::Weights, format!("{} networks", pipeline.networks.len()), "the tensors of their architectures"),
        term(Owner::Activations, pixels, "the autoencoder's decoder of diffusers, run on sizes; readings of denoisers"),
        term(Owner::Workspaces, "of convolutions".into(), "cuDNN: both layouts of a map, where one image is decoded"),
        term(Owner::Slack, "cached between the phases".into(), "a replay through a model of the allocator"),
        term(Owner::Context, "CUDA context and modules".into(), "the catalogue of cards"),
    ];
    Estimate {
        owners,
        total,
        phase: Phase::Forward,
        parameters: pipeline.networks.iter().fold(0, |sum, network| sum.saturating_add(network.numbers)),
        trained: 0,
        host_bytes,
        terms: terms.into_iter().filter(|term| term.bytes > 0).collect(),
    }
}

/// Pixels of PixArt's images, whatever is asked for: its pipeline takes the nearest of a list of sizes, which all have
/// about as many, and scales the result.
const BINNED_PIXELS: u64 = 1024 * 1024;

/// The size that a pipeline works at.
fn binned(pipeline: &Pipeline, workload: &Workload) -> Workload {
    let mut workload = workload.clone();
    let bins = pipeline.networks.iter().any(|network| {
        matches!(&network.architecture, Some(Architecture::DiffusionTransformer(shape)) if shape.class.starts_with("PixArt"))
    });
    let image = &mut workload.image;
    let pixels = image.width.saturating_mul(image.height).max(1);
    if bins {
        let factor = (BINNED_PIXELS as f64 / pixels as f64).sqrt();
        let scaled = |side: u64| ((side as f64 * factor / 32.0).round() as u64).saturating_mul(32).max(32);
        (image.width, image.height) = (scaled(image.width), scaled(image.height));
    }
    workload
}

/// The pipeline on sizes: what memory went through, and the bytes of all weights.
#[must_use]
pub fn run(pipeline: &Pipeline, workload: &Workload, card: CardCost) -> (Usage, u64) {
    let workload = &binned(pipeline, workload);
    let memory = Memory::new(true);
    let tape = Tape::new(memory.clone(), card.traits);
    let kind = if workload.precision == Precision::Fp32 { Kind::Single } else { Kind::Half };
    let offload = workload.image.offload;
    let load = |network: &Network| tape.owned(Owner::Weights, || tape.empty(network.numbers, kind));
    let mut resident: Vec<Tensor> = Vec::new();
    if !offload {
        resident.extend(pipeline.networks.iter().map(load));
    }
    let all =
        pipeline.networks.iter().fold(0_u64, |sum, part| sum.saturating_add(part.numbers.saturating_mul(kind.bytes())));
    memory.enter(Phase::Forward);
    tape.no_grad(|| {
        for network in &pipeline.networks {
            let alone = offload.then(|| load(network));
            if network.is_denoiser() {
                denoise(&tape, network, workload, kind);
            }
            drop(alone);
        }
        if let Some(vae) = pipeline.decoder() {
            let trained = pipeline.networks.iter().find_map(|network| match &network.architecture {
                Some(Architecture::UNet(unet)) => Some(unet.sample_size.saturating_mul(8)),
                _ => None,
            });
            // fp16 overflows in SDXL's autoencoder, which its pipeline makes fp32 for the decoding.
            let upcasts = pipeline.networks.iter().any(|network| {
                matches!(&network.architecture, Some(Architecture::UNet(unet)) if unet.added_embedding.is_some())
            });
            decode::decode(&tape, vae, workload, kind, trained, upcasts);
        }
    });
    drop(resident);
    (memory.usage(), all)
}

/// One step of a denoiser: its peak in pieces, as its largest layer makes them.
fn denoise(tape: &Tape, network: &Network, workload: &Workload, kind: Kind) {
    let bytes = match &network.architecture {
        Some(Architecture::UNet(unet)) => unet_step(unet, workload, kind),
        Some(Architecture::DiffusionTransformer(shape)) => transformer_step(shape, workload, kind),
        _ => 0,
    };
    // Wide tensors of the MLP, and narrow ones around them.
    let piece = bytes / 16;
    let pieces: Vec<Tensor> =
        [4, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1].into_iter().map(|size| tape.bytes(piece * size)).collect();
    drop(pieces);
}

/// Samples of a step: guided pipelines denoise each image with and without the prompt.
fn samples(workload: &Workload, guided: bool) -> u64 {
    workload.batch.saturating_mul(if guided { 2 } else { 1 })
}

fn unet_step(unet: &UNet, workload: &Workload, kind: Kind) -> u64 {
    let image = workload.image;
    let latent = (image.width / 8).saturating_mul(image.height / 8);
    let attends = |level: usize| unet.levels.get(level).is_some_and(|level| level.transformer_layers > 0);
    let width = |level: usize| unet.levels.get(level).map_or(320, |level| level.channels);
    let (tensors, unit) = if attends(0) {
        (UNET_TENSORS, latent.saturating_mul(width(0)))
    } else {
        (DEEP_UNET_TENSORS, (latent / 4).saturating_mul(width(1)))
    };
    (tensors * unit.saturating_mul(samples(workload, image.guided)).saturating_mul(kind.bytes()) as f64) as u64
}

fn transformer_step(shape: &DiffusionTransformer, workload: &Workload, kind: Kind) -> u64 {
    let image = workload.image;
    let side = 8 * shape.token_side.max(1);
    let tokens =
        (image.width / side).saturating_mul(image.height / side).saturating_mul(image.frames.max(1).div_ceil(4));
    let flux = shape.single_layers > 0;
    let text = if flux { FLUX_TEXT_TOKENS } else { TEXT_TOKENS };
    let tokens = tokens.saturating_add(if shape.joint_attention { text } else { 0 });
    let tensors = if flux { JOINT_TENSORS } else { PLAIN_TENSORS };
    let width = shape.heads.saturating_mul(shape.head_dim);
    // A guidance that is an input needs no second pass.
    let rows = tokens.saturating_mul(samples(workload, image.guided && !shape.guidance && !flux));
    (tensors * rows.saturating_mul(width).saturating_mul(kind.bytes()) as f64) as u64
}
