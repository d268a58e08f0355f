//! `UNet2DConditionModel` and `ControlNetModel` of diffusers, executed on sizes.

use std::rc::Rc;

use oomph_model::architecture::UNet as Shape;

use super::attend::{Attended, Projections};
use super::parts::{Norm, NormStyle, Use, Weights};
use crate::tape::{Convolution, Extent, Linear, Tape, TapeOwner, Tensor};
use crate::workload::{Attention, Workload};

/// Two convolutions, each behind a norm.
pub(super) struct Resnet {
    norms: [Norm; 2],
    convolutions: [Convolution; 2],
    time: Option<Linear>,
    shortcut: Option<Convolution>,
    groups: u64,
}

impl Resnet {
    pub(super) fn new(weights: &mut Weights<'_>, from: u64, to: u64, time: Option<u64>, groups: u64) -> Self {
        let norm = |weights: &mut Weights<'_>, width| weights.norm(width, NormStyle::Layer, true, true);
        Self {
            norms: [norm(weights, from), norm(weights, to)],
            convolutions: [weights.convolution(from, to, 9), weights.convolution(to, to, 9)],
            time: time.map(|time| weights.linear(time, to, true, Use::Matrix)),
            shortcut: (from != to).then(|| weights.convolution(from, to, 1)),
            groups,
        }
    }

    pub(super) fn forward(&self, tape: &Tape, input: &Tensor, time: Option<&Tensor>, extent: Extent) -> Tensor {
        let rows = extent.samples.saturating_mul(self.groups);
        let normed = |norm: &Norm, x: &Tensor| tape.group_norm(x, norm.weight.as_ref(), norm.bias.as_ref(), rows);
        let mut hidden = normed(&self.norms[0], input);
        hidden = tape.keeping_input(&hidden);
        hidden = tape.convolve(&self.convolutions[0], &hidden, extent);
        if let (Some(layer), Some(time)) = (&self.time, time) {
            let time = tape.linear(layer, &tape.keeping_input(time));
            hidden = tape.add(&hidden, &time);
        }
        hidden = normed(&self.norms[1], &hidden);
        hidden = tape.keeping_input(&hidden);
        hidden = tape.convolve(&self.convolutions[1], &hidden, extent);
        let shortcut = self.shortcut.as_ref().map(|layer| tape.convolve(layer, input, extent));
        let sum = tape.add(shortcut.as_ref().unwrap_or(input), &hidden);
        // Divided by the output's scale, which is 1.
        tape.keeping_nothing(&sum)
    }
}

/// A layer of the transformers: attention to the image, to the text, and a gated MLP of width 4.
struct Layer {
    norms: [Norm; 3],
    itself: Projections,
    text: Projections,
    wide: Linear,
    narrow: Linear,
}

impl Layer {
    fn new(weights: &mut Weights<'_>, width: u64, context: u64) -> Self {
        Self {
            norms: [0; 3].map(|_| weights.norm(width, NormStyle::Layer, true, true)),
            itself: Projections::new(weights, width, width, false),
            text: Projections::new(weights, width, context, false),
            wide: weights.linear(width, width * 8, true, Use::Matrix),
            narrow: weights.linear(width * 4, width, true, Use::Matrix),
        }
    }

    fn forward(&self, tape: &Tape, input: &Tensor, text: &Tensor, attended: Attended) -> Tensor {
        let mut normed = self.norms[0].forward(tape, input);
        let mut attention = self.itself.forward(tape, &normed, &normed, attended);
        let mut hidden = tape.add(&attention, input);
        normed = self.norms[1].forward(tape, &hidden);
        attention = self.text.forward(tape, &normed, text, attended.to_text());
        hidden = tape.add(&attention, &hidden);
        normed = self.norms[2].forward(tape, &hidden);
        let product = {
            let both = tape.linear(&self.wide, &normed);
            let half = both.count / 2;
            let mut parts = tape.split(&both, &[half, half]);
            drop(both);
            let gate = parts.pop().unwrap_or_else(|| normed.clone());
            let value = parts.pop().unwrap_or_else(|| normed.clone());
            tape.mul(&value, &tape.keeping_input(&gate))
        };
        let output = tape.linear(&self.narrow, &product);
        drop(product);
        let sum = tape.add(&output, &hidden);
        drop((output, normed, attention));
        sum
    }
}

/// `Transformer2DModel`.
struct Transformer {
    norm: Norm,
    inward: Projection,
    layers: Vec<Rc<Layer>>,
    outward: Projection,
    groups: u64,
    heads: u64,
}

/// A projection in or out of a transformer, which older models have as a convolution.
enum Projection {
    Linear(Linear),
    Convolution(Convolution),
}

