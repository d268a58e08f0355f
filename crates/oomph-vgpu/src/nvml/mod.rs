//! NVML: which cards there are, what they are, how full they are and of whom.
//!
//! NVML sees the machine: all cards of the run, whatever `CUDA_VISIBLE_DEVICES` says. Its figures are those of the
//! ledger, so that they agree with `cudaMemGetInfo` and between processes. Conditions that a virtual card does not have
//! (heat, power, load) are plausible constants; see [`condition`].
#![deny(unsafe_code)]

pub mod condition;
mod processes;

pub use condition::*;
pub use processes::*;

use std::ffi::{CStr, c_int, c_uint, c_ulonglong, c_void};

use oomph_ledger::{DeviceDescription, MAX_DEVICES};

use crate::boundary::{Out, Record, Room, Text, statuses};
use crate::cuda::attributes::is_hopper;
use crate::cuda::peers;
use crate::device::Device;
use crate::gpu::gpu;
use crate::{cuda, device};

statuses! {
    /// `nvmlReturn_t`
    pub NvmlStatus {
        /// A handle names no card, or a pointer is null.
        INVALID_ARGUMENT = 2,
        /// The card does not report this.
        NOT_SUPPORTED = 3,
        /// There is no such card or process.
        NOT_FOUND = 6,
        /// The program's room is too small.
        INSUFFICIENT_SIZE = 7,
        /// There are no cards.
        DRIVER_NOT_LOADED = 9,
    }
}

/// The driver's version: the series that came with CUDA 13.2, which `cuDriverGetVersion` claims, and no release of it.
const DRIVER_VERSION: &str = "595.00";
const NVML_VERSION: &str = "13.595.00";

/// The addresses that stand for cards. A constant: what lies there is never used, only where it lies.
static HANDLES: [u64; MAX_DEVICES] = [0; MAX_DEVICES];

/// A card as NVML sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Card {
    pub(super) index: usize,
    pub(super) description: &'static DeviceDescription,
}

fn card(index: usize) -> Option<Card> {
    gpu().cards().get(index).map(|description| Card { index, description })
}

/// The card that a handle names.
fn of_handle(handle: *mut c_void) -> Option<Card> {
    let offset = (handle as usize).checked_sub(HANDLES.as_ptr() as usize)?;
    if offset % size_of::<u64>() != 0 {
        return None;
    }
    card(offset / size_of::<u64>())
}

/// The card that a handle names, or what NVML answers to others.
pub(super) fn find(handle: *mut c_void) -> Result<Card, NvmlStatus> {
    of_handle(handle).ok_or(NvmlStatus::INVALID_ARGUMENT)
}

fn handle_of(index: usize) -> *mut c_void {
    HANDLES.get(index).map_or(std::ptr::null_mut(), |place| std::ptr::from_ref(place).cast_mut().cast())
}

/// Writes the handle of a card that was looked for.
fn give(found: Option<usize>, to: Out<'_, *mut c_void>, otherwise: NvmlStatus) -> Result<(), NvmlStatus> {
    let to = to.given().ok_or(NvmlStatus::INVALID_ARGUMENT)?;
    to.set(handle_of(found.ok_or(otherwise)?));
    Ok(())
}

/// Writes a text with its terminator, if it fits.
pub(super) fn put_text(to: Room<'_, u8>, text: &str) -> Result<(), NvmlStatus> {
    if to.is_null() {
        return Err(NvmlStatus::INVALID_ARGUMENT);
    }
    if text.len() >= to.count() {
        return Err(NvmlStatus::INSUFFICIENT_SIZE);
    }
    to.fill(text.bytes().chain([0]));
    Ok(())
}

/// Reads a text of the program's.
fn take_text(from: Text<'_>) -> Result<String, NvmlStatus> {
    from.get().map(|text| text.to_string_lossy().into_owned()).ok_or(NvmlStatus::INVALID_ARGUMENT)
}

pub fn nvmlInit_v2() -> Result<(), NvmlStatus> {
    if gpu().cards().is_empty() { Err(NvmlStatus::DRIVER_NOT_LOADED) } else { Ok(()) }
}

pub fn nvmlInit() -> Result<(), NvmlStatus> {
    nvmlInit_v2()
}

pub fn nvmlInitWithFlags(_flags: c_uint) -> Result<(), NvmlStatus> {
    nvmlInit_v2()
}

pub fn nvmlShutdown() -> Result<(), NvmlStatus> {
    Ok(())
}

