//! cuBLAS: handles that remember what is set on them. The multiplications that frameworks call are counted (`products`), and
//! all others are stubs of the table.
//!
//! **What a handle costs.** cuBLAS allocates a workspace for a handle that has none of the user's. NVIDIA documents its
//! default size under `CUBLAS_WORKSPACE_CONFIG` and `cublasSetWorkspace`: `:4096:2:16:8`, which is 8,320 KiB, before
//! Hopper, and 32 MiB from Hopper on. It is charged at creation, and given back when the program brings its own, as
//! PyTorch does before its first multiplication (whose workspace is in PyTorch's own figures). That the library waits
//! for the first multiplication is not modelled. Kernels that it loads belong to the context's cost.
#![allow(clippy::missing_safety_doc, clippy::too_many_arguments)]

pub mod products;
pub mod versions;

pub use products::*;

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use oomph_ledger::Kind;

use crate::cublas::versions::{library_version, property, put, runtime_number};
use crate::{books, device, transfer};

const SUCCESS: u32 = 0;
const NOT_INITIALIZED: u32 = 1;
const ALLOC_FAILED: u32 = 3;
const INVALID_VALUE: u32 = 7;

const MAGIC: u64 = 0x6f6f_6d70_6862_6c61;

library_version!("libcublas.so.", "cublas", [11, 11, 3], [12, 9, 1], [13, 10, 0]);

/// What a handle remembers. A program may use a handle in several threads, as long as it does so in turn.
struct Handle {
    magic: AtomicU64,
    stream: AtomicUsize,
    pointer_mode: AtomicI32,
    atomics_mode: AtomicI32,
    math_mode: AtomicI32,
    sm_count_target: AtomicI32,
    card: usize,
    /// Bytes of the default workspace that are charged.
    workspace: AtomicU64,
}

impl Handle {
    fn release_workspace(&self) {
        let bytes = self.workspace.swap(0, Ordering::Relaxed);
        if bytes > 0 {
            books::release(self.card, Kind::Library, bytes);
        }
    }
}

/// The size of the default workspace on a card of this major compute capability, in bytes that the driver hands out.
fn default_workspace(cc_major: u64) -> u64 {
    let bytes: u64 = if cc_major >= 9 { 32 << 20 } else { (2 * 4096 + 8 * 16) << 10 };
    bytes.next_multiple_of(2 << 20)
}

/// The handle at an address.
///
/// # Safety
/// `handle` is null or was made by [`cublasCreate_v2`] and not destroyed.
unsafe fn get<'a>(handle: *mut c_void) -> Option<&'a Handle> {
    let handle = handle.cast::<Handle>();
    if handle.is_null() || !handle.is_aligned() {
        return None;
    }
    // SAFETY: the caller's promise. All fields that change are atomic, so sharing is sound.
    let handle = unsafe { &*handle };
    (handle.magic.load(Ordering::Relaxed) == MAGIC).then_some(handle)
}

/// Makes a handle on the current card.
pub unsafe fn cublasCreate_v2(out: *mut *mut c_void) -> u32 {
    if out.is_null() {
        return INVALID_VALUE;
    }
    let Ok(device) = device::activate_current() else { return NOT_INITIALIZED };
    let workspace = default_workspace(device.description.cc_major);
    if !books::charge(device.card, Kind::Library, workspace) {
        return ALLOC_FAILED;
    }
    let handle = Box::new(Handle {
        magic: AtomicU64::new(MAGIC),
        stream: AtomicUsize::new(0),
        pointer_mode: AtomicI32::new(0),
        atomics_mode: AtomicI32::new(0),
        math_mode: AtomicI32::new(0),
        sm_count_target: AtomicI32::new(0),
        card: device.card,
        workspace: AtomicU64::new(workspace),
    });
    // SAFETY: cuBLAS's contract: the out-parameter may be written.
    unsafe { put(out, Box::into_raw(handle).cast()) };
    SUCCESS
}

/// Ends a handle.
pub unsafe fn cublasDestroy_v2(handle: *mut c_void) -> u32 {
    // SAFETY: cuBLAS's contract is that of `get`.
    let Some(known) = (unsafe { get(handle) }) else { return NOT_INITIALIZED };
    known.release_workspace();
    known.magic.store(0, Ordering::Relaxed);
    // SAFETY: the address came from `Box::into_raw`, as its magic number said, and the program gives it up.
    drop(unsafe { Box::from_raw(handle.cast::<Handle>()) });
    SUCCESS
}

