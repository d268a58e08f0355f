//! One question to the graph API, asked by this library itself: the workspace that the heuristics choose for a
//! convolution.

use std::ffi::c_void;
use std::ptr;

use super::backend::{
    ATTR_HEURISTICS_RESULTS, ATTR_PLAN_CONFIG, ATTR_PLAN_WORKSPACE, ENGINE, ENGINE_CONFIG, HEURISTICS, PLAN,
    TYPE_DESCRIPTOR, TYPE_INT64, cudnnBackendCreateDescriptor, cudnnBackendDestroyDescriptor, cudnnBackendFinalize,
    cudnnBackendGetAttribute, cudnnBackendSetAttribute,
};
use super::convolution::Convolution;
use super::object::{NOT_SUPPORTED, SUCCESS};
use super::tensor::Tensor;

const TYPE_DATA_TYPE: i32 = 1;
const TYPE_FLOAT: i32 = 4;
const TYPE_DOUBLE: i32 = 5;
const TYPE_CONVOLUTION_MODE: i32 = 7;
const TYPE_HEURISTICS_MODE: i32 = 8;
const TYPE_NUMERICAL_NOTE: i32 = 11;

const CONVOLUTION: i32 = 1;
const GRAPH: i32 = 15;
const TENSOR: i32 = 17;

const ATTR_CONFIG_ENGINE: i32 = 300;
const ATTR_ENGINE_NOTES: i32 = 1303;
const NOTE_TENSOR_CORE: i32 = 0;
/// `CUDNN_HEUR_MODE_A` of cuDNN 8 and later, then the list of last resort.
const HEURISTICS_MODES: [i32; 2] = [3, 2];
/// More configurations than heuristics propose.
const MOST_CONFIGURATIONS: usize = 64;

/// What is asked.
pub struct Question<'a> {
    /// The kind of the operation's descriptor: 10 forward, 11 backward of the filter, 12 backward of the data.
    pub operation: i32,
    /// The input, or its gradient.
    pub x: &'a Tensor,
    /// The filter, or its gradient.
    pub w: &'a Tensor,
    /// The output, or its gradient.
    pub y: &'a Tensor,
    /// How the filter moves.
    pub convolution: &'a Convolution,
    /// Whether only ordinary arithmetic is wanted.
    pub without_tensor_cores: bool,
}

/// A descriptor that ends with the question.
struct Node(*mut c_void);

impl Drop for Node {
    fn drop(&mut self) {
        // SAFETY: the descriptor was made by `Node::new`, and nobody else holds it.
        unsafe { cudnnBackendDestroyDescriptor(self.0) };
    }
}

impl Node {
    fn new(kind: i32) -> Result<Node, u32> {
        let mut address = ptr::null_mut();
        // SAFETY: the out-parameter is a local variable.
        match unsafe { cudnnBackendCreateDescriptor(kind, &raw mut address) } {
            SUCCESS => Ok(Node(address)),
            status => Err(status),
        }
    }

    fn set<T>(&self, name: i32, kind: i32, values: &[T]) -> Result<(), u32> {
        let count = values.len() as i64;
        // SAFETY: the descriptor is alive, and the elements are as many as is said. Every caller passes the Rust type
        // that has the size of the attribute type.
        check(unsafe { cudnnBackendSetAttribute(self.0, name, kind, count, values.as_ptr().cast()) })
    }

    fn set_node(&self, name: i32, node: &Node) -> Result<(), u32> {
        self.set(name, TYPE_DESCRIPTOR, &[node.0])
    }

    fn finalize(&self) -> Result<(), u32> {
        // SAFETY: the descriptor is alive.
        check(unsafe { cudnnBackendFinalize(self.0) })
    }

    /// Reads up to `values.len()` elements; how many there were.
    fn get<T>(&self, name: i32, kind: i32, values: &mut [T]) -> Result<usize, u32> {
        let mut count = 0;
        let room = values.len() as i64;
        // SAFETY: the descriptor is alive, and there is room for as many elements as is said, of the attribute's size.
        check(unsafe {
            cudnnBackendGetAttribute(self.0, name, kind, room, &raw mut count, values.as_mut_ptr().cast())
        })?;
        Ok(usize::try_from(count).unwrap_or(0).min(values.len()))
    }
}

fn check(status: u32) -> Result<(), u32> {
    if status == SUCCESS { Ok(()) } else { Err(status) }
}

fn wide(values: &[i32]) -> Vec<i64> {
    values.iter().map(|value| i64::from(*value)).collect()
}

fn tensor_node(tensor: &Tensor, id: i64) -> Result<Node, u32> {
    let node = Node::new(TENSOR)?;
    node.set(901, TYPE_DATA_TYPE, &[tensor.kind])?;
    node.set(902, TYPE_INT64, &wide(&tensor.dimensions))?;
    node.set(903, TYPE_INT64, &wide(&tensor.strides))?;
    node.set(906, TYPE_INT64, &[id])?;
    // The program's pointers come from an allocator that aligns far better than any kernel asks.
    node.set(900, TYPE_INT64, &[16_i64])?;
    node.finalize()?;
    Ok(node)
}

