//! cuBLAS: handles that remember what is set on them. The multiplications that frameworks call are counted (`products`), and
//! all others are stubs of the table.
//!
//! **What a handle costs.** cuBLAS allocates a workspace for a handle that has none of the user's. NVIDIA documents its
//! default size under `CUBLAS_WORKSPACE_CONFIG` and `cublasSetWorkspace`: `:4096:2:16:8`, which is 8,320 KiB, before
//! Hopper, and 32 MiB from Hopper on. It is charged at creation, and given back when the program brings its own, as
//! PyTorch does before its first multiplication (whose workspace is in PyTorch's own figures). That the library waits
//! for the first multiplication is not modelled. Kernels that it loads belong to the context's cost. Where it was read what
//! a handle takes (`holdings`), that is charged in its place, and held as long as the handle.
#![allow(clippy::too_many_arguments, reason = "the parameters are those of cuBLAS's header")]

pub mod products;
pub mod versions;

pub use products::*;

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use oomph_ledger::Kind;

use crate::boundary::{Handle, Memory, Object, Out, Room, hand_out, statuses};
use crate::cublas::versions::{library_version, property, runtime_number};
use crate::gpu::gpu;
use crate::{device, holdings, transfer};

statuses! {
    /// `cublasStatus_t`
    pub CublasStatus {
        /// A handle was not made, or there is no card.
        NOT_INITIALIZED = 1,
        /// The card cannot hold the workspace.
        ALLOC_FAILED = 3,
        /// An argument is out of range, or null.
        INVALID_VALUE = 7,
    }
}

const MAGIC: u64 = 0x6f6f_6d70_6862_6c61;

library_version!(Cublas, "libcublas.so.", "cublas", [11, 11, 3], [12, 9, 1], [13, 10, 0]);

/// What a handle remembers. A program may use a handle in several threads, as long as it does so in turn.
#[derive(Debug)]
pub struct Context {
    magic: AtomicU64,
    stream: AtomicUsize,
    pointer_mode: AtomicI32,
    atomics_mode: AtomicI32,
    math_mode: AtomicI32,
    sm_count_target: AtomicI32,
    card: usize,
    /// Bytes of the default workspace that are charged, and whether they stay when the program brings its own.
    workspace: AtomicU64,
    stays: bool,
}

// SAFETY: all fields that change are atomic.
unsafe impl Object for Context {
    fn is_live(&self) -> bool {
        self.magic.load(Ordering::Relaxed) == MAGIC
    }
}

impl Context {
    fn new(card: usize, workspace: u64, stays: bool) -> Context {
        Context {
            magic: AtomicU64::new(MAGIC),
            stream: AtomicUsize::new(0),
            pointer_mode: AtomicI32::new(0),
            atomics_mode: AtomicI32::new(0),
            math_mode: AtomicI32::new(0),
            sm_count_target: AtomicI32::new(0),
            card,
            workspace: AtomicU64::new(workspace),
            stays,
        }
    }

    fn release_workspace(&self) {
        let bytes = self.workspace.swap(0, Ordering::Relaxed);
        if bytes > 0 {
            gpu().release(self.card, Kind::Library, bytes);
        }
    }
}

/// The size of the default workspace on a card of this major compute capability, in bytes that the driver hands out.
fn default_workspace(cc_major: u64) -> u64 {
    let bytes: u64 = if cc_major >= 9 { 32 << 20 } else { (2 * 4096 + 8 * 16) << 10 };
    bytes.next_multiple_of(2 << 20)
}

/// What a handle remembers, or what cuBLAS answers to others.
fn known<'a>(handle: &'a Handle<'_, Context>) -> Result<&'a Context, CublasStatus> {
    handle.get().ok_or(CublasStatus::NOT_INITIALIZED)
}

/// Makes a handle on the current card.
pub fn cublasCreate_v2(out: Out<'_, *mut c_void>) -> Result<(), CublasStatus> {
    let out = out.given().ok_or(CublasStatus::INVALID_VALUE)?;
    let device = device::activate_current().map_err(|_| CublasStatus::NOT_INITIALIZED)?;
    let held = holdings::of(device.description).cublas;
    let workspace = if held > 0 { held } else { default_workspace(device.description.cc_major) };
    if !gpu().charge(device.card, Kind::Library, workspace) {
        return Err(CublasStatus::ALLOC_FAILED);
    }
    out.set(hand_out(Context::new(device.card, workspace, held > 0)));
    Ok(())
}

