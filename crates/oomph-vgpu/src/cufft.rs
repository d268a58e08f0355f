//! cuFFT: plans, and the work areas that they need.
//!
//! **Model of the work area.** Read on an H100 with cuFFT 12.0 (815 plans in `acceptance/readings/real`): transforms whose
//! lengths a block of threads can hold are done in place and need none, single precision up to 16,384, double precision
//! up to 4,096 where the length is a power of two and up to 512 where it is not; real transforms of one dimension and more
//! than 1,024 numbers only where the length is a power of two. Longer ones take `batch * n[0] * .. * n[rank-1]` complex
//! elements (real ones half of it: the last dimension is stored once). A dimension with a prime factor above 127 goes
//! through Bluestein's algorithm, which works on the next power of two that holds `2 n - 1`; the product is held to the
//! documented upper bound of 8 times the elements. The model gives the card's figure for 91 % of the plans.
//!
//! PyTorch turns automatic allocation off and allocates the work area itself, so that it is in PyTorch's own figures.
//! With automatic allocation on, it is charged to the library, and given back when the plan is destroyed.
#![allow(clippy::too_many_arguments, reason = "the parameters are those of cuFFT's header")]
#![deny(unsafe_code)]

use std::ffi::{c_int, c_void};

use oomph_ledger::Kind;

use crate::boundary::{Items, Out, Plain, statuses};
use crate::cublas::versions::{library_version, property};
use crate::device;
use crate::gpu::{FftPlan, gpu};
use crate::lock::MutexGuard;

statuses! {
    /// `cufftResult`
    pub CufftStatus {
        /// A handle names no plan.
        INVALID_PLAN = 1,
        /// The card cannot hold the work area.
        ALLOC_FAILED = 2,
        /// The type of the numbers is unknown.
        INVALID_TYPE = 3,
        /// An argument is out of range.
        INVALID_VALUE = 4,
        /// There is no card.
        SETUP_FAILED = 7,
        /// The lengths are no transform's.
        INVALID_SIZE = 8,
    }
}

library_version!(Cufft, "libcufft.so.", "cufft", [10, 9, 0], [11, 4, 1], [12, 5, 0]);

/// More dimensions than cuFFT allows.
const MOST_DIMENSIONS: usize = 8;
/// The largest prime factor that has a kernel of its own.
const LARGEST_DIRECT_PRIME: u64 = 127;
/// The longest dimension that is transformed in place: in general, in one real dimension whose length is not a power of two, and in
/// double precision with real numbers or where the length is not a power of two.
const LONGEST_IN_PLACE: u64 = 16_384;
const LONGEST_REAL: u64 = 1024;
const LONGEST_DOUBLE: u64 = 4096;
const LONGEST_ODD_DOUBLE: u64 = 512;
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

/// Whether one kernel transforms a dimension of this length in place.
fn is_in_place(length: u64, numbers: Numbers, alone: bool) -> bool {
    let single = numbers.element <= 8;
    if length.is_power_of_two() {
        let longest_real = if single { LONGEST_IN_PLACE } else { LONGEST_DOUBLE };
        let longest = if numbers.real { longest_real } else { LONGEST_IN_PLACE };
        return length <= longest;
    }
    let longest = match (single, numbers.real && alone) {
        (true, false) => LONGEST_IN_PLACE,
        (true, true) => LONGEST_REAL,
        (false, _) => LONGEST_ODD_DOUBLE,
    };
    // A large prime is worked on with a longer length, which has to fit as well. Real transforms do not do that in place.
    let prime = worked_length(length) != length;
    length <= longest && !(prime && (numbers.real || worked_length(length) > LONGEST_IN_PLACE))
}

/// The work area of a plan in bytes.
fn work_area(lengths: &[u64], batch: u64, numbers: Numbers) -> u64 {
    if lengths.iter().all(|&length| is_in_place(length, numbers, lengths.len() == 1)) {
        return 0;
    }
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

fn plans() -> MutexGuard<'static, Vec<Option<FftPlan>>> {
    gpu().libraries.fft_plans.lock()
}

