//! Number types, as frameworks and files name them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The type of a tensor's numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// 8-byte float.
    Float64,
    /// 4-byte float.
    Float32,
    /// IEEE half.
    Float16,
    /// bfloat16.
    Bfloat16,
    /// 8-bit float, 4 exponent bits.
    Float8E4m3,
    /// 8-bit float, 5 exponent bits.
    Float8E5m2,
    /// 8-bit power of two, the scale of microscaled formats.
    Float8E8m0,
    /// Signed integers.
    Int64,
    /// 4 bytes.
    Int32,
    /// 2 bytes.
    Int16,
    /// 1 byte.
    Int8,
    /// Unsigned integers.
    Uint64,
    /// 4 bytes.
    Uint32,
    /// 2 bytes.
    Uint16,
    /// 1 byte; also the container of packed 4-bit weights.
    Uint8,
    /// One byte a truth value.
    Bool,
    /// Two 4-byte floats.
    Complex64,
    /// A block-quantized type of GGUF, or one that this version does not know, by its name in the file.
    Other(String),
}

impl Dtype {
    /// Bits of one element; `None` where elements come in blocks or the type is not known.
    #[must_use]
    pub fn bits(&self) -> Option<u64> {
        Some(match self {
            Self::Float64 | Self::Int64 | Self::Uint64 | Self::Complex64 => 64,
            Self::Float32 | Self::Int32 | Self::Uint32 => 32,
            Self::Float16 | Self::Bfloat16 | Self::Int16 | Self::Uint16 => 16,
            Self::Float8E4m3 | Self::Float8E5m2 | Self::Float8E8m0 | Self::Int8 | Self::Uint8 | Self::Bool => 8,
            Self::Other(_) => return None,
        })
    }

    /// Whether it is a floating-point type that a training could have gradients in.
    #[must_use]
    pub fn is_float(&self) -> bool {
        matches!(
            self,
            Self::Float64
                | Self::Float32
                | Self::Float16
                | Self::Bfloat16
                | Self::Float8E4m3
                | Self::Float8E5m2
                | Self::Float8E8m0
        )
    }

    /// The type of a safetensors header's name (`F32`, `BF16`, `F8_E4M3`, ...).
    #[must_use]
    pub fn of_safetensors(name: &str) -> Self {
        match name {
            "F64" => Self::Float64,
            "F32" => Self::Float32,
            "F16" => Self::Float16,
            "BF16" => Self::Bfloat16,
            "F8_E4M3" => Self::Float8E4m3,
            "F8_E5M2" => Self::Float8E5m2,
            "F8_E8M0" => Self::Float8E8m0,
            "I64" => Self::Int64,
            "I32" => Self::Int32,
            "I16" => Self::Int16,
            "I8" => Self::Int8,
            "U64" => Self::Uint64,
            "U32" => Self::Uint32,
            "U16" => Self::Uint16,
            "U8" => Self::Uint8,
            "BOOL" => Self::Bool,
            "C64" => Self::Complex64,
            other => Self::Other(other.to_owned()),
        }
    }

    /// The type of a name as PyTorch and `config.json` write it: `float16`, `torch.bfloat16`, `fp8_e4m3`.
    #[must_use]
    pub fn of_torch(name: &str) -> Self {
        match name.strip_prefix("torch.").unwrap_or(name) {
            "float64" | "double" => Self::Float64,
            "float32" | "float" | "fp32" => Self::Float32,
            "float16" | "half" | "fp16" => Self::Float16,
            "bfloat16" | "bf16" => Self::Bfloat16,
            "float8_e4m3fn" | "float8_e4m3fnuz" | "fp8_e4m3" | "fp8" => Self::Float8E4m3,
            "float8_e5m2" | "float8_e5m2fnuz" | "fp8_e5m2" => Self::Float8E5m2,
            "float8_e8m0fnu" => Self::Float8E8m0,
            "int64" | "long" => Self::Int64,
            "int32" | "int" => Self::Int32,
            "int16" | "short" => Self::Int16,
            "int8" => Self::Int8,
            "uint64" => Self::Uint64,
            "uint32" => Self::Uint32,
            "uint16" => Self::Uint16,
            "uint8" => Self::Uint8,
            "bool" => Self::Bool,
            "complex64" => Self::Complex64,
            other => Self::Other(other.to_owned()),
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Float64 => "float64",
            Self::Float32 => "float32",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
            Self::Float8E4m3 => "float8_e4m3fn",
            Self::Float8E5m2 => "float8_e5m2",
            Self::Float8E8m0 => "float8_e8m0fnu",
            Self::Int64 => "int64",
            Self::Int32 => "int32",
            Self::Int16 => "int16",
            Self::Int8 => "int8",
            Self::Uint64 => "uint64",
            Self::Uint32 => "uint32",
            Self::Uint16 => "uint16",
            Self::Uint8 => "uint8",
            Self::Bool => "bool",
            Self::Complex64 => "complex64",
            Self::Other(name) => name,
        })
    }
}
