//! Denoisers of diffusers that are transformers, executed on sizes: the layers of SD3, Flux, PixArt, Wan and their like.
//!
//! Families differ in what a layer is; what is before the first layer and behind the last is small, and is one weight here.

use std::rc::Rc;

use oomph_model::architecture::DiffusionTransformer as Shape;

use super::attend::Attended;
use super::parts::{Norm, NormStyle, Use, Weights};
use super::unet::Step;
use crate::tape::{Kind, Linear, Tape, Tensor};

/// Layers of each kind that are run where nothing is kept of them: the second finds the first one's blocks in the cache.
const LAYERS_WITHOUT_A_GRAPH: usize = 2;

/// How a family turns queries and keys before attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rotation {
    /// Positions are added at the entry.
    None,
    /// `apply_rotary_emb` of diffusers: in fp32, both terms at once.
    Real,
    /// Wan's, written into an empty tensor by halves.
    Halves,
}

/// What queries, keys and values are made with.
#[derive(Clone)]
struct Triple {
    q: Linear,
    k: Linear,
    v: Linear,
    norms: Option<[Norm; 2]>,
}

impl Triple {
    fn new(weights: &mut Weights<'_>, hidden: u64, source: u64, norm: Option<u64>) -> Self {
        let norms = norm.map(|width| [0; 2].map(|_| weights.norm(width, NormStyle::Layer, true, false)));
        Self {
            q: weights.linear(hidden, hidden, true, Use::Adapted),
            k: weights.linear(source, hidden, true, Use::Adapted),
            v: weights.linear(source, hidden, true, Use::Adapted),
            norms,
        }
    }

    fn forward(&self, tape: &Tape, x: &Tensor, source: &Tensor) -> [Tensor; 3] {
        let mut q = tape.linear(&self.q, x);
        let mut k = tape.linear(&self.k, source);
        let v = tape.linear(&self.v, source);
        if let Some([for_q, for_k]) = &self.norms {
            q = for_q.forward(tape, &q);
            k = for_k.forward(tape, &k);
        }
        [q, k, v]
    }
}

/// An MLP: out to its width, GELU, and back.
#[derive(Clone)]
struct Mlp {
    wide: Linear,
    narrow: Linear,
}

impl Mlp {
    fn new(weights: &mut Weights<'_>, hidden: u64, width: u64) -> Self {
        Self {
            wide: weights.linear(hidden, width, true, Use::Matrix),
            narrow: weights.linear(width, hidden, true, Use::Matrix),
        }
    }

    fn forward(&self, tape: &Tape, x: &Tensor) -> Tensor {
        let mut hidden = tape.linear(&self.wide, x);
        hidden = tape.keeping_input(&hidden);
        tape.linear(&self.narrow, &hidden)
    }
}

/// A norm that the time step scales and shifts; `parts` vectors come of its projection.
struct Modulated {
    projection: Option<Linear>,
    parts: u64,
    hidden: u64,
}

impl Modulated {
    /// `time` is the width of what the time step becomes.
    fn new(weights: &mut Weights<'_>, [time, hidden]: [u64; 2], parts: u64, single: bool) -> Self {
        let projection = if single {
            // One projection serves all layers; each has a table of its own to add to it.
            weights.bare(parts, hidden, Use::Other);
            None
        } else {
            Some(weights.linear(time, hidden * parts, true, Use::Matrix))
        };
        Self { projection, parts, hidden }
    }

    /// The vectors of a step, a sample each.
    fn vectors(&self, tape: &Tape, time: &Tensor) -> Tensor {
        let samples = time.count / self.hidden.max(1);
        match &self.projection {
            Some(layer) => tape.linear(layer, &tape.keeping_input(time)),
            None => tape.empty(samples.saturating_mul(self.parts).saturating_mul(self.hidden), time.kind),
        }
    }

