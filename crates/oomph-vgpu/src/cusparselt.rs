//! cuSPARSELt: matrices with two of four elements, whose descriptors lie in the program's memory.
//!
//! The compressed size is arithmetic: half of the elements, and two bits for each of them to say where they were. Plans
//! need no workspace here; PyTorch asks for it and allocates it itself, and the real one's is not documented.
#![allow(clippy::too_many_arguments, reason = "the parameters are those of cuSPARSELt's header")]

use std::ffi::{CStr, c_int, c_void};

use crate::boundary::{In, Out, Plain, Room, statuses};
use crate::cublas::versions::{library_version, property};

statuses! {
    /// `cusparseStatus_t`
    pub CusparseLtStatus {
        /// An argument is out of range, or null.
        INVALID_VALUE = 3,
    }
}

library_version!(CusparseLt, "libcusparseLt.so.", "cusparselt", [0, 4, 0], [0, 8, 1], [0, 8, 1]);

/// What is remembered of a matrix, at the beginning of its 512 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    rows: i64,
    columns: i64,
    kind: c_int,
    sparse: c_int,
}

// SAFETY: it consists of numbers, without anything between them.
unsafe impl Plain for Matrix {}

impl Matrix {
    /// Bytes of the compressed matrix.
    fn compressed(self) -> usize {
        // Eight-bit types have twice as much to say about their places: four bits of two elements in a byte.
        let bits: i128 = match self.kind {
            3 | 8 | 28 | 29 => 8,
            2 | 14 => 16,
            33 => 4,
            _ => 32,
        };
        let elements = i128::from(self.rows.max(0)) * i128::from(self.columns.max(0));
        usize::try_from((elements / 2 * (bits + 2) + 7) / 8).unwrap_or(usize::MAX)
    }
}

/// Initializes the description of a matrix.
fn describe(at: Out<'_, Matrix>, matrix: Matrix) -> Result<(), CusparseLtStatus> {
    if at.is_null() || matrix.rows <= 0 || matrix.columns <= 0 {
        return Err(CusparseLtStatus::INVALID_VALUE);
    }
    at.set(matrix);
    Ok(())
}

/// Reads a description that was initialized here.
fn known(at: In<'_, Matrix>) -> Result<Matrix, CusparseLtStatus> {
    at.get().ok_or(CusparseLtStatus::INVALID_VALUE)
}

pub fn cusparseLtDenseDescriptorInit(
    _handle: *mut c_void,
    at: Out<'_, Matrix>,
    rows: i64,
    columns: i64,
    _ld: i64,
    _alignment: u32,
    kind: c_int,
    _order: c_int,
) -> Result<(), CusparseLtStatus> {
    describe(at, Matrix { rows, columns, kind, sparse: 0 })
}

pub fn cusparseLtStructuredDescriptorInit(
    _handle: *mut c_void,
    at: Out<'_, Matrix>,
    rows: i64,
    columns: i64,
    _ld: i64,
    _alignment: u32,
    kind: c_int,
    _order: c_int,
    _sparsity: c_int,
) -> Result<(), CusparseLtStatus> {
    describe(at, Matrix { rows, columns, kind, sparse: 1 })
}

/// The size of a compressed matrix; compressing needs no buffer here.
pub fn cusparseLtSpMMACompressedSize2(
    _handle: *mut c_void,
    at: In<'_, Matrix>,
    size: Out<'_, usize>,
    buffer: Out<'_, usize>,
) -> Result<(), CusparseLtStatus> {
    size.set(known(at)?.compressed());
    buffer.set(0);
    Ok(())
}

/// Initializes the description of a product; it remembers its sparse matrix.
pub fn cusparseLtMatmulDescriptorInit(
    _handle: *mut c_void,
    at: Out<'_, Matrix>,
    _op_a: c_int,
    _op_b: c_int,
    a: In<'_, Matrix>,
    b: In<'_, Matrix>,
    _c: *const c_void,
    _d: *const c_void,
    _compute: c_int,
) -> Result<(), CusparseLtStatus> {
    let (a, b) = (known(a)?, known(b)?);
    describe(at, if a.sparse == 0 && b.sparse != 0 { b } else { a })
}

