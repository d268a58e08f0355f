//! cuBLASLt: descriptors that answer with what was set on them, and heuristics that always find an algorithm.
//!
//! A descriptor lives in memory that the program sees (`cublasLtMatmulDescOpaque_t` and its kin, which it may make
//! itself and have initialized), so everything that is remembered lies inside that memory, at fixed places.
//!
//! The one algorithm that is found needs no workspace. PyTorch and bitsandbytes allocate theirs before they ask, and of
//! a size of their own, so that nothing is missing there; XLA takes what the algorithm asks for.
#![allow(clippy::missing_safety_doc, clippy::too_many_arguments)]

mod attributes;

use std::ffi::{CStr, c_int, c_void};

use crate::cublas::products::allows_tensor_cores;
use crate::cublas::versions::{library_version, property, put, runtime_number};
use crate::cublaslt::attributes::{
    ALGORITHM, ALGORITHM_BYTES, EMULATION, FIRST_MATMUL_BYTES, LAYOUT, MATMUL, MATMUL_BYTES, PREFERENCE, SMALL_BYTES,
    TRANSFORM, create, destroy, get, initialize, set, set_number,
};
use crate::device;
use crate::work::{self, Number, Product};

const SUCCESS: u32 = 0;
const NOT_INITIALIZED: u32 = 1;
const INVALID_VALUE: u32 = 7;

library_version!("libcublasLt.so.", "cublas", [11, 11, 3], [12, 9, 1], [13, 10, 0]);

/// Size of `cublasLtMatmulHeuristicResult_t`.
const RESULT_BYTES: usize = 96;

const MATMUL_WORDS: usize = MATMUL_BYTES / 8;
const SMALL_WORDS: usize = SMALL_BYTES / 8;

/// Makes a handle; it has no state.
pub unsafe fn cublasLtCreate(out: *mut *mut c_void) -> u32 {
    if device::activate_current().is_err() {
        return NOT_INITIALIZED;
    }
    // SAFETY: cuBLASLt's contract: an out-parameter that may be written.
    unsafe { put(out, crate::handle::fresh()) };
    SUCCESS
}

/// The version in one number: 120901 for 12.9.1.
pub unsafe fn cublasLtGetVersion() -> usize {
    let [major, minor, patch] = version().map(|part| usize::try_from(part).unwrap_or(0));
    major * 10_000 + minor * 100 + patch
}

/// The CUDA runtime that cuBLASLt was built for.
pub unsafe fn cublasLtGetCudartVersion() -> usize {
    runtime_number()
}

