//! Which card and which context are current in a thread, and which contexts exist.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::Ordering;

use oomph_ledger::{Kind, MAX_DEVICES};

use crate::context;
use crate::device_log::Kind as Logged;
use crate::gpu::gpu;
pub use crate::gpu::{Device, uuid_text};
use crate::status::CudaStatus;

/// The slot of every card on its PCI bus, which CUDA calls its device id.
pub const PCI_SLOT: u64 = 0;

impl Device {
    /// What it can hold, in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        gpu().capacity_bytes(self.card).unwrap_or(self.description.capacity_bytes)
    }
}

thread_local! {
    // CUDA keeps a current card and a stack of contexts for each thread. `const` and without a destructor, so that a
    // thread's end runs no code of this library.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    static STACK: Cell<Stack> = const { Cell::new(Stack { depth: 0, devices: [0; STACK_DEPTH], emptied: false }) };
}

/// Deeper context stacks than any program's.
const STACK_DEPTH: usize = 32;

/// A thread's stack of contexts, of which only the device matters.
#[derive(Clone, Copy)]
struct Stack {
    depth: usize,
    devices: [u8; STACK_DEPTH],
    /// The program took the last context off at some time.
    emptied: bool,
}

/// The addresses that stand for contexts. A constant: what lies there is never used, only where it lies.
static CONTEXT_HANDLES: [u64; MAX_DEVICES] = [0; MAX_DEVICES];

/// The card with an ordinal of this process.
pub fn get(ordinal: i32) -> Option<Device> {
    gpu().visible().get(usize::try_from(ordinal).ok()?).copied()
}

/// The ordinal of the current card of this thread.
pub fn current_ordinal() -> usize {
    CURRENT.get()
}

/// The current card of this thread, if there is any card.
pub fn current() -> Option<Device> {
    gpu().visible().get(CURRENT.get()).copied()
}

/// Makes a card current and creates its context.
pub fn make_current(ordinal: i32) -> Result<(), CudaStatus> {
    let Some(device) = get(ordinal) else {
        gpu().note_missing(ordinal);
        return Err(missing());
    };
    CURRENT.set(ordinal as usize);
    let mut stack = STACK.get();
    if stack.depth == 0 {
        stack.depth = 1;
    }
    if let Some(top) = stack.devices.get_mut(stack.depth - 1) {
        *top = ordinal as u8;
    }
    STACK.set(stack);
    activate(device)
}

/// The status for a card that is not there.
pub fn missing() -> CudaStatus {
    if gpu().visible().is_empty() { CudaStatus::NO_DEVICE } else { CudaStatus::INVALID_DEVICE }
}

/// Creates a card's primary context, if it does not exist, and charges it.
pub fn activate(device: Device) -> Result<(), CudaStatus> {
    let gpu = gpu();
    let Some(context) = gpu.contexts.get(device.card) else { return Err(CudaStatus::INVALID_DEVICE) };
    if context.load(Ordering::Relaxed) || context.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    gpu.used();
    if gpu.charge(device.card, Kind::Context, device.description.context_bytes) {
        gpu.log.note(Logged::Context, device.card, 0, device.description.context_bytes as usize);
        Ok(())
    } else {
        context.store(false, Ordering::Relaxed);
        Err(CudaStatus::OUT_OF_MEMORY)
    }
}

/// Creates the current card's context, as the runtime does at the first call that needs one.
pub fn activate_current() -> Result<Device, CudaStatus> {
    let Some(device) = current() else { return Err(missing()) };
    bind_thread();
    activate(device)?;
    Ok(device)
}

/// The current card for a function of the driver API, which refuses to work without a context. The runtime gives threads a
/// context at more calls than are noted here, so that a thread is refused only where the process has no context at all, or
/// where the program took the thread's own away.
pub fn require_context() -> Result<Device, CudaStatus> {
    let stack = STACK.get();
    if stack.depth == 0 {
        let is_any = gpu().contexts.iter().any(|context| context.load(Ordering::Relaxed));
        if stack.emptied || !is_any {
            return Err(if gpu().visible().is_empty() { CudaStatus::NO_DEVICE } else { CudaStatus::INVALID_CONTEXT });
        }
    }
    activate_current()
}

/// Gives a thread without a current context that of its current card, as every call of the runtime that needs one does.
#[inline]
pub fn bind_thread() {
    let mut stack = STACK.get();
    if stack.depth == 0 {
        stack.depth = 1;
        stack.devices[0] = CURRENT.get() as u8;
        STACK.set(stack);
    }
}

/// Whether this process has a context on a card.
pub fn is_active(device: Device) -> bool {
    gpu().contexts.get(device.card).is_some_and(|context| context.load(Ordering::Relaxed))
}

/// Destroys a card's primary context; what the program allocated in it stays charged until it is freed.
pub fn deactivate(device: Device) {
    if gpu().contexts.get(device.card).is_some_and(|context| context.swap(false, Ordering::Relaxed)) {
        gpu().release(device.card, Kind::Context, device.description.context_bytes + context::taken(device));
        context::forget(device);
    }
}

/// The handle of a card's context.
pub fn context_handle(ordinal: usize) -> *mut c_void {
    CONTEXT_HANDLES.get(ordinal).map_or(std::ptr::null_mut(), |handle| std::ptr::from_ref(handle) as *mut c_void)
}

/// The ordinal of the card whose context a handle names.
pub fn ordinal_of(context: *mut c_void) -> Option<i32> {
    let offset = (context as usize).checked_sub(CONTEXT_HANDLES.as_ptr() as usize)?;
    let ordinal = offset / size_of::<u64>();
    (offset % size_of::<u64>() == 0 && ordinal < gpu().visible().len()).then_some(ordinal as i32)
}

/// The handle of this thread's current context; null if it has none.
pub fn current_context() -> *mut c_void {
    let stack = STACK.get();
    match stack.depth.checked_sub(1).and_then(|top| stack.devices.get(top)) {
        Some(device) => context_handle(usize::from(*device)),
        None => std::ptr::null_mut(),
    }
}

/// Pushes a context onto this thread's stack.
pub fn push_context(ordinal: i32) -> Result<(), CudaStatus> {
    let Some(device) = get(ordinal) else { return Err(missing()) };
    let mut stack = STACK.get();
    if let Some(place) = stack.devices.get_mut(stack.depth) {
        *place = ordinal as u8;
        stack.depth += 1;
    }
    STACK.set(stack);
    CURRENT.set(ordinal as usize);
    activate(device)
}

/// Pops this thread's current context and returns its handle; null if the stack is empty.
pub fn pop_context() -> *mut c_void {
    let popped = current_context();
    let mut stack = STACK.get();
    stack.depth = stack.depth.saturating_sub(1);
    stack.emptied |= stack.depth == 0 && !popped.is_null();
    STACK.set(stack);
    if let Some(device) = stack.depth.checked_sub(1).and_then(|top| stack.devices.get(top)) {
        CURRENT.set(usize::from(*device));
    }
    popped
}

/// Leaves this thread without a current context, as `cuCtxSetCurrent(NULL)` does.
pub fn clear_context() {
    pop_context();
}
