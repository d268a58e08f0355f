//! One question to the graph API, asked by this library itself: the workspace that the heuristics choose for a
//! convolution.

#![deny(unsafe_code)]

use super::convolution::Convolution;
use super::descriptors;
use super::tensor::Tensor;
use crate::boundary::{Out, Plain};
use crate::libcudnn::attribute::{
    ATTR_CONFIG_ENGINE, ATTR_HEURISTICS_MODE, ATTR_HEURISTICS_RESULTS, ATTR_PLAN_CONFIG, ATTR_PLAN_WORKSPACE,
    ATTR_TENSOR_DIMENSIONS, ATTR_TENSOR_STRIDES, ATTR_TENSOR_TYPE, Descriptor, ENGINE, ENGINE_CONFIG, Elements,
    HEURISTICS, PLAN, Places, TENSOR, TYPE_DATA_TYPE, TYPE_INT64,
};
use crate::libcudnn::status::{CudnnStatus, Result};

const TYPE_FLOAT: i32 = 4;
const TYPE_DOUBLE: i32 = 5;
const TYPE_CONVOLUTION_MODE: i32 = 7;
const TYPE_HEURISTICS_MODE: i32 = 8;
const TYPE_NUMERICAL_NOTE: i32 = 11;

const CONVOLUTION: i32 = 1;
const GRAPH: i32 = 15;

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
struct Node(Descriptor<'static>);

impl Drop for Node {
    fn drop(&mut self) {
        // There is nobody to hear that it cannot be destroyed.
        let _ = descriptors::destroy(self.0);
    }
}

impl Node {
    fn new(kind: i32) -> Result<Node> {
        descriptors::create(kind).map(Node)
    }

    fn set<T: Plain>(&self, name: i32, kind: i32, values: &[T]) -> Result<()> {
        descriptors::set(self.0, name, Elements::of(kind, values))
    }

    fn set_node(&self, name: i32, node: &Node) -> Result<()> {
        descriptors::set(self.0, name, Elements::descriptors(&[node.0]))
    }

    fn finalize(&self) -> Result<()> {
        descriptors::finalize(self.0)
    }

    /// Reads numbers; how many there are, of which `values` has the first.
    fn get<T: Plain>(&self, name: i32, kind: i32, values: &mut [T]) -> Result<usize> {
        self.read(name, Places::of(kind, values))
    }

    /// Fills descriptors; how many there are of those that `nodes` has room for.
    fn get_nodes(&self, name: i32, nodes: &[Node]) -> Result<usize> {
        let mut descriptors: Vec<Descriptor<'_>> = nodes.iter().map(|node| node.0).collect();
        self.read(name, Places::descriptors(&mut descriptors))
    }

    fn read(&self, name: i32, places: Places<'_>) -> Result<usize> {
        let mut count = 0;
        descriptors::get(self.0, name, places, Out::to(&mut count))?;
        let room = usize::try_from(places.held().count()).unwrap_or(0);
        Ok(usize::try_from(count).unwrap_or(0).min(room))
    }
}

fn wide(values: &[i32]) -> Vec<i64> {
    values.iter().map(|value| i64::from(*value)).collect()
}

fn tensor_node(tensor: &Tensor, id: i64) -> Result<Node> {
    let node = Node::new(TENSOR)?;
    node.set(ATTR_TENSOR_TYPE, TYPE_DATA_TYPE, &[tensor.kind])?;
    node.set(ATTR_TENSOR_DIMENSIONS, TYPE_INT64, &wide(&tensor.dimensions))?;
    node.set(ATTR_TENSOR_STRIDES, TYPE_INT64, &wide(&tensor.strides))?;
    node.set(906, TYPE_INT64, &[id])?;
    // The program's pointers come from an allocator that aligns far better than any kernel asks.
    node.set(900, TYPE_INT64, &[16_i64])?;
    node.finalize()?;
    Ok(node)
}

/// The workspace of the first plan that the heuristics propose and that can be made.
pub fn ask(question: &Question<'_>) -> Result<u64> {
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

    let mut last = CudnnStatus::NOT_SUPPORTED;
    for mode in HEURISTICS_MODES {
        match first_plan(&graph, mode, question.without_tensor_cores) {
            Ok(bytes) => return Ok(bytes),
            Err(status) => last = status,
        }
    }
    Err(last)
}

fn first_plan(graph: &Node, mode: i32, without_tensor_cores: bool) -> Result<u64> {
    let heuristics = Node::new(HEURISTICS)?;
    heuristics.set(ATTR_HEURISTICS_MODE, TYPE_HEURISTICS_MODE, &[mode])?;
    heuristics.set_node(201, graph)?;
    heuristics.finalize()?;
    let configs = (0..MOST_CONFIGURATIONS).map(|_| Node::new(ENGINE_CONFIG)).collect::<Result<Vec<_>>>()?;
    let count = heuristics.get_nodes(ATTR_HEURISTICS_RESULTS, &configs)?;
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
    Err(CudnnStatus::NOT_SUPPORTED)
}

fn uses_tensor_cores(config: &Node) -> bool {
    let Ok(engine) = Node::new(ENGINE) else { return false };
    let engines = [engine];
    let mut notes = [-1_i32; 16];
    let [engine] = &engines;
    let read = config
        .get_nodes(ATTR_CONFIG_ENGINE, &engines)
        .and_then(|_| engine.get(ATTR_ENGINE_NOTES, TYPE_NUMERICAL_NOTE, &mut notes));
    read.is_ok_and(|count| notes.iter().take(count).any(|note| *note == NOTE_TENSOR_CORE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;
    use crate::libcudnn::data_type;
    use crate::libcudnn::props::tests::h100;
    use crate::libcudnn::real::{self, Real};
    use std::path::Path;

    /// The workspace of a 3x3 convolution that keeps its size, on an H100, by the first proposal of the heuristics
    /// that satisfies `wanted`.
    fn asked(real: &Real, kind: i32, channels: i64, side: i64, channels_last: bool, first_without_tf32: bool) -> f64 {
        let make = |kind: i32| real.create(kind).expect("a descriptor can be made");
        let set = |node, name, elements: Elements<'_>| {
            assert_eq!(real.set(node, name, elements), Ok(()), "attribute {name}");
        };
        let join = |node, name, part| set(node, name, Elements::descriptors(&[part]));
        let tensor = |dimensions: [i64; 4], id: i64| {
            let [_, c, h, w] = dimensions;
            let strides = if channels_last { [c * h * w, 1, c * w, c] } else { [c * h * w, h * w, w, 1] };
            let node = make(TENSOR);
            set(node, 901, Elements::of(TYPE_DATA_TYPE, &[kind]));
            set(node, 902, Elements::of(TYPE_INT64, &dimensions));
            set(node, 903, Elements::of(TYPE_INT64, &strides));
            set(node, 906, Elements::of(TYPE_INT64, &[id]));
            set(node, 900, Elements::of(TYPE_INT64, &[16_i64]));
            assert_eq!(real.finalize(node), Ok(()));
            node
        };
        let x = tensor([1, channels, side, side], 1);
        let w = tensor([channels, channels, 3, 3], 2);
        let y = tensor([1, channels, side, side], 3);
        let convolution = make(CONVOLUTION);
        set(convolution, 100, Elements::of(TYPE_DATA_TYPE, &[data_type::FLOAT]));
        set(convolution, 101, Elements::of(TYPE_CONVOLUTION_MODE, &[1_i32]));
        for name in 102..=105 {
            set(convolution, name, Elements::of(TYPE_INT64, &[1_i64, 1]));
        }
        set(convolution, 106, Elements::of(TYPE_INT64, &[2_i64]));
        assert_eq!(real.finalize(convolution), Ok(()));
        let operation = make(10);
        set(operation, 700, Elements::of(TYPE_FLOAT, &[1.0_f32]));
        set(operation, 701, Elements::of(TYPE_FLOAT, &[0.0_f32]));
        for (name, node) in [(702, convolution), (703, w), (704, x), (705, y)] {
            join(operation, name, node);
        }
        assert_eq!(real.finalize(operation), Ok(()));
        let graph = make(GRAPH);
        join(graph, 801, operation);
        assert_eq!(real.finalize(graph), Ok(()));
        let card = real::describe(real, &h100()).unwrap();
        let heuristics = make(HEURISTICS);
        set(heuristics, 200, Elements::of(TYPE_HEURISTICS_MODE, &HEURISTICS_MODES[..1]));
        join(heuristics, 201, graph);
        join(heuristics, 204, card);
        assert_eq!(real.finalize(heuristics), Ok(()));
        let mut configs: Vec<_> = (0..40).map(|_| make(ENGINE_CONFIG)).collect();
        let (count, status) = real.get(heuristics, 202, Places::descriptors(&mut configs));
        assert_eq!(status, Ok(()));
        for config in configs.into_iter().take(count as usize) {
            let plan = make(PLAN);
            join(plan, 401, config);
            join(plan, 407, card);
            if real.finalize(plan).is_err() {
                continue;
            }
            let mut bytes = [0_i64];
            assert_eq!(real.get(plan, 402, Places::of(TYPE_INT64, &mut bytes)), (1, Ok(())));
            let [bytes] = bytes;
            let mebibytes = bytes as f64 / 1_048_576.0;
            // The TF32 kernels convert both tensors, the others one.
            if !first_without_tf32 || mebibytes < 1100.0 {
                return mebibytes;
            }
        }
        panic!("the heuristics proposed nothing");
    }

    #[test]
    fn the_real_library_answers_without_a_gpu() {
        let Some(path) = std::env::var_os("OOMPH_TEST_CUDNN") else {
            eprintln!("skipped: OOMPH_TEST_CUDNN does not name a libcudnn of 9.8 or newer");
            return;
        };
        let real = gpu().cudnn.libraries.load(Path::new(&path)).expect("the library loads");
        assert!(real.is_deviceless(), "{} has no deviceless mode", real.version);
        let near = |left: f64, right: f64| assert!((left - right).abs() < 0.6, "{left} MiB, not {right} MiB");
        near(asked(&real, data_type::HALF, 512, 512, false, false), 516.5);
        near(asked(&real, data_type::HALF, 256, 1024, false, false), 1025.1);
        near(asked(&real, data_type::HALF, 256, 1024, true, false), 0.0);
        near(asked(&real, data_type::FLOAT, 256, 1024, false, true), 1026.3);
    }
}
