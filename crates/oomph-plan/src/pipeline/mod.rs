//! Diffusion pipelines, as diffusers runs them: text is encoded, latents are denoised, the autoencoder decodes them; or
//! the denoiser is trained, in full or by adapters, as the training scripts of diffusers do it.

mod guided;
mod infer;
mod latents;
mod train;

use oomph_model::architecture::{Autoencoder, Form, Parameter};
use oomph_model::{Architecture, Component};

use crate::answer::{CardCost, Estimate, Term};
use crate::interval::{self, Interval};
use crate::known::Near;
use crate::network::{Denoiser, UNet, Weights, autoencoder};
use crate::tape::{Kind, Tape, TapeOwner, Tensor, Usage};
use crate::workload::{Attention, Offloading, Precision, Workload};

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
    /// Its parameters, where its architecture gives them; naming them takes longer than a run of the pipeline.
    pub parameters: Vec<Parameter>,
}

impl Pipeline {
    /// Of a model's components.
    #[must_use]
    pub fn of(components: &[Component]) -> Self {
        let network = |part: &Component| Network {
            name: part.name.clone(),
            numbers: part.elements(),
            architecture: part.architecture.clone(),
            parameters: part.architecture.as_ref().map(Architecture::parameters).unwrap_or_default(),
        };
        Self { networks: components.iter().map(network).collect() }
    }

    fn autoencoder(&self) -> Option<(&Network, &Autoencoder)> {
        self.networks.iter().find_map(|network| match &network.architecture {
            Some(Architecture::Autoencoder(vae)) => Some((network, vae)),
            _ => None,
        })
    }

    /// The family of its readings: what its denoiser is made of.
    #[must_use]
    pub fn family(&self) -> &'static str {
        let made = self.networks.iter().find(|network| network.is_denoiser()).map(|network| &network.architecture);
        match made {
            Some(Some(Architecture::DiffusionTransformer(_))) => "diffusion-transformer",
            _ => "diffusion-unet",
        }
    }

    /// Whether a ControlNet is one of its networks.
    #[must_use]
    pub fn has_control(&self) -> bool {
        self.networks.iter().any(Network::is_control)
    }

    /// Whether it is a ControlNet and nothing else.
    #[must_use]
    pub fn is_control(&self) -> bool {
        !self.networks.is_empty() && self.networks.iter().all(Network::is_control)
    }

    /// Whether it is a VQGAN and a CLIP, which move an image's code until the image is like a text.
    #[must_use]
    pub fn is_guided(&self) -> bool {
        !self.denoises() && guided::Parts::of(self).is_some()
    }

    /// Whether there are readings of pipelines that are run like this (`calibration/images.csv`, `training.csv`).
    fn is_read(&self, workload: &Workload) -> bool {
        let image = workload.image;
        workload.attention == Attention::Sdpa
            && self.denoises()
            && image.frames <= 1
            && image.offload != Offloading::Sequential
            && !matches!(workload.precision, Precision::Int8 | Precision::Nf4)
            && !self.has_control()
    }

    /// Whether a network denoises.
    #[must_use]
    pub fn denoises(&self) -> bool {
        self.networks.iter().any(|network| network.is_denoiser())
    }
}

impl Network {
    fn is_control(&self) -> bool {
        matches!(&self.architecture, Some(Architecture::UNet(unet)) if unet.control.is_some())
    }

    fn is_denoiser(&self) -> bool {
        matches!(self.architecture, Some(Architecture::UNet(_) | Architecture::DiffusionTransformer(_)))
    }
}

/// What a pipeline went through.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The memory over the run.
    pub usage: Usage,
    /// Bytes of the weights of all networks.
    pub weights: u64,
    /// Parameters that are trained.
    pub trained: u64,
}

/// A denoiser whose weights lie on the card.
enum Denoising {
    /// A UNet or a ControlNet.
    UNet(Box<UNet>),
    /// A transformer.
    Transformer(Denoiser),
}

/// Kept as they are where weights are packed into 4 or 8 bits: networks below this many numbers, whose packing saves little
/// (CLIP's text encoders, autoencoders).
const PACKED_FROM: u64 = 1_000_000_000;

impl Network {
    fn denoising(&self, weights: &mut Weights<'_>) -> Option<Denoising> {
        match &self.architecture {
            Some(Architecture::UNet(shape)) => Some(Denoising::UNet(Box::new(UNet::new(weights, shape)))),
            Some(Architecture::DiffusionTransformer(shape)) => {
                Some(Denoising::Transformer(Denoiser::new(weights, shape, self.numbers)))
            }
            _ => None,
        }
    }

