//! cuSPARSE: descriptors that answer with what was put in them, and the sizes of buffers.
//!
//! **Model of the buffers.** cuSPARSE documents no sizes. A product with a dense matrix or vector takes an index for
//! each row, by which its work is divided; a triangular solve two indices for each row and each element; a sort the
//! keys and the permutation twice. They are small beside the operands, and were not compared with the library.
//!
//! **Sizes that depend on values.** How many elements the product or the sum of two sparse matrices has is known only
//! when it is computed, which it never is. The product is given as many elements as it has terms when the second
//! factor's elements are spread evenly over its rows, the sum as many as both together; the report says so.
#![allow(clippy::missing_safety_doc, clippy::too_many_arguments)]

mod descriptors;

pub use descriptors::*;

use std::ffi::{CStr, c_int, c_void};

use crate::cublas::versions::{library_version, property, put};
use crate::{device, trace};

const SUCCESS: u32 = 0;
const NOT_INITIALIZED: u32 = 1;
const INVALID_VALUE: u32 = 3;

library_version!("libcusparse.so.", "cusparse", [11, 7, 5], [12, 5, 10], [12, 9, 4]);

type Ptr = *mut c_void;

/// Bytes of an index by its `cusparseIndexType_t`.
fn index_bytes(kind: c_int) -> i64 {
    match kind {
        1 => 2,
        3 => 8,
        _ => 4,
    }
}

/// Bytes of a value by its `cudaDataType`.
fn value_bytes(kind: c_int) -> i64 {
    match kind {
        3 | 8 => 1,
        2 | 14 => 2,
        1 | 4 => 8,
        5 => 16,
        _ => 4,
    }
}

impl Descriptor {
    fn index_bytes(&self) -> i64 {
        let [offsets, indices, _] = self.types;
        index_bytes(offsets).max(index_bytes(indices))
    }

    fn value_bytes(&self) -> i64 {
        let [.., values] = self.types;
        value_bytes(values)
    }

    /// An index for each row.
    fn rows_buffer(&self) -> i64 {
        self.rows.saturating_add(1).saturating_mul(self.index_bytes())
    }

    /// Two indices for each row and each element.
    fn solve_buffer(&self) -> i64 {
        self.rows.saturating_add(self.elements).saturating_mul(2 * self.index_bytes())
    }
}

/// The terms of a product if the second factor's elements are spread evenly over its rows.
fn products(first: &Descriptor, second: &Descriptor) -> i64 {
    if second.rows <= 0 {
        return 0;
    }
    let terms = i128::from(first.elements) * i128::from(second.elements) / i128::from(second.rows);
    i64::try_from(terms).unwrap_or(i64::MAX)
}

/// Writes a number of bytes.
unsafe fn put_bytes(to: *mut usize, bytes: i64) {
    // SAFETY: the caller's promise: an out-parameter that may be written.
    unsafe { put(to, usize::try_from(bytes).unwrap_or(0)) };
}

