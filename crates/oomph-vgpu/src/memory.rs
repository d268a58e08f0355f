//! `cudaMalloc` and its kin, for the driver and the runtime alike.

use std::ffi::c_void;
use std::ptr;

use oomph_ledger::Kind;

use crate::device::{self, Device};
use crate::device_log::Kind as Logged;
use crate::gpu::gpu;
use crate::space::{Block, GRANULE, Place, SMALL, SMALL_ALIGNMENT};
use crate::status::CudaStatus;
use crate::{capture, changed_call, pool};

/// Allocates device memory on the current card. A size of 0 gives a null pointer.
pub fn allocate(size: usize, kind: Kind) -> Result<*mut c_void, CudaStatus> {
    let device = device::activate_current()?;
    capture::check_unsafe_call()?;
    let made = match changed_call::under_way().filter(|_| size > 0) {
        Some(call) => changed_call::allocate(device, size, call),
        None => allocate_on(device, device::current_ordinal(), size, kind),
    };
    let start = made.inspect_err(|status| note_refusal(*status, device.card, size))?;
    gpu().activity.allocated(start, size);
    Ok(start)
}

/// Allocates device memory on a card.
pub fn allocate_on(device: Device, ordinal: usize, size: usize, kind: Kind) -> Result<*mut c_void, CudaStatus> {
    if size == 0 {
        return Ok(ptr::null_mut());
    }
    let gpu = gpu();
    // Managed memory may exceed the card: its pages migrate. Only what fits is charged.
    let (start, span) = if size <= SMALL && kind == Kind::Malloc {
        let span = size.next_multiple_of(SMALL_ALIGNMENT);
        (small(device, span)?, span)
    } else {
        let span = size.checked_next_multiple_of(GRANULE).ok_or(CudaStatus::OUT_OF_MEMORY)?;
        if kind != Kind::Managed && !gpu.charge(device.card, kind, span as u64) {
            gpu.log_refusal(device.card, span);
            return Err(CudaStatus::OUT_OF_MEMORY);
        }
        match gpu.take_addresses(span) {
            Some(start) => (start, span),
            None => {
                if kind != Kind::Managed {
                    gpu.release(device.card, kind, span as u64);
                }
                return Err(CudaStatus::OUT_OF_MEMORY);
            }
        }
    };
    let block = Block { start, size, span, place: Place::Device(kind), card: device.card, ordinal, id: 0 };
    gpu.space.lock().insert(block);
    match kind {
        // Pages of managed memory are charged to nobody.
        Kind::Managed => {}
        _ if span.is_multiple_of(GRANULE) => gpu.log.note(Logged::Malloc, device.card, start, size),
        _ => gpu.log.note(Logged::Place, device.card, start, size),
    }
    Ok(start as *mut c_void)
}

/// Leaves word of a request of `size` bytes, as the program asked for them, if `status` says that the card refused it.
/// Called without a lock held.
pub fn note_refusal(status: CudaStatus, card: usize, size: usize) {
    if status == CudaStatus::OUT_OF_MEMORY {
        gpu().request_refused(card, size);
    }
}

/// Takes a piece of a shared granule, a new one if none has room.
fn small(device: Device, span: usize) -> Result<usize, CudaStatus> {
    let gpu = gpu();
    let Some(slabs) = gpu.slabs.get(device.card) else { return Err(CudaStatus::INVALID_VALUE) };
    let mut slabs = slabs.lock();
    if let Some(start) = slabs.take(span) {
        return Ok(start);
    }
    if !gpu.charge(device.card, Kind::Malloc, GRANULE as u64) {
        gpu.log_refusal(device.card, GRANULE);
        return Err(CudaStatus::OUT_OF_MEMORY);
    }
    let Some(start) = gpu.take_addresses(GRANULE) else {
        gpu.release(device.card, Kind::Malloc, GRANULE as u64);
        return Err(CudaStatus::OUT_OF_MEMORY);
    };
    gpu.log.note(Logged::Take, device.card, start, GRANULE);
    slabs.give(start, GRANULE);
    slabs.take(span).ok_or(CudaStatus::OUT_OF_MEMORY)
}

/// Frees what [`allocate`], a pool or managed allocation handed out. Null is allowed.
pub fn free(pointer: *mut c_void) -> Result<(), CudaStatus> {
    if pointer.is_null() {
        return Ok(());
    }
    let gpu = gpu();
    let block = {
        let mut space = gpu.space.lock();
        match space.find(pointer as usize) {
            // A variable of a module is not the program's to free.
            Some(Block { place: Place::Device(Kind::Context), .. }) => return Err(CudaStatus::INVALID_VALUE),
            Some(block) if block.start == pointer as usize && matches!(block.place, Place::Device(_)) => {
                space.remove(block.start);
                block
            }
            Some(Block { start, place: Place::Pool(_), .. }) if start == pointer as usize => {
                drop(space);
                return pool::free(pointer);
            }
            _ => return Err(CudaStatus::INVALID_VALUE),
        }
    };
    let Place::Device(kind) = block.place else { return Err(CudaStatus::INVALID_VALUE) };
    gpu.activity.freed(pointer);
    if let Some((card, bytes)) = gpu.changed.freed(block.start) {
        gpu.release(card, Kind::Malloc, bytes);
        gpu.space.lock().give(block.start, block.span);
        return Ok(());
    }
    if block.span % GRANULE != 0 {
        free_small(block);
        return Ok(());
    }
    if kind != Kind::Managed {
        gpu.log.note(Logged::Free, block.card, block.start, block.size);
    }
    gpu.space.lock().give(block.start, block.span);
    if kind != Kind::Managed {
        gpu.release(block.card, kind, block.span as u64);
    }
    Ok(())
}

