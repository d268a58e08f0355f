//! Transformers as the library `transformers` runs them: its decoders and encoders, line by line, on sizes.
//!
//! What stands here follows `modeling_*.py` of transformers 5: which Python variable holds what until when, what autocast
//! casts, what the cache keeps. A family that is not known by name runs as a Llama of its widths.

use std::cell::RefCell;
use std::rc::Rc;

use oomph_model::architecture::{Head, Kind as StackKind, Norm as NormKind, Positions, QueryKeyNorm, Transformer};

use super::parts::{Norm, NormStyle, Use, Weights, activate};
use crate::tape::{Heads, Kind, Linear, Owner, Tape, Tensor};
use crate::workload::{Attention as How, Workload};

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
    layers: Vec<Rc<Layer>>,
    final_norm: Option<Norm>,
    transform: Option<(Linear, Norm)>,
    head: Option<Linear>,
    encoder: Option<Box<Stack>>,
}

/// Tokens that are generated one by one before the last.
const FOLLOWED: u64 = 16;

struct Layer {
    norms: Vec<Norm>,
    attention: Attention,
    cross: Option<(Attention, Norm)>,
    mlp: Mlp,
    shared: Option<Gated>,
    shared_gate: Option<Linear>,
}

struct Attention {
    query: Linear,
    key: Option<Linear>,
    value: Option<Linear>,
    output: Linear,
    query_norm: Option<Norm>,
    key_norm: Option<Norm>,
    latent: Option<Latent>,
}

struct Latent {
    query_down: Option<(Linear, Norm)>,
    down: Linear,
    norm: Norm,
    up: Linear,
}

enum Mlp {
    Gated(Gated),
    Fused { both: Linear, down: Linear },
    Plain { up: Linear, down: Linear },
    Experts { router: Tensor, both: Packed, down: Packed },
}

/// The matrices of all experts in one tensor, with LoRA beside them.
struct Packed {
    weight: Tensor,
    adapter: Option<(Tensor, Tensor)>,
}

struct Gated {
    gate: Linear,
    up: Linear,
    down: Linear,
}