impl Projection {
    fn new(weights: &mut Weights<'_>, width: u64, linear: bool) -> Self {
        if linear {
            Self::Linear(weights.linear(width, width, true, Use::Matrix))
        } else {
            Self::Convolution(weights.convolution(width, width, 1))
        }
    }

    fn forward(&self, tape: &Tape, x: &Tensor, extent: Extent) -> Tensor {
        match self {
            Self::Linear(layer) => tape.linear(layer, x),
            Self::Convolution(layer) => tape.convolve(layer, x, extent),
        }
    }
}

impl Transformer {
    fn new(weights: &mut Weights<'_>, shape: &Shape, width: u64, layers: u64, heads: u64) -> Self {
        Self {
            norm: weights.norm(width, NormStyle::Layer, true, true),
            inward: Projection::new(weights, width, shape.linear_projection),
            layers: (0..layers).map(|_| Rc::new(Layer::new(weights, width, shape.context))).collect(),
            outward: Projection::new(weights, width, shape.linear_projection),
            groups: shape.norm_groups,
            heads,
        }
    }

    fn forward(&self, tape: &Tape, input: &Tensor, text: &Tensor, extent: Extent, run: &Step) -> Tensor {
        let rows = extent.samples.saturating_mul(self.groups);
        let mut hidden = tape.group_norm(input, self.norm.weight.as_ref(), self.norm.bias.as_ref(), rows);
        let attended = Attended {
            batch: extent.samples,
            tokens: extent.places,
            keys: extent.places,
            text: run.text_tokens,
            heads: self.heads,
            eager: run.eager,
        };
        // Channels behind one another at each place, and back again at the end.
        if matches!(self.inward, Projection::Convolution(_)) {
            hidden = self.inward.forward(tape, &hidden, extent);
            hidden = tape.contiguous(&hidden);
        } else {
            hidden = tape.contiguous(&hidden);
            hidden = self.inward.forward(tape, &hidden, extent);
        }
        for layer in &self.layers {
            hidden = if run.checkpointing {
                let layer = Rc::clone(layer);
                let part = Rc::new(move |tape: &Tape, inputs: &[Tensor]| match inputs {
                    [x, text] => layer.forward(tape, x, text, attended),
                    _ => tape.empty(0, crate::tape::Kind::Half),
                });
                tape.checkpoint(&[&hidden, text], part)
            } else {
                layer.forward(tape, &hidden, text, attended)
            };
        }
        if matches!(self.outward, Projection::Convolution(_)) {
            hidden = tape.contiguous(&hidden);
            hidden = self.outward.forward(tape, &hidden, extent);
        } else {
            hidden = self.outward.forward(tape, &hidden, extent);
            hidden = tape.contiguous(&hidden);
        }
        tape.add(&hidden, input)
    }
}

/// A residual block and the transformer behind it.
struct Stage {
    resnet: Rc<Resnet>,
    transformer: Option<Transformer>,
}

impl Stage {
    fn forward(&self, tape: &Tape, input: &Tensor, conditions: &Conditions, extent: Extent, run: &Step) -> Tensor {
        let mut hidden = if run.checkpointing {
            let resnet = Rc::clone(&self.resnet);
            let part = Rc::new(move |tape: &Tape, inputs: &[Tensor]| match inputs {
                [x, time] => resnet.forward(tape, x, Some(time), extent),
                _ => tape.empty(0, crate::tape::Kind::Half),
            });
            tape.checkpoint(&[input, &conditions.time], part)
        } else {
            self.resnet.forward(tape, input, Some(&conditions.time), extent)
        };
        if let Some(transformer) = &self.transformer {
            hidden = transformer.forward(tape, &hidden, &conditions.text, extent, run);
        }
        hidden
    }
}

/// A level of the network, on the way down or up.
struct Level {
    stages: Vec<Stage>,
    resample: Option<Convolution>,
}

/// What a step is made with, in addition to the latents.
struct Conditions {
    time: Tensor,
    text: Tensor,
}

/// How a step is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Samples and pixels of the latents.
    pub latent: Extent,
    /// Tokens of the text.
    pub text_tokens: u64,
    /// Whether attention is made score by score.
    pub eager: bool,
    /// Whether blocks are computed again in the backward pass.
    pub checkpointing: bool,
}

impl Step {
    /// Of a workload on latents of such an extent.
    pub fn of(workload: &Workload, latent: Extent, text_tokens: u64) -> Self {
        Self {
            latent,
            text_tokens,
            eager: workload.attention == Attention::Eager,
            checkpointing: workload.checkpointing && workload.task.trains(),
        }
    }
}

