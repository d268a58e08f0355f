//! Stream-ordered pools: `cudaMallocAsync` and `cudaMemPool*`.
//!
//! A pool takes memory from the card in multiples of 32 MiB, to which it adds what is free at its end, and keeps up to its
//! release threshold of it when blocks are freed, until the next synchronisation or trim. Work on the virtual card is done the moment it is launched, so a freed block
//! is at once free to reuse on any stream.

use std::ffi::c_void;
use std::ptr;

use oomph_ledger::Kind;

use crate::changed_call;
use crate::device::{self, Device};
use crate::device_log::Kind as Logged;
use crate::gpu::{Pool, PoolCounters, gpu};
use crate::lock::MutexGuard;
use crate::space::{Block, FreeRanges, GRANULE, Place};
use crate::status::CudaStatus;

/// Alignment of a pool's blocks, in bytes.
const ALIGNMENT: usize = 512;
/// A pool takes multiples of this from the card, in bytes, as drivers do.
const GROWTH: usize = 32 << 20;

/// Attributes of a pool, by the numbers that both APIs give them: bytes it may keep when all is free, bytes held of the
/// card, the most of it, bytes in blocks, the most of it.
const RELEASE_THRESHOLD: i32 = 4;
const RESERVED: i32 = 5;
const RESERVED_HIGH: i32 = 6;
const USED: i32 = 7;
const USED_HIGH: i32 = 8;

fn pools() -> MutexGuard<'static, Vec<Pool>> {
    gpu().pools.lock()
}

/// Creates a pool on a card.
pub fn create(device: Device, ordinal: usize) -> *mut c_void {
    let handle = gpu().handles.fresh();
    pools().push(Pool {
        handle: handle as usize,
        card: device.card,
        ordinal,
        free: FreeRanges::EMPTY,
        ranges: Vec::new(),
        gave_back: false,
        counters: PoolCounters::default(),
    });
    handle
}

/// The default pool of a card.
pub fn default_of(device: Device, ordinal: usize) -> *mut c_void {
    let mut defaults = gpu().default_pools.lock();
    match defaults.get_mut(ordinal) {
        Some(handle) if *handle == 0 => {
            let made = create(device, ordinal);
            *handle = made as usize;
            made
        }
        Some(handle) => *handle as *mut c_void,
        None => ptr::null_mut(),
    }
}

/// Allocates from a pool; the current card's default one where `pool` is null.
pub fn allocate(pool: *mut c_void, size: usize) -> Result<*mut c_void, CudaStatus> {
    let device = device::activate_current()?;
    if size == 0 {
        return Ok(ptr::null_mut());
    }
    if let Some(call) = changed_call::under_way() {
        let start =
            changed_call::allocate(device, size, call).inspect_err(|_| gpu().request_refused(device.card, size))?;
        gpu().activity.allocated_from_pool(start, size);
        return Ok(start);
    }
    let pool = if pool.is_null() { default_of(device, device::current_ordinal()) } else { pool };
    let span = size.checked_next_multiple_of(ALIGNMENT).ok_or(CudaStatus::OUT_OF_MEMORY)?;
    let mut pools = pools();
    let Some(pool) = pools.iter_mut().find(|candidate| candidate.handle == pool as usize) else {
        return Err(CudaStatus::INVALID_VALUE);
    };
    let (card, ordinal, handle) = (pool.card, pool.ordinal, pool.handle);
    let taken = pool.free.take(span).map_or_else(|| pool.grow(span), Ok);
    let start = match taken {
        Ok(start) => start,
        Err(status) => {
            drop(pools);
            if status == CudaStatus::OUT_OF_MEMORY {
                gpu().request_refused(card, size);
            }
            return Err(status);
        }
    };
    pool.counters.used += span as u64;
    pool.counters.used_high = pool.counters.used_high.max(pool.counters.used);
    let gpu = gpu();
    gpu.log.note(Logged::Place, card, start, size);
    drop(pools);
    gpu.activity.allocated_from_pool(start as *const c_void, size);
    gpu.space.lock().insert(Block { start, size, span, place: Place::Pool(handle), card, ordinal, id: 0 });
    Ok(start as *mut c_void)
}

