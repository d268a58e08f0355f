//! Transformers as the library `transformers` runs them: its decoders and encoders, line by line, on sizes.
//!
//! This code follows `modeling_*.py` of transformers 5: which Python variable holds what until when, what autocast
//! casts, what the cache keeps. A family that is not known by name runs as a Llama of its widths.

mod attention;
mod buckets;
mod disentangled;
mod embedding;
mod generate;
mod layer;
mod mlp;
mod objective;
mod output;
mod pass;

use std::ops::Range;
use std::rc::Rc;

use oomph_model::architecture::{Head, Norm as NormKind, Positions, Transformer};

use self::layer::Layer;
use self::pass::Pass;
use super::parts::{Norm, NormStyle, Use, Weights};
use crate::tape::{Linear, Tape, Tensor, product};
use crate::workload::{Objective, Workload};

/// Tables of tokens, positions and token types, projections of narrow embeddings, patches, convolutions over sound, a norm.
type Beginning = (
    Option<Tensor>,
    Option<Tensor>,
    Option<Tensor>,
    Option<(Linear, Linear)>,
    Option<Linear>,
    Vec<Linear>,
    Option<Norm>,
);

/// Which of a stack lies on a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its layers.
    pub layers: Range<u64>,
    /// Whether the embeddings do.
    pub embeddings: bool,
    /// Whether the last norm does.
    pub norm: bool,
    /// Whether the head does.
    pub head: bool,
}

impl Part {
    /// All of it.
    #[must_use]
    pub fn whole(shape: &Transformer) -> Self {
        Self { layers: 0..shape.layers, embeddings: true, norm: true, head: true }
    }
}

/// What of a stack is gathered at once, where its parameters are sharded over cards.
#[derive(Default)]
struct Units {
    embeddings: Option<usize>,
    layers: Vec<Option<usize>>,
    head: Option<usize>,
    /// Whether the head is the table of embeddings, which therefore stays gathered.
    tied: bool,
}

/// A stack with its embeddings and its head.
pub struct Stack {
    shape: Transformer,
    units: Units,
    tokens: Option<Tensor>,
    positions: Option<Tensor>,
    token_types: Option<Tensor>,
    embedding_projections: Option<(Linear, Linear)>,
    patches: Option<Linear>,
    convolutions: Vec<Linear>,
    embedding_norm: Option<Norm>,
    /// The norm of a table of relative positions.
    distance_norm: Option<Norm>,
    layers: Vec<Rc<Layer>>,
    final_norm: Option<Norm>,
    transform: Option<(Linear, Norm)>,
    head: Option<Linear>,
    encoder: Option<Box<Stack>>,
}

impl Stack {
    /// The network with its weights.
    pub fn new(weights: &mut Weights<'_>, shape: &Transformer) -> Self {
        Self::part(weights, shape, &Part::whole(shape))
    }

    /// A part of the network with its weights.
    pub fn part(weights: &mut Weights<'_>, shape: &Transformer, part: &Part) -> Self {
        let tape = weights.tape;
        let encoder = shape.encoder.as_deref().map(|encoder| Box::new(Self::new(weights, encoder)));
        let family = shape.family.as_str();
        let style = match (shape.norm, family) {
            (NormKind::Rms, "t5" | "mt5" | "umt5" | "longt5") => NormStyle::T5,
            (NormKind::Rms, name) if name.starts_with("gemma") => NormStyle::Gemma,
            (NormKind::Rms, _) => NormStyle::Llama,
            _ => NormStyle::Layer,
        };
        let plain = shape.norm == NormKind::Plain;
        let norm = |weights: &mut Weights<'_>, width| weights.norm(width, style, !plain, shape.norm_bias && !plain);
        let shares = shape.encoder.is_some() && matches!(family, "t5" | "mt5" | "umt5" | "bart" | "longt5");
        let shared_tokens = encoder.as_ref().filter(|_| shares).and_then(|encoder| encoder.tokens.clone());
        let ((tokens, positions, token_types, embedding_projections, patches, convolutions, embedding_norm), unit) =
            tape.unit(|| Self::embeddings(weights, shape, part, shared_tokens, &norm));
        let mut units = Units { embeddings: unit, tied: shape.tied_embeddings, ..Units::default() };
        let relative = matches!(shape.positions, Positions::Relative(_));
        let distance_norm = relative.then(|| norm(weights, shape.hidden));
        let layers = part.layers.clone().map(|index| {
            let (layer, unit) = tape.unit(|| Rc::new(Layer::new(weights, shape, index, style)));
            units.layers.push(unit);
            layer
        });
        let layers = layers.collect();
        let ((final_norm, transform, head), unit) =
            tape.unit(|| Self::end(weights, shape, part, tokens.as_ref(), &norm));
        units.head = unit;
        Self {
            shape: shape.clone(),
            units,
            tokens,
            positions,
            token_types,
            embedding_projections,
            patches,
            convolutions,
            embedding_norm,
            distance_norm,
            layers,
            final_norm,
            transform,
            head,
            encoder,
        }
    }

