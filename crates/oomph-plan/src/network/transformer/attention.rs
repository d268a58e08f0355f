//! Attention of every kind: joined or separate projections, grouped heads, compressed keys and values, fused or written
//! out.

use oomph_model::architecture::{Norm as NormKind, Positions, QueryKeyNorm, Transformer};

use super::pass::Pass;
use crate::network::parts::{Norm, NormStyle, Use, Weights};
use crate::tape::{Heads, Kind, Linear, Tape, TapeOwner, Tensor, product};
use crate::workload::Attention as How;

pub(super) struct Attention {
    pub(super) query: Linear,
    pub(super) key: Option<Linear>,
    pub(super) value: Option<Linear>,
    pub(super) output: Linear,
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

impl Attention {
    pub(super) fn new(weights: &mut Weights<'_>, shape: &Transformer, style: NormStyle, hidden: u64) -> Self {
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
            let wide = product([shape.heads, latent.nope_dim.saturating_add(latent.rope_dim)]);
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
                    down: weights.linear(hidden, latent.kv_rank.saturating_add(latent.rope_dim), bias, Use::Matrix),
                    norm: weights.norm(latent.kv_rank, NormStyle::Llama, true, false),
                    up: weights.linear(
                        latent.kv_rank,
                        product([shape.heads, latent.nope_dim.saturating_add(latent.value_dim)]),
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
        let query = weights.linear(
            hidden,
            if fused { queries.saturating_add(keys).saturating_add(keys) } else { queries },
            bias,
            default('q'),
        );
        let key = (!fused).then(|| weights.linear(hidden, keys, bias && shape.family != "whisper", default('k')));
        let value = (!fused).then(|| weights.linear(hidden, keys, bias, default('v')));
        let output = output(weights);
        let (query_norm, key_norm) = (per_head(weights, queries), per_head(weights, keys));
        Self { query, key, value, output, query_norm, key_norm, latent: None }
    }

    pub(super) fn forward(
        &self,
        tape: &Tape,
        shape: &Transformer,
        pass: &Pass,
        x: &Tensor,
        encoded: Option<&Tensor>,
        index: usize,
    ) -> Tensor {
        let call = Call { tape, shape, pass, encoded, index };
        // What an encoder's output became in the first pass of a generation.
        let known = encoded.and_then(|_| pass.crossed.borrow().get(index).cloned());
        let (mut query, mut key, mut value) = self.projected(&call, x, known.as_ref());
        if let (Some(query_norm), Some(key_norm)) = (&self.query_norm, &self.key_norm) {
            query = query_norm.forward(tape, &query);
            key = key_norm.forward(tape, &key);
        }
        if let (Some((cos, sin)), None, None) = (&pass.rotary, &self.latent, encoded) {
            let turned = (rotated(tape, shape, &query, cos, sin), rotated(tape, shape, &key, cos, sin));
            (query, key) = turned;
        }
        if pass.caching && encoded.is_none() {
            call.extend_cache(&mut key, &mut value);
        }
        if pass.caching && encoded.is_some() && known.is_none() {
            call.keep_crossed(&mut key, &mut value);
        }
        let heads = call.heads(&query);
        let attended = match pass.how {
            How::Eager => eager(tape, shape, heads, query, key, value, pass),
            How::Sdpa => {
                let groups = shape.heads / shape.kv_heads.max(1);
                let expands = groups > 1 && (heads.masked || heads.width != heads.value_width || heads.width > 256);
                if expands && shape.family != "falcon" {
                    key = tape.repeat(&key, groups);
                    value = tape.repeat(&value, groups);
                }
                call.fused(heads, &query, &key, &value)
            }
        };
        tape.linear(&self.output, &attended)
    }

    /// Queries, keys and values; the last two as they are `known` from an earlier pass.
    fn projected(&self, call: &Call<'_>, x: &Tensor, known: Option<&(Tensor, Tensor)>) -> (Tensor, Tensor, Tensor) {
        let Call { tape, shape, pass, .. } = *call;
        if let Some((key, value)) = known {
            return (tape.linear(&self.query, x), key.clone(), value.clone());
        }
        let source = call.encoded.unwrap_or(x);
        match (&self.latent, &self.key, &self.value) {
            (Some(latent), _, _) => self.compressed(tape, shape, pass, latent, x),
            (None, Some(keys), Some(values)) => {
                let mut query = tape.linear(&self.query, x);
                if matches!(shape.family.as_str(), "opt" | "whisper" | "bart") {
                    query = tape.keeping_nothing(&query);
                }
                (query, tape.linear(keys, source), tape.linear(values, source))
            }
            _ => self.joined(tape, shape, x),
        }
    }

    /// Queries, keys and values from one projection.
    fn joined(&self, tape: &Tape, shape: &Transformer, x: &Tensor) -> (Tensor, Tensor, Tensor) {
        let all = tape.linear(&self.query, x);
        let rows = x.count / shape.hidden.max(1);
        let widths = [shape.query_width(), shape.kv_width(), shape.kv_width()].map(|width| product([rows, width]));
        let mut parts = match shape.family.as_str() {
            "phi3" => widths.iter().map(|&width| tape.slice(&all, width)).collect(),
            _ => tape.split(&all, &widths),
        };
        if shape.family == "falcon" {
            // Transposed and flattened, which copies each.
            parts = parts.iter().map(|part| tape.contiguous(part)).collect();
        }
        drop(all);
        let value = parts.pop().unwrap_or_else(|| x.clone());
        let key = parts.pop().unwrap_or_else(|| x.clone());
        let query = parts.pop().unwrap_or_else(|| x.clone());
        (query, key, value)
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
        let all = |width: u64| product([rows, shape.heads, width]);
        let query = match &latent.query_down {
            Some((down, norm)) => tape.linear(&self.query, &norm.forward(tape, &tape.linear(down, x))),
            None => tape.linear(&self.query, x),
        };
        let query_parts = tape.split(&query, &[all(widths.nope_dim), all(widths.rope_dim)]);
        let compressed = tape.linear(&latent.down, x);
        let compressed_parts =
            tape.split(&compressed, &[product([rows, widths.kv_rank]), product([rows, widths.rope_dim])]);
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

/// One use of an attention in a pass.
struct Call<'a> {
    tape: &'a Tape,
    shape: &'a Transformer,
    pass: &'a Pass,
    /// An encoder's output, for attention to it.
    encoded: Option<&'a Tensor>,
    /// Which attention of the pass it is.
    index: usize,
}

impl Call<'_> {
    /// A part of the cache and what is added to it, as one.
    fn cached(&self, old: Option<&Tensor>, new: &Tensor, kind: Kind) -> Tensor {
        let owner = if self.pass.training { TapeOwner::Activations } else { TapeOwner::KvCache };
        self.tape.owned(owner, || self.tape.joined(old, new, kind))
    }

    /// Adds keys and values to the cache, and makes them those of all tokens so far.
    fn extend_cache(&self, key: &mut Tensor, value: &mut Tensor) {
        let mut cache = self.pass.cache.borrow_mut();
        // The cache has the type of the first keys, and copies even what comes first.
        let old = cache.get(self.index).cloned();
        let pair = (
            self.cached(old.as_ref().map(|pair| &pair.0), key, key.kind),
            self.cached(old.as_ref().map(|pair| &pair.1), value, key.kind),
        );
        drop(old);
        if let Some(slot) = cache.get_mut(self.index) {
            *slot = (pair.0.detach(), pair.1.detach());
        } else {
            cache.push((pair.0.detach(), pair.1.detach()));
        }
        (*key, *value) = pair;
    }

    /// Keeps keys and values of the encoder's output for the tokens to come (`EncoderDecoderCache`).
    fn keep_crossed(&self, key: &mut Tensor, value: &mut Tensor) {
        (*key, *value) = (self.cached(None, key, key.kind), self.cached(None, value, value.kind));
        self.pass.crossed.borrow_mut().push((key.detach(), value.detach()));
    }

    fn heads(&self, query: &Tensor) -> Heads {
        let (shape, pass) = (self.shape, self.pass);
        let keys = match self.encoded {
            Some(source) => source.count / shape.hidden.max(1) / pass.batch.max(1),
            None => pass.length.saturating_add(if pass.caching { pass.past } else { 0 }),
        };
        Heads {
            batch: pass.batch,
            queries: pass.length,
            keys,
            heads: shape.heads,
            kv_heads: shape.kv_heads,
            width: query.count / product([pass.batch, pass.length, shape.heads]).max(1),
            value_width: shape.value_width() / shape.heads.max(1),
            dropout: pass.training && shape.attention_dropout > 0.0,
            masked: pass.masked,
        }
    }

    /// Attention by `scaled_dot_product_attention`.
    fn fused(&self, heads: Heads, query: &Tensor, key: &Tensor, value: &Tensor) -> Tensor {
        let Call { tape, shape, pass, encoded, .. } = *self;
        // T5 adds its positions to the scores, for one sample or, with a mask, for all; attention to an encoder has
        // none but that of the mask.
        let own_mask = heads.masked && (encoded.is_some() || !pass.causal);
        let biases = pass.biases.get().and_then(Option::as_ref);
        let bias = match biases {
            Some(_) if own_mask => Some(heads.batch),
            Some(_) if encoded.is_none() => Some(1),
            Some(_) => Some(0),
            None => None,
        };
        let own = biases.filter(|_| encoded.is_none());
        let mask = own.and_then(|biases| biases.mask(tape, bias.unwrap_or(1), own_mask || pass.causal));
        let attended = tape.sdpa(query, key, value, heads, bias);
        drop(mask);
        // Joined queries lie head by head, and so does the output, which is then put in order of tokens.
        let by_head = shape.family == "phi3"
            || matches!(shape.positions, Positions::Rotary(width) if width < shape.head_dim && shape.latent.is_none());
        if by_head && attended.kind == Kind::Half { tape.contiguous(&attended) } else { attended }
    }
}

/// Rotary positions: `x cos + rotate_half(x) sin`.
fn rotated(tape: &Tape, shape: &Transformer, x: &Tensor, cos: &Tensor, sin: &Tensor) -> Tensor {
    let Positions::Rotary(width) = shape.positions else { return x.clone() };
    let part = product([x.count / shape.head_dim.max(1), width.min(shape.head_dim)]);
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
    let scores_count = product([heads.batch, heads.heads, heads.queries, heads.keys]);
    let mut scores = tape.matmul(&query, &keys, scores_count);
    scores = tape.keeping_nothing(&scores);
    if shape.attention_softcap.is_some() {
        scores = tape.keeping_nothing(&scores);
        scores = tape.keeping_output(&scores);
        scores = tape.keeping_nothing(&scores);
    }
    if let Some(mask) = &pass.mask {
        scores = tape.add(&scores, mask);
    }
    let kind = query.kind;
    let upcast = pass.causal && shape.family != "gpt2" && shape.family != "falcon";
    scores = tape.softmax(&scores, if upcast { Kind::Single } else { scores.kind });
    if upcast || matches!(shape.family.as_str(), "gpt2") {
        scores = tape.cast(&scores, kind);
    }
    scores = tape.dropout(&scores, heads.dropout);
    let mut output =
        tape.matmul(&scores, &values, product([heads.batch, heads.heads, heads.queries, heads.value_width]));
    output = tape.contiguous(&output);
    drop(scores);
    output
}
