//! What the hook in Python asks and says: refusals, the line of Python that is under way, the work of a step, what single
//! bytes are, which blocks PyTorch's allocator handed out, and which threads take part in its kernels.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::activity::Place;
use crate::followed;
use crate::gpu::gpu;
use crate::latecomers::Admit;

/// How many requests a card has refused this process: whether an error that does not say so is for lack of memory.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn oomph_refusals() -> u64 {
    gpu().activity.refusals()
}

/// Has a byte that the host reads alone be a flag from now on, which graphs of TensorFlow read.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn oomph_bytes_are_flags() {
    gpu().flags.are_read();
}

/// Has each of some threads of this process call `admit(key, true)` at its next call of CUDA, before that is answered.
///
/// # Safety
/// `threads` must hold `count` numbers of threads, and `admit` must stay a function that any thread may call at any time.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn oomph_admit(admit: Option<Admit>, key: u16, threads: *const c_int, count: usize) {
    let Some(admit) = admit.filter(|_| !threads.is_null()) else { return };
    // SAFETY: the caller's promise.
    let threads = unsafe { std::slice::from_raw_parts(threads, count) };
    gpu().latecomers.wait_for(admit, key, threads);
}

/// Has the calls of this thread come from a line of a Python file from now on; from none where `file` is null.
///
/// # Safety
/// Both texts must be null or zero-terminated.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn oomph_python_line(file: *const c_char, line: u32, function: *const c_char) {
    // SAFETY: the caller's promise.
    let text =
        |text: *const c_char| (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
    let place = text(file).map(|module| Place { module, offset: line as usize, function: text(function) });
    gpu().activity.set_python_line(place);
}

/// Writes the work since the last call as JSON and begins to count anew. Gives the length of the text in bytes, or 0 where
/// it has no room; then the work is lost, so give 256 KiB.
///
/// # Safety
/// `to` may be written for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oomph_work_cut(to: *mut u8, room: usize) -> usize {
    let text = gpu().work.cut();
    if to.is_null() || text.len() > room {
        return 0;
    }
    // SAFETY: the caller's promise; the text is no longer than the room.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), to, text.len()) };
    text.len()
}

/// Follows PyTorch's allocator from now on. Gives the address of the number of blocks that [`oomph_handed`] has to tell, or
/// null where the allocator cannot be followed. With `pattern` blocks begin with a test's pattern.
///
/// # Safety
/// `allocator` is what `c10::cuda::CUDACachingAllocator::allocator` holds.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn oomph_follow_allocator(allocator: *mut c_void, pattern: bool) -> *const usize {
    let handed = &gpu().handed;
    // SAFETY: the caller's promise.
    if !unsafe { followed::follow(allocator) } {
        return std::ptr::null();
    }
    if pattern {
        handed.begin_with_pattern();
    }
    handed.waiting()
}

/// Writes the address and the size in bytes of blocks that the allocator handed out, the earliest first, and gives their
/// number. They are not given again.
///
/// # Safety
/// `to` may be written for twice `room` words.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn oomph_handed(to: *mut [usize; 2], room: usize) -> usize {
    if to.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    let to = unsafe { std::slice::from_raw_parts_mut(to, room) };
    gpu().handed.take(to)
}
