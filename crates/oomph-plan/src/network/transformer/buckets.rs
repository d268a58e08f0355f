//! T5's relative positions: a number for every head and pair of tokens, looked up by the bucket of their distance. All layers
//! of a stack share them (`compute_bias` of transformers).

use oomph_model::architecture::Positions;

use super::Stack;
use super::pass::Pass;
use crate::tape::{Kind, Tape, Tensor, product};

/// What is added to the scores of every layer.
pub(super) struct Biases {
    own: Tensor,
    /// Attention to an encoder has no positions: it is given zeros.
    _crossed: Option<Tensor>,
}

impl Stack {
    /// The biases of a pass, with the output of an encoder where there is one.
    pub(super) fn biases(&self, tape: &Tape, pass: &Pass, encoded: Option<&Tensor>) -> Option<Biases> {
        let (Positions::Buckets(_), Some(table)) = (self.shape.positions, &self.positions) else { return None };
        let heads = self.shape.heads;
        let own = {
            let pairs = product([pass.length, pass.length.saturating_add(pass.past)]);
            let _buckets = Buckets::of(tape, pairs, !pass.causal);
            tape.empty(product([pairs, heads]), table.kind)
        };
        let crossed = encoded.map(|encoded| {
            let keys = encoded.count / product([self.shape.hidden, pass.batch]).max(1);
            tape.empty(product([heads, pass.length, keys]), if tape.is_autocast() { Kind::Half } else { table.kind })
        });
        Some(Biases { own, _crossed: crossed })
    }
}

impl Biases {
    /// The mask that fused attention is given for so many samples (`create_position_bias_mask`): what may not be seen is
    /// replaced in a new tensor, where there is such, and that is put into the order of heads in another.
    ///
    /// The kernel's own is returned by `sdpa`; what this returns lives at the same time, in 32 bits.
    pub(super) fn mask(&self, tape: &Tape, samples: u64, hides: bool) -> Option<Tensor> {
        let make = || tape.empty(product([self.own.count, samples]), self.own.kind);
        let chosen = hides.then(make);
        let ordered = make();
        drop(chosen);
        (tape.is_autocast() && ordered.kind == Kind::Single).then_some(ordered)
    }
}

/// The bucket of every pair, and the distances that it was made of.
struct Buckets {
    _distances: Tensor,
    _numbers: Tensor,
}

impl Buckets {
    /// Integers of 64 bits all the way, and logarithms between (`_relative_position_bucket`).
    fn of(tape: &Tape, pairs: u64, both_ways: bool) -> Self {
        let long = || tape.empty(pairs, Kind::Long);
        let distances = long();
        let (side, far) = if both_ways {
            let positive = tape.empty(pairs, Kind::Byte);
            let mut side = long();
            drop(positive);
            side = Self::next(side, long);
            side = Self::next(side, long);
            (Some(side), long())
        } else {
            let zeros = long();
            let least = long();
            drop(zeros);
            (None, Self::next(least, long))
        };
        let near = tape.empty(pairs, Kind::Byte);
        let mut logarithm = tape.empty(pairs, Kind::Single);
        for _ in 0..4 {
            logarithm = Self::next(logarithm, || tape.empty(pairs, Kind::Single));
        }
        let whole = Self::next(logarithm, long);
        let shifted = Self::next(whole, long);
        let most = long();
        let capped = Self::next(shifted, long);
        drop(most);
        let chosen = long();
        drop((capped, near, far));
        // A sum with nothing is a new tensor; one with a side is written over it.
        let numbers = if let Some(side) = side { side } else { Self::next(chosen, long) };
        Self { _distances: distances, _numbers: numbers }
    }

    /// A tensor made of another, which is then given up.
    fn next(old: Tensor, make: impl Fn() -> Tensor) -> Tensor {
        let new = make();
        drop(old);
        new
    }
}
