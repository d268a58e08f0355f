//! Streams, events, callbacks and capture.

use std::ffi::{c_int, c_uint, c_void};

use crate::boundary::{Callback, HostFunction, InOut, Out, StreamCallback};
use crate::cuda::streams::CaptureInfo;
use crate::cuda::{Opaque, functions, streams};
use crate::loader;
use crate::status::RuntimeStatus;
use crate::stream::{self, EventHandle, StreamHandle};

functions! { RuntimeStatus:
    cudaStreamCreate(to: Out<'_, Opaque>) = streams::create(to, 0, 0);
    cudaStreamCreateWithFlags(to: Out<'_, Opaque>, flags: c_uint) = streams::create(to, flags, 0);
    cudaStreamCreateWithPriority(to: Out<'_, Opaque>, flags: c_uint, priority: c_int)
        = streams::create(to, flags, priority);
    cudaStreamDestroy(handle: StreamHandle) = stream::destroy(handle);
    cudaStreamGetPriority(handle: StreamHandle, priority: Out<'_, c_int>) = streams::priority(handle, priority);
    cudaStreamGetFlags(handle: StreamHandle, flags: Out<'_, c_uint>) = streams::flags(handle, flags);
    cudaStreamGetId(handle: StreamHandle, id: Out<'_, u64>) = streams::id(handle, id);
    cudaStreamGetDevice(handle: StreamHandle, ordinal: Out<'_, c_int>) = streams::ordinal(handle, ordinal);
    cudaStreamSynchronize(handle: StreamHandle) = stream::synchronize(handle);
    cudaStreamQuery(handle: StreamHandle) = streams::query(handle);
    cudaStreamWaitEvent(handle: StreamHandle, event: EventHandle, _flags: c_uint) = stream::wait(handle, event);
    cudaStreamAddCallback(handle: StreamHandle, callback: Callback<'_, StreamCallback>, data: *mut c_void, _flags: c_uint)
        = streams::add_callback(handle, callback, data);
    cudaLaunchHostFunc(handle: StreamHandle, callback: Callback<'_, HostFunction>, data: *mut c_void)
        = streams::host_function(handle, callback, data);

    cudaEventCreate(to: Out<'_, Opaque>) = streams::create_event(to, 0);
    cudaEventCreateWithFlags(to: Out<'_, Opaque>, flags: c_uint) = streams::create_event(to, flags);
    cudaEventDestroy(event: EventHandle) = stream::destroy_event(event);
    cudaEventRecord(event: EventHandle, handle: StreamHandle) = stream::record(event, handle);
    cudaEventRecordWithFlags(event: EventHandle, handle: StreamHandle, _flags: c_uint) = stream::record(event, handle);
    cudaEventQuery(event: EventHandle) = streams::event_is_done(event);
    cudaEventSynchronize(event: EventHandle) = streams::event_is_done(event);
    cudaEventElapsedTime(milliseconds: Out<'_, f32>, start: EventHandle, end: EventHandle)
        = streams::elapsed(milliseconds, start, end);
    cudaEventElapsedTime_v2(milliseconds: Out<'_, f32>, start: EventHandle, end: EventHandle)
        = streams::elapsed(milliseconds, start, end);

    cudaStreamBeginCapture(handle: StreamHandle, mode: c_int) = streams::begin_capture_alone(handle, mode);
    /// Null is the thread's own default stream here.
    cudaStreamBeginCapture_ptsz(handle: StreamHandle, mode: c_int)
        = streams::begin_capture(handle, std::ptr::null_mut(), mode);
    cudaStreamBeginCaptureToGraph(
        handle: StreamHandle, graph: Opaque, _dependencies: *const c_void, _data: *const c_void, _count: usize, mode: c_int
    ) = streams::begin_capture(handle, graph, mode);
    cudaStreamEndCapture(handle: StreamHandle, graph: Out<'_, Opaque>) = streams::end_capture(handle, graph);
    cudaStreamIsCapturing(handle: StreamHandle, status: Out<'_, c_int>) = streams::is_capturing(handle, status);
    cudaStreamGetCaptureInfo_v2(
        handle: StreamHandle, status: Out<'_, c_int>, id: Out<'_, u64>, graph: Out<'_, Opaque>,
        dependencies: Out<'_, *const c_void>, count: Out<'_, usize>,
    ) = streams::capture_info(handle, &CaptureInfo { status, id, graph, dependencies, edges: Out::null(), count });
    cudaStreamGetCaptureInfo_v3(
        handle: StreamHandle, status: Out<'_, c_int>, id: Out<'_, u64>, graph: Out<'_, Opaque>,
        dependencies: Out<'_, *const c_void>, edges: Out<'_, *const c_void>, count: Out<'_, usize>,
    ) = streams::capture_info(handle, &CaptureInfo { status, id, graph, dependencies, edges, count });
    cudaThreadExchangeStreamCaptureMode(mode: InOut<'_, c_int>) = streams::exchange_capture_mode(mode);
}

/// CUDA 13 gave this name the seven arguments of the old `_v3`; before, it had three.
pub fn cudaStreamGetCaptureInfo(
    handle: StreamHandle,
    status: Out<'_, c_int>,
    id: Out<'_, u64>,
    graph: Out<'_, Opaque>,
    dependencies: Out<'_, *const c_void>,
    edges: Out<'_, *const c_void>,
    count: Out<'_, usize>,
) -> Result<(), RuntimeStatus> {
    if loader::runtime_major() >= 13 {
        cudaStreamGetCaptureInfo_v3(handle, status, id, graph, dependencies, edges, count)
    } else {
        cudaStreamGetCaptureInfo_v2(handle, status, id, Out::null(), Out::null(), Out::null())
    }
}