/// The texts are those of NVML 13.580, which the driver 580.159.04 brings.
pub fn nvmlErrorString(result: c_int) -> &'static CStr {
    match result {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        5 => c"Already Initialized",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        8 => c"Insufficient External Power",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        11 => c"Interrupt Request Issue",
        12 => c"NVML Shared Library Not Found",
        13 => c"Function Not Found",
        14 => c"Corrupted infoROM",
        15 => c"GPU is lost",
        16 => c"GPU requires reset",
        17 => c"GPU access blocked by the operating system",
        18 => c"Driver/library version mismatch",
        19 => c"In use by another client",
        20 => c"Insufficient Memory",
        21 => c"No data",
        22 => c"vGPU ECC not supported",
        23 => c"Insufficient Resources",
        24 => c"Invalid Frequency",
        25 => c"Argument version mismatch",
        26 => c"Requested functionality has been deprecated",
        27 => c"System is not in ready state",
        28 => c"No supported GPUs were found",
        29 => c"Resource not in correct state to perform requested operation",
        30 => c"Reset type is not supported for given device",
        _ => c"Unknown Error",
    }
}

pub fn nvmlSystemGetDriverVersion(text: Room<'_, u8>, _room: c_uint) -> Result<(), NvmlStatus> {
    put_text(text, DRIVER_VERSION)
}

pub fn nvmlSystemGetNVMLVersion(text: Room<'_, u8>, _room: c_uint) -> Result<(), NvmlStatus> {
    put_text(text, NVML_VERSION)
}

pub fn nvmlSystemGetCudaDriverVersion(value: Out<'_, c_int>) -> Result<(), NvmlStatus> {
    value.set(cuda::driver_version());
    Ok(())
}

pub fn nvmlSystemGetCudaDriverVersion_v2(value: Out<'_, c_int>) -> Result<(), NvmlStatus> {
    nvmlSystemGetCudaDriverVersion(value)
}

pub fn nvmlSystemGetProcessName(pid: c_uint, text: Room<'_, u8>, _room: c_uint) -> Result<(), NvmlStatus> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).map_err(|_| NvmlStatus::NOT_FOUND)?;
    let program = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let program = String::from_utf8_lossy(program);
    // A name that is too long is cut, as NVML cuts it.
    let kept: String = program
        .chars()
        .scan(0, |length, character| {
            *length += character.len_utf8();
            (*length < text.count()).then_some(character)
        })
        .collect();
    put_text(text, &kept)
}

pub fn nvmlDeviceGetCount_v2(count: Out<'_, c_uint>) -> Result<(), NvmlStatus> {
    count.set(gpu().cards().len() as c_uint);
    Ok(())
}

pub fn nvmlDeviceGetCount(count: Out<'_, c_uint>) -> Result<(), NvmlStatus> {
    nvmlDeviceGetCount_v2(count)
}

pub fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, to: Out<'_, *mut c_void>) -> Result<(), NvmlStatus> {
    give(card(index as usize).map(|card| card.index), to, NvmlStatus::INVALID_ARGUMENT)
}

pub fn nvmlDeviceGetHandleByIndex(index: c_uint, to: Out<'_, *mut c_void>) -> Result<(), NvmlStatus> {
    nvmlDeviceGetHandleByIndex_v2(index, to)
}

/// The card of a PCI address, however many digits its domain has, or none at all.
fn card_of_address(text: &str) -> Option<usize> {
    let mut parts = text.trim().rsplit(':');
    let function = parts.next()?;
    let bus = usize::from_str_radix(parts.next()?, 16).ok()?;
    if parts.next().is_some_and(|domain| !domain.bytes().all(|digit| digit == b'0')) || !function.starts_with("00") {
        return None;
    }
    // `pci_bus_id` numbers the buses from 1.
    bus.checked_sub(1)
}

pub fn nvmlDeviceGetHandleByPciBusId_v2(text: Text<'_>, to: Out<'_, *mut c_void>) -> Result<(), NvmlStatus> {
    let found = card_of_address(&take_text(text)?).and_then(card);
    give(found.map(|card| card.index), to, NvmlStatus::NOT_FOUND)
}

pub fn nvmlDeviceGetHandleByPciBusId(text: Text<'_>, to: Out<'_, *mut c_void>) -> Result<(), NvmlStatus> {
    nvmlDeviceGetHandleByPciBusId_v2(text, to)
}

/// The card whose identity is this text.
fn card_of_uuid(text: &str) -> Option<usize> {
    gpu().cards().iter().position(|card| device::uuid_text(&card.uuid).eq_ignore_ascii_case(text))
}

