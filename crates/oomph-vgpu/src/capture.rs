//! Stream capture and graphs.
//!
//! A capture begins on one stream and spreads to every stream that waits for an event recorded in it. What is captured
//! is only counted: a graph is a number of nodes, and launching it does nothing.

use crate::fork::{Mutex, MutexGuard};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::handle;
use crate::status::{CAPTURE_INVALIDATED, CAPTURE_UNMATCHED, CAPTURE_UNSUPPORTED, INVALID_VALUE};
use crate::stream::Stream;

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

struct Session {
    id: u64,
    origin: usize,
    joined: Vec<usize>,
    graph: usize,
    mode: u32,
    thread: u64,
    invalid: bool,
}

static SESSIONS: Mutex<Vec<Session>> = Mutex::new(Vec::new());
/// How many captures are under way, so that everything outside them costs one load.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);
static NEXT: AtomicU64 = AtomicU64::new(1);
/// Nodes of each graph.
static GRAPHS: Mutex<BTreeMap<usize, u64>> = Mutex::new(BTreeMap::new());

thread_local! {
    static MODE: Cell<u32> = const { Cell::new(GLOBAL) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

fn thread() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(1);
    if THREAD.get() == 0 {
        THREAD.set(THREADS.fetch_add(1, Ordering::Relaxed));
    }
    THREAD.get()
}

fn sessions() -> MutexGuard<'static, Vec<Session>> {
    SESSIONS.lock()
}

fn graphs() -> MutexGuard<'static, BTreeMap<usize, u64>> {
    GRAPHS.lock()
}

/// Exchanges this thread's mode and returns the old one.
pub fn exchange_mode(mode: u32) -> u32 {
    MODE.replace(mode)
}

/// Begins a capture on a stream, into a given graph or a new one.
pub fn begin(stream: &'static Stream, mode: u32, graph: *mut c_void) -> Result<(), u32> {
    if stream.capture.load(Ordering::Relaxed) != 0 || mode > RELAXED {
        return Err(INVALID_VALUE);
    }
    let graph = if graph.is_null() { create_graph() } else { graph };
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    stream.capture.store(id, Ordering::Relaxed);
    sessions().push(Session {
        id,
        origin: ptr::from_ref(stream) as usize,
        joined: Vec::new(),
        graph: graph as usize,
        mode,
        thread: thread(),
        invalid: false,
    });
    ACTIVE.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Ends the capture that was begun on a stream and returns its graph.
pub fn end(stream: &'static Stream) -> Result<*mut c_void, u32> {
    let mut sessions = sessions();
    let origin = ptr::from_ref(stream) as usize;
    let Some(index) = sessions.iter().position(|session| session.origin == origin) else {
        return Err(if stream.capture.load(Ordering::Relaxed) == 0 { INVALID_VALUE } else { CAPTURE_UNMATCHED });
    };
    let session = sessions.swap_remove(index);
    ACTIVE.fetch_sub(1, Ordering::Relaxed);
    for address in session.joined.iter().chain([&session.origin]) {
        // SAFETY: these are addresses of streams that were passed in by reference; streams are never freed.
        unsafe { &*(*address as *const Stream) }.capture.store(0, Ordering::Relaxed);
    }
    if session.invalid { Err(CAPTURE_INVALIDATED) } else { Ok(session.graph as *mut c_void) }
}

/// Makes a stream part of a capture, if that is still under way.
pub fn join(id: u64, stream: &'static Stream) {
    if let Some(session) = sessions().iter_mut().find(|session| session.id == id)
        && stream.capture.swap(id, Ordering::Relaxed) != id
    {
        session.joined.push(ptr::from_ref(stream) as usize);
    }
}

/// What is captured on a stream: status, id and graph.
pub fn info(stream: &Stream) -> (Status, u64, *mut c_void) {
    let id = stream.capture.load(Ordering::Relaxed);
    if id == 0 {
        return (Status::None, 0, ptr::null_mut());
    }
    match sessions().iter().find(|session| session.id == id) {
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

/// Counts a launch on a stream handle; the fast path outside captures is one load.
#[inline]
pub fn launched(handle: *mut c_void) {
    if ACTIVE.load(Ordering::Relaxed) != 0
        && let Ok(stream) = crate::stream::get(handle)
    {
        add_node(stream);
    }
}

/// Refuses calls that may not be made during a capture (`cudaMalloc` is one), and spoils the capture.
pub fn check_unsafe_call() -> Result<(), u32> {
    if ACTIVE.load(Ordering::Relaxed) == 0 || MODE.get() == RELAXED {
        return Ok(());
    }
    let (own, mode) = (thread(), MODE.get());
    let mut refused = false;
    for session in sessions().iter_mut() {
        let global = session.mode == GLOBAL && mode == GLOBAL;
        if session.mode != RELAXED && (global || session.thread == own) {
            session.invalid = true;
            refused = true;
        }
    }
    if refused { Err(CAPTURE_UNSUPPORTED) } else { Ok(()) }
}

/// Refuses to wait for a stream that captures, and spoils the capture.
pub fn check_synchronization(stream: &Stream) -> Result<(), u32> {
    let id = stream.capture.load(Ordering::Relaxed);
    if id == 0 {
        return Ok(());
    }
    if let Some(session) = sessions().iter_mut().find(|session| session.id == id) {
        session.invalid = true;
    }
    Err(CAPTURE_UNSUPPORTED)
}

/// Makes an empty graph, or an executable one.
pub fn create_graph() -> *mut c_void {
    let graph = handle::fresh();
    graphs().insert(graph as usize, 0);
    graph
}

/// Forgets a graph.
pub fn destroy_graph(graph: *mut c_void) {
    graphs().remove(&(graph as usize));
}

/// Counts nodes of a graph.
pub fn add_nodes(graph: *mut c_void, count: u64) {
    if let Some(nodes) = graphs().get_mut(&(graph as usize)) {
        *nodes += count;
    }
}

/// How many nodes a graph has.
pub fn nodes(graph: *mut c_void) -> u64 {
    graphs().get(&(graph as usize)).copied().unwrap_or(0)
}
