//! How a card is doing. A virtual one is idle, cool and healthy; what a card of its kind would not tell either is
//! answered with "not supported", without a word in the report.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use crate::cublas::versions::put;
use crate::nvml::{Card, INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS, numbers, of_handle, put_text};

/// Degrees Celsius of an idle card, and where cards slow down and stop.
const TEMPERATURE: c_uint = 35;
const SLOWDOWN: c_uint = 90;
/// Milliwatts of an idle card, and its limit.
const POWER: c_uint = 30_000;
const POWER_LIMIT: c_uint = 300_000;
/// PCIe generation and lanes of a usual slot.
const PCIE_GENERATION: c_uint = 4;
const PCIE_LANES: c_uint = 16;
/// `nvmlClocksEventReasonGpuIdle`
const IDLE: c_ulonglong = 1;

/// A clock in MHz by its type: graphics 0, multiprocessors 1, memory 2, video 3.
fn clock(card: Card, kind: c_int) -> c_uint {
    let khz = if kind == 2 { card.description.memory_clock_khz } else { card.description.clock_khz };
    c_uint::try_from(khz / 1000).unwrap_or(0)
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
    nvmlDeviceGetCurrPcieLinkGeneration(c_uint) = |_| PCIE_GENERATION;
    nvmlDeviceGetMaxPcieLinkGeneration(c_uint) = |_| PCIE_GENERATION;
    nvmlDeviceGetGpuMaxPcieLinkGeneration(c_uint) = |_| PCIE_GENERATION;
    nvmlDeviceGetCurrPcieLinkWidth(c_uint) = |_| PCIE_LANES;
    nvmlDeviceGetMaxPcieLinkWidth(c_uint) = |_| PCIE_LANES;
    nvmlDeviceGetPcieThroughput(c_uint, _counter: c_int) = |_| 0;
    nvmlDeviceGetPcieReplayCounter(c_uint) = |_| 0;
    nvmlDeviceGetNumFans(c_uint) = |_| 0;
    nvmlDeviceGetMultiGpuBoard(c_uint) = |_| 0;
    nvmlDeviceGetDisplayMode(c_int) = |_| 0;
    nvmlDeviceGetDisplayActive(c_int) = |_| 0;
    nvmlDeviceIsMigDeviceHandle(c_uint) = |_| 0;
    nvmlDeviceGetMaxMigDeviceCount(c_uint) = |_| 0;
    nvmlDeviceGetGpuFabricInfo([u8; 28]) = |_| [0; 28];
}

/// Defines functions that write the same pair of numbers about every card.
macro_rules! pairs {
    ($($name:ident($first:ty, $second:ty) = ($one:expr, $two:expr);)*) => {$(
        /// Two numbers about a card.
        pub unsafe fn $name(handle: *mut c_void, first: *mut $first, second: *mut $second) -> u32 {
            if of_handle(handle).is_none() {
                return INVALID_ARGUMENT;
            }
            // SAFETY: NVML's contract: out-parameters that may be written.
            unsafe {
                put(first, $one);
                put(second, $two);
            }
            SUCCESS
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

/// Whether cards of this name protect their memory by default: those of data centres.
fn has_error_correction(name: &str) -> bool {
    !["GeForce", "TITAN", "RTX", "Quadro", "Orin"].iter().any(|known| name.contains(known))
}

/// The card is not sliced, now or after a reset.
pub unsafe fn nvmlDeviceGetMigMode(handle: *mut c_void, current: *mut c_uint, pending: *mut c_uint) -> u32 {
    let Some(card) = of_handle(handle) else { return INVALID_ARGUMENT };
    if !can_slice(&card.description.name) {
        return NOT_SUPPORTED;
    }
    // SAFETY: NVML's contract: out-parameters that may be written.
    unsafe {
        put(current, 0);
        put(pending, 0);
    }
    SUCCESS
}

pub unsafe fn nvmlDeviceGetEccMode(handle: *mut c_void, current: *mut c_int, pending: *mut c_int) -> u32 {
    let Some(card) = of_handle(handle) else { return INVALID_ARGUMENT };
    if !has_error_correction(&card.description.name) {
        return NOT_SUPPORTED;
    }
    // SAFETY: as above.
    unsafe {
        put(current, 1);
        put(pending, 1);
    }
    SUCCESS
}

pub unsafe fn nvmlDeviceGetTotalEccErrors(handle: *mut c_void, _kind: c_int, _counter: c_int, count: *mut u64) -> u32 {
    let Some(card) = of_handle(handle) else { return INVALID_ARGUMENT };
    if !has_error_correction(&card.description.name) {
        return NOT_SUPPORTED;
    }
    // SAFETY: NVML's contract: an out-parameter that may be written.
    unsafe { put(count, 0) };
    SUCCESS
}

/// The temperature in a structure: version, sensor, and it.
pub unsafe fn nvmlDeviceGetTemperatureV(handle: *mut c_void, to: *mut c_void) -> u32 {
    if of_handle(handle).is_none() || to.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: NVML's contract: a `nvmlTemperature_t` that may be written.
    unsafe { put(to.cast::<c_int>().add(2), TEMPERATURE as c_int) };
    SUCCESS
}

/// No card is part of a fabric: everything after the version is 0, up to the health mask.
pub unsafe fn nvmlDeviceGetGpuFabricInfoV(handle: *mut c_void, to: *mut c_void) -> u32 {
    if of_handle(handle).is_none() || to.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: NVML's contract: a `nvmlGpuFabricInfoV_t`, which has at least 36 bytes in each of its versions.
    unsafe { to.cast::<u8>().add(4).write_bytes(0, 32) };
    SUCCESS
}

/// Values by number: none is known, which each of them says for itself.
pub unsafe fn nvmlDeviceGetFieldValues(handle: *mut c_void, count: c_int, values: *mut c_void) -> u32 {
    /// Bytes of a `nvmlFieldValue_t`, and where its own result lies.
    const SIZE: usize = 40;
    const RESULT: usize = 28;
    if of_handle(handle).is_none() || values.is_null() {
        return INVALID_ARGUMENT;
    }
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: NVML's contract: `count` structures that may be written.
        unsafe { put(values.cast::<u8>().add(index * SIZE + RESULT).cast::<u32>(), NOT_SUPPORTED) };
    }
    SUCCESS
}

/// The version of the firmware, in NVIDIA's form; there is none.
pub unsafe fn nvmlDeviceGetVbiosVersion(handle: *mut c_void, text: *mut c_char, room: c_uint) -> u32 {
    if of_handle(handle).is_none() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: NVML's contract is that of `put_text`.
    unsafe { put_text(text, room, "00.00.00.00.00") }
}

/// Defines functions that frameworks call and whose usual answer is "not supported".
macro_rules! silent {
    ($($name:ident($($kind:ty),*);)*) => {$(
        /// Not reported by a virtual card, as by many real ones.
        pub unsafe fn $name(handle: *mut c_void $(, _: $kind)*) -> u32 {
            if of_handle(handle).is_none() { INVALID_ARGUMENT } else { NOT_SUPPORTED }
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