/// The workspace of the first plan that the heuristics propose and that can be made.
pub fn ask(question: &Question<'_>) -> Result<u64, u32> {
    let (x, w, y) = (tensor_node(question.x, 1)?, tensor_node(question.w, 2)?, tensor_node(question.y, 3)?);
    let own = question.convolution;
    let convolution = Node::new(CONVOLUTION)?;
    convolution.set(100, TYPE_DATA_TYPE, &[own.kind])?;
    convolution.set(101, TYPE_CONVOLUTION_MODE, &[own.mode])?;
    convolution.set(102, TYPE_INT64, &wide(&own.dilation))?;
    convolution.set(103, TYPE_INT64, &wide(&own.stride))?;
    convolution.set(104, TYPE_INT64, &wide(&own.padding))?;
    convolution.set(105, TYPE_INT64, &wide(&own.padding))?;
    convolution.set(106, TYPE_INT64, &[own.padding.len() as i64])?;
    convolution.finalize()?;

    let operation = Node::new(question.operation)?;
    // The attributes of the three operations follow each other: alpha, beta, convolution, filter, input, output.
    let base = match question.operation {
        11 => 712,
        12 => 706,
        _ => 700,
    };
    if own.kind == 1 {
        operation.set(base, TYPE_DOUBLE, &[1.0_f64])?;
        operation.set(base + 1, TYPE_DOUBLE, &[0.0_f64])?;
    } else {
        operation.set(base, TYPE_FLOAT, &[1.0_f32])?;
        operation.set(base + 1, TYPE_FLOAT, &[0.0_f32])?;
    }
    operation.set_node(base + 2, &convolution)?;
    for (name, tensor) in (base + 3..).zip([&w, &x, &y]) {
        operation.set_node(name, tensor)?;
    }
    operation.finalize()?;
    let graph = Node::new(GRAPH)?;
    graph.set_node(801, &operation)?;
    graph.finalize()?;

    let mut last = NOT_SUPPORTED;
    for mode in HEURISTICS_MODES {
        match first_plan(&graph, mode, question.without_tensor_cores) {
            Ok(bytes) => return Ok(bytes),
            Err(status) => last = status,
        }
    }
    Err(last)
}

fn first_plan(graph: &Node, mode: i32, without_tensor_cores: bool) -> Result<u64, u32> {
    let heuristics = Node::new(HEURISTICS)?;
    heuristics.set(200, TYPE_HEURISTICS_MODE, &[mode])?;
    heuristics.set_node(201, graph)?;
    heuristics.finalize()?;
    let configs = (0..MOST_CONFIGURATIONS).map(|_| Node::new(ENGINE_CONFIG)).collect::<Result<Vec<_>, _>>()?;
    let mut addresses: Vec<*mut c_void> = configs.iter().map(|config| config.0).collect();
    let count = heuristics.get(ATTR_HEURISTICS_RESULTS, TYPE_DESCRIPTOR, &mut addresses)?;
    for config in configs.iter().take(count) {
        if without_tensor_cores && uses_tensor_cores(config) {
            continue;
        }
        let plan = Node::new(PLAN)?;
        plan.set_node(ATTR_PLAN_CONFIG, config)?;
        if plan.finalize().is_err() {
            continue;
        }
        let mut bytes = [0_i64];
        plan.get(ATTR_PLAN_WORKSPACE, TYPE_INT64, &mut bytes)?;
        let [bytes] = bytes;
        return Ok(u64::try_from(bytes).unwrap_or(0));
    }
    Err(NOT_SUPPORTED)
}