impl Pool {
    /// Takes more of the card and a block out of it.
    fn grow(&mut self, span: usize) -> Result<usize, CudaStatus> {
        let grown = match self.grow_in_place(span) {
            true => Ok(()),
            false => self.grow_elsewhere(span),
        };
        grown.and_then(|()| self.free.take(span).ok_or(CudaStatus::OUT_OF_MEMORY))
    }

    /// Takes more right after the newest range, so that what is free at its end is part of the block. Returns whether that
    /// was possible.
    fn grow_in_place(&mut self, span: usize) -> bool {
        let Some(end) = self.ranges.last().map(|(start, size)| start + size) else { return false };
        let tail = self.free.ending_at(end).map_or(0, |(_, size)| size);
        let Some(size) = span.saturating_sub(tail).checked_next_multiple_of(GROWTH) else { return false };
        let gpu = gpu();
        if !gpu.space.lock().take_at(end, size) {
            return false;
        }
        if !gpu.charge_if_free(self.card, Kind::Pool, size as u64) {
            gpu.space.lock().give(end, size);
            return false;
        }
        self.add(end, size, size);
        true
    }

    /// Takes more at other addresses. The whole granules that are free at the end of the newest range move there: a driver
    /// maps memory to the addresses where it is needed.
    fn grow_elsewhere(&mut self, span: usize) -> Result<(), CudaStatus> {
        let gpu = gpu();
        let missing = |pool: &Self, unit: usize| {
            let (_, moved) = pool.movable();
            span.saturating_sub(moved).checked_next_multiple_of(unit).ok_or(CudaStatus::OUT_OF_MEMORY)
        };
        let wanted = missing(self, GROWTH)?;
        // A card that is nearly full still gives what is needed, after the pool's own free ranges went back.
        let size = if gpu.charge_if_free(self.card, Kind::Pool, wanted as u64) {
            wanted
        } else {
            self.trim(0);
            let exact = missing(self, GRANULE)?;
            if !gpu.charge(self.card, Kind::Pool, exact as u64) {
                gpu.log_refusal(self.card, exact);
                return Err(CudaStatus::OUT_OF_MEMORY);
            }
            exact
        };
        let (from, moved) = self.movable();
        let Some(start) = moved.checked_add(size).and_then(|size| gpu.take_addresses(size)) else {
            gpu.release(self.card, Kind::Pool, size as u64);
            return Err(CudaStatus::OUT_OF_MEMORY);
        };
        if moved > 0 && self.free.take_exact(from, moved) {
            if let Some((start, size)) = self.ranges.pop()
                && size > moved
            {
                self.ranges.push((start, size - moved));
            }
            gpu.log.note(Logged::Give, self.card, from, moved);
            gpu.space.lock().give(from, moved);
        }
        self.add(start, moved + size, size);
        Ok(())
    }

    /// The whole granules that are free at the end of the newest range, as start and size.
    fn movable(&self) -> (usize, usize) {
        let Some(&(first, size)) = self.ranges.last() else { return (0, 0) };
        let end = first + size;
        let Some((free, _)) = self.free.ending_at(end) else { return (0, 0) };
        let start = free.next_multiple_of(GRANULE).max(first);
        (start, end.saturating_sub(start))
    }

    /// Enters a range of which so many bytes were taken of the card just now.
    fn add(&mut self, start: usize, size: usize, taken: usize) {
        let gpu = gpu();
        gpu.log.note(Logged::Take, self.card, start, size);
        gpu.activity.pool_grew(std::mem::take(&mut self.gave_back));
        self.ranges.push((start, size));
        self.counters.reserved += taken as u64;
        self.counters.reserved_high = self.counters.reserved_high.max(self.counters.reserved);
        self.free.give(start, size);
    }

