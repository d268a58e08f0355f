//! From the last hidden states to the loss, or to logits.

use oomph_model::architecture::{Head, Kind as StackKind};

use super::Stack;
use super::pass::Pass;
use crate::network::parts::activate;
use crate::tape::{Kind, Tape, TapeOwner, Tensor};
use crate::workload::Workload;

impl Stack {
    /// From hidden states to the loss, or to logits.
    pub(super) fn answer(&self, tape: &Tape, workload: &Workload, hidden: Tensor, pass: &Pass) -> Tensor {
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
        let mut logits = tape.owned(TapeOwner::Logits, || tape.linear(head, &hidden));
        logits = tape.leaving(self.units.head, logits);
        if matches!(self.shape.family.as_str(), "bart" | "mbart" | "pegasus") {
            // A bias of zeros is added (`final_logits_bias`).
            logits = tape.owned(TapeOwner::Logits, || tape.keeping_shared(&logits));
        }
        if self.shape.logit_softcap.is_some() {
            logits = tape.owned(TapeOwner::Logits, || tape.keeping_nothing(&logits));
            logits = tape.owned(TapeOwner::Logits, || tape.keeping_output(&logits));
            logits = tape.owned(TapeOwner::Logits, || tape.keeping_nothing(&logits));
        }
        if !training {
            return logits;
        }
        let upcast = self.shape.kind == StackKind::Decoder && self.encoder.is_none();
        let loss = tape.cross_entropy(&logits, upcast);
        if workload.trainer && tape.is_autocast() {
            // accelerate makes every output fp32 before the program sees it.
            let copy = tape.owned(TapeOwner::Logits, || tape.no_grad(|| tape.cast(&logits, Kind::Single)));
            drop(copy);
        }
        loss
    }
}
