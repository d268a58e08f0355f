//! cuFFT: plans, and the work areas that they need.
//!
//! **Model of the work area.** NVIDIA's documentation of cuFFT says that a plan takes between 1 and 8 times
//! `batch * n[0] * .. * n[rank-1]` complex elements. Here a transform whose sizes have no prime factor above 127 takes
//! the lower bound (real ones half of it: the last dimension is stored once), because those are done in place of one
//! buffer; any other dimension goes through Bluestein's algorithm, which works on the next power of two that holds
//! `2 n - 1`, and the product is held to the documented upper bound. Not compared with the library: it does not
//! tell without a card.
//!
//! PyTorch turns automatic allocation off and allocates the work area itself, so that it is in PyTorch's own figures.
//! With automatic allocation on, it is charged to the library, and given back when the plan is destroyed.
#![allow(clippy::missing_safety_doc, clippy::too_many_arguments)]

use crate::fork::{Mutex, MutexGuard};
use std::ffi::{c_int, c_void};

use oomph_ledger::Kind;

use crate::cublas::versions::{library_version, property, put};
use crate::{books, device};

const SUCCESS: u32 = 0;
const INVALID_PLAN: u32 = 1;
const ALLOC_FAILED: u32 = 2;
const INVALID_TYPE: u32 = 3;
const INVALID_VALUE: u32 = 4;
const SETUP_FAILED: u32 = 7;
const INVALID_SIZE: u32 = 8;

library_version!("libcufft.so.", "cufft", [10, 9, 0], [11, 4, 1], [12, 5, 0]);

/// More dimensions than cuFFT allows.
const MOST_DIMENSIONS: usize = 8;
/// The largest prime factor that has a kernel of its own.
const LARGEST_DIRECT_PRIME: u64 = 127;
/// The documented upper bound, in complex elements per element.
const WORST: u64 = 8;

/// What kind of numbers a transform works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    /// Bytes of one complex element.
    element: u64,
    /// Whether one side is real.
    real: bool,
}

impl Numbers {
    /// By `cufftType`.
    fn of_type(kind: c_int) -> Option<Numbers> {
        let (element, real) = match kind {
            0x29 => (8, false),        // C2C
            0x2a | 0x2c => (8, true),  // R2C, C2R
            0x69 => (16, false),       // Z2Z
            0x6a | 0x6c => (16, true), // D2Z, Z2D
            _ => return None,
        };
        Some(Numbers { element, real })
    }

    /// By the `cudaDataType` of the input, the output and the execution.
    fn of_data(input: c_int, output: c_int, execution: c_int) -> Option<Numbers> {
        // Real types: half 2, single 0, double 1, bfloat16 14; complex ones: 6, 4, 5, 15.
        let real = |kind| matches!(kind, 0 | 1 | 2 | 14);
        let element = match execution {
            2 | 6 | 14 | 15 => 4,
            0 | 4 => 8,
            1 | 5 => 16,
            _ => return None,
        };
        Some(Numbers { element, real: real(input) || real(output) })
    }
}

/// The length that a dimension is worked on with.
fn worked_length(length: u64) -> u64 {
    let mut rest = length;
    let mut prime = 2;
    while prime <= LARGEST_DIRECT_PRIME && rest > 1 {
        if rest.is_multiple_of(prime) {
            rest /= prime;
        } else {
            prime += 1;
        }
    }
    if rest <= 1 {
        length
    } else {
        length.saturating_mul(2).saturating_sub(1).checked_next_power_of_two().unwrap_or(u64::MAX)
    }
}

/// The work area of a plan in bytes.
fn work_area(lengths: &[u64], batch: u64, numbers: Numbers) -> u64 {
    let elements = |length: fn(u64) -> u64| {
        lengths.iter().enumerate().fold(batch, |product, (index, &n)| {
            let n = length(n);
            // The last dimension of a real transform has only its first half.
            let stored = if numbers.real && index + 1 == lengths.len() { n / 2 + 1 } else { n };
            product.saturating_mul(stored)
        })
    };
    let plain = elements(|n| n);
    elements(worked_length).min(plain.saturating_mul(WORST)).saturating_mul(numbers.element)
}

/// A plan.
#[derive(Clone, Debug)]
struct Plan {
    /// Whether cuFFT allocates the work area.
    automatic: bool,
    /// The work area's size, once the plan was made.
    work_bytes: u64,
    /// The card and the bytes that are charged.
    charged: Option<(usize, u64)>,
}

