//! cuBLASLt: descriptors that answer with what was set on them, and heuristics that always find an algorithm.
//!
//! A descriptor lives in memory that the program sees (`cublasLtMatmulDescOpaque_t` and its kin, which it may make
//! itself and have initialized), so everything that is remembered lies inside that memory, at fixed places.
//!
//! The one algorithm that is found needs no workspace. PyTorch and bitsandbytes allocate theirs before they ask, and of
//! a size of their own, so that nothing is missing there; XLA takes what the algorithm asks for.
#![allow(clippy::too_many_arguments, reason = "the parameters are those of cuBLASLt's header")]

mod attributes;

use std::ffi::{CStr, c_int, c_void};

use crate::boundary::{Items, Memory, Out, Room};
use crate::cublas::CublasStatus;
use crate::cublas::products::allows_tensor_cores;
use crate::cublas::versions::{library_version, property, runtime_number};
use crate::cublaslt::attributes::{
    ALGORITHM, ALGORITHM_BYTES, EMULATION, FIRST_MATMUL_BYTES, LAYOUT, MATMUL, MATMUL_BYTES, PREFERENCE, SMALL_BYTES,
    TRANSFORM, create, destroy, get, initialize, set, set_number,
};
use crate::device;
use crate::gpu::gpu;
use crate::work::{Number, Product};

library_version!(CublasLt, "libcublasLt.so.", "cublas", [11, 11, 3], [12, 9, 1], [13, 10, 0]);

/// Size of `cublasLtMatmulHeuristicResult_t`.
const RESULT_BYTES: usize = 96;

const MATMUL_WORDS: usize = MATMUL_BYTES / 8;
const SMALL_WORDS: usize = SMALL_BYTES / 8;

/// Makes a handle; it has no state.
pub fn cublasLtCreate(out: Out<'_, *mut c_void>) -> Result<(), CublasStatus> {
    device::activate_current().map_err(|_| CublasStatus::NOT_INITIALIZED)?;
    out.set(gpu().handles.fresh());
    Ok(())
}

/// The version in one number: 120901 for 12.9.1.
pub fn cublasLtGetVersion() -> usize {
    let [major, minor, patch] = version().map(|part| usize::try_from(part).unwrap_or(0));
    major * 10_000 + minor * 100 + patch
}

/// The CUDA runtime that cuBLASLt was built for.
pub fn cublasLtGetCudartVersion() -> usize {
    runtime_number()
}

/// One part of the version.
pub fn cublasLtGetProperty(kind: c_int, value: Out<'_, c_int>) -> Result<(), CublasStatus> {
    value.set(property(version(), kind).ok_or(CublasStatus::INVALID_VALUE)?);
    Ok(())
}

/// The name of a status, which cuBLASLt shares with cuBLAS.
pub fn cublasLtGetStatusName(status: c_int) -> &'static CStr {
    crate::cublas::cublasGetStatusName(status)
}

/// What a status means.
pub fn cublasLtGetStatusString(status: c_int) -> &'static CStr {
    crate::cublas::cublasGetStatusString(status)
}

/// Defines the functions that set and get a descriptor's attributes.
macro_rules! attributes {
    ($table:ident, $set:ident, $get:ident) => {
        /// Sets an attribute.
        pub fn $set(at: Memory<'_>, number: c_int, from: Items<'_, u8>, _given: usize) -> Result<(), CublasStatus> {
            set(&$table, at, number, from)
        }

        /// Reads an attribute.
        pub fn $get(
            at: Memory<'_>,
            number: c_int,
            to: Room<'_, u8>,
            _room: usize,
            written: Out<'_, usize>,
        ) -> Result<(), CublasStatus> {
            get(&$table, at, number, to, written)
        }
    };
}
attributes!(MATMUL, cublasLtMatmulDescSetAttribute, cublasLtMatmulDescGetAttribute);
attributes!(LAYOUT, cublasLtMatrixLayoutSetAttribute, cublasLtMatrixLayoutGetAttribute);
attributes!(PREFERENCE, cublasLtMatmulPreferenceSetAttribute, cublasLtMatmulPreferenceGetAttribute);
attributes!(TRANSFORM, cublasLtMatrixTransformDescSetAttribute, cublasLtMatrixTransformDescGetAttribute);
attributes!(EMULATION, cublasLtEmulationDescSetAttribute, cublasLtEmulationDescGetAttribute);
attributes!(ALGORITHM, cublasLtMatmulAlgoConfigSetAttribute, cublasLtMatmulAlgoConfigGetAttribute);

/// Makes a description of a multiplication.
pub fn cublasLtMatmulDescCreate(out: Out<'_, *mut c_void>, compute: c_int, scale: c_int) -> Result<(), CublasStatus> {
    create::<MATMUL_WORDS>(out, |at| cublasLtMatmulDescInit_internal(at, MATMUL_BYTES, compute, scale))
}

