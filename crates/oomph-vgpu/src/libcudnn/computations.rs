//! What an execution plan computes: the dimensions of tensors, passed on from descriptor to descriptor as the program joins
//! them, from tensors to operations, graphs, engines and plans.
#![deny(unsafe_code)]

use std::collections::BTreeMap;

use super::attribute::{ATTR_TENSOR_DIMENSIONS, ATTR_TENSOR_STRIDES, ATTR_TENSOR_TYPE, Elements, TYPE_DESCRIPTOR};
use super::data_type;
use super::on_card::{self, MOST_DIMENSIONS, Shape, Wanted, Workspace};
use crate::work::{Number, Product};

/// The filter, input and output of the three operations of convolution, or their gradients: forward, the gradient of the input,
/// that of the filter. The numbers are those of `cudnnBackendAttributeName_t`.
const FILTERS: [i32; 3] = [703, 709, 715];
const INPUTS: [i32; 3] = [704, 710, 716];
const OUTPUTS: [i32; 3] = [705, 711, 717];
/// The filter of the operation whose result is the gradient of the filter.
const FILTERS_GRADIENT: i32 = 715;
/// More elements than the attributes have that matter here.
const MOST_ELEMENTS: usize = 64;

/// What is known of a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known {
    /// For a tensor: its elements, those of one output channel's filter, its `cudnnDataType_t`, and its shape.
    elements: u64,
    in_channel: u64,
    kind: i32,
    shape: Shape,
    /// For an operation: its tensors, and what it computes of them.
    filter: Option<(u64, u64, Shape)>,
    output: Option<(u64, Shape)>,
    input: Option<(u64, Shape)>,
    is_filters_gradient: bool,
    /// For what is made of operations: what they compute.
    operations: u64,
    bytes: u64,
    /// For what is made of one convolution: how its workspace on a card differs from what the library says.
    workspace: Option<Workspace>,
}

/// What is known of all of them, by their addresses.
pub struct Computations(BTreeMap<usize, Known>);

impl Computations {
    /// Nothing yet.
    pub const fn new() -> Computations {
        Computations(BTreeMap::new())
    }

    /// Notes an attribute that the program sets on a descriptor.
    pub fn set(&mut self, descriptor: usize, name: i32, elements: Elements<'_>) {
        let Some(count) = usize::try_from(elements.count()).ok().filter(|count| (1..=MOST_ELEMENTS).contains(count))
        else {
            return;
        };
        match name {
            ATTR_TENSOR_TYPE => {
                if let Some(kind) = elements.word(0) {
                    self.0.entry(descriptor).or_default().kind = kind;
                }
            }
            ATTR_TENSOR_DIMENSIONS | ATTR_TENSOR_STRIDES if count <= MOST_DIMENSIONS => {
                let numbers: Vec<i64> = (0..count).filter_map(|index| elements.long(index)).collect();
                if numbers.len() < count {
                    return;
                }
                let numbers: Vec<u64> = numbers.into_iter().map(|number| u64::try_from(number).unwrap_or(0)).collect();
                let own = self.0.entry(descriptor).or_default();
                if name == ATTR_TENSOR_STRIDES {
                    own.shape.set_strides(&numbers);
                    return;
                }
                let product = |sides: &[u64]| sides.iter().fold(1_u64, |product, &side| product.saturating_mul(side));
                own.shape.set_sides(&numbers);
                (own.elements, own.in_channel) = (product(&numbers), product(numbers.get(1..).unwrap_or_default()));
            }
            _ if elements.kind() == TYPE_DESCRIPTOR => {
                let mut own = self.0.get(&descriptor).copied().unwrap_or_default();
                for part in (0..count).filter_map(|index| elements.descriptor(index)) {
                    if let Some(part) = self.0.get(&part.address()) {
                        own.join(name, part);
                    }
                }
                if own != Known::default() {
                    self.0.insert(descriptor, own);
                }
            }
            _ => {}
        }
    }

    /// Notes the engine configurations that heuristics found.
    pub fn found(&mut self, heuristics: usize, configs: &[usize]) {
        if let Some(own) = self.0.get(&heuristics).copied() {
            self.0.extend(configs.iter().map(|config| (*config, own)));
        }
    }

    /// Forgets a descriptor that is destroyed.
    pub fn forget(&mut self, descriptor: usize) {
        self.0.remove(&descriptor);
    }

    /// What a plan computes, if it is known.
    pub fn product(&self, plan: usize) -> Option<Product> {
        let own = self.0.get(&plan)?;
        let (operations, bytes) = own.computes()?;
        Some(Product { number: number(own.kind).0, operations, bytes })
    }

    /// How the workspace of a plan on a card differs from what the library says, where that is known.
    pub fn workspace(&self, plan: usize) -> Option<Workspace> {
        self.0.get(&plan)?.workspace
    }
}