    /// `norm(x) * (1 + scale) + shift`, in fp32 where a family says so.
    fn norm(&self, tape: &Tape, x: &Tensor, vectors: &Tensor, upcast: bool) -> Tensor {
        let vector = tape.slice(vectors, vectors.count / self.parts.max(1));
        let normed = if upcast {
            tape.layer_norm(&tape.cast(x, Kind::Single), None, None, self.hidden)
        } else {
            tape.layer_norm(x, None, None, self.hidden)
        };
        let scaled = tape.mul(&normed, &vector);
        drop(normed);
        let shifted = tape.add(&scaled, &vector);
        drop(scaled);
        tape.cast(&shifted, x.kind)
    }

    fn gate(&self, tape: &Tape, x: &Tensor, vectors: &Tensor) -> Tensor {
        tape.mul(&tape.slice(vectors, vectors.count / self.parts.max(1)), x)
    }
}

/// A layer in which image and text have weights of their own and attend to each other (SD3, Flux, Qwen-Image).
struct Joint {
    image_norm: Modulated,
    text_norm: Modulated,
    image: Triple,
    text: Triple,
    image_out: Linear,
    text_out: Option<Linear>,
    again: Option<(Triple, Linear)>,
    image_mlp: Mlp,
    text_mlp: Option<Mlp>,
}

/// A layer that treats image and text as one sequence, its MLP parallel to its attention (Flux).
struct Single {
    norm: Modulated,
    triple: Triple,
    wide: Linear,
    narrow: Linear,
}

/// A layer in which the image attends to itself, then to the text (PixArt, Wan).
struct Cross {
    norm: Modulated,
    itself: Triple,
    out: Linear,
    text_norm: Option<Norm>,
    text: Triple,
    text_out: Linear,
    mlp: Mlp,
}

/// A layer of any kind.
enum Layer {
    Joint(Box<Joint>),
    Single(Box<Single>),
    Cross(Box<Cross>),
}

/// What a step needs to know at every layer.
#[derive(Clone, Copy)]
struct Place {
    samples: u64,
    image: u64,
    text: u64,
    heads: u64,
    rotation: Rotation,
    upcast: bool,
    eager: bool,
}

impl Place {
    fn attended(self, tokens: u64, keys: u64) -> Attended {
        Attended { batch: self.samples, tokens, keys, text: self.text, heads: self.heads, eager: self.eager }
    }

    /// Queries or keys with their positions in them.
    fn rotated(self, tape: &Tape, x: &Tensor) -> Tensor {
        match self.rotation {
            Rotation::None => x.clone(),
            Rotation::Real => {
                let turned = {
                    let negative = tape.keeping_nothing(&tape.slice(x, x.count / 2));
                    tape.cat(&[&negative, &tape.slice(x, x.count / 2)])
                };
                let one = tape.keeping_nothing(&tape.cast(x, Kind::Single));
                let other = tape.keeping_nothing(&tape.cast(&turned, Kind::Single));
                let sum = tape.add(&one, &other);
                drop((one, other));
                tape.cast(&sum, x.kind)
            }
            Rotation::Halves => {
                let half = tape.slice(x, x.count / 2);
                for _ in 0..2 {
                    // Products with cosines and sines in fp32 (or 64 bits, where the tables are), then their difference.
                    let one = tape.keeping_nothing(&tape.cast(&half, Kind::Single));
                    let other = tape.keeping_nothing(&tape.cast(&half, Kind::Single));
                    drop(tape.add(&one, &other));
                }
                tape.keeping_nothing(x)
            }
        }
    }
}

