//! Streams, events, callbacks and capture.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use crate::device;
use crate::driver::{answer, hand_out, put};
use crate::runtime::{cudaStreamGetCaptureInfo_v2, cudaStreamGetCaptureInfo_v3};
use crate::status::SUCCESS;
use crate::{capture, stream};

pub unsafe fn cuStreamCreate(to: *mut *mut c_void, flags: c_uint) -> u32 {
    unsafe { hand_out(to, stream::create(flags, 0), std::ptr::null_mut()) }
}

pub unsafe fn cuStreamCreateWithPriority(to: *mut *mut c_void, flags: c_uint, priority: c_int) -> u32 {
    unsafe { hand_out(to, stream::create(flags, priority), std::ptr::null_mut()) }
}

pub unsafe fn cuStreamDestroy_v2(handle: *mut c_void) -> u32 {
    answer(stream::destroy(handle))
}

pub unsafe fn cuStreamGetPriority(handle: *mut c_void, priority: *mut c_int) -> u32 {
    answer(stream::get(handle).map(|stream| unsafe { put(priority, stream.priority.load(Ordering::Relaxed) as c_int) }))
}

pub unsafe fn cuStreamGetFlags(handle: *mut c_void, flags: *mut c_uint) -> u32 {
    answer(stream::get(handle).map(|stream| unsafe { put(flags, stream.flags.load(Ordering::Relaxed)) }))
}

pub unsafe fn cuStreamGetId(handle: *mut c_void, id: *mut u64) -> u32 {
    answer(stream::get(handle).map(|stream| unsafe { put(id, stream.id.load(Ordering::Relaxed)) }))
}

pub unsafe fn cuStreamGetCtx(handle: *mut c_void, context: *mut *mut c_void) -> u32 {
    answer(stream::get(handle).map(|stream| unsafe {
        put(context, device::context_handle(stream.ordinal.load(Ordering::Relaxed) as usize));
    }))
}

pub unsafe fn cuStreamGetDevice(handle: *mut c_void, ordinal: *mut c_int) -> u32 {
    answer(stream::get(handle).map(|stream| unsafe { put(ordinal, stream.ordinal.load(Ordering::Relaxed) as c_int) }))
}

pub unsafe fn cuStreamSynchronize(handle: *mut c_void) -> u32 {
    answer(stream::synchronize(handle))
}

pub unsafe fn cuStreamQuery(handle: *mut c_void) -> u32 {
    answer(stream::get(handle).and_then(capture::check_synchronization))
}

pub unsafe fn cuStreamWaitEvent(handle: *mut c_void, event: *mut c_void, _flags: c_uint) -> u32 {
    answer(stream::wait(handle, event))
}

pub unsafe fn cuStreamAddCallback(handle: *mut c_void, callback: *mut c_void, data: *mut c_void, flags: c_uint) -> u32 {
    unsafe { crate::runtime::cudaStreamAddCallback(handle, callback, data, flags) }
}

pub unsafe fn cuLaunchHostFunc(handle: *mut c_void, callback: *mut c_void, data: *mut c_void) -> u32 {
    answer(unsafe { stream::host_function(handle, callback, data) })
}

pub unsafe fn cuEventCreate(to: *mut *mut c_void, flags: c_uint) -> u32 {
    unsafe { hand_out(to, stream::create_event(flags), std::ptr::null_mut()) }
}

pub unsafe fn cuEventDestroy_v2(event: *mut c_void) -> u32 {
    answer(stream::destroy_event(event))
}

pub unsafe fn cuEventRecord(event: *mut c_void, handle: *mut c_void) -> u32 {
    answer(stream::record(event, handle))
}

pub unsafe fn cuEventRecordWithFlags(event: *mut c_void, handle: *mut c_void, _flags: c_uint) -> u32 {
    answer(stream::record(event, handle))
}

pub unsafe fn cuEventQuery(event: *mut c_void) -> u32 {
    answer(stream::event(event).map(drop))
}

pub unsafe fn cuEventSynchronize(event: *mut c_void) -> u32 {
    answer(stream::event(event).map(drop))
}

pub unsafe fn cuEventElapsedTime_v2(milliseconds: *mut f32, start: *mut c_void, end: *mut c_void) -> u32 {
    answer(stream::elapsed(start, end).map(|elapsed| unsafe { put(milliseconds, elapsed) }))
}

pub unsafe fn cuStreamBeginCapture_v2(handle: *mut c_void, mode: c_int) -> u32 {
    answer(stream::get(handle).and_then(|stream| capture::begin(stream, mode as u32, std::ptr::null_mut())))
}

pub unsafe fn cuStreamBeginCaptureToGraph(
    handle: *mut c_void,
    graph: *mut c_void,
    _dependencies: *const c_void,
    _data: *const c_void,
    _count: usize,
    mode: c_int,
) -> u32 {
    answer(stream::get(handle).and_then(|stream| capture::begin(stream, mode as u32, graph)))
}

pub unsafe fn cuStreamEndCapture(handle: *mut c_void, graph: *mut *mut c_void) -> u32 {
    unsafe { hand_out(graph, stream::get(handle).and_then(capture::end), std::ptr::null_mut()) }
}

pub unsafe fn cuStreamIsCapturing(handle: *mut c_void, status: *mut c_int) -> u32 {
    answer(stream::get(handle).map(|stream| unsafe { put(status, capture::info(stream).0 as c_int) }))
}

pub unsafe fn cuStreamGetCaptureInfo_v2(
    handle: *mut c_void,
    status: *mut c_int,
    id: *mut u64,
    graph: *mut *mut c_void,
    dependencies: *mut *const c_void,
    count: *mut usize,
) -> u32 {
    unsafe { cudaStreamGetCaptureInfo_v2(handle, status, id, graph, dependencies, count) }
}

pub unsafe fn cuStreamGetCaptureInfo_v3(
    handle: *mut c_void,
    status: *mut c_int,
    id: *mut u64,
    graph: *mut *mut c_void,
    dependencies: *mut *const c_void,
    edges: *mut *const c_void,
    count: *mut usize,
) -> u32 {
    unsafe { cudaStreamGetCaptureInfo_v3(handle, status, id, graph, dependencies, edges, count) }
}

pub unsafe fn cuThreadExchangeStreamCaptureMode(mode: *mut c_int) -> u32 {
    if !mode.is_null() {
        unsafe { mode.write(capture::exchange_mode(mode.read() as u32) as c_int) };
    }
    SUCCESS
}
