//! What all layers of one pass share.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use oomph_model::architecture::{Kind as StackKind, Positions};

use super::Stack;
use super::buckets::{Biases, Pairs};
use crate::tape::{Kind, Mark, Storage, Tape, Tensor, product};
use crate::workload::{Attention as How, Workload};

/// What all layers of a pass share.
pub(super) struct Pass {
    pub(super) batch: u64,
    pub(super) length: u64,
    /// Tokens in the cache before this pass.
    pub(super) past: u64,
    pub(super) masked: bool,
    pub(super) how: How,
    pub(super) training: bool,
    pub(super) rotary: Option<(Tensor, Tensor)>,
    /// Whether the cache keeps keys and values, and those of earlier passes.
    pub(super) caching: bool,
    pub(super) cache: RefCell<Vec<(Tensor, Tensor)>>,
    pub(super) crossed: RefCell<Vec<(Tensor, Tensor)>>,
    /// What the cache would keep of layers that are not gone through.
    pub(super) passed: RefCell<Vec<Rc<Storage>>>,
    pub(super) causal: bool,
    /// What is added to the scores, or read by the fused kernel.
    pub(super) mask: Option<Tensor>,
    /// The pixels that a tower looks at, where a gradient goes through them.
    pub(super) pixels: OnceCell<Tensor>,
    /// T5's positions, which the first layer makes for all.
    pub(super) biases: OnceCell<Option<Biases>>,
}

impl Pass {
    /// What is held between two layers.
    pub(super) fn mark(&self, tape: &Tape) -> Mark {
        let (cache, crossed) = (self.cache.borrow(), self.crossed.borrow());
        tape.mark(cache.iter().chain(crossed.iter()).flat_map(|(keys, values)| [keys, values]))
    }
}

impl Stack {
    pub(super) fn pass(
        &self,
        tape: &Tape,
        workload: &Workload,
        batch: u64,
        length: u64,
        past: u64,
        training: bool,
    ) -> Rc<Pass> {
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
        let relative = matches!(shape.positions, Positions::Relative(_));
        let mask = (masked || relative).then(|| {
            // A mask of bytes for fused attention; of numbers where scores are written out.
            let kind = if relative {
                Kind::Single
            } else if eager {
                kind
            } else {
                Kind::Byte
            };
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
            passed: RefCell::default(),
            causal: decoder,
            mask,
            pixels: OnceCell::new(),
            biases: OnceCell::new(),
        })
    }

    /// T5's biases of a pass, with the output of an encoder where there is one.
    pub(super) fn biases(&self, tape: &Tape, pass: &Pass, encoded: Option<&Tensor>) -> Option<Biases> {
        let (Positions::Buckets(_), Some(table)) = (self.shape.positions, &self.positions) else { return None };
        let pairs = Pairs {
            heads: self.shape.heads,
            own: product([pass.length, pass.length.saturating_add(pass.past)]),
            both_ways: !pass.causal,
            crossed: encoded.map(|encoded| {
                let keys = encoded.count / product([self.shape.hidden, pass.batch]).max(1);
                product([pass.length, keys])
            }),
        };
        Some(Biases::new(tape, &pairs, table.kind))
    }
}
