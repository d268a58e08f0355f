//! cuSOLVER: the sizes of the workspaces that programs allocate for it, and the word that every factorization worked.
//!
//! **Model of the workspaces.** cuSOLVER computes its sizes for the card that is there and documents none, so that
//! these are LAPACK's published optimal sizes (`LWORK` in each routine's documentation) for the same algorithm, with
//! blocks of [`BLOCK`] columns; where cuSOLVER's algorithm is another (Jacobi, polar, hybrid), the matrices that it
//! must keep in addition to the program's own. They were not compared with the library. Sizes are never 0, because callers
//! divide by or allocate them.
#![allow(clippy::too_many_arguments, reason = "the parameters are those of cuSOLVER's header")]

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use oomph_ledger::Kind;

use crate::boundary::{InOut, Room, statuses};
use crate::cublas::versions::{library_version, property};
use crate::gpu::gpu;
use crate::{boundary, device, holdings, transfer};

statuses! {
    /// `cusolverStatus_t`
    pub CusolverStatus {
        /// There is no card, or a handle was not made.
        NOT_INITIALIZED = 1,
        /// The card cannot hold what a handle takes.
        ALLOC_FAILED = 2,
        /// An argument is out of range.
        INVALID_VALUE = 3,
    }
}

library_version!(Cusolver, "libcusolver.so.", "cusolver", [11, 4, 1], [11, 7, 5], [12, 4, 1]);

/// Columns of a block in the blocked algorithms.
const BLOCK: u64 = 64;
/// `CUSOLVER_EIG_MODE_VECTOR`
const VECTORS: c_int = 1;

/// A dimension that the program gave; nothing below 0 is one.
fn size(n: impl Into<i64>) -> u64 {
    u64::try_from(n.into()).unwrap_or(0)
}

/// `rows` by `columns` elements.
fn matrix(rows: u64, columns: u64) -> u64 {
    rows.saturating_mul(columns)
}

/// A panel of one block next to `n` rows or columns.
fn panel(n: u64) -> u64 {
    matrix(n, BLOCK)
}

/// LU: the panel that is factored and the one that its rows are exchanged with.
fn lu(m: u64, n: u64) -> u64 {
    panel(m).saturating_add(panel(n))
}

/// Reduction to two diagonals, and the singular vectors of those: LAPACK's `gebrd` and `gesvd`.
fn singular(m: u64, n: u64) -> u64 {
    let least = m.min(n);
    lu(m, n).saturating_add(matrix(least, least)).saturating_add(least.saturating_mul(5))
}

/// Singular values by Jacobi's method or the polar decomposition: a copy of the matrix and of both bases.
fn singular_jacobi(m: u64, n: u64) -> u64 {
    let least = m.min(n);
    matrix(m, n).saturating_add(matrix(least, least).saturating_mul(2)).saturating_add(least)
}

/// Singular values of tall matrices through the eigenvalues of the small square one.
fn singular_approximate(n: u64) -> u64 {
    matrix(n, n).saturating_add(eigen(n, true))
}

/// LAPACK's `syevd`: `1 + 6 n + 2 n^2` with vectors, the reduction's panel without.
fn eigen(n: u64, vectors: bool) -> u64 {
    let (square, line) = if vectors { (matrix(n, n).saturating_mul(2), 6) } else { (panel(n), 2) };
    square.saturating_add(n.saturating_mul(line)).saturating_add(1)
}

/// Eigenvalues by Jacobi's method: a copy of the matrix and the rotations.
fn eigen_jacobi(n: u64) -> u64 {
    matrix(n, n).saturating_mul(2).saturating_add(n)
}

/// Bytes of an element by its `cudaDataType`.
fn element(kind: c_int) -> u64 {
    match kind {
        0 => 4,
        1 | 4 => 8,
        5 => 16,
        _ => 8,
    }
}

/// Writes a number of elements.
fn elements(to: Out<'_>, count: u64) -> Result<(), CusolverStatus> {
    to.set(c_int::try_from(count.max(1)).unwrap_or(c_int::MAX));
    Ok(())
}

/// Writes the bytes on the device and on the host of the interface with 64-bit sizes.
fn bytes(device: Bytes<'_>, host: Bytes<'_>, kind: c_int, count: u64, on_host: u64) -> Result<(), CusolverStatus> {
    device.set(usize::try_from(count.max(1).saturating_mul(element(kind))).unwrap_or(usize::MAX));
    host.set(usize::try_from(on_host.saturating_mul(element(kind))).unwrap_or(usize::MAX));
    Ok(())
}

