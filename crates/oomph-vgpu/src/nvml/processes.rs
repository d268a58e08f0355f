//! Which processes hold memory on a card. PyTorch names them in its out-of-memory message.

use std::ffi::{c_uint, c_void};

use crate::books;
use crate::cublas::versions::put;
use crate::nvml::{INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_FOUND, SUCCESS, of_handle};

/// Bytes of a process in the first interface (pid, memory) and in the later ones (and two instances of a sliced card).
const FIRST: usize = 16;
const LATER: usize = 24;
/// "No instance": the card is not sliced.
const NO_INSTANCE: u32 = u32::MAX;

/// One process as the structures hold it.
fn record(pid: u32, bytes: u64) -> [u8; LATER] {
    let mut record = [0; LATER];
    let fields = [(0, u64::from(pid)), (8, bytes), (16, u64::from(NO_INSTANCE) << 32 | u64::from(NO_INSTANCE))];
    for (offset, value) in fields {
        for (place, byte) in record.iter_mut().skip(offset).zip(value.to_le_bytes()) {
            *place = byte;
        }
    }
    record
}

/// Writes processes in NVML's two steps: with too little room it says how much is needed.
unsafe fn list(processes: &[(u32, u64)], count: *mut c_uint, to: *mut c_void, size: usize) -> u32 {
    if count.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: NVML's contract: `count` holds the number of structures that there is room for, and may be written.
    let room = unsafe { count.read_unaligned() } as usize;
    // SAFETY: as above.
    unsafe { put(count, processes.len() as c_uint) };
    if processes.is_empty() {
        return SUCCESS;
    }
    if processes.len() > room || to.is_null() {
        return INSUFFICIENT_SIZE;
    }
    for (index, (pid, bytes)) in processes.iter().enumerate() {
        let record = record(*pid, *bytes);
        // SAFETY: NVML's contract: room for `room` structures of `size` bytes, which is at most the record's.
        unsafe {
            std::ptr::copy_nonoverlapping(record.as_ptr(), to.cast::<u8>().add(index * size), size.min(record.len()));
        }
    }
    SUCCESS
}

unsafe fn compute(handle: *mut c_void, count: *mut c_uint, to: *mut c_void, size: usize) -> u32 {
    let Some(card) = of_handle(handle) else { return INVALID_ARGUMENT };
    // SAFETY: the caller's promise is that of `list`.
    unsafe { list(&books::holders(card.index), count, to, size) }
}

/// Nobody draws on a virtual card, and no server shares it.
unsafe fn none(handle: *mut c_void, count: *mut c_uint) -> u32 {
    if of_handle(handle).is_none() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller's promise is that of `list`; nothing is written but the count.
    unsafe { list(&[], count, std::ptr::null_mut(), LATER) }
}

/// Defines the versions of one function.
macro_rules! lists {
    ($($name:ident = $which:ident($($size:ident)?);)*) => {$(
        /// Lists processes.
        pub unsafe fn $name(handle: *mut c_void, count: *mut c_uint, _to: *mut c_void) -> u32 {
            // SAFETY: NVML's contract is that of `list`.
            unsafe { $which(handle, count $(, _to, $size)?) }
        }
    )*};
}
lists! {
    nvmlDeviceGetComputeRunningProcesses = compute(FIRST);
    nvmlDeviceGetComputeRunningProcesses_v2 = compute(LATER);
    nvmlDeviceGetComputeRunningProcesses_v3 = compute(LATER);
    nvmlDeviceGetGraphicsRunningProcesses = none();
    nvmlDeviceGetGraphicsRunningProcesses_v2 = none();
    nvmlDeviceGetGraphicsRunningProcesses_v3 = none();
    nvmlDeviceGetMPSComputeRunningProcesses = none();
    nvmlDeviceGetMPSComputeRunningProcesses_v2 = none();
    nvmlDeviceGetMPSComputeRunningProcesses_v3 = none();
}

/// Samples of what each process used the card for: there are none.
pub unsafe fn nvmlDeviceGetProcessUtilization(
    handle: *mut c_void,
    _samples: *mut c_void,
    count: *mut c_uint,
    _since: u64,
) -> u32 {
    if of_handle(handle).is_none() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: NVML's contract: an out-parameter that may be written.
    unsafe { put(count, 0) };
    NOT_FOUND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_listed_in_two_steps() {
        let processes = [(7, 1 << 30), (9, 2 << 30)];
        let mut count = 0;
        let mut room = [0_u8; 2 * LATER];
        // SAFETY: the counts say how much room there is.
        unsafe {
            assert_eq!(list(&processes, &raw mut count, std::ptr::null_mut(), LATER), INSUFFICIENT_SIZE);
            assert_eq!(count, 2);
            assert_eq!(list(&processes, &raw mut count, room.as_mut_ptr().cast(), LATER), SUCCESS);
            assert_eq!(room[24..28], 9_u32.to_ne_bytes());
            assert_eq!(room[32..40], (2_u64 << 30).to_ne_bytes());
            assert_eq!(room[40..48], [0xff; 8], "no instances");
            assert_eq!(list(&processes, &raw mut count, room.as_mut_ptr().cast(), FIRST), SUCCESS);
            assert_eq!(room[16..20], 9_u32.to_ne_bytes());
            count = 1;
            assert_eq!(list(&processes, &raw mut count, room.as_mut_ptr().cast(), FIRST), INSUFFICIENT_SIZE);
            assert_eq!(list(&[], &raw mut count, std::ptr::null_mut(), FIRST), SUCCESS);
            assert_eq!(count, 0);
        }
    }
}