/// What all layers of a pass share.
pub struct Pass {
    batch: u64,
    length: u64,
    /// Tokens in the cache before this pass.
    past: u64,
    masked: bool,
    how: How,
    training: bool,
    rotary: Option<(Tensor, Tensor)>,
    /// Whether the cache keeps keys and values, and those of earlier passes.
    caching: bool,
    cache: RefCell<Vec<(Tensor, Tensor)>>,
    crossed: RefCell<Vec<(Tensor, Tensor)>>,
    causal: bool,
    _mask: Option<Tensor>,
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
        let patches = shape
            .image
            .map(|image| weights.linear(image.channels * image.patch * image.patch, shape.hidden, true, Use::Other));
        let convolutions = shape.audio.map_or_else(Vec::new, |audio| {
            vec![
                weights.linear(audio.mel_bins * 3, shape.hidden, true, Use::Other),
                weights.linear(shape.hidden * 3, shape.hidden, true, Use::Other),
            ]
        });
        let embedding_norm = shape.embedding_norm.then(|| norm(weights, shape.hidden));
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
        for (index, layer) in self.layers.iter().enumerate() {
            let inputs: Vec<&Tensor> = std::iter::once(&hidden).chain(encoded).collect();
            hidden = if workload.checkpointing && pass.training {
                let (layer, pass, shape) = (Rc::clone(layer), Rc::clone(pass), shape.clone());
                tape.checkpoint(
                    &inputs,
                    Rc::new(move |tape, inputs| layer.forward(tape, &shape, &pass, &inputs[0], inputs.get(1), index)),
                )
            } else {
                layer.forward(tape, shape, pass, &hidden, encoded, index)
            };
        }
        if let Some(norm) = &self.final_norm {
            hidden = norm.forward(tape, &hidden);
        }
        let dropped = shape.hidden_dropout > 0.0 && pass.training && matches!(shape.family.as_str(), "t5" | "mt5");
        tape.dropout(&hidden, dropped)
    }

    fn embed(&self, tape: &Tape, pass: &Pass) -> Tensor {
        let shape = &self.shape;
        let rows = pass.batch.saturating_mul(pass.length);
        let training = pass.training;
        let mut hidden = match (&self.tokens, &self.patches) {
            (_, Some(patches)) => {
                let image = tape.empty(rows.saturating_mul(patches.inputs), patches.weight.kind);
                let embedded = tape.linear(patches, &image.detach());
                drop(image);
                tape.contiguous(&embedded)
            }
            _ if !self.convolutions.is_empty() => self.convolved(tape, rows),
            (Some(table), _) => tape.embedding(table, rows, shape.embedding_dim),
            _ => tape.empty(rows.saturating_mul(shape.hidden), Kind::Half),
        };
        if let Some((up, _)) = &self.embedding_projections {
            hidden = tape.linear(up, &hidden);
        }
        if shape.family.starts_with("gemma") {
            hidden = tape.keeping_nothing(&hidden);
        }
        if let Some(types) = &self.token_types {
            let types = tape.embedding(types, rows, shape.hidden);
            hidden = tape.add(&hidden, &types);
        }
        if let (Some(table), Positions::Learned(_) | Positions::Fixed(_)) = (&self.positions, shape.positions) {
            let places = if shape.family == "opt" { rows } else { pass.length };
            let places = tape.embedding(table, places, shape.hidden);
            hidden = tape.add(&hidden, &places);
        }
        if let Some(norm) = &self.embedding_norm {
            hidden = norm.forward(tape, &hidden);
        }
        let dropout = shape.embedding_dropout.max(if shape.family == "t5" { shape.hidden_dropout } else { 0.0 });
        tape.dropout(&hidden, training && dropout > 0.0)
    }

    /// Whisper's two convolutions over the spectrogram, the second with stride 2.
    fn convolved(&self, tape: &Tape, rows: u64) -> Tensor {
        let [first, second] = self.convolutions.as_slice() else { return tape.empty(0, Kind::Half) };
        let sound = tape.empty(rows.saturating_mul(2).saturating_mul(first.inputs), first.weight.kind);
        let mut hidden = tape.linear(first, &sound);
        drop(sound);
        hidden = tape.keeping_input(&hidden);
        // Seen as a product, a row of the second has three rows of the first, every other one twice.
        let seen = hidden.viewed(rows.saturating_mul(second.inputs));
        hidden = tape.linear(second, &seen);
        tape.keeping_input(&hidden)
    }

    fn pass(&self, tape: &Tape, workload: &Workload, batch: u64, length: u64, past: u64, training: bool) -> Rc<Pass> {
        let shape = &self.shape;
        let decoder = shape.kind == StackKind::Decoder;
        let kind = self.tokens.as_ref().map_or(Kind::Half, |table| table.kind);
        let rotary = match shape.positions {
            Positions::Rotary(width) => {
                let width =
                    if shape.latent.is_some() { shape.latent.map_or(0, |latent| latent.rope_dim) } else { width };
                Some((tape.empty(length.saturating_mul(width), kind), tape.empty(length.saturating_mul(width), kind)))
            }
            _ => None,
        };
        let eager = workload.attention == How::Eager || shape.attention_softcap.is_some();
        let windowed = shape.sliding_window.is_some_and(|window| window <= length.saturating_add(past))
            && shape.windowed_layers > 0;
        let masked = workload.padding || windowed || (eager && decoder);
        let keys = length.saturating_add(past);
        let mask = masked.then(|| {
            // A mask of bytes for fused attention; of numbers where scores are written out.
            let kind = if eager { kind } else { Kind::Byte };
            tape.empty(batch.saturating_mul(length).saturating_mul(keys), kind)
        });
        Rc::new(Pass {
            batch,
            length,
            past,
            masked,
            how: if eager { How::Eager } else { How::Sdpa },
            training,
            rotary,
            caching: decoder && !(workload.checkpointing && training),
            cache: RefCell::default(),
            crossed: RefCell::default(),
            causal: decoder,
            _mask: mask,
        })
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

    fn encode(&self, tape: &Tape, workload: &Workload) -> Tensor {
        let pass =
            self.pass(tape, workload, workload.batch, self.tokens_of(workload.length), 0, workload.task.trains());
        self.hidden(tape, workload, &pass, None)
    }

    /// From hidden states to the loss, or to logits.
    fn answer(&self, tape: &Tape, workload: &Workload, hidden: Tensor, pass: &Pass) -> Tensor {
        let training = pass.training;
        let Some(head) = &self.head else { return hidden };
        if matches!(self.shape.head, Head::Classes(_) | Head::Projection(_)) {
            let first = tape.slice(&hidden, pass.batch.saturating_mul(self.shape.hidden));
            drop(hidden);
            let logits = tape.linear(head, &first);
            return if training { tape.cross_entropy(&logits, false) } else { logits };
        }
        let mut hidden = hidden;
        if let Some((_, down)) = &self.embedding_projections {
            hidden = tape.linear(down, &hidden);
        }
        if let Some((dense, norm)) = &self.transform {
            hidden = tape.linear(dense, &hidden);
            hidden = activate(tape, &self.shape.activation, &hidden);
            hidden = norm.forward(tape, &hidden);
        }
        let mut logits = tape.owned(Owner::Logits, || tape.linear(head, &hidden));
        if self.shape.logit_softcap.is_some() {
            logits = tape.owned(Owner::Logits, || tape.keeping_nothing(&logits));
            logits = tape.owned(Owner::Logits, || tape.keeping_output(&logits));
            logits = tape.owned(Owner::Logits, || tape.keeping_nothing(&logits));
        }
        if !training {
            return logits;
        }
        let upcast = self.shape.kind == StackKind::Decoder && self.encoder.is_none();
        let loss = tape.cross_entropy(&logits, upcast);
        if workload.trainer && tape.is_autocast() {
            // accelerate makes every output fp32 before the program sees it.
            let copy = tape.owned(Owner::Logits, || tape.no_grad(|| tape.cast(&logits, Kind::Single)));
            drop(copy);
        }
        loss
    }

    /// Generation: the prompt, then tokens one by one on a cache that is copied as it grows (`DynamicCache`).
    pub fn generate(&self, tape: &Tape, workload: &Workload) {
        let pass = self.pass(tape, workload, workload.batch, workload.length, 0, false);
        let hidden = self.hidden(tape, workload, &pass, None);
        let last = hidden.viewed(workload.batch.saturating_mul(self.shape.hidden));
        let logits = self.answer(tape, workload, last, &pass);
        drop((hidden, logits));
        let mut cache = pass.cache.take();
        drop(pass);
        // The first steps one by one; of very many the last, on a cache that grew at once.
        let last = workload.new_tokens.saturating_sub(1);
        let steps = (0..last.min(FOLLOWED)).chain((last > FOLLOWED).then(|| last - 1));
        for step in steps {
            let past = workload.length.saturating_add(step);
            if step >= FOLLOWED {
                let before = workload.length.saturating_add(FOLLOWED).max(1);
                for pair in &mut cache {
                    let grown = |tensor: &Tensor| {
                        tape.owned(Owner::KvCache, || tape.empty(tensor.count / before * past, tensor.kind))
                    };
                    *pair = (grown(&pair.0), grown(&pair.1));
                }
            }
            let pass = self.pass(tape, workload, workload.batch, 1, past, false);
            *pass.cache.borrow_mut() = cache;
            let hidden = self.hidden(tape, workload, &pass, None);
            let logits = self.answer(tape, workload, hidden, &pass);
            drop(logits);
            cache = pass.cache.take();
        }
    }
}

