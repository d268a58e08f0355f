//! Copies and fills. Small ones are real, because hosts read counts and flags back; large ones move nothing.

use std::ffi::c_void;
use std::ptr;

use crate::activity::Copied;
use crate::gpu::gpu;
use crate::space::{self, Place};

/// Copies and fills up to this size are real, in bytes.
const REAL: usize = 1 << 20;
const PAGE: usize = 4096;

/// Copies bytes between any two places because the program asked for it, which is counted.
///
/// # Safety
/// As for [`copy`].
pub unsafe fn requested(to: *mut c_void, from: *const c_void, size: usize) {
    // SAFETY: the caller's promise.
    unsafe { count(to, from, size, true) };
    // SAFETY: as above.
    unsafe { copy(to, from, size) };
}

/// Copies a rectangle because the program asked for it, which is counted.
///
/// # Safety
/// As for [`copy_2d`].
pub unsafe fn requested_2d(
    to: *mut c_void,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    height: usize,
) {
    // SAFETY: the caller's promise; the contents are not looked at, because they do not lie in one piece.
    unsafe { count(to, from, width.saturating_mul(height), false) };
    // SAFETY: as above.
    unsafe { copy_2d(to, to_pitch, from, from_pitch, width, height) };
}

/// Counts a copy before it is made.
///
/// # Safety
/// With `contents`, `from` must be readable for `size` bytes.
unsafe fn count(to: *mut c_void, from: *const c_void, size: usize, contents: bool) {
    let gpu = gpu();
    let copied = Copied { to: to as usize, from: from as usize, size, contents };
    // SAFETY: the caller's promise.
    if let Some(way) = unsafe { gpu.activity.copied(&gpu.space, copied) } {
        gpu.work.copied(way, size as u64);
    }
}

/// Copies bytes between any two places.
///
/// # Safety
/// Both ranges must be what CUDA requires of them: readable and writable for `size` bytes.
pub unsafe fn copy(to: *mut c_void, from: *const c_void, size: usize) {
    if size > 0 && size <= REAL && !to.is_null() && !from.is_null() {
        // SAFETY: the caller's promise; device addresses are readable and writable memory.
        unsafe { ptr::copy(from.cast::<u8>(), to.cast::<u8>(), size) };
        if size == 1 {
            // SAFETY: as above.
            unsafe { settle_flag(to.cast(), from as usize) };
        }
    }
}

/// Gives the host a flag in place of a byte that no kernel computed, where the program reads flags so (see [`crate::flags`]).
///
/// # Safety
/// `to` must be a byte that may be written.
unsafe fn settle_flag(to: *mut u8, from: usize) {
    let gpu = gpu();
    if !gpu.flags.is_wanted() {
        return;
    }
    let space = gpu.space.lock();
    let on_card =
        |address| space.find(address).is_some_and(|block| !matches!(block.place, Place::Host | Place::Registered));
    let (of_card, to_card) = (on_card(from), on_card(to as usize));
    drop(space);
    if to_card && !of_card {
        gpu.flags.written(to as usize);
    } else if of_card
        && !to_card
        && let Some(value) = gpu.flags.value(from)
    {
        // SAFETY: the caller's promise.
        unsafe { *to = u8::from(value) };
    }
}

/// Copies a rectangle of `width` bytes by `height` rows.
///
/// # Safety
/// As for [`copy`], row by row.
pub unsafe fn copy_2d(
    to: *mut c_void,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    height: usize,
) {
    if width.saturating_mul(height) > REAL || to.is_null() || from.is_null() {
        return;
    }
    for row in 0..height {
        // SAFETY: the caller's promise.
        unsafe {
            copy(to.cast::<u8>().add(row * to_pitch).cast(), from.cast::<u8>().add(row * from_pitch).cast(), width)
        };
    }
}

/// Fills `count` elements of 1, 2 or 4 bytes with the low bytes of `value`.
///
/// # Safety
/// The range must be writable, as CUDA requires.
pub unsafe fn fill(to: *mut c_void, value: u32, element: usize, count: usize) {
    let size = count.saturating_mul(element);
    if to.is_null() || size == 0 {
        return;
    }
    if size > REAL {
        if value == 0 {
            zero_pages(to as usize, size);
        }
        return;
    }
    match element {
        // SAFETY: the caller's promise, for all arms.
        1 => unsafe { ptr::write_bytes(to.cast::<u8>(), value as u8, count) },
        // SAFETY: as above.
        2 => (0..count).for_each(|index| unsafe { to.cast::<u16>().add(index).write_unaligned(value as u16) }),
        // SAFETY: as above.
        _ => (0..count).for_each(|index| unsafe { to.cast::<u32>().add(index).write_unaligned(value) }),
    }
}

/// Zeroes a large range by letting go of its whole pages, which costs no memory. Its ends are written.
fn zero_pages(start: usize, size: usize) {
    let device = gpu().space.lock().find(start).is_some_and(|block| {
        !matches!(block.place, Place::Host | Place::Registered) && start + size <= block.start + block.size
    });
    if !device {
        return;
    }
    let first = start.next_multiple_of(PAGE);
    let last = (start + size) / PAGE * PAGE;
    space::forget(first, last - first);
    // SAFETY: the range lies in one block of device memory, as was just checked, and the block is the program's.
    unsafe {
        ptr::write_bytes(start as *mut u8, 0, first - start);
        ptr::write_bytes(last as *mut u8, 0, start + size - last);
    }
}