/// Initializes a description of a multiplication in the program's memory.
pub fn cublasLtMatmulDescInit_internal(
    at: Memory<'_>,
    size: usize,
    compute: c_int,
    scale: c_int,
) -> Result<(), CublasStatus> {
    if at.is_null() || size < FIRST_MATMUL_BYTES {
        return Err(CublasStatus::INVALID_VALUE);
    }
    // SAFETY: cuBLASLt's contract: `size` bytes may be written. A program with the smaller structure of an older CUDA
    // knows only the attributes that lie inside it.
    unsafe { initialize(&MATMUL, at, size.min(MATMUL_BYTES)) };
    set_number(&MATMUL, at, 0, compute as u64);
    set_number(&MATMUL, at, 1, scale as u64);
    Ok(())
}

/// Ends a description of a multiplication.
pub fn cublasLtMatmulDescDestroy(at: Memory<'_>) -> Result<(), CublasStatus> {
    destroy::<MATMUL_WORDS>(at)
}

/// Makes a matrix layout.
pub fn cublasLtMatrixLayoutCreate(
    out: Out<'_, *mut c_void>,
    kind: c_int,
    rows: u64,
    columns: u64,
    ld: i64,
) -> Result<(), CublasStatus> {
    create::<SMALL_WORDS>(out, |at| cublasLtMatrixLayoutInit_internal(at, SMALL_BYTES, kind, rows, columns, ld))
}

/// Initializes a matrix layout in the program's memory.
pub fn cublasLtMatrixLayoutInit_internal(
    at: Memory<'_>,
    size: usize,
    kind: c_int,
    rows: u64,
    columns: u64,
    ld: i64,
) -> Result<(), CublasStatus> {
    if at.is_null() || size < SMALL_BYTES {
        return Err(CublasStatus::INVALID_VALUE);
    }
    // SAFETY: cuBLASLt's contract: `size` bytes may be written.
    unsafe { initialize(&LAYOUT, at, SMALL_BYTES) };
    for (number, value) in [(0, kind as u64), (2, rows), (3, columns), (4, ld as u64)] {
        set_number(&LAYOUT, at, number, value);
    }
    Ok(())
}

/// Ends a matrix layout.
pub fn cublasLtMatrixLayoutDestroy(at: Memory<'_>) -> Result<(), CublasStatus> {
    destroy::<SMALL_WORDS>(at)
}

/// Makes the layout of a group of matrices. The groups' sizes are arrays on the device, so they are not remembered.
pub fn cublasLtGroupedMatrixLayoutCreate(
    out: Out<'_, *mut c_void>,
    kind: c_int,
    _groups: c_int,
    _rows: *const c_void,
    _columns: *const c_void,
    _ld: *const c_void,
) -> Result<(), CublasStatus> {
    cublasLtMatrixLayoutCreate(out, kind, 0, 0, 0)
}

/// Initializes the layout of a group of matrices in the program's memory.
pub fn cublasLtGroupedMatrixLayoutInit_internal(
    at: Memory<'_>,
    size: usize,
    kind: c_int,
    _groups: c_int,
    _rows: *const c_void,
    _columns: *const c_void,
    _ld: *const c_void,
) -> Result<(), CublasStatus> {
    cublasLtMatrixLayoutInit_internal(at, size, kind, 0, 0, 0)
}

/// Defines the functions that make, initialize and end a descriptor whose first attribute may be given.
macro_rules! small {
    ($table:ident, $create:ident, $init:ident, $destroy:ident $(, $first:ident)?) => {
        /// Makes a descriptor.
        pub fn $create(out: Out<'_, *mut c_void> $(, $first: c_int)?) -> Result<(), CublasStatus> {
            create::<SMALL_WORDS>(out, |at| $init(at, SMALL_BYTES $(, $first)?))
        }

        /// Initializes a descriptor in the program's memory.
        pub fn $init(at: Memory<'_>, size: usize $(, $first: c_int)?) -> Result<(), CublasStatus> {
            if at.is_null() {
                return Err(CublasStatus::INVALID_VALUE);
            }
            // SAFETY: cuBLASLt's contract: `size` bytes may be written; attributes beyond them are left out.
            unsafe { initialize(&$table, at, size.min(SMALL_BYTES)) };
            $(set_number(&$table, at, 0, $first as u64);)?
            Ok(())
        }

        /// Ends a descriptor.
        pub fn $destroy(at: Memory<'_>) -> Result<(), CublasStatus> {
            destroy::<SMALL_WORDS>(at)
        }
    };
}
small!(
    PREFERENCE,
    cublasLtMatmulPreferenceCreate,
    cublasLtMatmulPreferenceInit_internal,
    cublasLtMatmulPreferenceDestroy
);
small!(EMULATION, cublasLtEmulationDescCreate, cublasLtEmulationDescInit_internal, cublasLtEmulationDescDestroy);
small!(
    TRANSFORM,
    cublasLtMatrixTransformDescCreate,
    cublasLtMatrixTransformDescInit_internal,
    cublasLtMatrixTransformDescDestroy,
    scale
);