impl Layer {
    fn new(weights: &mut Weights<'_>, shape: &Transformer, index: u64, style: NormStyle) -> Self {
        let hidden = shape.hidden;
        let attention = Attention::new(weights, shape, style, hidden);
        let plain = shape.norm == NormKind::Plain;
        let norms = (0..shape.norms_per_layer)
            .map(|_| weights.norm(hidden, style, !plain, shape.norm_bias && !plain))
            .collect();
        let cross = shape.cross_attention.then(|| {
            let norm = weights.norm(hidden, style, true, shape.norm_bias);
            (Attention::new(weights, shape, style, hidden), norm)
        });
        let gated = |weights: &mut Weights<'_>, width: u64| Gated {
            gate: weights.linear(hidden, width, shape.mlp_bias, Use::Matrix),
            up: weights.linear(hidden, width, shape.mlp_bias, Use::Matrix),
            down: weights.linear(width, hidden, shape.mlp_bias, Use::Matrix),
        };
        let experts = shape.experts.filter(|experts| experts.in_layer(index));
        let mut shared = None;
        let mut shared_gate = None;
        let mlp = if let Some(experts) = experts {
            if experts.shared_intermediate > 0 {
                shared = Some(gated(weights, experts.shared_intermediate));
                shared_gate = experts.shared_gate.then(|| weights.linear(hidden, 1, false, Use::Other));
            }
            let width = experts.intermediate;
            Mlp::Experts {
                router: weights.bare(experts.count, hidden, Use::Other),
                both: Packed::new(weights, experts.count, hidden, 2 * width, true),
                down: Packed::new(weights, experts.count, width, hidden, false),
            }
        } else if shape.gated_mlp && matches!(shape.family.as_str(), "phi3" | "glm4" | "phi4") {
            Mlp::Fused {
                both: weights.linear(hidden, 2 * shape.intermediate, shape.mlp_bias, Use::Matrix),
                down: weights.linear(shape.intermediate, hidden, shape.mlp_bias, Use::Matrix),
            }
        } else if shape.gated_mlp {
            Mlp::Gated(gated(weights, shape.intermediate))
        } else {
            Mlp::Plain {
                up: weights.linear(hidden, shape.intermediate, shape.mlp_bias, Use::Matrix),
                down: weights.linear(shape.intermediate, hidden, shape.mlp_bias, Use::Matrix),
            }
        };
        Self { norms, attention, cross, mlp, shared, shared_gate }
    }

    fn forward(
        &self,
        tape: &Tape,
        shape: &Transformer,
        pass: &Pass,
        x: &Tensor,
        encoded: Option<&Tensor>,
        index: usize,
    ) -> Tensor {
        let dropped = |x: &Tensor| tape.dropout(x, pass.training && shape.hidden_dropout > 0.0);
        let norm = |at: usize, x: &Tensor| match self.norms.get(at) {
            Some(norm) => norm.forward(tape, x),
            None => x.clone(),
        };
        if shape.post_norm {
            let mut hidden = self.attention.forward(tape, shape, pass, x, None, index);
            hidden = dropped(&hidden);
            hidden = norm(0, &tape.add(&hidden, x));
            if let (Some((cross, norm)), Some(encoded)) = (&self.cross, encoded) {
                let attended = dropped(&cross.forward(tape, shape, pass, &hidden, Some(encoded), index));
                hidden = norm.forward(tape, &tape.add(&hidden, &attended));
            }
            let mut inner = self.mlp(tape, shape, pass, &hidden);
            inner = dropped(&inner);
            return norm(1, &tape.add(&inner, &hidden));
        }
        if shape.parallel_residual {
            return self.parallel(tape, shape, pass, x, index, &norm, &dropped);
        }
        let mut hidden = norm(0, x);
        hidden = self.attention.forward(tape, shape, pass, &hidden, None, index);
        let sandwiched = self.norms.len() == 4;
        if sandwiched {
            hidden = norm(1, &hidden);
        }
        hidden = dropped(&hidden);
        hidden = tape.add(x, &hidden);
        if let (Some((cross, norm)), Some(encoded)) = (&self.cross, encoded) {
            let residual = hidden.clone();
            hidden = norm.forward(tape, &hidden);
            hidden = cross.forward(tape, shape, pass, &hidden, Some(encoded), index);
            hidden = dropped(&hidden);
            hidden = tape.add(&residual, &hidden);
        }
        let residual = hidden.clone();
        hidden = norm(if sandwiched { 2 } else { 1 }, &hidden);
        hidden = self.mlp(tape, shape, pass, &hidden);
        if sandwiched {
            hidden = norm(3, &hidden);
        }
        hidden = dropped(&hidden);
        tape.add(&residual, &hidden)
    }

    /// Attention and MLP read the same input.
    #[allow(clippy::too_many_arguments)]
    fn parallel(
        &self,
        tape: &Tape,
        shape: &Transformer,
        pass: &Pass,
        x: &Tensor,
        index: usize,
        norm: &dyn Fn(usize, &Tensor) -> Tensor,
        dropped: &dyn Fn(&Tensor) -> Tensor,
    ) -> Tensor {
        if self.norms.len() > 1 && !shape.family.starts_with("falcon") {
            let attended = self.attention.forward(tape, shape, pass, &norm(0, x), None, index);
            let attended = dropped(&attended);
            let inner = self.mlp(tape, shape, pass, &norm(1, x));
            let mut sum = dropped(&inner);
            drop(inner);
            sum = tape.add(&sum, &attended);
            return tape.add(&sum, x);
        }
        let normed = norm(0, x);
        let second = (self.norms.len() > 1).then(|| norm(1, x));
        let attended = self.attention.forward(tape, shape, pass, &normed, None, index);
        // `mlp_output += attention_output` writes in place.
        let inner = self.mlp(tape, shape, pass, second.as_ref().unwrap_or(&normed));
        let sum = tape.add_in_place(&inner, &attended);
        drop(inner);
        tape.add(x, &dropped(&sum))
    }

    fn mlp(&self, tape: &Tape, shape: &Transformer, pass: &Pass, x: &Tensor) -> Tensor {
        let act = shape.activation.as_str();
        match &self.mlp {
            Mlp::Gated(gated) => gated.forward(tape, shape, pass, x),
            Mlp::Fused { both, down } => {
                let both = tape.linear(both, x);
                let parts = tape.split(&both, &[both.count / 2, both.count / 2]);
                let product = tape.mul(&parts[1], &activate(tape, act, &parts[0]));
                drop((both, parts));
                tape.linear(down, &product)
            }
            Mlp::Plain { up, down } => {
                let mut hidden = tape.linear(up, x);
                hidden = activate(tape, act, &hidden);
                let t5 = matches!(shape.family.as_str(), "t5" | "mt5");
                hidden = tape.dropout(&hidden, t5 && pass.training && shape.hidden_dropout > 0.0);
                if t5 {
                    hidden = tape.cast(&hidden, down.weight.kind);
                }
                tape.linear(down, &hidden)
            }
            Mlp::Experts { router, both, down } => self.experts(tape, shape, x, router, both, down),
        }
    }

    /// Experts as one grouped product over the chosen pairs of tokens and experts (`grouped_mm_experts_forward`).
    fn experts(
        &self,
        tape: &Tape,
        shape: &Transformer,
        x: &Tensor,
        router: &Tensor,
        both: &Packed,
        down: &Packed,
    ) -> Tensor {
        let Some(experts) = shape.experts else { return x.clone() };
        let (hidden, width) = (shape.hidden, experts.intermediate);
        let rows = x.count / hidden.max(1);
        let logits = tape.matmul(x, router, rows * experts.count);
        let chances = tape.softmax(&logits, Kind::Single);
        let pairs = rows * experts.active;
        let scores = tape.slice_copy(&chances, pairs, logits.kind);
        let order = [0; 6].map(|_| tape.empty(pairs, Kind::Long));
        let mut chosen = tape.gather(x, pairs * hidden);
        chosen = tape.matmul(&chosen, &both.adapted(tape), pairs * 2 * width);
        let parts = tape.split(&chosen, &[pairs * width, pairs * width]);
        drop(chosen);
        let mut product = tape.mul(&activate(tape, &shape.activation, &parts[0]), &parts[1]);
        drop(parts);
        product = tape.matmul(&product, &down.adapted(tape), pairs * hidden);
        product = tape.mul(&product, &scores);
        // Put back in the order of the tokens, and summed over the experts of each.
        product = tape.gather(&product, pairs * hidden);
        let mut result = tape.reduced_to(&product, x.count);
        drop((product, order, scores, chances, logits));
        if result.kind != x.kind {
            result = tape.cast(&result, x.kind);
        }
        if let Some(shared) = &self.shared {
            let pass = Pass::plain();
            let mut beside = shared.forward(tape, shape, &pass, x);
            if let Some(gate) = &self.shared_gate {
                beside = tape.mul(&tape.keeping_output(&tape.linear(gate, x)), &beside);
            }
            result = tape.add(&result, &beside);
        }
        result
    }
}

