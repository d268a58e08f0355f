//! cuSPARSE: descriptors that answer with what was put in them, and the sizes of buffers.
//!
//! **Model of the buffers.** cuSPARSE documents no sizes. A product with a dense matrix or vector takes an index for
//! each row, by which its work is divided; a triangular solve two indices for each row and each element; a sort the
//! keys and the permutation twice. They are small compared with the operands, and were not compared with the library.
//!
//! **Sizes that depend on values.** How many elements the product or the sum of two sparse matrices has is known only
//! when it is computed, which it never is. The product is given as many elements as it has terms when the second
//! factor's elements are spread evenly over its rows, the sum as many as both together; the report says so.
#![allow(clippy::too_many_arguments, reason = "the parameters are those of cuSPARSE's header")]

mod descriptors;

pub use descriptors::*;

use std::ffi::{CStr, c_int, c_void};

use crate::boundary::{Handle, InOut, Out, statuses};
use crate::cublas::versions::{library_version, property};
use crate::device;
use crate::gpu::gpu;

statuses! {
    /// `cusparseStatus_t`
    pub CusparseStatus {
        /// There is no card.
        NOT_INITIALIZED = 1,
        /// An argument is out of range, or no descriptor.
        INVALID_VALUE = 3,
    }
}

library_version!(Cusparse, "libcusparse.so.", "cusparse", [11, 7, 5], [12, 5, 10], [12, 9, 4]);

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
fn put_bytes(to: Size<'_>, bytes: i64) {
    to.set(usize::try_from(bytes).unwrap_or(0));
}

/// A descriptor among the parameters.
type Matrix<'a> = Handle<'a, Descriptor>;
/// The place for a number of bytes.
type Size<'a> = Out<'a, usize>;

/// Defines functions that write the size of a buffer for a sparse matrix among their parameters.
macro_rules! buffers {
    ($($name:ident($($parameter:ident: $kind:ty),*) of $matrix:ident to $size:ident = $bytes:expr;)*) => {$(
        /// The size of a buffer.
        pub fn $name(_handle: *mut c_void, $($parameter: $kind),*) -> Result<(), CusparseStatus> {
            let bytes: fn(&Descriptor) -> i64 = $bytes;
            put_bytes($size, bytes(known(&$matrix)?));
            Ok(())
        }
    )*};
}
buffers! {
    cusparseSpMV_bufferSize(
        _op: c_int, _alpha: Ptr, a: Matrix<'_>, _x: Ptr, _beta: Ptr, _y: Ptr, _compute: c_int, _alg: c_int,
        size: Size<'_>
    ) of a to size = Descriptor::rows_buffer;
    cusparseSpMM_bufferSize(
        _op_a: c_int, _op_b: c_int, _alpha: Ptr, a: Matrix<'_>, _b: Ptr, _beta: Ptr, _c: Ptr, _compute: c_int, _alg: c_int,
        size: Size<'_>
    ) of a to size = Descriptor::rows_buffer;
    cusparseSDDMM_bufferSize(
        _op_a: c_int, _op_b: c_int, _alpha: Ptr, _a: Ptr, _b: Ptr, _beta: Ptr, c: Matrix<'_>, _compute: c_int, _alg: c_int,
        size: Size<'_>
    ) of c to size = Descriptor::rows_buffer;
    cusparseSpSV_bufferSize(
        _op: c_int, _alpha: Ptr, a: Matrix<'_>, _x: Ptr, _y: Ptr, _compute: c_int, _alg: c_int,
        _descriptor: Ptr, size: Size<'_>
    ) of a to size = Descriptor::solve_buffer;
    cusparseSpSM_bufferSize(
        _op_a: c_int, _op_b: c_int, _alpha: Ptr, a: Matrix<'_>, _b: Ptr, _c: Ptr, _compute: c_int, _alg: c_int,
        _descriptor: Ptr, size: Size<'_>
    ) of a to size = Descriptor::solve_buffer;
    cusparseSparseToDense_bufferSize(a: Matrix<'_>, _b: Ptr, _alg: c_int, size: Size<'_>) of a to size = |_| 0;
    cusparseDenseToSparse_bufferSize(_a: Ptr, b: Matrix<'_>, _alg: c_int, size: Size<'_>) of b to size = Descriptor::rows_buffer;
}

