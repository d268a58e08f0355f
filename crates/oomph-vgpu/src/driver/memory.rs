//! Allocation, pools, copies, fills and what is known of a pointer.

use std::ffi::{c_int, c_uint, c_void};

use oomph_ledger::Kind;

use crate::abi::Bytes64;
use crate::boundary::{Out, put};
use crate::driver::{DevicePointer, address, answer, hand_out, ordinal_of_card};
use crate::space::{Block, Place};
use crate::status::{INVALID_VALUE, SUCCESS};
use crate::{device, ipc, memory, pool, stream, transfer, virtual_memory};

fn hand_out_pointer(to: Out<'_, *mut c_void>, made: Result<*mut c_void, u32>) -> u32 {
    hand_out(to, made, std::ptr::null_mut())
}

pub fn cuMemAlloc_v2(to: Out<'_, *mut c_void>, size: usize) -> u32 {
    if size == 0 {
        return INVALID_VALUE;
    }
    hand_out_pointer(to, memory::allocate(size, Kind::Malloc))
}

pub fn cuMemAllocPitch_v2(
    to: Out<'_, *mut c_void>,
    pitch: Out<'_, usize>,
    width: usize,
    height: usize,
    _element: c_uint,
) -> u32 {
    let row = width.next_multiple_of(512);
    pitch.set(row);
    cuMemAlloc_v2(to, row.saturating_mul(height))
}

pub fn cuMemAllocManaged(to: Out<'_, *mut c_void>, size: usize, _flags: c_uint) -> u32 {
    hand_out_pointer(to, memory::allocate(size, Kind::Managed))
}

pub fn cuMemFree_v2(pointer: DevicePointer) -> u32 {
    memory::free(address(pointer))
}

pub fn cuMemAllocAsync(to: Out<'_, *mut c_void>, size: usize, _stream: *mut c_void) -> u32 {
    hand_out_pointer(to, pool::allocate(std::ptr::null_mut(), size))
}

pub fn cuMemAllocFromPoolAsync(to: Out<'_, *mut c_void>, size: usize, pool: *mut c_void, _stream: *mut c_void) -> u32 {
    hand_out_pointer(to, pool::allocate(pool, size))
}

pub fn cuMemFreeAsync(pointer: DevicePointer, _stream: *mut c_void) -> u32 {
    memory::free(address(pointer))
}

pub fn cuMemAllocHost_v2(to: Out<'_, *mut c_void>, size: usize) -> u32 {
    hand_out_pointer(to, memory::allocate_host(size))
}

pub fn cuMemHostAlloc(to: Out<'_, *mut c_void>, size: usize, _flags: c_uint) -> u32 {
    hand_out_pointer(to, memory::allocate_host(size))
}

pub fn cuMemFreeHost(pointer: *mut c_void) -> u32 {
    memory::free_host(pointer)
}

pub fn cuMemHostRegister_v2(pointer: *mut c_void, size: usize, _flags: c_uint) -> u32 {
    memory::register_host(pointer, size)
}

pub fn cuMemHostUnregister(pointer: *mut c_void) -> u32 {
    memory::unregister_host(pointer)
}

pub fn cuMemHostGetDevicePointer_v2(to: Out<'_, *mut c_void>, host: *mut c_void, _flags: c_uint) -> u32 {
    to.set(host);
    SUCCESS
}

pub fn cuMemHostGetFlags(flags: Out<'_, c_uint>, _host: *mut c_void) -> u32 {
    flags.set(0);
    SUCCESS
}

pub fn cuMemGetInfo_v2(free: Out<'_, usize>, total: Out<'_, usize>) -> u32 {
    answer(memory::info().map(|(free_bytes, total_bytes)| {
        free.set(free_bytes);
        total.set(total_bytes);
    }))
}

pub fn cuMemGetAddressRange_v2(base: Out<'_, u64>, size: Out<'_, usize>, pointer: DevicePointer) -> u32 {
    let Some(block) = memory::find(address(pointer)) else { return INVALID_VALUE };
    base.set(block.start as u64);
    size.set(block.size);
    SUCCESS
}