/// The plans, by handle. A handle that was destroyed is used again, like cuFFT's own.
static PLANS: Mutex<Vec<Option<Plan>>> = Mutex::new(Vec::new());

fn plans() -> MutexGuard<'static, Vec<Option<Plan>>> {
    PLANS.lock()
}

fn with_plan<T>(handle: c_int, act: impl FnOnce(&mut Plan) -> T) -> Option<T> {
    // Handles are numbered from 1, so that none is 0.
    let index = usize::try_from(handle).ok()?.checked_sub(1)?;
    plans().get_mut(index)?.as_mut().map(act)
}

impl Plan {
    fn release(&mut self) {
        if let Some((card, bytes)) = self.charged.take() {
            books::release(card, Kind::Library, bytes);
        }
    }

    /// Makes the plan: notes its work area, and allocates it if that is cuFFT's part.
    fn make(&mut self, work_bytes: u64) -> u32 {
        self.release();
        self.work_bytes = work_bytes;
        if !self.automatic || work_bytes == 0 {
            return SUCCESS;
        }
        let Ok(device) = device::activate_current() else { return SETUP_FAILED };
        let bytes = work_bytes.next_multiple_of(2 << 20);
        if !books::charge(device.card, Kind::Library, bytes) {
            return ALLOC_FAILED;
        }
        self.charged = Some((device.card, bytes));
        SUCCESS
    }
}

fn new_plan() -> c_int {
    let plan = Plan { automatic: true, work_bytes: 0, charged: None };
    let mut plans = plans();
    let index = match plans.iter().position(Option::is_none) {
        Some(index) => index,
        None => {
            plans.push(None);
            plans.len() - 1
        }
    };
    if let Some(place) = plans.get_mut(index) {
        *place = Some(plan);
    }
    c_int::try_from(index + 1).unwrap_or(c_int::MAX)
}

/// Reads the sizes of a transform.
unsafe fn lengths<T: Copy + Into<i64>>(rank: c_int, n: *const T) -> Option<Vec<u64>> {
    let rank = usize::try_from(rank).ok().filter(|rank| (1..=MOST_DIMENSIONS).contains(rank))?;
    if n.is_null() {
        return None;
    }
    // SAFETY: cuFFT's contract: `rank` sizes.
    (0..rank)
        .map(|index| u64::try_from(unsafe { n.add(index).read_unaligned() }.into()).ok().filter(|n| *n > 0))
        .collect()
}

/// The work area of what was asked for, or why there is none.
fn ask(lengths: Option<Vec<u64>>, batch: i64, numbers: Option<Numbers>) -> Result<u64, u32> {
    let lengths = lengths.ok_or(INVALID_SIZE)?;
    let batch = u64::try_from(batch).ok().filter(|batch| *batch > 0).ok_or(INVALID_VALUE)?;
    Ok(work_area(&lengths, batch, numbers.ok_or(INVALID_TYPE)?))
}

/// Makes a plan of a handle.
unsafe fn make(handle: c_int, work: Result<u64, u32>, size: *mut usize) -> u32 {
    let work = match work {
        Ok(work) => work,
        Err(status) => return status,
    };
    let Some(status) = with_plan(handle, |plan| plan.make(work)) else { return INVALID_PLAN };
    // SAFETY: cuFFT's contract: an out-parameter that may be written.
    unsafe { put(size, work as usize) };
    status
}

/// Makes a handle and its plan.
unsafe fn plan(out: *mut c_int, work: Result<u64, u32>) -> u32 {
    if out.is_null() {
        return INVALID_VALUE;
    }
    if device::activate_current().is_err() {
        return SETUP_FAILED;
    }
    let handle = new_plan();
    // SAFETY: cuFFT's contract: an out-parameter that may be written.
    unsafe {
        match make(handle, work, std::ptr::null_mut()) {
            SUCCESS => {
                put(out, handle);
                SUCCESS
            }
            status => {
                cufftDestroy(handle);
                status
            }
        }
    }
}

/// Writes a size.
unsafe fn answer(work: Result<u64, u32>, size: *mut usize) -> u32 {
    match work {
        Ok(work) => {
            // SAFETY: cuFFT's contract: an out-parameter that may be written.
            unsafe { put(size, work as usize) };
            SUCCESS
        }
        Err(status) => status,
    }
}

