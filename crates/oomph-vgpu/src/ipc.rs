//! Device memory and events that processes share (CUDA IPC): vLLM's reductions between cards, tensors in the queues of
//! `torch.multiprocessing`.
//!
//! What another process allocated costs nothing more where it is opened, so that an opened block is address space of this
//! process that nobody is charged for. Its contents stay with the process that wrote them: who opens it sees zeros.

use std::ffi::c_void;
use std::process;

use oomph_ledger::Kind;

use crate::abi::Bytes64;
use crate::device;
use crate::gpu::gpu;
use crate::space::{Block, GRANULE, Place};
use crate::status::CudaStatus;

/// The first number of every handle, so that a made-up one is refused.
const MEMORY: u64 = 0x6f6f_6d70_6869_7063;
const EVENT: u64 = 0x6f6f_6d70_6865_7674;

/// What a handle says: its kind, the process that made it, and the size in bytes of the block that it stands for.
struct Handle {
    kind: u64,
    process: u64,
    size: u64,
}

impl Handle {
    fn of_this_process(kind: u64, size: usize) -> Bytes64 {
        Bytes64([kind, u64::from(process::id()), size as u64, 0, 0, 0, 0, 0])
    }

    fn read(Bytes64([kind, process, size, ..]): Bytes64) -> Self {
        Self { kind, process, size }
    }
}

/// The handle of the block that a pointer lies in. As with CUDA, memory of pools and mapped memory has none.
pub fn export(pointer: *const c_void) -> Result<Bytes64, CudaStatus> {
    let block = gpu().space.lock().find(pointer as usize).ok_or(CudaStatus::INVALID_VALUE)?;
    if block.place != Place::Device(Kind::Malloc) {
        return Err(CudaStatus::INVALID_VALUE);
    }
    gpu().warn(
        "GPU memory was shared between processes (CUDA IPC): it is counted once, and what one process writes there the \
         others read as zeros",
    );
    Ok(Handle::of_this_process(MEMORY, block.size))
}

/// Addresses for another process's block, on the current card.
pub fn open(handle: Bytes64) -> Result<*mut c_void, CudaStatus> {
    let handle = Handle::read(handle);
    if handle.kind != MEMORY || handle.size == 0 {
        return Err(CudaStatus::INVALID_VALUE);
    }
    // CUDA does not open what the process itself shares.
    if handle.process == u64::from(process::id()) {
        return Err(CudaStatus::INVALID_CONTEXT);
    }
    let device = device::activate_current()?;
    let size = usize::try_from(handle.size).map_err(|_| CudaStatus::INVALID_VALUE)?;
    let span = size.checked_next_multiple_of(GRANULE).ok_or(CudaStatus::INVALID_VALUE)?;
    let start = gpu().take_addresses(span).ok_or(CudaStatus::OUT_OF_MEMORY)?;
    let ordinal = device::current_ordinal();
    gpu().space.lock().insert(Block { start, size, span, place: Place::Shared, card: device.card, ordinal, id: 0 });
    Ok(start as *mut c_void)
}

/// Lets go of what [`open`] gave.
pub fn close(pointer: *const c_void) -> Result<(), CudaStatus> {
    let mut space = gpu().space.lock();
    match space.find(pointer as usize) {
        Some(block) if block.start == pointer as usize && block.place == Place::Shared => {
            space.remove(block.start);
            space.give(block.start, block.span);
            Ok(())
        }
        _ => Err(CudaStatus::INVALID_VALUE),
    }
}

/// The handle of an event.
pub fn export_event() -> Bytes64 {
    Handle::of_this_process(EVENT, 0)
}

/// Whether a handle is that of an event. One that is opened has nothing left to wait for, because nothing runs.
pub fn is_event(handle: Bytes64) -> bool {
    Handle::read(handle).kind == EVENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_handle_or_not_shared_is_refused() {
        assert_eq!(open(Bytes64([0; 8])).err(), Some(CudaStatus::INVALID_VALUE));
        assert_eq!(open(export_event()).err(), Some(CudaStatus::INVALID_VALUE));
        assert_eq!(export(std::ptr::null()).err(), Some(CudaStatus::INVALID_VALUE));
        assert_eq!(close(std::ptr::null()).err(), Some(CudaStatus::INVALID_VALUE));
        assert!(is_event(export_event()) && !is_event(Handle::of_this_process(MEMORY, 5)));
    }

    #[test]
    fn a_process_does_not_open_its_own_block() {
        assert_eq!(open(Handle::of_this_process(MEMORY, 5)).err(), Some(CudaStatus::INVALID_CONTEXT));
    }
}