/// Initializes a plan; it remembers its product's sparse matrix.
pub fn cusparseLtMatmulPlanInit(
    _handle: *mut c_void,
    at: Out<'_, Matrix>,
    product: In<'_, Matrix>,
    _algorithm: *const c_void,
) -> Result<(), CusparseLtStatus> {
    describe(at, known(product)?)
}

/// The size of the compressed matrix of a plan, which begins with its matrix.
pub fn cusparseLtSpMMACompressedSize(
    handle: *mut c_void,
    plan: In<'_, Matrix>,
    size: Out<'_, usize>,
    buffer: Out<'_, usize>,
) -> Result<(), CusparseLtStatus> {
    cusparseLtSpMMACompressedSize2(handle, plan, size, buffer)
}

/// What is known of an algorithm: number 0 of one, without splitting.
pub fn cusparseLtMatmulAlgGetAttribute(
    _handle: *mut c_void,
    _algorithm: *const c_void,
    number: c_int,
    to: Room<'_, u8>,
    size: usize,
) -> Result<(), CusparseLtStatus> {
    // The numbers are: algorithm 0, one algorithm, search iterations, parts, their mode, their buffers.
    let value: c_int = match number {
        1..=3 => 1,
        _ => 0,
    };
    if size < size_of::<c_int>() {
        return Err(CusparseLtStatus::INVALID_VALUE);
    }
    to.fill(value.to_ne_bytes());
    Ok(())
}

/// The version in one number: 801 for 0.8.1.
pub fn cusparseLtGetVersion(_handle: *const c_void, value: Out<'_, c_int>) -> Result<(), CusparseLtStatus> {
    let [major, minor, patch] = version();
    value.set(major * 1000 + minor * 100 + patch);
    Ok(())
}

/// One part of the version.
pub fn cusparseLtGetProperty(kind: c_int, value: Out<'_, c_int>) -> Result<(), CusparseLtStatus> {
    value.set(property(version(), kind).ok_or(CusparseLtStatus::INVALID_VALUE)?);
    Ok(())
}

/// The name of a status, which cuSPARSELt shares with cuSPARSE.
pub fn cusparseLtGetErrorName(status: c_int) -> &'static CStr {
    crate::cusparse::cusparseGetErrorName(status)
}

/// What a status means.
pub fn cusparseLtGetErrorString(status: c_int) -> &'static CStr {
    crate::cusparse::cusparseGetErrorString(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compressed_matrix_is_half_and_its_places() {
        let none = std::ptr::null_mut();
        let mut matrix = Matrix { rows: 0, columns: 0, kind: 0, sparse: 0 };
        let (mut size, mut buffer) = (0, 1);
        let made = cusparseLtStructuredDescriptorInit(none, Out::to(&mut matrix), 128, 64, 64, 16, 2, 1, 0);
        assert_eq!(made, Ok(()));
        let (known, sizes) = (In::to(&mut matrix), (Out::to(&mut size), Out::to(&mut buffer)));
        assert_eq!(cusparseLtSpMMACompressedSize2(none, known, sizes.0, sizes.1), Ok(()));
        assert_eq!((size, buffer), (128 * 64 * 2 * 9 / 16, 0));
        let empty = cusparseLtStructuredDescriptorInit(none, Out::to(&mut matrix), 0, 64, 64, 16, 2, 1, 0);
        assert_eq!(empty, Err(CusparseLtStatus::INVALID_VALUE));
        assert_eq!(Matrix { rows: 64, columns: 64, kind: 3, sparse: 1 }.compressed(), 64 * 64 * 10 / 16);
    }
}