impl Joint {
    fn forward(&self, tape: &Tape, image: &Tensor, text: &Tensor, time: &Tensor, place: Place) -> [Tensor; 2] {
        let vectors = self.image_norm.vectors(tape, time);
        let mut normed = self.image_norm.norm(tape, image, &vectors, false);
        let text_vectors = self.text_norm.vectors(tape, time);
        let mut text_normed = self.text_norm.norm(tape, text, &text_vectors, false);
        let (attended, text_attended) = {
            let [mut q, mut k, mut v] = self.image.forward(tape, &normed, &normed);
            let [text_q, text_k, text_v] = self.text.forward(tape, &text_normed, &text_normed);
            q = tape.cat(&[&text_q, &q]);
            k = tape.cat(&[&text_k, &k]);
            v = tape.cat(&[&text_v, &v]);
            q = place.rotated(tape, &q);
            k = place.rotated(tape, &k);
            let all = place.image.saturating_add(place.text);
            let hidden = place.attended(all, all).attend(tape, &q, &k, &v);
            let parts = tape.split(&hidden, &[text_q.count, q.count - text_q.count]);
            drop(hidden);
            let (for_text, for_image) = match parts.as_slice() {
                [text, image] => (text.clone(), image.clone()),
                _ => (text_q.clone(), q.clone()),
            };
            let for_image = tape.linear(&self.image_out, &tape.contiguous(&for_image));
            let for_text = match &self.text_out {
                Some(layer) => tape.linear(layer, &tape.contiguous(&for_text)),
                None => for_text,
            };
            (for_image, for_text)
        };
        let gated = self.image_norm.gate(tape, &attended, &vectors);
        // Flux keeps the pair that attention gave until the layer's end.
        let kept = (place.rotation == Rotation::Real).then_some(attended);
        let mut image = tape.add(image, &gated);
        if let Some((triple, out)) = &self.again {
            let [q, k, v] = triple.forward(tape, &normed, &normed);
            let attended = place.attended(place.image, place.image).attend(tape, &q, &k, &v);
            let more = self.image_norm.gate(tape, &tape.linear(out, &attended), &vectors);
            image = tape.add(&image, &more);
        }
        normed = self.image_norm.norm(tape, &image, &vectors, false);
        let mut made = self.image_mlp.forward(tape, &normed);
        made = self.image_norm.gate(tape, &made, &vectors);
        image = tape.add(&image, &made);
        let mut text = text.clone();
        if let Some(mlp) = &self.text_mlp {
            text = tape.add(&text, &self.text_norm.gate(tape, &text_attended, &text_vectors));
            text_normed = self.text_norm.norm(tape, &text, &text_vectors, false);
            let made = mlp.forward(tape, &text_normed);
            text = tape.add(&text, &self.text_norm.gate(tape, &made, &text_vectors));
        }
        drop((kept, normed, text_normed));
        [image, text]
    }
}

impl Single {
    fn forward(&self, tape: &Tape, image: &Tensor, text: &Tensor, time: &Tensor, place: Place) -> [Tensor; 2] {
        let sizes = [text.count, image.count];
        let hidden = tape.cat(&[text, image]);
        let vectors = self.norm.vectors(tape, time);
        let normed = self.norm.norm(tape, &hidden, &vectors, false);
        let wide = tape.keeping_input(&tape.linear(&self.wide, &normed));
        let attended = {
            let [mut q, mut k, v] = self.triple.forward(tape, &normed, &normed);
            q = place.rotated(tape, &q);
            k = place.rotated(tape, &k);
            let all = place.image.saturating_add(place.text);
            place.attended(all, all).attend(tape, &q, &k, &v)
        };
        let both = tape.cat(&[&attended, &wide]);
        let mut output = tape.linear(&self.narrow, &both);
        output = self.norm.gate(tape, &output, &vectors);
        let output = tape.add(&hidden, &output);
        drop((attended, wide, normed, both));
        let mut parts = tape.split(&output, &sizes);
        let image = parts.pop().unwrap_or_else(|| image.clone());
        let text = parts.pop().unwrap_or_else(|| text.clone());
        [image, text]
    }
}

