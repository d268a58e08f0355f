//! Graphs. The runtime's functions do the same, under other names.

use std::ffi::{c_int, c_uint, c_void};

use crate::driver::put;
use crate::runtime;

pub unsafe fn cuGraphCreate(graph: *mut *mut c_void, flags: c_uint) -> u32 {
    unsafe { runtime::cudaGraphCreate(graph, flags) }
}

pub unsafe fn cuGraphDestroy(graph: *mut c_void) -> u32 {
    unsafe { runtime::cudaGraphDestroy(graph) }
}

pub unsafe fn cuGraphClone(copy: *mut *mut c_void, original: *mut c_void) -> u32 {
    unsafe { runtime::cudaGraphClone(copy, original) }
}

pub unsafe fn cuGraphInstantiate_v2(
    executable: *mut *mut c_void,
    graph: *mut c_void,
    fault: *mut *mut c_void,
    _log: *mut c_void,
    _size: usize,
) -> u32 {
    unsafe { put(fault, std::ptr::null_mut()) };
    unsafe { runtime::cudaGraphInstantiateWithFlags(executable, graph, 0) }
}

pub unsafe fn cuGraphInstantiateWithFlags(executable: *mut *mut c_void, graph: *mut c_void, flags: u64) -> u32 {
    unsafe { runtime::cudaGraphInstantiateWithFlags(executable, graph, flags) }
}

pub unsafe fn cuGraphInstantiateWithParams(
    executable: *mut *mut c_void,
    graph: *mut c_void,
    parameters: *mut c_void,
) -> u32 {
    unsafe { runtime::cudaGraphInstantiateWithParams(executable, graph, parameters) }
}

pub unsafe fn cuGraphExecDestroy(executable: *mut c_void) -> u32 {
    unsafe { runtime::cudaGraphExecDestroy(executable) }
}

pub unsafe fn cuGraphLaunch(executable: *mut c_void, stream: *mut c_void) -> u32 {
    unsafe { runtime::cudaGraphLaunch(executable, stream) }
}

pub unsafe fn cuGraphGetNodes(graph: *mut c_void, nodes: *mut *mut c_void, count: *mut usize) -> u32 {
    unsafe { runtime::cudaGraphGetNodes(graph, nodes, count) }
}

pub unsafe fn cuGraphNodeGetType(node: *mut c_void, kind: *mut c_int) -> u32 {
    unsafe { runtime::cudaGraphNodeGetType(node, kind) }
}

/// The driver's older shape has no data about edges; its parameters have the runtime's layout.
pub unsafe fn cuGraphAddNode(
    node: *mut *mut c_void,
    graph: *mut c_void,
    dependencies: *const c_void,
    count: usize,
    parameters: *mut c_void,
) -> u32 {
    unsafe { runtime::cudaGraphAddNode_v2(node, graph, dependencies, std::ptr::null(), count, parameters) }
}

pub unsafe fn cuGraphAddNode_v3(
    node: *mut *mut c_void,
    graph: *mut c_void,
    dependencies: *const c_void,
    data: *const c_void,
    count: usize,
    parameters: *mut c_void,
) -> u32 {
    unsafe { runtime::cudaGraphAddNode_v2(node, graph, dependencies, data, count, parameters) }
}

pub unsafe fn cuGraphAddMemAllocNode(
    node: *mut *mut c_void,
    graph: *mut c_void,
    dependencies: *const c_void,
    count: usize,
    parameters: *mut c_void,
) -> u32 {
    unsafe { runtime::cudaGraphAddMemAllocNode(node, graph, dependencies, count, parameters) }
}

pub unsafe fn cuGraphMemAllocNodeGetParams(node: *mut c_void, parameters: *mut c_void) -> u32 {
    unsafe { runtime::cudaGraphMemAllocNodeGetParams(node, parameters) }
}

pub unsafe fn cuDeviceGetGraphMemAttribute(ordinal: c_int, attribute: c_int, value: *mut c_void) -> u32 {
    unsafe { runtime::cudaDeviceGetGraphMemAttribute(ordinal, attribute, value) }
}
