//! CUPTI: profiling that starts, records no activity of a card, and ends.
//!
//! Nothing runs on the card, so there are no activities: `cuptiActivityGetNextRecord` says that there are no more, and
//! no buffer is ever asked for. A profiler then shows what the host did.
use std::ffi::{CStr, c_char, c_int, c_void};

use crate::boundary::{Out, statuses};
use crate::loader;

statuses! {
    /// `CUptiResult`
    pub CuptiStatus {
        /// There are no more activities.
        MAX_LIMIT_REACHED = 12,
    }
}

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
pub fn cuptiGetVersion(value: Out<'_, u32>) -> Result<(), CuptiStatus> {
    value.set(version());
    Ok(())
}

/// The next activity of a buffer: none.
pub fn cuptiActivityGetNextRecord(
    _buffer: *mut c_void,
    _valid: usize,
    record: Out<'_, *mut c_void>,
) -> Result<(), CuptiStatus> {
    record.set(std::ptr::null_mut());
    Err(CuptiStatus::MAX_LIMIT_REACHED)
}

/// Nanoseconds of the system's clock, as CUPTI counts them.
pub fn cuptiGetTimestamp(value: Out<'_, u64>) -> Result<(), CuptiStatus> {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the out-parameter is a local variable.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    value.set((now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64));
    Ok(())
}

/// The name of a result.
pub fn cuptiGetResultString(result: c_int, text: Out<'_, *const c_char>) -> Result<(), CuptiStatus> {
    let name: &CStr = match result {
        0 => c"CUPTI_SUCCESS",
        1 => c"CUPTI_ERROR_INVALID_PARAMETER",
        12 => c"CUPTI_ERROR_MAX_LIMIT_REACHED",
        15 => c"CUPTI_ERROR_NOT_INITIALIZED",
        27 => c"CUPTI_ERROR_NOT_SUPPORTED",
        _ => c"CUPTI_ERROR_UNKNOWN",
    };
    text.set(name.as_ptr());
    Ok(())
}