impl Cross {
    fn forward(&self, tape: &Tape, image: &Tensor, text: &Tensor, time: &Tensor, place: Place) -> [Tensor; 2] {
        let vectors = self.norm.vectors(tape, time);
        let mut normed = self.norm.norm(tape, image, &vectors, place.upcast);
        let mut attended = {
            let [mut q, mut k, v] = self.itself.forward(tape, &normed, &normed);
            q = place.rotated(tape, &q);
            k = place.rotated(tape, &k);
            let hidden = place.attended(place.image, place.image).attend(tape, &q, &k, &v);
            tape.linear(&self.out, &hidden)
        };
        let joined = |a: &Tensor, b: &Tensor| {
            if place.upcast {
                let wide = tape.add(&tape.cast(a, Kind::Single), &tape.cast(b, Kind::Single));
                tape.cast(&wide, a.kind)
            } else {
                tape.add(b, a)
            }
        };
        attended = self.norm.gate(tape, &attended, &vectors);
        let mut hidden = joined(image, &attended);
        normed = match &self.text_norm {
            Some(norm) => {
                let wide = norm.forward(tape, &tape.cast(&hidden, Kind::Single));
                tape.cast(&wide, hidden.kind)
            }
            None => hidden.clone(),
        };
        attended = {
            let [q, k, v] = self.text.forward(tape, &normed, text);
            let hidden = place.attended(place.image, place.text).attend(tape, &q, &k, &v);
            tape.linear(&self.text_out, &hidden)
        };
        hidden = tape.add(&attended, &hidden);
        normed = self.norm.norm(tape, &hidden, &vectors, place.upcast);
        let made = self.norm.gate(tape, &self.mlp.forward(tape, &normed), &vectors);
        hidden = joined(&hidden, &made);
        drop((normed, attended));
        [hidden, text.clone()]
    }
}

impl Layer {
    fn forward(&self, tape: &Tape, image: &Tensor, text: &Tensor, time: &Tensor, place: Place) -> [Tensor; 2] {
        match self {
            Self::Joint(layer) => layer.forward(tape, image, text, time, place),
            Self::Single(layer) => layer.forward(tape, image, text, time, place),
            Self::Cross(layer) => layer.forward(tape, image, text, time, place),
        }
    }
}

/// The network.
pub(crate) struct Denoiser {
    layers: Vec<Rc<Layer>>,
    /// What is not in a layer, as one weight.
    rest: Tensor,
    hidden: u64,
    /// Width of what the time step becomes.
    time: u64,
    heads: u64,
    rotation: Rotation,
    upcast: bool,
    channels: u64,
}

impl Denoiser {
    /// Makes the network's weights, of which there are `numbers` in all.
    pub fn new(weights: &mut Weights<'_>, shape: &Shape, numbers: u64) -> Self {
        let hidden = shape.heads.saturating_mul(shape.head_dim);
        let mut layers = Vec::new();
        let before = weights.parameters;
        let head_norm = shape.query_key_norm.then_some(shape.head_dim);
        // CogVideoX has one set of weights for image and text, and a narrow time step.
        let shared = shape.class == "CogVideoXTransformer3DModel";
        let narrow = || shape.config.get("time_embed_dim").and_then(serde_json::Value::as_u64).unwrap_or(512);
        let time = if shared { narrow() } else { hidden };
        for index in 0..shape.layers {
            let last = index + 1 == shape.layers && shape.single_layers == 0 && shape.class.starts_with("SD3");
            let layer = if shape.joint_attention {
                let twice = index < shape.dual_attention_layers;
                let image_norm = Modulated::new(weights, [time, hidden], if twice { 9 } else { 6 }, false);
                let text_norm = Modulated::new(weights, [time, hidden], if last { 2 } else { 6 }, false);
                let image = Triple::new(weights, hidden, hidden, head_norm);
                let text = if shared { image.clone() } else { Triple::new(weights, hidden, hidden, head_norm) };
                let image_out = weights.linear(hidden, hidden, true, Use::Adapted);
                let text_out = match shared {
                    true => Some(image_out.clone()),
                    false => (!last).then(|| weights.linear(hidden, hidden, true, Use::Adapted)),
                };
                let again = twice.then(|| {
                    let triple = Triple::new(weights, hidden, hidden, head_norm);
                    (triple, weights.linear(hidden, hidden, true, Use::Adapted))
                });
                let image_mlp = Mlp::new(weights, hidden, shape.intermediate);
                let text_mlp = match shared {
                    true => Some(image_mlp.clone()),
                    false => (!last).then(|| Mlp::new(weights, hidden, shape.intermediate)),
                };
                Layer::Joint(Box::new(Joint {
                    image_norm,
                    text_norm,
                    image,
                    text,
                    image_out,
                    text_out,
                    again,
                    image_mlp,
                    text_mlp,
                }))
            } else {
                let norm = shape.query_key_norm.then_some(hidden);
                let wan = shape.class.starts_with("Wan");
                Layer::Cross(Box::new(Cross {
                    norm: Modulated::new(weights, [time, hidden], 6, true),
                    itself: Triple::new(weights, hidden, hidden, norm),
                    out: weights.linear(hidden, hidden, true, Use::Adapted),
                    text_norm: wan.then(|| weights.norm(hidden, NormStyle::Layer, true, true)),
                    text: Triple::new(weights, hidden, hidden, norm),
                    text_out: weights.linear(hidden, hidden, true, Use::Adapted),
                    mlp: Mlp::new(weights, hidden, shape.intermediate),
                }))
            };
            layers.push(Rc::new(layer));
        }
        for _ in 0..shape.single_layers {
            layers.push(Rc::new(Layer::Single(Box::new(Single {
                norm: Modulated::new(weights, [time, hidden], 3, false),
                triple: Triple::new(weights, hidden, hidden, head_norm),
                wide: weights.linear(hidden, shape.intermediate, true, Use::Matrix),
                narrow: weights.linear(shape.intermediate.saturating_add(hidden), hidden, true, Use::Matrix),
            }))));
        }
        let made = weights.parameters.saturating_sub(before);
        let rest = weights.bare(numbers.saturating_sub(made) / hidden.max(1), hidden, Use::Table);
        let rotation = match shape.class.as_str() {
            "SD3Transformer2DModel" | "PixArtTransformer2DModel" => Rotation::None,
            "WanTransformer3DModel" => Rotation::Halves,
            _ => Rotation::Real,
        };
        Self {
            layers,
            rest,
            hidden,
            time,
            heads: shape.heads,
            rotation,
            upcast: shape.class.starts_with("Wan"),
            channels: shape.out_channels.saturating_mul(shape.patch.iter().product::<u64>().max(1)),
        }
    }