/// Gives a piece of a granule back, and the granule to the card once all of it is free.
fn free_small(block: Block) {
    let gpu = gpu();
    let Some(slabs) = gpu.slabs.get(block.card) else { return };
    let mut slabs = slabs.lock();
    gpu.log.note(Logged::Unplace, block.card, block.start, block.size);
    let (start, size) = slabs.give(block.start, block.span);
    if size == GRANULE {
        slabs.remove(start, size);
        gpu.log.note(Logged::Give, block.card, start, size);
        gpu.space.lock().give(start, size);
        gpu.release(block.card, Kind::Malloc, size as u64);
    }
}

/// Allocates page-locked host memory.
pub fn allocate_host(size: usize) -> Result<*mut c_void, CudaStatus> {
    let device = device::activate_current()?;
    if size == 0 {
        return Ok(ptr::null_mut());
    }
    let span = size.checked_next_multiple_of(4096).ok_or(CudaStatus::OUT_OF_MEMORY)?;
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that exists.
    let at = unsafe {
        libc::mmap(
            ptr::null_mut(),
            span,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(CudaStatus::OUT_OF_MEMORY);
    }
    let block = Block {
        start: at as usize,
        size,
        span,
        place: Place::Host,
        card: device.card,
        ordinal: device::current_ordinal(),
        id: 0,
    };
    gpu().space.lock().insert(block);
    Ok(at)
}

/// Frees page-locked host memory.
pub fn free_host(pointer: *mut c_void) -> Result<(), CudaStatus> {
    if pointer.is_null() {
        return Ok(());
    }
    let mut space = gpu().space.lock();
    match space.find(pointer as usize) {
        Some(block) if block.start == pointer as usize && block.place == Place::Host => {
            space.remove(block.start);
            // SAFETY: the mapping is the one that `allocate_host` made for this block, which nobody may use any more.
            unsafe { libc::munmap(pointer, block.span) };
            Ok(())
        }
        _ => Err(CudaStatus::INVALID_VALUE),
    }
}

/// Device memory of less than a granule that is part of what a context takes: it is charged to nobody, and the program
/// cannot free it. It begins as zeros.
pub fn allocate_within_context(size: usize) -> Result<*mut c_void, CudaStatus> {
    let device = device::activate_current()?;
    let span = size.max(1).checked_next_multiple_of(SMALL_ALIGNMENT).ok_or(CudaStatus::OUT_OF_MEMORY)?;
    let mut free = gpu().module_slabs.lock();
    let start = match free.take(span) {
        Some(start) => start,
        None => {
            free.give(gpu().take_addresses(GRANULE).ok_or(CudaStatus::OUT_OF_MEMORY)?, GRANULE);
            free.take(span).ok_or(CudaStatus::OUT_OF_MEMORY)?
        }
    };
    // SAFETY: the range is this module's alone, and address space is readable and writable memory.
    unsafe { ptr::write_bytes(start as *mut u8, 0, span) };
    let (card, ordinal) = (device.card, device::current_ordinal());
    gpu().space.lock().insert(Block { start, size, span, place: Place::Device(Kind::Context), card, ordinal, id: 0 });
    Ok(start as *mut c_void)
}

/// Gives back what [`allocate_within_context`] handed out.
pub fn free_within_context(pointer: *mut c_void) {
    let mut space = gpu().space.lock();
    let found = space.find(pointer as usize).filter(|block| block.start == pointer as usize);
    if let Some(block) = found.filter(|block| block.place == Place::Device(Kind::Context)) {
        space.remove(block.start);
        drop(space);
        gpu().module_slabs.lock().give(block.start, block.span);
    }
}

/// Remembers the program's own memory as page-locked.
pub fn register_host(pointer: *mut c_void, size: usize) -> Result<(), CudaStatus> {
    let device = device::activate_current()?;
    if pointer.is_null() || size == 0 {
        return Err(CudaStatus::INVALID_VALUE);
    }
    let block = Block {
        start: pointer as usize,
        size,
        span: size,
        place: Place::Registered,
        card: device.card,
        ordinal: device::current_ordinal(),
        id: 0,
    };
    gpu().space.lock().insert(block);
    Ok(())
}

/// Forgets memory that was registered.
pub fn unregister_host(pointer: *mut c_void) -> Result<(), CudaStatus> {
    let mut space = gpu().space.lock();
    match space.find(pointer as usize) {
        Some(block) if block.start == pointer as usize && block.place == Place::Registered => {
            space.remove(block.start);
            Ok(())
        }
        _ => Err(CudaStatus::HOST_MEMORY_NOT_REGISTERED),
    }
}

/// The block that a pointer lies in, whatever kind it is.
pub fn find(pointer: *const c_void) -> Option<Block> {
    gpu().space.lock().find(pointer as usize)
}

/// Free and total bytes of the current card.
pub fn info() -> Result<(usize, usize), CudaStatus> {
    let device = device::activate_current()?;
    gpu().forget_dead();
    Ok((gpu().free_bytes(device.card) as usize, device.capacity_bytes() as usize))
}