/// Defines the functions of the older interface: all of one line have the same parameters and write a number of
/// elements to `to`.
macro_rules! sizes {
    (write $to:ident; $($($name:ident)+ ($($parameter:ident: $kind:ty),* $(,)?) = $count:expr;)*) => {$(
        sizes!(@each $to [$($name)+] ($($parameter: $kind),*) $count);
    )*};
    (@each $to:ident [$($name:ident)+] $parameters:tt $count:expr) => {
        $(sizes!(@one $to $name $parameters $count);)+
    };
    (@one $to:ident $name:ident ($($parameter:ident: $kind:ty),*) $count:expr) => {
        /// The workspace in elements.
        pub fn $name(_handle: *mut c_void, $($parameter: $kind),*) -> Result<(), CusolverStatus> {
            elements($to, $count)
        }
    };
}

type Ptr = *mut c_void;
type Out<'a> = boundary::Out<'a, c_int>;

sizes! {
    write to;
    cusolverDnSgeqrf_bufferSize cusolverDnDgeqrf_bufferSize cusolverDnCgeqrf_bufferSize cusolverDnZgeqrf_bufferSize
        (_m: c_int, n: c_int, _a: Ptr, _lda: c_int, to: Out<'_>) = panel(size(n));
    cusolverDnSorgqr_bufferSize cusolverDnDorgqr_bufferSize cusolverDnCungqr_bufferSize cusolverDnZungqr_bufferSize
        (_m: c_int, n: c_int, _k: c_int, _a: Ptr, _lda: c_int, _tau: Ptr, to: Out<'_>) = panel(size(n));
    cusolverDnSormqr_bufferSize cusolverDnDormqr_bufferSize cusolverDnCunmqr_bufferSize cusolverDnZunmqr_bufferSize
        (side: c_int, _trans: c_int, m: c_int, n: c_int, _k: c_int, _a: Ptr, _lda: c_int, _tau: Ptr, _c: Ptr,
         _ldc: c_int, to: Out<'_>) = panel(size(if side == 0 { n } else { m }));
    cusolverDnSgetrf_bufferSize cusolverDnDgetrf_bufferSize cusolverDnCgetrf_bufferSize cusolverDnZgetrf_bufferSize
        (m: c_int, n: c_int, _a: Ptr, _lda: c_int, to: Out<'_>) = lu(size(m), size(n));
    cusolverDnSpotrf_bufferSize cusolverDnDpotrf_bufferSize cusolverDnCpotrf_bufferSize cusolverDnZpotrf_bufferSize
    cusolverDnSpotri_bufferSize cusolverDnDpotri_bufferSize cusolverDnCpotri_bufferSize cusolverDnZpotri_bufferSize
        (_uplo: c_int, n: c_int, _a: Ptr, _lda: c_int, to: Out<'_>) = panel(size(n));
    cusolverDnSsytrf_bufferSize cusolverDnDsytrf_bufferSize cusolverDnCsytrf_bufferSize cusolverDnZsytrf_bufferSize
        (n: c_int, _a: Ptr, _lda: c_int, to: Out<'_>) = panel(size(n));
    cusolverDnSgebrd_bufferSize cusolverDnDgebrd_bufferSize cusolverDnCgebrd_bufferSize cusolverDnZgebrd_bufferSize
        (m: c_int, n: c_int, to: Out<'_>) = lu(size(m), size(n));
    cusolverDnSgesvd_bufferSize cusolverDnDgesvd_bufferSize cusolverDnCgesvd_bufferSize cusolverDnZgesvd_bufferSize
        (m: c_int, n: c_int, to: Out<'_>) = singular(size(m), size(n));
    cusolverDnSorgbr_bufferSize cusolverDnDorgbr_bufferSize cusolverDnCungbr_bufferSize cusolverDnZungbr_bufferSize
        (_side: c_int, m: c_int, n: c_int, _k: c_int, _a: Ptr, _lda: c_int, _tau: Ptr, to: Out<'_>)
        = panel(size(m).min(size(n)));
    cusolverDnSsytrd_bufferSize cusolverDnDsytrd_bufferSize cusolverDnChetrd_bufferSize cusolverDnZhetrd_bufferSize
        (_uplo: c_int, n: c_int, _a: Ptr, _lda: c_int, _d: Ptr, _e: Ptr, _tau: Ptr, to: Out<'_>) = panel(size(n));
    cusolverDnSorgtr_bufferSize cusolverDnDorgtr_bufferSize cusolverDnCungtr_bufferSize cusolverDnZungtr_bufferSize
        (_uplo: c_int, n: c_int, _a: Ptr, _lda: c_int, _tau: Ptr, to: Out<'_>) = panel(size(n));
    cusolverDnSormtr_bufferSize cusolverDnDormtr_bufferSize cusolverDnCunmtr_bufferSize cusolverDnZunmtr_bufferSize
        (side: c_int, _uplo: c_int, _trans: c_int, m: c_int, n: c_int, _a: Ptr, _lda: c_int, _tau: Ptr, _c: Ptr,
         _ldc: c_int, to: Out<'_>) = panel(size(if side == 0 { n } else { m }));
    cusolverDnSsyevd_bufferSize cusolverDnDsyevd_bufferSize cusolverDnCheevd_bufferSize cusolverDnZheevd_bufferSize
        (mode: c_int, _uplo: c_int, n: c_int, _a: Ptr, _lda: c_int, _w: Ptr, to: Out<'_>) = eigen(size(n), mode == VECTORS);
    cusolverDnSsygvd_bufferSize cusolverDnDsygvd_bufferSize cusolverDnChegvd_bufferSize cusolverDnZhegvd_bufferSize
        (_itype: c_int, mode: c_int, _uplo: c_int, n: c_int, _a: Ptr, _lda: c_int, _b: Ptr, _ldb: c_int, _w: Ptr,
         to: Out<'_>) = eigen(size(n), mode == VECTORS);
    cusolverDnSsyevj_bufferSize cusolverDnDsyevj_bufferSize cusolverDnCheevj_bufferSize cusolverDnZheevj_bufferSize
        (_mode: c_int, _uplo: c_int, n: c_int, _a: Ptr, _lda: c_int, _w: Ptr, to: Out<'_>, _params: Ptr)
        = eigen_jacobi(size(n));
    cusolverDnSsygvj_bufferSize cusolverDnDsygvj_bufferSize cusolverDnChegvj_bufferSize cusolverDnZhegvj_bufferSize
        (_itype: c_int, _mode: c_int, _uplo: c_int, n: c_int, _a: Ptr, _lda: c_int, _b: Ptr, _ldb: c_int, _w: Ptr,
         to: Out<'_>, _params: Ptr) = eigen_jacobi(size(n));
    cusolverDnSsyevjBatched_bufferSize cusolverDnDsyevjBatched_bufferSize
    cusolverDnCheevjBatched_bufferSize cusolverDnZheevjBatched_bufferSize
        (_mode: c_int, _uplo: c_int, n: c_int, _a: Ptr, _lda: c_int, _w: Ptr, to: Out<'_>, _params: Ptr, batch: c_int)
        = eigen_jacobi(size(n)).saturating_mul(size(batch));
    cusolverDnSgesvdj_bufferSize cusolverDnDgesvdj_bufferSize cusolverDnCgesvdj_bufferSize cusolverDnZgesvdj_bufferSize
        (_mode: c_int, _econ: c_int, m: c_int, n: c_int, _a: Ptr, _lda: c_int, _s: Ptr, _u: Ptr, _ldu: c_int, _v: Ptr,
         _ldv: c_int, to: Out<'_>, _params: Ptr) = singular_jacobi(size(m), size(n));
    cusolverDnSgesvdjBatched_bufferSize cusolverDnDgesvdjBatched_bufferSize
    cusolverDnCgesvdjBatched_bufferSize cusolverDnZgesvdjBatched_bufferSize
        (_mode: c_int, m: c_int, n: c_int, _a: Ptr, _lda: c_int, _s: Ptr, _u: Ptr, _ldu: c_int, _v: Ptr, _ldv: c_int,
         to: Out<'_>, _params: Ptr, batch: c_int) = singular_jacobi(size(m), size(n)).saturating_mul(size(batch));
    cusolverDnSgesvdaStridedBatched_bufferSize cusolverDnDgesvdaStridedBatched_bufferSize
    cusolverDnCgesvdaStridedBatched_bufferSize cusolverDnZgesvdaStridedBatched_bufferSize
        (_mode: c_int, _rank: c_int, _m: c_int, n: c_int, _a: Ptr, _lda: c_int, _stride_a: i64, _s: Ptr, _stride_s: i64,
         _u: Ptr, _ldu: c_int, _stride_u: i64, _v: Ptr, _ldv: c_int, _stride_v: i64, to: Out<'_>, batch: c_int)
        = singular_approximate(size(n)).saturating_mul(size(batch));
}

/// Defines the functions of the interface with 64-bit sizes: a type, elements on the device and on the host.
macro_rules! sizes_64 {
    (
        write $device:ident, $host:ident;
        $($name:ident ($($parameter:ident: $kind:ty),* $(,)?) = $type:ident, $count:expr $(, $on_host:expr)?;)*
    ) => {$(
        sizes_64!(@one $device $host $name ($($parameter: $kind),*) $type, $count $(, $on_host)?);
    )*};
    (
        @one $device:ident $host:ident $name:ident ($($parameter:ident: $kind:ty),*) $type:ident, $count:expr
        $(, $on_host:expr)?
    ) => {
        /// The workspaces in bytes.
        pub fn $name(_handle: *mut c_void, $($parameter: $kind),*) -> Result<(), CusolverStatus> {
            let on_host: u64 = 0 $(+ $on_host)?;
            bytes($device, $host, $type, $count, on_host)
        }
    };
}

type Bytes<'a> = boundary::Out<'a, usize>;

sizes_64! {
    write on_device, host;
    cusolverDnXgeqrf_bufferSize(
        _params: Ptr, _m: i64, n: i64, kind: c_int, _a: Ptr, _lda: i64, _tau_kind: c_int, _tau: Ptr, _compute: c_int,
        on_device: Bytes<'_>, host: Bytes<'_>,
    ) = kind, panel(size(n));
    cusolverDnXgetrf_bufferSize(
        _params: Ptr, m: i64, n: i64, kind: c_int, _a: Ptr, _lda: i64, _compute: c_int, on_device: Bytes<'_>, host: Bytes<'_>,
    ) = kind, lu(size(m), size(n));
    cusolverDnXpotrf_bufferSize(
        _params: Ptr, _uplo: c_int, n: i64, kind: c_int, _a: Ptr, _lda: i64, _compute: c_int, on_device: Bytes<'_>,
        host: Bytes<'_>,
    ) = kind, panel(size(n));
    cusolverDnXsytrf_bufferSize(
        _params: Ptr, _uplo: c_int, n: i64, kind: c_int, _a: Ptr, _lda: i64, _pivots: Ptr, _compute: c_int,
        on_device: Bytes<'_>, host: Bytes<'_>,
    ) = kind, panel(size(n));
    cusolverDnXsytrs_bufferSize(
        _uplo: c_int, n: i64, right: i64, kind: c_int, _a: Ptr, _lda: i64, _pivots: Ptr, _b_kind: c_int, _b: Ptr,
        _ldb: i64, on_device: Bytes<'_>, host: Bytes<'_>,
    ) = kind, matrix(size(n), size(right));
    cusolverDnXtrtri_bufferSize(
        _uplo: c_int, _diagonal: c_int, n: i64, kind: c_int, _a: Ptr, _lda: i64, on_device: Bytes<'_>, host: Bytes<'_>,
    ) = kind, panel(size(n));
    cusolverDnXsyevd_bufferSize(
        _params: Ptr, mode: c_int, _uplo: c_int, n: i64, kind: c_int, _a: Ptr, _lda: i64, _w_kind: c_int, _w: Ptr,
        _compute: c_int, on_device: Bytes<'_>, host: Bytes<'_>,
    ) = kind, eigen(size(n), mode == VECTORS);
    cusolverDnXsyevdx_bufferSize(
        _params: Ptr, mode: c_int, _range: c_int, _uplo: c_int, n: i64, kind: c_int, _a: Ptr, _lda: i64, _low: Ptr,
        _high: Ptr, _first: i64, _last: i64, _found: *mut c_void, _w_kind: c_int, _w: Ptr, _compute: c_int,
        on_device: Bytes<'_>, host: Bytes<'_>,
    ) = kind, eigen(size(n), mode == VECTORS);
    cusolverDnXsyevBatched_bufferSize(
        _params: Ptr, mode: c_int, _uplo: c_int, n: i64, kind: c_int, _a: Ptr, _lda: i64, _w_kind: c_int, _w: Ptr,
        _compute: c_int, on_device: Bytes<'_>, host: Bytes<'_>, batch: i64,
    ) = kind, eigen(size(n), mode == VECTORS).saturating_mul(size(batch));
    cusolverDnXgesvd_bufferSize(
        _params: Ptr, _job_u: c_int, _job_v: c_int, m: i64, n: i64, kind: c_int, _a: Ptr, _lda: i64, _s_kind: c_int,
        _s: Ptr, _u_kind: c_int, _u: Ptr, _ldu: i64, _v_kind: c_int, _v: Ptr, _ldv: i64, _compute: c_int,
        on_device: Bytes<'_>, host: Bytes<'_>,
    ) = kind, singular(size(m), size(n));
    cusolverDnXgesvdp_bufferSize(
        _params: Ptr, _mode: c_int, _econ: c_int, m: i64, n: i64, kind: c_int, _a: Ptr, _lda: i64, _s_kind: c_int,
        _s: Ptr, _u_kind: c_int, _u: Ptr, _ldu: i64, _v_kind: c_int, _v: Ptr, _ldv: i64, _compute: c_int,
        on_device: Bytes<'_>, host: Bytes<'_>,
    ) = kind, singular_jacobi(size(m), size(n)), size(m).min(size(n));
    cusolverDnXgesvdr_bufferSize(
        _params: Ptr, _job_u: c_int, _job_v: c_int, m: i64, n: i64, rank: i64, extra: i64, _rounds: i64, kind: c_int,
        _a: Ptr, _lda: i64, _s_kind: c_int, _s: Ptr, _u_kind: c_int, _u: Ptr, _ldu: i64, _v_kind: c_int, _v: Ptr,
        _ldv: i64, _compute: c_int, on_device: Bytes<'_>, host: Bytes<'_>,
    ) = kind, matrix(size(m).saturating_add(size(n)), size(rank).saturating_add(size(extra))), size(rank);
    cusolverDnXgeev_bufferSize(
        _params: Ptr, _job_left: c_int, _job_right: c_int, n: i64, kind: c_int, _a: Ptr, _lda: i64, _w_kind: c_int,
        _w: Ptr, _left_kind: c_int, _left: Ptr, _ld_left: i64, _right_kind: c_int, _right: Ptr, _ld_right: i64,
        _compute: c_int, on_device: Bytes<'_>, host: Bytes<'_>,
    ) = kind, matrix(size(n), size(n)).saturating_add(panel(size(n))), matrix(size(n), size(n));
}

/// Says of every matrix of a batch that it could be factored: programs read this array back.
fn no_errors(info: Room<'_, c_int>) -> Result<(), CusolverStatus> {
    // SAFETY: the argument of `boundary`: the array has a number for each matrix, on the host or on a card.
    unsafe { transfer::fill(info.address().cast(), 0, 4, info.count()) };
    Ok(())
}

/// Defines the routines for batches: all of one line have the same parameters, with `info` among them.
macro_rules! batched {
    (write $info:ident; $($($name:ident)+ ($($parameter:ident: $kind:ty),* $(,)?);)*) => {$(
        batched!(@each $info [$($name)+] ($($parameter: $kind),*));
    )*};
    (@each $info:ident [$($name:ident)+] $parameters:tt) => {
        $(batched!(@one $info $name $parameters);)+
    };
    (@one $info:ident $name:ident ($($parameter:ident: $kind:ty),*)) => {
        /// Works on a batch of matrices: nothing moves.
        pub fn $name(_handle: *mut c_void, $($parameter: $kind),*) -> Result<(), CusolverStatus> {
            no_errors($info)
        }
    };
}
type Info<'a> = Room<'a, c_int>;

batched! {
    write info;
    cusolverDnSpotrfBatched cusolverDnDpotrfBatched cusolverDnCpotrfBatched cusolverDnZpotrfBatched
        (_uplo: c_int, _n: c_int, _a: Ptr, _lda: c_int, info: Info<'_>, _batch: c_int);
    cusolverDnSsyevjBatched cusolverDnDsyevjBatched cusolverDnCheevjBatched cusolverDnZheevjBatched
        (_mode: c_int, _uplo: c_int, _n: c_int, _a: Ptr, _lda: c_int, _w: Ptr, _work: Ptr, _lwork: c_int, info: Info<'_>,
         _params: Ptr, _batch: c_int);
    cusolverDnSgesvdjBatched cusolverDnDgesvdjBatched cusolverDnCgesvdjBatched cusolverDnZgesvdjBatched
        (_mode: c_int, _m: c_int, _n: c_int, _a: Ptr, _lda: c_int, _s: Ptr, _u: Ptr, _ldu: c_int, _v: Ptr, _ldv: c_int,
         _work: Ptr, _lwork: c_int, info: Info<'_>, _params: Ptr, _batch: c_int);
    cusolverDnSgesvdaStridedBatched cusolverDnDgesvdaStridedBatched cusolverDnCgesvdaStridedBatched
    cusolverDnZgesvdaStridedBatched
        (_mode: c_int, _rank: c_int, _m: c_int, _n: c_int, _a: Ptr, _lda: c_int, _stride_a: i64, _s: Ptr,
         _stride_s: i64, _u: Ptr, _ldu: c_int, _stride_u: i64, _v: Ptr, _ldv: c_int, _stride_v: i64, _work: Ptr,
         _lwork: c_int, info: Info<'_>, _residuals: Ptr, _batch: c_int);
    cusolverDnXsyevBatched
        (_params: Ptr, _mode: c_int, _uplo: c_int, _n: i64, _kind: c_int, _a: Ptr, _lda: i64, _w_kind: c_int, _w: Ptr,
         _compute: c_int, _device: Ptr, _on_device: usize, _host: Ptr, _on_host: usize, info: Info<'_>, _batch: i64);
}

/// Makes a handle; it has no state. What the library allocates for one is not documented: it is charged where it was read,
/// for the first.
pub fn cusolverDnCreate(out: boundary::Out<'_, *mut c_void>) -> Result<(), CusolverStatus> {
    let device = device::activate_current().map_err(|_| CusolverStatus::NOT_INITIALIZED)?;
    let bytes = holdings::of(device.description).cusolver;
    if bytes > 0 && !gpu().libraries.solver_charged.swap(true, Ordering::Relaxed) {
        // A card that is full refuses the handle, and the next one is the first.
        if !gpu().charge(device.card, Kind::Library, bytes) {
            gpu().libraries.solver_charged.store(false, Ordering::Relaxed);
            return Err(CusolverStatus::ALLOC_FAILED);
        }
    }
    out.set(gpu().handles.fresh());
    Ok(())
}

/// Sets the stream, which is remembered in the handle's own memory.
pub fn cusolverDnSetStream(handle: InOut<'_, *mut c_void>, stream: *mut c_void) -> Result<(), CusolverStatus> {
    handle.set(stream);
    Ok(())
}

/// The stream that was set.
pub fn cusolverDnGetStream(
    handle: InOut<'_, *mut c_void>,
    stream: boundary::Out<'_, *mut c_void>,
) -> Result<(), CusolverStatus> {
    stream.set(handle.get().ok_or(CusolverStatus::NOT_INITIALIZED)?);
    Ok(())
}

/// The version in one number: 11705 for 11.7.5.
pub fn cusolverGetVersion(value: Out<'_>) -> Result<(), CusolverStatus> {
    let [major, minor, patch] = version();
    value.set(major * 1000 + minor * 100 + patch);
    Ok(())
}

/// One part of the version.
pub fn cusolverGetProperty(kind: c_int, value: Out<'_>) -> Result<(), CusolverStatus> {
    value.set(property(version(), kind).ok_or(CusolverStatus::INVALID_VALUE)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_lapacks() {
        assert_eq!(eigen(100, true), 1 + 600 + 20_000);
        assert_eq!(eigen(100, false), 6400 + 201);
        assert_eq!(panel(1000), 64_000);
        assert_eq!(lu(10, 20), 30 * BLOCK);
        assert_eq!(singular_jacobi(4, 2), 8 + 8 + 2);
        assert_eq!(matrix(u64::MAX, 2), u64::MAX);
    }

    #[test]
    fn a_size_is_written_and_never_0() {
        let (mut count, mut on_device, mut on_host) = (0, 0, 0);
        let none = std::ptr::null_mut();
        assert_eq!(cusolverDnSgeqrf_bufferSize(none, 8, 0, none, 8, Out::to(&mut count)), Ok(()));
        assert_eq!(count, 1);
        assert_eq!(cusolverDnDgetrf_bufferSize(none, i32::MAX, i32::MAX, none, 8, Out::to(&mut count)), Ok(()));
        assert_eq!(count, c_int::MAX, "a number that does not fit is the largest");
        let status = cusolverDnXsyevd_bufferSize(
            none,
            none,
            VECTORS,
            0,
            100,
            5,
            none,
            100,
            1,
            none,
            5,
            Bytes::to(&mut on_device),
            Bytes::to(&mut on_host),
        );
        assert_eq!((status, on_device, on_host), (Ok(()), 20_601 * 16, 0));
    }
}