impl Pass {
    /// A pass for parts that ask nothing of it.
    fn plain() -> Self {
        Self {
            batch: 0,
            length: 0,
            past: 0,
            masked: false,
            how: How::Sdpa,
            training: false,
            rotary: None,
            caching: false,
            cache: RefCell::default(),
            crossed: RefCell::default(),
            causal: false,
            _mask: None,
        }
    }
}

impl Packed {
    fn new(weights: &mut Weights<'_>, count: u64, inputs: u64, outputs: u64, fused: bool) -> Self {
        let weight = weights.bare(count.saturating_mul(outputs), inputs, Use::Other);
        Self { weight, adapter: weights.expert_adapter(count, inputs, outputs, fused) }
    }

    /// The matrices with LoRA's product added, which makes them anew (PEFT's parametrization).
    fn adapted(&self, tape: &Tape) -> Tensor {
        let Some((down, up)) = &self.adapter else { return self.weight.clone() };
        let mut delta = tape.matmul(up, down, self.weight.count);
        delta = tape.keeping_nothing(&delta);
        delta = tape.cast(&delta, self.weight.kind);
        tape.add(&self.weight, &delta)
    }
}

impl Gated {
    fn forward(&self, tape: &Tape, shape: &Transformer, pass: &Pass, x: &Tensor) -> Tensor {
        let gate = activate(tape, &shape.activation, &tape.linear(&self.gate, x));
        let up = tape.linear(&self.up, x);
        let mut product = tape.mul(&gate, &up);
        drop((gate, up));
        if shape.family == "t5" || shape.family == "mt5" {
            product = tape.dropout(&product, pass.training && shape.hidden_dropout > 0.0);
        }
        tape.linear(&self.down, &product)
    }
}

