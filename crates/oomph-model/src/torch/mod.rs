//! Reads the tensors of a PyTorch checkpoint (`torch.save` since 1.6: a zip archive with a pickle in it).
//!
//! The pickle is never executed. Of the calls in it only those that rebuild tensors are understood; what others would
//! have made is passed over.

mod pickle;
mod zip;

use std::collections::HashSet;

use crate::{Dtype, ModelError, Source, Tensor};
use pickle::{Heap, Value};

/// A pickle describes tensors and holds none; the largest known has a few MB.
const LARGEST_PICKLE: u64 = 256 << 20;
/// Dictionaries within dictionaries.
const DEEPEST: u32 = 16;
/// A longer text is not the name of a module.
const LONGEST_NAME: usize = 1000;
/// Names under which training programs keep the weights, in a file that also holds an optimizer and other things.
const WEIGHTS: &[&str] = &["state_dict", "model_state_dict", "model"];

/// What a checkpoint holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// The tensors of the model, by name; tensors that share their numbers are there once.
    pub tensors: Vec<Tensor>,
    /// Names of what accompanies the model's weights, such as an optimizer's state.
    pub extras: Vec<String>,
    /// Tensors that are another name of one that is there.
    pub shared: u64,
}

/// Reads the names, types and shapes of a checkpoint's tensors.
///
/// # Errors
/// When the file is not a zip archive with a `data.pkl`, is cut short, or its pickle contradicts itself.
pub fn read(source: &mut dyn Source) -> Result<Checkpoint, ModelError> {
    let entry = zip::find(source, "data.pkl")?;
    if entry.length > LARGEST_PICKLE {
        return Err(malformed(format!("a pickle of {} bytes", entry.length), entry.offset));
    }
    // Bounded by the archive, which `find` checked, and by the cap above.
    let mut bytes = vec![0; entry.length as usize];
    let wanted = entry.length;
    source.read_at(entry.offset, &mut bytes).map_err(|error| ModelError::Read {
        offset: entry.offset,
        wanted,
        source: error,
    })?;
    let (root, heap) = pickle::read(&bytes, entry.offset)?;
    Ok(gather(&root, &heap))
}

pub(super) fn malformed(problem: impl Into<String>, offset: u64) -> ModelError {
    ModelError::malformed("PyTorch", problem, offset)
}

/// Finds the tensors, and separates the model's from what accompanies it.
fn gather(root: &Value, heap: &Heap) -> Checkpoint {
    let mut checkpoint = Checkpoint::default();
    let top = heap.entries(root);
    let named = |name: &&str| {
        top.iter().find(|(key, value)| matches!(key, Value::Text(key) if **key == **name) && heap.is_dict(value))
    };
    let weights = WEIGHTS.iter().find_map(named).map(|(_, value)| value);
    let mut walk = Walk { heap, seen: HashSet::new(), checkpoint: &mut checkpoint };
    walk.visit(weights.unwrap_or(root), "", 0);
    if weights.is_some() {
        checkpoint.extras = top
            .iter()
            .filter(|(_, value)| Some(value) != weights && heap.is_dict(value))
            .filter_map(|(key, _)| if let Value::Text(key) = key { Some(key.to_string()) } else { None })
            .collect();
    }
    checkpoint
}

struct Walk<'a> {
    heap: &'a Heap,
    /// Containers that were visited, and tensors by storage and offset.
    seen: HashSet<(usize, u64, String)>,
    checkpoint: &'a mut Checkpoint,
}

impl Walk<'_> {
    fn visit(&mut self, value: &Value, path: &str, depth: u32) {
        match value {
            Value::Tensor(tensor) => {
                let shape = format!("{}:{:?}", tensor.storage, tensor.shape);
                if !self.seen.insert((usize::MAX, tensor.offset, shape)) {
                    self.checkpoint.shared += 1;
                    return;
                }
                let elements = tensor.shape.iter().fold(1_u64, |product, &side| product.saturating_mul(side));
                self.checkpoint.tensors.push(Tensor {
                    name: if path.is_empty() { "tensor".to_owned() } else { path.to_owned() },
                    bytes: elements.saturating_mul(tensor.dtype.bits().unwrap_or(8)) / 8,
                    dtype: tensor.dtype.clone(),
                    shape: tensor.shape.clone(),
                });
            }
            Value::Node(index) if depth < DEEPEST && self.seen.insert((*index, 0, String::new())) => {
                for (key, value) in self.heap.entries(value) {
                    let key = match key {
                        Value::Text(text) if text.len() <= LONGEST_NAME => text.to_string(),
                        Value::Integer(number) => number.to_string(),
                        _ => continue,
                    };
                    let path = if path.is_empty() { key } else { format!("{path}.{key}") };
                    self.visit(value, &path, depth + 1);
                }
            }
            _ => {}
        }
    }
}

/// The type that a storage class stands for.
fn storage_dtype(class: &str) -> Dtype {
    match class {
        "DoubleStorage" => Dtype::Float64,
        "FloatStorage" => Dtype::Float32,
        "HalfStorage" => Dtype::Float16,
        "BFloat16Storage" => Dtype::Bfloat16,
        "LongStorage" => Dtype::Int64,
        "IntStorage" => Dtype::Int32,
        "ShortStorage" => Dtype::Int16,
        "CharStorage" => Dtype::Int8,
        "ByteStorage" | "UntypedStorage" => Dtype::Uint8,
        "BoolStorage" => Dtype::Bool,
        "ComplexFloatStorage" => Dtype::Complex64,
        other => Dtype::Other(other.to_owned()),
    }
}

#[cfg(test)]
mod tests;