fn with_plan<T>(handle: c_int, act: impl FnOnce(&mut FftPlan) -> T) -> Option<T> {
    // Handles are numbered from 1, so that none is 0.
    let index = usize::try_from(handle).ok()?.checked_sub(1)?;
    plans().get_mut(index)?.as_mut().map(act)
}

impl FftPlan {
    fn release(&mut self) {
        if let Some((card, bytes)) = self.charged.take() {
            gpu().release(card, Kind::Library, bytes);
        }
    }

    /// Makes the plan: notes its work area, and allocates it if that is cuFFT's part.
    fn make(&mut self, work_bytes: u64) -> Result<(), CufftStatus> {
        self.release();
        self.work_bytes = work_bytes;
        if !self.automatic || work_bytes == 0 {
            return Ok(());
        }
        let device = device::activate_current().map_err(|_| CufftStatus::SETUP_FAILED)?;
        let bytes = work_bytes.next_multiple_of(2 << 20);
        if !gpu().charge(device.card, Kind::Library, bytes) {
            return Err(CufftStatus::ALLOC_FAILED);
        }
        self.charged = Some((device.card, bytes));
        Ok(())
    }
}

fn new_plan() -> c_int {
    let plan = FftPlan { automatic: true, work_bytes: 0, charged: None };
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

/// Reads the sizes of a transform, which are as many as its rank says.
fn lengths<T: Plain + Into<i64>>(n: Items<'_, T>) -> Option<Vec<u64>> {
    if n.is_null() || !(1..=MOST_DIMENSIONS).contains(&n.count()) {
        return None;
    }
    n.iter().map(|n| u64::try_from(n.into()).ok().filter(|n| *n > 0)).collect()
}

/// The work area of what was asked for, or why there is none.
fn ask(lengths: Option<Vec<u64>>, batch: i64, numbers: Option<Numbers>) -> Result<u64, CufftStatus> {
    let lengths = lengths.ok_or(CufftStatus::INVALID_SIZE)?;
    let batch = u64::try_from(batch).ok().filter(|batch| *batch > 0).ok_or(CufftStatus::INVALID_VALUE)?;
    Ok(work_area(&lengths, batch, numbers.ok_or(CufftStatus::INVALID_TYPE)?))
}

/// Makes a plan of a handle. The size is known even where the card cannot hold it.
fn make(handle: c_int, work: Result<u64, CufftStatus>, size: Out<'_, usize>) -> Result<(), CufftStatus> {
    let work = work?;
    let made = with_plan(handle, |plan| plan.make(work)).ok_or(CufftStatus::INVALID_PLAN)?;
    size.set(work as usize);
    made
}

/// Makes a handle and its plan.
fn plan(out: Out<'_, c_int>, work: Result<u64, CufftStatus>) -> Result<(), CufftStatus> {
    let out = out.given().ok_or(CufftStatus::INVALID_VALUE)?;
    device::activate_current().map_err(|_| CufftStatus::SETUP_FAILED)?;
    let handle = new_plan();
    match make(handle, work, Out::null()) {
        Ok(()) => out.set(handle),
        Err(status) => {
            let _ = cufftDestroy(handle);
            return Err(status);
        }
    }
    Ok(())
}

/// Writes a size.
fn answer(work: Result<u64, CufftStatus>, size: Out<'_, usize>) -> Result<(), CufftStatus> {
    size.set(work? as usize);
    Ok(())
}

/// The work of a transform given by its sizes and `cufftType`.
fn of_sizes(sizes: &[c_int], batch: c_int, kind: c_int) -> Result<u64, CufftStatus> {
    ask(lengths(Items::of(sizes)), batch.into(), Numbers::of_type(kind))
}

pub fn cufftCreate(handle: Out<'_, c_int>) -> Result<(), CufftStatus> {
    let handle = handle.given().ok_or(CufftStatus::INVALID_VALUE)?;
    device::activate_current().map_err(|_| CufftStatus::SETUP_FAILED)?;
    handle.set(new_plan());
    Ok(())
}

pub fn cufftDestroy(handle: c_int) -> Result<(), CufftStatus> {
    let index = usize::try_from(handle).ok().and_then(|handle| handle.checked_sub(1));
    let plan = index.and_then(|index| plans().get_mut(index).and_then(Option::take));
    plan.ok_or(CufftStatus::INVALID_PLAN)?.release();
    Ok(())
}

pub fn cufftSetAutoAllocation(handle: c_int, automatic: c_int) -> Result<(), CufftStatus> {
    with_plan(handle, |plan| plan.automatic = automatic != 0).ok_or(CufftStatus::INVALID_PLAN)
}

/// The program's own work area, for which cuFFT gives its own back.
pub fn cufftSetWorkArea(handle: c_int, area: *mut c_void) -> Result<(), CufftStatus> {
    with_plan(handle, |plan| {
        if !area.is_null() {
            plan.release();
        }
    })
    .ok_or(CufftStatus::INVALID_PLAN)
}

pub fn cufftGetSize(handle: c_int, size: Out<'_, usize>) -> Result<(), CufftStatus> {
    answer(with_plan(handle, |plan| plan.work_bytes).ok_or(CufftStatus::INVALID_PLAN), size)
}

pub fn cufftPlan1d(out: Out<'_, c_int>, nx: c_int, kind: c_int, batch: c_int) -> Result<(), CufftStatus> {
    plan(out, of_sizes(&[nx], batch, kind))
}

pub fn cufftPlan2d(out: Out<'_, c_int>, nx: c_int, ny: c_int, kind: c_int) -> Result<(), CufftStatus> {
    plan(out, of_sizes(&[nx, ny], 1, kind))
}

pub fn cufftPlan3d(out: Out<'_, c_int>, nx: c_int, ny: c_int, nz: c_int, kind: c_int) -> Result<(), CufftStatus> {
    plan(out, of_sizes(&[nx, ny, nz], 1, kind))
}

pub fn cufftPlanMany(
    out: Out<'_, c_int>,
    _rank: c_int,
    n: Items<'_, c_int>,
    _inembed: *const c_int,
    _istride: c_int,
    _idist: c_int,
    _onembed: *const c_int,
    _ostride: c_int,
    _odist: c_int,
    kind: c_int,
    batch: c_int,
) -> Result<(), CufftStatus> {
    plan(out, ask(lengths(n), batch.into(), Numbers::of_type(kind)))
}

pub fn cufftMakePlan1d(
    handle: c_int,
    nx: c_int,
    kind: c_int,
    batch: c_int,
    size: Out<'_, usize>,
) -> Result<(), CufftStatus> {
    make(handle, of_sizes(&[nx], batch, kind), size)
}

pub fn cufftMakePlan2d(
    handle: c_int,
    nx: c_int,
    ny: c_int,
    kind: c_int,
    size: Out<'_, usize>,
) -> Result<(), CufftStatus> {
    make(handle, of_sizes(&[nx, ny], 1, kind), size)
}

pub fn cufftMakePlan3d(
    handle: c_int,
    nx: c_int,
    ny: c_int,
    nz: c_int,
    kind: c_int,
    size: Out<'_, usize>,
) -> Result<(), CufftStatus> {
    make(handle, of_sizes(&[nx, ny, nz], 1, kind), size)
}

pub fn cufftMakePlanMany(
    handle: c_int,
    _rank: c_int,
    n: Items<'_, c_int>,
    _inembed: *const c_int,
    _istride: c_int,
    _idist: c_int,
    _onembed: *const c_int,
    _ostride: c_int,
    _odist: c_int,
    kind: c_int,
    batch: c_int,
    size: Out<'_, usize>,
) -> Result<(), CufftStatus> {
    make(handle, ask(lengths(n), batch.into(), Numbers::of_type(kind)), size)
}

pub fn cufftMakePlanMany64(
    handle: c_int,
    _rank: c_int,
    n: Items<'_, i64>,
    _inembed: *const i64,
    _istride: i64,
    _idist: i64,
    _onembed: *const i64,
    _ostride: i64,
    _odist: i64,
    kind: c_int,
    batch: i64,
    size: Out<'_, usize>,
) -> Result<(), CufftStatus> {
    make(handle, ask(lengths(n), batch, Numbers::of_type(kind)), size)
}

pub fn cufftXtMakePlanMany(
    handle: c_int,
    _rank: c_int,
    n: Items<'_, i64>,
    _inembed: *const i64,
    _istride: i64,
    _idist: i64,
    input: c_int,
    _onembed: *const i64,
    _ostride: i64,
    _odist: i64,
    output: c_int,
    batch: i64,
    size: Out<'_, usize>,
    execution: c_int,
) -> Result<(), CufftStatus> {
    make(handle, ask(lengths(n), batch, Numbers::of_data(input, output, execution)), size)
}

pub fn cufftEstimate1d(nx: c_int, kind: c_int, batch: c_int, size: Out<'_, usize>) -> Result<(), CufftStatus> {
    answer(of_sizes(&[nx], batch, kind), size)
}

pub fn cufftEstimate2d(nx: c_int, ny: c_int, kind: c_int, size: Out<'_, usize>) -> Result<(), CufftStatus> {
    answer(of_sizes(&[nx, ny], 1, kind), size)
}

pub fn cufftEstimate3d(nx: c_int, ny: c_int, nz: c_int, kind: c_int, size: Out<'_, usize>) -> Result<(), CufftStatus> {
    answer(of_sizes(&[nx, ny, nz], 1, kind), size)
}

pub fn cufftEstimateMany(
    _rank: c_int,
    n: Items<'_, c_int>,
    _inembed: *const c_int,
    _istride: c_int,
    _idist: c_int,
    _onembed: *const c_int,
    _ostride: c_int,
    _odist: c_int,
    kind: c_int,
    batch: c_int,
    size: Out<'_, usize>,
) -> Result<(), CufftStatus> {
    answer(ask(lengths(n), batch.into(), Numbers::of_type(kind)), size)
}

pub fn cufftGetSize1d(
    _handle: c_int,
    nx: c_int,
    kind: c_int,
    batch: c_int,
    size: Out<'_, usize>,
) -> Result<(), CufftStatus> {
    cufftEstimate1d(nx, kind, batch, size)
}

pub fn cufftGetSize2d(
    _handle: c_int,
    nx: c_int,
    ny: c_int,
    kind: c_int,
    size: Out<'_, usize>,
) -> Result<(), CufftStatus> {
    cufftEstimate2d(nx, ny, kind, size)
}

pub fn cufftGetSize3d(
    _handle: c_int,
    nx: c_int,
    ny: c_int,
    nz: c_int,
    kind: c_int,
    size: Out<'_, usize>,
) -> Result<(), CufftStatus> {
    cufftEstimate3d(nx, ny, nz, kind, size)
}

pub fn cufftGetSizeMany(
    _handle: c_int,
    _rank: c_int,
    n: Items<'_, c_int>,
    _inembed: *const c_int,
    _istride: c_int,
    _idist: c_int,
    _onembed: *const c_int,
    _ostride: c_int,
    _odist: c_int,
    kind: c_int,
    batch: c_int,
    size: Out<'_, usize>,
) -> Result<(), CufftStatus> {
    answer(ask(lengths(n), batch.into(), Numbers::of_type(kind)), size)
}

pub fn cufftGetSizeMany64(
    _handle: c_int,
    _rank: c_int,
    n: Items<'_, i64>,
    _inembed: *const i64,
    _istride: i64,
    _idist: i64,
    _onembed: *const i64,
    _ostride: i64,
    _odist: i64,
    kind: c_int,
    batch: i64,
    size: Out<'_, usize>,
) -> Result<(), CufftStatus> {
    answer(ask(lengths(n), batch, Numbers::of_type(kind)), size)
}

pub fn cufftXtGetSizeMany(
    _handle: c_int,
    _rank: c_int,
    n: Items<'_, i64>,
    _inembed: *const i64,
    _istride: i64,
    _idist: i64,
    input: c_int,
    _onembed: *const i64,
    _ostride: i64,
    _odist: i64,
    output: c_int,
    batch: i64,
    size: Out<'_, usize>,
    execution: c_int,
) -> Result<(), CufftStatus> {
    answer(ask(lengths(n), batch, Numbers::of_data(input, output, execution)), size)
}

pub fn cufftGetVersion(value: Out<'_, c_int>) -> Result<(), CufftStatus> {
    let [major, minor, patch] = version();
    value.set(major * 1000 + minor * 100 + patch);
    Ok(())
}

pub fn cufftGetProperty(kind: c_int, value: Out<'_, c_int>) -> Result<(), CufftStatus> {
    value.set(property(version(), kind).ok_or(CufftStatus::INVALID_VALUE)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SINGLE: Numbers = Numbers { element: 8, real: false };

    const REAL: Numbers = Numbers { real: true, ..SINGLE };
    const DOUBLE: Numbers = Numbers { element: 16, real: false };

    #[test]
    fn an_h100_takes_as_much() {
        for (lengths, batch, numbers, bytes) in [
            (&[1024][..], 64, SINGLE, 0),
            (&[1009], 64, SINGLE, 0),
            (&[512, 512], 8, REAL, 0),
            (&[4096, 4096], 1, SINGLE, 0),
            (&[256, 256, 256], 8, DOUBLE, 0),
            (&[1000], 64, REAL, 0),
            (&[1536], 8, REAL, 8 * 769 * 8),
            (&[32_768], 64, SINGLE, 64 * 32_768 * 8),
            (&[1_048_576], 64, SINGLE, 536_870_912),
            (&[8192], 1, Numbers { real: true, ..DOUBLE }, 4097 * 16),
            (&[640, 640], 1, DOUBLE, 640 * 640 * 16),
        ] {
            let asked = work_area(lengths, batch, numbers);
            // Real transforms are read with one number less for each row.
            assert!(asked.abs_diff(bytes) * 100 <= bytes, "{lengths:?} x {batch}: {asked}, not {bytes}");
        }
    }

    #[test]
    fn a_large_prime_takes_more_but_never_above_the_bound() {
        assert_eq!(worked_length(127 * 8), 127 * 8);
        assert_eq!(worked_length(1009), 2048, "Bluestein's algorithm works on the next power of two of 2 n - 1");
        assert_eq!(work_area(&[10_007], 1, SINGLE), 32_768 * 8);
        assert_eq!(work_area(&[16_411, 1031, 1031], 1, SINGLE), 16_411 * 1031 * 1031 * 8 * 8);
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
        // Without automatic allocation no card is needed.
        assert_eq!(cufftSetAutoAllocation(first, 0), Ok(()));
        assert_eq!(cufftMakePlan1d(first, 65_536, 0x29, 2, Out::to(&mut size)), Ok(()));
        assert_eq!(size, 65_536 * 2 * 8);
        assert_eq!(cufftGetSize(first, Out::to(&mut size)), Ok(()));
        let bad_type = cufftMakePlan1d(first, 64, 0x11, 2, Out::to(&mut size));
        assert_eq!(bad_type, Err(CufftStatus::INVALID_TYPE));
        let no_length = cufftMakePlan1d(first, 0, 0x29, 2, Out::to(&mut size));
        assert_eq!(no_length, Err(CufftStatus::INVALID_SIZE));
        assert_eq!(cufftDestroy(first), Ok(()));
        assert_eq!(cufftDestroy(first), Err(CufftStatus::INVALID_PLAN));
        assert_eq!(cufftGetSize(first, Out::to(&mut size)), Err(CufftStatus::INVALID_PLAN));
    }
}
