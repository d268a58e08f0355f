//! One tensor of a network.

use serde::Serialize;

use crate::{Dtype, Tensor};

/// A tensor that a network has once it is built: a trained parameter, or a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Parameter {
    /// Its name as the library's `named_parameters()` gives it.
    pub name: String,
    /// Its shape, in PyTorch's order.
    pub shape: Vec<u64>,
    /// What part of the network it belongs to.
    pub role: Role,
    /// What kind of operation holds it.
    pub form: Form,
    /// The layer or block that it belongs to, counted from 0 within its stack.
    pub layer: Option<u64>,
    /// The type that it keeps whatever type the network has: the frequencies of rotary positions, masks, indices.
    pub kept_dtype: Option<Dtype>,
}

impl Parameter {
    /// How many numbers it holds.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.shape.iter().fold(1, |product: u64, &side| product.saturating_mul(side))
    }

    /// The tensor that it is in a network of this type.
    #[must_use]
    pub fn into_tensor(self, dtype: &Dtype) -> Tensor {
        let elements = self.elements();
        let dtype = self.kept_dtype.unwrap_or_else(|| dtype.clone());
        let bytes = elements.saturating_mul(dtype.bits().unwrap_or(8)) / 8;
        Tensor { name: self.name, dtype, shape: self.shape, bytes }
    }

    /// Whether it is not a parameter but a buffer: it takes memory and has no gradient.
    #[must_use]
    pub fn is_buffer(&self) -> bool {
        self.role == Role::Buffer
    }
}

/// What part of a network a tensor belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Tables of tokens, positions, segments, and the patches of images.
    Embedding,
    /// Projections of attention, also of cross-attention.
    Attention,
    /// Projections of an MLP that every token meets.
    Mlp,
    /// Projections of experts, each of which only some tokens meet.
    Expert,
    /// What chooses the experts.
    Router,
    /// Weights and biases of norms.
    Norm,
    /// The output layer: logits, classes, a projection.
    Head,
    /// A convolution of a UNet or an autoencoder.
    Convolution,
    /// What turns time steps, text and guidance into shifts and scales.
    Modulation,
    /// Kept with the parameters, without a gradient.
    Buffer,
}

/// What kind of operation holds a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// The matrix of an `nn.Linear` (or GPT-2's `Conv1D`): what bitsandbytes quantizes and what LoRA adapts.
    Linear,
    /// The matrix of an embedding.
    Table,
    /// The kernel of a convolution.
    Kernel,
    /// A bias of any of these, or a norm's weights.
    Vector,
    /// A bare parameter or buffer, such as experts packed into one tensor.
    Bare,
}