/// One part of the version.
pub unsafe fn cublasLtGetProperty(kind: c_int, value: *mut c_int) -> u32 {
    let Some(part) = property(version(), kind) else { return INVALID_VALUE };
    // SAFETY: cuBLASLt's contract: an out-parameter that may be written.
    unsafe { put(value, part) };
    SUCCESS
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
        pub unsafe fn $set(at: *mut c_void, number: c_int, from: *const c_void, given: usize) -> u32 {
            // SAFETY: cuBLASLt's contract is that of `set`.
            unsafe { set(&$table, at, number, from, given) }
        }

        /// Reads an attribute.
        pub unsafe fn $get(at: *const c_void, number: c_int, to: *mut c_void, room: usize, written: *mut usize) -> u32 {
            // SAFETY: cuBLASLt's contract is that of `get`.
            unsafe { get(&$table, at, number, to, room, written) }
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
pub unsafe fn cublasLtMatmulDescCreate(out: *mut *mut c_void, compute: c_int, scale: c_int) -> u32 {
    // SAFETY: cuBLASLt's contract is that of `create`; what it made has room for its attributes.
    unsafe {
        match create::<MATMUL_WORDS>(out, &MATMUL) {
            Ok(at) => cublasLtMatmulDescInit_internal(at, MATMUL_BYTES, compute, scale),
            Err(status) => status,
        }
    }
}

/// Initializes a description of a multiplication in the program's memory.
pub unsafe fn cublasLtMatmulDescInit_internal(at: *mut c_void, size: usize, compute: c_int, scale: c_int) -> u32 {
    if at.is_null() || size < FIRST_MATMUL_BYTES {
        return INVALID_VALUE;
    }
    // SAFETY: cuBLASLt's contract: `size` bytes may be written. A program with the smaller structure of an older CUDA
    // knows only the attributes that lie inside it.
    unsafe {
        initialize(&MATMUL, at, size.min(MATMUL_BYTES));
        set_number(&MATMUL, at, 0, compute as u64);
        set_number(&MATMUL, at, 1, scale as u64);
    }
    SUCCESS
}

/// Ends a description of a multiplication.
pub unsafe fn cublasLtMatmulDescDestroy(at: *mut c_void) -> u32 {
    // SAFETY: cuBLASLt's contract is that of `destroy`.
    unsafe { destroy::<MATMUL_WORDS>(at) }
}

/// Makes a matrix layout.
pub unsafe fn cublasLtMatrixLayoutCreate(out: *mut *mut c_void, kind: c_int, rows: u64, columns: u64, ld: i64) -> u32 {
    // SAFETY: cuBLASLt's contract is that of `create`; what it made has room for its attributes.
    unsafe {
        match create::<SMALL_WORDS>(out, &LAYOUT) {
            Ok(at) => cublasLtMatrixLayoutInit_internal(at, SMALL_BYTES, kind, rows, columns, ld),
            Err(status) => status,
        }
    }
}

/// Initializes a matrix layout in the program's memory.
pub unsafe fn cublasLtMatrixLayoutInit_internal(
    at: *mut c_void,
    size: usize,
    kind: c_int,
    rows: u64,
    columns: u64,
    ld: i64,
) -> u32 {
    if at.is_null() || size < SMALL_BYTES {
        return INVALID_VALUE;
    }
    // SAFETY: cuBLASLt's contract: `size` bytes may be written.
    unsafe {
        initialize(&LAYOUT, at, SMALL_BYTES);
        for (number, value) in [(0, kind as u64), (2, rows), (3, columns), (4, ld as u64)] {
            set_number(&LAYOUT, at, number, value);
        }
    }
    SUCCESS
}

/// Ends a matrix layout.
pub unsafe fn cublasLtMatrixLayoutDestroy(at: *mut c_void) -> u32 {
    // SAFETY: cuBLASLt's contract is that of `destroy`.
    unsafe { destroy::<SMALL_WORDS>(at) }
}

/// Makes the layout of a group of matrices. The groups' sizes are arrays on the device, so they are not remembered.
pub unsafe fn cublasLtGroupedMatrixLayoutCreate(
    out: *mut *mut c_void,
    kind: c_int,
    _groups: c_int,
    _rows: *const c_void,
    _columns: *const c_void,
    _ld: *const c_void,
) -> u32 {
    // SAFETY: cuBLASLt's contract is that of `cublasLtMatrixLayoutCreate`.
    unsafe { cublasLtMatrixLayoutCreate(out, kind, 0, 0, 0) }
}

/// Initializes the layout of a group of matrices in the program's memory.
pub unsafe fn cublasLtGroupedMatrixLayoutInit_internal(
    at: *mut c_void,
    size: usize,
    kind: c_int,
    _groups: c_int,
    _rows: *const c_void,
    _columns: *const c_void,
    _ld: *const c_void,
) -> u32 {
    // SAFETY: cuBLASLt's contract is that of `cublasLtMatrixLayoutInit_internal`.
    unsafe { cublasLtMatrixLayoutInit_internal(at, size, kind, 0, 0, 0) }
}

/// Defines the functions that make, initialize and end a descriptor whose first attribute may be given.
macro_rules! small {
    ($table:ident, $create:ident, $init:ident, $destroy:ident $(, $first:ident)?) => {
        /// Makes a descriptor.
        pub unsafe fn $create(out: *mut *mut c_void $(, $first: c_int)?) -> u32 {
            // SAFETY: cuBLASLt's contract is that of `create`; what it made has room for its attributes.
            unsafe {
                match create::<SMALL_WORDS>(out, &$table) {
                    Ok(at) => $init(at, SMALL_BYTES $(, $first)?),
                    Err(status) => status,
                }
            }
        }

        /// Initializes a descriptor in the program's memory.
        pub unsafe fn $init(at: *mut c_void, size: usize $(, $first: c_int)?) -> u32 {
            if at.is_null() {
                return INVALID_VALUE;
            }
            // SAFETY: cuBLASLt's contract: `size` bytes may be written; attributes beyond them are left out.
            unsafe {
                initialize(&$table, at, size.min(SMALL_BYTES));
                $(set_number(&$table, at, 0, $first as u64);)?
            }
            SUCCESS
        }

        /// Ends a descriptor.
        pub unsafe fn $destroy(at: *mut c_void) -> u32 {
            // SAFETY: cuBLASLt's contract is that of `destroy`.
            unsafe { destroy::<SMALL_WORDS>(at) }
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
pub unsafe fn cublasLtMatmul(
    _handle: *mut c_void,
    operation: *const c_void,
    _alpha: *const c_void,
    _a: *const c_void,
    a: *const c_void,
    _b: *const c_void,
    b: *const c_void,
    _beta: *const c_void,
    _c: *const c_void,
    _c_layout: *const c_void,
    _d: *mut c_void,
    d: *const c_void,
    _algorithm: *const c_void,
    _workspace: *mut c_void,
    _size: usize,
    _stream: *mut c_void,
) -> u32 {
    if operation.is_null() || a.is_null() || b.is_null() || d.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: cuBLASLt's contract: descriptors that were initialized. Attributes 0 of a multiplication and 3 are its compute
    // type and whether A is transposed; those of a layout are in the order of `LAYOUT`.
    unsafe {
        let operation_of = |place| number_of(&MATMUL, operation, place);
        let tensor = allows_tensor_cores(operation_of(0));
        let layout = |at, place| number_of(&LAYOUT, at, place);
        let (rows, columns) = (layout(a, 2), layout(a, 3));
        let depth = if operation_of(3) == 0 { columns } else { rows };
        let sides = [layout(d, 2), layout(d, 3), depth, layout(d, 5).max(1)];
        let (number, size) = Number::of_cuda(layout(a, 0), tensor);
        let size_of = |at| Number::of_cuda(layout(at, 0), tensor).1;
        work::product(Product::of_matrices(number, sides, [size, size_of(b), size_of(d)]));
    }
    SUCCESS
}

/// An attribute that is a number of 4 or 8 bytes; 0 where the descriptor has no such.
///
/// # Safety
/// The descriptor is one of this table's.
unsafe fn number_of(table: &[attributes::Attribute], at: *const c_void, number: c_int) -> u64 {
    let mut value = 0_u64;
    // SAFETY: the caller's promise; there is room for 8 bytes, of which 4 stay zero where the attribute has 4.
    let status = unsafe { get(table, at, number, (&raw mut value).cast(), 8, std::ptr::null_mut()) };
    if status == SUCCESS { value } else { 0 }
}

/// Writes a result: the algorithm, no workspace, success, one wave.
unsafe fn write_result(result: *mut u8, algorithm: Option<*const c_void>) {
    // SAFETY: cuBLASLt's contract: the structure may be written, and an algorithm is one that was initialized. The
    // fields are the algorithm (64 bytes), the workspace (8), the state (4), the waves (4) and reserved ones (16).
    unsafe {
        result.write_bytes(0, RESULT_BYTES);
        match algorithm {
            Some(known) => std::ptr::copy_nonoverlapping(known.cast::<u8>(), result, ALGORITHM_BYTES),
            None => initialize(&ALGORITHM, result.cast(), ALGORITHM_BYTES),
        }
        result.add(76).cast::<f32>().write_unaligned(1.0);
    }
}

/// Finds algorithms: always one.
pub unsafe fn cublasLtMatmulAlgoGetHeuristic(
    _handle: *mut c_void,
    operation: *mut c_void,
    _a: *mut c_void,
    _b: *mut c_void,
    _c: *mut c_void,
    _d: *mut c_void,
    preference: *mut c_void,
    requested: c_int,
    results: *mut c_void,
    returned: *mut c_int,
) -> u32 {
    if operation.is_null() || preference.is_null() || results.is_null() || returned.is_null() || requested < 1 {
        return INVALID_VALUE;
    }
    // SAFETY: cuBLASLt's contract: room for `requested` results, and an out-parameter that may be written.
    unsafe {
        write_result(results.cast(), None);
        put(returned, 1);
    }
    SUCCESS
}

/// Finds algorithms for a stream's resources.
pub unsafe fn cublasLtMatmulAlgoGetHeuristicForStream(
    handle: *mut c_void,
    operation: *mut c_void,
    a: *mut c_void,
    b: *mut c_void,
    c: *mut c_void,
    d: *mut c_void,
    preference: *mut c_void,
    requested: c_int,
    results: *mut c_void,
    returned: *mut c_int,
    _stream: *mut c_void,
) -> u32 {
    // SAFETY: cuBLASLt's contract is that of the function without a stream.
    unsafe { cublasLtMatmulAlgoGetHeuristic(handle, operation, a, b, c, d, preference, requested, results, returned) }
}

/// Checks an algorithm: it can do everything.
pub unsafe fn cublasLtMatmulAlgoCheck(
    _handle: *mut c_void,
    _operation: *mut c_void,
    _a: *mut c_void,
    _b: *mut c_void,
    _c: *mut c_void,
    _d: *mut c_void,
    algorithm: *const c_void,
    result: *mut c_void,
) -> u32 {
    if algorithm.is_null() || result.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: cuBLASLt's contract is that of `write_result`.
    unsafe { write_result(result.cast(), Some(algorithm)) };
    SUCCESS
}

/// Checks an algorithm for a stream's resources.
pub unsafe fn cublasLtMatmulAlgoCheckForStream(
    handle: *mut c_void,
    operation: *mut c_void,
    a: *mut c_void,
    b: *mut c_void,
    c: *mut c_void,
    d: *mut c_void,
    algorithm: *const c_void,
    result: *mut c_void,
    _stream: *mut c_void,
) -> u32 {
    // SAFETY: cuBLASLt's contract is that of the function without a stream.
    unsafe { cublasLtMatmulAlgoCheck(handle, operation, a, b, c, d, algorithm, result) }
}

/// Lists the algorithms: number 0.
pub unsafe fn cublasLtMatmulAlgoGetIds(
    _handle: *mut c_void,
    _compute: c_int,
    _scale: c_int,
    _a: c_int,
    _b: c_int,
    _c: c_int,
    _d: c_int,
    requested: c_int,
    ids: *mut c_int,
    returned: *mut c_int,
) -> u32 {
    if requested < 1 {
        return INVALID_VALUE;
    }
    // SAFETY: cuBLASLt's contract: room for `requested` numbers, and an out-parameter that may be written.
    unsafe {
        put(ids, 0);
        put(returned, 1);
    }
    SUCCESS
}

/// Initializes an algorithm by its number.
pub unsafe fn cublasLtMatmulAlgoInit(
    _handle: *mut c_void,
    _compute: c_int,
    _scale: c_int,
    _a: c_int,
    _b: c_int,
    _c: c_int,
    _d: c_int,
    id: c_int,
    algorithm: *mut c_void,
) -> u32 {
    if algorithm.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: cuBLASLt's contract: a `cublasLtMatmulAlgo_t` that may be written.
    unsafe {
        initialize(&ALGORITHM, algorithm, ALGORITHM_BYTES);
        set_number(&ALGORITHM, algorithm, 0, id as u64);
    }
    SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_answers_with_what_was_set() {
        let mut at = std::ptr::null_mut();
        let (mut value, mut written) = (0_u64, 0_usize);
        // Made anew for each call, since writing to the variable itself ends what an older pointer may do.
        macro_rules! out {
            () => {
                (&raw mut value).cast()
            };
        }
        // SAFETY: the out-parameters are local variables, and the layout is destroyed last.
        unsafe {
            assert_eq!(cublasLtMatrixLayoutCreate(&raw mut at, 14, 128, 64, 128), SUCCESS);
            let stride = 8192_i64;
            assert_eq!(cublasLtMatrixLayoutSetAttribute(at, 6, (&raw const stride).cast(), 8), SUCCESS);
            assert_eq!(cublasLtMatrixLayoutSetAttribute(at, 6, (&raw const stride).cast(), 4), INVALID_VALUE);
            for (number, expected) in [(0, 14), (2, 128), (3, 64), (4, 128), (5, 1), (6, 8192)] {
                value = 0;
                assert_eq!(cublasLtMatrixLayoutGetAttribute(at, number, out!(), 8, &raw mut written), SUCCESS);
                assert_eq!(value, expected, "attribute {number}");
            }
            assert_eq!(cublasLtMatrixLayoutGetAttribute(at, 2, out!(), 0, &raw mut written), SUCCESS);
            assert_eq!(written, 8);
            assert_eq!(cublasLtMatrixLayoutGetAttribute(at, 2, out!(), 4, &raw mut written), INVALID_VALUE);
            assert_eq!(cublasLtMatrixLayoutDestroy(at), SUCCESS);
        }
    }

    #[test]
    fn a_heuristic_finds_one_algorithm() {
        let mut results = [0xff_u8; 2 * RESULT_BYTES];
        let mut returned = 0;
        let operation: *mut c_void = (&raw mut returned).cast();
        // SAFETY: there is room for the two results; the other arguments are only compared with null.
        let status = unsafe {
            let none = std::ptr::null_mut();
            cublasLtMatmulAlgoGetHeuristic(
                none,
                operation,
                none,
                none,
                none,
                none,
                operation,
                2,
                results.as_mut_ptr().cast(),
                &raw mut returned,
            )
        };
        assert_eq!((status, returned), (SUCCESS, 1));
        assert_eq!(results[64..76], [0; 12], "no workspace, and success");
        assert_eq!(results[76..80], 1.0_f32.to_le_bytes());
        assert_eq!(results[RESULT_BYTES], 0xff, "only one result is written");
    }
}