/// Makes the handle use the program's own memory, for which cuBLAS gives its own back.
pub unsafe fn cublasSetWorkspace_v2(handle: *mut c_void, workspace: *mut c_void, size: usize) -> u32 {
    // SAFETY: cuBLAS's contract is that of `get`.
    let Some(handle) = (unsafe { get(handle) }) else { return NOT_INITIALIZED };
    if !workspace.is_null() && size > 0 {
        handle.release_workspace();
    }
    SUCCESS
}

/// Sets the stream. cuBLAS also forgets the program's workspace then; its own stays given back here, because PyTorch
/// sets both at every call and the one in use is PyTorch's.
pub unsafe fn cublasSetStream_v2(handle: *mut c_void, stream: *mut c_void) -> u32 {
    // SAFETY: cuBLAS's contract is that of `get`.
    let Some(handle) = (unsafe { get(handle) }) else { return NOT_INITIALIZED };
    handle.stream.store(stream as usize, Ordering::Relaxed);
    SUCCESS
}

/// The stream that was set.
pub unsafe fn cublasGetStream_v2(handle: *mut c_void, stream: *mut *mut c_void) -> u32 {
    // SAFETY: cuBLAS's contract: a handle, and an out-parameter that may be written.
    unsafe {
        let Some(handle) = get(handle) else { return NOT_INITIALIZED };
        put(stream, handle.stream.load(Ordering::Relaxed) as *mut c_void);
    }
    SUCCESS
}

/// Defines the pair of functions that set and get a number of a handle.
macro_rules! setting {
    ($field:ident, $set:ident, $get:ident) => {
        #[doc = concat!("Sets the handle's `", stringify!($field), "`.")]
        pub unsafe fn $set(handle: *mut c_void, value: c_int) -> u32 {
            // SAFETY: cuBLAS's contract is that of `get`.
            let Some(handle) = (unsafe { get(handle) }) else { return NOT_INITIALIZED };
            handle.$field.store(value, Ordering::Relaxed);
            SUCCESS
        }

        #[doc = concat!("The handle's `", stringify!($field), "`.")]
        pub unsafe fn $get(handle: *mut c_void, value: *mut c_int) -> u32 {
            // SAFETY: cuBLAS's contract: a handle, and an out-parameter that may be written.
            unsafe {
                let Some(handle) = get(handle) else { return NOT_INITIALIZED };
                put(value, handle.$field.load(Ordering::Relaxed));
            }
            SUCCESS
        }
    };
}
setting!(pointer_mode, cublasSetPointerMode_v2, cublasGetPointerMode_v2);
setting!(atomics_mode, cublasSetAtomicsMode, cublasGetAtomicsMode);
setting!(math_mode, cublasSetMathMode, cublasGetMathMode);
setting!(sm_count_target, cublasSetSmCountTarget, cublasGetSmCountTarget);

/// One part of the version.
pub unsafe fn cublasGetProperty(kind: c_int, value: *mut c_int) -> u32 {
    let Some(part) = property(version(), kind) else { return INVALID_VALUE };
    // SAFETY: cuBLAS's contract: an out-parameter that may be written.
    unsafe { put(value, part) };
    SUCCESS
}

/// The version in one number: 120901 for 12.9.1. Versions before 12 wrote 11.11.3 as 111103 too.
pub fn number() -> c_int {
    let [major, minor, patch] = version();
    major * 10_000 + minor * 100 + patch
}

/// The version in one number.
pub unsafe fn cublasGetVersion_v2(_handle: *mut c_void, value: *mut c_int) -> u32 {
    // SAFETY: cuBLAS's contract: an out-parameter that may be written.
    unsafe { put(value, number()) };
    SUCCESS
}

/// The version in one number, for the interface before version 2.
pub unsafe fn cublasGetVersion(value: *mut c_int) -> u32 {
    // SAFETY: as for `cublasGetVersion_v2`.
    unsafe { cublasGetVersion_v2(std::ptr::null_mut(), value) }
}

/// The CUDA runtime that cuBLAS was built for.
pub unsafe fn cublasGetCudartVersion() -> usize {
    runtime_number()
}

/// The name of a status.
pub unsafe fn cublasGetStatusName(status: c_int) -> *const c_char {
    let name = match status {
        0 => c"CUBLAS_STATUS_SUCCESS",
        1 => c"CUBLAS_STATUS_NOT_INITIALIZED",
        3 => c"CUBLAS_STATUS_ALLOC_FAILED",
        7 => c"CUBLAS_STATUS_INVALID_VALUE",
        8 => c"CUBLAS_STATUS_ARCH_MISMATCH",
        11 => c"CUBLAS_STATUS_MAPPING_ERROR",
        13 => c"CUBLAS_STATUS_EXECUTION_FAILED",
        14 => c"CUBLAS_STATUS_INTERNAL_ERROR",
        15 => c"CUBLAS_STATUS_NOT_SUPPORTED",
        16 => c"CUBLAS_STATUS_LICENSE_ERROR",
        _ => c"CUBLAS_STATUS_UNKNOWN",
    };
    name.as_ptr()
}

