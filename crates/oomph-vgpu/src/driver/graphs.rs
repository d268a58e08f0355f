//! Graphs.

use std::ffi::{c_int, c_uint, c_void};

use crate::boundary::{InOut, Out, Record, Room};
use crate::cuda::graphs::NODE_PARAMETERS;
use crate::cuda::{Opaque, functions, graphs};
use crate::driver::known_to_runtime;
use crate::graph_memory::{self, PARAMETERS};
use crate::status::DriverStatus;
use crate::stream::StreamHandle;

functions! { DriverStatus:
    cuGraphCreate(graph: Out<'_, Opaque>, _flags: c_uint) = graphs::create(graph);
    cuGraphDestroy(graph: Opaque) = graphs::destroy(graph);
    cuGraphClone(copy: Out<'_, Opaque>, original: Opaque) = graphs::copy(copy, original);
    cuGraphInstantiate_v2(
        executable: Out<'_, Opaque>, graph: Opaque, fault: Out<'_, Opaque>, _log: *mut c_void, _size: usize
    ) = {
        fault.set(std::ptr::null_mut());
        graphs::instantiate(executable, graph);
    };
    cuGraphInstantiateWithFlags(executable: Out<'_, Opaque>, graph: Opaque, _flags: u64)
        = graphs::instantiate(executable, graph);
    cuGraphInstantiateWithParams(executable: Out<'_, Opaque>, graph: Opaque, _parameters: *mut c_void)
        = graphs::instantiate(executable, graph);
    cuGraphExecDestroy(executable: Opaque) = graph_memory::forget(executable);
    cuGraphLaunch(_executable: Opaque, stream: StreamHandle) = known_to_runtime(graphs::launch(stream));
    cuGraphGetNodes(graph: Opaque, nodes: Room<'_, Opaque>, count: InOut<'_, usize>)
        = known_to_runtime(graphs::nodes(graph, nodes, count));
    cuGraphGetRootNodes(_graph: Opaque, nodes: Room<'_, Opaque>, count: InOut<'_, usize>)
        = known_to_runtime(graphs::roots(nodes, count));
    /// 0 is a kernel.
    cuGraphNodeGetType(_node: Opaque, kind: Out<'_, c_int>) = kind.set(0);
    /// The older shape has no data about edges.
    cuGraphAddNode(
        node: Out<'_, Opaque>, graph: Opaque, _dependencies: *const c_void, _count: usize,
        parameters: Record<'_, NODE_PARAMETERS>
    ) = known_to_runtime(graphs::add_node(node, graph, parameters));
    cuGraphAddNode_v3(
        node: Out<'_, Opaque>, graph: Opaque, _dependencies: *const c_void, _data: *const c_void, _count: usize,
        parameters: Record<'_, NODE_PARAMETERS>
    ) = known_to_runtime(graphs::add_node(node, graph, parameters));
    cuGraphChildGraphNodeGetGraph(_node: Opaque, graph: Out<'_, Opaque>) = graphs::child(graph);
    cuGraphAddMemAllocNode(
        node: Out<'_, Opaque>, graph: Opaque, _dependencies: *const c_void, _count: usize,
        parameters: Record<'_, PARAMETERS>
    ) = known_to_runtime(graphs::add_allocation(node, graph, parameters));
    cuGraphMemAllocNodeGetParams(node: Opaque, parameters: Out<'_, [u8; PARAMETERS]>)
        = known_to_runtime(graphs::allocation(node, parameters));
    cuDeviceGetGraphMemAttribute(ordinal: c_int, attribute: c_int, value: Out<'_, u64>)
        = known_to_runtime(graphs::memory_attribute(ordinal, attribute, value));
}
