//! The MLP of a layer: plain, gated, or a mixture of experts.

use oomph_model::architecture::{Experts as ExpertsShape, Transformer};

use super::pass::Pass;
use crate::network::parts::{Use, Weights, activate};
use crate::tape::{Kind, Linear, Tape, Tensor, product};

pub(super) enum Mlp {
    Gated(Gated),
    Fused { both: Linear, down: Linear },
    Plain { up: Linear, down: Linear },
    Experts(Box<Experts>),
}

pub(super) struct Gated {
    gate: Linear,
    up: Linear,
    down: Linear,
}

/// A mixture of experts, with the MLP that every token meets in addition to it.
pub(super) struct Experts {
    shape: ExpertsShape,
    shared: Option<Gated>,
    shared_gate: Option<Linear>,
    router: Tensor,
    both: Packed,
    down: Packed,
}

/// The matrices of all experts in one tensor, with their LoRA.
struct Packed {
    weight: Tensor,
    adapter: Option<(Tensor, Tensor)>,
}

impl Mlp {
    /// Whether its tokens go to experts.
    pub(super) fn is_routed(&self) -> bool {
        matches!(self, Self::Experts(_))
    }

    /// The MLP of the layer with this number.
    pub(super) fn new(weights: &mut Weights<'_>, shape: &Transformer, index: u64) -> Self {
        let (hidden, inner, bias) = (shape.hidden, shape.intermediate, shape.mlp_bias);
        if let Some(experts) = shape.experts.filter(|experts| experts.in_layer(index)) {
            return Self::Experts(Box::new(Experts::new(weights, shape, experts)));
        }
        if shape.gated_mlp && matches!(shape.family.as_str(), "phi3" | "glm4" | "phi4") {
            return Self::Fused {
                both: weights.linear(hidden, product([2, inner]), bias, Use::Matrix),
                down: weights.linear(inner, hidden, bias, Use::Matrix),
            };
        }
        if shape.gated_mlp {
            return Self::Gated(Gated::new(weights, shape, inner));
        }
        Self::Plain {
            up: weights.linear(hidden, inner, bias, Use::Matrix),
            down: weights.linear(inner, hidden, bias, Use::Matrix),
        }
    }

    pub(super) fn forward(&self, tape: &Tape, shape: &Transformer, pass: &Pass, x: &Tensor) -> Tensor {
        let act = shape.activation.as_str();
        match self {
            Self::Gated(gated) => gated.forward(tape, shape, pass.training, x),
            Self::Fused { both, down } => {
                let both = tape.linear(both, x);
                let parts = tape.split(&both, &[both.count / 2, both.count / 2]);
                let product = tape.mul(&parts[1], &activate(tape, act, &parts[0]));
                drop((both, parts));
                tape.linear(down, &product)
            }
            Self::Plain { up, down } => {
                let mut hidden = tape.linear(up, x);
                hidden = activate(tape, act, &hidden);
                let t5 = matches!(shape.family.as_str(), "t5" | "mt5");
                hidden = tape.dropout(&hidden, t5 && pass.training && shape.hidden_dropout > 0.0);
                if t5 {
                    hidden = tape.cast(&hidden, down.weight.kind);
                }
                tape.linear(down, &hidden)
            }
            Self::Experts(experts) => experts.forward(tape, shape, x),
        }
    }
}

impl Gated {
    fn new(weights: &mut Weights<'_>, shape: &Transformer, width: u64) -> Self {
        Self {
            gate: weights.linear(shape.hidden, width, shape.mlp_bias, Use::Matrix),
            up: weights.linear(shape.hidden, width, shape.mlp_bias, Use::Matrix),
            down: weights.linear(width, shape.hidden, shape.mlp_bias, Use::Matrix),
        }
    }