/// What a status means.
pub unsafe fn cublasGetStatusString(status: c_int) -> *const c_char {
    let text = match status {
        0 => c"success",
        1 => c"the library was not initialized",
        3 => c"the resource allocation failed",
        7 => c"an unsupported value or parameter was passed to the function",
        8 => c"the function requires a feature absent from the device architecture",
        11 => c"an access to GPU memory space failed",
        13 => c"the GPU program failed to execute",
        14 => c"an internal operation failed",
        15 => c"the functionality requested is not supported",
        16 => c"the functionality requested requires some license",
        _ => c"unknown status",
    };
    text.as_ptr()
}

/// Copies the columns of a matrix between host and device; small ones for real.
unsafe fn copy_columns(
    rows: i64,
    columns: i64,
    element: i64,
    from: *mut c_void,
    from_ld: i64,
    to: *mut c_void,
    to_ld: i64,
) -> u32 {
    let sizes = [rows, columns, element, from_ld, to_ld].map(usize::try_from);
    let [Ok(rows), Ok(columns), Ok(element), Ok(from_ld), Ok(to_ld)] = sizes else { return INVALID_VALUE };
    let (Some(width), Some(from_pitch), Some(to_pitch)) =
        (rows.checked_mul(element), from_ld.checked_mul(element), to_ld.checked_mul(element))
    else {
        return INVALID_VALUE;
    };
    // SAFETY: cuBLAS's contract: both are matrices of these sizes.
    unsafe { transfer::requested_2d(to, to_pitch, from, from_pitch, width, columns) };
    SUCCESS
}

/// Defines the copies of matrices and vectors, which differ in the width of their sizes and in a stream at the end.
macro_rules! copies {
    ($($name:ident($size:ty $(, $stream:ident)?) = $shape:ident;)*) => {$(
        copies!(@$shape $name $size $(, $stream)?);
    )*};
    (@matrix $name:ident $size:ty $(, $stream:ident)?) => {
        /// Copies a matrix between host and device.
        pub unsafe fn $name(
            rows: $size, columns: $size, element: $size, from: *mut c_void, from_ld: $size, to: *mut c_void,
            to_ld: $size,
            $($stream: *mut c_void,)?
        ) -> u32 {
            // SAFETY: cuBLAS's contract is that of `copy_columns`.
            unsafe {
                copy_columns(rows.into(), columns.into(), element.into(), from, from_ld.into(), to, to_ld.into())
            }
        }
    };
    (@vector $name:ident $size:ty $(, $stream:ident)?) => {
        /// Copies a vector between host and device.
        pub unsafe fn $name(
            count: $size, element: $size, from: *mut c_void, from_step: $size, to: *mut c_void, to_step: $size,
            $($stream: *mut c_void,)?
        ) -> u32 {
            // SAFETY: cuBLAS's contract: a vector is a matrix of one row.
            unsafe { copy_columns(1, count.into(), element.into(), from, from_step.into(), to, to_step.into()) }
        }
    };
}
copies! {
    cublasSetMatrix(i32) = matrix;
    cublasGetMatrix(i32) = matrix;
    cublasSetMatrix_64(i64) = matrix;
    cublasGetMatrix_64(i64) = matrix;
    cublasSetMatrixAsync(i32, _stream) = matrix;
    cublasGetMatrixAsync(i32, _stream) = matrix;
    cublasSetMatrixAsync_64(i64, _stream) = matrix;
    cublasGetMatrixAsync_64(i64, _stream) = matrix;
    cublasSetVector(i32) = vector;
    cublasGetVector(i32) = vector;
    cublasSetVector_64(i64) = vector;
    cublasGetVector_64(i64) = vector;
    cublasSetVectorAsync(i32, _stream) = vector;
    cublasGetVectorAsync(i32, _stream) = vector;
    cublasSetVectorAsync_64(i64, _stream) = vector;
    cublasGetVectorAsync_64(i64, _stream) = vector;
}

/// Says of every matrix of a batch that it could be factored: programs read this array back.
unsafe fn no_errors(info: *mut c_int, batch: c_int) -> u32 {
    // SAFETY: cuBLAS's contract: the array has a number for each matrix.
    unsafe { transfer::fill(info.cast(), 0, 4, usize::try_from(batch).unwrap_or(0)) };
    SUCCESS
}