pub fn nvmlDeviceGetHandleByUUID(text: Text<'_>, to: Out<'_, *mut c_void>) -> Result<(), NvmlStatus> {
    give(card_of_uuid(&take_text(text)?), to, NvmlStatus::NOT_FOUND)
}

/// Bytes of a `nvmlUUID_t`: two words, and a value of 41 bytes.
const UUID: usize = 52;

/// The identity in a structure: its version, its type (1 for text, 2 for bytes), and it.
pub fn nvmlDeviceGetHandleByUUIDV(uuid: Record<'_, UUID>, to: Out<'_, *mut c_void>) -> Result<(), NvmlStatus> {
    let found = match uuid.read::<c_uint>(4) {
        Some(1) => {
            let text: [u8; 41] = uuid.read(8).unwrap_or([0; 41]);
            let text = CStr::from_bytes_until_nul(&text).map_err(|_| NvmlStatus::NOT_FOUND)?;
            card_of_uuid(&text.to_string_lossy())
        }
        Some(2) => {
            let bytes = uuid.read::<[u8; 16]>(8);
            gpu().cards().iter().position(|card| Some(card.uuid) == bytes)
        }
        _ => return Err(NvmlStatus::INVALID_ARGUMENT),
    };
    give(found, to, NvmlStatus::NOT_FOUND)
}

/// Virtual cards have no serial numbers, like consumer cards.
pub fn nvmlDeviceGetHandleBySerial(_serial: *mut c_void, to: Out<'_, *mut c_void>) -> Result<(), NvmlStatus> {
    give(None, to, NvmlStatus::NOT_FOUND)
}

pub fn nvmlDeviceGetName(handle: *mut c_void, text: Room<'_, u8>, _room: c_uint) -> Result<(), NvmlStatus> {
    put_text(text, &find(handle)?.description.name)
}

pub fn nvmlDeviceGetUUID(handle: *mut c_void, text: Room<'_, u8>, _room: c_uint) -> Result<(), NvmlStatus> {
    put_text(text, &device::uuid_text(&find(handle)?.description.uuid))
}

/// Defines functions that write one number about a card.
macro_rules! numbers {
    ($($name:ident($kind:ty $(, $parameter:ident: $given:ty)*) = |$card:pat_param| $value:expr;)*) => {$(
        /// One number about a card.
        pub fn $name(
            handle: *mut c_void $(, $parameter: $given)*, to: $crate::boundary::Out<'_, $kind>,
        ) -> Result<(), $crate::nvml::NvmlStatus> {
            let $card = $crate::nvml::find(handle)?;
            to.set($value);
            Ok(())
        }
    )*};
}
pub(super) use numbers;

numbers! {
    nvmlDeviceGetIndex(c_uint) = |card| card.index as c_uint;
    nvmlDeviceGetMinorNumber(c_uint) = |card| card.index as c_uint;
    nvmlDeviceGetBoardId(c_uint) = |card| (card.index as c_uint + 1) << 8;
    nvmlDeviceGetArchitecture(c_uint) = |card| architecture(card.description.cc_major, card.description.cc_minor);
    nvmlDeviceGetNumGpuCores(c_uint) = |card| cores(card.description) as c_uint;
    nvmlDeviceGetMemoryBusWidth(c_uint) = |card| card.description.bus_width_bits as c_uint;
    nvmlDeviceGetBrand(c_int) = |card| brand(&card.description.name);
}

pub fn nvmlDeviceGetCudaComputeCapability(
    handle: *mut c_void,
    major: Out<'_, c_int>,
    minor: Out<'_, c_int>,
) -> Result<(), NvmlStatus> {
    let card = find(handle)?;
    major.set(card.description.cc_major as c_int);
    minor.set(card.description.cc_minor as c_int);
    Ok(())
}

/// `NVML_DEVICE_ARCH_*` of a compute capability.
fn architecture(major: u64, minor: u64) -> c_uint {
    match (major, minor) {
        (5, _) => 3,
        (6, _) => 4,
        (7, 0..=4) => 5,
        (7, _) => 6,
        (8, 9) => 8,
        (8, _) => 7,
        (9, _) => 9,
        (10..=12, _) => 10,
        _ => c_uint::MAX,
    }
}

/// Cores for single precision.
fn cores(card: &DeviceDescription) -> u64 {
    let each = match (card.cc_major, card.cc_minor) {
        (6, 0) | (7, _) | (8, 0) => 64,
        _ => 128,
    };
    card.sm_count.saturating_mul(each)
}