/// A product of matrices: counted, not computed.
pub fn cublasLtMatmul(
    _handle: *mut c_void,
    operation: Memory<'_>,
    _alpha: *const c_void,
    _a: *const c_void,
    a: Memory<'_>,
    _b: *const c_void,
    b: Memory<'_>,
    _beta: *const c_void,
    _c: *const c_void,
    _c_layout: *const c_void,
    _d: *mut c_void,
    d: Memory<'_>,
    _algorithm: *const c_void,
    _workspace: *mut c_void,
    _size: usize,
    _stream: *mut c_void,
) -> Result<(), CublasStatus> {
    if operation.is_null() || a.is_null() || b.is_null() || d.is_null() {
        return Err(CublasStatus::INVALID_VALUE);
    }
    // Attributes 0 of a multiplication and 3 are its compute type and whether A is transposed; those of a layout are in the
    // order of `LAYOUT`.
    let operation_of = |place| number_of(&MATMUL, operation, place);
    let tensor = allows_tensor_cores(operation_of(0));
    let layout = |at, place| number_of(&LAYOUT, at, place);
    let (rows, columns) = (layout(a, 2), layout(a, 3));
    let depth = if operation_of(3) == 0 { columns } else { rows };
    let sides = [layout(d, 2), layout(d, 3), depth, layout(d, 5).max(1)];
    let (number, size) = Number::of_cuda(layout(a, 0), tensor);
    let size_of = |at| Number::of_cuda(layout(at, 0), tensor).1;
    gpu().work.product(Product::of_matrices(number, sides, [size, size_of(b), size_of(d)]));
    Ok(())
}

/// An attribute that is a number of 4 or 8 bytes; 0 where the descriptor has no such.
fn number_of(table: &[attributes::Attribute], at: Memory<'_>, number: c_int) -> u64 {
    // Of the 8 bytes 4 stay zero where the attribute has 4.
    let mut value = [0; 8];
    match get(table, at, number, Room::to(&mut value), Out::null()) {
        Ok(()) => u64::from_le_bytes(value),
        Err(_) => 0,
    }
}

/// Writes a result: the algorithm, no workspace, success, one wave.
fn write_result(result: Memory<'_>, algorithm: Option<Memory<'_>>) {
    let at = result.address().cast::<u8>();
    // SAFETY: cuBLASLt's contract: the structure may be written, and an algorithm is one that was initialized. The
    // fields are the algorithm (64 bytes), the workspace (8), the state (4), the waves (4) and reserved ones (16).
    unsafe {
        at.write_bytes(0, RESULT_BYTES);
        match algorithm {
            Some(known) => std::ptr::copy_nonoverlapping(known.address().cast::<u8>(), at, ALGORITHM_BYTES),
            None => initialize(&ALGORITHM, result, ALGORITHM_BYTES),
        }
        at.add(76).cast::<f32>().write_unaligned(1.0);
    }
}

/// Finds algorithms: always one.
pub fn cublasLtMatmulAlgoGetHeuristic(
    _handle: *mut c_void,
    operation: *mut c_void,
    _a: *mut c_void,
    _b: *mut c_void,
    _c: *mut c_void,
    _d: *mut c_void,
    preference: *mut c_void,
    requested: c_int,
    results: Memory<'_>,
    returned: Out<'_, c_int>,
) -> Result<(), CublasStatus> {
    if operation.is_null() || preference.is_null() || results.is_null() || returned.is_null() || requested < 1 {
        return Err(CublasStatus::INVALID_VALUE);
    }
    write_result(results, None);
    returned.set(1);
    Ok(())
}

/// Finds algorithms for a stream's resources.
pub fn cublasLtMatmulAlgoGetHeuristicForStream(
    handle: *mut c_void,
    operation: *mut c_void,
    a: *mut c_void,
    b: *mut c_void,
    c: *mut c_void,
    d: *mut c_void,
    preference: *mut c_void,
    requested: c_int,
    results: Memory<'_>,
    returned: Out<'_, c_int>,
    _stream: *mut c_void,
) -> Result<(), CublasStatus> {
    cublasLtMatmulAlgoGetHeuristic(handle, operation, a, b, c, d, preference, requested, results, returned)
}

