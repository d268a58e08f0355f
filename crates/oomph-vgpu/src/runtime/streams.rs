//! Streams, events and callbacks.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use crate::runtime::{answer, fail, put};
use crate::status::{INVALID_VALUE, SUCCESS};
use crate::{capture, loader, stream};

unsafe fn new_stream(to: *mut *mut c_void, flags: c_uint, priority: c_int) -> u32 {
    let made = stream::create(flags, priority);
    unsafe { put(to, made.unwrap_or(std::ptr::null_mut())) };
    answer(made.map(drop))
}

pub unsafe fn cudaStreamCreate(to: *mut *mut c_void) -> u32 {
    unsafe { new_stream(to, 0, 0) }
}

pub unsafe fn cudaStreamCreateWithFlags(to: *mut *mut c_void, flags: c_uint) -> u32 {
    unsafe { new_stream(to, flags, 0) }
}

pub unsafe fn cudaStreamCreateWithPriority(to: *mut *mut c_void, flags: c_uint, priority: c_int) -> u32 {
    unsafe { new_stream(to, flags, priority) }
}

pub unsafe fn cudaStreamDestroy(handle: *mut c_void) -> u32 {
    answer(stream::destroy(handle))
}

pub unsafe fn cudaStreamGetPriority(handle: *mut c_void, priority: *mut c_int) -> u32 {
    answer(stream::get(handle).map(|stream| unsafe { put(priority, stream.priority.load(Ordering::Relaxed) as c_int) }))
}

pub unsafe fn cudaStreamGetFlags(handle: *mut c_void, flags: *mut c_uint) -> u32 {
    answer(stream::get(handle).map(|stream| unsafe { put(flags, stream.flags.load(Ordering::Relaxed)) }))
}

pub unsafe fn cudaStreamGetId(handle: *mut c_void, id: *mut u64) -> u32 {
    answer(stream::get(handle).map(|stream| unsafe { put(id, stream.id.load(Ordering::Relaxed)) }))
}

pub unsafe fn cudaStreamSynchronize(handle: *mut c_void) -> u32 {
    answer(stream::synchronize(handle))
}

pub unsafe fn cudaStreamQuery(handle: *mut c_void) -> u32 {
    answer(stream::get(handle).and_then(capture::check_synchronization))
}

pub unsafe fn cudaStreamWaitEvent(handle: *mut c_void, event: *mut c_void, _flags: c_uint) -> u32 {
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
    unsafe { callback(handle, SUCCESS, data) };
    SUCCESS
}

pub unsafe fn cudaLaunchHostFunc(handle: *mut c_void, callback: *mut c_void, data: *mut c_void) -> u32 {
    answer(unsafe { stream::host_function(handle, callback, data) })
}

unsafe fn new_event(to: *mut *mut c_void, flags: c_uint) -> u32 {
    let made = stream::create_event(flags);
    unsafe { put(to, made.unwrap_or(std::ptr::null_mut())) };
    answer(made.map(drop))
}

pub unsafe fn cudaEventCreate(to: *mut *mut c_void) -> u32 {
    unsafe { new_event(to, 0) }
}

pub unsafe fn cudaEventCreateWithFlags(to: *mut *mut c_void, flags: c_uint) -> u32 {
    unsafe { new_event(to, flags) }
}

pub unsafe fn cudaEventDestroy(event: *mut c_void) -> u32 {
    answer(stream::destroy_event(event))
}

pub unsafe fn cudaEventRecord(event: *mut c_void, handle: *mut c_void) -> u32 {
    answer(stream::record(event, handle))
}

pub unsafe fn cudaEventRecordWithFlags(event: *mut c_void, handle: *mut c_void, _flags: c_uint) -> u32 {
    answer(stream::record(event, handle))
}

pub unsafe fn cudaEventQuery(event: *mut c_void) -> u32 {
    answer(stream::event(event).map(drop))
}