    /// Gives back ranges that are wholly free, until no more than `keep` bytes are held.
    fn trim(&mut self, keep: u64) {
        let gpu = gpu();
        let mut kept = Vec::new();
        for (start, size) in std::mem::take(&mut self.ranges) {
            if self.counters.reserved > keep && self.free.take_exact(start, size) {
                gpu.log.note(Logged::Give, self.card, start, size);
                gpu.space.lock().give(start, size);
                gpu.release(self.card, Kind::Pool, size as u64);
                self.counters.reserved -= size as u64;
            } else {
                kept.push((start, size));
            }
        }
        self.ranges = kept;
    }
}

/// Frees a block of a pool.
pub fn free(pointer: *mut c_void) -> Result<(), CudaStatus> {
    if pointer.is_null() {
        return Ok(());
    }
    let gpu = gpu();
    let removed = gpu.space.lock().remove(pointer as usize);
    let Some(Block { start, size, span, card, place: Place::Pool(handle), .. }) = removed else {
        return Err(CudaStatus::INVALID_VALUE);
    };
    gpu.activity.freed(pointer);
    let mut pools = pools();
    gpu.log.note(Logged::Unplace, card, start, size);
    if let Some(pool) = pools.iter_mut().find(|pool| pool.handle == handle) {
        pool.free.give(start, span);
        pool.counters.used -= span as u64;
    }
    Ok(())
}

/// At a synchronisation, pools let go of what their threshold does not keep.
pub fn synchronized() {
    for pool in pools().iter_mut() {
        if pool.counters.reserved > pool.counters.threshold.max(pool.counters.used) {
            let before = pool.counters.reserved;
            pool.trim(pool.counters.threshold);
            pool.gave_back |= pool.counters.reserved < before;
        }
    }
}

/// Trims a pool to at least `keep` bytes.
pub fn trim(handle: *mut c_void, keep: usize) -> Result<(), CudaStatus> {
    match pools().iter_mut().find(|pool| pool.handle == handle as usize) {
        Some(pool) => {
            pool.trim(keep as u64);
            Ok(())
        }
        None => Err(CudaStatus::INVALID_VALUE),
    }
}

/// Destroys a pool; its blocks keep their memory until the process ends.
pub fn destroy(handle: *mut c_void) -> Result<(), CudaStatus> {
    let mut pools = pools();
    let Some(index) = pools.iter().position(|pool| pool.handle == handle as usize) else {
        return Err(CudaStatus::INVALID_VALUE);
    };
    let mut pool = pools.swap_remove(index);
    pool.trim(0);
    Ok(())
}

/// Reads an attribute as the 64-bit number that both APIs use for sizes; other attributes are switches.
pub fn attribute(handle: *mut c_void, attribute: i32) -> Option<u64> {
    let pools = pools();
    let counters = pools.iter().find(|pool| pool.handle == handle as usize)?.counters;
    Some(match attribute {
        RELEASE_THRESHOLD => counters.threshold,
        RESERVED => counters.reserved,
        RESERVED_HIGH => counters.reserved_high,
        USED => counters.used,
        USED_HIGH => counters.used_high,
        _ => 1,
    })
}

/// Sets the threshold, or resets a high-water mark.
pub fn set_attribute(handle: *mut c_void, attribute: i32, value: u64) -> Result<(), CudaStatus> {
    let mut pools = pools();
    let Some(pool) = pools.iter_mut().find(|pool| pool.handle == handle as usize) else {
        return Err(CudaStatus::INVALID_VALUE);
    };
    if attribute == RELEASE_THRESHOLD {
        pool.counters.threshold = value;
    } else if attribute == RESERVED_HIGH {
        pool.counters.reserved_high = pool.counters.reserved;
    } else if attribute == USED_HIGH {
        pool.counters.used_high = pool.counters.used;
    }
    Ok(())
}
