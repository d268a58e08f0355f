//! How a card is doing. A virtual one is idle, cool and healthy; what a card of its kind would not tell either is
//! answered with "not supported", without a word in the report.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use crate::boundary::{Out, Record, Room, Status};
use crate::cuda::attributes::{has_error_correction, is_hopper};
use crate::nvml::{Card, NvmlStatus, find, numbers, put_text};

/// Degrees Celsius of an idle card, and where cards slow down and stop.
const TEMPERATURE: c_uint = 35;
const SLOWDOWN: c_uint = 90;
/// Milliwatts of an idle card, and its limit.
const POWER: c_uint = 30_000;
const POWER_LIMIT: c_uint = 300_000;
/// PCIe lanes of a usual slot.
const PCIE_LANES: c_uint = 16;
/// Bytes of a `nvmlFieldValue_t`.
const FIELD_VALUE: usize = 40;
/// `nvmlClocksEventReasonGpuIdle`
const IDLE: c_ulonglong = 1;

/// A clock in MHz by its type: graphics 0, multiprocessors 1, memory 2, video 3.
fn clock(card: Card, kind: c_int) -> c_uint {
    let khz = if kind == 2 { card.description.memory_clock_khz } else { card.description.clock_khz };
    c_uint::try_from(khz / 1000).unwrap_or(0)
}

/// PCIe generation of a card: the fifth since Hopper.
fn pcie_generation(card: Card) -> c_uint {
    if card.description.cc_major >= 9 { 5 } else { 4 }
}

numbers! {
    nvmlDeviceGetTemperature(c_uint, _sensor: c_int) = |_| TEMPERATURE;
    nvmlDeviceGetTemperatureThreshold(c_uint, _kind: c_int) = |_| SLOWDOWN;
    nvmlDeviceGetPowerUsage(c_uint) = |_| POWER;
    nvmlDeviceGetPowerManagementLimit(c_uint) = |_| POWER_LIMIT;
    nvmlDeviceGetPowerManagementDefaultLimit(c_uint) = |_| POWER_LIMIT;
    nvmlDeviceGetEnforcedPowerLimit(c_uint) = |_| POWER_LIMIT;
    nvmlDeviceGetPowerManagementMode(c_int) = |_| 1;
    nvmlDeviceGetTotalEnergyConsumption(c_ulonglong) = |_| 0;
    nvmlDeviceGetClockInfo(c_uint, kind: c_int) = |card| clock(card, kind);
    nvmlDeviceGetMaxClockInfo(c_uint, kind: c_int) = |card| clock(card, kind);
    nvmlDeviceGetMaxCustomerBoostClock(c_uint, kind: c_int) = |card| clock(card, kind);
    nvmlDeviceGetClock(c_uint, kind: c_int, _which: c_int) = |card| clock(card, kind);
    nvmlDeviceGetApplicationsClock(c_uint, kind: c_int) = |card| clock(card, kind);
    nvmlDeviceGetDefaultApplicationsClock(c_uint, kind: c_int) = |card| clock(card, kind);
    nvmlDeviceGetCurrentClocksThrottleReasons(c_ulonglong) = |_| IDLE;
    nvmlDeviceGetCurrentClocksEventReasons(c_ulonglong) = |_| IDLE;
    nvmlDeviceGetPerformanceState(c_int) = |_| 0;
    nvmlDeviceGetPowerState(c_int) = |_| 0;
    nvmlDeviceGetPersistenceMode(c_int) = |_| 1;
    nvmlDeviceGetComputeMode(c_int) = |_| 0;
    nvmlDeviceGetVirtualizationMode(c_int) = |_| 0;
    nvmlDeviceGetUtilizationRates([c_uint; 2]) = |_| [0, 0];
    nvmlDeviceGetCurrPcieLinkGeneration(c_uint) = |card| pcie_generation(card);
    nvmlDeviceGetMaxPcieLinkGeneration(c_uint) = |card| pcie_generation(card);
    nvmlDeviceGetGpuMaxPcieLinkGeneration(c_uint) = |card| pcie_generation(card);
    nvmlDeviceGetCurrPcieLinkWidth(c_uint) = |_| PCIE_LANES;
    nvmlDeviceGetMaxPcieLinkWidth(c_uint) = |_| PCIE_LANES;
    nvmlDeviceGetPcieThroughput(c_uint, _counter: c_int) = |_| 0;
    nvmlDeviceGetPcieReplayCounter(c_uint) = |_| 0;
    nvmlDeviceGetNumFans(c_uint) = |_| 0;
    nvmlDeviceGetMultiGpuBoard(c_uint) = |_| 0;
    // An H100 says that a display could be used, and that none is.
    nvmlDeviceGetDisplayMode(c_int) = |card| c_int::from(is_hopper(card.description));
    nvmlDeviceGetDisplayActive(c_int) = |_| 0;
    nvmlDeviceIsMigDeviceHandle(c_uint) = |_| 0;
    nvmlDeviceGetMaxMigDeviceCount(c_uint) = |_| 0;
    nvmlDeviceGetGpuFabricInfo([u8; 28]) = |_| [0; 28];
}

