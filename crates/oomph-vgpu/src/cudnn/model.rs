//! What answers the graph API where no libcudnn can be asked: descriptors that remember what was set, heuristics that
//! propose one engine, and a workspace that is an estimate.
//!
//! The estimate is what cuDNN 9 does with tensors in NCHW order on tensor cores: its kernels want channels-last data,
//! so the workspace holds a converted copy of all three tensors. A 3x3 half convolution of 1x512x512x512 takes
//! 516.5 MiB by NVIDIA's own answer, which is 256 + 256 + 4.5. Channels-last tensors need none. The truth lies between
//! 0 and a little above the estimate.

use std::collections::BTreeMap;

use super::card;
use super::object::{self, Handle, Kind, change, known};
use crate::boundary::{Any, Out, pass};
use crate::libcudnn::attribute::{
    ATTR_CONFIG_ENGINE, ATTR_CONFIG_WORKSPACE, ATTR_HEURISTICS_MODE, ATTR_HEURISTICS_RESULTS, ATTR_PLAN_CONFIG,
    ATTR_PLAN_WORKSPACE, ATTR_TENSOR_DIMENSIONS, ATTR_TENSOR_STRIDES, ATTR_TENSOR_TYPE, Descriptor, Elements,
    MODE_FALLBACK, Places, TENSOR, TYPE_DESCRIPTOR, TYPE_INT64,
};
use crate::libcudnn::data_type;
use crate::libcudnn::status::{CudnnStatus, Result};

const CONVOLUTION_FORWARD: i32 = 10;
const CONVOLUTION_BACKWARD_DATA: i32 = 12;

const ATTR_GRAPH_ENGINE_COUNT: i32 = 802;
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

/// What the model knows of a descriptor.
struct Described {
    kind: i32,
    attributes: BTreeMap<i32, Attribute>,
    /// For a tensor its own size, for everything that was built from tensors the workspace, in bytes.
    bytes: u64,
    /// For a tensor: whether a tensor-core kernel would convert it.
    converted: bool,
}

impl Kind for Described {
    const KIND: u64 = 100;
}

/// The model's side of a descriptor.
fn handle(descriptor: Descriptor<'_>) -> Handle<'_, Described> {
    // SAFETY: where the model answers, it makes all of the program's descriptors.
    unsafe { pass::<Any, _>(descriptor.pointer()) }
}

/// Makes a descriptor.
pub fn create(kind: i32) -> Descriptor<'static> {
    let new = object::make(Described { kind, attributes: BTreeMap::new(), bytes: 0, converted: false });
    // SAFETY: it was made just now.
    unsafe { pass::<Any, _>(new) }
}

/// Ends a descriptor.
pub fn destroy(descriptor: Descriptor<'_>) -> Result<()> {
    object::destroy(handle(descriptor))
}

/// Sets an attribute. Descriptors hand on what they know when they are set, because a program may destroy them before
/// the one that was built from them.
pub fn set(descriptor: Descriptor<'_>, name: i32, elements: Elements<'_>) -> Result<()> {
    let length = usize::try_from(elements.count()).ok().filter(|count| *count <= MOST_ELEMENTS);
    let length = length.ok_or(CudnnStatus::BAD_PARAM)?;
    let mut own = handle(descriptor);
    known(&own)?;
    if elements.is_null() && length > 0 {
        return Err(CudnnStatus::BAD_PARAM);
    }
    let kind = elements.kind();
    if kind == TYPE_DESCRIPTOR {
        for child in (0..length).filter_map(|index| elements.descriptor(index)) {
            let child = handle(child);
            let Ok((kind, bytes, converted)) = known(&child).map(|child| (child.kind, child.bytes, child.converted))
            else {
                continue;
            };
            change(&mut own)?.learn(kind, bytes, converted);
        }
    }
    let attribute = Attribute { kind, count: elements.count(), bytes: elements.bytes().collect() };
    change(&mut own)?.attributes.insert(name, attribute);
    Ok(())
}

/// Reads an attribute, and how many elements it has.
pub fn get(descriptor: Descriptor<'_>, name: i32, places: Places<'_>, count: Out<'_, i64>) -> Result<()> {
    count.set(0);
    let own = handle(descriptor);
    let own = known(&own)?;
    match (name, places.held().kind()) {
        (ATTR_HEURISTICS_RESULTS | ATTR_CONFIG_ENGINE | ATTR_PLAN_CONFIG | ATTR_ENGINE_GRAPH, TYPE_DESCRIPTOR) => {
            // The engines of last resort need no workspace: PyTorch comes to them where none could be had.
            let bytes = if name == ATTR_HEURISTICS_RESULTS && own.is_last_resort() { 0 } else { own.bytes };
            if let Some(child) = places.held().descriptor(0)
                && let Ok(child) = change(&mut handle(child))
            {
                child.bytes = bytes;
            }
            count.set(1);
        }
        (ATTR_PLAN_WORKSPACE | ATTR_CONFIG_WORKSPACE | ATTR_GRAPH_ENGINE_COUNT | ATTR_ENGINE_INDEX, TYPE_INT64) => {
            places.set_long(match name {
                ATTR_GRAPH_ENGINE_COUNT => 1,
                ATTR_ENGINE_INDEX => 0,
                _ => i64::try_from(own.bytes).unwrap_or(i64::MAX),
            });
            count.set(1);
        }
        (_, kind) => {
            if let Some(attribute) = own.attributes.get(&name).filter(|attribute| attribute.kind == kind) {
                places.fill(&attribute.bytes);
                count.set(attribute.count);
            }
        }
    }
    Ok(())
}