/// The work of a transform given by its sizes and `cufftType`.
unsafe fn of_sizes(sizes: &[c_int], batch: c_int, kind: c_int) -> Result<u64, u32> {
    // SAFETY: the slice is as long as it says.
    ask(unsafe { lengths(sizes.len() as c_int, sizes.as_ptr()) }, batch.into(), Numbers::of_type(kind))
}

pub unsafe fn cufftCreate(handle: *mut c_int) -> u32 {
    if handle.is_null() {
        return INVALID_VALUE;
    }
    if device::activate_current().is_err() {
        return SETUP_FAILED;
    }
    // SAFETY: cuFFT's contract: an out-parameter that may be written.
    unsafe { put(handle, new_plan()) };
    SUCCESS
}

pub unsafe fn cufftDestroy(handle: c_int) -> u32 {
    let Some(index) = usize::try_from(handle).ok().and_then(|handle| handle.checked_sub(1)) else {
        return INVALID_PLAN;
    };
    match plans().get_mut(index).and_then(Option::take) {
        Some(mut plan) => {
            plan.release();
            SUCCESS
        }
        None => INVALID_PLAN,
    }
}

pub unsafe fn cufftSetAutoAllocation(handle: c_int, automatic: c_int) -> u32 {
    with_plan(handle, |plan| plan.automatic = automatic != 0).map_or(INVALID_PLAN, |()| SUCCESS)
}

/// The program's own work area, for which cuFFT gives its own back.
pub unsafe fn cufftSetWorkArea(handle: c_int, area: *mut c_void) -> u32 {
    with_plan(handle, |plan| {
        if !area.is_null() {
            plan.release();
        }
    })
    .map_or(INVALID_PLAN, |()| SUCCESS)
}

pub unsafe fn cufftGetSize(handle: c_int, size: *mut usize) -> u32 {
    // SAFETY: cuFFT's contract is that of `answer`.
    unsafe { answer(with_plan(handle, |plan| plan.work_bytes).ok_or(INVALID_PLAN), size) }
}

pub unsafe fn cufftPlan1d(out: *mut c_int, nx: c_int, kind: c_int, batch: c_int) -> u32 {
    // SAFETY: cuFFT's contract is that of `plan`.
    unsafe { plan(out, of_sizes(&[nx], batch, kind)) }
}

pub unsafe fn cufftPlan2d(out: *mut c_int, nx: c_int, ny: c_int, kind: c_int) -> u32 {
    // SAFETY: as above.
    unsafe { plan(out, of_sizes(&[nx, ny], 1, kind)) }
}

pub unsafe fn cufftPlan3d(out: *mut c_int, nx: c_int, ny: c_int, nz: c_int, kind: c_int) -> u32 {
    // SAFETY: as above.
    unsafe { plan(out, of_sizes(&[nx, ny, nz], 1, kind)) }
}

pub unsafe fn cufftPlanMany(
    out: *mut c_int,
    rank: c_int,
    n: *const c_int,
    _inembed: *const c_int,
    _istride: c_int,
    _idist: c_int,
    _onembed: *const c_int,
    _ostride: c_int,
    _odist: c_int,
    kind: c_int,
    batch: c_int,
) -> u32 {
    // SAFETY: cuFFT's contract is that of `lengths` and `plan`.
    unsafe { plan(out, ask(lengths(rank, n), batch.into(), Numbers::of_type(kind))) }
}

pub unsafe fn cufftMakePlan1d(handle: c_int, nx: c_int, kind: c_int, batch: c_int, size: *mut usize) -> u32 {
    // SAFETY: cuFFT's contract is that of `make`.
    unsafe { make(handle, of_sizes(&[nx], batch, kind), size) }
}

pub unsafe fn cufftMakePlan2d(handle: c_int, nx: c_int, ny: c_int, kind: c_int, size: *mut usize) -> u32 {
    // SAFETY: as above.
    unsafe { make(handle, of_sizes(&[nx, ny], 1, kind), size) }
}

pub unsafe fn cufftMakePlan3d(handle: c_int, nx: c_int, ny: c_int, nz: c_int, kind: c_int, size: *mut usize) -> u32 {
    // SAFETY: as above.
    unsafe { make(handle, of_sizes(&[nx, ny, nz], 1, kind), size) }
}

