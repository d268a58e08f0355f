//! What answers the graph API where no libcudnn can be asked: descriptors that remember what was set, heuristics that
//! propose one engine, and a workspace that is an estimate.
//!
//! The estimate is what cuDNN 9 does with tensors in NCHW order on tensor cores: its kernels want channels-last data,
//! so the workspace holds a converted copy of all three tensors. A 3x3 half convolution of 1x512x512x512 takes
//! 516.5 MiB by NVIDIA's own answer, which is 256 + 256 + 4.5. Channels-last tensors need none. The truth lies between
//! 0 and a little above the estimate.

use std::collections::BTreeMap;
use std::ffi::c_void;

use super::backend::{
    ATTR_HEURISTICS_MODE, ATTR_HEURISTICS_RESULTS, ATTR_PLAN_CONFIG, ATTR_PLAN_WORKSPACE, MODE_FALLBACK,
    TYPE_DESCRIPTOR, TYPE_INT64,
};
use super::object::{self, BAD_PARAM, Object, SUCCESS};
use super::{props, tensor};
use crate::boundary::put;

const CONVOLUTION_FORWARD: i32 = 10;
const CONVOLUTION_BACKWARD_DATA: i32 = 12;
const TENSOR: i32 = 17;

const ATTR_CONFIG_ENGINE: i32 = 300;
const ATTR_CONFIG_WORKSPACE: i32 = 303;
const ATTR_GRAPH_ENGINE_COUNT: i32 = 802;
const ATTR_TENSOR_TYPE: i32 = 901;
const ATTR_TENSOR_DIMENSIONS: i32 = 902;
const ATTR_TENSOR_STRIDES: i32 = 903;
const ATTR_ENGINE_GRAPH: i32 = 1300;
const ATTR_ENGINE_INDEX: i32 = 1301;

/// No attribute of cuDNN's holds more elements; a longer one is a program's error.
const MOST_ELEMENTS: usize = 1 << 16;

/// One attribute, as it was set.
struct Attribute {
    kind: i32,
    count: i64,
    bytes: Vec<u8>,
}

/// A descriptor of the model.
struct Descriptor {
    kind: i32,
    attributes: BTreeMap<i32, Attribute>,
    /// For a tensor its own size, for everything that was built from tensors the workspace, in bytes.
    bytes: u64,
    /// For a tensor: whether a tensor-core kernel would convert it.
    converted: bool,
}

impl Object for Descriptor {
    const KIND: u64 = 100;
}

/// How long an element is.
fn element_size(kind: i32) -> usize {
    match kind {
        // HANDLE, INT64, DOUBLE, VOID_PTR, BACKEND_DESCRIPTOR
        0 | 3 | 5 | 6 | 15 => 8,
        // BOOLEAN, CHAR
        2 | 24 => 1,
        // FRACTION
        26 => 16,
        // FLOAT, INT32 and the enumerations
        _ => 4,
    }
}

/// Makes a descriptor.
///
/// # Safety
/// `out` may be written.
pub unsafe fn create(kind: i32, out: *mut *mut c_void) -> u32 {
    let descriptor = Descriptor { kind, attributes: BTreeMap::new(), bytes: 0, converted: false };
    // SAFETY: the caller's promise.
    unsafe { object::create(out, descriptor) }
}

/// Ends a descriptor.
///
/// # Safety
/// It is null or one of the model's, and not used again.
pub unsafe fn destroy(descriptor: *mut c_void) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { object::destroy::<Descriptor>(descriptor) }
}

/// Sets an attribute. Descriptors hand on what they know when they are set, because a program may destroy them before
/// the one that was built from them.
///
/// # Safety
/// The descriptor is one of the model's; `elements` holds `count` elements of the type.
pub unsafe fn set(descriptor: *mut c_void, name: i32, kind: i32, count: i64, elements: *const c_void) -> u32 {
    let length = usize::try_from(count).ok().filter(|count| *count <= MOST_ELEMENTS);
    // SAFETY: the caller's promise.
    let (Some(own), Some(length)) = (unsafe { object::get::<Descriptor>(descriptor) }, length) else {
        return BAD_PARAM;
    };
    if elements.is_null() && length > 0 {
        return BAD_PARAM;
    }
    if kind == TYPE_DESCRIPTOR {
        for index in 0..length {
            // SAFETY: the caller's promise: an array of that many descriptors.
            let child = unsafe { elements.cast::<*mut c_void>().add(index).read_unaligned() };
            // SAFETY: the program's descriptors are the model's, and none is its own child.
            if let Some(child) = unsafe { object::get::<Descriptor>(child) } {
                own.learn(child.kind, child.bytes, child.converted);
            }
        }
    }
    let bytes = if length == 0 {
        Vec::new()
    } else {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(elements.cast::<u8>(), length * element_size(kind)) }.to_vec()
    };
    own.attributes.insert(name, Attribute { kind, count, bytes });
    SUCCESS
}

