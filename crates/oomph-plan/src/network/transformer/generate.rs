//! Generates text token by token, on sizes.

use super::Stack;
use crate::tape::{Kind, Tape, TapeOwner, Tensor, product};
use crate::workload::Workload;

/// Tokens that are generated one by one before the last.
const FOLLOWED: u64 = 16;

impl Stack {
    /// Generation: the prompt, then tokens one by one on a cache that is copied as it grows (`DynamicCache`).
    pub fn generate(&self, tape: &Tape, workload: &Workload) {
        // With an encoder, which reads the prompt, the text begins with one token.
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
                        tape.owned(TapeOwner::KvCache, || {
                            tape.empty(product([tensor.count / before, past]), tensor.kind)
                        })
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

impl Stack {
    /// The evaluation of HF Trainer: logits of every batch, made fp32 under autocast, are joined to those of the batches
    /// before on the card, which takes both and their sum for a moment (`EvalLoopContainer`).
    pub fn evaluate(&self, tape: &Tape, workload: &Workload) {
        let batch = workload.batch.max(1);
        let batches = workload.samples.div_ceil(batch).max(1);
        let mut gathered: Option<Tensor> = None;
        // The first batches one by one; of very many the last, in addition to what the others left.
        let last = batches - 1;
        for step in (0..last.min(FOLLOWED)).chain([last]) {
            if step == last && last > FOLLOWED {
                let count = gathered.as_ref().map_or(0, |some| some.count / FOLLOWED.max(1));
                let kind = gathered.take().map_or(Kind::Single, |some| some.kind);
                gathered = Some(tape.owned(TapeOwner::Logits, || tape.empty(product([count, last]), kind)));
            }
            let pass = self.pass(tape, workload, batch, self.tokens_of(workload.length), 0, false);
            let (logits, copy) = tape.autocast(workload.precision.is_amp(), || {
                let hidden = self.hidden(tape, workload, &pass, None);
                let logits = self.answer(tape, workload, hidden, &pass);
                // The loss, whose value alone stays.
                let up = tape.owned(TapeOwner::Logits, || tape.cast(&logits, Kind::Single));
                drop(tape.owned(TapeOwner::Logits, || tape.empty(up.count, Kind::Single)));
                drop(up);
                let copy =
                    tape.is_autocast().then(|| tape.owned(TapeOwner::Logits, || tape.cast(&logits, Kind::Single)));
                (logits, copy)
            });
            let logits = copy.unwrap_or(logits);
            gathered = Some(match gathered.take() {
                None => logits,
                Some(before) => {
                    let count = before.count.saturating_add(logits.count);
                    tape.owned(TapeOwner::Logits, || tape.empty(count, logits.kind))
                }
            });
        }
    }
}