/// `nvmlBrandType_t` by the card's name.
fn brand(name: &str) -> c_int {
    match name {
        _ if name.contains("GeForce") => 5,
        _ if name.contains("Quadro RTX") => 12,
        _ if name.contains("Quadro") => 1,
        _ if name.contains("TITAN") => 6,
        _ if name.contains("RTX") => 13,
        _ if name.contains("Tesla") => 2,
        _ => 14,
    }
}

/// What `nvmlPciInfo_t` holds: the short address, domain, bus, device, ids, and the long address. The structures of
/// older versions end earlier, and are the same as far as they go.
fn pci_info(index: usize, ids: u64) -> [u8; 68] {
    let mut bytes = [0; 68];
    let short = cuda::devices::pci_bus_id(index);
    let long = format!("0000{short}");
    let mut place = |offset: usize, value: &[u8]| {
        for (place, byte) in bytes.iter_mut().skip(offset).zip(value) {
            *place = *byte;
        }
    };
    place(0, short.as_bytes());
    place(20, &(index as u32 + 1).to_ne_bytes());
    place(28, &(ids as u32).to_ne_bytes());
    place(32, &(ids as u32).to_ne_bytes());
    place(36, long.as_bytes());
    bytes
}

/// Writes as much of a card's `nvmlPciInfo_t` as one version of it has.
fn write_pci_info<const SIZE: usize>(handle: *mut c_void, to: Out<'_, [u8; SIZE]>) -> Result<(), NvmlStatus> {
    let card = find(handle)?;
    let to = to.given().ok_or(NvmlStatus::INVALID_ARGUMENT)?;
    let info = pci_info(card.index, cuda::attributes::pci_device_id(card.description));
    to.set(std::array::from_fn(|index| info.get(index).copied().unwrap_or(0)));
    Ok(())
}

pub fn nvmlDeviceGetPciInfo_v3(handle: *mut c_void, to: Out<'_, [u8; 68]>) -> Result<(), NvmlStatus> {
    write_pci_info(handle, to)
}

/// The structure without the long address.
pub fn nvmlDeviceGetPciInfo_v2(handle: *mut c_void, to: Out<'_, [u8; 36]>) -> Result<(), NvmlStatus> {
    write_pci_info(handle, to)
}

/// The structure without the subsystem.
pub fn nvmlDeviceGetPciInfo(handle: *mut c_void, to: Out<'_, [u8; 32]>) -> Result<(), NvmlStatus> {
    write_pci_info(handle, to)
}

/// Total, free and used bytes of a card.
fn memory(card: Card) -> [c_ulonglong; 3] {
    gpu().forget_dead();
    let total = gpu().capacity_bytes(card.index).unwrap_or(card.description.capacity_bytes);
    let free = gpu().free_bytes(card.index);
    [total, free, total.saturating_sub(free)]
}

pub fn nvmlDeviceGetMemoryInfo(handle: *mut c_void, to: Out<'_, [c_ulonglong; 3]>) -> Result<(), NvmlStatus> {
    to.set(memory(find(handle)?));
    Ok(())
}

/// The structure of version 2 has other fields in another order: version, total, reserved, free, used. What the driver
/// keeps is not in the capacity that CUDA reports, so that nothing is reserved of it here.
pub fn nvmlDeviceGetMemoryInfo_v2(handle: *mut c_void, to: Record<'_, 40>) -> Result<(), NvmlStatus> {
    let card = find(handle)?;
    let to = to.given().ok_or(NvmlStatus::INVALID_ARGUMENT)?;
    let [total, free, used] = memory(card);
    to.write(8, [total, 0, free, used]);
    Ok(())
}

/// The bytes of a card that the host can reach at once: all of them on Hopper, as read on an H100 (128 GiB), else the usual
/// 256 MiB.
fn aperture(card: &DeviceDescription) -> u64 {
    if is_hopper(card) { card.capacity_bytes.checked_next_power_of_two().unwrap_or(u64::MAX) } else { 256 << 20 }
}

pub fn nvmlDeviceGetBAR1MemoryInfo(handle: *mut c_void, to: Out<'_, [c_ulonglong; 3]>) -> Result<(), NvmlStatus> {
    let aperture = aperture(find(handle)?.description);
    to.set([aperture, aperture, 0]);
    Ok(())
}

/// Whether two cards reach each other: as `cuDeviceCanAccessPeer` says.
pub fn nvmlDeviceGetP2PStatus(
    first: *mut c_void,
    second: *mut c_void,
    _kind: c_int,
    status: Out<'_, c_int>,
) -> Result<(), NvmlStatus> {
    let device = |card: Card| Device { card: card.index, description: card.description };
    let (first, second) = (device(find(first)?), device(find(second)?));
    // 0 is "OK", 2 "not supported by this GPU".
    status.set(if peers::reach(first, second) { 0 } else { 2 });
    Ok(())
}