    /// Puts the weights of a network that is only used on the card, tensor by tensor where they are known.
    fn load(&self, tape: &Tape, workload: &Workload) -> Vec<Tensor> {
        let wide = matches!(&self.architecture, Some(Architecture::Autoencoder(vae)) if autoencoder::is_wan(vae));
        let kind = if wide { Kind::Single } else { kind(workload) };
        let bits = match workload.precision {
            Precision::Nf4 => 4.5,
            Precision::Int8 => 8.0,
            _ => f64::from(u32::try_from(8 * kind.bytes()).unwrap_or(16)),
        };
        let packed = matches!(workload.precision, Precision::Nf4 | Precision::Int8) && self.numbers >= PACKED_FROM;
        tape.owned(TapeOwner::Weights, || {
            let one = |parameter: &Parameter| {
                let count = parameter.elements();
                match (packed && parameter.form == Form::Linear, parameter.name.ends_with(".wo.weight")) {
                    // T5's way back from its MLP overflows in 16 bits: transformers keeps it in 32 whatever the rest is.
                    (true, true) => tape.empty(count, Kind::Single),
                    (true, false) => tape.bytes((count as f64 * bits / 8.0) as u64),
                    _ => tape.empty(count, kind),
                }
            };
            if self.parameters.is_empty() {
                return vec![tape.empty(self.numbers, kind)];
            }
            self.parameters.iter().map(one).collect()
        })
    }
}

/// The type of weights that are only used, and of what is computed with them.
fn kind(workload: &Workload) -> Kind {
    if workload.precision == Precision::Fp32 { Kind::Single } else { Kind::Half }
}

/// The pipeline on sizes. With `reserved` the allocator is followed, which gives what is reserved and takes longer.
#[must_use]
pub fn run(pipeline: &Pipeline, workload: &Workload, card: CardCost, reserved: bool) -> Run {
    if let Some(parts) = guided::Parts::of(pipeline).filter(|_| pipeline.is_guided()) {
        guided::run(&parts, workload, card, reserved)
    } else if workload.task.trains() {
        train::run(pipeline, workload, card, reserved)
    } else {
        infer::run(pipeline, workload, card, reserved)
    }
}

/// What a pipeline needs, `near` others that were run or alone.
pub(crate) fn estimate(
    pipeline: &Pipeline,
    workload: &Workload,
    card: CardCost,
    near: Option<Near<'_, Run>>,
) -> Estimate {
    let run = |reserved: bool| run(pipeline, workload, card, reserved);
    let run = near.as_ref().map_or_else(|| run(true), |near| near.runs.of(workload, || run(false)));
    let usage = run.usage;
    let mut owners = usage.owners;
    let followed = usage.reserved.unwrap_or(usage.allocated);
    let reserved = near.as_ref().map_or(followed, |near| (usage.allocated as f64 * near.slack) as u64);
    owners[TapeOwner::Slack as usize] = reserved.saturating_sub(usage.allocated);
    owners[TapeOwner::Context as usize] = card.context[1];
    let quantiles = if pipeline.is_read(workload) {
        interval::quantiles(pipeline.family(), workload.task.name())
    } else {
        interval::unread()
    };
    let mut total = Interval::around(reserved, &quantiles).plus(card.context[0], card.context[1], card.context[2]);
    let sum = reserved.saturating_add(card.context[1]);
    total.expected = total.expected.max(sum);
    total.high = total.high.max(total.expected);
    owners[TapeOwner::Slack as usize] = owners[TapeOwner::Slack as usize].saturating_add(total.expected - sum);
    let image = workload.image;
    let host_bytes = if image.offload == Offloading::None { 0 } else { run.weights };
    let term = |owner: TapeOwner, formula: String, source: &'static str| Term {
        owner,
        formula,
        source,
        bytes: owners[owner as usize],
    };
    let pixels = format!("{} x {} x {} pixels", workload.batch, image.width, image.height);
    let count = pipeline.networks.len();
    let code = match pipeline.is_guided() {
        true => "the code of taming-transformers and CLIP, run on sizes",
        false => "the code of diffusers, run on sizes",
    };
    let terms = vec![
        term(TapeOwner::Weights, format!("{count} networks"), "the tensors of their architectures"),
        term(TapeOwner::Gradients, format!("{} trained numbers", run.trained), "AccumulateGrad of PyTorch"),
        term(
            TapeOwner::OptimizerState,
            workload.optimizer.name().into(),
            "the optimizer's own state, tensor by tensor",
        ),
        term(TapeOwner::Activations, pixels, code),
        term(TapeOwner::Temporaries, "of the backward pass and the step".into(), code),
        term(TapeOwner::Inputs, "images, latents and text".into(), code),
        term(
            TapeOwner::Workspaces,
            "of convolutions".into(),
            "cuDNN: both layouts of a map, where one image is decoded",
        ),
        term(TapeOwner::Slack, "cached between the phases".into(), "a replay through a model of the allocator"),
        term(TapeOwner::Context, "CUDA context and modules".into(), "the catalogue of cards"),
    ];
    Estimate {
        owners,
        total,
        phase: usage.phase,
        parameters: pipeline.networks.iter().fold(0, |sum, network| sum.saturating_add(network.numbers)),
        trained: run.trained,
        host_bytes,
        terms: terms.into_iter().filter(|term| term.bytes > 0).collect(),
    }
}