/// Reads an attribute.
///
/// # Safety
/// The descriptor is one of the model's; `count` may be written or is null; `elements` is null or has room for
/// `requested` elements.
pub unsafe fn get(
    descriptor: *mut c_void,
    name: i32,
    kind: i32,
    requested: i64,
    count: *mut i64,
    elements: *mut c_void,
) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { put(count, 0) };
    // SAFETY: the caller's promise.
    let Some(own) = (unsafe { object::get::<Descriptor>(descriptor) }) else { return BAD_PARAM };
    let wanted = requested > 0 && !elements.is_null();
    match name {
        ATTR_HEURISTICS_RESULTS | ATTR_CONFIG_ENGINE | ATTR_PLAN_CONFIG | ATTR_ENGINE_GRAPH
            if kind == TYPE_DESCRIPTOR =>
        {
            if wanted {
                // SAFETY: the program passes descriptors to be filled.
                let child = unsafe { elements.cast::<*mut c_void>().read_unaligned() };
                // SAFETY: as above; the descriptor to be filled is not the one that is read.
                if let Some(child) = unsafe { object::get::<Descriptor>(child) } {
                    // The engines of last resort need no workspace: PyTorch comes to them where none could be had.
                    child.bytes = if name == ATTR_HEURISTICS_RESULTS && own.is_last_resort() { 0 } else { own.bytes };
                }
            }
            // SAFETY: the caller's promise.
            unsafe { put(count, 1) };
        }
        ATTR_PLAN_WORKSPACE | ATTR_CONFIG_WORKSPACE | ATTR_GRAPH_ENGINE_COUNT | ATTR_ENGINE_INDEX
            if kind == TYPE_INT64 =>
        {
            let value = match name {
                ATTR_GRAPH_ENGINE_COUNT => 1,
                ATTR_ENGINE_INDEX => 0,
                _ => i64::try_from(own.bytes).unwrap_or(i64::MAX),
            };
            if wanted {
                // SAFETY: there is room for at least one element.
                unsafe { put(elements.cast(), value) };
            }
            // SAFETY: the caller's promise.
            unsafe { put(count, 1) };
        }
        _ => {
            let Some(attribute) = own.attributes.get(&name).filter(|attribute| attribute.kind == kind) else {
                return SUCCESS;
            };
            if wanted {
                let room = usize::try_from(requested).unwrap_or(0).saturating_mul(element_size(kind));
                let length = attribute.bytes.len().min(room);
                // SAFETY: there is room for `room` bytes, and the attribute holds `length`.
                unsafe { std::ptr::copy_nonoverlapping(attribute.bytes.as_ptr(), elements.cast(), length) };
            }
            // SAFETY: the caller's promise.
            unsafe { put(count, attribute.count) };
        }
    }
    SUCCESS
}

/// Finalizes a descriptor.
///
/// # Safety
/// The descriptor is one of the model's.
pub unsafe fn finalize(descriptor: *mut c_void) -> u32 {
    // SAFETY: the caller's promise.
    let Some(own) = (unsafe { object::get::<Descriptor>(descriptor) }) else { return BAD_PARAM };
    match own.kind {
        TENSOR => own.measure(),
        CONVOLUTION_FORWARD..=CONVOLUTION_BACKWARD_DATA if !own.converted => own.bytes = 0,
        _ => {}
    }
    SUCCESS
}

impl Descriptor {
    /// Whether heuristics are asked for the engines that always work.
    fn is_last_resort(&self) -> bool {
        let mode = self.attributes.get(&ATTR_HEURISTICS_MODE);
        mode.is_some_and(|mode| mode.bytes.starts_with(&MODE_FALLBACK.to_ne_bytes()))
    }

    /// Takes over what a part knows.
    fn learn(&mut self, kind: i32, bytes: u64, converted: bool) {
        let convolution = (CONVOLUTION_FORWARD..=CONVOLUTION_BACKWARD_DATA).contains(&self.kind);
        if kind == TENSOR {
            // Only convolutions are known to convert their tensors.
            if convolution {
                self.bytes = self.bytes.saturating_add(bytes);
                self.converted |= converted;
            }
        } else {
            self.bytes = self.bytes.max(bytes);
        }
    }

