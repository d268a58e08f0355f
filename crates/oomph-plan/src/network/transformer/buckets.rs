//! T5's relative positions: a number for every head and pair of tokens, looked up by the bucket of their distance. All layers
//! of a stack share them (`compute_bias` of transformers).

use crate::tape::{Kind, Tape, Tensor, product};

/// What is added to the scores of every layer.
pub(super) struct Biases {
    own: Tensor,
    /// Attention to an encoder has no positions: it is given zeros.
    _crossed: Option<Tensor>,
}

/// What the biases of a pass are for.
pub(super) struct Pairs {
    pub(super) heads: u64,
    /// Pairs of a token and one that it attends to.
    pub(super) own: u64,
    /// Whether a token attends to those behind it too.
    pub(super) both_ways: bool,
    /// Pairs of a token and one of an encoder's, where there is one.
    pub(super) crossed: Option<u64>,
}

impl Biases {
    /// The biases of these pairs, as numbers of this kind.
    pub(super) fn new(tape: &Tape, pairs: &Pairs, kind: Kind) -> Self {
        let own = {
            let _buckets = Buckets::of(tape, pairs.own, pairs.both_ways);
            tape.empty(product([pairs.own, pairs.heads]), kind)
        };
        let crossed = pairs.crossed.map(|crossed| {
            tape.empty(product([pairs.heads, crossed]), if tape.is_autocast() { Kind::Half } else { kind })
        });
        Self { own, _crossed: crossed }
    }

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
