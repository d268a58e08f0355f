//! Streams and events. Work is done the moment it is launched, so what they hold is identity and capture state.

use crate::fork::{Mutex, Once};
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use oomph_ledger::MAX_DEVICES;

use crate::status::INVALID_HANDLE;
use crate::{capture, device};

/// Handles below this are the default streams of the current device.
const DEFAULT_HANDLES: usize = 16;
const STREAM_MAGIC: u32 = 0x7374_726d;
const EVENT_MAGIC: u32 = 0x6576_656e;
const DEAD: u32 = 0;

/// A stream.
#[derive(Debug)]
pub struct Stream {
    magic: AtomicU32,
    /// Ordinal of its card.
    pub ordinal: AtomicU32,
    /// Its creation flags.
    pub flags: AtomicU32,
    /// Its priority, as the bits of an `i32`.
    pub priority: AtomicU32,
    /// A number that no other stream of the process has.
    pub id: AtomicU64,
    /// The capture it takes part in, 0 for none.
    pub capture: AtomicU64,
}

/// An event.
#[derive(Debug)]
pub struct Event {
    magic: AtomicU32,
    /// Its creation flags.
    pub flags: AtomicU32,
    /// The capture that was under way on the stream when it was recorded, 0 for none.
    pub capture: AtomicU64,
    /// When it was recorded, in nanoseconds since the first event; 0 for never.
    pub recorded: AtomicU64,
}

impl Stream {
    const fn new(magic: u32) -> Self {
        Self {
            magic: AtomicU32::new(magic),
            ordinal: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            priority: AtomicU32::new(0),
            id: AtomicU64::new(0),
            capture: AtomicU64::new(0),
        }
    }
}

static DEFAULTS: [Stream; MAX_DEVICES] = [const { Stream::new(STREAM_MAGIC) }; MAX_DEVICES];
static NEXT_STREAM: AtomicU64 = AtomicU64::new(MAX_DEVICES as u64);

/// Objects that were destroyed. Their memory is used again but never given back, so that a stale handle is an error
/// and not a crash.
struct FreeList(Vec<usize>);

static FREE_STREAMS: Mutex<FreeList> = Mutex::new(FreeList(Vec::new()));
static FREE_EVENTS: Mutex<FreeList> = Mutex::new(FreeList(Vec::new()));

fn reuse(list: &Mutex<FreeList>) -> Option<usize> {
    list.lock().0.pop()
}

fn release(list: &Mutex<FreeList>, address: usize) {
    list.lock().0.push(address);
}

/// Creates a stream on the current card.
pub fn create(flags: u32, priority: i32) -> Result<*mut c_void, u32> {
    device::activate_current()?;
    let stream: &'static Stream = match reuse(&FREE_STREAMS) {
        // SAFETY: only addresses of leaked streams are buried.
        Some(address) => unsafe { &*(address as *const Stream) },
        None => Box::leak(Box::new(Stream::new(DEAD))),
    };
    stream.ordinal.store(device::current_ordinal() as u32, Ordering::Relaxed);
    stream.flags.store(flags, Ordering::Relaxed);
    stream.priority.store(priority as u32, Ordering::Relaxed);
    stream.id.store(NEXT_STREAM.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    stream.capture.store(0, Ordering::Relaxed);
    stream.magic.store(STREAM_MAGIC, Ordering::Release);
    Ok(ptr::from_ref(stream).cast_mut().cast())
}

/// The stream that a handle names.
pub fn get(handle: *mut c_void) -> Result<&'static Stream, u32> {
    if (handle as usize) < DEFAULT_HANDLES {
        let stream = DEFAULTS.get(device::current_ordinal()).ok_or(INVALID_HANDLE)?;
        stream.ordinal.store(device::current_ordinal() as u32, Ordering::Relaxed);
        return Ok(stream);
    }
    let pointer = NonNull::new(handle.cast::<Stream>()).filter(|pointer| pointer.is_aligned()).ok_or(INVALID_HANDLE)?;
    // SAFETY: a program may only pass handles that `create` returned, and those are never freed; the magic number
    // catches destroyed ones.
    let stream = unsafe { pointer.as_ref() };
    if stream.magic.load(Ordering::Relaxed) == STREAM_MAGIC { Ok(stream) } else { Err(INVALID_HANDLE) }
}

