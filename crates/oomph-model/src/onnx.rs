//! Reads the initializers of an ONNX model, which are its weights.
//!
//! Fields by number: <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>. Weights may lie in the file or next to
//! it; neither are read.

use crate::source::Front;
use crate::{Dtype, ModelError, Source, Tensor};

/// More weights than any model has.
const MOST_TENSORS: usize = 1_000_000;
/// A name, or the name of an external file, in bytes.
const LONGEST_TEXT: u64 = 64 << 10;
/// Dimensions of a tensor.
const MOST_DIMENSIONS: usize = 64;

/// What an ONNX file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// The weights.
    pub tensors: Vec<Tensor>,
    /// How many of them lie in other files.
    pub external: usize,
}

/// Reads the weights' names, types and shapes.
///
/// # Errors
/// When the file is not an ONNX model, is cut short, or its lengths contradict each other.
pub fn read(source: &mut dyn Source) -> Result<Graph, ModelError> {
    let end = source.len();
    let mut reader = Reader { front: Front::new(source) };
    let mut graph = Graph::default();
    let mut seen = false;
    while reader.front.offset() < end {
        let (field, wire) = reader.key(end)?;
        if (field, wire) == (7, LENGTH) {
            seen = true;
            let end = reader.end(end)?;
            while reader.front.offset() < end {
                match reader.key(end)? {
                    (5, LENGTH) => {
                        let end = reader.end(end)?;
                        if graph.tensors.len() >= MOST_TENSORS {
                            return Err(malformed(format!("more than {MOST_TENSORS} weights"), reader.front.offset()));
                        }
                        let (tensor, external) = reader.tensor(end)?;
                        graph.external += usize::from(external);
                        graph.tensors.push(tensor);
                    }
                    (_, wire) => reader.pass(wire, end)?,
                }
            }
        } else {
            reader.pass(wire, end)?;
        }
    }
    if seen { Ok(graph) } else { Err(malformed("no graph in it", 0)) }
}

fn malformed(problem: impl Into<String>, offset: u64) -> ModelError {
    ModelError::malformed("ONNX", problem, offset)
}

/// The wire type of a field that has a length before it.
const LENGTH: u8 = 2;

struct Reader<'a> {
    front: Front<'a>,
}

impl Reader<'_> {
    fn varint(&mut self, end: u64) -> Result<u64, ModelError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            if self.front.offset() >= end {
                return Err(malformed("a number that is cut short", self.front.offset()));
            }
            let [byte] = self.front.array()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(malformed("a number of more than 64 bits", self.front.offset()))
    }

    /// A field's number and its wire type.
    fn key(&mut self, end: u64) -> Result<(u64, u8), ModelError> {
        let key = self.varint(end)?;
        Ok((key >> 3, (key & 7) as u8))
    }

    /// Where a field with a length ends.
    fn end(&mut self, outer: u64) -> Result<u64, ModelError> {
        let length = self.varint(outer)?;
        let at = self.front.offset();
        at.checked_add(length)
            .filter(|&end| end <= outer)
            .ok_or_else(|| malformed(format!("a field of {length} bytes where {} are left", outer - at), at))
    }

    /// Passes over a field's value.
    fn pass(&mut self, wire: u8, end: u64) -> Result<(), ModelError> {
        match wire {
            0 => drop(self.varint(end)?),
            1 => self.front.skip(8)?,
            LENGTH => {
                let end = self.end(end)?;
                self.front.skip(end - self.front.offset())?;
            }
            5 => self.front.skip(4)?,
            _ => return Err(malformed(format!("a field of wire type {wire}"), self.front.offset())),
        }
        Ok(())
    }

    fn text(&mut self, end: u64) -> Result<String, ModelError> {
        let end = self.end(end)?;
        let length = end - self.front.offset();
        if length > LONGEST_TEXT {
            return Err(malformed(format!("a name of {length} bytes"), self.front.offset()));
        }
        Ok(String::from_utf8_lossy(self.front.take(length as usize)?).into_owned())
    }

    fn tensor(&mut self, end: u64) -> Result<(Tensor, bool), ModelError> {
        let at = self.front.offset();
        let (mut name, mut shape, mut kind, mut external) = (String::new(), Vec::new(), 0, false);
        while self.front.offset() < end {
            match self.key(end)? {
                (1, 0) => shape.push(self.varint(end)?),
                (1, LENGTH) => {
                    let end = self.end(end)?;
                    while self.front.offset() < end && shape.len() <= MOST_DIMENSIONS {
                        shape.push(self.varint(end)?);
                    }
                }
                (2, 0) => kind = self.varint(end)?,
                (8, LENGTH) => name = self.text(end)?,
                (14, 0) => external = self.varint(end)? == 1,
                (_, wire) => self.pass(wire, end)?,
            }
            if shape.len() > MOST_DIMENSIONS {
                return Err(malformed(format!("a weight of more than {MOST_DIMENSIONS} dimensions"), at));
            }
        }
        let (dtype, bits) = data_type(kind);
        let bits = shape.iter().try_fold(bits, |product: u64, &side| product.checked_mul(side));
        let bytes = bits.ok_or_else(|| malformed(format!("weight {name:?} of shape {shape:?}"), at))?.div_ceil(8);
        Ok((Tensor { name, dtype, shape, bytes }, external))
    }
}