/// One attribute of a pointer; pointers that CUDA does not know are an error, on which Triton relies.
pub unsafe fn cuPointerGetAttribute(value: *mut c_void, attribute: c_int, pointer: DevicePointer) -> u32 {
    let Some(block) = memory::find(address(pointer)) else { return INVALID_VALUE };
    if value.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: CUDA's contract: a place as large as the attribute is; null was refused.
    unsafe { write_attribute(value, attribute, address(pointer), block) }
}

unsafe fn write_attribute(value: *mut c_void, attribute: c_int, pointer: *mut c_void, block: Block) -> u32 {
    const MEMORY_ON_HOST: c_uint = 1;
    const MEMORY_ON_DEVICE: c_uint = 2;
    let on_host = matches!(block.place, Place::Host | Place::Registered);
    let managed = block.place == Place::Device(Kind::Managed);
    let ordinal = match block.place {
        Place::Reserved => virtual_memory::card_of(pointer as usize).and_then(ordinal_of_card),
        _ => None,
    }
    .unwrap_or(block.ordinal as c_int);
    // SAFETY: the caller's promise: a place as large as the attribute is.
    unsafe {
        match attribute {
            // CONTEXT
            1 => put(value.cast(), device::context_handle(ordinal as usize)),
            // MEMORY_TYPE
            2 => put(value.cast(), if on_host { MEMORY_ON_HOST } else { MEMORY_ON_DEVICE }),
            // DEVICE_POINTER
            3 => put(value.cast(), pointer),
            // HOST_POINTER
            4 if on_host || managed => put(value.cast(), pointer),
            4 => return INVALID_VALUE,
            // BUFFER_ID
            7 => put(value.cast(), block.id),
            // IS_MANAGED
            8 => put(value.cast(), managed),
            // DEVICE_ORDINAL
            9 => put(value.cast(), ordinal),
            // RANGE_START_ADDR, RANGE_SIZE
            11 => put(value.cast(), block.start),
            12 => put(value.cast(), block.size),
            // MAPPED
            13 => put(value.cast(), true),
            // MEMPOOL_HANDLE
            17 => put(value.cast(), if let Place::Pool(pool) = block.place { pool } else { 0 }),
            // What no pointer here has: tokens, legacy IPC, allowed handle types, access flags.
            _ => put(value.cast(), 0_u32),
        }
    }
    SUCCESS
}

pub unsafe fn cuPointerGetAttributes(
    count: c_uint,
    attributes: *const c_int,
    values: *const *mut c_void,
    pointer: DevicePointer,
) -> u32 {
    if attributes.is_null() || values.is_null() {
        return INVALID_VALUE;
    }
    let pointer = address(pointer);
    let block = memory::find(pointer);
    for index in 0..count as usize {
        // SAFETY: CUDA's contract: `count` attributes and as many places.
        let (attribute, value) = unsafe { (attributes.add(index).read(), values.add(index).read()) };
        if value.is_null() {
            continue;
        }
        match block {
            Some(block) => {
                // Failures of single attributes leave their value, and are not the call's.
                // SAFETY: CUDA's contract: a place as large as the attribute is; null was left out.
                let _ = unsafe { write_attribute(value, attribute, pointer, block) };
            }
            // An unknown pointer has no context, no memory type and no addresses; its ordinal is -2.
            None => {
                // SAFETY: as above.
                unsafe {
                    match attribute {
                        9 => put(value.cast(), -2_i32),
                        2 | 8 | 13 => put(value.cast(), 0_u8),
                        _ => put(value.cast(), 0_usize),
                    }
                }
            }
        }
    }
    SUCCESS
}

pub fn cuPointerSetAttribute(_value: *const c_void, _attribute: c_int, _pointer: DevicePointer) -> u32 {
    SUCCESS
}

pub fn cuDeviceGetDefaultMemPool(to: Out<'_, *mut c_void>, ordinal: c_int) -> u32 {
    let Some(device) = device::get(ordinal) else { return device::missing() };
    to.set(pool::default_of(device, ordinal as usize));
    SUCCESS
}