/// Defines functions that write the size of a buffer for a sparse matrix among their parameters.
macro_rules! buffers {
    ($($name:ident($($parameter:ident: $kind:ty),*) of $matrix:ident to $size:ident = $bytes:expr;)*) => {$(
        /// The size of a buffer.
        pub unsafe fn $name(_handle: *mut c_void, $($parameter: $kind),*) -> u32 {
            let bytes: fn(&Descriptor) -> i64 = $bytes;
            // SAFETY: cuSPARSE's contract: a descriptor, and an out-parameter that may be written.
            unsafe {
                let Some(known) = get($matrix) else { return INVALID_VALUE };
                put_bytes($size, bytes(known));
            }
            SUCCESS
        }
    )*};
}
type Size = *mut usize;
buffers! {
    cusparseSpMV_bufferSize(
        _op: c_int, _alpha: Ptr, a: Ptr, _x: Ptr, _beta: Ptr, _y: Ptr, _compute: c_int, _alg: c_int,
        size: Size
    ) of a to size = Descriptor::rows_buffer;
    cusparseSpMM_bufferSize(
        _op_a: c_int, _op_b: c_int, _alpha: Ptr, a: Ptr, _b: Ptr, _beta: Ptr, _c: Ptr, _compute: c_int, _alg: c_int,
        size: Size
    ) of a to size = Descriptor::rows_buffer;
    cusparseSDDMM_bufferSize(
        _op_a: c_int, _op_b: c_int, _alpha: Ptr, _a: Ptr, _b: Ptr, _beta: Ptr, c: Ptr, _compute: c_int, _alg: c_int,
        size: Size
    ) of c to size = Descriptor::rows_buffer;
    cusparseSpSV_bufferSize(
        _op: c_int, _alpha: Ptr, a: Ptr, _x: Ptr, _y: Ptr, _compute: c_int, _alg: c_int,
        _descriptor: Ptr, size: Size
    ) of a to size = Descriptor::solve_buffer;
    cusparseSpSM_bufferSize(
        _op_a: c_int, _op_b: c_int, _alpha: Ptr, a: Ptr, _b: Ptr, _c: Ptr, _compute: c_int, _alg: c_int,
        _descriptor: Ptr, size: Size
    ) of a to size = Descriptor::solve_buffer;
    cusparseSparseToDense_bufferSize(a: Ptr, _b: Ptr, _alg: c_int, size: Size) of a to size = |_| 0;
    cusparseDenseToSparse_bufferSize(_a: Ptr, b: Ptr, _alg: c_int, size: Size) of b to size = Descriptor::rows_buffer;
}

/// Defines the sizes of sorts: keys and permutation, twice.
macro_rules! sorts {
    ($($name:ident)*) => {$(
        /// The size of a sort's buffer.
        pub unsafe fn $name(
            _handle: *mut c_void, _m: c_int, _n: c_int, elements: c_int, _first: Ptr, _second: Ptr, size: Size,
        ) -> u32 {
            // SAFETY: cuSPARSE's contract: an out-parameter that may be written.
            unsafe { put_bytes(size, i64::from(elements.max(0)) * 16) };
            SUCCESS
        }
    )*};
}
sorts! { cusparseXcoosort_bufferSizeExt cusparseXcsrsort_bufferSizeExt cusparseXcscsort_bufferSizeExt }

/// The first step of a product: without a buffer it says how large one must be.
pub unsafe fn cusparseSpGEMM_workEstimation(
    _handle: *mut c_void,
    _op_a: c_int,
    _op_b: c_int,
    _alpha: Ptr,
    a: Ptr,
    b: Ptr,
    _beta: Ptr,
    _c: Ptr,
    _compute: c_int,
    _alg: c_int,
    descriptor: Ptr,
    size: Size,
    buffer: Ptr,
) -> u32 {
    // SAFETY: cuSPARSE's contract: descriptors, one of which `createDescr` made, and an out-parameter.
    unsafe {
        let (Some(a), Some(b)) = (get(a).cloned(), get(b).cloned()) else { return INVALID_VALUE };
        put(descriptor.cast::<i64>(), products(&a, &b));
        if buffer.is_null() {
            put_bytes(size, a.rows.saturating_add(a.elements).saturating_mul(8));
        }
    }
    SUCCESS
}

/// How many terms the product has.
pub unsafe fn cusparseSpGEMM_getNumProducts(descriptor: Ptr, count: *mut i64) -> u32 {
    if descriptor.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: cuSPARSE's contract: what `createDescr` made, and an out-parameter that may be written.
    unsafe { put(count, descriptor.cast::<i64>().read_unaligned()) };
    SUCCESS
}

/// The second step: the terms before they are added up. From here on the product has a number of elements.
pub unsafe fn cusparseSpGEMM_compute(
    _handle: *mut c_void,
    _op_a: c_int,
    _op_b: c_int,
    _alpha: Ptr,
    a: Ptr,
    b: Ptr,
    _beta: Ptr,
    c: Ptr,
    _compute: c_int,
    _alg: c_int,
    _descriptor: Ptr,
    size: Size,
    buffer: Ptr,
) -> u32 {
    // SAFETY: as above.
    unsafe {
        let (Some(a), Some(b)) = (get(a).cloned(), get(b).cloned()) else { return INVALID_VALUE };
        let Some(c) = get(c) else { return INVALID_VALUE };
        let terms = products(&a, &b);
        if buffer.is_null() {
            put_bytes(size, terms.saturating_mul(a.index_bytes().saturating_add(a.value_bytes())));
        } else {
            c.elements = terms.min(c.rows.saturating_mul(c.columns));
            guessed();
        }
    }
    SUCCESS
}

