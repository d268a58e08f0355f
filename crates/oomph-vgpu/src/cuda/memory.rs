//! Pools, memory that other processes share, and what is known of a pointer.

use std::ffi::{c_int, c_uint, c_void};

use oomph_ledger::Kind;

use crate::abi::Bytes64;
use crate::boundary::{In, Items, Out, Untyped};
use crate::cuda::{Opaque, hand_out, hand_out_or, ordinal_of_card};
use crate::device::{self, Device};
use crate::space::{Block, Place};
use crate::status::CudaStatus;
use crate::{ipc, memory, pool, stream, virtual_memory};

/// Rows of a pitched allocation begin at multiples of this, in bytes.
const ROW_ALIGNMENT: usize = 512;

/// How far the rows of a pitched allocation are apart, in bytes; 0 where a row does not fit into the address space.
pub fn pitch(width: usize) -> usize {
    width.checked_next_multiple_of(ROW_ALIGNMENT).unwrap_or(0)
}

/// Writes the free and total bytes of the current card.
pub fn info(free: Out<'_, usize>, total: Out<'_, usize>) -> Result<(), CudaStatus> {
    let (free_bytes, total_bytes) = memory::info()?;
    free.set(free_bytes);
    total.set(total_bytes);
    Ok(())
}

/// The ordinal of the card that a block is on, for mapped memory that of the card on which `address` is.
pub fn ordinal_of(block: &Block, address: usize) -> c_int {
    let mapped = match block.place {
        Place::Reserved => virtual_memory::card_of(address).and_then(ordinal_of_card),
        _ => None,
    };
    mapped.unwrap_or(block.ordinal as c_int)
}

/// Writes the default pool of a card.
pub fn default_pool(to: Out<'_, Opaque>, ordinal: c_int) -> Result<(), CudaStatus> {
    let device = device::get(ordinal).ok_or_else(device::missing)?;
    to.set(pool::default_of(device, ordinal as usize));
    Ok(())
}

/// The beginning of `CUmemPoolProps`, of `cudaMemPoolProps` and of `CUmemAllocationProp`: type, handle types, kind of
/// location, location.
pub type AllocationProperties = [c_int; 4];

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: c_int = 1;

/// The card that properties name, with its ordinal; `None` for host memory.
pub fn located(properties: In<'_, AllocationProperties>) -> Result<Option<(Device, usize)>, CudaStatus> {
    let [_, _, kind, location] = properties.get().ok_or(CudaStatus::INVALID_VALUE)?;
    if kind != ON_DEVICE {
        return Ok(None);
    }
    let device = device::get(location).ok_or_else(device::missing)?;
    Ok(Some((device, location as usize)))
}

/// Makes a pool on the card that properties name.
pub fn create_pool(to: Out<'_, Opaque>, properties: In<'_, AllocationProperties>) -> Result<(), CudaStatus> {
    let made = located(properties).and_then(|place| {
        let (device, ordinal) = place.ok_or(CudaStatus::NOT_SUPPORTED)?;
        Ok(pool::create(device, ordinal))
    });
    hand_out(to, made)
}

/// Whether an attribute of a pool is a switch of type int; the others are 64-bit sizes.
fn is_switch(attribute: c_int) -> bool {
    (1..=3).contains(&attribute)
}

/// Writes an attribute of a pool.
pub fn pool_attribute(pool: Opaque, attribute: c_int, value: Untyped<'_>) -> Result<(), CudaStatus> {
    let found = pool::attribute(pool, attribute).ok_or(CudaStatus::INVALID_VALUE)?;
    if is_switch(attribute) {
        value.set(found as c_int);
    } else {
        value.set(found);
    }
    Ok(())
}

/// The value that a program gives an attribute of a pool.
pub fn given_pool_attribute(attribute: c_int, value: Untyped<'_>) -> Result<u64, CudaStatus> {
    let given = if is_switch(attribute) { value.get::<c_uint>().map(u64::from) } else { value.get() };
    given.ok_or(CudaStatus::INVALID_VALUE)
}

/// Writes one attribute of a pointer; pointers that CUDA does not know are an error, on which Triton relies.
pub fn pointer_attribute(value: Untyped<'_>, attribute: c_int, pointer: *mut c_void) -> Result<(), CudaStatus> {
    let block = memory::find(pointer).ok_or(CudaStatus::INVALID_VALUE)?;
    write_attribute(value.given().ok_or(CudaStatus::INVALID_VALUE)?, attribute, pointer, block)
}

fn write_attribute(value: Untyped<'_>, attribute: c_int, pointer: *mut c_void, block: Block) -> Result<(), CudaStatus> {
    const MEMORY_ON_HOST: c_uint = 1;
    const MEMORY_ON_DEVICE: c_uint = 2;
    let on_host = matches!(block.place, Place::Host | Place::Registered);
    let managed = block.place == Place::Device(Kind::Managed);
    let ordinal = ordinal_of(&block, pointer as usize);
    match attribute {
        // CONTEXT
        1 => value.set(device::context_handle(ordinal as usize)),
        // MEMORY_TYPE
        2 => value.set(if on_host { MEMORY_ON_HOST } else { MEMORY_ON_DEVICE }),
        // DEVICE_POINTER
        3 => value.set(pointer),
        // HOST_POINTER
        4 if on_host || managed => value.set(pointer),
        4 => return Err(CudaStatus::INVALID_VALUE),
        // BUFFER_ID
        7 => value.set(block.id),
        // IS_MANAGED
        8 => value.set(managed),
        // DEVICE_ORDINAL
        9 => value.set(ordinal),
        // RANGE_START_ADDR, RANGE_SIZE
        11 => value.set(block.start),
        12 => value.set(block.size),
        // MAPPED
        13 => value.set(true),
        // MEMPOOL_HANDLE
        17 => value.set(if let Place::Pool(pool) = block.place { pool } else { 0 }),
        // What no pointer here has: tokens, legacy IPC, allowed handle types, access flags.
        _ => value.set(0_u32),
    }
    Ok(())
}

/// Writes several attributes of a pointer, each into a place of its own. One that the pointer lacks keeps its value,
/// and the call succeeds.
pub fn pointer_attributes(
    attributes: Items<'_, c_int>,
    values: Items<'_, Untyped<'_>>,
    pointer: *mut c_void,
) -> Result<(), CudaStatus> {
    if attributes.is_null() || values.is_null() {
        return Err(CudaStatus::INVALID_VALUE);
    }
    let block = memory::find(pointer);
    for (attribute, value) in attributes.iter().zip(values.iter()) {
        let Some(value) = value.given() else { continue };
        match (block, attribute) {
            (Some(block), _) => {
                let _ = write_attribute(value, attribute, pointer, block);
            }
            // An unknown pointer has no context, no memory type and no addresses; its ordinal is -2.
            (None, 9) => value.set(-2_i32),
            (None, 2 | 8 | 13) => value.set(0_u8),
            (None, _) => value.set(0_usize),
        }
    }
    Ok(())
}

/// Writes the handle by which another process opens the block that a pointer lies in.
pub fn share(handle: Out<'_, Bytes64>, pointer: *const c_void) -> Result<(), CudaStatus> {
    hand_out_or(handle, ipc::export(pointer), Bytes64([0; 8]))
}

/// Makes an event of another process's handle.
pub fn open_event(event: Out<'_, Opaque>, handle: Bytes64) -> Result<(), CudaStatus> {
    if !ipc::is_event(handle) {
        return Err(CudaStatus::INVALID_VALUE);
    }
    hand_out(event, stream::create_event(0))
}