    /// Works out a tensor's size and whether it would be converted.
    fn measure(&mut self) {
        let numbers = |name| -> Vec<i64> {
            self.attributes.get(&name).map_or_else(Vec::new, |attribute: &Attribute| {
                attribute.bytes.as_chunks::<8>().0.iter().map(|bytes| i64::from_ne_bytes(*bytes)).collect()
            })
        };
        let (dimensions, strides) = (numbers(ATTR_TENSOR_DIMENSIONS), numbers(ATTR_TENSOR_STRIDES));
        let kind = self
            .attributes
            .get(&ATTR_TENSOR_TYPE)
            .and_then(|attribute| attribute.bytes.first_chunk::<4>())
            .map_or(0, |bytes| i32::from_ne_bytes(*bytes));
        let elements: u64 = dimensions.iter().map(|size| size.unsigned_abs()).fold(1, u64::saturating_mul);
        self.bytes = elements.saturating_mul(tensor::bits(kind) as u64) / 8;
        let channels_last = strides.get(1).is_none_or(|stride| *stride == 1);
        // Tensor cores take half from Volta on, single precision (as TF32) from Ampere on.
        let version = props::current().map_or(0, |card| card.version);
        let tensor_cores = match kind {
            tensor::HALF => version >= 700,
            tensor::BFLOAT16 | tensor::FLOAT => version >= 800,
            _ => false,
        };
        self.converted = tensor_cores && !channels_last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    fn make(kind: i32) -> *mut c_void {
        let mut out = ptr::null_mut();
        // SAFETY: a local variable.
        assert_eq!(unsafe { create(kind, &raw mut out) }, SUCCESS);
        out
    }

    #[test]
    fn a_fake_descriptor_counts_as_frameworks_expect() {
        let (heuristics, config, plan) = (make(4), make(3), make(5));
        let mut count = -1;
        // SAFETY: descriptors of the model and local variables throughout.
        unsafe {
            assert_eq!(get(heuristics, 202, 15, 0, &raw mut count, ptr::null_mut()), SUCCESS);
            assert_eq!(count, 1);
            let mut configs = [config];
            assert_eq!(get(heuristics, 202, 15, 1, &raw mut count, configs.as_mut_ptr().cast()), SUCCESS);
            assert_eq!(set(plan, 401, 15, 1, configs.as_ptr().cast()), SUCCESS);
            let mut workspace = -1_i64;
            assert_eq!(get(plan, 402, 3, 1, &raw mut count, (&raw mut workspace).cast()), SUCCESS);
            assert_eq!((count, workspace), (1, 0));
            assert_eq!(get(config, 302, 15, 8, &raw mut count, ptr::null_mut()), SUCCESS);
            assert_eq!(count, 0, "there are no knobs");
            for descriptor in [heuristics, config, plan] {
                assert_eq!(destroy(descriptor), SUCCESS);
            }
        }
    }

    #[test]
    fn the_engines_of_last_resort_need_no_workspace() {
        let (heuristics, config, graph) = (make(4), make(3), make(15));
        let enumeration = 8;
        for (mode, expected) in [(0_i32, 120), (MODE_FALLBACK, 0)] {
            // SAFETY: as above.
            unsafe {
                if let Some(graph) = object::get::<Descriptor>(graph) {
                    graph.bytes = 120;
                }
                assert_eq!(set(heuristics, 201, 15, 1, (&raw const graph).cast()), SUCCESS);
                assert_eq!(set(heuristics, ATTR_HEURISTICS_MODE, enumeration, 1, (&raw const mode).cast()), SUCCESS);
                let mut configs = [config];
                let (mut count, mut workspace) = (0, -1_i64);
                assert_eq!(get(heuristics, 202, 15, 1, &raw mut count, configs.as_mut_ptr().cast()), SUCCESS);
                assert_eq!(get(config, 303, 3, 1, &raw mut count, (&raw mut workspace).cast()), SUCCESS);
                assert_eq!(workspace, expected);
            }
        }
    }

    #[test]
    fn a_workspace_travels_from_the_tensors_to_the_plan() {
        let (operation, graph, plan) = (make(10), make(15), make(5));
        // SAFETY: as above.
        unsafe {
            if let Some(operation) = object::get::<Descriptor>(operation) {
                operation.learn(TENSOR, 100, true);
                operation.learn(TENSOR, 20, true);
            }
            assert_eq!(finalize(operation), SUCCESS);
            assert_eq!(set(graph, 801, 15, 1, (&raw const operation).cast()), SUCCESS);
            assert_eq!(destroy(operation), SUCCESS);
            assert_eq!(set(plan, 401, 15, 1, (&raw const graph).cast()), SUCCESS);
            let (mut count, mut workspace) = (0, 0_i64);
            assert_eq!(get(plan, 402, 3, 1, &raw mut count, (&raw mut workspace).cast()), SUCCESS);
            assert_eq!(workspace, 120);
            assert_eq!(set(graph, 801, 3, i64::MAX, ptr::null()), BAD_PARAM, "a hostile count is refused");
        }
    }
}