fn uses_tensor_cores(config: &Node) -> bool {
    let Ok(engine) = Node::new(ENGINE) else { return false };
    let mut notes = [-1_i32; 16];
    let read = config
        .get(ATTR_CONFIG_ENGINE, TYPE_DESCRIPTOR, &mut [engine.0])
        .and_then(|_| engine.get(ATTR_ENGINE_NOTES, TYPE_NUMERICAL_NOTE, &mut notes));
    read.is_ok_and(|count| notes.iter().take(count).any(|note| *note == NOTE_TENSOR_CORE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cudnn::props::tests::h100;
    use crate::cudnn::real::{self, Real};
    use crate::cudnn::tensor;
    use std::path::Path;

    /// The workspace of a 3x3 convolution that keeps its size, on an H100, by the first proposal of the heuristics
    /// that satisfies `wanted`.
    fn asked(real: &Real, kind: i32, channels: i64, side: i64, channels_last: bool, first_without_tf32: bool) -> f64 {
        // SAFETY: descriptors of the library and local variables throughout, as in the functions above.
        unsafe {
            let make = |kind: i32| {
                let mut out = ptr::null_mut();
                assert_eq!(real.create(kind, &raw mut out), 0);
                out
            };
            let set = |node, name, kind, count: usize, values: *const c_void| {
                assert_eq!(real.set(node, name, kind, count as i64, values), 0, "attribute {name}");
            };
            let tensor = |dimensions: [i64; 4], id: i64| {
                let [_, c, h, w] = dimensions;
                let strides = if channels_last { [c * h * w, 1, c * w, c] } else { [c * h * w, h * w, w, 1] };
                let node = make(TENSOR);
                set(node, 901, TYPE_DATA_TYPE, 1, (&raw const kind).cast());
                set(node, 902, TYPE_INT64, 4, dimensions.as_ptr().cast());
                set(node, 903, TYPE_INT64, 4, strides.as_ptr().cast());
                set(node, 906, TYPE_INT64, 1, (&raw const id).cast());
                set(node, 900, TYPE_INT64, 1, (&raw const SIXTEEN).cast());
                assert_eq!(real.finalize(node), 0);
                node
            };
            let x = tensor([1, channels, side, side], 1);
            let w = tensor([channels, channels, 3, 3], 2);
            let y = tensor([1, channels, side, side], 3);
            let convolution = make(CONVOLUTION);
            let (float, cross, ones, two) = (tensor::FLOAT, 1_i32, [1_i64, 1], 2_i64);
            set(convolution, 100, TYPE_DATA_TYPE, 1, (&raw const float).cast());
            set(convolution, 101, TYPE_CONVOLUTION_MODE, 1, (&raw const cross).cast());
            for name in 102..=105 {
                set(convolution, name, TYPE_INT64, 2, ones.as_ptr().cast());
            }
            set(convolution, 106, TYPE_INT64, 1, (&raw const two).cast());
            assert_eq!(real.finalize(convolution), 0);
            let operation = make(10);
            let (one, zero) = (1.0_f32, 0.0_f32);
            set(operation, 700, TYPE_FLOAT, 1, (&raw const one).cast());
            set(operation, 701, TYPE_FLOAT, 1, (&raw const zero).cast());
            for (name, node) in [(702, convolution), (703, w), (704, x), (705, y)] {
                set(operation, name, TYPE_DESCRIPTOR, 1, (&raw const node).cast());
            }
            assert_eq!(real.finalize(operation), 0);
            let graph = make(GRAPH);
            set(graph, 801, TYPE_DESCRIPTOR, 1, (&raw const operation).cast());
            assert_eq!(real.finalize(graph), 0);
            let card = real::describe(real, &h100()).unwrap();
            let heuristics = make(HEURISTICS);
            set(heuristics, 200, TYPE_HEURISTICS_MODE, 1, HEURISTICS_MODES.as_ptr().cast());
            set(heuristics, 201, TYPE_DESCRIPTOR, 1, (&raw const graph).cast());
            set(heuristics, 204, TYPE_DESCRIPTOR, 1, (&raw const card).cast());
            assert_eq!(real.finalize(heuristics), 0);
            let configs: Vec<_> = (0..40).map(|_| make(ENGINE_CONFIG)).collect();
            let (mut count, room) = (0, configs.len() as i64);
            let out = configs.as_ptr().cast_mut().cast();
            assert_eq!(real.get(heuristics, 202, TYPE_DESCRIPTOR, room, &raw mut count, out), 0);
            for config in configs.into_iter().take(count as usize) {
                let plan = make(PLAN);
                set(plan, 401, TYPE_DESCRIPTOR, 1, (&raw const config).cast());
                set(plan, 407, TYPE_DESCRIPTOR, 1, (&raw const card).cast());
                if real.finalize(plan) != 0 {
                    continue;
                }
                let (mut bytes, mut got) = (0_i64, 0);
                assert_eq!(real.get(plan, 402, TYPE_INT64, 1, &raw mut got, (&raw mut bytes).cast()), 0);
                let mebibytes = bytes as f64 / 1_048_576.0;
                // The TF32 kernels convert both tensors, the others one.
                if !first_without_tf32 || mebibytes < 1100.0 {
                    return mebibytes;
                }
            }
        }
        panic!("the heuristics proposed nothing");
    }

    static SIXTEEN: i64 = 16;

    #[test]
    fn the_real_library_answers_without_a_gpu() {
        let Some(path) = std::env::var_os("OOMPH_TEST_CUDNN") else {
            eprintln!("skipped: OOMPH_TEST_CUDNN does not name a libcudnn of 9.8 or newer");
            return;
        };
        let real = real::load(Path::new(&path)).expect("the library loads");
        assert!(real.is_deviceless(), "{} has no deviceless mode", real.version);
        let near = |left: f64, right: f64| assert!((left - right).abs() < 0.6, "{left} MiB, not {right} MiB");
        near(asked(&real, tensor::HALF, 512, 512, false, false), 516.5);
        near(asked(&real, tensor::HALF, 256, 1024, false, false), 1025.1);
        near(asked(&real, tensor::HALF, 256, 1024, true, false), 0.0);
        near(asked(&real, tensor::FLOAT, 256, 1024, false, true), 1026.3);
    }
}
