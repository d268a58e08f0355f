//! Stream capture and graphs.
//!
//! A capture begins on one stream and spreads to every stream that waits for an event recorded in it. What is captured
//! is only counted: a graph is a number of nodes, and launching it does nothing.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::Ordering;

use crate::gpu::{Session, Stream, gpu};
use crate::status::CudaStatus;

/// Capture status as both APIs number it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Not capturing.
    None = 0,
    /// Capturing.
    Active = 1,
    /// Capturing, but an error has spoilt it.
    Invalidated = 2,
}

/// Capture mode that forbids unsafe calls of every thread.
const GLOBAL: u32 = 0;
/// Capture mode that forbids none.
const RELAXED: u32 = 2;

thread_local! {
    // CUDA has a capture mode for each thread, and a capture knows the thread that began it.
    static MODE: Cell<u32> = const { Cell::new(GLOBAL) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

fn thread() -> u64 {
    if THREAD.get() == 0 {
        THREAD.set(gpu().captures.threads.fetch_add(1, Ordering::Relaxed) + 1);
    }
    THREAD.get()
}

/// Exchanges this thread's mode and returns the old one.
pub fn exchange_mode(mode: u32) -> u32 {
    MODE.replace(mode)
}

/// Begins a capture on a stream, into a given graph or a new one.
pub fn begin(stream: &'static Stream, mode: u32, graph: *mut c_void) -> Result<(), CudaStatus> {
    if stream.capture.load(Ordering::Relaxed) != 0 || mode > RELAXED {
        return Err(CudaStatus::INVALID_VALUE);
    }
    let graph = if graph.is_null() { create_graph() } else { graph };
    let id = gpu().captures.begun.fetch_add(1, Ordering::Relaxed) + 1;
    stream.capture.store(id, Ordering::Relaxed);
    gpu().captures.sessions.lock().push(Session {
        id,
        origin: stream,
        joined: Vec::new(),
        graph: graph as usize,
        mode,
        thread: thread(),
        invalid: false,
    });
    gpu().captures.active.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Ends the capture that was begun on a stream and returns its graph.
pub fn end(stream: &'static Stream) -> Result<*mut c_void, CudaStatus> {
    let mut sessions = gpu().captures.sessions.lock();
    let Some(index) = sessions.iter().position(|session| ptr::eq(session.origin, stream)) else {
        return Err(if stream.capture.load(Ordering::Relaxed) == 0 {
            CudaStatus::ILLEGAL_STATE
        } else {
            CudaStatus::CAPTURE_UNMATCHED
        });
    };
    let session = sessions.swap_remove(index);
    gpu().captures.active.fetch_sub(1, Ordering::Relaxed);
    for stream in session.joined.iter().chain([&session.origin]) {
        stream.capture.store(0, Ordering::Relaxed);
    }
    if session.invalid { Err(CudaStatus::CAPTURE_INVALIDATED) } else { Ok(session.graph as *mut c_void) }
}

/// Makes a stream part of a capture, if that is still under way.
pub fn join(id: u64, stream: &'static Stream) {
    if let Some(session) = gpu().captures.sessions.lock().iter_mut().find(|session| session.id == id)
        && stream.capture.swap(id, Ordering::Relaxed) != id
    {
        session.joined.push(stream);
    }
}

/// What is captured on a stream: status, id and graph.
pub fn info(stream: &Stream) -> (Status, u64, *mut c_void) {
    let id = stream.capture.load(Ordering::Relaxed);
    if id == 0 {
        return (Status::None, 0, ptr::null_mut());
    }
    match gpu().captures.sessions.lock().iter().find(|session| session.id == id) {
        Some(session) if session.invalid => (Status::Invalidated, id, ptr::null_mut()),
        Some(session) => (Status::Active, id, session.graph as *mut c_void),
        None => (Status::None, 0, ptr::null_mut()),
    }
}

/// Counts a node if a stream is capturing.
#[inline]
pub fn add_node(stream: &Stream) {
    if stream.capture.load(Ordering::Relaxed) != 0 {
        let (_, _, graph) = info(stream);
        add_nodes(graph, 1);
    }
}

/// Whether any capture is under way.
#[inline]
pub fn is_any_active() -> bool {
    gpu().captures.active.load(Ordering::Relaxed) != 0
}

/// Refuses calls that may not be made during a capture (`cudaMalloc` is one), and spoils the capture.
pub fn check_unsafe_call() -> Result<(), CudaStatus> {
    if !is_any_active() || MODE.get() == RELAXED {
        return Ok(());
    }
    let (own, mode) = (thread(), MODE.get());
    let mut refused = false;
    for session in gpu().captures.sessions.lock().iter_mut() {
        let global = session.mode == GLOBAL && mode == GLOBAL;
        if session.mode != RELAXED && (global || session.thread == own) {
            session.invalid = true;
            refused = true;
        }
    }
    if refused { Err(CudaStatus::CAPTURE_UNSUPPORTED) } else { Ok(()) }
}

/// Refuses to wait for a stream that captures, and spoils the capture.
pub fn check_synchronization(stream: &Stream) -> Result<(), CudaStatus> {
    let id = stream.capture.load(Ordering::Relaxed);
    if id == 0 {
        return Ok(());
    }
    if let Some(session) = gpu().captures.sessions.lock().iter_mut().find(|session| session.id == id) {
        session.invalid = true;
    }
    Err(CudaStatus::CAPTURE_UNSUPPORTED)
}

/// Makes an empty graph, or an executable one.
pub fn create_graph() -> *mut c_void {
    let graph = gpu().handles.fresh();
    gpu().captures.graphs.lock().insert(graph as usize, 0);
    graph
}

/// Forgets a graph.
pub fn destroy_graph(graph: *mut c_void) {
    gpu().captures.graphs.lock().remove(&(graph as usize));
}

/// Counts nodes of a graph.
pub fn add_nodes(graph: *mut c_void, count: u64) {
    if let Some(nodes) = gpu().captures.graphs.lock().get_mut(&(graph as usize)) {
        *nodes += count;
    }
}

/// How many nodes a graph has.
pub fn nodes(graph: *mut c_void) -> u64 {
    gpu().captures.graphs.lock().get(&(graph as usize)).copied().unwrap_or(0)
}