/// Checks an algorithm: it can do everything.
pub fn cublasLtMatmulAlgoCheck(
    _handle: *mut c_void,
    _operation: *mut c_void,
    _a: *mut c_void,
    _b: *mut c_void,
    _c: *mut c_void,
    _d: *mut c_void,
    algorithm: Memory<'_>,
    result: Memory<'_>,
) -> Result<(), CublasStatus> {
    if algorithm.is_null() || result.is_null() {
        return Err(CublasStatus::INVALID_VALUE);
    }
    write_result(result, Some(algorithm));
    Ok(())
}

/// Checks an algorithm for a stream's resources.
pub fn cublasLtMatmulAlgoCheckForStream(
    handle: *mut c_void,
    operation: *mut c_void,
    a: *mut c_void,
    b: *mut c_void,
    c: *mut c_void,
    d: *mut c_void,
    algorithm: Memory<'_>,
    result: Memory<'_>,
    _stream: *mut c_void,
) -> Result<(), CublasStatus> {
    cublasLtMatmulAlgoCheck(handle, operation, a, b, c, d, algorithm, result)
}

/// Lists the algorithms: number 0.
pub fn cublasLtMatmulAlgoGetIds(
    _handle: *mut c_void,
    _compute: c_int,
    _scale: c_int,
    _a: c_int,
    _b: c_int,
    _c: c_int,
    _d: c_int,
    requested: c_int,
    ids: Room<'_, c_int>,
    returned: Out<'_, c_int>,
) -> Result<(), CublasStatus> {
    if requested < 1 {
        return Err(CublasStatus::INVALID_VALUE);
    }
    ids.set(0, 0);
    returned.set(1);
    Ok(())
}

/// Initializes an algorithm by its number.
pub fn cublasLtMatmulAlgoInit(
    _handle: *mut c_void,
    _compute: c_int,
    _scale: c_int,
    _a: c_int,
    _b: c_int,
    _c: c_int,
    _d: c_int,
    id: c_int,
    algorithm: Memory<'_>,
) -> Result<(), CublasStatus> {
    if algorithm.is_null() {
        return Err(CublasStatus::INVALID_VALUE);
    }
    // SAFETY: cuBLASLt's contract: a `cublasLtMatmulAlgo_t` that may be written.
    unsafe { initialize(&ALGORITHM, algorithm, ALGORITHM_BYTES) };
    set_number(&ALGORITHM, algorithm, 0, id as u64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundary::{Any, pass};

    #[test]
    fn a_descriptor_answers_with_what_was_set() {
        let mut made = std::ptr::null_mut();
        assert_eq!(cublasLtMatrixLayoutCreate(Out::to(&mut made), 14, 128, 64, 128), Ok(()));
        // SAFETY: the layout is destroyed last.
        let at: Memory = unsafe { pass::<Any, _>(made) };
        let stride = 8192_i64.to_ne_bytes();
        assert_eq!(cublasLtMatrixLayoutSetAttribute(at, 6, Items::of(&stride), 8), Ok(()));
        let short = cublasLtMatrixLayoutSetAttribute(at, 6, Items::of(&stride[..4]), 4);
        assert_eq!(short, Err(CublasStatus::INVALID_VALUE));
        let mut written = 0;
        for (number, expected) in [(0, 14), (2, 128), (3, 64), (4, 128), (5, 1), (6, 8192)] {
            let mut value = [0; 8];
            let to = (Room::to(&mut value), Out::to(&mut written));
            assert_eq!(cublasLtMatrixLayoutGetAttribute(at, number, to.0, 8, to.1), Ok(()));
            assert_eq!(u64::from_ne_bytes(value), expected, "attribute {number}");
        }
        let asked = cublasLtMatrixLayoutGetAttribute(at, 2, Room::null(0), 0, Out::to(&mut written));
        assert_eq!((asked, written), (Ok(()), 8));
        let mut small = [0; 4];
        let refused = cublasLtMatrixLayoutGetAttribute(at, 2, Room::to(&mut small), 4, Out::to(&mut written));
        assert_eq!(refused, Err(CublasStatus::INVALID_VALUE));
        assert_eq!(cublasLtMatrixLayoutDestroy(at), Ok(()));
    }

    #[test]
    fn a_heuristic_finds_one_algorithm() {
        let mut results = [0xff_u8; 2 * RESULT_BYTES];
        let mut returned = 0;
        let none = std::ptr::null_mut();
        // The operation and the preference are only compared with null.
        let operation = std::ptr::dangling_mut::<c_void>();
        let status = cublasLtMatmulAlgoGetHeuristic(
            none,
            operation,
            none,
            none,
            none,
            none,
            operation,
            2,
            Memory::to(&mut results),
            Out::to(&mut returned),
        );
        assert_eq!((status, returned), (Ok(()), 1));
        assert_eq!(results[64..76], [0; 12], "no workspace, and success");
        assert_eq!(results[76..80], 1.0_f32.to_le_bytes());
        assert_eq!(results[RESULT_BYTES], 0xff, "only one result is written");
    }
}
