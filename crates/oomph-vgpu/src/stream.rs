//! Streams and events. Work is done the moment it is launched, so what they hold is identity and capture state.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use crate::boundary::{Any, FromC, Plain};
pub use crate::gpu::{Event, Stream};
use crate::gpu::{FreeList, STREAM_MAGIC, gpu};
use crate::status::CudaStatus;
use crate::{capture, context, device, pool};

/// The handle of a stream as a program passes it: one that [`create`] returned, or a small number for a default stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamHandle(*mut c_void);

impl StreamHandle {
    /// The default stream of the current card.
    pub const DEFAULT: StreamHandle = StreamHandle(ptr::null_mut());

    /// The handle as the program has it.
    pub fn address(self) -> *mut c_void {
        self.0
    }
}

impl FromC<Any> for StreamHandle {
    #[inline(always)]
    unsafe fn from_c(pointer: *mut c_void) -> Self {
        StreamHandle(pointer)
    }
}

// SAFETY: an address may be any; a program promises of a handle in a structure what it promises of one that it passes.
unsafe impl Plain for StreamHandle {}

/// The handle of an event as a program passes it: one that [`create_event`] returned.
#[derive(Clone, Copy, Debug)]
pub struct EventHandle(*mut c_void);

impl FromC<Any> for EventHandle {
    #[inline(always)]
    unsafe fn from_c(pointer: *mut c_void) -> Self {
        EventHandle(pointer)
    }
}

/// Handles below this are the default streams of the current device.
const DEFAULT_HANDLES: usize = 16;
const EVENT_MAGIC: u32 = 0x6576_656e;
const DEAD: u32 = 0;

fn reuse<T>(list: &FreeList<T>) -> Option<&'static T> {
    list.lock().pop()
}

fn release<T>(list: &FreeList<T>, object: &'static T) {
    list.lock().push(object);
}

/// Creates a stream on the current card.
pub fn create(flags: u32, priority: i32) -> Result<*mut c_void, CudaStatus> {
    context::add_stream(device::activate_current()?)?;
    let stream = reuse(&gpu().streams.free_streams).unwrap_or_else(|| Box::leak(Box::new(Stream::new(DEAD))));
    stream.ordinal.store(device::current_ordinal() as u32, Ordering::Relaxed);
    stream.flags.store(flags, Ordering::Relaxed);
    stream.priority.store(priority as u32, Ordering::Relaxed);
    stream.id.store(gpu().streams.next.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    stream.capture.store(0, Ordering::Relaxed);
    stream.magic.store(STREAM_MAGIC, Ordering::Release);
    Ok(ptr::from_ref(stream).cast_mut().cast())
}

/// The stream that a handle names.
pub fn get(handle: StreamHandle) -> Result<&'static Stream, CudaStatus> {
    if (handle.0 as usize) < DEFAULT_HANDLES {
        let stream = gpu().streams.defaults.get(device::current_ordinal()).ok_or(CudaStatus::INVALID_HANDLE)?;
        stream.ordinal.store(device::current_ordinal() as u32, Ordering::Relaxed);
        return Ok(stream);
    }
    let pointer = NonNull::new(handle.0.cast::<Stream>())
        .filter(|pointer| pointer.is_aligned())
        .ok_or(CudaStatus::INVALID_HANDLE)?;
    // SAFETY: a program passes only handles that `create` returned, and streams are never freed; the magic number catches
    // destroyed ones.
    let stream = unsafe { pointer.as_ref() };
    if stream.magic.load(Ordering::Relaxed) == STREAM_MAGIC { Ok(stream) } else { Err(CudaStatus::INVALID_HANDLE) }
}

/// Destroys a stream.
pub fn destroy(handle: StreamHandle) -> Result<(), CudaStatus> {
    if (handle.0 as usize) < DEFAULT_HANDLES {
        return Err(CudaStatus::INVALID_HANDLE);
    }
    let stream = get(handle)?;
    stream.magic.store(DEAD, Ordering::Release);
    if let Some(device) = device::get(stream.ordinal.load(Ordering::Relaxed) as i32) {
        context::remove_stream(device);
    }
    release(&gpu().streams.free_streams, stream);
    Ok(())
}

/// Creates an event.
pub fn create_event(flags: u32) -> Result<*mut c_void, CudaStatus> {
    device::activate_current()?;
    let event = reuse(&gpu().streams.free_events).unwrap_or_else(|| {
        Box::leak(Box::new(Event {
            magic: AtomicU32::new(DEAD),
            flags: AtomicU32::new(0),
            capture: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
        }))
    });
    event.flags.store(flags, Ordering::Relaxed);
    event.capture.store(0, Ordering::Relaxed);
    event.recorded.store(0, Ordering::Relaxed);
    event.magic.store(EVENT_MAGIC, Ordering::Release);
    Ok(ptr::from_ref(event).cast_mut().cast())
}

/// The event that a handle names.
pub fn event(handle: EventHandle) -> Result<&'static Event, CudaStatus> {
    let pointer = NonNull::new(handle.0.cast::<Event>())
        .filter(|pointer| pointer.is_aligned())
        .ok_or(CudaStatus::INVALID_HANDLE)?;
    // SAFETY: as for streams.
    let event = unsafe { pointer.as_ref() };
    if event.magic.load(Ordering::Relaxed) == EVENT_MAGIC { Ok(event) } else { Err(CudaStatus::INVALID_HANDLE) }
}

/// Destroys an event.
pub fn destroy_event(handle: EventHandle) -> Result<(), CudaStatus> {
    let event = event(handle)?;
    event.magic.store(DEAD, Ordering::Release);
    release(&gpu().streams.free_events, event);
    Ok(())
}

/// Nanoseconds since the first call, never 0.
fn now() -> u64 {
    gpu().streams.start.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1
}

/// Records an event on a stream, with the capture that is under way there.
pub fn record(event_handle: EventHandle, stream_handle: StreamHandle) -> Result<(), CudaStatus> {
    let stream = get(stream_handle)?;
    let event = event(event_handle)?;
    event.capture.store(stream.capture.load(Ordering::Relaxed), Ordering::Relaxed);
    event.recorded.store(now(), Ordering::Relaxed);
    Ok(())
}

/// Makes a stream wait for an event: if that was recorded in a capture, the stream joins it.
pub fn wait(stream_handle: StreamHandle, event_handle: EventHandle) -> Result<(), CudaStatus> {
    let stream = get(stream_handle)?;
    let captured = event(event_handle)?.capture.load(Ordering::Relaxed);
    if captured != 0 {
        capture::join(captured, stream);
    }
    Ok(())
}

/// Milliseconds between two recorded events, never 0 because programs divide by it.
pub fn elapsed(start: EventHandle, end: EventHandle) -> Result<f32, CudaStatus> {
    let start = event(start)?.recorded.load(Ordering::Relaxed);
    let end = event(end)?.recorded.load(Ordering::Relaxed);
    if start == 0 || end == 0 {
        return Err(CudaStatus::INVALID_HANDLE);
    }
    Ok((end.saturating_sub(start).max(1_000) as f64 / 1e6) as f32)
}

/// Checks that a stream may be waited for by the host: not while it captures.
pub fn synchronize(handle: StreamHandle) -> Result<(), CudaStatus> {
    capture::check_synchronization(get(handle)?)?;
    pool::synchronized();
    Ok(())
}

/// Counts a launch on a stream handle; the fast path outside captures is one load.
#[inline]
pub fn launched(handle: StreamHandle) {
    if capture::is_any_active()
        && let Ok(stream) = get(handle)
    {
        capture::add_node(stream);
    }
}
