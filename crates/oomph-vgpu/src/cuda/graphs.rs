//! Graphs: nodes are counted, never executed, and have no edges.

use std::ffi::c_int;

use crate::boundary::{InOut, Out, Record, Room};
use crate::cuda::Opaque;
use crate::gpu::gpu;
use crate::graph_memory::PARAMETERS;
use crate::status::CudaStatus;
use crate::stream::{self, StreamHandle};
use crate::{capture, graph_memory};

/// `cudaGraphNodeTypeMemAlloc`
const ALLOCATION_NODE: c_int = 10;
/// `cudaGraphNodeTypeConditional`
const CONDITIONAL_NODE: c_int = 13;
/// Where the parameters of a kind of node begin in `cudaGraphNodeParams`, in bytes.
const KIND_PARAMETERS: usize = 16;
/// Size of `cudaGraphNodeParams`, in bytes; the driver's structure has the same layout.
pub const NODE_PARAMETERS: usize = 256;

/// Makes an empty graph.
pub fn create(graph: Out<'_, Opaque>) {
    graph.set(capture::create_graph());
}

/// Destroys a graph, and gives back what only it kept.
pub fn destroy(graph: Opaque) {
    capture::destroy_graph(graph);
    graph_memory::forget(graph);
}

/// Copies a graph.
pub fn copy(copy: Out<'_, Opaque>, original: Opaque) {
    let made = capture::create_graph();
    capture::add_nodes(made, capture::nodes(original));
    graph_memory::share(original, made);
    copy.set(made);
}

/// Makes an executable of a graph.
pub fn instantiate(executable: Out<'_, Opaque>, graph: Opaque) {
    let made = gpu().handles.fresh();
    graph_memory::share(graph, made);
    executable.set(made);
}

/// Launches an executable: a stream must be there for it.
pub fn launch(stream: StreamHandle) -> Result<(), CudaStatus> {
    stream::get(stream)?;
    Ok(())
}

/// Writes the nodes of a graph. A captured graph is never empty, because torch warns of an empty one.
pub fn nodes(graph: Opaque, nodes: Room<'_, Opaque>, count: InOut<'_, usize>) -> Result<(), CudaStatus> {
    hand_out_nodes(capture::nodes(graph).max(1) as usize, nodes, count)
}

/// Writes the nodes that depend on no other: one, as of a capture on one stream. XLA refuses a captured graph without any.
pub fn roots(nodes: Room<'_, Opaque>, count: InOut<'_, usize>) -> Result<(), CudaStatus> {
    hand_out_nodes(1, nodes, count)
}

fn hand_out_nodes(existing: usize, nodes: Room<'_, Opaque>, count: InOut<'_, usize>) -> Result<(), CudaStatus> {
    let count = count.given().ok_or(CudaStatus::INVALID_VALUE)?;
    if !nodes.is_null() {
        for index in 0..nodes.count() {
            nodes.set(index, if index < existing { gpu().handles.fresh() } else { std::ptr::null_mut() });
        }
    }
    count.set(existing);
    Ok(())
}

/// Adds a node of any kind and hands out its handle. The parameters begin with their kind.
pub fn add_node(
    node: Out<'_, Opaque>,
    graph: Opaque,
    parameters: Record<'_, NODE_PARAMETERS>,
) -> Result<(), CudaStatus> {
    match parameters.read(0) {
        Some(ALLOCATION_NODE) => return add_allocation(node, graph, parameters.part(KIND_PARAMETERS)),
        // The program fills the graphs of its branches itself.
        Some(CONDITIONAL_NODE) => graph_memory::add_bodies(graph, parameters.part(KIND_PARAMETERS))?,
        _ => {}
    }
    capture::add_nodes(graph, 1);
    node.set(gpu().handles.fresh());
    Ok(())
}

/// Adds a node that allocates, and writes the address into its parameters.
pub fn add_allocation(
    node: Out<'_, Opaque>,
    graph: Opaque,
    parameters: Record<'_, PARAMETERS>,
) -> Result<(), CudaStatus> {
    let parameters = parameters.given().ok_or(CudaStatus::INVALID_VALUE)?;
    let made = gpu().handles.fresh();
    graph_memory::allocate(graph, made, parameters)?;
    capture::add_nodes(graph, 1);
    node.set(made);
    Ok(())
}

/// The graph that a node runs as a part of its own.
pub fn child(graph: Out<'_, Opaque>) {
    graph.set(capture::create_graph());
}

/// Writes the parameters of an allocation node.
pub fn allocation(node: Opaque, parameters: Out<'_, [u8; PARAMETERS]>) -> Result<(), CudaStatus> {
    parameters.set(graph_memory::parameters(node).ok_or(CudaStatus::INVALID_VALUE)?);
    Ok(())
}

/// Writes a counter of the memory that a card's graphs keep.
pub fn memory_attribute(ordinal: c_int, attribute: c_int, value: Out<'_, u64>) -> Result<(), CudaStatus> {
    let counter = graph_memory::attribute(ordinal, attribute).ok_or(CudaStatus::INVALID_VALUE)?;
    value.given().ok_or(CudaStatus::INVALID_VALUE)?.set(counter);
    Ok(())
}
