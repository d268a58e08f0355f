//! Computes scores of tokens without the logits of all words.

use smallvec::smallvec;

use super::{Kind, Tape, TapeOwner, Tensor, product};

impl Tape {
    /// Log-probabilities of tokens without their logits, tile by tile, whose gradients are summed up in fp32 (TRL's
    /// `chunked_logprob`).
    pub fn log_probabilities(&self, weight: &Tensor, hidden: &Tensor, width: u64) -> Tensor {
        /// Tokens and words of a tile.
        const TILE: [u64; 2] = [4096, 8192];
        let tokens = hidden.count / width.max(1);
        let words = weight.count / width.max(1);
        let picked = self.keeping_nothing(hidden);
        let tile = move |tape: &Self| {
            let tile = tape.empty(product([tokens.min(TILE[0]), words.min(TILE[1])]), Kind::Half);
            let part = tape.empty(product([words.min(TILE[1]), width]), Kind::Half);
            drop((tile, part));
        };
        self.owned(TapeOwner::Logits, || tile(self));
        let mut out = self.empty(tokens, Kind::Single);
        let saved = [picked.detach(), weight.detach()];
        let wanted = weight.requires_grad();
        self.record(&mut out, &[&picked, weight], || {
            Box::new(move |tape, _| {
                let hidden = tape.empty(saved[0].count, Kind::Single);
                let weight = wanted.then(|| tape.empty(saved[1].count, Kind::Single));
                tape.owned(TapeOwner::Logits, || tile(tape));
                smallvec![Some(hidden), weight]
            })
        });
        out
    }
}