pub unsafe fn cufftMakePlanMany(
    handle: c_int,
    rank: c_int,
    n: *const c_int,
    _inembed: *const c_int,
    _istride: c_int,
    _idist: c_int,
    _onembed: *const c_int,
    _ostride: c_int,
    _odist: c_int,
    kind: c_int,
    batch: c_int,
    size: *mut usize,
) -> u32 {
    // SAFETY: cuFFT's contract is that of `lengths` and `make`.
    unsafe { make(handle, ask(lengths(rank, n), batch.into(), Numbers::of_type(kind)), size) }
}

pub unsafe fn cufftMakePlanMany64(
    handle: c_int,
    rank: c_int,
    n: *const i64,
    _inembed: *const i64,
    _istride: i64,
    _idist: i64,
    _onembed: *const i64,
    _ostride: i64,
    _odist: i64,
    kind: c_int,
    batch: i64,
    size: *mut usize,
) -> u32 {
    // SAFETY: as above.
    unsafe { make(handle, ask(lengths(rank, n), batch, Numbers::of_type(kind)), size) }
}

pub unsafe fn cufftXtMakePlanMany(
    handle: c_int,
    rank: c_int,
    n: *const i64,
    _inembed: *const i64,
    _istride: i64,
    _idist: i64,
    input: c_int,
    _onembed: *const i64,
    _ostride: i64,
    _odist: i64,
    output: c_int,
    batch: i64,
    size: *mut usize,
    execution: c_int,
) -> u32 {
    // SAFETY: as above.
    unsafe { make(handle, ask(lengths(rank, n), batch, Numbers::of_data(input, output, execution)), size) }
}

pub unsafe fn cufftEstimate1d(nx: c_int, kind: c_int, batch: c_int, size: *mut usize) -> u32 {
    // SAFETY: cuFFT's contract is that of `answer`.
    unsafe { answer(of_sizes(&[nx], batch, kind), size) }
}

pub unsafe fn cufftEstimate2d(nx: c_int, ny: c_int, kind: c_int, size: *mut usize) -> u32 {
    // SAFETY: as above.
    unsafe { answer(of_sizes(&[nx, ny], 1, kind), size) }
}

pub unsafe fn cufftEstimate3d(nx: c_int, ny: c_int, nz: c_int, kind: c_int, size: *mut usize) -> u32 {
    // SAFETY: as above.
    unsafe { answer(of_sizes(&[nx, ny, nz], 1, kind), size) }
}

pub unsafe fn cufftEstimateMany(
    rank: c_int,
    n: *const c_int,
    _inembed: *const c_int,
    _istride: c_int,
    _idist: c_int,
    _onembed: *const c_int,
    _ostride: c_int,
    _odist: c_int,
    kind: c_int,
    batch: c_int,
    size: *mut usize,
) -> u32 {
    // SAFETY: cuFFT's contract is that of `lengths` and `answer`.
    unsafe { answer(ask(lengths(rank, n), batch.into(), Numbers::of_type(kind)), size) }
}

pub unsafe fn cufftGetSize1d(_handle: c_int, nx: c_int, kind: c_int, batch: c_int, size: *mut usize) -> u32 {
    // SAFETY: cuFFT's contract is that of `answer`.
    unsafe { cufftEstimate1d(nx, kind, batch, size) }
}

pub unsafe fn cufftGetSize2d(_handle: c_int, nx: c_int, ny: c_int, kind: c_int, size: *mut usize) -> u32 {
    // SAFETY: as above.
    unsafe { cufftEstimate2d(nx, ny, kind, size) }
}

pub unsafe fn cufftGetSize3d(_handle: c_int, nx: c_int, ny: c_int, nz: c_int, kind: c_int, size: *mut usize) -> u32 {
    // SAFETY: as above.
    unsafe { cufftEstimate3d(nx, ny, nz, kind, size) }
}

pub unsafe fn cufftGetSizeMany(
    _handle: c_int,
    rank: c_int,
    n: *const c_int,
    _inembed: *const c_int,
    _istride: c_int,
    _idist: c_int,
    _onembed: *const c_int,
    _ostride: c_int,
    _odist: c_int,
    kind: c_int,
    batch: c_int,
    size: *mut usize,
) -> u32 {
    // SAFETY: cuFFT's contract is that of `lengths` and `answer`.
    unsafe { answer(ask(lengths(rank, n), batch.into(), Numbers::of_type(kind)), size) }
}