impl Attention {
    fn new(weights: &mut Weights<'_>, shape: &Transformer, style: NormStyle, hidden: u64) -> Self {
        let (queries, keys) = (shape.query_width(), shape.kv_width());
        let bias = shape.attention_bias;
        let default = |name: char| match shape.family.as_str() {
            // PEFT adapts the fused projection, or queries and values.
            "phi3" | "gpt_neox" | "falcon" | "gpt2" | "bloom" => Use::Adapted,
            _ if name == 'k' => Use::Matrix,
            _ => Use::Adapted,
        };
        let per_head = |weights: &mut Weights<'_>, width: u64| match shape.query_key_norm {
            QueryKeyNorm::None => None,
            QueryKeyNorm::PerHead => Some(weights.norm(shape.head_dim, style, true, shape.norm == NormKind::Layer)),
            QueryKeyNorm::Whole => Some(weights.norm(width, style, true, false)),
        };
        let output =
            |weights: &mut Weights<'_>| weights.linear(shape.value_width(), hidden, shape.output_bias, Use::Matrix);
        if let Some(latent) = shape.latent {
            let wide = shape.heads * (latent.nope_dim + latent.rope_dim);
            let query_down = latent.query_rank.map(|rank| {
                (weights.linear(hidden, rank, bias, Use::Matrix), weights.norm(rank, NormStyle::Llama, true, false))
            });
            return Self {
                query: weights.linear(latent.query_rank.unwrap_or(hidden), wide, false, Use::Adapted),
                key: None,
                value: None,
                output: output(weights),
                query_norm: None,
                key_norm: None,
                latent: Some(Latent {
                    query_down,
                    down: weights.linear(hidden, latent.kv_rank + latent.rope_dim, bias, Use::Matrix),
                    norm: weights.norm(latent.kv_rank, NormStyle::Llama, true, false),
                    up: weights.linear(
                        latent.kv_rank,
                        shape.heads * (latent.nope_dim + latent.value_dim),
                        false,
                        Use::Matrix,
                    ),
                }),
            };
        }
        let fused = matches!(
            shape.family.as_str(),
            "gpt2" | "gpt_bigcode" | "gpt_neox" | "falcon" | "bloom" | "phi3" | "mpt" | "dbrx"
        );
        let query = weights.linear(hidden, if fused { queries + 2 * keys } else { queries }, bias, default('q'));
        let key = (!fused).then(|| weights.linear(hidden, keys, bias && shape.family != "whisper", default('k')));
        let value = (!fused).then(|| weights.linear(hidden, keys, bias, default('v')));
        let output = output(weights);
        let (query_norm, key_norm) = (per_head(weights, queries), per_head(weights, keys));
        Self { query, key, value, output, query_norm, key_norm, latent: None }
    }

    fn forward(
        &self,
        tape: &Tape,
        shape: &Transformer,
        pass: &Pass,
        x: &Tensor,
        encoded: Option<&Tensor>,
        index: usize,
    ) -> Tensor {
        let source = encoded.unwrap_or(x);
        let (mut query, mut key, mut value);
        match (&self.latent, &self.key, &self.value) {
            (Some(latent), _, _) => (query, key, value) = self.compressed(tape, shape, pass, latent, x),
            (None, Some(keys), Some(values)) => {
                query = tape.linear(&self.query, x);
                if matches!(shape.family.as_str(), "opt" | "whisper" | "bart") {
                    query = tape.keeping_nothing(&query);
                }
                key = tape.linear(keys, source);
                value = tape.linear(values, source);
            }
            _ => {
                let all = tape.linear(&self.query, x);
                let rows = x.count / shape.hidden.max(1);
                let widths = [shape.query_width(), shape.kv_width(), shape.kv_width()].map(|width| rows * width);
                let mut parts = match shape.family.as_str() {
                    "phi3" => widths.iter().map(|&width| tape.slice(&all, width)).collect(),
                    _ => tape.split(&all, &widths),
                };
                if shape.family == "falcon" {
                    // Transposed and flattened, which copies each.
                    parts = parts.iter().map(|part| tape.contiguous(part)).collect();
                }
                drop(all);
                value = parts.pop().unwrap_or_else(|| x.clone());
                key = parts.pop().unwrap_or_else(|| x.clone());
                query = parts.pop().unwrap_or_else(|| x.clone());
            }
        }
        if let (Some(query_norm), Some(key_norm)) = (&self.query_norm, &self.key_norm) {
            query = query_norm.forward(tape, &query);
            key = key_norm.forward(tape, &key);
        }
        if let (Some((cos, sin)), None, None) = (&pass.rotary, &self.latent, encoded) {
            let turned = (rotated(tape, shape, &query, cos, sin), rotated(tape, shape, &key, cos, sin));
            (query, key) = turned;
        }
        let mut past = 0;
        if pass.caching && encoded.is_none() {
            past = pass.past;
            let mut cache = pass.cache.borrow_mut();
            let owner = if pass.training { Owner::Activations } else { Owner::KvCache };
            let joined =
                |old: Option<&Tensor>, new: &Tensor, kind: Kind| tape.owned(owner, || tape.joined(old, new, kind));
            // The cache has the type of the first keys, and copies even what comes first.
            let old = cache.get(index).cloned();
            let pair = (
                joined(old.as_ref().map(|pair| &pair.0), &key, key.kind),
                joined(old.as_ref().map(|pair| &pair.1), &value, key.kind),
            );
            drop(old);
            if let Some(slot) = cache.get_mut(index) {
                *slot = (pair.0.detach(), pair.1.detach());
            } else {
                cache.push((pair.0.detach(), pair.1.detach()));
            }
            (key, value) = pair;
        }
        if pass.caching && encoded.is_some() {
            // Keys and values of the encoder's output are kept for the tokens to come (`EncoderDecoderCache`).
            (key, value) = (tape.joined(None, &key, key.kind), tape.joined(None, &value, value.kind));
            pass.crossed.borrow_mut().push((key.detach(), value.detach()));
        }
        let keys =
            if encoded.is_some() { source.count / shape.hidden.max(1) / pass.batch.max(1) } else { pass.length + past };
        let heads = Heads {
            batch: pass.batch,
            queries: pass.length,
            keys,
            heads: shape.heads,
            kv_heads: shape.kv_heads,
            width: query.count / (pass.batch * pass.length * shape.heads).max(1),
            value_width: shape.value_width() / shape.heads.max(1),
            dropout: pass.training && shape.attention_dropout > 0.0,
            masked: pass.masked,
        };
        let attended = match pass.how {
            How::Eager => eager(tape, shape, heads, query, key, value, pass),
            How::Sdpa => {
                let groups = shape.heads / shape.kv_heads.max(1);
                let expands = groups > 1 && (heads.masked || heads.width != heads.value_width || heads.width > 256);
                if expands && shape.family != "falcon" {
                    key = tape.repeat(&key, groups);
                    value = tape.repeat(&value, groups);
                }
                // T5 adds its positions to the scores, for one sample or, with a mask, for all; attention to an encoder has
                // none but that of the mask.
                let own_mask = heads.masked && (encoded.is_some() || !pass.causal);
                let bias = match shape.positions {
                    Positions::Buckets(_) if own_mask => Some(heads.batch),
                    Positions::Buckets(_) if encoded.is_none() => Some(1),
                    Positions::Buckets(_) => Some(0),
                    _ => None,
                };
                let attended = tape.sdpa(&query, &key, &value, heads, bias);
                // Joined queries lie head by head, and so does the output, which is then put in order of tokens.
                let by_head = shape.family == "phi3"
                    || matches!(shape.positions, Positions::Rotary(width) if width < shape.head_dim && shape.latent.is_none());
                if by_head && attended.kind == Kind::Half { tape.contiguous(&attended) } else { attended }
            }
        };
        tape.linear(&self.output, &attended)
    }

    /// Multi-head latent attention (DeepSeek V2): keys and values unfold from a compressed vector.
    fn compressed(
        &self,
        tape: &Tape,
        shape: &Transformer,
        pass: &Pass,
        latent: &Latent,
        x: &Tensor,
    ) -> (Tensor, Tensor, Tensor) {
        let Some(widths) = shape.latent else { return (x.clone(), x.clone(), x.clone()) };
        let rows = x.count / shape.hidden.max(1);
        let all = |width: u64| rows * shape.heads * width;
        let query = match &latent.query_down {
            Some((down, norm)) => tape.linear(&self.query, &norm.forward(tape, &tape.linear(down, x))),
            None => tape.linear(&self.query, x),
        };
        let query_parts = tape.split(&query, &[all(widths.nope_dim), all(widths.rope_dim)]);
        let compressed = tape.linear(&latent.down, x);
        let compressed_parts = tape.split(&compressed, &[rows * widths.kv_rank, rows * widths.rope_dim]);
        let unfolded = tape.linear(&latent.up, &latent.norm.forward(tape, &compressed_parts[0]));
        let parts = tape.split(&unfolded, &[all(widths.nope_dim), all(widths.value_dim)]);
        let (mut turned_query, mut turned_key) = (query_parts[1].clone(), compressed_parts[1].clone());
        if pass.rotary.is_some() {
            // Rotation as a product of complex numbers: a copy in fp32, the product, and back.
            let turn = |x: &Tensor| {
                let single = tape.cast(x, Kind::Single);
                tape.cast(&tape.keeping_nothing(&single), x.kind)
            };
            (turned_query, turned_key) = (turn(&turned_query), turn(&turned_key));
        }
        let turned_key = tape.expanded(&turned_key, shape.heads);
        let key = tape.cat(&[&parts[0], &turned_key]);
        let query = tape.cat(&[&query_parts[0], &turned_query]);
        (query, key, parts[1].clone())
    }
}