/// The network.
pub(crate) struct UNet {
    entry: Convolution,
    time: [Linear; 2],
    added: Option<[Linear; 2]>,
    down: Vec<Level>,
    middle: [Option<Stage>; 2],
    up: Vec<Level>,
    exit: Option<(Norm, Convolution)>,
    control: Option<Control>,
    groups: u64,
    context: u64,
}

/// What makes a first half a ControlNet.
struct Control {
    /// The control image's embedding, with how much finer than the latents each convolution's result is, per side.
    image: Vec<(Convolution, u64)>,
    /// The output of each skip, and that of the middle.
    outputs: Vec<Convolution>,
}

impl UNet {
    /// Makes the network's weights.
    pub fn new(weights: &mut Weights<'_>, shape: &Shape) -> Self {
        let first = shape.levels.first().map_or(320, |level| level.channels);
        let time = first * 4;
        let entry = weights.convolution(shape.in_channels, first, 9);
        let embedding = |weights: &mut Weights<'_>, inputs| {
            [weights.linear(inputs, time, true, Use::Matrix), weights.linear(time, time, true, Use::Matrix)]
        };
        let times = embedding(weights, first);
        let added = shape.added_embedding.map(|inputs| embedding(weights, inputs));
        if let Some(classes) = shape.classes {
            weights.bare(classes, time, Use::Table);
        }
        let groups = shape.norm_groups;
        let mut skips = vec![first];
        let mut width = first;
        let count = shape.levels.len();
        let mut down = Vec::new();
        for (index, level) in shape.levels.iter().enumerate() {
            let mut stages = Vec::new();
            for _ in 0..level.resnets {
                let resnet = Rc::new(Resnet::new(weights, width, level.channels, Some(time), groups));
                width = level.channels;
                let transformer = (level.transformer_layers > 0)
                    .then(|| Transformer::new(weights, shape, width, level.transformer_layers, level.heads));
                stages.push(Stage { resnet, transformer });
                skips.push(width);
            }
            let resample = (index + 1 < count).then(|| weights.convolution(width, width, 9));
            if resample.is_some() {
                skips.push(width);
            }
            down.push(Level { stages, resample });
        }
        let heads = shape.levels.last().map_or(8, |level| level.heads);
        let attends = shape.mid_transformer_layers > 0;
        let resnet = Rc::new(Resnet::new(weights, width, width, Some(time), groups));
        let transformer = attends.then(|| Transformer::new(weights, shape, width, shape.mid_transformer_layers, heads));
        let second = (attends || shape.control.is_none()).then(|| Stage {
            resnet: Rc::new(Resnet::new(weights, width, width, Some(time), groups)),
            transformer: None,
        });
        let middle = [Some(Stage { resnet, transformer }), second];
        let control = shape.control.as_ref().map(|image| Control::new(weights, shape, image, &skips, width));
        let mut up = Vec::new();
        if control.is_none() {
            for (index, level) in shape.levels.iter().rev().enumerate() {
                let mut stages = Vec::new();
                for _ in 0..=level.resnets {
                    let skip = skips.pop().unwrap_or(level.channels);
                    let resnet = Rc::new(Resnet::new(weights, width + skip, level.channels, Some(time), groups));
                    width = level.channels;
                    let transformer = (level.up_transformer_layers > 0)
                        .then(|| Transformer::new(weights, shape, width, level.up_transformer_layers, level.heads));
                    stages.push(Stage { resnet, transformer });
                }
                let resample = (index + 1 < count).then(|| weights.convolution(width, width, 9));
                up.push(Level { stages, resample });
            }
        }
        let exit = control.is_none().then(|| {
            let norm = weights.norm(first, NormStyle::Layer, true, true);
            (norm, weights.convolution(first, shape.out_channels, 9))
        });
        Self { entry, time: times, added, down, middle, up, exit, control, groups, context: shape.context }
    }

    /// One step: noise from latents, with what a ControlNet adds to the skips where there is one. A ControlNet gives what
    /// it adds, the middle last.
    pub fn forward(&self, tape: &Tape, latents: &Tensor, run: &Step, controls: Vec<Tensor>) -> Vec<Tensor> {
        let samples = run.latent.samples;
        let kind = latents.kind;
        let text = tape.owned(TapeOwner::Inputs, || {
            tape.empty(samples.saturating_mul(run.text_tokens).saturating_mul(self.context), kind)
        });
        let embed = |layers: &[Linear; 2]| {
            let inputs = tape.empty(samples.saturating_mul(layers[0].inputs), kind);
            tape.linear(&layers[1], &tape.keeping_input(&tape.linear(&layers[0], &inputs)))
        };
        let mut time = embed(&self.time);
        if let Some(added) = &self.added {
            time = tape.add(&time, &embed(added));
        }
        let conditions = Conditions { time, text };
        let mut extent = run.latent;
        let mut sample = tape.convolve(&self.entry, latents, extent);
        if let Some(control) = &self.control {
            let image = control.embedded(tape, run.latent, kind);
            sample = tape.add(&sample, &image);
        }
        let mut skips = vec![sample.clone()];
        for level in &self.down {
            let mut hidden = sample.clone();
            for stage in &level.stages {
                hidden = stage.forward(tape, &hidden, &conditions, extent, run);
                skips.push(hidden.clone());
            }
            if let Some(layer) = &level.resample {
                extent = extent.halved();
                hidden = tape.convolve(layer, &hidden, extent);
                skips.push(hidden.clone());
            }
            sample = hidden;
        }
        for stage in self.middle.iter().flatten() {
            sample = stage.forward(tape, &sample, &conditions, extent, run);
        }
        if let Some(control) = &self.control {
            skips.push(sample);
            return control.outputs(tape, &skips, run.latent);
        }
        let mut controls = controls;
        if let Some(middle) = controls.pop() {
            skips = skips.iter().zip(&controls).map(|(skip, added)| tape.add(skip, added)).collect();
            sample = tape.add(&sample, &middle);
        }
        for level in &self.up {
            let mut hidden = sample.clone();
            // The caller keeps the skips of a level until the level is done.
            let mut own = skips.split_off(skips.len().saturating_sub(level.stages.len()));
            let kept = own.clone();
            for stage in &level.stages {
                if let Some(skip) = own.pop() {
                    hidden = tape.cat(&[&hidden, &skip]);
                }
                hidden = stage.forward(tape, &hidden, &conditions, extent, run);
            }
            if let Some(layer) = &level.resample {
                extent = extent.doubled();
                let larger = tape.resized(&hidden, extent.numbers(layer.inputs));
                let held = std::mem::replace(&mut hidden, larger);
                let convolved = tape.convolve(layer, &hidden, extent);
                drop(held);
                hidden = convolved;
            }
            drop(kept);
            sample = hidden;
        }
        if let Some((norm, exit)) = &self.exit {
            let rows = samples.saturating_mul(self.groups);
            sample = tape.group_norm(&sample, norm.weight.as_ref(), norm.bias.as_ref(), rows);
            sample = tape.keeping_input(&sample);
            sample = tape.convolve(exit, &sample, extent);
        }
        vec![sample]
    }
}

