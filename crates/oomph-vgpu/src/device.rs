//! Which cards this process sees, which one is current, and which contexts exist.

use crate::fork::Once;
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use oomph_ledger::{DeviceDescription, Kind, MAX_DEVICES};

use crate::status::{INVALID_DEVICE, NO_DEVICE, OUT_OF_MEMORY, SUCCESS};
use crate::{books, device_log};

/// A card as this process sees it.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// Its index in the ledger: which card of the machine it is.
    pub card: usize,
    /// What it is.
    pub description: &'static DeviceDescription,
}

impl Device {
    /// What it can hold, in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        books::capacity_bytes(self.card).unwrap_or(self.description.capacity_bytes)
    }
}

thread_local! {
    // `const` and without a destructor, so that a thread's end runs no code of this library.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    static STACK: Cell<Stack> = const { Cell::new(Stack { depth: 0, devices: [0; STACK_DEPTH] }) };
}

/// Deeper context stacks than any program's.
const STACK_DEPTH: usize = 32;

/// A thread's stack of contexts, of which only the device matters.
#[derive(Clone, Copy)]
struct Stack {
    depth: usize,
    devices: [u8; STACK_DEPTH],
}

/// Which primary contexts this process created, by card.
static CONTEXTS: [AtomicBool; MAX_DEVICES] = [const { AtomicBool::new(false) }; MAX_DEVICES];

/// The addresses that stand for contexts; what lies there is never used.
static CONTEXT_HANDLES: [u64; MAX_DEVICES] = [0; MAX_DEVICES];

/// The cards that `CUDA_VISIBLE_DEVICES` leaves, in its order. Read once, when the program first asks.
pub fn visible() -> &'static [Device] {
    static VISIBLE: Once<Vec<Device>> = Once::new();
    VISIBLE.get_or_init(|| {
        let all: Vec<Device> =
            books::cards().iter().enumerate().map(|(card, description)| Device { card, description }).collect();
        match std::env::var("CUDA_VISIBLE_DEVICES") {
            Ok(list) => select(&all, &list),
            Err(_) => all,
        }
    })
}

/// What CUDA makes of `CUDA_VISIBLE_DEVICES`: entries up to the first that names no card.
fn select(all: &[Device], list: &str) -> Vec<Device> {
    let mut chosen: Vec<Device> = Vec::new();
    for entry in list.split(',').map(str::trim) {
        let device = match entry.parse::<usize>() {
            Ok(index) => all.get(index),
            Err(_) => all.iter().find(|device| {
                let uuid = uuid_text(&device.description.uuid);
                entry.len() > 4 && uuid.starts_with(entry)
            }),
        };
        match device {
            Some(device) if !chosen.iter().any(|other| other.card == device.card) => chosen.push(*device),
            _ => break,
        }
    }
    chosen
}

/// The identity as `nvidia-smi -L` prints it.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::from("GPU-");
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// The card with an ordinal of this process.
pub fn get(ordinal: i32) -> Option<Device> {
    visible().get(usize::try_from(ordinal).ok()?).copied()
}

/// The ordinal of the current card of this thread.
pub fn current_ordinal() -> usize {
    CURRENT.get()
}

/// The current card of this thread, if there is any card.
pub fn current() -> Option<Device> {
    visible().get(CURRENT.get()).copied()
}

/// Makes a card current and creates its context.
pub fn make_current(ordinal: i32) -> u32 {
    let Some(device) = get(ordinal) else { return missing() };
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
pub fn missing() -> u32 {
    if visible().is_empty() { NO_DEVICE } else { INVALID_DEVICE }
}

/// Creates a card's primary context, if it does not exist, and charges it.
pub fn activate(device: Device) -> u32 {
    let Some(context) = CONTEXTS.get(device.card) else { return INVALID_DEVICE };
    if context.load(Ordering::Relaxed) || context.swap(true, Ordering::Relaxed) {
        return SUCCESS;
    }
    if books::charge(device.card, Kind::Context, device.description.context_bytes) {
        device_log::note(device_log::Kind::Context, device.card, 0, device.description.context_bytes as usize);
        SUCCESS
    } else {
        context.store(false, Ordering::Relaxed);
        OUT_OF_MEMORY
    }
}

/// Creates the current card's context, as the runtime does at the first call that needs one.
pub fn activate_current() -> Result<Device, u32> {
    let Some(device) = current() else { return Err(missing()) };
    bind_thread();
    match activate(device) {
        SUCCESS => Ok(device),
        status => Err(status),
    }
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
    CONTEXTS.get(device.card).is_some_and(|context| context.load(Ordering::Relaxed))
}

/// Destroys a card's primary context; what the program allocated in it stays charged until it is freed.
pub fn deactivate(device: Device) {
    if CONTEXTS.get(device.card).is_some_and(|context| context.swap(false, Ordering::Relaxed)) {
        books::release(device.card, Kind::Context, device.description.context_bytes);
    }
}

/// In a forked child: no context of the parent's is its own.
pub fn forget_contexts() {
    for context in &CONTEXTS {
        context.store(false, Ordering::Relaxed);
    }
    device_log::forget();
}

/// The handle of a card's context.
pub fn context_handle(ordinal: usize) -> *mut c_void {
    CONTEXT_HANDLES.get(ordinal).map_or(std::ptr::null_mut(), |handle| std::ptr::from_ref(handle) as *mut c_void)
}

/// The ordinal of the card whose context a handle names.
pub fn ordinal_of(context: *mut c_void) -> Option<i32> {
    let offset = (context as usize).checked_sub(CONTEXT_HANDLES.as_ptr() as usize)?;
    let ordinal = offset / size_of::<u64>();
    (offset % size_of::<u64>() == 0 && ordinal < visible().len()).then_some(ordinal as i32)
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
pub fn push_context(ordinal: i32) -> u32 {
    let Some(device) = get(ordinal) else { return missing() };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_devices_are_chosen_as_cuda_chooses_them() {
        let card: &'static DeviceDescription = Box::leak(Box::new(DeviceDescription::default()));
        let all: Vec<Device> = (0..3).map(|index| Device { card: index, description: card }).collect();
        let cards = |list| select(&all, list).iter().map(|device| device.card).collect::<Vec<_>>();
        assert_eq!(cards("2,0"), [2, 0]);
        assert_eq!(cards("1,7,0"), [1], "entries after an unknown one do not count");
        assert_eq!(cards(""), [0_usize; 0]);
        assert_eq!(cards("-1"), [0_usize; 0]);
    }

    #[test]
    fn an_identity_prints_as_nvidia_smi_prints_it() {
        let uuid = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        assert_eq!(uuid_text(&uuid), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
