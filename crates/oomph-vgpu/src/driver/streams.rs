//! Streams, events, callbacks and capture.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use crate::boundary::{InOut, Out};
use crate::device;
use crate::driver::{answer, hand_out};
use crate::runtime::{cudaStreamGetCaptureInfo_v2, cudaStreamGetCaptureInfo_v3};
use crate::status::SUCCESS;
use crate::{capture, stream};

pub fn cuStreamCreate(to: Out<'_, *mut c_void>, flags: c_uint) -> u32 {
    hand_out(to, stream::create(flags, 0), std::ptr::null_mut())
}

pub fn cuStreamCreateWithPriority(to: Out<'_, *mut c_void>, flags: c_uint, priority: c_int) -> u32 {
    hand_out(to, stream::create(flags, priority), std::ptr::null_mut())
}

pub fn cuStreamDestroy_v2(handle: *mut c_void) -> u32 {
    answer(stream::destroy(handle))
}

pub fn cuStreamGetPriority(handle: *mut c_void, priority: Out<'_, c_int>) -> u32 {
    answer(stream::get(handle).map(|stream| priority.set(stream.priority.load(Ordering::Relaxed) as c_int)))
}

pub fn cuStreamGetFlags(handle: *mut c_void, flags: Out<'_, c_uint>) -> u32 {
    answer(stream::get(handle).map(|stream| flags.set(stream.flags.load(Ordering::Relaxed))))
}

pub fn cuStreamGetId(handle: *mut c_void, id: Out<'_, u64>) -> u32 {
    answer(stream::get(handle).map(|stream| id.set(stream.id.load(Ordering::Relaxed))))
}

pub fn cuStreamGetCtx(handle: *mut c_void, context: Out<'_, *mut c_void>) -> u32 {
    answer(stream::get(handle).map(|stream| {
        context.set(device::context_handle(stream.ordinal.load(Ordering::Relaxed) as usize));
    }))
}

pub fn cuStreamGetDevice(handle: *mut c_void, ordinal: Out<'_, c_int>) -> u32 {
    answer(stream::get(handle).map(|stream| ordinal.set(stream.ordinal.load(Ordering::Relaxed) as c_int)))
}

pub fn cuStreamSynchronize(handle: *mut c_void) -> u32 {
    answer(stream::synchronize(handle))
}

pub fn cuStreamQuery(handle: *mut c_void) -> u32 {
    answer(stream::get(handle).and_then(capture::check_synchronization))
}

pub fn cuStreamWaitEvent(handle: *mut c_void, event: *mut c_void, _flags: c_uint) -> u32 {
    answer(stream::wait(handle, event))
}

pub unsafe fn cuStreamAddCallback(handle: *mut c_void, callback: *mut c_void, data: *mut c_void, flags: c_uint) -> u32 {
    // SAFETY: the contract is that of the runtime's function.
    unsafe { crate::runtime::cudaStreamAddCallback(handle, callback, data, flags) }
}

pub unsafe fn cuLaunchHostFunc(handle: *mut c_void, callback: *mut c_void, data: *mut c_void) -> u32 {
    // SAFETY: CUDA's contract: a function of this type, which takes the data.
    answer(unsafe { stream::host_function(handle, callback, data) })
}

pub fn cuEventCreate(to: Out<'_, *mut c_void>, flags: c_uint) -> u32 {
    hand_out(to, stream::create_event(flags), std::ptr::null_mut())
}

pub fn cuEventDestroy_v2(event: *mut c_void) -> u32 {
    answer(stream::destroy_event(event))
}

pub fn cuEventRecord(event: *mut c_void, handle: *mut c_void) -> u32 {
    answer(stream::record(event, handle))
}

pub fn cuEventRecordWithFlags(event: *mut c_void, handle: *mut c_void, _flags: c_uint) -> u32 {
    answer(stream::record(event, handle))
}

pub fn cuEventQuery(event: *mut c_void) -> u32 {
    answer(stream::event(event).map(drop))
}

pub fn cuEventSynchronize(event: *mut c_void) -> u32 {
    answer(stream::event(event).map(drop))
}

pub fn cuEventElapsedTime_v2(milliseconds: Out<'_, f32>, start: *mut c_void, end: *mut c_void) -> u32 {
    answer(stream::elapsed(start, end).map(|elapsed| milliseconds.set(elapsed)))
}

pub fn cuStreamBeginCapture_v2(handle: *mut c_void, mode: c_int) -> u32 {
    answer(stream::get(handle).and_then(|stream| capture::begin(stream, mode as u32, std::ptr::null_mut())))
}

pub fn cuStreamBeginCaptureToGraph(
    handle: *mut c_void,
    graph: *mut c_void,
    _dependencies: *const c_void,
    _data: *const c_void,
    _count: usize,
    mode: c_int,
) -> u32 {
    answer(stream::get(handle).and_then(|stream| capture::begin(stream, mode as u32, graph)))
}

pub fn cuStreamEndCapture(handle: *mut c_void, graph: Out<'_, *mut c_void>) -> u32 {
    hand_out(graph, stream::get(handle).and_then(capture::end), std::ptr::null_mut())
}

pub fn cuStreamIsCapturing(handle: *mut c_void, status: Out<'_, c_int>) -> u32 {
    answer(stream::get(handle).map(|stream| status.set(capture::info(stream).0 as c_int)))
}

pub fn cuStreamGetCaptureInfo_v2(
    handle: *mut c_void,
    status: Out<'_, c_int>,
    id: Out<'_, u64>,
    graph: Out<'_, *mut c_void>,
    dependencies: Out<'_, *const c_void>,
    count: Out<'_, usize>,
) -> u32 {
    cudaStreamGetCaptureInfo_v2(handle, status, id, graph, dependencies, count)
}

pub fn cuStreamGetCaptureInfo_v3(
    handle: *mut c_void,
    status: Out<'_, c_int>,
    id: Out<'_, u64>,
    graph: Out<'_, *mut c_void>,
    dependencies: Out<'_, *const c_void>,
    edges: Out<'_, *const c_void>,
    count: Out<'_, usize>,
) -> u32 {
    cudaStreamGetCaptureInfo_v3(handle, status, id, graph, dependencies, edges, count)
}

pub fn cuThreadExchangeStreamCaptureMode(mode: InOut<'_, c_int>) -> u32 {
    if let Some(asked) = mode.get() {
        mode.set(capture::exchange_mode(asked as u32) as c_int);
    }
    SUCCESS
}
