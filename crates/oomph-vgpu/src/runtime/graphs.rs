//! Graphs: counted, never executed.

use std::ffi::{c_int, c_void};

use crate::runtime::{fail, put};
use crate::status::{INVALID_VALUE, SUCCESS};
use crate::{capture, handle, stream};

pub unsafe fn cudaGraphCreate(graph: *mut *mut c_void, _flags: u32) -> u32 {
    unsafe { put(graph, capture::create_graph()) };
    SUCCESS
}

pub unsafe fn cudaGraphDestroy(graph: *mut c_void) -> u32 {
    capture::destroy_graph(graph);
    SUCCESS
}

pub unsafe fn cudaGraphClone(copy: *mut *mut c_void, original: *mut c_void) -> u32 {
    let made = capture::create_graph();
    capture::add_nodes(made, capture::nodes(original));
    unsafe { put(copy, made) };
    SUCCESS
}

pub unsafe fn cudaGraphInstantiate(executable: *mut *mut c_void, _graph: *mut c_void, _flags: u64) -> u32 {
    unsafe { put(executable, handle::fresh()) };
    SUCCESS
}

pub unsafe fn cudaGraphInstantiateWithFlags(executable: *mut *mut c_void, graph: *mut c_void, flags: u64) -> u32 {
    unsafe { cudaGraphInstantiate(executable, graph, flags) }
}

pub unsafe fn cudaGraphExecDestroy(_executable: *mut c_void) -> u32 {
    SUCCESS
}

pub unsafe fn cudaGraphLaunch(_executable: *mut c_void, handle: *mut c_void) -> u32 {
    match stream::get(handle) {
        Ok(_) => SUCCESS,
        Err(failure) => fail(failure),
    }
}

/// The nodes of a graph. A captured graph is never empty, because torch warns of an empty one.
pub unsafe fn cudaGraphGetNodes(graph: *mut c_void, nodes: *mut *mut c_void, count: *mut usize) -> u32 {
    if count.is_null() {
        return fail(INVALID_VALUE);
    }
    let existing = capture::nodes(graph).max(1) as usize;
    if !nodes.is_null() {
        let room = unsafe { count.read() };
        for index in 0..room {
            let node = if index < existing { handle::fresh() } else { std::ptr::null_mut() };
            unsafe { nodes.add(index).write(node) };
        }
    }
    unsafe { put(count, existing) };
    SUCCESS
}

pub unsafe fn cudaGraphNodeGetType(_node: *mut c_void, kind: *mut c_int) -> u32 {
    // 0 is a kernel.
    unsafe { put(kind, 0) };
    SUCCESS
}

/// Adds a node of any kind and hands out its handle.
pub unsafe fn cudaGraphAddNode(
    node: *mut *mut c_void,
    graph: *mut c_void,
    _dependencies: *const c_void,
    _data: *const c_void,
    _count: usize,
    _parameters: *mut c_void,
) -> u32 {
    capture::add_nodes(graph, 1);
    unsafe { put(node, handle::fresh()) };
    SUCCESS
}