/// All cards hang on one PCI host bridge (30), and a card on itself (0).
pub fn nvmlDeviceGetTopologyCommonAncestor(
    first: *mut c_void,
    second: *mut c_void,
    level: Out<'_, c_int>,
) -> Result<(), NvmlStatus> {
    level.set(if find(first)?.index == find(second)?.index { 0 } else { 30 });
    Ok(())
}

pub fn nvmlDeviceOnSameBoard(first: *mut c_void, second: *mut c_void, same: Out<'_, c_int>) -> Result<(), NvmlStatus> {
    same.set(c_int::from(find(first)?.index == find(second)?.index));
    Ok(())
}

/// The processors near a card: all of them.
pub fn nvmlDeviceGetCpuAffinity(handle: *mut c_void, _words: c_uint, to: Room<'_, u64>) -> Result<(), NvmlStatus> {
    find(handle)?;
    if to.is_null() {
        return Err(NvmlStatus::INVALID_ARGUMENT);
    }
    let count = || std::thread::available_parallelism().map_or(1, usize::from);
    let processors = *gpu().libraries.processors.get_or_init(count);
    to.fill((0..to.count()).map(|word| {
        let here = processors.saturating_sub(word * 64).min(64) as u32;
        1_u64.checked_shl(here).map_or(u64::MAX, |bit| bit - 1)
    }));
    Ok(())
}

pub fn nvmlDeviceGetCpuAffinityWithinScope(
    handle: *mut c_void,
    words: c_uint,
    to: Room<'_, u64>,
    _scope: c_uint,
) -> Result<(), NvmlStatus> {
    nvmlDeviceGetCpuAffinity(handle, words, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pci_address_is_read_in_all_its_lengths() {
        for text in ["00000000:02:00.0", "0000:02:00.0", "02:00.0", "0000:02:00"] {
            assert_eq!(card_of_address(text), Some(1), "{text}");
        }
        assert_eq!(card_of_address("0001:02:00.0"), None);
        assert_eq!(card_of_address("00000000:00:00.0"), None);
        assert_eq!(card_of_address("nonsense"), None);
        assert_eq!(card_of_address(&cuda::devices::pci_bus_id(10)), Some(10), "the two sides number alike");
    }

    #[test]
    fn the_pci_structure_has_its_fields_where_the_header_has_them() {
        let info = pci_info(0, 0x2684_10de);
        assert_eq!(info[..13], *b"0000:01:00.0\0");
        assert_eq!(info[16..20], [0; 4], "domain");
        assert_eq!(info[20..24], 1_u32.to_ne_bytes(), "bus");
        assert_eq!(info[28..32], 0x2684_10de_u32.to_ne_bytes(), "ids");
        assert_eq!(info[36..53], *b"00000000:01:00.0\0");
    }

    #[test]
    fn texts_that_do_not_fit_are_refused() {
        let mut room = [1; 4];
        assert_eq!(put_text(Room::to(&mut room), "abc"), Ok(()));
        assert_eq!(put_text(Room::to(&mut room), "abcd"), Err(NvmlStatus::INSUFFICIENT_SIZE));
        assert_eq!(put_text(Room::null(4), ""), Err(NvmlStatus::INVALID_ARGUMENT));
        assert_eq!(room, *b"abc\0");
    }

    /// Read on an H100, driver 580.159.04, 2026-11-26.
    #[test]
    fn the_host_reaches_all_of_an_h100() {
        let card = |cc_major| DeviceDescription { cc_major, capacity_bytes: 85_017_493_504, ..Default::default() };
        assert_eq!((aperture(&card(9)), aperture(&card(8))), (137_438_953_472, 268_435_456));
    }

    #[test]
    fn errors_have_the_texts_of_nvml() {
        assert_eq!(nvmlErrorString(28), c"No supported GPUs were found");
        assert_eq!(nvmlErrorString(31), c"Unknown Error");
    }

    #[test]
    fn cards_are_classed_as_nvml_classes_them() {
        assert_eq!(architecture(8, 9), 8);
        assert_eq!(architecture(7, 5), 6);
        assert_eq!(architecture(12, 0), 10);
        assert_eq!(brand("NVIDIA GeForce RTX 4090"), 5);
        assert_eq!(brand("NVIDIA RTX 6000 Ada Generation"), 13);
        assert_eq!(brand("NVIDIA H100 80GB HBM3"), 14);
    }
}
