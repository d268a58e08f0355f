//! Reads the header of a safetensors file.
//!
//! Eight bytes of length (little-endian), then that much JSON: a map from names to type, shape and the range of bytes
//! that the tensor has after the header.  <https://huggingface.co/docs/safetensors>

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::{Dtype, ModelError, Source, Tensor};

/// The longest header that is read, in bytes. It is the limit of the safetensors library.
pub const LONGEST_HEADER: u64 = 100_000_000;

/// What a safetensors file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The tensors, in the order of their bytes.
    pub tensors: Vec<Tensor>,
    /// `__metadata__`: what the writer added, by name.
    pub metadata: Vec<(String, String)>,
}

/// Reads the header. The tensors' bytes are not touched, and need not be there: a download that has only begun can be
/// read.
///
/// # Errors
/// When the file is shorter than its header, the header is longer than [`LONGEST_HEADER`] or no JSON of that form, or a
/// range contradicts its type and shape.
pub fn read(source: &mut dyn Source) -> Result<Header, ModelError> {
    let malformed = |problem: String, offset| ModelError::malformed("safetensors", problem, offset);
    let read = |source: &mut dyn Source, offset, buffer: &mut [u8]| {
        let wanted = buffer.len() as u64;
        source.read_at(offset, buffer).map_err(|error| ModelError::Read { offset, wanted, source: error })
    };
    let mut length = [0; 8];
    read(source, 0, &mut length)?;
    let length = u64::from_le_bytes(length);
    if length > LONGEST_HEADER {
        return Err(malformed(format!("a header of {length} bytes"), 0));
    }
    if length > source.len().saturating_sub(8) {
        let left = source.len().saturating_sub(8);
        return Err(malformed(format!("a header of {length} bytes where {left} are left"), 0));
    }
    // `length` is bounded by the file and by the cap above.
    let mut text = vec![0; length as usize];
    read(source, 8, &mut text)?;
    let raw: RawHeader = serde_json::from_slice(&text).map_err(|error| {
        malformed(format!("the header is not the JSON that was expected ({error})"), 8 + error.column() as u64)
    })?;
    let mut tensors = Vec::with_capacity(raw.tensors.len());
    for (name, raw) in raw.tensors {
        let [start, end] = raw.data_offsets;
        let bytes =
            end.checked_sub(start).ok_or_else(|| malformed(format!("tensor {name:?} ends before it starts"), 8))?;
        let tensor = Tensor { dtype: Dtype::of_safetensors(&raw.dtype), shape: raw.shape, bytes, name };
        // Sub-byte types of later versions have no whole number of bytes per element, so only known types are held to it.
        let expected = tensor.dtype.bits().and_then(|bits| tensor.elements().checked_mul(bits)).map(|bits| bits / 8);
        if expected.is_some_and(|expected| expected != bytes) {
            let problem = format!("tensor {:?} has {bytes} bytes, not those of its shape", tensor.name);
            return Err(malformed(problem, 8));
        }
        tensors.push((start, tensor));
    }
    tensors.sort_by_key(|(start, _)| *start);
    Ok(Header { tensors: tensors.into_iter().map(|(_, tensor)| tensor).collect(), metadata: raw.metadata })
}

#[derive(serde::Deserialize)]
struct RawTensor {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// The map, read entry by entry so that a name that occurs twice is seen twice.
struct RawHeader {
    tensors: Vec<(String, RawTensor)>,
    metadata: Vec<(String, String)>,
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = RawHeader;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a map from tensor names to type, shape and range")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
                let mut header = RawHeader { tensors: Vec::new(), metadata: Vec::new() };
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        let metadata: std::collections::BTreeMap<String, serde_json::Value> = map.next_value()?;
                        header.metadata = metadata
                            .into_iter()
                            .filter_map(|(key, value)| Some((key, value.as_str()?.to_owned())))
                            .collect();
                    } else if header.tensors.len() < MOST_TENSORS {
                        header.tensors.push((name, map.next_value()?));
                    } else {
                        map.next_value::<IgnoredAny>()?;
                        return Err(serde::de::Error::custom(format_args!("more than {MOST_TENSORS} tensors")));
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// More tensors than any model has; a header of the largest size could name as many.
const MOST_TENSORS: usize = 5_000_000;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_header_is_read_as_the_library_reads_it() {
        let data = [0_u8; 4 * 6 * 2 + 3];
        let views = [
            ("b.weight", safetensors::Dtype::BF16, vec![4, 6], &data[..48]),
            ("a.bias", safetensors::Dtype::U8, vec![3], &data[48..]),
        ];
        let views = views.map(|(name, dtype, shape, bytes)| {
            (name, safetensors::tensor::TensorView::new(dtype, shape, bytes).unwrap())
        });
        let metadata = Some(HashMap::from([("format".to_owned(), "pt".to_owned())]));
        let file = safetensors::serialize(views, metadata).unwrap();
        let header = read(&mut file.as_slice()).unwrap();
        let theirs = safetensors::SafeTensors::deserialize(&file).unwrap();
        assert_eq!(header.tensors.len(), theirs.len());
        for tensor in &header.tensors {
            let view = theirs.tensor(&tensor.name).unwrap();
            let shape: Vec<u64> = view.shape().iter().map(|&length| length as u64).collect();
            assert_eq!((tensor.bytes, &tensor.shape), (view.data().len() as u64, &shape));
        }
        assert_eq!(header.metadata, [("format".to_owned(), "pt".to_owned())]);
        // The header alone is enough: this is what a server's first answer holds.
        let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
        assert_eq!(read(&mut &file[..8 + length]).unwrap(), header);
    }

    fn file(json: &str) -> Vec<u8> {
        let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(json.as_bytes());
        bytes
    }

    #[test]
    fn lies_are_refused() {
        let wrong = [
            (file(r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#), "not those of its shape"),
            (file(r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#), "ends before it starts"),
            (file(r#"["a"]"#), "not the JSON that was expected"),
            (u64::MAX.to_le_bytes().to_vec(), "a header of 18446744073709551615 bytes"),
            (100_u64.to_le_bytes().to_vec(), "where 0 are left"),
        ];
        for (bytes, words) in wrong {
            let error = read(&mut bytes.as_slice()).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let unknown = file(r#"{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}"#);
        assert_eq!(read(&mut unknown.as_slice()).unwrap().tensors[0].dtype, Dtype::Other("F4".into()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&mut bytes.as_slice());
            let _ = read(&mut file(&String::from_utf8_lossy(&bytes)).as_slice());
        }
    }
}