/// Ends a handle.
pub fn cublasDestroy_v2(handle: Handle<'_, Context>) -> Result<(), CublasStatus> {
    let known = handle.take().ok_or(CublasStatus::NOT_INITIALIZED)?;
    known.release_workspace();
    known.magic.store(0, Ordering::Relaxed);
    Ok(())
}

/// Makes the handle use the program's own memory, for which cuBLAS gives its own back.
pub fn cublasSetWorkspace_v2(
    handle: Handle<'_, Context>,
    workspace: *mut c_void,
    size: usize,
) -> Result<(), CublasStatus> {
    let known = known(&handle)?;
    if !workspace.is_null() && size > 0 && !known.stays {
        known.release_workspace();
    }
    Ok(())
}

/// Sets the stream. cuBLAS also forgets the program's workspace then; its own stays given back here, because PyTorch
/// sets both at every call and the one in use is PyTorch's.
pub fn cublasSetStream_v2(handle: Handle<'_, Context>, stream: *mut c_void) -> Result<(), CublasStatus> {
    known(&handle)?.stream.store(stream as usize, Ordering::Relaxed);
    Ok(())
}

/// The stream that was set.
pub fn cublasGetStream_v2(handle: Handle<'_, Context>, stream: Out<'_, *mut c_void>) -> Result<(), CublasStatus> {
    stream.set(known(&handle)?.stream.load(Ordering::Relaxed) as *mut c_void);
    Ok(())
}

/// Defines the pair of functions that set and get a number of a handle.
macro_rules! setting {
    ($field:ident, $set:ident, $get:ident) => {
        #[doc = concat!("Sets the handle's `", stringify!($field), "`.")]
        pub fn $set(handle: Handle<'_, Context>, value: c_int) -> Result<(), CublasStatus> {
            known(&handle)?.$field.store(value, Ordering::Relaxed);
            Ok(())
        }

        #[doc = concat!("The handle's `", stringify!($field), "`.")]
        pub fn $get(handle: Handle<'_, Context>, value: Out<'_, c_int>) -> Result<(), CublasStatus> {
            value.set(known(&handle)?.$field.load(Ordering::Relaxed));
            Ok(())
        }
    };
}
setting!(pointer_mode, cublasSetPointerMode_v2, cublasGetPointerMode_v2);
setting!(atomics_mode, cublasSetAtomicsMode, cublasGetAtomicsMode);
setting!(math_mode, cublasSetMathMode, cublasGetMathMode);
setting!(sm_count_target, cublasSetSmCountTarget, cublasGetSmCountTarget);

/// One part of the version.
pub fn cublasGetProperty(kind: c_int, value: Out<'_, c_int>) -> Result<(), CublasStatus> {
    value.set(property(version(), kind).ok_or(CublasStatus::INVALID_VALUE)?);
    Ok(())
}

/// The version in one number: 120901 for 12.9.1. Versions before 12 wrote 11.11.3 as 111103 too.
pub fn number() -> c_int {
    let [major, minor, patch] = version();
    major * 10_000 + minor * 100 + patch
}

/// The version in one number.
pub fn cublasGetVersion_v2(_handle: *mut c_void, value: Out<'_, c_int>) -> Result<(), CublasStatus> {
    value.set(number());
    Ok(())
}

/// The version in one number, for the interface before version 2.
pub fn cublasGetVersion(value: Out<'_, c_int>) -> Result<(), CublasStatus> {
    value.set(number());
    Ok(())
}

/// The CUDA runtime that cuBLAS was built for.
pub fn cublasGetCudartVersion() -> usize {
    runtime_number()
}

/// The name of a status.
pub fn cublasGetStatusName(status: c_int) -> &'static CStr {
    match status {
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
    }
}

/// What a status means.
pub fn cublasGetStatusString(status: c_int) -> &'static CStr {
    match status {
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
    }
}

/// Copies the columns of a matrix between host and device; small ones for real.
fn copy_columns(
    rows: i64,
    columns: i64,
    element: i64,
    from: Memory<'_>,
    from_ld: i64,
    to: Memory<'_>,
    to_ld: i64,
) -> Result<(), CublasStatus> {
    let sizes = [rows, columns, element, from_ld, to_ld].map(usize::try_from);
    let [Ok(rows), Ok(columns), Ok(element), Ok(from_ld), Ok(to_ld)] = sizes else {
        return Err(CublasStatus::INVALID_VALUE);
    };
    let (Some(width), Some(from_pitch), Some(to_pitch)) =
        (rows.checked_mul(element), from_ld.checked_mul(element), to_ld.checked_mul(element))
    else {
        return Err(CublasStatus::INVALID_VALUE);
    };
    // SAFETY: cuBLAS's contract: both are matrices of these sizes.
    unsafe { transfer::requested_2d(to.address(), to_pitch, from.address(), from_pitch, width, columns) };
    Ok(())
}

