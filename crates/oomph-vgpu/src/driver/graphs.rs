//! Graphs: counted, never executed. The runtime's functions do the same, under other names.

use std::ffi::{c_int, c_uint, c_void};

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

pub unsafe fn cuGraphInstantiateWithFlags(executable: *mut *mut c_void, graph: *mut c_void, flags: u64) -> u32 {
    unsafe { runtime::cudaGraphInstantiate(executable, graph, flags) }
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
