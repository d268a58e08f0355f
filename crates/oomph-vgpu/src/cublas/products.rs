//! The products of matrices that frameworks call. Nothing is computed; what would be is counted (`crate::work`).

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use super::{Context, CublasStatus, known};
use crate::boundary::Handle;
use crate::gpu::gpu;
use crate::work::{Number, Product};

/// `CUBLAS_TF32_TENSOR_OP_MATH`.
const TF32_MATH: i32 = 3;
/// `CUBLAS_COMPUTE_32F_FAST_TF32`.
#[cfg(test)]
const COMPUTE_TF32: c_int = 77;
/// `CUDA_R_32F` and `CUDA_R_64F`.
const FLOAT: c_int = 0;
const DOUBLE: c_int = 1;

/// Whether a compute type lets 32-bit products use tensor cores.
pub fn allows_tensor_cores(compute: u64) -> bool {
    // The faster ones of `cublasComputeType_t`: 16-bit, 16-bit brain floats, TF32.
    (74..=77).contains(&compute)
}

/// Counts products whose operands have these `cudaDataType_t`s.
fn count(
    handle: &Handle<'_, Context>,
    sides: [i64; 4],
    [a, b, c]: [c_int; 3],
    compute: c_int,
) -> Result<(), CublasStatus> {
    let handle = known(handle)?;
    let tensor = allows_tensor_cores(compute as u64) || handle.math_mode.load(Ordering::Relaxed) & 15 == TF32_MATH;
    let (number, size) = Number::of_cuda(a as u64, tensor);
    let sides = sides.map(|side| u64::try_from(side).unwrap_or(0));
    let size_of = |kind: c_int| Number::of_cuda(kind as u64, tensor).1;
    gpu().work.product(Product::of_matrices(number, sides, [size, size_of(b), size_of(c)]));
    Ok(())
}

/// Defines one form of the multiplication. `number` is the type of its sizes; a form has types of its own, or one for all.
macro_rules! product {
    ($name:ident, $number:ty, $kind:expr $(, $stride:ident)? ; $($batch:ident)?) => {
        /// A product of matrices of one type.
        pub fn $name(
            handle: Handle<'_, Context>, _ta: c_int, _tb: c_int, m: $number, n: $number, k: $number, _alpha: *const c_void,
            _a: *const c_void, _lda: $number, $(_sa: product!(@ $stride),)? _b: *const c_void, _ldb: $number,
            $(_sb: product!(@ $stride),)? _beta: *const c_void, _c: *mut c_void, _ldc: $number,
            $(_sc: product!(@ $stride),)? $($batch: $number,)?
        ) -> Result<(), CublasStatus> {
            let batch: i64 = { 1_i64 $(; i64::from($batch))? };
            count(&handle, [m.into(), n.into(), k.into(), batch], [$kind; 3], 0)
        }
    };
    (@ strided) => { i64 };
}
product!(cublasSgemm_v2, i32, FLOAT;);
product!(cublasSgemm_v2_64, i64, FLOAT;);
product!(cublasDgemm_v2, i32, DOUBLE;);
product!(cublasDgemm_v2_64, i64, DOUBLE;);
product!(cublasSgemmBatched, i32, FLOAT; batch);
product!(cublasDgemmBatched, i32, DOUBLE; batch);
product!(cublasSgemmStridedBatched, i32, FLOAT, strided; batch);
product!(cublasSgemmStridedBatched_64, i64, FLOAT, strided; batch);
product!(cublasDgemmStridedBatched, i32, DOUBLE, strided; batch);
product!(cublasDgemmStridedBatched_64, i64, DOUBLE, strided; batch);

/// Defines one form of the multiplication whose operands have types of their own.
macro_rules! product_of_types {
    ($name:ident, $number:ty $(, $stride:ident)? ; $($batch:ident)?) => {
        /// A product of matrices whose types are given.
        pub fn $name(
            handle: Handle<'_, Context>, _ta: c_int, _tb: c_int, m: $number, n: $number, k: $number, _alpha: *const c_void,
            _a: *const c_void, a: c_int, _lda: $number, $(_sa: product!(@ $stride),)? _b: *const c_void, b: c_int,
            _ldb: $number, $(_sb: product!(@ $stride),)? _beta: *const c_void, _c: *mut c_void, c: c_int,
            _ldc: $number, $(_sc: product!(@ $stride),)? $($batch: $number,)? compute: c_int, _algorithm: c_int,
        ) -> Result<(), CublasStatus> {
            let batch: i64 = { 1_i64 $(; i64::from($batch))? };
            count(&handle, [m.into(), n.into(), k.into(), batch], [a, b, c], compute)
        }
    };
}
product_of_types!(cublasGemmEx, i32;);
product_of_types!(cublasGemmEx_64, i64;);
product_of_types!(cublasGemmBatchedEx, i32; batch);
product_of_types!(cublasGemmStridedBatchedEx, i32, strided; batch);
product_of_types!(cublasGemmStridedBatchedEx_64, i64, strided; batch);

/// A product of matrices whose types are given, computed in 32 bits.
pub fn cublasSgemmEx(
    handle: Handle<'_, Context>,
    _ta: c_int,
    _tb: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    _alpha: *const c_void,
    _a: *const c_void,
    a: c_int,
    _lda: c_int,
    _b: *const c_void,
    b: c_int,
    _ldb: c_int,
    _beta: *const c_void,
    _c: *mut c_void,
    c: c_int,
    _ldc: c_int,
) -> Result<(), CublasStatus> {
    count(&handle, [m.into(), n.into(), k.into(), 1], [a, b, c], 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensor_cores_are_for_the_faster_compute_types() {
        assert!(allows_tensor_cores(COMPUTE_TF32 as u64));
        assert!(!allows_tensor_cores(68), "CUBLAS_COMPUTE_32F");
        assert_eq!(Number::of_cuda(0, true), (Number::Tf32, 4));
        assert_eq!(Number::of_cuda(14, false), (Number::F16, 2));
    }
}