/// Defines functions that write the same pair of numbers about every card.
macro_rules! pairs {
    ($($name:ident($first:ty, $second:ty) = ($one:expr, $two:expr);)*) => {$(
        /// Two numbers about a card.
        pub fn $name(handle: *mut c_void, first: Out<'_, $first>, second: Out<'_, $second>) -> Result<(), NvmlStatus> {
            find(handle)?;
            first.set($one);
            second.set($two);
            Ok(())
        }
    )*};
}
pairs! {
    // Utilization in percent, and the sampling period in microseconds.
    nvmlDeviceGetEncoderUtilization(c_uint, c_uint) = (0, 1_000_000);
    nvmlDeviceGetDecoderUtilization(c_uint, c_uint) = (0, 1_000_000);
    nvmlDeviceGetJpgUtilization(c_uint, c_uint) = (0, 1_000_000);
    nvmlDeviceGetOfaUtilization(c_uint, c_uint) = (0, 1_000_000);
    nvmlDeviceGetPowerManagementLimitConstraints(c_uint, c_uint) = (100_000, POWER_LIMIT);
}

/// Whether cards of this name can be sliced (A100, A30, H100 and newer data-centre cards).
fn can_slice(name: &str) -> bool {
    ["A100", "A30", "H100", "H200", "H20", "GH200", "B200", "B300"].iter().any(|known| name.contains(known))
}

/// The card is not sliced, now or after a reset.
pub fn nvmlDeviceGetMigMode(
    handle: *mut c_void,
    current: Out<'_, c_uint>,
    pending: Out<'_, c_uint>,
) -> Result<(), NvmlStatus> {
    if !can_slice(&find(handle)?.description.name) {
        return Err(NvmlStatus::NOT_SUPPORTED);
    }
    current.set(0);
    pending.set(0);
    Ok(())
}

pub fn nvmlDeviceGetEccMode(
    handle: *mut c_void,
    current: Out<'_, c_int>,
    pending: Out<'_, c_int>,
) -> Result<(), NvmlStatus> {
    if !has_error_correction(&find(handle)?.description.name) {
        return Err(NvmlStatus::NOT_SUPPORTED);
    }
    current.set(1);
    pending.set(1);
    Ok(())
}

pub fn nvmlDeviceGetTotalEccErrors(
    handle: *mut c_void,
    _kind: c_int,
    _counter: c_int,
    count: Out<'_, u64>,
) -> Result<(), NvmlStatus> {
    if !has_error_correction(&find(handle)?.description.name) {
        return Err(NvmlStatus::NOT_SUPPORTED);
    }
    count.set(0);
    Ok(())
}

/// The temperature in a `nvmlTemperature_t`: version, sensor, and it.
pub fn nvmlDeviceGetTemperatureV(handle: *mut c_void, to: Record<'_, 12>) -> Result<(), NvmlStatus> {
    find(handle)?;
    to.given().ok_or(NvmlStatus::INVALID_ARGUMENT)?.write(8, TEMPERATURE as c_int);
    Ok(())
}

