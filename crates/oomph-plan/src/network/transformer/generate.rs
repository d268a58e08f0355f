//! Text token by token.

use super::Stack;
use crate::tape::{Owner, Tape, Tensor, product};
use crate::workload::Workload;

/// Tokens that are generated one by one before the last.
const FOLLOWED: u64 = 16;

impl Stack {
    /// Generation: the prompt, then tokens one by one on a cache that is copied as it grows (`DynamicCache`).
    pub fn generate(&self, tape: &Tape, workload: &Workload) {
        // Beside an encoder, which reads the prompt, the text begins with one token.
        let encoded = self.encoder.as_ref().map(|encoder| encoder.encode(tape, workload));
        let prompt = if encoded.is_some() { 1 } else { workload.length };
        let pass = self.pass(tape, workload, workload.batch, prompt, 0, false);
        let hidden = self.hidden(tape, workload, &pass, encoded.as_ref());
        let last = hidden.viewed(workload.batch.saturating_mul(self.shape.hidden));
        let logits = self.answer(tape, workload, last, &pass);
        drop((hidden, logits));
        let mut cache = pass.cache.take();
        let mut crossed = pass.crossed.take();
        drop(pass);
        // The first steps one by one; of very many the last, on a cache that grew at once.
        let last = workload.new_tokens.saturating_sub(1);
        let steps = (0..last.min(FOLLOWED)).chain((last > FOLLOWED).then(|| last - 1));
        for step in steps {
            let past = prompt.saturating_add(step);
            if step >= FOLLOWED {
                let before = prompt.saturating_add(FOLLOWED).max(1);
                for pair in &mut cache {
                    let grown = |tensor: &Tensor| {
                        tape.owned(Owner::KvCache, || tape.empty(product([tensor.count / before, past]), tensor.kind))
                    };
                    *pair = (grown(&pair.0), grown(&pair.1));
                }
            }
            let pass = self.pass(tape, workload, workload.batch, 1, past, false);
            *pass.cache.borrow_mut() = cache;
            *pass.crossed.borrow_mut() = crossed;
            let hidden = self.hidden(tape, workload, &pass, encoded.as_ref());
            let logits = self.answer(tape, workload, hidden, &pass);
            drop(logits);
            cache = pass.cache.take();
            crossed = pass.crossed.take();
        }
    }
}
