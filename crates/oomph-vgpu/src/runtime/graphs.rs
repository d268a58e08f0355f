//! Graphs. Several functions have another shape in another version of CUDA, under the same name.

use std::ffi::{c_int, c_void};

use crate::boundary::{InOut, OncePointer, Out, Record, Room};
use crate::cuda::graphs::NODE_PARAMETERS;
use crate::cuda::{Opaque, functions, graphs};
use crate::graph_memory::{self, PARAMETERS};
use crate::loader;
use crate::status::{CudaStatus, RuntimeStatus};
use crate::stream::StreamHandle;

/// Size of `cudaGraphExecUpdateResultInfo`, in bytes; all zeros mean that the update was done.
const UPDATE_RESULT: usize = 24;

functions! { RuntimeStatus:
    cudaGraphCreate(graph: Out<'_, Opaque>, _flags: u32) = graphs::create(graph);
    cudaGraphDestroy(graph: Opaque) = graphs::destroy(graph);
    cudaGraphClone(copy: Out<'_, Opaque>, original: Opaque) = graphs::copy(copy, original);
    /// Until CUDA 11 the third argument was a place for a node that is at fault.
    cudaGraphInstantiate(executable: Out<'_, Opaque>, graph: Opaque, flags: OncePointer<'_>) = {
        if loader::runtime_major() <= 11 {
            flags.pointer::<Out<'_, Opaque>>().set(std::ptr::null_mut());
        }
        graphs::instantiate(executable, graph);
    };
    cudaGraphInstantiateWithFlags(executable: Out<'_, Opaque>, graph: Opaque, _flags: u64)
        = graphs::instantiate(executable, graph);
    cudaGraphInstantiateWithParams(executable: Out<'_, Opaque>, graph: Opaque, _parameters: *mut c_void)
        = graphs::instantiate(executable, graph);
    cudaGraphExecDestroy(executable: Opaque) = graph_memory::forget(executable);
    cudaGraphExecUpdate(
        executable: Opaque, graph: Opaque, result: Record<'_, UPDATE_RESULT>, older_result: Out<'_, c_int>
    ) = update(executable, graph, result, older_result);
    cudaGraphLaunch(_executable: Opaque, stream: StreamHandle) = graphs::launch(stream);
    cudaGraphGetNodes(graph: Opaque, nodes: Room<'_, Opaque>, count: InOut<'_, usize>)
        = graphs::nodes(graph, nodes, count);
    cudaGraphGetRootNodes(_graph: Opaque, nodes: Room<'_, Opaque>, count: InOut<'_, usize>) = graphs::roots(nodes, count);
    cudaGraphGetEdges(
        _graph: Opaque, _from: *mut c_void, _to: *mut c_void, data: Out<'_, usize>, count: Out<'_, usize>
    ) = no_edges(count, data);
    cudaGraphNodeGetDependencies(
        _node: Opaque, _nodes: *mut c_void, data: Out<'_, usize>, count: Out<'_, usize>
    ) = no_edges(count, data);
    cudaGraphNodeGetDependentNodes(
        _node: Opaque, _nodes: *mut c_void, data: Out<'_, usize>, count: Out<'_, usize>
    ) = no_edges(count, data);
    /// 0 is a kernel.
    cudaGraphNodeGetType(_node: Opaque, kind: Out<'_, c_int>) = kind.set(0);
    /// Before CUDA 13 the argument of data about edges was missing, and the parameters came where the count is now.
    cudaGraphAddNode(
        node: Out<'_, Opaque>, graph: Opaque, _dependencies: *const c_void, _data: *const c_void,
        count: OncePointer<'_>, parameters: Record<'_, NODE_PARAMETERS>
    ) = {
        let newer = loader::runtime_major() >= 13;
        graphs::add_node(node, graph, if newer { parameters } else { count.pointer() })
    };
    cudaGraphAddNode_v2(
        node: Out<'_, Opaque>, graph: Opaque, _dependencies: *const c_void, _data: *const c_void, _count: usize,
        parameters: Record<'_, NODE_PARAMETERS>
    ) = graphs::add_node(node, graph, parameters);
    cudaGraphChildGraphNodeGetGraph(_node: Opaque, graph: Out<'_, Opaque>) = graphs::child(graph);
    cudaGraphAddMemAllocNode(
        node: Out<'_, Opaque>, graph: Opaque, _dependencies: *const c_void, _count: usize,
        parameters: Record<'_, PARAMETERS>
    ) = graphs::add_allocation(node, graph, parameters);
    cudaGraphMemAllocNodeGetParams(node: Opaque, parameters: Out<'_, [u8; PARAMETERS]>)
        = graphs::allocation(node, parameters);
    cudaDeviceGetGraphMemAttribute(ordinal: c_int, attribute: c_int, value: Out<'_, u64>)
        = graphs::memory_attribute(ordinal, attribute, value);
}

/// An executable can always take another graph's place. Until CUDA 11 the third argument was a place for a node that is
/// at fault and the fourth one for the result; since then the third is a structure of both.
fn update(executable: Opaque, graph: Opaque, result: Record<'_, UPDATE_RESULT>, older_result: Out<'_, c_int>) {
    graph_memory::share(graph, executable);
    if loader::runtime_major() <= 11 {
        // The place has room for an address only.
        result.write::<Opaque>(0, std::ptr::null_mut());
        older_result.set(0);
    } else {
        result.write(0, [0_u8; UPDATE_RESULT]);
    }
}

/// How many edges there are: none. The older shapes lack the argument before the count.
fn no_edges(newer: Out<'_, usize>, older: Out<'_, usize>) -> Result<(), CudaStatus> {
    let count = if loader::runtime_major() >= 13 { newer } else { older };
    count.given().ok_or(CudaStatus::INVALID_VALUE)?.set(0);
    Ok(())
}
