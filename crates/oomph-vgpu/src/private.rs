//! A private view of the file system for a child of the fork server, which has no process of the launcher before it.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::fs;
use std::os::unix::ffi::OsStrExt;

use oomph_private::Plan;

/// Moves this process into the view whose plan lies in a file. Gives 0, or the number of the error.
///
/// # Safety
/// `plan` is a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oomph_enter_private_view(plan: *const c_char) -> c_int {
    if plan.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: the caller's promise.
    let path = OsStr::from_bytes(unsafe { CStr::from_ptr(plan) }.to_bytes());
    match fs::read(path).and_then(|bytes| oomph_private::enter(&Plan::from_bytes(&bytes)?)) {
        Ok(()) => 0,
        Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
    }
}