/// Finalizes a descriptor.
pub fn finalize(descriptor: Descriptor<'_>) -> Result<()> {
    let mut own = handle(descriptor);
    let own = change(&mut own)?;
    match own.kind {
        TENSOR => own.measure(),
        CONVOLUTION_FORWARD..=CONVOLUTION_BACKWARD_DATA if !own.converted => own.bytes = 0,
        _ => {}
    }
    Ok(())
}

impl Described {
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
        self.bytes = elements.saturating_mul(data_type::bits(kind) as u64) / 8;
        let channels_last = strides.get(1).is_none_or(|stride| *stride == 1);
        // Tensor cores take half from Volta on, single precision (as TF32) from Ampere on.
        let version = card::current().map_or(0, |card| card.version);
        let tensor_cores = match kind {
            data_type::HALF => version >= 700,
            data_type::BFLOAT16 | data_type::FLOAT => version >= 800,
            _ => false,
        };
        self.converted = tensor_cores && !channels_last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    /// Reads one number of a descriptor.
    fn long(descriptor: Descriptor<'_>, name: i32) -> (i64, i64) {
        let (mut count, mut value) = (-1, [-1_i64]);
        let places = Places::of(TYPE_INT64, &mut value);
        assert_eq!(get(descriptor, name, places, Out::to(&mut count)), Ok(()));
        let [value] = value;
        (count, value)
    }

    fn join(descriptor: Descriptor<'_>, name: i32, part: Descriptor<'_>) {
        assert_eq!(set(descriptor, name, Elements::descriptors(&[part])), Ok(()));
    }

    /// Null, with what the program says of it.
    fn null<'a>(kind: i32, count: i64) -> Places<'a> {
        // SAFETY: null is what the program may pass.
        unsafe { Places::new(kind, count, ptr::null_mut()) }
    }

    #[test]
    fn a_fake_descriptor_counts_as_frameworks_expect() {
        let (heuristics, config, plan) = (create(4), create(3), create(5));
        let mut count = -1;
        assert_eq!(get(heuristics, 202, null(TYPE_DESCRIPTOR, 0), Out::to(&mut count)), Ok(()));
        assert_eq!(count, 1);
        let mut configs = [config];
        assert_eq!(get(heuristics, 202, Places::descriptors(&mut configs), Out::to(&mut count)), Ok(()));
        join(plan, 401, config);
        assert_eq!(long(plan, 402), (1, 0));
        assert_eq!(get(config, 302, null(TYPE_DESCRIPTOR, 8), Out::to(&mut count)), Ok(()));
        assert_eq!(count, 0, "there are no knobs");
        for descriptor in [heuristics, config, plan] {
            assert_eq!(destroy(descriptor), Ok(()));
        }
    }

    #[test]
    fn the_engines_of_last_resort_need_no_workspace() {
        let (heuristics, config, graph) = (create(4), create(3), create(15));
        let enumeration = 8;
        for (mode, expected) in [(0_i32, 120), (MODE_FALLBACK, 0)] {
            change(&mut handle(graph)).expect("the graph is alive").bytes = 120;
            join(heuristics, 201, graph);
            assert_eq!(set(heuristics, ATTR_HEURISTICS_MODE, Elements::of(enumeration, &[mode])), Ok(()));
            let (mut configs, mut count) = ([config], 0);
            assert_eq!(get(heuristics, 202, Places::descriptors(&mut configs), Out::to(&mut count)), Ok(()));
            assert_eq!(long(config, 303), (1, expected));
        }
    }

    #[test]
    fn a_workspace_travels_from_the_tensors_to_the_plan() {
        let (operation, graph, plan) = (create(10), create(15), create(5));
        {
            let mut operation = handle(operation);
            let operation = change(&mut operation).expect("the operation is alive");
            operation.learn(TENSOR, 100, true);
            operation.learn(TENSOR, 20, true);
        }
        assert_eq!(finalize(operation), Ok(()));
        join(graph, 801, operation);
        assert_eq!(destroy(operation), Ok(()));
        join(plan, 401, graph);
        assert_eq!(long(plan, 402), (1, 120));
        let hostile = null(TYPE_INT64, i64::MAX).held();
        assert_eq!(set(graph, 801, hostile), Err(CudnnStatus::BAD_PARAM), "a hostile count is refused");
    }
}
