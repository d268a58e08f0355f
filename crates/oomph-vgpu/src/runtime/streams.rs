//! Streams, events and callbacks.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use crate::boundary::{InOut, Out};
use crate::runtime::{answer, fail};
use crate::status::{INVALID_VALUE, SUCCESS};
use crate::{capture, loader, stream};

fn new_stream(to: Out<'_, *mut c_void>, flags: c_uint, priority: c_int) -> u32 {
    let made = stream::create(flags, priority);
    to.set(made.unwrap_or(std::ptr::null_mut()));
    answer(made.map(drop))
}

pub fn cudaStreamCreate(to: Out<'_, *mut c_void>) -> u32 {
    new_stream(to, 0, 0)
}

pub fn cudaStreamCreateWithFlags(to: Out<'_, *mut c_void>, flags: c_uint) -> u32 {
    new_stream(to, flags, 0)
}

pub fn cudaStreamCreateWithPriority(to: Out<'_, *mut c_void>, flags: c_uint, priority: c_int) -> u32 {
    new_stream(to, flags, priority)
}

pub fn cudaStreamDestroy(handle: *mut c_void) -> u32 {
    answer(stream::destroy(handle))
}

pub fn cudaStreamGetPriority(handle: *mut c_void, priority: Out<'_, c_int>) -> u32 {
    answer(stream::get(handle).map(|stream| priority.set(stream.priority.load(Ordering::Relaxed) as c_int)))
}

pub fn cudaStreamGetFlags(handle: *mut c_void, flags: Out<'_, c_uint>) -> u32 {
    answer(stream::get(handle).map(|stream| flags.set(stream.flags.load(Ordering::Relaxed))))
}

pub fn cudaStreamGetId(handle: *mut c_void, id: Out<'_, u64>) -> u32 {
    answer(stream::get(handle).map(|stream| id.set(stream.id.load(Ordering::Relaxed))))
}

pub fn cudaStreamSynchronize(handle: *mut c_void) -> u32 {
    answer(stream::synchronize(handle))
}

pub fn cudaStreamQuery(handle: *mut c_void) -> u32 {
    answer(stream::get(handle).and_then(capture::check_synchronization))
}

pub fn cudaStreamWaitEvent(handle: *mut c_void, event: *mut c_void, _flags: c_uint) -> u32 {
    answer(stream::wait(handle, event))
}

/// Runs a callback that also gets the stream and a status.
pub unsafe fn cudaStreamAddCallback(
    handle: *mut c_void,
    callback: *mut c_void,
    data: *mut c_void,
    _flags: c_uint,
) -> u32 {
    if let Err(failure) = stream::get(handle) {
        return fail(failure);
    }
    if callback.is_null() {
        return fail(INVALID_VALUE);
    }
    // SAFETY: CUDA requires a function of this type.
    let callback: unsafe extern "C" fn(*mut c_void, u32, *mut c_void) = unsafe { std::mem::transmute(callback) };
    // SAFETY: CUDA's contract: the function takes the data. No lock is held here.
    unsafe { callback(handle, SUCCESS, data) };
    SUCCESS
}

pub unsafe fn cudaLaunchHostFunc(handle: *mut c_void, callback: *mut c_void, data: *mut c_void) -> u32 {
    // SAFETY: CUDA's contract: a function of this type, which takes the data.
    answer(unsafe { stream::host_function(handle, callback, data) })
}

fn new_event(to: Out<'_, *mut c_void>, flags: c_uint) -> u32 {
    let made = stream::create_event(flags);
    to.set(made.unwrap_or(std::ptr::null_mut()));
    answer(made.map(drop))
}

pub fn cudaEventCreate(to: Out<'_, *mut c_void>) -> u32 {
    new_event(to, 0)
}

pub fn cudaEventCreateWithFlags(to: Out<'_, *mut c_void>, flags: c_uint) -> u32 {
    new_event(to, flags)
}

pub fn cudaEventDestroy(event: *mut c_void) -> u32 {
    answer(stream::destroy_event(event))
}

pub fn cudaEventRecord(event: *mut c_void, handle: *mut c_void) -> u32 {
    answer(stream::record(event, handle))
}