/// Rotary positions: `x cos + rotate_half(x) sin`.
fn rotated(tape: &Tape, shape: &Transformer, x: &Tensor, cos: &Tensor, sin: &Tensor) -> Tensor {
    let Positions::Rotary(width) = shape.positions else { return x.clone() };
    let part = x.count / shape.head_dim.max(1) * width.min(shape.head_dim);
    let partial = width < shape.head_dim;
    let turning = if partial { tape.slice(x, part) } else { x.clone() };
    let kept = partial.then(|| tape.slice(x, x.count - part));
    let plain = tape.mul(&turning, cos);
    let (first, second) = (tape.slice(&turning, part / 2), tape.slice(&turning, part / 2));
    let half = tape.cat(&[&tape.keeping_nothing(&second), &first]);
    drop((first, second));
    let crossed = tape.mul(&half, sin);
    drop(half);
    let sum = tape.add(&plain, &crossed);
    drop((plain, crossed));
    match kept {
        Some(kept) => tape.cat(&[&sum, &kept]),
        None => sum,
    }
}

/// Attention written out: a matrix of scores for every head.
fn eager(
    tape: &Tape,
    shape: &Transformer,
    heads: Heads,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pass: &Pass,
) -> Tensor {
    let groups = heads.heads / heads.kv_heads.max(1);
    let (keys, values) = (tape.repeat(&key, groups), tape.repeat(&value, groups));
    let scores_count = heads.batch * heads.heads * heads.queries * heads.keys;
    let mut scores = tape.matmul(&query, &keys, scores_count);
    scores = tape.keeping_nothing(&scores);
    if shape.attention_softcap.is_some() {
        scores = tape.keeping_nothing(&scores);
        scores = tape.keeping_output(&scores);
        scores = tape.keeping_nothing(&scores);
    }
    if let Some(mask) = &pass._mask {
        scores = tape.add(&scores, mask);
    }
    let kind = query.kind;
    let upcast = pass.causal && shape.family != "gpt2" && shape.family != "falcon";
    scores = tape.softmax(&scores, if upcast { Kind::Single } else { scores.kind });
    if upcast || matches!(shape.family.as_str(), "gpt2") {
        scores = tape.cast(&scores, kind);
    }
    scores = tape.dropout(&scores, heads.dropout);
    let mut output = tape.matmul(&scores, &values, heads.batch * heads.heads * heads.queries * heads.value_width);
    output = tape.contiguous(&output);
    drop(scores);
    output
}
