//! Graphs: nodes are counted, never executed, and have no edges.

use std::ffi::{c_int, c_void};

use crate::boundary::{InOut, Out, Room, put};
use crate::gpu::gpu;
use crate::runtime::{answer, fail};
use crate::status::{INVALID_VALUE, SUCCESS};
use crate::{capture, graph_memory, loader, stream};

/// `cudaGraphNodeTypeMemAlloc`
const ALLOCATION_NODE: c_int = 10;
/// Where the parameters of a kind of node begin in `cudaGraphNodeParams`, in bytes.
const KIND_PARAMETERS: usize = 16;
/// Size of `cudaGraphExecUpdateResultInfo`, in bytes; all zeros mean that the update was done.
const UPDATE_RESULT_BYTES: usize = 24;

pub fn cudaGraphCreate(graph: Out<'_, *mut c_void>, _flags: u32) -> u32 {
    graph.set(capture::create_graph());
    SUCCESS
}

pub fn cudaGraphDestroy(graph: *mut c_void) -> u32 {
    capture::destroy_graph(graph);
    graph_memory::forget(graph);
    SUCCESS
}

pub fn cudaGraphClone(copy: Out<'_, *mut c_void>, original: *mut c_void) -> u32 {
    let made = capture::create_graph();
    capture::add_nodes(made, capture::nodes(original));
    graph_memory::share(original, made);
    copy.set(made);
    SUCCESS
}

/// Until CUDA 11 the third argument was a place for a node that is at fault.
pub unsafe fn cudaGraphInstantiate(executable: Out<'_, *mut c_void>, graph: *mut c_void, flags: u64) -> u32 {
    if loader::runtime_major() <= 11 {
        // SAFETY: the contract of CUDA 11: what is a number today was a place for a node.
        unsafe { put(flags as *mut *mut c_void, std::ptr::null_mut()) };
    }
    cudaGraphInstantiateWithFlags(executable, graph, flags)
}

pub fn cudaGraphInstantiateWithFlags(executable: Out<'_, *mut c_void>, graph: *mut c_void, _flags: u64) -> u32 {
    let made = gpu().handles.fresh();
    graph_memory::share(graph, made);
    executable.set(made);
    SUCCESS
}

pub fn cudaGraphInstantiateWithParams(
    executable: Out<'_, *mut c_void>,
    graph: *mut c_void,
    _parameters: *mut c_void,
) -> u32 {
    cudaGraphInstantiateWithFlags(executable, graph, 0)
}

pub fn cudaGraphExecDestroy(executable: *mut c_void) -> u32 {
    graph_memory::forget(executable);
    SUCCESS
}

/// An executable can always take another graph's place. Until CUDA 11 the third argument was a place for a node that is
/// at fault and the fourth one for the result; since then the third is a structure of both.
pub unsafe fn cudaGraphExecUpdate(
    executable: *mut c_void,
    graph: *mut c_void,
    result: *mut c_void,
    older_result: Out<'_, c_int>,
) -> u32 {
    graph_memory::share(graph, executable);
    if loader::runtime_major() <= 11 {
        // SAFETY: CUDA's contract: a place for a node, or null.
        unsafe {
            put(result.cast::<*mut c_void>(), std::ptr::null_mut());
            older_result.set(0);
        }
    } else {
        // SAFETY: CUDA's contract: the structure of this CUDA version, or null.
        unsafe { put(result.cast(), [0_u8; UPDATE_RESULT_BYTES]) };
    }
    SUCCESS
}

pub fn cudaGraphLaunch(_executable: *mut c_void, handle: *mut c_void) -> u32 {
    match stream::get(handle) {
        Ok(_) => SUCCESS,
        Err(failure) => fail(failure),
    }
}

/// The nodes of a graph. A captured graph is never empty, because torch warns of an empty one.
pub fn cudaGraphGetNodes(graph: *mut c_void, nodes: Room<'_, *mut c_void>, count: InOut<'_, usize>) -> u32 {
    let Some(count) = count.given() else { return fail(INVALID_VALUE) };
    let existing = capture::nodes(graph).max(1) as usize;
    if !nodes.is_null() {
        for index in 0..nodes.count() {
            nodes.set(index, if index < existing { gpu().handles.fresh() } else { std::ptr::null_mut() });
        }
    }
    count.set(existing);
    SUCCESS
}

