//! Streams, events, callbacks and capture.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use crate::boundary::{Callback, HostFunction, InOut, Out, StreamCallback};
use crate::cuda::{Opaque, hand_out};
use crate::status::CudaStatus;
use crate::stream::{self, EventHandle, StreamHandle};
use crate::{capture, device};

/// Makes a stream on the current card.
pub fn create(to: Out<'_, Opaque>, flags: c_uint, priority: c_int) -> Result<(), CudaStatus> {
    hand_out(to, stream::create(flags, priority))
}

/// Writes a stream's priority.
pub fn priority(handle: StreamHandle, priority: Out<'_, c_int>) -> Result<(), CudaStatus> {
    priority.set(stream::get(handle)?.priority.load(Ordering::Relaxed) as c_int);
    Ok(())
}

/// Writes the flags that a stream was made with.
pub fn flags(handle: StreamHandle, flags: Out<'_, c_uint>) -> Result<(), CudaStatus> {
    flags.set(stream::get(handle)?.flags.load(Ordering::Relaxed));
    Ok(())
}

/// Writes the number that no other stream of the process has.
pub fn id(handle: StreamHandle, id: Out<'_, u64>) -> Result<(), CudaStatus> {
    id.set(stream::get(handle)?.id.load(Ordering::Relaxed));
    Ok(())
}

/// Writes the ordinal of a stream's card.
pub fn ordinal(handle: StreamHandle, ordinal: Out<'_, c_int>) -> Result<(), CudaStatus> {
    ordinal.set(stream::get(handle)?.ordinal.load(Ordering::Relaxed) as c_int);
    Ok(())
}

/// Writes a stream's context.
pub fn context(handle: StreamHandle, context: Out<'_, Opaque>) -> Result<(), CudaStatus> {
    context.set(device::context_handle(stream::get(handle)?.ordinal.load(Ordering::Relaxed) as usize));
    Ok(())
}

/// Asks whether a stream has work left, which it never has; not allowed while it captures.
pub fn query(handle: StreamHandle) -> Result<(), CudaStatus> {
    capture::check_synchronization(stream::get(handle)?)
}

/// Runs a callback that also gets the stream and a status.
pub fn add_callback(
    handle: StreamHandle,
    callback: Callback<'_, StreamCallback>,
    data: *mut c_void,
) -> Result<(), CudaStatus> {
    stream::get(handle)?;
    if callback.is_null() {
        return Err(CudaStatus::INVALID_VALUE);
    }
    callback.call(handle.address(), 0, data);
    Ok(())
}

/// Runs a callback of the program in stream order, which is now.
pub fn host_function(
    handle: StreamHandle,
    callback: Callback<'_, HostFunction>,
    data: *mut c_void,
) -> Result<(), CudaStatus> {
    let stream = stream::get(handle)?;
    if callback.is_null() {
        return Err(CudaStatus::INVALID_VALUE);
    }
    // A captured callback would run at every replay.
    if stream.capture.load(Ordering::Relaxed) == 0 {
        callback.call(data);
    } else {
        capture::add_node(stream);
    }
    Ok(())
}

/// Makes an event.
pub fn create_event(to: Out<'_, Opaque>, flags: c_uint) -> Result<(), CudaStatus> {
    hand_out(to, stream::create_event(flags))
}

/// Asks for an event, or waits for it: what it stands for has happened.
pub fn event_is_done(event: EventHandle) -> Result<(), CudaStatus> {
    stream::event(event)?;
    Ok(())
}

/// Writes the milliseconds between two events.
pub fn elapsed(milliseconds: Out<'_, f32>, start: EventHandle, end: EventHandle) -> Result<(), CudaStatus> {
    milliseconds.set(stream::elapsed(start, end)?);
    Ok(())
}

/// Begins a capture, into a given graph or a new one.
pub fn begin_capture(handle: StreamHandle, graph: Opaque, mode: c_int) -> Result<(), CudaStatus> {
    capture::begin(stream::get(handle)?, mode as u32, graph)
}

/// Begins a capture into a new graph. The legacy default stream, which waits for all others, cannot be captured.
pub fn begin_capture_alone(handle: StreamHandle, mode: c_int) -> Result<(), CudaStatus> {
    /// `CU_STREAM_LEGACY`, which null stands for as well.
    const LEGACY: usize = 1;
    if handle.address() as usize <= LEGACY {
        return Err(CudaStatus::CAPTURE_UNSUPPORTED);
    }
    begin_capture(handle, std::ptr::null_mut(), mode)
}

/// Ends a capture and hands out its graph.
pub fn end_capture(handle: StreamHandle, graph: Out<'_, Opaque>) -> Result<(), CudaStatus> {
    hand_out(graph, stream::get(handle).and_then(capture::end))
}

/// Writes whether a stream captures.
pub fn is_capturing(handle: StreamHandle, status: Out<'_, c_int>) -> Result<(), CudaStatus> {
    status.set(capture::info(stream::get(handle)?).0 as c_int);
    Ok(())
}

/// What a program asks of a capture; each place may be null.
pub struct CaptureInfo<'a> {
    /// Whether the stream captures.
    pub status: Out<'a, c_int>,
    /// The number of the capture.
    pub id: Out<'a, u64>,
    /// Its graph.
    pub graph: Out<'a, Opaque>,
    /// What the next node depends on: nothing.
    pub dependencies: Out<'a, *const c_void>,
    /// Data about the edges to those: none.
    pub edges: Out<'a, *const c_void>,
    /// How many dependencies there are: none.
    pub count: Out<'a, usize>,
}

/// Writes what is captured on a stream.
pub fn capture_info(handle: StreamHandle, asked: &CaptureInfo<'_>) -> Result<(), CudaStatus> {
    let (state, session, captured) = capture::info(stream::get(handle)?);
    asked.status.set(state as c_int);
    asked.id.set(session);
    asked.graph.set(captured);
    asked.dependencies.set(std::ptr::null());
    asked.edges.set(std::ptr::null());
    asked.count.set(0);
    Ok(())
}

/// Exchanges the mode in which this thread captures.
pub fn exchange_capture_mode(mode: InOut<'_, c_int>) {
    if let Some(asked) = mode.get() {
        mode.set(capture::exchange_mode(asked as u32) as c_int);
    }
}
