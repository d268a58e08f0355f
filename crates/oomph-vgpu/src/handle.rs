//! Handles for objects that have no state here.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::lock::Once;

/// Bytes between two handles: room for a program that looks into an object it should not know.
const STEP: usize = 256;
/// Bytes of address space for handles: four million of them. After that the addresses repeat, which only a program
/// that creates and destroys objects without end will ever see.
const REGION: usize = 1 << 30;

/// The handles of this process.
pub struct Handles {
    /// Where their region begins, reserved when the first is made; 0 where there is none.
    base: Once<usize>,
    next: AtomicUsize,
}

impl Handles {
    /// No handle yet.
    pub const fn new() -> Self {
        Self { base: Once::new(), next: AtomicUsize::new(0) }
    }

    /// The address of a new, zeroed object that is never freed. It is not null, unless the process has no address space.
    pub fn fresh(&self) -> *mut c_void {
        let base = *self.base.get_or_init(reserve);
        if base == 0 {
            return ptr::null_mut();
        }
        (base + (self.next.fetch_add(1, Ordering::Relaxed) * STEP) % REGION) as *mut c_void
    }

    /// The address of a new object that holds a number, or null.
    pub fn fresh_with(&self, number: u64) -> *mut c_void {
        let object = self.fresh();
        if !object.is_null() {
            // SAFETY: a fresh object has room for more than a number, is aligned, and nobody else knows of it.
            unsafe { object.cast::<u64>().write(number) };
        }
        object
    }
}

/// Reserves the region; 0 where that fails.
fn reserve() -> usize {
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that exists.
    let at = unsafe {
        libc::mmap(
            ptr::null_mut(),
            REGION,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED { 0 } else { at as usize }
}
