//! `cudnnDataType_t`.
#![deny(unsafe_code)]

/// `CUDNN_DATA_FLOAT`
pub const FLOAT: i32 = 0;
/// `CUDNN_DATA_HALF`
pub const HALF: i32 = 2;
/// `CUDNN_DATA_BFLOAT16`
pub const BFLOAT16: i32 = 9;

/// The bits of an element of a data type.
pub fn bits(kind: i32) -> usize {
    match kind {
        1 | 10 | 20 => 64,
        HALF | BFLOAT16 => 16,
        3 | 6 | 12..=15 | 22 | 23 => 8,
        8 => 256,
        11 => 1,
        16..=18 => 4,
        21 => 128,
        _ => 32,
    }
}
