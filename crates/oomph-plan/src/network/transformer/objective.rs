//! Computes the objectives that learn from more than labels, on sizes.

use super::Stack;
use crate::tape::{Kind, Tape, Tensor, product};
use crate::workload::Workload;

impl Stack {
    /// The log-probabilities of every token, without its logits: what TRL's trainers compute of a policy and a reference.
    pub fn scored(&self, tape: &Tape, workload: &Workload, training: bool) -> Tensor {
        let batch = workload.batch.saturating_mul(workload.objective.sequences());
        let length = workload.length.saturating_add(workload.new_tokens);
        let pass = self.pass(tape, workload, batch, length, 0, training);
        let hidden = self.hidden(tape, workload, &pass, None);
        match &self.head {
            Some(head) => tape.log_probabilities(&head.weight, &hidden, head.inputs),
            None => hidden,
        }
    }

    /// The loss over embeddings of two texts a sample, each the mean over the tokens (`MultipleNegativesRankingLoss`).
    pub(super) fn contrasted(&self, tape: &Tape, workload: &Workload) -> Tensor {
        let training = workload.task.trains();
        let embeddings = [(); 2].map(|()| {
            let length = self.tokens_of(workload.length);
            let pass = self.pass(tape, workload, workload.batch, length, 0, training);
            let hidden = self.hidden(tape, workload, &pass, None);
            // The mask is made as wide as the hidden states, and multiplied with them.
            let mask = tape.empty(hidden.count, hidden.kind);
            let masked = tape.mul(&hidden, &mask);
            tape.reduced(&masked, product([workload.batch, self.shape.hidden]))
        });
        let [anchors, positives] =
            embeddings.map(|embedding| tape.keeping_output(&tape.cast(&embedding, Kind::Single)));
        let sum = tape.add(&anchors, &positives);
        let scores = tape.reduced(&sum, product([workload.batch, workload.batch]));
        tape.cross_entropy(&scores, false)
    }
}