/// A type by its number in `TensorProto.DataType`, and its bits.
fn data_type(kind: u64) -> (Dtype, u64) {
    let dtype = match kind {
        1 => Dtype::Float32,
        2 => Dtype::Uint8,
        3 => Dtype::Int8,
        4 => Dtype::Uint16,
        5 => Dtype::Int16,
        6 => Dtype::Int32,
        7 => Dtype::Int64,
        9 => Dtype::Bool,
        10 => Dtype::Float16,
        11 => Dtype::Float64,
        12 => Dtype::Uint32,
        13 => Dtype::Uint64,
        14 => Dtype::Complex64,
        16 => Dtype::Bfloat16,
        17 | 18 => Dtype::Float8E4m3,
        19 | 20 => Dtype::Float8E5m2,
        15 => return (Dtype::Other("complex128".into()), 128),
        21 => return (Dtype::Other("uint4".into()), 4),
        22 => return (Dtype::Other("int4".into()), 4),
        23 => return (Dtype::Other("float4e2m1".into()), 4),
        other => return (Dtype::Other(format!("type {other}")), 8),
    };
    let bits = dtype.bits().unwrap_or(8);
    (dtype, bits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | LENGTH];
        let mut length = content.len();
        while length >= 0x80 {
            bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        bytes.extend(content);
        bytes
    }

    /// A model as exporters write it: version, producer, and a graph with a node and three weights.
    fn model() -> Vec<u8> {
        let unpacked = [&[8, 2, 8, 0xAC, 2, 16, 1][..], &field(8, b"plain"), &field(9, &[0; 2400])].concat();
        let packed = [&field(1, &[4, 4])[..], &[16, 22], &field(8, b"quantized"), &field(9, &[0; 8])].concat();
        let external = [&field(1, &[0x80, 8, 3])[..], &[16, 10], &field(8, b"external"), &[112, 1]].concat();
        let graph =
            [field(1, b"a node that is not looked at"), field(5, &unpacked), field(5, &packed), field(5, &external)]
                .concat();
        [&[8, 10][..], &field(2, b"pytorch"), &field(7, &graph)].concat()
    }

    #[test]
    fn weights_in_the_file_and_next_to_it_are_read() {
        let graph = read(&mut model().as_slice()).unwrap();
        let weights: Vec<String> = graph
            .tensors
            .iter()
            .map(|one| format!("{} {} {:?} {}", one.name, one.dtype, one.shape, one.bytes))
            .collect();
        assert_eq!(
            weights,
            ["plain float32 [2, 300] 2400", "quantized int4 [4, 4] 8", "external float16 [1024, 3] 6144"]
        );
        assert_eq!(graph.external, 1);
    }

    #[test]
    fn a_file_cut_anywhere_says_where() {
        let file = model();
        for length in 0..file.len() {
            let result = read(&mut &file[..length]);
            assert!(result.unwrap_err().to_string().contains("byte"), "{length}");
        }
        let absurd = [field(1, &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1, 2]), vec![16, 1]].concat();
        let absurd = field(7, &field(5, &absurd));
        assert!(read(&mut absurd.as_slice()).unwrap_err().to_string().contains("of shape"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&mut bytes.as_slice());
            let _ = read(&mut field(7, &field(5, &bytes)).as_slice());
        }
    }
}
