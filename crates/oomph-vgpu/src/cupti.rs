//! CUPTI: profiling that starts, records no activity of a card, and ends.
//!
//! Nothing runs on the card, so there are no activities: `cuptiActivityGetNextRecord` says that there are no more, and
//! no buffer is ever asked for. A profiler then shows what the host did.
#![allow(clippy::missing_safety_doc)]

use std::ffi::{c_char, c_int, c_void};

use crate::cublas::versions::put;
use crate::loader;

const SUCCESS: u32 = 0;
const MAX_LIMIT_REACHED: u32 = 12;

/// `CUPTI_API_VERSION` of the newest CUDA in the series in use: frameworks refuse one that is older than what they were
/// built for. The user's own library is not asked: without a card it calls itself without end.
fn version() -> u32 {
    match loader::runtime_major() {
        ..=11 => 18,
        12 => 28,
        _ => 130_500,
    }
}

/// The interface's version.
pub unsafe fn cuptiGetVersion(value: *mut u32) -> u32 {
    // SAFETY: CUPTI's contract: an out-parameter that may be written.
    unsafe { put(value, version()) };
    SUCCESS
}

/// The next activity of a buffer: none.
pub unsafe fn cuptiActivityGetNextRecord(_buffer: *mut c_void, _valid: usize, record: *mut *mut c_void) -> u32 {
    // SAFETY: CUPTI's contract: an out-parameter that may be written.
    unsafe { put(record, std::ptr::null_mut()) };
    MAX_LIMIT_REACHED
}

/// Nanoseconds since the system started, as CUPTI counts them.
pub unsafe fn cuptiGetTimestamp(value: *mut u64) -> u32 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the out-parameters are a local variable and, by CUPTI's contract, one that may be written.
    unsafe {
        libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now);
        put(value, (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64));
    }
    SUCCESS
}

/// The name of a result.
pub unsafe fn cuptiGetResultString(result: c_int, text: *mut *const c_char) -> u32 {
    let name = match result {
        0 => c"CUPTI_SUCCESS",
        1 => c"CUPTI_ERROR_INVALID_PARAMETER",
        12 => c"CUPTI_ERROR_MAX_LIMIT_REACHED",
        15 => c"CUPTI_ERROR_NOT_INITIALIZED",
        27 => c"CUPTI_ERROR_NOT_SUPPORTED",
        _ => c"CUPTI_ERROR_UNKNOWN",
    };
    // SAFETY: CUPTI's contract: an out-parameter that may be written.
    unsafe { put(text, name.as_ptr()) };
    SUCCESS
}
