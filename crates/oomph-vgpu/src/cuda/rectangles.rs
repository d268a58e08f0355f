//! The structure by which the driver API describes a copy of a rectangle.

use std::ffi::{c_uint, c_void};

use crate::boundary::Plain;

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
    /// An address on a card.
    device: u64,
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

// SAFETY: the members are numbers and addresses.
unsafe impl Plain for Rectangle {}

impl Side {
    /// Where the first row begins, and how far the rows are apart; `None` for an array, whose insides are nobody's, and a
    /// null pointer.
    fn rows(&self, width: usize) -> Option<(*mut c_void, usize)> {
        const HOST: c_uint = 1;
        const ARRAY: c_uint = 3;
        let base = match self.kind {
            HOST => self.host,
            ARRAY => return None,
            _ => self.device as *mut c_void,
        };
        let pitch = if self.pitch == 0 { self.x.saturating_add(width) } else { self.pitch };
        let start = (base as usize).checked_add(self.y.checked_mul(pitch)?)?.checked_add(self.x)?;
        (!base.is_null()).then_some((start as *mut c_void, pitch))
    }
}

/// What a copy touches: where the first rows begin, and how far the rows are apart.
pub struct Piece {
    pub to: *mut c_void,
    pub to_pitch: usize,
    pub from: *mut c_void,
    pub from_pitch: usize,
    /// Bytes of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl Rectangle {
    /// What the copy touches; `None` where one side is an array or a null pointer.
    pub fn piece(&self) -> Option<Piece> {
        let ((to, to_pitch), (from, from_pitch)) = (self.to.rows(self.width)?, self.from.rows(self.width)?);
        Some(Piece { to, to_pitch, from, from_pitch, width: self.width, height: self.height })
    }
}