/// Destroys a stream.
pub fn destroy(handle: *mut c_void) -> Result<(), u32> {
    if (handle as usize) < DEFAULT_HANDLES {
        return Err(INVALID_HANDLE);
    }
    let stream = get(handle)?;
    stream.magic.store(DEAD, Ordering::Release);
    release(&FREE_STREAMS, handle as usize);
    Ok(())
}

/// Creates an event.
pub fn create_event(flags: u32) -> Result<*mut c_void, u32> {
    device::activate_current()?;
    let event: &'static Event = match reuse(&FREE_EVENTS) {
        // SAFETY: only addresses of leaked events are buried.
        Some(address) => unsafe { &*(address as *const Event) },
        None => Box::leak(Box::new(Event {
            magic: AtomicU32::new(DEAD),
            flags: AtomicU32::new(0),
            capture: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
        })),
    };
    event.flags.store(flags, Ordering::Relaxed);
    event.capture.store(0, Ordering::Relaxed);
    event.recorded.store(0, Ordering::Relaxed);
    event.magic.store(EVENT_MAGIC, Ordering::Release);
    Ok(ptr::from_ref(event).cast_mut().cast())
}

/// The event that a handle names.
pub fn event(handle: *mut c_void) -> Result<&'static Event, u32> {
    let pointer = NonNull::new(handle.cast::<Event>()).filter(|pointer| pointer.is_aligned()).ok_or(INVALID_HANDLE)?;
    // SAFETY: as for streams.
    let event = unsafe { pointer.as_ref() };
    if event.magic.load(Ordering::Relaxed) == EVENT_MAGIC { Ok(event) } else { Err(INVALID_HANDLE) }
}

/// Destroys an event.
pub fn destroy_event(handle: *mut c_void) -> Result<(), u32> {
    event(handle)?.magic.store(DEAD, Ordering::Release);
    release(&FREE_EVENTS, handle as usize);
    Ok(())
}

/// Nanoseconds since the first call, never 0.
fn now() -> u64 {
    static START: Once<Instant> = Once::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1
}

/// Records an event on a stream, with the capture that is under way there.
pub fn record(event_handle: *mut c_void, stream_handle: *mut c_void) -> Result<(), u32> {
    let stream = get(stream_handle)?;
    let event = event(event_handle)?;
    event.capture.store(stream.capture.load(Ordering::Relaxed), Ordering::Relaxed);
    event.recorded.store(now(), Ordering::Relaxed);
    Ok(())
}

/// Makes a stream wait for an event: if that was recorded in a capture, the stream joins it.
pub fn wait(stream_handle: *mut c_void, event_handle: *mut c_void) -> Result<(), u32> {
    let stream = get(stream_handle)?;
    let captured = event(event_handle)?.capture.load(Ordering::Relaxed);
    if captured != 0 {
        capture::join(captured, stream);
    }
    Ok(())
}

/// Milliseconds between two recorded events, never 0 because programs divide by it.
pub fn elapsed(start: *mut c_void, end: *mut c_void) -> Result<f32, u32> {
    let start = event(start)?.recorded.load(Ordering::Relaxed);
    let end = event(end)?.recorded.load(Ordering::Relaxed);
    if start == 0 || end == 0 {
        return Err(INVALID_HANDLE);
    }
    Ok((end.saturating_sub(start).max(1_000) as f64 / 1e6) as f32)
}

/// Checks that a stream may be waited for by the host: not while it captures.
pub fn synchronize(handle: *mut c_void) -> Result<(), u32> {
    capture::check_synchronization(get(handle)?)?;
    crate::pool::synchronized();
    Ok(())
}