    /// What precedes the layers.
    fn embeddings(
        weights: &mut Weights<'_>,
        shape: &Transformer,
        part: &Part,
        shared_tokens: Option<Tensor>,
        norm: &dyn Fn(&mut Weights<'_>, u64) -> Norm,
    ) -> Beginning {
        let tokens = (shape.vocabulary > 0 && shape.image.is_none() && part.embeddings)
            .then(|| shared_tokens.unwrap_or_else(|| weights.bare(shape.vocabulary, shape.embedding_dim, Use::Table)));
        let positions = match shape.positions {
            Positions::Learned(rows) => Some(weights.bare(rows, shape.hidden, Use::Table)),
            Positions::Fixed(rows) => Some(weights.bare(rows, shape.hidden, Use::Other)),
            Positions::Relative(rows) => Some(weights.bare(rows, shape.hidden, Use::Table)),
            Positions::Buckets(rows) => Some(weights.bare(rows, shape.heads, Use::Table)),
            Positions::None | Positions::Rotary(_) => None,
        };
        let token_types =
            (shape.token_types > 0).then(|| weights.bare(shape.token_types, shape.embedding_dim, Use::Table));
        let embedding_projections = (shape.embedding_dim != shape.hidden && shape.vocabulary > 0).then(|| {
            (
                weights.linear(shape.embedding_dim, shape.hidden, false, Use::Matrix),
                weights.linear(shape.hidden, shape.embedding_dim, false, Use::Matrix),
            )
        });
        let patches = shape.image.map(|image| {
            weights.linear(product([image.channels, image.patch, image.patch]), shape.hidden, true, Use::Other)
        });
        let convolutions = shape.audio.map_or_else(Vec::new, |audio| {
            vec![
                weights.linear(product([audio.mel_bins, 3]), shape.hidden, true, Use::Other),
                weights.linear(product([shape.hidden, 3]), shape.hidden, true, Use::Other),
            ]
        });
        let embedding_norm = shape.embedding_norm.then(|| norm(weights, shape.hidden));
        (tokens, positions, token_types, embedding_projections, patches, convolutions, embedding_norm)
    }

    /// What follows the layers.
    fn end(
        weights: &mut Weights<'_>,
        shape: &Transformer,
        part: &Part,
        tokens: Option<&Tensor>,
        norm: &dyn Fn(&mut Weights<'_>, u64) -> Norm,
    ) -> (Option<Norm>, Option<(Linear, Norm)>, Option<Linear>) {
        let final_norm = (shape.final_norm && part.norm).then(|| norm(weights, shape.hidden));
        if !part.head {
            return (final_norm, None, None);
        }
        let transform = (shape.head == Head::MaskedLanguage).then(|| {
            let dense = weights.linear(shape.hidden, shape.embedding_dim, true, Use::Other);
            (dense, norm(weights, shape.embedding_dim))
        });
        let head = match shape.head {
            Head::None => None,
            Head::Classes(classes) => Some(weights.linear(shape.hidden, classes, true, Use::Head)),
            Head::Projection(width) => Some(weights.linear(shape.hidden, width, false, Use::Head)),
            Head::Language | Head::MaskedLanguage => {
                let width = shape.embedding_dim;
                match (tokens, shape.tied_embeddings) {
                    (Some(table), true) => Some(Linear {
                        inputs: width,
                        outputs: shape.vocabulary,
                        weight: table.clone(),
                        bias: shape.head_bias.then(|| weights.bare(shape.vocabulary, 0, Use::Other)),
                        quantized: false,
                        adapter: None,
                    }),
                    _ => Some(weights.linear(width, shape.vocabulary, shape.head_bias, Use::Head)),
                }
            }
        };
        (final_norm, transform, head)
    }

    /// Tokens that one sample has in this stack.
    fn tokens_of(&self, length: u64) -> u64 {
        match (&self.shape.image, &self.shape.audio) {
            (Some(image), _) => image.tokens(),
            (_, Some(audio)) => audio.positions,
            _ => length,
        }
    }

    /// The hidden states behind the last layer.
    fn hidden(&self, tape: &Tape, workload: &Workload, pass: &Rc<Pass>, encoded: Option<&Tensor>) -> Tensor {
        let shape = &self.shape;
        tape.unshard(self.units.embeddings);
        let mut hidden = self.embed(tape, pass);
        if !self.units.tied {
            tape.reshard(self.units.embeddings);
        }
        pass.biases.get_or_init(|| self.biases(tape, pass, encoded));
        // Layers read one tensor in addition to the hidden states: what an encoder made of its input, or the table of
        // distances.
        let distances = self.distance_norm.as_ref().zip(self.positions.as_ref());
        let distances = distances.map(|(norm, table)| norm.forward(tape, table));
        let second_input = distances.as_ref().or(encoded);
        let mut first = 0;
        for alike in self.layers.chunk_by(|one, next| one.is_like(next)) {
            let mut place = 0;
            while let Some(layer) = alike.get(place) {
                let stands = place == 1 && alike.len() > 4 && tape.may_skip(&hidden);
                let mark = stands.then(|| pass.mark(tape));
                hidden = self.through(tape, workload, pass, layer, &hidden, second_input, first + place);
                place += 1;
                if let Some(([.., last, _], mark)) = Some(alike).zip(mark) {
                    let skipped = &alike[place..alike.len() - 2];
                    let twins = skipped.iter().flat_map(|layer| last.twins(layer)).collect();
                    let marks = [&mark, &pass.mark(tape)];
                    if let Some(passed) = tape.again(&hidden, marks, skipped.len() as u64, twins) {
                        pass.passed.borrow_mut().extend(passed.cached);
                        (hidden, place) = (passed.hidden, alike.len() - 2);
                    }
                }
            }
            first += alike.len();
        }
        tape.unshard(self.units.head);
        hidden = tape.entering(self.units.head, &hidden);
        if let Some(norm) = &self.final_norm {
            hidden = norm.forward(tape, &hidden);
        }
        let dropped = shape.hidden_dropout > 0.0 && pass.training && matches!(shape.family.as_str(), "t5" | "mt5");
        tape.dropout(&hidden, dropped)
    }

    /// The hidden states behind one layer, gathered while it works where it is sharded.
    #[allow(clippy::too_many_arguments)]
    fn through(
        &self,
        tape: &Tape,
        workload: &Workload,
        pass: &Rc<Pass>,
        layer: &Rc<Layer>,
        hidden: &Tensor,
        second_input: Option<&Tensor>,
        index: usize,
    ) -> Tensor {
        let unit = self.units.layers.get(index).copied().flatten();
        tape.unshard(unit);
        let hidden = &tape.entering(unit, hidden);
        let out = if workload.checkpointing && pass.training {
            let inputs: Vec<&Tensor> = std::iter::once(hidden).chain(second_input).collect();
            let (layer, pass, shape) = (Rc::clone(layer), Rc::clone(pass), self.shape.clone());
            tape.checkpoint(
                &inputs,
                Rc::new(move |tape, inputs| layer.forward(tape, &shape, &pass, &inputs[0], inputs.get(1), index)),
            )
        } else {
            layer.forward(tape, &self.shape, pass, hidden, second_input, index)
        };
        tape.reshard(unit);
        tape.leaving(unit, out)
    }

    /// The whole forward pass: the loss in training, else the logits of the last token or of all.
    pub fn forward(&self, tape: &Tape, workload: &Workload) -> Tensor {
        match workload.objective {
            Objective::Dpo | Objective::Grpo => self.scored(tape, workload, workload.task.trains()),
            Objective::Contrastive => self.contrasted(tape, workload),
            Objective::Labels | Objective::Ppo | Objective::Reward => self.labelled(tape, workload),
        }
    }

    /// A forward pass that ends in the model's own loss, or in logits.
    fn labelled(&self, tape: &Tape, workload: &Workload) -> Tensor {
        let training = workload.task.trains();
        let encoded = self.encoder.as_ref().map(|encoder| encoder.encode(tape, workload));
        let length = self.tokens_of(workload.length);
        let batch = workload.batch.saturating_mul(workload.objective.sequences());
        let pass = self.pass(tape, workload, batch, length, 0, training);
        let hidden = self.hidden(tape, workload, &pass, encoded.as_ref());
        self.answer(tape, workload, hidden, &pass)
    }

    /// What a frozen tower makes of pictures that come with a graph.
    pub(crate) fn judge(&self, tape: &Tape, workload: &Workload, pictures: u64, pixels: &Tensor) -> Tensor {
        let pass = self.pass(tape, workload, pictures, self.tokens_of(0), 0, false);
        pass.pixels.get_or_init(|| pixels.clone());
        let hidden = self.hidden(tape, workload, &pass, None);
        self.answer(tape, workload, hidden, &pass)
    }

    fn encode(&self, tape: &Tape, workload: &Workload) -> Tensor {
        let pass =
            self.pass(tape, workload, workload.batch, self.tokens_of(workload.length), 0, workload.task.trains());
        self.hidden(tape, workload, &pass, None)
    }
}
