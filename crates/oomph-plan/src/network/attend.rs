//! Attention of diffusers: projections of an image's tokens, and of the text's where it is attended to.

use super::parts::{Use, Weights};
use crate::tape::{Heads, Linear, Tape, Tensor};

/// What is attended to, in numbers of things.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attended {
    /// Samples.
    pub batch: u64,
    /// Tokens that ask.
    pub tokens: u64,
    /// Tokens that answer.
    pub keys: u64,
    /// Tokens of the text.
    pub text: u64,
    /// Heads.
    pub heads: u64,
    /// Whether scores are made one by one.
    pub eager: bool,
}

impl Attended {
    /// The same tokens asking the text.
    pub fn to_text(self) -> Self {
        Self { keys: self.text, ..self }
    }

    /// Attention of queries, keys and values of one width.
    ///
    /// Score by score it is what diffusers did before PyTorch had fused kernels (`CrossAttnProcessor`): an empty matrix
    /// of scores to add to, the scores, and their softmax, all three at once.
    pub fn attend(self, tape: &Tape, q: &Tensor, k: &Tensor, v: &Tensor) -> Tensor {
        let width = q.count / (self.batch * self.heads * self.tokens).max(1);
        if self.eager {
            let numbers = self.batch.saturating_mul(self.heads).saturating_mul(self.tokens).saturating_mul(self.keys);
            let _empty = tape.empty(numbers, q.kind);
            let scores = tape.matmul(q, k, numbers);
            let probabilities = tape.softmax(&scores, q.kind);
            let probabilities = tape.cast(&probabilities, q.kind);
            return tape.matmul(&probabilities, v, q.count);
        }
        let heads = Heads {
            batch: self.batch,
            queries: self.tokens,
            keys: self.keys,
            heads: self.heads,
            kv_heads: self.heads,
            width,
            value_width: width,
            dropout: false,
            masked: false,
        };
        tape.sdpa(q, k, v, heads, None)
    }
}

/// The four projections of an attention.
pub(super) struct Projections {
    q: Linear,
    k: Linear,
    v: Linear,
    out: Linear,
}

impl Projections {
    /// Makes them; `source` is the width of what keys and values are made of, and `bias` says whether the first three
    /// have one.
    pub fn new(weights: &mut Weights<'_>, width: u64, source: u64, bias: bool) -> Self {
        Self {
            q: weights.linear(width, width, bias, Use::Adapted),
            k: weights.linear(source, width, bias, Use::Adapted),
            v: weights.linear(source, width, bias, Use::Adapted),
            out: weights.linear(width, width, true, Use::Adapted),
        }
    }

    /// Attention of `x` to `source` (`AttnProcessor2_0`).
    pub fn forward(&self, tape: &Tape, x: &Tensor, source: &Tensor, attended: Attended) -> Tensor {
        let q = tape.linear(&self.q, x);
        let k = tape.linear(&self.k, source);
        let v = tape.linear(&self.v, source);
        let mut hidden = attended.attend(tape, &q, &k, &v);
        hidden = tape.linear(&self.out, &hidden);
        // Divided by the output's factor, which is 1.
        tape.keeping_nothing(&hidden)
    }
}
