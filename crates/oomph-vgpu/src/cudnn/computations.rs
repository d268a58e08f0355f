//! What an execution plan computes: the dimensions of tensors, passed on from descriptor to descriptor as the program joins
//! them, from tensors to operations, graphs, engines and plans.

use crate::fork::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::ffi::c_void;

use super::backend::TYPE_DESCRIPTOR;
use super::tensor;
use crate::work::{self, Number, Product};

const TENSOR_TYPE: i32 = 901;
const TENSOR_DIMENSIONS: i32 = 902;
/// The filter, input and output of the three operations of convolution, or their gradients: forward, the gradient of the input,
/// that of the filter. The numbers are those of `cudnnBackendAttributeName_t`.
const FILTERS: [i32; 3] = [703, 709, 715];
const INPUTS: [i32; 3] = [704, 710, 716];
const OUTPUTS: [i32; 3] = [705, 711, 717];
/// More dimensions than cuDNN knows.
const MOST_DIMENSIONS: i64 = 8;

/// What is known of a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known {
    /// For a tensor: its elements, those of one output channel's filter, and its `cudnnDataType_t`.
    elements: u64,
    in_channel: u64,
    kind: i32,
    /// For an operation: its tensors.
    filter: Option<(u64, u64)>,
    output: Option<u64>,
    input: Option<u64>,
    /// For what is made of operations: what they compute.
    operations: u64,
    bytes: u64,
}

static KNOWN: Mutex<BTreeMap<usize, Known>> = Mutex::new(BTreeMap::new());

fn known() -> MutexGuard<'static, BTreeMap<usize, Known>> {
    KNOWN.lock()
}

/// Notes an attribute that the program sets on a descriptor.
///
/// # Safety
/// There are `count` elements of that kind.
pub(super) unsafe fn set(descriptor: *mut c_void, name: i32, kind: i32, count: i64, elements: *const c_void) {
    if elements.is_null() || !(1..=64).contains(&count) {
        return;
    }
    let at = |index: i64| usize::try_from(index).unwrap_or(0);
    match name {
        TENSOR_TYPE => {
            // SAFETY: the caller's promise: one number of the type's enumeration.
            known().entry(descriptor as usize).or_default().kind = unsafe { elements.cast::<i32>().read_unaligned() }
        }
        TENSOR_DIMENSIONS if count <= MOST_DIMENSIONS => {
            // SAFETY: the caller's promise: dimensions are 64-bit numbers.
            let sides = (0..count).map(|index| unsafe { elements.cast::<i64>().add(at(index)).read_unaligned() });
            let sides: Vec<u64> = sides.map(|side| u64::try_from(side).unwrap_or(0)).collect();
            let product = |sides: &[u64]| sides.iter().fold(1_u64, |product, &side| product.saturating_mul(side));
            let mut known = known();
            let own = known.entry(descriptor as usize).or_default();
            (own.elements, own.in_channel) = (product(&sides), product(sides.get(1..).unwrap_or_default()));
        }
        _ if kind == TYPE_DESCRIPTOR => {
            let mut known = known();
            let mut own = known.get(&(descriptor as usize)).copied().unwrap_or_default();
            for index in 0..count {
                // SAFETY: the caller's promise: descriptors are addresses.
                let part = unsafe { elements.cast::<usize>().add(at(index)).read_unaligned() };
                if let Some(part) = known.get(&part) {
                    own.join(name, part);
                }
            }
            if own != Known::default() {
                known.insert(descriptor as usize, own);
            }
        }
        _ => {}
    }
}

impl Known {
    fn join(&mut self, name: i32, part: &Self) {
        if FILTERS.contains(&name) {
            self.filter = Some((part.elements, part.in_channel));
        } else if INPUTS.contains(&name) {
            self.input = Some(part.elements);
            self.kind = part.kind;
        } else if OUTPUTS.contains(&name) {
            self.output = Some(part.elements);
        } else if let Some((operations, bytes)) = part.computes() {
            self.operations = self.operations.saturating_add(operations);
            self.bytes = self.bytes.saturating_add(bytes);
            self.kind = part.kind;
        }
        if let (Some((filter, each)), Some(output), Some(input)) = (self.filter, self.output, self.input) {
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
        tensor::HALF | tensor::BFLOAT16 => (Number::F16, 2),
        tensor::FLOAT => (Number::Tf32, 4),
        1 => (Number::F64, 8),
        3 => (Number::I8, 1),
        _ => (Number::F16, 2),
    }
}

/// Notes that `to` is an engine configuration that heuristics found.
pub(super) fn found(from: *mut c_void, to: usize) {
    let mut known = known();
    if let Some(own) = known.get(&(from as usize)).copied() {
        known.insert(to, own);
    }
}

/// Forgets a descriptor that is destroyed.
pub(super) fn forget(descriptor: *mut c_void) {
    known().remove(&(descriptor as usize));
}

/// Counts an execution of a plan.
pub(super) fn executed(plan: *mut c_void) {
    let own = known().get(&(plan as usize)).copied();
    if let Some((own, (operations, bytes))) = own.and_then(|own| Some((own, own.computes()?))) {
        work::product(Product { number: number(own.kind).0, operations, bytes });
    } else {
        work::kernel(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_convolution_is_followed_from_its_tensors_to_its_plan() {
        let address = |number: usize| (0x7000_0000 + number * 16) as *mut c_void;
        let half = tensor::HALF;
        let tensor = |at: *mut c_void, sides: [i64; 4]| {
            // SAFETY: the elements are local variables, of the types that the attributes have.
            unsafe {
                set(at, TENSOR_TYPE, 1, 1, (&raw const half).cast());
                set(at, TENSOR_DIMENSIONS, 3, 4, sides.as_ptr().cast());
            }
        };
        let join = |at: *mut c_void, name: i32, part: *mut c_void| {
            // SAFETY: as above.
            unsafe { set(at, name, TYPE_DESCRIPTOR, 1, (&raw const part).cast()) };
        };
        let [x, w, y, operation, graph, heuristics, plan] = [1, 2, 3, 4, 5, 6, 7].map(address);
        tensor(x, [2, 64, 32, 32]);
        tensor(w, [128, 64, 3, 3]);
        tensor(y, [2, 128, 32, 32]);
        for (name, part) in [(703, w), (704, x), (705, y)] {
            join(operation, name, part);
        }
        join(graph, 801, operation);
        join(heuristics, 201, graph);
        let config = 0x7000_1000;
        found(heuristics, config);
        join(plan, 401, config as *mut c_void);
        // What the plan was made of may be gone before it runs.
        [x, w, y, operation, graph, heuristics].into_iter().for_each(forget);
        let own = known().get(&(plan as usize)).copied().expect("the plan is known");
        // The gradient of the filter sums as often.
        tensor(x, [2, 64, 32, 32]);
        tensor(w, [128, 64, 3, 3]);
        tensor(y, [2, 128, 32, 32]);
        for (name, part) in [(715, w), (716, x), (717, y)] {
            join(operation, name, part);
        }
        let gradient = known().get(&(operation as usize)).copied().expect("the operation is known");
        assert_eq!(gradient.computes(), own.computes());
        let operations = 2 * (2 * 128 * 32 * 32) * (64 * 3 * 3);
        let bytes = 2 * (2 * 64 * 32 * 32 + 128 * 64 * 9 + 2 * 128 * 32 * 32);
        assert_eq!(own.computes(), Some((operations, bytes)));
        assert_eq!(number(own.kind), (Number::F16, 2));
    }
}
