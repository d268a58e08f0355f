//! Graphs. The runtime's functions do the same, under other names.

use std::ffi::{c_int, c_uint, c_void};

use crate::boundary::{InOut, Out, Room};
use crate::runtime;

pub fn cuGraphCreate(graph: Out<'_, *mut c_void>, flags: c_uint) -> u32 {
    runtime::cudaGraphCreate(graph, flags)
}

pub fn cuGraphDestroy(graph: *mut c_void) -> u32 {
    runtime::cudaGraphDestroy(graph)
}

pub fn cuGraphClone(copy: Out<'_, *mut c_void>, original: *mut c_void) -> u32 {
    runtime::cudaGraphClone(copy, original)
}

pub fn cuGraphInstantiate_v2(
    executable: Out<'_, *mut c_void>,
    graph: *mut c_void,
    fault: Out<'_, *mut c_void>,
    _log: *mut c_void,
    _size: usize,
) -> u32 {
    fault.set(std::ptr::null_mut());
    runtime::cudaGraphInstantiateWithFlags(executable, graph, 0)
}

pub fn cuGraphInstantiateWithFlags(executable: Out<'_, *mut c_void>, graph: *mut c_void, flags: u64) -> u32 {
    runtime::cudaGraphInstantiateWithFlags(executable, graph, flags)
}

pub fn cuGraphInstantiateWithParams(
    executable: Out<'_, *mut c_void>,
    graph: *mut c_void,
    parameters: *mut c_void,
) -> u32 {
    runtime::cudaGraphInstantiateWithParams(executable, graph, parameters)
}

pub fn cuGraphExecDestroy(executable: *mut c_void) -> u32 {
    runtime::cudaGraphExecDestroy(executable)
}

pub fn cuGraphLaunch(executable: *mut c_void, stream: *mut c_void) -> u32 {
    runtime::cudaGraphLaunch(executable, stream)
}

pub fn cuGraphGetNodes(graph: *mut c_void, nodes: Room<'_, *mut c_void>, count: InOut<'_, usize>) -> u32 {
    runtime::cudaGraphGetNodes(graph, nodes, count)
}

pub fn cuGraphNodeGetType(node: *mut c_void, kind: Out<'_, c_int>) -> u32 {
    runtime::cudaGraphNodeGetType(node, kind)
}

/// The driver's older shape has no data about edges; its parameters have the runtime's layout.
pub unsafe fn cuGraphAddNode(
    node: Out<'_, *mut c_void>,
    graph: *mut c_void,
    dependencies: *const c_void,
    count: usize,
    parameters: *mut c_void,
) -> u32 {
    // SAFETY: the contract is that of the runtime's function.
    unsafe { runtime::cudaGraphAddNode_v2(node, graph, dependencies, std::ptr::null(), count, parameters) }
}

pub unsafe fn cuGraphAddNode_v3(
    node: Out<'_, *mut c_void>,
    graph: *mut c_void,
    dependencies: *const c_void,
    data: *const c_void,
    count: usize,
    parameters: *mut c_void,
) -> u32 {
    // SAFETY: the contract is that of the runtime's function.
    unsafe { runtime::cudaGraphAddNode_v2(node, graph, dependencies, data, count, parameters) }
}

pub unsafe fn cuGraphAddMemAllocNode(
    node: Out<'_, *mut c_void>,
    graph: *mut c_void,
    dependencies: *const c_void,
    count: usize,
    parameters: *mut c_void,
) -> u32 {
    // SAFETY: the contract is that of the runtime's function.
    unsafe { runtime::cudaGraphAddMemAllocNode(node, graph, dependencies, count, parameters) }
}

pub unsafe fn cuGraphMemAllocNodeGetParams(node: *mut c_void, parameters: *mut c_void) -> u32 {
    // SAFETY: the contract is that of the runtime's function.
    unsafe { runtime::cudaGraphMemAllocNodeGetParams(node, parameters) }
}

pub fn cuDeviceGetGraphMemAttribute(ordinal: c_int, attribute: c_int, value: Out<'_, u64>) -> u32 {
    runtime::cudaDeviceGetGraphMemAttribute(ordinal, attribute, value)
}