/// No card is part of a fabric: everything after the version is 0, up to the health mask. A `nvmlGpuFabricInfoV_t` has at
/// least 36 bytes in each of its versions.
pub fn nvmlDeviceGetGpuFabricInfoV(handle: *mut c_void, to: Record<'_, 36>) -> Result<(), NvmlStatus> {
    find(handle)?;
    to.given().ok_or(NvmlStatus::INVALID_ARGUMENT)?.write(4, [0_u8; 32]);
    Ok(())
}

/// Values by number: none is known, which each of them says for itself.
pub fn nvmlDeviceGetFieldValues(
    handle: *mut c_void,
    _count: c_int,
    values: Room<'_, [u8; FIELD_VALUE]>,
) -> Result<(), NvmlStatus> {
    /// Where a `nvmlFieldValue_t` has its own result.
    const RESULT: usize = 28;
    find(handle)?;
    if values.is_null() {
        return Err(NvmlStatus::INVALID_ARGUMENT);
    }
    for value in values.records() {
        value.write(RESULT, NvmlStatus::NOT_SUPPORTED.number());
    }
    Ok(())
}

/// The version of the firmware, in NVIDIA's form; there is none.
pub fn nvmlDeviceGetVbiosVersion(handle: *mut c_void, text: Room<'_, u8>, _room: c_uint) -> Result<(), NvmlStatus> {
    find(handle)?;
    put_text(text, "00.00.00.00.00")
}

/// Defines functions that frameworks call and whose usual answer is "not supported".
macro_rules! silent {
    ($($name:ident($($kind:ty),*);)*) => {$(
        /// Not reported by a virtual card, as by many real ones.
        pub fn $name(handle: *mut c_void $(, _: $kind)*) -> Result<(), NvmlStatus> {
            find(handle).and(Err(NvmlStatus::NOT_SUPPORTED))
        }
    )*};
}
silent! {
    nvmlDeviceGetSerial(*mut c_void, c_uint);
    nvmlDeviceGetBoardPartNumber(*mut c_void, c_uint);
    nvmlDeviceGetFanSpeed(*mut c_uint);
    nvmlDeviceGetFanSpeed_v2(c_uint, *mut c_uint);
    nvmlDeviceGetNvLinkState(c_uint, *mut c_int);
    nvmlDeviceGetNvLinkVersion(c_uint, *mut c_uint);
    nvmlDeviceGetNvLinkCapability(c_uint, c_int, *mut c_uint);
    nvmlDeviceGetNvLinkErrorCounter(c_uint, c_int, *mut c_ulonglong);
    nvmlDeviceGetNvLinkRemoteDeviceType(c_uint, *mut c_int);
    nvmlDeviceGetNvLinkRemotePciInfo(c_uint, *mut c_void);
    nvmlDeviceGetNvLinkRemotePciInfo_v2(c_uint, *mut c_void);
    nvmlDeviceGetMigDeviceHandleByIndex(c_uint, *mut c_void);
    nvmlDeviceGetGpuInstanceId(*mut c_uint);
    nvmlDeviceGetComputeInstanceId(*mut c_uint);
    nvmlDeviceGetAttributes(*mut c_void);
    nvmlDeviceGetAttributes_v2(*mut c_void);
    nvmlDeviceGetRetiredPages(c_int, *mut c_uint, *mut c_void);
    nvmlDeviceGetRetiredPages_v2(c_int, *mut c_uint, *mut c_void, *mut c_void);
    nvmlDeviceGetRetiredPagesPendingStatus(*mut c_int);
    nvmlDeviceGetMemoryErrorCounter(c_int, c_int, c_int, *mut c_ulonglong);
    nvmlDeviceGetSupportedMemoryClocks(*mut c_uint, *mut c_void);
    nvmlDeviceGetSupportedGraphicsClocks(c_uint, *mut c_uint, *mut c_void);
    nvmlDeviceGetAccountingMode(*mut c_int);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_have_what_their_kind_has() {
        assert!(can_slice("NVIDIA H100 80GB HBM3"));
        assert!(!can_slice("NVIDIA GeForce RTX 3060"));
        assert!(has_error_correction("NVIDIA A10"));
        assert!(!has_error_correction("NVIDIA RTX A6000"));
    }
}