/// How many edges there are: none. The older shapes of the three functions below lack the argument before the count.
fn no_edges(newer: Out<'_, usize>, older: Out<'_, usize>) -> u32 {
    let count = if loader::runtime_major() >= 13 { newer } else { older };
    let Some(count) = count.given() else { return fail(INVALID_VALUE) };
    count.set(0);
    SUCCESS
}

pub fn cudaGraphGetEdges(
    _graph: *mut c_void,
    _from: *mut c_void,
    _to: *mut c_void,
    data: Out<'_, usize>,
    count: Out<'_, usize>,
) -> u32 {
    no_edges(count, data)
}

pub fn cudaGraphNodeGetDependencies(
    _node: *mut c_void,
    _nodes: *mut c_void,
    data: Out<'_, usize>,
    count: Out<'_, usize>,
) -> u32 {
    no_edges(count, data)
}

pub fn cudaGraphNodeGetDependentNodes(
    _node: *mut c_void,
    _nodes: *mut c_void,
    data: Out<'_, usize>,
    count: Out<'_, usize>,
) -> u32 {
    no_edges(count, data)
}

pub fn cudaGraphNodeGetType(_node: *mut c_void, kind: Out<'_, c_int>) -> u32 {
    // 0 is a kernel.
    kind.set(0);
    SUCCESS
}

/// Adds a node of any kind and hands out its handle. Before CUDA 13 the argument of data about edges was missing, and
/// the parameters came where the count is now.
pub unsafe fn cudaGraphAddNode(
    node: Out<'_, *mut c_void>,
    graph: *mut c_void,
    dependencies: *const c_void,
    data: *const c_void,
    count: usize,
    parameters: *mut c_void,
) -> u32 {
    let parameters = if loader::runtime_major() >= 13 { parameters } else { count as *mut c_void };
    // SAFETY: the contract is that of the newer function.
    unsafe { cudaGraphAddNode_v2(node, graph, dependencies, data, count, parameters) }
}

pub unsafe fn cudaGraphAddNode_v2(
    node: Out<'_, *mut c_void>,
    graph: *mut c_void,
    _dependencies: *const c_void,
    _data: *const c_void,
    _count: usize,
    parameters: *mut c_void,
) -> u32 {
    // SAFETY: CUDA's contract: parameters, which begin with their kind.
    if !parameters.is_null() && unsafe { parameters.cast::<c_int>().read_unaligned() } == ALLOCATION_NODE {
        // SAFETY: CUDA's contract: the parameters of the kind lie within the structure.
        let parameters = unsafe { parameters.byte_add(KIND_PARAMETERS) };
        // SAFETY: these are the parameters of an allocation, as their kind says.
        return unsafe { cudaGraphAddMemAllocNode(node, graph, std::ptr::null(), 0, parameters) };
    }
    capture::add_nodes(graph, 1);
    node.set(gpu().handles.fresh());
    SUCCESS
}

pub unsafe fn cudaGraphAddMemAllocNode(
    node: Out<'_, *mut c_void>,
    graph: *mut c_void,
    _dependencies: *const c_void,
    _count: usize,
    parameters: *mut c_void,
) -> u32 {
    if parameters.is_null() {
        return fail(INVALID_VALUE);
    }
    let made = gpu().handles.fresh();
    // SAFETY: CUDA's contract: the parameters of an allocation; null was refused.
    let allocated = unsafe { graph_memory::allocate(graph, made, parameters) };
    if allocated.is_ok() {
        capture::add_nodes(graph, 1);
        node.set(made);
    }
    answer(allocated)
}

pub unsafe fn cudaGraphMemAllocNodeGetParams(node: *mut c_void, parameters: *mut c_void) -> u32 {
    // SAFETY: CUDA's contract: a place for the parameters of an allocation, or null.
    if unsafe { graph_memory::parameters(node, parameters) } { SUCCESS } else { fail(INVALID_VALUE) }
}

pub fn cudaDeviceGetGraphMemAttribute(ordinal: c_int, attribute: c_int, value: Out<'_, u64>) -> u32 {
    match (graph_memory::attribute(ordinal, attribute), value.given()) {
        (Some(counter), Some(value)) => {
            value.set(counter);
            SUCCESS
        }
        _ => fail(INVALID_VALUE),
    }
}
