//! Transformers as the library `transformers` runs them: its decoders and encoders, line by line, on sizes.
//!
//! What stands here follows `modeling_*.py` of transformers 5: which Python variable holds what until when, what autocast
//! casts, what the cache keeps. A family that is not known by name runs as a Llama of its widths.

mod attention;
mod buckets;
mod disentangled;
mod embedding;
mod generate;
mod layer;
mod mlp;
mod output;
mod pass;

use std::rc::Rc;

use oomph_model::architecture::{Head, Norm as NormKind, Positions, Transformer};

use self::layer::Layer;
use self::pass::Pass;
use super::parts::{Norm, NormStyle, Use, Weights};
use crate::tape::{Linear, Tape, Tensor, product};
use crate::workload::Workload;

/// A stack with its embeddings and its head.
pub struct Stack {
    shape: Transformer,
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
        let tokens = (shape.vocabulary > 0 && shape.image.is_none())
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
        let relative = matches!(shape.positions, Positions::Relative(_));
        let distance_norm = relative.then(|| norm(weights, shape.hidden));
        let layers = (0..shape.layers).map(|index| Rc::new(Layer::new(weights, shape, index, style))).collect();
        let final_norm = shape.final_norm.then(|| norm(weights, shape.hidden));
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
                match (&tokens, shape.tied_embeddings) {
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
        Self {
            shape: shape.clone(),
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
        let mut hidden = self.embed(tape, pass);
        pass.biases.get_or_init(|| self.biases(tape, pass, encoded));
        // Layers read one tensor beside the hidden states: what an encoder made of its input, or the table of distances.
        let distances = self.distance_norm.as_ref().zip(self.positions.as_ref());
        let distances = distances.map(|(norm, table)| norm.forward(tape, table));
        let beside = distances.as_ref().or(encoded);
        let mut first = 0;
        for alike in self.layers.chunk_by(|one, next| one.is_like(next)) {
            let mut place = 0;
            while let Some(layer) = alike.get(place) {
                let stands = place == 1 && alike.len() > 4 && tape.may_skip(&hidden);
                let mark = stands.then(|| pass.mark(tape));
                hidden = self.through(tape, workload, pass, layer, &hidden, beside, first + place);
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
        if let Some(norm) = &self.final_norm {
            hidden = norm.forward(tape, &hidden);
        }
        let dropped = shape.hidden_dropout > 0.0 && pass.training && matches!(shape.family.as_str(), "t5" | "mt5");
        tape.dropout(&hidden, dropped)
    }

    /// The hidden states behind one layer.
    #[allow(clippy::too_many_arguments)]
    fn through(
        &self,
        tape: &Tape,
        workload: &Workload,
        pass: &Rc<Pass>,
        layer: &Rc<Layer>,
        hidden: &Tensor,
        beside: Option<&Tensor>,
        index: usize,
    ) -> Tensor {
        if !(workload.checkpointing && pass.training) {
            return layer.forward(tape, &self.shape, pass, hidden, beside, index);
        }
        let inputs: Vec<&Tensor> = std::iter::once(hidden).chain(beside).collect();
        let (layer, pass, shape) = (Rc::clone(layer), Rc::clone(pass), self.shape.clone());
        tape.checkpoint(
            &inputs,
            Rc::new(move |tape, inputs| layer.forward(tape, &shape, &pass, &inputs[0], inputs.get(1), index)),
        )
    }

    /// The whole forward pass: the loss in training, else the logits of the last token or of all.
    pub fn forward(&self, tape: &Tape, workload: &Workload) -> Tensor {
        let training = workload.task.trains();
        let encoded = self.encoder.as_ref().map(|encoder| encoder.encode(tape, workload));
        let length = self.tokens_of(workload.length);
        let pass = self.pass(tape, workload, workload.batch, length, 0, training);
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
