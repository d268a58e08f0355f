//! One layer: attention, attention to an encoder, and an MLP, with norms and residual sums around them.

use oomph_model::architecture::{Norm as NormKind, Positions, Transformer};

use super::attention::Attention;
use super::disentangled;
use super::mlp::Mlp;
use super::pass::Pass;
use crate::network::parts::{Norm, NormStyle, Weights};
use crate::tape::{Tape, Tensor, Twin};

pub(super) struct Layer {
    norms: Vec<Norm>,
    attention: Attention,
    cross: Option<(Attention, Norm)>,
    mlp: Mlp,
    /// What of it is trained.
    trained: Vec<Tensor>,
}

impl Layer {
    pub(super) fn new(weights: &mut Weights<'_>, shape: &Transformer, index: u64, style: NormStyle) -> Self {
        let hidden = shape.hidden;
        let others = weights.trained.len();
        let attention = Attention::new(weights, shape, style, hidden);
        let plain = shape.norm == NormKind::Plain;
        let norms = (0..shape.norms_per_layer)
            .map(|_| weights.norm(hidden, style, !plain, shape.norm_bias && !plain))
            .collect();
        let cross = shape.cross_attention.then(|| {
            let norm = weights.norm(hidden, style, true, shape.norm_bias);
            (Attention::new(weights, shape, style, hidden), norm)
        });
        let mlp = Mlp::new(weights, shape, index);
        let trained = weights.trained[others..].iter().map(|trained| trained.tensor.clone()).collect();
        Self { norms, attention, cross, mlp, trained }
    }

    /// Whether another layer of the stack does the same on weights of its own.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.mlp.is_routed() == other.mlp.is_routed()
    }

    /// The parameters of a layer, each with its like in this one.
    pub(super) fn twins<'a>(&'a self, skipped: &'a Self) -> impl Iterator<Item = Twin> + 'a {
        let pairs = skipped.trained.iter().zip(&self.trained);
        pairs.map(|(skipped, walked)| Twin { skipped: skipped.clone(), walked: walked.clone() })
    }

    pub(super) fn forward(
        &self,
        tape: &Tape,
        shape: &Transformer,
        pass: &Pass,
        x: &Tensor,
        encoded: Option<&Tensor>,
        index: usize,
    ) -> Tensor {
        let dropped = |x: &Tensor| tape.dropout(x, pass.training && shape.hidden_dropout > 0.0);
        let norm = |at: usize, x: &Tensor| match self.norms.get(at) {
            Some(norm) => norm.forward(tape, x),
            None => x.clone(),
        };
        if shape.post_norm {
            let mut hidden = match (shape.positions, encoded) {
                (Positions::Relative(_), Some(distances)) => {
                    let context = disentangled::forward(&self.attention, tape, shape, pass, x, distances);
                    tape.linear(&self.attention.output, &context)
                }
                _ => self.attention.forward(tape, shape, pass, x, None, index),
            };
            hidden = dropped(&hidden);
            hidden = norm(0, &tape.add(&hidden, x));
            if let (Some((cross, norm)), Some(encoded)) = (&self.cross, encoded) {
                let attended = dropped(&cross.forward(tape, shape, pass, &hidden, Some(encoded), index));
                hidden = norm.forward(tape, &tape.add(&hidden, &attended));
            }
            let mut inner = self.mlp.forward(tape, shape, pass, &hidden);
            inner = dropped(&inner);
            return norm(1, &tape.add(&inner, &hidden));
        }
        if shape.parallel_residual {
            return self.parallel(tape, shape, pass, x, index, &norm, &dropped);
        }
        let mut hidden = norm(0, x);
        hidden = self.attention.forward(tape, shape, pass, &hidden, None, index);
        let sandwiched = self.norms.len() == 4;
        if sandwiched {
            hidden = norm(1, &hidden);
        }
        hidden = dropped(&hidden);
        hidden = tape.add(x, &hidden);
        if let (Some((cross, norm)), Some(encoded)) = (&self.cross, encoded) {
            let residual = hidden.clone();
            hidden = norm.forward(tape, &hidden);
            hidden = cross.forward(tape, shape, pass, &hidden, Some(encoded), index);
            hidden = dropped(&hidden);
            hidden = tape.add(&residual, &hidden);
        }
        let residual = hidden.clone();
        hidden = norm(if sandwiched { 2 } else { 1 }, &hidden);
        hidden = self.mlp.forward(tape, shape, pass, &hidden);
        if sandwiched {
            hidden = norm(3, &hidden);
        }
        hidden = dropped(&hidden);
        tape.add(&residual, &hidden)
    }

    /// Attention and MLP read the same input.
    #[allow(clippy::too_many_arguments)]
    fn parallel(
        &self,
        tape: &Tape,
        shape: &Transformer,
        pass: &Pass,
        x: &Tensor,
        index: usize,
        norm: &dyn Fn(usize, &Tensor) -> Tensor,
        dropped: &dyn Fn(&Tensor) -> Tensor,
    ) -> Tensor {
        if self.norms.len() > 1 && !shape.family.starts_with("falcon") {
            let attended = self.attention.forward(tape, shape, pass, &norm(0, x), None, index);
            let attended = dropped(&attended);
            let inner = self.mlp.forward(tape, shape, pass, &norm(1, x));
            let mut sum = dropped(&inner);
            drop(inner);
            sum = tape.add(&sum, &attended);
            return tape.add(&sum, x);
        }
        let normed = norm(0, x);
        let second = (self.norms.len() > 1).then(|| norm(1, x));
        let attended = self.attention.forward(tape, shape, pass, &normed, None, index);
        // `mlp_output += attention_output` writes in place.
        let inner = self.mlp.forward(tape, shape, pass, second.as_ref().unwrap_or(&normed));
        let sum = tape.add_in_place(&inner, &attended);
        drop(inner);
        tape.add(x, &dropped(&sum))
    }
}
