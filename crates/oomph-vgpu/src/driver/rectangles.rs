//! Copies of rectangles, which the driver API describes in a structure.

use std::ffi::{c_uint, c_void};

use crate::driver::{DevicePointer, address};
use crate::status::{INVALID_VALUE, SUCCESS};
use crate::transfer;

/// One side of a copy: cuda.h's members from `srcXInBytes` to `srcPitch`, and from `dstXInBytes` to `dstPitch`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Side {
    /// Where the rectangle begins in its row, in bytes.
    x: usize,
    /// The row in which it begins.
    y: usize,
    /// A `CUmemorytype`.
    kind: c_uint,
    host: *mut c_void,
    device: DevicePointer,
    array: *mut c_void,
    /// Bytes from one row to the next; 0 where the rows lie without gaps.
    pitch: usize,
}

/// cuda.h's `CUDA_MEMCPY2D_v2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Rectangle {
    from: Side,
    to: Side,
    /// Bytes of a row.
    width: usize,
    /// Rows.
    height: usize,
}

impl Side {
    /// Where the first row begins, and how far the rows are apart; `None` for an array, whose insides are nobody's, and a
    /// null pointer.
    fn rows(&self, width: usize) -> Option<(*mut c_void, usize)> {
        const HOST: c_uint = 1;
        const ARRAY: c_uint = 3;
        let base = match self.kind {
            HOST => self.host,
            ARRAY => return None,
            _ => address(self.device),
        };
        let pitch = if self.pitch == 0 { self.x.saturating_add(width) } else { self.pitch };
        let start = (base as usize).checked_add(self.y.checked_mul(pitch)?)?.checked_add(self.x)?;
        (!base.is_null()).then_some((start as *mut c_void, pitch))
    }
}

unsafe fn copy(rectangle: *const Rectangle) -> u32 {
    if rectangle.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: a non-null description is a whole one by the contract of every function here.
    let Rectangle { from, to, width, height } = unsafe { rectangle.read_unaligned() };
    if let (Some((to, to_pitch)), Some((from, from_pitch))) = (to.rows(width), from.rows(width)) {
        // SAFETY: by the same contract both rectangles lie in memory that may be copied from and to.
        unsafe {
            match width.checked_mul(height) {
                // Rows without gaps are one piece, whose contents can be compared with what was sent before.
                Some(size) if (to_pitch, from_pitch) == (width, width) => transfer::requested(to, from, size),
                _ => transfer::requested_2d(to, to_pitch, from, from_pitch, width, height),
            }
        }
    }
    SUCCESS
}

pub unsafe fn cuMemcpy2D_v2(rectangle: *const Rectangle) -> u32 {
    // SAFETY: CUDA's contract is that of `copy`.
    unsafe { copy(rectangle) }
}

pub unsafe fn cuMemcpy2DUnaligned_v2(rectangle: *const Rectangle) -> u32 {
    // SAFETY: CUDA's contract is that of `copy`.
    unsafe { copy(rectangle) }
}

pub unsafe fn cuMemcpy2DAsync_v2(rectangle: *const Rectangle, stream: *mut c_void) -> u32 {
    crate::capture::launched(stream);
    // SAFETY: CUDA's contract is that of `copy`.
    unsafe { copy(rectangle) }
}