/// Defines the factorizations of batches, of which only the array of their successes is written.
macro_rules! batched {
    ($($name:ident($($parameter:ident: $kind:ty),*);)*) => {$(
        /// Factors a batch of matrices: nothing moves.
        pub unsafe fn $name(_handle: *mut c_void, $($parameter: $kind,)* info: *mut c_int, batch: c_int) -> u32 {
            // SAFETY: cuBLAS's contract is that of `no_errors`.
            unsafe { no_errors(info, batch) }
        }
    )*};
}
batched! {
    cublasSgetrfBatched(_n: c_int, _a: *mut c_void, _lda: c_int, _pivots: *mut c_void);
    cublasDgetrfBatched(_n: c_int, _a: *mut c_void, _lda: c_int, _pivots: *mut c_void);
    cublasCgetrfBatched(_n: c_int, _a: *mut c_void, _lda: c_int, _pivots: *mut c_void);
    cublasZgetrfBatched(_n: c_int, _a: *mut c_void, _lda: c_int, _pivots: *mut c_void);
    cublasSgetriBatched(_n: c_int, _a: *mut c_void, _lda: c_int, _pivots: *mut c_void, _c: *mut c_void, _ldc: c_int);
    cublasDgetriBatched(_n: c_int, _a: *mut c_void, _lda: c_int, _pivots: *mut c_void, _c: *mut c_void, _ldc: c_int);
    cublasCgetriBatched(_n: c_int, _a: *mut c_void, _lda: c_int, _pivots: *mut c_void, _c: *mut c_void, _ldc: c_int);
    cublasZgetriBatched(_n: c_int, _a: *mut c_void, _lda: c_int, _pivots: *mut c_void, _c: *mut c_void, _ldc: c_int);
    cublasSmatinvBatched(_n: c_int, _a: *mut c_void, _lda: c_int, _inverse: *mut c_void, _ld: c_int);
    cublasDmatinvBatched(_n: c_int, _a: *mut c_void, _lda: c_int, _inverse: *mut c_void, _ld: c_int);
    cublasCmatinvBatched(_n: c_int, _a: *mut c_void, _lda: c_int, _inverse: *mut c_void, _ld: c_int);
    cublasZmatinvBatched(_n: c_int, _a: *mut c_void, _lda: c_int, _inverse: *mut c_void, _ld: c_int);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_workspace_is_the_documented_one() {
        // PyTorch 2.x asks for the same default for itself: 8,519,680 bytes.
        assert_eq!((2 * 4096 + 8 * 16) << 10, 8_519_680);
        assert_eq!(default_workspace(8), 10 << 20, "the driver hands out 2 MiB at a time");
        assert_eq!(default_workspace(9), 32 << 20);
    }

    #[test]
    fn a_handle_remembers_what_is_set() {
        let handle = Box::new(Handle {
            magic: AtomicU64::new(MAGIC),
            stream: AtomicUsize::new(0),
            pointer_mode: AtomicI32::new(0),
            atomics_mode: AtomicI32::new(0),
            math_mode: AtomicI32::new(0),
            sm_count_target: AtomicI32::new(0),
            card: 0,
            workspace: AtomicU64::new(0),
        });
        let address: *mut c_void = Box::into_raw(handle).cast();
        let mut value = -1;
        // SAFETY: the handle is alive until it is destroyed in the last call.
        unsafe {
            assert_eq!(cublasSetMathMode(address, 3), SUCCESS);
            assert_eq!(cublasGetMathMode(address, &raw mut value), SUCCESS);
            assert_eq!(value, 3);
            assert_eq!(cublasGetPointerMode_v2(address, &raw mut value), SUCCESS);
            assert_eq!(value, 0);
            assert_eq!(cublasGetMathMode(std::ptr::null_mut(), &raw mut value), NOT_INITIALIZED);
            assert_eq!(cublasDestroy_v2(address), SUCCESS);
        }
    }

    #[test]
    fn a_matrix_is_copied_column_by_column() {
        let from: [u8; 6] = [1, 2, 0, 3, 4, 0];
        let mut to = [9_u8; 4];
        // SAFETY: both arrays hold the matrices that the sizes describe.
        let status = unsafe { cublasSetMatrix(2, 2, 1, from.as_ptr().cast_mut().cast(), 3, to.as_mut_ptr().cast(), 2) };
        assert_eq!((status, to), (SUCCESS, [1, 2, 3, 4]));
    }
}
