//! cuSPARSELt: matrices with two of four elements, whose descriptors lie in the program's memory.
//!
//! The compressed size is arithmetic: half of the elements, and two bits for each of them to say where they were. Plans
//! need no workspace here; PyTorch asks for it and allocates it itself, and the real one's is not documented.
#![allow(clippy::missing_safety_doc, clippy::too_many_arguments)]

use std::ffi::{c_char, c_int, c_void};

use crate::cublas::versions::{library_version, property, put};

const SUCCESS: u32 = 0;
const INVALID_VALUE: u32 = 3;

library_version!("libcusparseLt.so.", "cusparselt", [0, 4, 0], [0, 8, 1], [0, 8, 1]);

/// What is remembered of a matrix, at the beginning of its 512 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Matrix {
    rows: i64,
    columns: i64,
    kind: c_int,
    sparse: c_int,
}

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
unsafe fn describe(at: *mut c_void, matrix: Matrix) -> u32 {
    if at.is_null() || matrix.rows <= 0 || matrix.columns <= 0 {
        return INVALID_VALUE;
    }
    // SAFETY: cuSPARSELt's contract: 512 bytes that may be written.
    unsafe { put(at.cast::<Matrix>(), matrix) };
    SUCCESS
}

pub unsafe fn cusparseLtDenseDescriptorInit(
    _handle: *mut c_void,
    at: *mut c_void,
    rows: i64,
    columns: i64,
    _ld: i64,
    _alignment: u32,
    kind: c_int,
    _order: c_int,
) -> u32 {
    // SAFETY: cuSPARSELt's contract is that of `describe`.
    unsafe { describe(at, Matrix { rows, columns, kind, sparse: 0 }) }
}

pub unsafe fn cusparseLtStructuredDescriptorInit(
    _handle: *mut c_void,
    at: *mut c_void,
    rows: i64,
    columns: i64,
    _ld: i64,
    _alignment: u32,
    kind: c_int,
    _order: c_int,
    _sparsity: c_int,
) -> u32 {
    // SAFETY: as above.
    unsafe { describe(at, Matrix { rows, columns, kind, sparse: 1 }) }
}

/// The size of a compressed matrix; compressing needs no buffer here.
pub unsafe fn cusparseLtSpMMACompressedSize2(
    _handle: *mut c_void,
    at: *const c_void,
    size: *mut usize,
    buffer: *mut usize,
) -> u32 {
    if at.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: cuSPARSELt's contract: a description that was initialized here, and out-parameters that may be written.
    unsafe {
        put(size, at.cast::<Matrix>().read_unaligned().compressed());
        put(buffer, 0);
    }
    SUCCESS
}

/// Initializes the description of a product; it remembers its sparse matrix.
pub unsafe fn cusparseLtMatmulDescriptorInit(
    _handle: *mut c_void,
    at: *mut c_void,
    _op_a: c_int,
    _op_b: c_int,
    a: *const c_void,
    b: *const c_void,
    _c: *const c_void,
    _d: *const c_void,
    _compute: c_int,
) -> u32 {
    if at.is_null() || a.is_null() || b.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: cuSPARSELt's contract: descriptions that were initialized here.
    unsafe {
        let (a, b) = (a.cast::<Matrix>().read_unaligned(), b.cast::<Matrix>().read_unaligned());
        describe(at, if a.sparse == 0 && b.sparse != 0 { b } else { a })
    }
}

/// Initializes a plan; it remembers its product's sparse matrix.
pub unsafe fn cusparseLtMatmulPlanInit(
    _handle: *mut c_void,
    at: *mut c_void,
    product: *const c_void,
    _algorithm: *const c_void,
) -> u32 {
    if product.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: as above.
    unsafe { describe(at, product.cast::<Matrix>().read_unaligned()) }
}

/// The size of a plan's compressed matrix.
pub unsafe fn cusparseLtSpMMACompressedSize(
    handle: *mut c_void,
    plan: *const c_void,
    size: *mut usize,
    buffer: *mut usize,
) -> u32 {
    // SAFETY: cuSPARSELt's contract: a plan that was initialized here begins with its matrix.
    unsafe { cusparseLtSpMMACompressedSize2(handle, plan, size, buffer) }
}

/// What is known of an algorithm: number 0 of one, without splitting.
pub unsafe fn cusparseLtMatmulAlgGetAttribute(
    _handle: *mut c_void,
    _algorithm: *const c_void,
    number: c_int,
    to: *mut c_void,
    size: usize,
) -> u32 {
    // The numbers are: algorithm 0, one algorithm, search iterations, parts, their mode, their buffers.
    let value: c_int = match number {
        1..=3 => 1,
        _ => 0,
    };
    if size < size_of::<c_int>() {
        return INVALID_VALUE;
    }
    // SAFETY: cuSPARSELt's contract: `size` bytes that may be written.
    unsafe { put(to.cast::<c_int>(), value) };
    SUCCESS
}

/// The version in one number: 801 for 0.8.1.
pub unsafe fn cusparseLtGetVersion(_handle: *const c_void, value: *mut c_int) -> u32 {
    let [major, minor, patch] = version();
    // SAFETY: cuSPARSELt's contract: an out-parameter that may be written.
    unsafe { put(value, major * 1000 + minor * 100 + patch) };
    SUCCESS
}

/// One part of the version.
pub unsafe fn cusparseLtGetProperty(kind: c_int, value: *mut c_int) -> u32 {
    let Some(part) = property(version(), kind) else { return INVALID_VALUE };
    // SAFETY: as above.
    unsafe { put(value, part) };
    SUCCESS
}

/// The name of a status, which cuSPARSELt shares with cuSPARSE.
pub unsafe fn cusparseLtGetErrorName(status: c_int) -> *const c_char {
    // SAFETY: the function only looks at its number.
    unsafe { crate::cusparse::cusparseGetErrorName(status) }
}

/// What a status means.
pub unsafe fn cusparseLtGetErrorString(status: c_int) -> *const c_char {
    // SAFETY: as above.
    unsafe { crate::cusparse::cusparseGetErrorString(status) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compressed_matrix_is_half_and_its_places() {
        let mut descriptor = [0_u64; 64];
        let at: *mut c_void = descriptor.as_mut_ptr().cast();
        let (mut size, mut buffer) = (0, 1);
        // SAFETY: the description has 512 bytes, and the out-parameters are local variables.
        unsafe {
            let none = std::ptr::null_mut();
            assert_eq!(cusparseLtStructuredDescriptorInit(none, at, 128, 64, 64, 16, 2, 1, 0), SUCCESS);
            assert_eq!(cusparseLtSpMMACompressedSize2(none, at, &raw mut size, &raw mut buffer), SUCCESS);
            assert_eq!((size, buffer), (128 * 64 * 2 * 9 / 16, 0));
            assert_eq!(cusparseLtStructuredDescriptorInit(none, at, 0, 64, 64, 16, 2, 1, 0), INVALID_VALUE);
        }
        assert_eq!(Matrix { rows: 64, columns: 64, kind: 3, sparse: 1 }.compressed(), 64 * 64 * 10 / 16);
    }
}