pub fn cuDeviceGetMemPool(to: Out<'_, *mut c_void>, ordinal: c_int) -> u32 {
    cuDeviceGetDefaultMemPool(to, ordinal)
}

/// The beginning of `CUmemPoolProps` and of `CUmemAllocationProp`, which is the same: type, handle types, location.
#[repr(C)]
pub struct AllocationProperties {
    kind: c_int,
    handle_types: c_int,
    location_kind: c_int,
    location: c_int,
}

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: c_int = 1;

/// The card that properties name; `None` for host memory.
pub(super) unsafe fn located(properties: *const AllocationProperties) -> Result<Option<(device::Device, usize)>, u32> {
    if properties.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller's promise; null was refused.
    let properties = unsafe { properties.read() };
    if properties.location_kind != ON_DEVICE {
        return Ok(None);
    }
    let device = device::get(properties.location).ok_or_else(device::missing)?;
    Ok(Some((device, properties.location as usize)))
}

pub unsafe fn cuMemPoolCreate(to: Out<'_, *mut c_void>, properties: *const c_void) -> u32 {
    // SAFETY: CUDA's contract: properties that may be read, or null.
    let made = unsafe { located(properties.cast()) }.and_then(|place| {
        let (device, ordinal) = place.ok_or(crate::status::NOT_SUPPORTED)?;
        Ok(pool::create(device, ordinal))
    });
    hand_out_pointer(to, made)
}

pub fn cuMemPoolDestroy(pool: *mut c_void) -> u32 {
    pool::destroy(pool)
}

pub fn cuMemPoolTrimTo(pool: *mut c_void, keep: usize) -> u32 {
    pool::trim(pool, keep)
}

pub unsafe fn cuMemPoolGetAttribute(pool: *mut c_void, attribute: c_int, value: *mut c_void) -> u32 {
    let Some(found) = pool::attribute(pool, attribute) else { return INVALID_VALUE };
    // Attributes 1 to 3 are switches of type int, the others are 64-bit sizes.
    if (1..=3).contains(&attribute) {
        // SAFETY: CUDA's contract: a place as large as the attribute is.
        unsafe { put(value.cast::<c_int>(), found as c_int) };
    } else {
        // SAFETY: CUDA's contract: a place as large as the attribute is.
        unsafe { put(value.cast::<u64>(), found) };
    }
    SUCCESS
}

pub unsafe fn cuMemPoolSetAttribute(pool: *mut c_void, attribute: c_int, value: *mut c_void) -> u32 {
    if value.is_null() {
        return INVALID_VALUE;
    }
    let value = if (1..=3).contains(&attribute) {
        // SAFETY: CUDA's contract: a value as large as the attribute is; null was refused.
        u64::from(unsafe { value.cast::<c_uint>().read_unaligned() })
    } else {
        // SAFETY: CUDA's contract: a value as large as the attribute is; null was refused.
        unsafe { value.cast::<u64>().read_unaligned() }
    };
    pool::set_attribute(pool, attribute, value)
}

pub fn cuMemPoolSetAccess(_pool: *mut c_void, _map: *const c_void, _count: usize) -> u32 {
    SUCCESS
}

/// A copy between any two places, counted where a stream captures.
unsafe fn copy(to: *mut c_void, from: *const c_void, size: usize, stream: *mut c_void) -> u32 {
    crate::capture::launched(stream);
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { transfer::requested(to, from, size) };
    SUCCESS
}

/// A fill of `count` elements, counted where a stream captures.
unsafe fn fill(to: DevicePointer, value: u32, element: usize, count: usize, stream: *mut c_void) -> u32 {
    crate::capture::launched(stream);
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { transfer::fill(address(to), value, element, count) };
    SUCCESS
}

pub unsafe fn cuMemcpy(to: DevicePointer, from: DevicePointer, size: usize) -> u32 {
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { transfer::requested(address(to), address(from), size) };
    SUCCESS
}

pub unsafe fn cuMemcpyAsync(to: DevicePointer, from: DevicePointer, size: usize, stream: *mut c_void) -> u32 {
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { copy(address(to), address(from), size, stream) }
}