impl Known {
    fn join(&mut self, name: i32, part: &Self) {
        if FILTERS.contains(&name) {
            self.filter = Some((part.elements, part.in_channel, part.shape));
            self.is_filters_gradient = name == FILTERS_GRADIENT;
        } else if INPUTS.contains(&name) {
            self.input = Some((part.elements, part.shape));
            self.kind = part.kind;
        } else if OUTPUTS.contains(&name) {
            self.output = Some((part.elements, part.shape));
        } else if let Some((operations, bytes)) = part.computes() {
            // With another operation in the graph it is no convolution alone.
            self.workspace = part.workspace.filter(|_| self.operations == 0);
            self.operations = self.operations.saturating_add(operations);
            self.bytes = self.bytes.saturating_add(bytes);
            self.kind = part.kind;
        }
        if let (Some((filter, each, w)), Some((output, y)), Some((input, x))) = (self.filter, self.output, self.input) {
            let wanted = if self.is_filters_gradient { Wanted::Filter } else { Wanted::Images };
            self.workspace = on_card::workspace(wanted, self.kind, &w, &x, &y);
            // Each element of the output is a sum over one output channel's filter, whichever of the three is computed.
            self.operations = output.saturating_mul(each).saturating_mul(2);
            let size = number(self.kind).1;
            self.bytes = filter.saturating_add(output).saturating_add(input).saturating_mul(size);
        }
    }

    fn computes(&self) -> Option<(u64, u64)> {
        (self.operations > 0).then_some((self.operations, self.bytes))
    }
}

/// Convolutions of 32-bit numbers use tensor cores unless the program forbids it, in PyTorch and in cuDNN itself.
fn number(kind: i32) -> (Number, u64) {
    match kind {
        data_type::HALF | data_type::BFLOAT16 => (Number::F16, 2),
        data_type::FLOAT => (Number::Tf32, 4),
        1 => (Number::F64, 8),
        3 => (Number::I8, 1),
        _ => (Number::F16, 2),
    }
}

#[cfg(test)]
#[allow(unsafe_code, reason = "descriptors are made of addresses")]
mod tests {
    use std::ffi::c_void;

    use super::*;
    use crate::boundary::{Any, pass};
    use crate::libcudnn::attribute::{Descriptor, TYPE_DATA_TYPE, TYPE_INT64};

    #[test]
    fn a_convolution_is_followed_from_its_tensors_to_its_plan() {
        let mut known = Computations::new();
        let tensor = |known: &mut Computations, at: usize, sides: [i64; 4]| {
            known.set(at, ATTR_TENSOR_TYPE, Elements::of(TYPE_DATA_TYPE, &[data_type::HALF]));
            known.set(at, ATTR_TENSOR_DIMENSIONS, Elements::of(TYPE_INT64, &sides));
        };
        let join = |known: &mut Computations, at: usize, name: i32, part: usize| {
            // SAFETY: the address of a descriptor is only compared here.
            let part = unsafe { pass::<Any, Descriptor<'_>>(part as *mut c_void) };
            known.set(at, name, Elements::descriptors(&[part]));
        };
        let [x, w, y, operation, graph, heuristics, config, plan] = [1, 2, 3, 4, 5, 6, 7, 8];
        tensor(&mut known, x, [2, 64, 32, 32]);
        tensor(&mut known, w, [128, 64, 3, 3]);
        tensor(&mut known, y, [2, 128, 32, 32]);
        for (name, part) in [(703, w), (704, x), (705, y)] {
            join(&mut known, operation, name, part);
        }
        join(&mut known, graph, 801, operation);
        join(&mut known, heuristics, 201, graph);
        known.found(heuristics, &[config]);
        join(&mut known, plan, 401, config);
        // What the plan was made of may be gone before it runs.
        [x, w, y, operation, graph, heuristics].into_iter().for_each(|part| known.forget(part));
        let own = known.product(plan).expect("the plan is known");
        // The gradient of the filter sums as often.
        tensor(&mut known, x, [2, 64, 32, 32]);
        tensor(&mut known, w, [128, 64, 3, 3]);
        tensor(&mut known, y, [2, 128, 32, 32]);
        for (name, part) in [(715, w), (716, x), (717, y)] {
            join(&mut known, operation, name, part);
        }
        let gradient = known.product(operation).expect("the operation is known");
        assert_eq!((gradient.operations, gradient.bytes), (own.operations, own.bytes));
        let operations = 2 * (2 * 128 * 32 * 32) * (64 * 3 * 3);
        let bytes = 2 * (2 * 64 * 32 * 32 + 128 * 64 * 9 + 2 * 128 * 32 * 32);
        assert_eq!((own.operations, own.bytes), (operations, bytes));
        assert!(matches!(own.number, Number::F16));
    }
}