pub unsafe fn cudaEventSynchronize(event: *mut c_void) -> u32 {
    answer(stream::event(event).map(drop))
}

pub unsafe fn cudaEventElapsedTime(milliseconds: *mut f32, start: *mut c_void, end: *mut c_void) -> u32 {
    answer(stream::elapsed(start, end).map(|elapsed| unsafe { put(milliseconds, elapsed) }))
}

pub unsafe fn cudaEventElapsedTime_v2(milliseconds: *mut f32, start: *mut c_void, end: *mut c_void) -> u32 {
    unsafe { cudaEventElapsedTime(milliseconds, start, end) }
}

pub unsafe fn cudaStreamBeginCapture(handle: *mut c_void, mode: c_int) -> u32 {
    answer(stream::get(handle).and_then(|stream| capture::begin(stream, mode as u32, std::ptr::null_mut())))
}

pub unsafe fn cudaStreamBeginCaptureToGraph(
    handle: *mut c_void,
    graph: *mut c_void,
    _dependencies: *const c_void,
    _data: *const c_void,
    _count: usize,
    mode: c_int,
) -> u32 {
    answer(stream::get(handle).and_then(|stream| capture::begin(stream, mode as u32, graph)))
}

pub unsafe fn cudaStreamEndCapture(handle: *mut c_void, graph: *mut *mut c_void) -> u32 {
    let ended = stream::get(handle).and_then(capture::end);
    unsafe { put(graph, ended.unwrap_or(std::ptr::null_mut())) };
    answer(ended.map(drop))
}

pub unsafe fn cudaStreamIsCapturing(handle: *mut c_void, status: *mut c_int) -> u32 {
    answer(stream::get(handle).map(|stream| unsafe { put(status, capture::info(stream).0 as c_int) }))
}

/// CUDA 13 gave this name the seven arguments of the old `_v3`; before, it had three.
pub unsafe fn cudaStreamGetCaptureInfo(
    handle: *mut c_void,
    status: *mut c_int,
    id: *mut u64,
    graph: *mut *mut c_void,
    dependencies: *mut *const c_void,
    edges: *mut *const c_void,
    count: *mut usize,
) -> u32 {
    let none: *mut c_void = std::ptr::null_mut();
    if loader::runtime_major() >= 13 {
        unsafe { cudaStreamGetCaptureInfo_v3(handle, status, id, graph, dependencies, edges, count) }
    } else {
        unsafe { cudaStreamGetCaptureInfo_v2(handle, status, id, none.cast(), none.cast(), none.cast()) }
    }
}

pub unsafe fn cudaStreamGetCaptureInfo_v2(
    handle: *mut c_void,
    status: *mut c_int,
    id: *mut u64,
    graph: *mut *mut c_void,
    dependencies: *mut *const c_void,
    count: *mut usize,
) -> u32 {
    unsafe { cudaStreamGetCaptureInfo_v3(handle, status, id, graph, dependencies, std::ptr::null_mut(), count) }
}

pub unsafe fn cudaStreamGetCaptureInfo_v3(
    handle: *mut c_void,
    status: *mut c_int,
    id: *mut u64,
    graph: *mut *mut c_void,
    dependencies: *mut *const c_void,
    edges: *mut *const c_void,
    count: *mut usize,
) -> u32 {
    let stream = match stream::get(handle) {
        Ok(stream) => stream,
        Err(failure) => return fail(failure),
    };
    let (state, session, captured) = capture::info(stream);
    unsafe {
        put(status, state as c_int);
        put(id, session);
        put(graph, captured);
        put(dependencies, std::ptr::null());
        put(edges, std::ptr::null());
        put(count, 0);
    }
    SUCCESS
}

pub unsafe fn cudaThreadExchangeStreamCaptureMode(mode: *mut c_int) -> u32 {
    if !mode.is_null() {
        unsafe { mode.write(capture::exchange_mode(mode.read() as u32) as c_int) };
    }
    SUCCESS
}