    /// One step on so many tokens of an image (the places of `run.latent`).
    pub fn forward(&self, tape: &Tape, kind: Kind, run: &Step) -> Tensor {
        let samples = run.latent.samples;
        let rows = samples.saturating_mul(run.latent.places);
        let entered = tape.embedding(&self.rest, rows, self.hidden);
        let mut image = if tape.is_autocast() { tape.cast(&entered, Kind::Half) } else { entered };
        let mut text = tape.empty(samples.saturating_mul(run.text_tokens).saturating_mul(self.hidden), kind);
        let time = tape.empty(samples.saturating_mul(self.time), kind);
        let place = Place {
            samples,
            image: run.latent.places,
            text: run.text_tokens,
            heads: self.heads,
            rotation: self.rotation,
            upcast: self.upcast,
            eager: run.eager,
        };
        let most = if tape.is_grad() { usize::MAX } else { LAYERS_WITHOUT_A_GRAPH };
        let (mut several, mut singles) = (0, 0);
        for layer in &self.layers {
            let seen = if matches!(**layer, Layer::Single(_)) { &mut singles } else { &mut several };
            *seen += 1;
            if *seen > most {
                continue;
            }
            [image, text] = if run.checkpointing {
                let layer = Rc::clone(layer);
                let sizes = [image.count, text.count];
                let part = Rc::new(move |tape: &Tape, inputs: &[Tensor]| match inputs {
                    [image, text, time] => {
                        let [image, text] = layer.forward(tape, image, text, time, place);
                        tape.cat(&[&image, &text])
                    }
                    _ => tape.empty(0, kind),
                });
                let both = tape.checkpoint(&[&image, &text, &time], part);
                let mut parts = tape.split(&both, &sizes);
                let text = parts.pop().unwrap_or_else(|| text.clone());
                [parts.pop().unwrap_or_else(|| image.clone()), text]
            } else {
                layer.forward(tape, &image, &text, &time, place)
            };
        }
        let normed = tape.layer_norm(&image, None, None, self.hidden);
        drop(image);
        tape.reduced(&normed, rows.saturating_mul(self.channels))
    }
}