pub unsafe fn cufftGetSizeMany64(
    _handle: c_int,
    rank: c_int,
    n: *const i64,
    _inembed: *const i64,
    _istride: i64,
    _idist: i64,
    _onembed: *const i64,
    _ostride: i64,
    _odist: i64,
    kind: c_int,
    batch: i64,
    size: *mut usize,
) -> u32 {
    // SAFETY: as above.
    unsafe { answer(ask(lengths(rank, n), batch, Numbers::of_type(kind)), size) }
}

pub unsafe fn cufftXtGetSizeMany(
    _handle: c_int,
    rank: c_int,
    n: *const i64,
    _inembed: *const i64,
    _istride: i64,
    _idist: i64,
    input: c_int,
    _onembed: *const i64,
    _ostride: i64,
    _odist: i64,
    output: c_int,
    batch: i64,
    size: *mut usize,
    execution: c_int,
) -> u32 {
    // SAFETY: as above.
    unsafe { answer(ask(lengths(rank, n), batch, Numbers::of_data(input, output, execution)), size) }
}

pub unsafe fn cufftGetVersion(value: *mut c_int) -> u32 {
    let [major, minor, patch] = version();
    // SAFETY: cuFFT's contract: an out-parameter that may be written.
    unsafe { put(value, major * 1000 + minor * 100 + patch) };
    SUCCESS
}

pub unsafe fn cufftGetProperty(kind: c_int, value: *mut c_int) -> u32 {
    let Some(part) = property(version(), kind) else { return INVALID_VALUE };
    // SAFETY: cuFFT's contract: an out-parameter that may be written.
    unsafe { put(value, part) };
    SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    const SINGLE: Numbers = Numbers { element: 8, real: false };

    #[test]
    fn a_smooth_size_takes_one_buffer_and_a_prime_one_more() {
        assert_eq!(work_area(&[1024], 16, SINGLE), 1024 * 16 * 8);
        assert_eq!(work_area(&[256, 256, 256], 1, SINGLE), 134_217_728);
        assert_eq!(work_area(&[512, 512], 1, Numbers { real: true, ..SINGLE }), 512 * 257 * 8);
        assert_eq!(worked_length(127 * 8), 127 * 8);
        assert_eq!(worked_length(1009), 2048, "Bluestein's algorithm works on the next power of two of 2 n - 1");
        assert_eq!(work_area(&[1009, 1009], 1, SINGLE), 2048 * 2048 * 8);
        assert_eq!(
            work_area(&[1031, 1031, 1031], 1, SINGLE),
            1031_u64.pow(3) * 8 * 8,
            "never above the documented bound"
        );
        assert_eq!(work_area(&[u64::MAX; 3], u64::MAX, SINGLE), u64::MAX);
    }

    #[test]
    fn types_are_read_in_both_interfaces() {
        assert_eq!(Numbers::of_type(0x2a), Some(Numbers { element: 8, real: true }));
        assert_eq!(Numbers::of_type(0x69), Some(Numbers { element: 16, real: false }));
        assert_eq!(Numbers::of_type(7), None);
        assert_eq!(Numbers::of_data(2, 6, 6), Some(Numbers { element: 4, real: true }));
        assert_eq!(Numbers::of_data(5, 5, 5), Some(Numbers { element: 16, real: false }));
    }

    #[test]
    fn plans_are_numbered_and_end_once() {
        let first = new_plan();
        let mut size = 0;
        // SAFETY: the out-parameter is a local variable. Without automatic allocation no card is needed.
        unsafe {
            assert_eq!(cufftSetAutoAllocation(first, 0), SUCCESS);
            assert_eq!(cufftMakePlan1d(first, 64, 0x29, 2, &raw mut size), SUCCESS);
            assert_eq!(size, 64 * 2 * 8);
            assert_eq!(cufftGetSize(first, &raw mut size), SUCCESS);
            assert_eq!(cufftMakePlan1d(first, 64, 0x11, 2, &raw mut size), INVALID_TYPE);
            assert_eq!(cufftMakePlan1d(first, 0, 0x29, 2, &raw mut size), INVALID_SIZE);
            assert_eq!(cufftDestroy(first), SUCCESS);
            assert_eq!(cufftDestroy(first), INVALID_PLAN);
            assert_eq!(cufftGetSize(first, &raw mut size), INVALID_PLAN);
        }
    }
}