pub unsafe fn cuMemcpyHtoD_v2(to: DevicePointer, from: *const c_void, size: usize) -> u32 {
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { copy(address(to), from, size, std::ptr::null_mut()) }
}

pub unsafe fn cuMemcpyDtoH_v2(to: *mut c_void, from: DevicePointer, size: usize) -> u32 {
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { copy(to, address(from), size, std::ptr::null_mut()) }
}

pub unsafe fn cuMemcpyDtoD_v2(to: DevicePointer, from: DevicePointer, size: usize) -> u32 {
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { copy(address(to), address(from), size, std::ptr::null_mut()) }
}

pub unsafe fn cuMemcpyHtoDAsync_v2(to: DevicePointer, from: *const c_void, size: usize, stream: *mut c_void) -> u32 {
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { copy(address(to), from, size, stream) }
}

pub unsafe fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: DevicePointer, size: usize, stream: *mut c_void) -> u32 {
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { copy(to, address(from), size, stream) }
}

pub unsafe fn cuMemcpyDtoDAsync_v2(to: DevicePointer, from: DevicePointer, size: usize, stream: *mut c_void) -> u32 {
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { copy(address(to), address(from), size, stream) }
}

pub unsafe fn cuMemcpyPeer(
    to: DevicePointer,
    _to_context: *mut c_void,
    from: DevicePointer,
    _from_context: *mut c_void,
    size: usize,
) -> u32 {
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { copy(address(to), address(from), size, std::ptr::null_mut()) }
}

pub unsafe fn cuMemcpyPeerAsync(
    to: DevicePointer,
    _to_context: *mut c_void,
    from: DevicePointer,
    _from_context: *mut c_void,
    size: usize,
    stream: *mut c_void,
) -> u32 {
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { copy(address(to), address(from), size, stream) }
}

pub unsafe fn cuMemsetD8_v2(to: DevicePointer, value: c_uint, count: usize) -> u32 {
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { fill(to, value, 1, count, std::ptr::null_mut()) }
}

pub unsafe fn cuMemsetD16_v2(to: DevicePointer, value: c_uint, count: usize) -> u32 {
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { fill(to, value, 2, count, std::ptr::null_mut()) }
}

pub unsafe fn cuMemsetD32_v2(to: DevicePointer, value: c_uint, count: usize) -> u32 {
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { fill(to, value, 4, count, std::ptr::null_mut()) }
}

pub unsafe fn cuMemsetD8Async(to: DevicePointer, value: c_uint, count: usize, stream: *mut c_void) -> u32 {
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { fill(to, value, 1, count, stream) }
}

pub unsafe fn cuMemsetD16Async(to: DevicePointer, value: c_uint, count: usize, stream: *mut c_void) -> u32 {
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { fill(to, value, 2, count, stream) }
}

pub unsafe fn cuMemsetD32Async(to: DevicePointer, value: c_uint, count: usize, stream: *mut c_void) -> u32 {
    // SAFETY: CUDA's contract: the program's ranges are as large as the sizes say.
    unsafe { fill(to, value, 4, count, stream) }
}

pub fn cuIpcGetMemHandle(handle: Out<'_, Bytes64>, pointer: DevicePointer) -> u32 {
    hand_out(handle, ipc::export(pointer as *const c_void), Bytes64([0; 8]))
}

pub fn cuIpcOpenMemHandle_v2(to: Out<'_, DevicePointer>, handle: Bytes64, _flags: c_uint) -> u32 {
    hand_out(to, ipc::open(handle).map(|start| start as DevicePointer), 0)
}

pub fn cuIpcCloseMemHandle(pointer: DevicePointer) -> u32 {
    answer(ipc::close(pointer as *const c_void))
}

pub fn cuIpcGetEventHandle(handle: Out<'_, Bytes64>, _event: *mut c_void) -> u32 {
    handle.set(ipc::export_event());
    SUCCESS
}

pub fn cuIpcOpenEventHandle(event: Out<'_, *mut c_void>, handle: Bytes64) -> u32 {
    if !ipc::is_event(handle) {
        return INVALID_VALUE;
    }
    hand_out(event, stream::create_event(0), std::ptr::null_mut())
}
