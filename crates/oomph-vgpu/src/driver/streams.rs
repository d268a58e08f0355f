//! Streams, events, callbacks and capture.

use std::ffi::{c_int, c_uint, c_void};

use crate::boundary::{Callback, HostFunction, InOut, Out, StreamCallback};
use crate::cuda::streams::CaptureInfo;
use crate::cuda::{Opaque, functions, streams};
use crate::driver::known_to_runtime;
use crate::status::DriverStatus;
use crate::stream::{self, EventHandle, StreamHandle};

functions! { DriverStatus:
    cuStreamCreate(to: Out<'_, Opaque>, flags: c_uint) = streams::create(to, flags, 0);
    cuStreamCreateWithPriority(to: Out<'_, Opaque>, flags: c_uint, priority: c_int)
        = streams::create(to, flags, priority);
    cuStreamDestroy_v2(handle: StreamHandle) = stream::destroy(handle);
    cuStreamGetPriority(handle: StreamHandle, priority: Out<'_, c_int>) = streams::priority(handle, priority);
    cuStreamGetFlags(handle: StreamHandle, flags: Out<'_, c_uint>) = streams::flags(handle, flags);
    cuStreamGetId(handle: StreamHandle, id: Out<'_, u64>) = streams::id(handle, id);
    cuStreamGetCtx(handle: StreamHandle, context: Out<'_, Opaque>) = streams::context(handle, context);
    cuStreamGetDevice(handle: StreamHandle, ordinal: Out<'_, c_int>) = streams::ordinal(handle, ordinal);
    cuStreamSynchronize(handle: StreamHandle) = stream::synchronize(handle);
    cuStreamQuery(handle: StreamHandle) = streams::query(handle);
    cuStreamWaitEvent(handle: StreamHandle, event: EventHandle, _flags: c_uint) = stream::wait(handle, event);
    cuStreamAddCallback(handle: StreamHandle, callback: Callback<'_, StreamCallback>, data: *mut c_void, _flags: c_uint)
        = known_to_runtime(streams::add_callback(handle, callback, data));
    cuLaunchHostFunc(handle: StreamHandle, callback: Callback<'_, HostFunction>, data: *mut c_void)
        = streams::host_function(handle, callback, data);

    cuEventCreate(to: Out<'_, Opaque>, flags: c_uint) = streams::create_event(to, flags);
    cuEventDestroy_v2(event: EventHandle) = stream::destroy_event(event);
    cuEventRecord(event: EventHandle, handle: StreamHandle) = stream::record(event, handle);
    cuEventRecordWithFlags(event: EventHandle, handle: StreamHandle, _flags: c_uint) = stream::record(event, handle);
    cuEventQuery(event: EventHandle) = streams::event_is_done(event);
    cuEventSynchronize(event: EventHandle) = streams::event_is_done(event);
    cuEventElapsedTime_v2(milliseconds: Out<'_, f32>, start: EventHandle, end: EventHandle)
        = streams::elapsed(milliseconds, start, end);

    cuStreamBeginCapture_v2(handle: StreamHandle, mode: c_int) = streams::begin_capture_alone(handle, mode);
    /// Null is the thread's own default stream here.
    cuStreamBeginCapture_v2_ptsz(handle: StreamHandle, mode: c_int)
        = streams::begin_capture(handle, std::ptr::null_mut(), mode);
    cuStreamBeginCaptureToGraph(
        handle: StreamHandle, graph: Opaque, _dependencies: *const c_void, _data: *const c_void, _count: usize, mode: c_int
    ) = streams::begin_capture(handle, graph, mode);
    cuStreamEndCapture(handle: StreamHandle, graph: Out<'_, Opaque>) = streams::end_capture(handle, graph);
    cuStreamIsCapturing(handle: StreamHandle, status: Out<'_, c_int>) = streams::is_capturing(handle, status);
    cuStreamGetCaptureInfo_v2(
        handle: StreamHandle, status: Out<'_, c_int>, id: Out<'_, u64>, graph: Out<'_, Opaque>,
        dependencies: Out<'_, *const c_void>, count: Out<'_, usize>,
    ) = known_to_runtime(streams::capture_info(
        handle, &CaptureInfo { status, id, graph, dependencies, edges: Out::null(), count },
    ));
    cuStreamGetCaptureInfo_v3(
        handle: StreamHandle, status: Out<'_, c_int>, id: Out<'_, u64>, graph: Out<'_, Opaque>,
        dependencies: Out<'_, *const c_void>, edges: Out<'_, *const c_void>, count: Out<'_, usize>,
    ) = known_to_runtime(streams::capture_info(
        handle, &CaptureInfo { status, id, graph, dependencies, edges, count },
    ));
    cuThreadExchangeStreamCaptureMode(mode: InOut<'_, c_int>) = streams::exchange_capture_mode(mode);
}