    fn forward(&self, tape: &Tape, shape: &Transformer, training: bool, x: &Tensor) -> Tensor {
        let gate = activate(tape, &shape.activation, &tape.linear(&self.gate, x));
        let up = tape.linear(&self.up, x);
        let mut product = tape.mul(&gate, &up);
        drop((gate, up));
        if shape.family == "t5" || shape.family == "mt5" {
            product = tape.dropout(&product, training && shape.hidden_dropout > 0.0);
        }
        tape.linear(&self.down, &product)
    }
}

impl Experts {
    fn new(weights: &mut Weights<'_>, shape: &Transformer, experts: ExpertsShape) -> Self {
        let (hidden, width) = (shape.hidden, experts.intermediate);
        let shared_width = experts.shared_intermediate;
        let shared = (shared_width > 0).then(|| Gated::new(weights, shape, shared_width));
        let shared_gate =
            (shared_width > 0 && experts.shared_gate).then(|| weights.linear(hidden, 1, false, Use::Other));
        Self {
            shape: experts,
            shared,
            shared_gate,
            router: weights.bare(experts.count, hidden, Use::Other),
            both: Packed::new(weights, experts.count, hidden, product([2, width]), true),
            down: Packed::new(weights, experts.count, width, hidden, false),
        }
    }

    /// Experts as one grouped product over the chosen pairs of tokens and experts (`grouped_mm_experts_forward`).
    fn forward(&self, tape: &Tape, shape: &Transformer, x: &Tensor) -> Tensor {
        let (hidden, width) = (shape.hidden, self.shape.intermediate);
        let rows = x.count / hidden.max(1);
        let logits = tape.matmul(x, &self.router, product([rows, self.shape.count]));
        let chances = tape.softmax(&logits, Kind::Single);
        let pairs = product([rows, self.shape.active]);
        let scores = tape.slice_copy(&chances, pairs, logits.kind);
        let order = [0; 6].map(|_| tape.empty(pairs, Kind::Long));
        let mut chosen = tape.gather(x, product([pairs, hidden]));
        chosen = tape.matmul(&chosen, &self.both.adapted(tape), product([pairs, 2, width]));
        let parts = tape.split(&chosen, &[product([pairs, width]); 2]);
        drop(chosen);
        let mut mixed = tape.mul(&activate(tape, &shape.activation, &parts[0]), &parts[1]);
        drop(parts);
        mixed = tape.matmul(&mixed, &self.down.adapted(tape), product([pairs, hidden]));
        mixed = tape.mul(&mixed, &scores);
        // Put back in the order of the tokens, and summed over the experts of each.
        mixed = tape.gather(&mixed, product([pairs, hidden]));
        let mut result = tape.reduced_to(&mixed, x.count);
        drop((mixed, order, scores, chances, logits));
        if result.kind != x.kind {
            result = tape.cast(&result, x.kind);
        }
        if let Some(shared) = &self.shared {
            let mut from_shared = shared.forward(tape, shape, false, x);
            if let Some(gate) = &self.shared_gate {
                from_shared = tape.mul(&tape.keeping_output(&tape.linear(gate, x)), &from_shared);
            }
            result = tape.add(&result, &from_shared);
        }
        result
    }
}

impl Packed {
    fn new(weights: &mut Weights<'_>, count: u64, inputs: u64, outputs: u64, fused: bool) -> Self {
        let weight = weights.bare(count.saturating_mul(outputs), inputs, Use::Other);
        Self { weight, adapter: weights.expert_adapter(count, inputs, outputs, fused) }
    }

    /// The matrices with LoRA's product added, which makes them again (PEFT's parametrization).
    fn adapted(&self, tape: &Tape) -> Tensor {
        let Some((down, up)) = &self.adapter else { return self.weight.clone() };
        let mut delta = tape.matmul(up, down, self.weight.count);
        delta = tape.keeping_nothing(&delta);
        delta = tape.cast(&delta, self.weight.kind);
        tape.add(&self.weight, &delta)
    }
}
