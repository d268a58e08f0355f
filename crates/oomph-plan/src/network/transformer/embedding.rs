//! From tokens, patches or sound to the first hidden states.

use oomph_model::architecture::Positions;

use super::Stack;
use super::pass::Pass;
use crate::tape::{Kind, Tape, Tensor};

impl Stack {
    pub(super) fn embed(&self, tape: &Tape, pass: &Pass) -> Tensor {
        let shape = &self.shape;
        let rows = pass.batch.saturating_mul(pass.length);
        let training = pass.training;
        let mut hidden = match (&self.tokens, &self.patches) {
            (_, Some(patches)) => {
                let numbers = rows.saturating_mul(patches.inputs);
                let image = match pass.pixels.get() {
                    Some(pixels) => pixels.viewed(numbers),
                    None => tape.empty(numbers, patches.weight.kind),
                };
                let embedded = tape.linear(patches, &image);
                drop(image);
                tape.contiguous(&embedded)
            }
            _ if !self.convolutions.is_empty() => self.convolved(tape, rows),
            (Some(table), _) => tape.embedding(table, rows, shape.embedding_dim),
            _ => tape.empty(rows.saturating_mul(shape.hidden), Kind::Half),
        };
        if let Some((up, _)) = &self.embedding_projections {
            hidden = tape.linear(up, &hidden);
        }
        if shape.family.starts_with("gemma") {
            hidden = tape.keeping_nothing(&hidden);
        }
        if let Some(types) = &self.token_types {
            let types = tape.embedding(types, rows, shape.hidden);
            hidden = tape.add(&hidden, &types);
        }
        if let (Some(table), Positions::Learned(_) | Positions::Fixed(_)) = (&self.positions, shape.positions) {
            let places = if shape.family == "opt" { rows } else { pass.length };
            let places = tape.embedding(table, places, shape.hidden);
            hidden = tape.add(&hidden, &places);
        }
        if let Some(norm) = &self.embedding_norm {
            hidden = norm.forward(tape, &hidden);
        }
        if matches!(shape.positions, Positions::Relative(_)) {
            // What is padded is made zero.
            hidden = tape.keeping_nothing(&hidden);
        }
        let dropout = shape.embedding_dropout.max(if shape.family == "t5" { shape.hidden_dropout } else { 0.0 });
        tape.dropout(&hidden, training && dropout > 0.0)
    }

    /// Whisper's two convolutions over the spectrogram, the second with stride 2.
    fn convolved(&self, tape: &Tape, rows: u64) -> Tensor {
        let [first, second] = self.convolutions.as_slice() else { return tape.empty(0, Kind::Half) };
        let sound = tape.empty(rows.saturating_mul(2).saturating_mul(first.inputs), first.weight.kind);
        let mut hidden = tape.linear(first, &sound);
        drop(sound);
        hidden = tape.keeping_input(&hidden);
        // Seen as a product, a row of the second has three rows of the first, every other one twice.
        let seen = hidden.viewed(rows.saturating_mul(second.inputs));
        hidden = tape.linear(second, &seen);
        tape.keeping_input(&hidden)
    }
}