/// The sum's elements: both matrices' together, at most all there can be.
pub unsafe fn cusparseXcsrgeam2Nnz(
    _handle: *mut c_void,
    m: c_int,
    n: c_int,
    _a: Ptr,
    a_elements: c_int,
    _a_offsets: Ptr,
    _a_indices: Ptr,
    _b: Ptr,
    b_elements: c_int,
    _b_offsets: Ptr,
    _b_indices: Ptr,
    _c: Ptr,
    _c_offsets: Ptr,
    total: *mut c_int,
    _workspace: Ptr,
) -> u32 {
    let most = i64::from(m.max(0)) * i64::from(n.max(0));
    let elements = (i64::from(a_elements) + i64::from(b_elements)).min(most);
    // SAFETY: cuSPARSE's contract: an out-parameter on the host or on the device, which is host memory here.
    unsafe { put(total, c_int::try_from(elements).unwrap_or(c_int::MAX)) };
    guessed();
    SUCCESS
}

fn guessed() {
    trace::warn(
        "The size of a sum or product of sparse matrices depends on values that were not computed; it was estimated.",
    );
}

/// Makes a handle. What the library allocates for one is not documented, so nothing is charged.
pub unsafe fn cusparseCreate(out: *mut *mut c_void) -> u32 {
    if device::activate_current().is_err() {
        return NOT_INITIALIZED;
    }
    // SAFETY: cuSPARSE's contract: an out-parameter that may be written.
    unsafe { put(out, crate::handle::fresh()) };
    SUCCESS
}

/// The version in one number: 12510 for 12.5.10.
pub unsafe fn cusparseGetVersion(_handle: *mut c_void, value: *mut c_int) -> u32 {
    let [major, minor, patch] = version();
    // SAFETY: cuSPARSE's contract: an out-parameter that may be written.
    unsafe { put(value, major * 1000 + minor * 100 + patch) };
    SUCCESS
}

/// One part of the version.
pub unsafe fn cusparseGetProperty(kind: c_int, value: *mut c_int) -> u32 {
    let Some(part) = property(version(), kind) else { return INVALID_VALUE };
    // SAFETY: as above.
    unsafe { put(value, part) };
    SUCCESS
}

/// The name of a status.
pub fn cusparseGetErrorName(status: c_int) -> &'static CStr {
    match status {
        0 => c"CUSPARSE_STATUS_SUCCESS",
        1 => c"CUSPARSE_STATUS_NOT_INITIALIZED",
        2 => c"CUSPARSE_STATUS_ALLOC_FAILED",
        3 => c"CUSPARSE_STATUS_INVALID_VALUE",
        10 => c"CUSPARSE_STATUS_NOT_SUPPORTED",
        11 => c"CUSPARSE_STATUS_INSUFFICIENT_RESOURCES",
        _ => c"CUSPARSE_STATUS_INTERNAL_ERROR",
    }
}

/// What a status means.
pub fn cusparseGetErrorString(status: c_int) -> &'static CStr {
    match status {
        0 => c"success",
        1 => c"initialization error",
        2 => c"out of memory",
        3 => c"invalid value",
        10 => c"operation not supported",
        11 => c"insufficient resources",
        _ => c"internal error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cusparse::descriptors::EMPTY;

    #[test]
    fn the_terms_of_a_product_are_counted_evenly() {
        let matrix = |rows, elements| {
            let mut matrix = EMPTY;
            (matrix.rows, matrix.elements) = (rows, elements);
            matrix
        };
        assert_eq!(products(&matrix(10, 50), &matrix(20, 60)), 150);
        assert_eq!(products(&matrix(10, 50), &matrix(0, 0)), 0);
        assert_eq!(products(&matrix(10, i64::MAX), &matrix(1, i64::MAX)), i64::MAX);
    }
}
