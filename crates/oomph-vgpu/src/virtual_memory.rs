//! Reserved addresses and the physical memory mapped to them: `cuMemAddressReserve`, `cuMemCreate`, `cuMemMap`.
//!
//! A mapping needs no work here, because all addresses are usable from the start. What counts is that physical memory
//! is charged while its handle lives or is mapped, and that unmapped pages are let go.

use oomph_ledger::Kind;

use crate::device;
use crate::device::Device;
use crate::device_log::Kind as Logged;
use crate::gpu::{Mappings, Physical, gpu};
use crate::space::{self, Block, GRANULE, Place};
use crate::status::CudaStatus;

/// Reserves a range of addresses. An alignment of 0 is the granularity.
pub fn reserve(size: usize, alignment: usize) -> Result<usize, CudaStatus> {
    if size == 0 || !size.is_multiple_of(GRANULE) {
        return Err(CudaStatus::INVALID_VALUE);
    }
    let alignment = alignment.max(GRANULE);
    if !alignment.is_power_of_two() {
        return Err(CudaStatus::INVALID_VALUE);
    }
    let span = size.checked_add(alignment - GRANULE).ok_or(CudaStatus::OUT_OF_MEMORY)?;
    let ordinal = device::current_ordinal();
    let card = device::current().map_or(0, |device| device.card);
    let start = gpu().take_addresses(span).ok_or(CudaStatus::OUT_OF_MEMORY)?;
    let aligned = start.next_multiple_of(alignment);
    let mut space = gpu().space.lock();
    // What lies outside the aligned range can be used for something else.
    if aligned > start {
        space.give(start, aligned - start);
    }
    if start + span > aligned + size {
        space.give(aligned + size, start + span - aligned - size);
    }
    space.insert(Block { start: aligned, size, span: size, place: Place::Reserved, card, ordinal, id: 0 });
    Ok(aligned)
}

/// Gives a reserved range back.
pub fn unreserve(start: usize) -> Result<(), CudaStatus> {
    let mut space = gpu().space.lock();
    match space.find(start) {
        Some(block) if block.start == start && block.place == Place::Reserved => {
            space.remove(start);
            space.give(start, block.span);
            Ok(())
        }
        _ => Err(CudaStatus::INVALID_VALUE),
    }
}

/// Creates physical memory on a card, or on the host where `device` is `None`.
pub fn create(device: Option<Device>, size: usize) -> Result<u64, CudaStatus> {
    if size == 0 || !size.is_multiple_of(GRANULE) {
        return Err(CudaStatus::INVALID_VALUE);
    }
    if let Some(device) = device
        && !gpu().charge(device.card, Kind::Mapped, size as u64)
    {
        gpu().log_refusal(device.card, size);
        gpu().request_refused(device.card, size);
        return Err(CudaStatus::OUT_OF_MEMORY);
    }
    let mut table = gpu().mappings.lock();
    let handle = table.next;
    table.next += 1;
    table.physical.insert(handle, Physical { size, card: device.map(|device| device.card), references: 1 });
    Ok(handle)
}

/// Drops one reference and gives the memory back with the last.
fn drop_reference(table: &mut Mappings, handle: u64) -> Result<(), CudaStatus> {
    let Some(physical) = table.physical.get_mut(&handle) else { return Err(CudaStatus::INVALID_VALUE) };
    physical.references -= 1;
    if physical.references == 0
        && let Some(physical) = table.physical.remove(&handle)
        && let Some(card) = physical.card
    {
        gpu().release(card, Kind::Mapped, physical.size as u64);
    }
    Ok(())
}

/// Releases a handle; mapped memory lives on until it is unmapped.
pub fn release(handle: u64) -> Result<(), CudaStatus> {
    drop_reference(&mut gpu().mappings.lock(), handle)
}

/// Counts one more handle to the memory behind a mapped address.
pub fn retain(address: usize) -> Result<u64, CudaStatus> {
    let mut table = gpu().mappings.lock();
    let handle = table
        .mapped
        .range(..=address)
        .next_back()
        .filter(|(start, (size, _))| address < **start + *size)
        .map(|(_, (_, handle))| *handle)
        .ok_or(CudaStatus::INVALID_VALUE)?;
    if let Some(physical) = table.physical.get_mut(&handle) {
        physical.references += 1;
    }
    Ok(handle)
}

/// Maps physical memory to reserved addresses.
pub fn map(start: usize, size: usize, handle: u64) -> Result<(), CudaStatus> {
    let inside = gpu()
        .space
        .lock()
        .find(start)
        .is_some_and(|block| block.place == Place::Reserved && start + size <= block.start + block.size);
    let mut table = gpu().mappings.lock();
    let overlaps = table.mapped.range(..start + size).next_back().is_some_and(|(at, (length, _))| at + length > start);
    match table.physical.get_mut(&handle) {
        Some(physical) if inside && !overlaps && size > 0 => {
            physical.references += 1;
            if let Some(card) = physical.card {
                gpu().log.note(Logged::Map, card, start, size);
            }
        }
        _ => return Err(CudaStatus::INVALID_VALUE),
    }
    table.mapped.insert(start, (size, handle));
    Ok(())
}

/// Unmaps every mapping that starts in a range.
pub fn unmap(start: usize, size: usize) -> Result<(), CudaStatus> {
    let mut table = gpu().mappings.lock();
    let found: Vec<(usize, usize, u64)> =
        table.mapped.range(start..start + size).map(|(at, (length, handle))| (*at, *length, *handle)).collect();
    if found.is_empty() {
        return Err(CudaStatus::INVALID_VALUE);
    }
    for (at, length, handle) in found {
        table.mapped.remove(&at);
        if let Some(card) = table.physical.get(&handle).and_then(|physical| physical.card) {
            gpu().log.note(Logged::Unmap, card, at, length);
        }
        let _ = drop_reference(&mut table, handle);
        space::forget(at, length);
    }
    Ok(())
}

/// The ledger index of the card on which a mapped address has its memory, if it is mapped.
pub fn card_of(address: usize) -> Option<usize> {
    let table = gpu().mappings.lock();
    let (start, (size, handle)) = table.mapped.range(..=address).next_back()?;
    if address >= start + size {
        return None;
    }
    table.physical.get(handle)?.card
}