/// Defines the sizes of sorts: keys and permutation, twice.
macro_rules! sorts {
    ($($name:ident)*) => {$(
        /// The size of a sort's buffer.
        pub fn $name(
            _handle: *mut c_void, _m: c_int, _n: c_int, elements: c_int, _first: Ptr, _second: Ptr, size: Size<'_>,
        ) -> Result<(), CusparseStatus> {
            put_bytes(size, i64::from(elements.max(0)) * 16);
            Ok(())
        }
    )*};
}
sorts! { cusparseXcoosort_bufferSizeExt cusparseXcsrsort_bufferSizeExt cusparseXcscsort_bufferSizeExt }

/// The first step of a product: without a buffer it says how large one must be.
pub fn cusparseSpGEMM_workEstimation(
    _handle: *mut c_void,
    _op_a: c_int,
    _op_b: c_int,
    _alpha: Ptr,
    a: Matrix<'_>,
    b: Matrix<'_>,
    _beta: Ptr,
    _c: Ptr,
    _compute: c_int,
    _alg: c_int,
    descriptor: InOut<'_, i64>,
    size: Size<'_>,
    buffer: Ptr,
) -> Result<(), CusparseStatus> {
    let (a, b) = (known(&a)?, known(&b)?);
    descriptor.set(products(a, b));
    if buffer.is_null() {
        put_bytes(size, a.rows.saturating_add(a.elements).saturating_mul(8));
    }
    Ok(())
}

/// How many terms the product has.
pub fn cusparseSpGEMM_getNumProducts(descriptor: InOut<'_, i64>, count: Out<'_, i64>) -> Result<(), CusparseStatus> {
    count.set(descriptor.get().ok_or(CusparseStatus::INVALID_VALUE)?);
    Ok(())
}

/// The second step: the terms before they are added up. From here on the product has a number of elements.
pub fn cusparseSpGEMM_compute(
    _handle: *mut c_void,
    _op_a: c_int,
    _op_b: c_int,
    _alpha: Ptr,
    a: Matrix<'_>,
    b: Matrix<'_>,
    _beta: Ptr,
    mut c: Matrix<'_>,
    _compute: c_int,
    _alg: c_int,
    _descriptor: Ptr,
    size: Size<'_>,
    buffer: Ptr,
) -> Result<(), CusparseStatus> {
    // The factors are looked at before the product is changed, because a program may name one descriptor twice.
    let (first, second) = (known(&a)?, known(&b)?);
    let terms = products(first, second);
    let each = first.index_bytes().saturating_add(first.value_bytes());
    let product = change(&mut c)?;
    if buffer.is_null() {
        put_bytes(size, terms.saturating_mul(each));
    } else {
        product.elements = terms.min(product.rows.saturating_mul(product.columns));
        guessed();
    }
    Ok(())
}

/// The sum's elements: both matrices' together, at most all there can be.
pub fn cusparseXcsrgeam2Nnz(
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
    total: Out<'_, c_int>,
    _workspace: Ptr,
) -> Result<(), CusparseStatus> {
    let most = i64::from(m.max(0)) * i64::from(n.max(0));
    let elements = (i64::from(a_elements) + i64::from(b_elements)).min(most);
    // The number may be wanted on the device, which is host memory here.
    total.set(c_int::try_from(elements).unwrap_or(c_int::MAX));
    guessed();
    Ok(())
}

fn guessed() {
    gpu().warn(
        "The size of a sum or product of sparse matrices depends on values that were not computed; it was estimated.",
    );
}

/// Makes a handle. What the library allocates for one is not documented, so nothing is charged.
pub fn cusparseCreate(out: Out<'_, *mut c_void>) -> Result<(), CusparseStatus> {
    device::activate_current().map_err(|_| CusparseStatus::NOT_INITIALIZED)?;
    out.set(gpu().handles.fresh());
    Ok(())
}

/// The version in one number: 12510 for 12.5.10.
pub fn cusparseGetVersion(_handle: *mut c_void, value: Out<'_, c_int>) -> Result<(), CusparseStatus> {
    let [major, minor, patch] = version();
    value.set(major * 1000 + minor * 100 + patch);
    Ok(())
}

/// One part of the version.
pub fn cusparseGetProperty(kind: c_int, value: Out<'_, c_int>) -> Result<(), CusparseStatus> {
    value.set(property(version(), kind).ok_or(CusparseStatus::INVALID_VALUE)?);
    Ok(())
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
