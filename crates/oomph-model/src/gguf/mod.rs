//! Reads the header of a GGUF file: the model's settings and its tensors.
//!
//! Layout: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.  Versions 1 to 3, both byte orders.

mod recipe;
mod types;
mod value;

pub use recipe::Recipe;
pub use types::{TYPES, TensorType, of_id};
pub use value::Value;

use crate::source::Front;
use crate::{Dtype, ModelError, Source, Tensor};
use value::Reader;

/// More entries than any file has; a hostile header could otherwise ask for as many as it has bytes.
const MOST_ENTRIES: u64 = 1_000_000;
/// Dimensions of a tensor; ggml knows four, and files of other programs have had a few more.
const MOST_DIMENSIONS: u32 = 8;
/// Where the tensors' bytes are aligned to if the file does not say.
const ALIGNMENT: u64 = 32;

/// What a GGUF file holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// The version of the layout, 1 to 3.
    pub version: u32,
    /// The settings, in the file's order.
    pub settings: Vec<(String, Value)>,
    /// The tensors, in the file's order. A type that is not known has the bytes up to the next tensor.
    pub tensors: Vec<Tensor>,
    /// Where the tensors' bytes begin, in bytes from the start of the file.
    pub data_offset: u64,
}

impl Header {
    /// A setting by its name.
    #[must_use]
    pub fn setting(&self, name: &str) -> Option<&Value> {
        self.settings.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// A setting that the architecture's name precedes: `architecture("block_count")` is `llama.block_count` in a
    /// Llama's file.
    #[must_use]
    pub fn of_architecture(&self, name: &str) -> Option<&Value> {
        let architecture = self.setting("general.architecture")?.as_text()?;
        self.setting(&format!("{architecture}.{name}"))
    }
}

/// Reads the header.
///
/// # Errors
/// When the file is not GGUF, is cut short within its header, or contradicts itself.
pub fn read(source: &mut dyn Source) -> Result<Header, ModelError> {
    let length = source.len();
    let mut front = Front::new(source);
    if front.array::<4>()? != *b"GGUF" {
        return Err(malformed("no \"GGUF\" at its start", 0));
    }
    let version = front.array::<4>()?;
    let little = u32::from_le_bytes(version);
    let swapped = (1..=3).contains(&u32::from_be_bytes(version));
    let version = if swapped { u32::from_be_bytes(version) } else { little };
    if !(1..=3).contains(&version) {
        return Err(malformed(format!("version {version}, not 1 to 3"), 4));
    }
    let mut reader = Reader { front, big_endian: swapped, wide: version >= 2 };
    let tensor_count = reader.count(MOST_ENTRIES, "tensors")?;
    let setting_count = reader.count(MOST_ENTRIES, "settings")?;

    let mut settings = Vec::new();
    for _ in 0..setting_count {
        let name = reader.text()?;
        let value = reader.value()?;
        settings.push((name, value));
    }

    let mut raw = Vec::new();
    for _ in 0..tensor_count {
        raw.push(raw_tensor(&mut reader)?);
    }
    let alignment = settings.iter().find(|(name, _)| name == "general.alignment").and_then(|(_, value)| value.as_u64());
    let alignment = alignment.filter(|alignment| alignment.is_power_of_two()).unwrap_or(ALIGNMENT);
    let data_offset = reader.front.offset().next_multiple_of(alignment);
    let tensors = sized(raw, length.saturating_sub(data_offset))?;
    Ok(Header { version, settings, tensors, data_offset })
}

/// A tensor before its bytes are known.
struct RawTensor {
    name: String,
    shape: Vec<u64>,
    kind: u32,
    /// Where its bytes begin, from the start of the data.
    offset: u64,
    /// Where it is in the header.
    at: u64,
}

fn raw_tensor(reader: &mut Reader<'_>) -> Result<RawTensor, ModelError> {
    let at = reader.front.offset();
    let name = reader.text()?;
    let dimensions = reader.u32()?;
    if dimensions > MOST_DIMENSIONS {
        return Err(malformed(format!("tensor {name:?} of {dimensions} dimensions"), at));
    }
    let shape = (0..dimensions).map(|_| reader.size()).collect::<Result<_, _>>()?;
    Ok(RawTensor { shape, kind: reader.u32()?, offset: reader.u64()?, name, at })
}

/// Gives each tensor its bytes: by its type, or by the room up to the next one where the type is not known.
fn sized(raw: Vec<RawTensor>, data_length: u64) -> Result<Vec<Tensor>, ModelError> {
    let mut starts: Vec<u64> = raw.iter().map(|tensor| tensor.offset).collect();
    starts.sort_unstable();
    raw.into_iter()
        .map(|raw| {
            let mut tensor = Tensor {
                name: raw.name,
                dtype: Dtype::Other(format!("type {}", raw.kind)),
                shape: raw.shape,
                bytes: 0,
            };
            let next = starts.partition_point(|&start| start <= raw.offset);
            let end = starts.get(next).copied().unwrap_or(data_length.max(raw.offset));
            tensor.bytes = match of_id(raw.kind) {
                Some(kind) => {
                    tensor.dtype = kind.dtype();
                    let elements = tensor.shape.iter().try_fold(1_u64, |product, &side| product.checked_mul(side));
                    let bytes = elements.and_then(|elements| kind.bytes(elements));
                    bytes.ok_or_else(|| {
                        let shape = &tensor.shape;
                        malformed(
                            format!("tensor {:?} of shape {shape:?} in blocks of {}", tensor.name, kind.block),
                            raw.at,
                        )
                    })?
                }
                None => end - raw.offset,
            };
            Ok(tensor)
        })
        .collect()
}

fn malformed(problem: impl Into<String>, offset: u64) -> ModelError {
    ModelError::malformed("GGUF", problem, offset)
}

#[cfg(test)]
mod tests;
