//! The types of GGUF tensors: how many weights share a block, and the block's bytes.
//!
//! Identifiers and block sizes are those of `ggml_type` and its block structures in ggml.

use crate::Dtype;

/// A type of tensor in a GGUF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorType {
    /// The number in the file.
    pub id: u32,
    /// Its name as llama.cpp prints it.
    pub name: &'static str,
    /// Weights in a block.
    pub block: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
}

const fn of(id: u32, name: &'static str, block: u64, block_bytes: u64) -> TensorType {
    TensorType { id, name, block, block_bytes }
}

/// Every type that a file may hold, by number. Numbers that are missing were withdrawn.
pub const TYPES: &[TensorType] = &[
    of(0, "f32", 1, 4),
    of(1, "f16", 1, 2),
    of(2, "q4_0", 32, 18),
    of(3, "q4_1", 32, 20),
    of(6, "q5_0", 32, 22),
    of(7, "q5_1", 32, 24),
    of(8, "q8_0", 32, 34),
    of(9, "q8_1", 32, 36),
    of(10, "q2_K", 256, 84),
    of(11, "q3_K", 256, 110),
    of(12, "q4_K", 256, 144),
    of(13, "q5_K", 256, 176),
    of(14, "q6_K", 256, 210),
    of(15, "q8_K", 256, 292),
    of(16, "iq2_xxs", 256, 66),
    of(17, "iq2_xs", 256, 74),
    of(18, "iq3_xxs", 256, 98),
    of(19, "iq1_s", 256, 50),
    of(20, "iq4_nl", 32, 18),
    of(21, "iq3_s", 256, 110),
    of(22, "iq2_s", 256, 82),
    of(23, "iq4_xs", 256, 136),
    of(24, "i8", 1, 1),
    of(25, "i16", 1, 2),
    of(26, "i32", 1, 4),
    of(27, "i64", 1, 8),
    of(28, "f64", 1, 8),
    of(29, "iq1_m", 256, 56),
    of(30, "bf16", 1, 2),
    of(34, "tq1_0", 256, 54),
    of(35, "tq2_0", 256, 66),
    of(39, "mxfp4", 32, 17),
    of(40, "nvfp4", 64, 36),
];

/// The type of a number, where it is known.
#[must_use]
pub fn of_id(id: u32) -> Option<TensorType> {
    TYPES.iter().copied().find(|known| known.id == id)
}

impl TensorType {
    /// The type as the rest of the program names it.
    #[must_use]
    pub fn dtype(self) -> Dtype {
        match self.name {
            "f64" => Dtype::Float64,
            "f32" => Dtype::Float32,
            "f16" => Dtype::Float16,
            "bf16" => Dtype::Bfloat16,
            "i64" => Dtype::Int64,
            "i32" => Dtype::Int32,
            "i16" => Dtype::Int16,
            "i8" => Dtype::Int8,
            name => Dtype::Other(name.to_owned()),
        }
    }

    /// Bytes of a tensor of this many weights; `None` where they do not fill whole blocks or overflow.
    #[must_use]
    pub fn bytes(self, elements: u64) -> Option<u64> {
        if !elements.is_multiple_of(self.block) {
            return None;
        }
        (elements / self.block).checked_mul(self.block_bytes)
    }
}