pub fn cudaEventRecordWithFlags(event: *mut c_void, handle: *mut c_void, _flags: c_uint) -> u32 {
    answer(stream::record(event, handle))
}

pub fn cudaEventQuery(event: *mut c_void) -> u32 {
    answer(stream::event(event).map(drop))
}

pub fn cudaEventSynchronize(event: *mut c_void) -> u32 {
    answer(stream::event(event).map(drop))
}

pub fn cudaEventElapsedTime(milliseconds: Out<'_, f32>, start: *mut c_void, end: *mut c_void) -> u32 {
    answer(stream::elapsed(start, end).map(|elapsed| milliseconds.set(elapsed)))
}

pub fn cudaEventElapsedTime_v2(milliseconds: Out<'_, f32>, start: *mut c_void, end: *mut c_void) -> u32 {
    cudaEventElapsedTime(milliseconds, start, end)
}

pub fn cudaStreamBeginCapture(handle: *mut c_void, mode: c_int) -> u32 {
    answer(stream::get(handle).and_then(|stream| capture::begin(stream, mode as u32, std::ptr::null_mut())))
}

pub fn cudaStreamBeginCaptureToGraph(
    handle: *mut c_void,
    graph: *mut c_void,
    _dependencies: *const c_void,
    _data: *const c_void,
    _count: usize,
    mode: c_int,
) -> u32 {
    answer(stream::get(handle).and_then(|stream| capture::begin(stream, mode as u32, graph)))
}

pub fn cudaStreamEndCapture(handle: *mut c_void, graph: Out<'_, *mut c_void>) -> u32 {
    let ended = stream::get(handle).and_then(capture::end);
    graph.set(ended.unwrap_or(std::ptr::null_mut()));
    answer(ended.map(drop))
}

pub fn cudaStreamIsCapturing(handle: *mut c_void, status: Out<'_, c_int>) -> u32 {
    answer(stream::get(handle).map(|stream| status.set(capture::info(stream).0 as c_int)))
}

/// CUDA 13 gave this name the seven arguments of the old `_v3`; before, it had three.
pub fn cudaStreamGetCaptureInfo(
    handle: *mut c_void,
    status: Out<'_, c_int>,
    id: Out<'_, u64>,
    graph: Out<'_, *mut c_void>,
    dependencies: Out<'_, *const c_void>,
    edges: Out<'_, *const c_void>,
    count: Out<'_, usize>,
) -> u32 {
    if loader::runtime_major() >= 13 {
        cudaStreamGetCaptureInfo_v3(handle, status, id, graph, dependencies, edges, count)
    } else {
        cudaStreamGetCaptureInfo_v2(handle, status, id, Out::null(), Out::null(), Out::null())
    }
}

pub fn cudaStreamGetCaptureInfo_v2(
    handle: *mut c_void,
    status: Out<'_, c_int>,
    id: Out<'_, u64>,
    graph: Out<'_, *mut c_void>,
    dependencies: Out<'_, *const c_void>,
    count: Out<'_, usize>,
) -> u32 {
    cudaStreamGetCaptureInfo_v3(handle, status, id, graph, dependencies, Out::null(), count)
}

pub fn cudaStreamGetCaptureInfo_v3(
    handle: *mut c_void,
    status: Out<'_, c_int>,
    id: Out<'_, u64>,
    graph: Out<'_, *mut c_void>,
    dependencies: Out<'_, *const c_void>,
    edges: Out<'_, *const c_void>,
    count: Out<'_, usize>,
) -> u32 {
    let stream = match stream::get(handle) {
        Ok(stream) => stream,
        Err(failure) => return fail(failure),
    };
    let (state, session, captured) = capture::info(stream);
    status.set(state as c_int);
    id.set(session);
    graph.set(captured);
    dependencies.set(std::ptr::null());
    edges.set(std::ptr::null());
    count.set(0);
    SUCCESS
}

pub fn cudaThreadExchangeStreamCaptureMode(mode: InOut<'_, c_int>) -> u32 {
    if let Some(asked) = mode.get() {
        mode.set(capture::exchange_mode(asked as u32) as c_int);
    }
    SUCCESS
}