impl Control {
    fn new(weights: &mut Weights<'_>, shape: &Shape, image: &[u64], skips: &[u64], deepest: u64) -> Self {
        let widest = image.first().copied().unwrap_or(16);
        let mut finer = 8;
        let mut embedding = vec![(weights.convolution(shape.control_channels, widest, 9), finer)];
        for pair in image.windows(2) {
            embedding.push((weights.convolution(pair[0], pair[0], 9), finer));
            finer = (finer / 2).max(1);
            embedding.push((weights.convolution(pair[0], pair[1], 9), finer));
        }
        let first = skips.first().copied().unwrap_or(deepest);
        embedding.push((weights.convolution(image.last().copied().unwrap_or(widest), first, 9), finer));
        let outputs = skips.iter().chain([&deepest]).map(|&width| weights.convolution(width, width, 1)).collect();
        Self { image: embedding, outputs }
    }

    /// The control image, of eight times the latents' side, embedded.
    fn embedded(&self, tape: &Tape, latent: Extent, kind: crate::tape::Kind) -> Tensor {
        let finer = |factor: u64| Extent { places: latent.places.saturating_mul(factor * factor), ..latent };
        let channels = self.image.first().map_or(3, |(layer, _)| layer.inputs);
        let mut hidden = tape.owned(TapeOwner::Inputs, || tape.empty(finer(8).numbers(channels), kind));
        for (index, (layer, factor)) in self.image.iter().enumerate() {
            hidden = tape.convolve(layer, &hidden, finer(*factor));
            if index + 1 < self.image.len() {
                hidden = tape.keeping_input(&hidden);
            }
        }
        hidden
    }

    fn outputs(&self, tape: &Tape, skips: &[Tensor], latent: Extent) -> Vec<Tensor> {
        let made = |(layer, skip): (&Convolution, &Tensor)| {
            let places = skip.count / latent.samples.max(1) / layer.inputs.max(1);
            let output = tape.convolve(layer, skip, Extent { places, ..latent });
            // Scaled by how much the control counts.
            tape.keeping_nothing(&output)
        };
        self.outputs.iter().zip(skips).map(made).collect()
    }
}
