//! Copies and fills that the program asks for, between places that it names.
//!
//! **Why the `unsafe` blocks are sound.** A place is an address that the boundary made of the program's parameter, and the
//! sizes are those of the same call. By CUDA's contract the program's ranges are as large as the sizes say.

use std::ffi::c_uint;

use crate::boundary::{In, Memory};
use crate::cuda::rectangles::Rectangle;
use crate::status::CudaStatus;
use crate::stream::{self, StreamHandle};
use crate::transfer;

/// Refuses a place that is null, unless nothing is to be done there.
fn check(place: Memory<'_>, count: usize) -> Result<(), CudaStatus> {
    if count > 0 && place.is_null() { Err(CudaStatus::INVALID_VALUE) } else { Ok(()) }
}

/// A copy between any two places.
pub fn copy(to: Memory<'_>, from: Memory<'_>, size: usize) -> Result<(), CudaStatus> {
    check(to, size)?;
    check(from, size)?;
    // SAFETY: see the module's description.
    unsafe { transfer::requested(to.address(), from.address(), size) };
    Ok(())
}

/// A copy between any two places, counted where a stream captures.
pub fn copy_on(stream: StreamHandle, to: Memory<'_>, from: Memory<'_>, size: usize) -> Result<(), CudaStatus> {
    copy(to, from, size)?;
    stream::launched(stream);
    Ok(())
}

/// Rows of the same width, which the program's own arrays may be wider than.
#[derive(Clone, Copy)]
pub struct Rows {
    /// Bytes of a row.
    pub width: usize,
    /// How many there are.
    pub height: usize,
}

/// A copy of rows, which begin this many bytes apart.
pub fn copy_2d(to: Memory<'_>, to_pitch: usize, from: Memory<'_>, from_pitch: usize, rows: Rows) {
    // SAFETY: see the module's description.
    unsafe { transfer::requested_2d(to.address(), to_pitch, from.address(), from_pitch, rows.width, rows.height) };
}

/// A copy that the driver API describes in a structure.
pub fn copy_rectangle(rectangle: In<'_, Rectangle>) -> Result<(), CudaStatus> {
    let rectangle = rectangle.get().ok_or(CudaStatus::INVALID_VALUE)?;
    if let Some(piece) = rectangle.piece() {
        let (to, from) = (piece.to, piece.from);
        // SAFETY: see the module's description; the structure is part of the call.
        unsafe {
            match piece.width.checked_mul(piece.height) {
                // Rows without gaps are one piece, whose contents can be compared with what was sent before.
                Some(size) if (piece.to_pitch, piece.from_pitch) == (piece.width, piece.width) => {
                    transfer::requested(to, from, size);
                }
                _ => transfer::requested_2d(to, piece.to_pitch, from, piece.from_pitch, piece.width, piece.height),
            }
        }
    }
    Ok(())
}

/// A fill of `count` elements of 1, 2 or 4 bytes.
pub fn fill(to: Memory<'_>, value: c_uint, element: usize, count: usize) -> Result<(), CudaStatus> {
    check(to, count)?;
    // SAFETY: see the module's description.
    unsafe { transfer::fill(to.address(), value, element, count) };
    Ok(())
}

/// A fill of `count` elements of 1, 2 or 4 bytes, counted where a stream captures.
pub fn fill_on(
    stream: StreamHandle,
    to: Memory<'_>,
    value: c_uint,
    element: usize,
    count: usize,
) -> Result<(), CudaStatus> {
    fill(to, value, element, count)?;
    stream::launched(stream);
    Ok(())
}

/// A fill of rows with a byte, counted where a stream captures.
pub fn fill_2d(stream: StreamHandle, to: Memory<'_>, pitch: usize, value: c_uint, rows: Rows) {
    stream::launched(stream);
    for row in 0..rows.height {
        // SAFETY: see the module's description.
        unsafe { transfer::fill(to.address().wrapping_byte_add(row.wrapping_mul(pitch)), value, 1, rows.width) };
    }
}