/// Defines the copies of matrices and vectors, which differ in the width of their sizes and in a stream at the end.
macro_rules! copies {
    ($($name:ident($size:ty $(, $stream:ident)?) = $shape:ident;)*) => {$(
        copies!(@$shape $name $size $(, $stream)?);
    )*};
    (@matrix $name:ident $size:ty $(, $stream:ident)?) => {
        /// Copies a matrix between host and device.
        pub fn $name(
            rows: $size, columns: $size, element: $size, from: Memory<'_>, from_ld: $size, to: Memory<'_>,
            to_ld: $size,
            $($stream: *mut c_void,)?
        ) -> Result<(), CublasStatus> {
            copy_columns(rows.into(), columns.into(), element.into(), from, from_ld.into(), to, to_ld.into())
        }
    };
    (@vector $name:ident $size:ty $(, $stream:ident)?) => {
        /// Copies a vector, which is a matrix of one row, between host and device.
        pub fn $name(
            count: $size, element: $size, from: Memory<'_>, from_step: $size, to: Memory<'_>, to_step: $size,
            $($stream: *mut c_void,)?
        ) -> Result<(), CublasStatus> {
            copy_columns(1, count.into(), element.into(), from, from_step.into(), to, to_step.into())
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
fn no_errors(info: Room<'_, c_int>) -> Result<(), CublasStatus> {
    // SAFETY: the argument of `boundary`: the array has a number for each matrix, on the host or on a card.
    unsafe { transfer::fill(info.address().cast(), 0, 4, info.count()) };
    Ok(())
}

/// Defines the factorizations of batches, of which only the array of their successes is written.
macro_rules! batched {
    ($($name:ident($($parameter:ident: $kind:ty),*);)*) => {$(
        /// Factors a batch of matrices: nothing moves.
        pub fn $name(
            _handle: *mut c_void, $($parameter: $kind,)* info: Room<'_, c_int>, _batch: c_int,
        ) -> Result<(), CublasStatus> {
            no_errors(info)
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
    use crate::boundary::{Any, pass};

    #[test]
    fn the_default_workspace_is_the_documented_one() {
        // PyTorch 2.x asks for the same default for itself: 8,519,680 bytes.
        assert_eq!((2 * 4096 + 8 * 16) << 10, 8_519_680);
        assert_eq!(default_workspace(8), 10 << 20, "the driver hands out 2 MiB at a time");
        assert_eq!(default_workspace(9), 32 << 20);
    }

    #[test]
    fn a_handle_remembers_what_is_set() {
        let address = hand_out(Context::new(0, 0, false));
        // SAFETY: the handle is alive until it is destroyed in the last call.
        let handle = || unsafe { pass::<Any, Handle<Context>>(address) };
        let mut value = -1;
        assert_eq!(cublasSetMathMode(handle(), 3), Ok(()));
        assert_eq!(cublasGetMathMode(handle(), Out::to(&mut value)), Ok(()));
        assert_eq!(value, 3);
        assert_eq!(cublasGetPointerMode_v2(handle(), Out::to(&mut value)), Ok(()));
        assert_eq!(value, 0);
        // SAFETY: null may be passed, and is not a handle.
        let none: Handle<Context> = unsafe { pass::<Any, _>(std::ptr::null_mut()) };
        assert_eq!(cublasGetMathMode(none, Out::to(&mut value)), Err(CublasStatus::NOT_INITIALIZED));
        assert_eq!(cublasDestroy_v2(handle()), Ok(()));
    }

    #[test]
    fn a_matrix_is_copied_column_by_column() {
        let mut from: [u8; 6] = [1, 2, 0, 3, 4, 0];
        let mut to = [9_u8; 4];
        let status = cublasSetMatrix(2, 2, 1, Memory::to(&mut from), 3, Memory::to(&mut to), 2);
        assert_eq!((status, to), (Ok(()), [1, 2, 3, 4]));
    }
}
