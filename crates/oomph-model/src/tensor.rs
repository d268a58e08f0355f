//! One tensor of a file.

use serde::Serialize;

use crate::Dtype;

/// A tensor as a header describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tensor {
    /// Its name in the file.
    pub name: String,
    /// The type of its numbers.
    pub dtype: Dtype,
    /// Its shape as the file writes it (GGUF writes the fastest dimension first).
    pub shape: Vec<u64>,
    /// Its bytes in the file.
    pub bytes: u64,
}

impl Tensor {
    /// How many numbers it holds. Packed formats hold fewer than the weights that they stand for.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.shape.iter().fold(1, |product: u64, &length| product.saturating_mul(length))
    }
}
