//! NVML: which cards there are, what they are, how full they are and of whom.
//!
//! NVML sees the machine: all cards of the run, whatever `CUDA_VISIBLE_DEVICES` says. Its figures are those of the
//! ledger, so that they agree with `cudaMemGetInfo` and between processes. Conditions that a virtual card does not have
//! (heat, power, load) are plausible constants; see [`condition`].
#![allow(clippy::missing_safety_doc)]

pub mod condition;
mod processes;

pub use condition::*;
pub use processes::*;

use crate::fork::Once;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};

use oomph_ledger::{DeviceDescription, MAX_DEVICES};

use crate::cublas::versions::put;
use crate::device::Device;
use crate::driver::peers;
use crate::{books, device, driver};

pub(super) const SUCCESS: u32 = 0;
pub(super) const INVALID_ARGUMENT: u32 = 2;
pub(super) const NOT_SUPPORTED: u32 = 3;
pub(super) const NOT_FOUND: u32 = 6;
pub(super) const INSUFFICIENT_SIZE: u32 = 7;
const DRIVER_NOT_LOADED: u32 = 9;

/// The driver's version: the series that came with CUDA 13.2, which `cuDriverGetVersion` claims, and no release of it.
const DRIVER_VERSION: &str = "595.00";
const NVML_VERSION: &str = "13.595.00";

/// The addresses that stand for cards; what lies there is never used.
static HANDLES: [u64; MAX_DEVICES] = [0; MAX_DEVICES];

/// A card as NVML sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Card {
    pub(super) index: usize,
    pub(super) description: &'static DeviceDescription,
}

fn card(index: usize) -> Option<Card> {
    books::cards().get(index).map(|description| Card { index, description })
}

/// The card that a handle names.
pub(super) fn of_handle(handle: *mut c_void) -> Option<Card> {
    let offset = (handle as usize).checked_sub(HANDLES.as_ptr() as usize)?;
    if offset % size_of::<u64>() != 0 {
        return None;
    }
    card(offset / size_of::<u64>())
}

fn handle_of(index: usize) -> *mut c_void {
    HANDLES.get(index).map_or(std::ptr::null_mut(), |place| std::ptr::from_ref(place).cast_mut().cast())
}

/// Writes the handle of a card that was looked for.
unsafe fn give(found: Option<usize>, to: *mut *mut c_void, otherwise: u32) -> u32 {
    if to.is_null() {
        return INVALID_ARGUMENT;
    }
    match found {
        Some(index) => {
            // SAFETY: NVML's contract: an out-parameter that may be written.
            unsafe { put(to, handle_of(index)) };
            SUCCESS
        }
        None => otherwise,
    }
}

/// Writes a text with its terminator, if it fits.
pub(super) unsafe fn put_text(to: *mut c_char, room: c_uint, text: &str) -> u32 {
    if to.is_null() {
        return INVALID_ARGUMENT;
    }
    if text.len() >= room as usize {
        return INSUFFICIENT_SIZE;
    }
    // SAFETY: NVML's contract: `room` bytes may be written, which is more than the text has.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), text.len());
        to.add(text.len()).write(0);
    }
    SUCCESS
}

/// Reads a text of the program's.
unsafe fn take_text(from: *const c_char) -> Option<String> {
    // SAFETY: NVML's contract: null or a terminated string.
    (!from.is_null()).then(|| unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned())
}

pub unsafe fn nvmlInit_v2() -> u32 {
    if books::cards().is_empty() { DRIVER_NOT_LOADED } else { SUCCESS }
}

pub unsafe fn nvmlInit() -> u32 {
    // SAFETY: the function takes nothing.
    unsafe { nvmlInit_v2() }
}

pub unsafe fn nvmlInitWithFlags(_flags: c_uint) -> u32 {
    // SAFETY: as above.
    unsafe { nvmlInit_v2() }
}

pub unsafe fn nvmlShutdown() -> u32 {
    SUCCESS
}

pub unsafe fn nvmlErrorString(result: c_int) -> *const c_char {
    let text = match result {
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
        12 => c"NVML Shared Library Not Found",
        13 => c"Function Not Found",
        15 => c"GPU is lost",
        20 => c"Insufficient Memory",
        25 => c"Argument version mismatch",
        28 => c"GPU not found",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

pub unsafe fn nvmlSystemGetDriverVersion(text: *mut c_char, room: c_uint) -> u32 {
    // SAFETY: NVML's contract is that of `put_text`.
    unsafe { put_text(text, room, DRIVER_VERSION) }
}

pub unsafe fn nvmlSystemGetNVMLVersion(text: *mut c_char, room: c_uint) -> u32 {
    // SAFETY: as above.
    unsafe { put_text(text, room, NVML_VERSION) }
}

pub unsafe fn nvmlSystemGetCudaDriverVersion(value: *mut c_int) -> u32 {
    // SAFETY: NVML's contract: an out-parameter that may be written.
    unsafe { put(value, driver::version()) };
    SUCCESS
}

pub unsafe fn nvmlSystemGetCudaDriverVersion_v2(value: *mut c_int) -> u32 {
    // SAFETY: as above.
    unsafe { nvmlSystemGetCudaDriverVersion(value) }
}

pub unsafe fn nvmlSystemGetProcessName(pid: c_uint, text: *mut c_char, room: c_uint) -> u32 {
    let Ok(line) = std::fs::read(format!("/proc/{pid}/cmdline")) else { return NOT_FOUND };
    let program = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let program = String::from_utf8_lossy(program);
    // A name that is too long is cut, as NVML cuts it.
    let kept: String = program
        .chars()
        .scan(0, |length, character| {
            *length += character.len_utf8();
            (*length < room as usize).then_some(character)
        })
        .collect();
    // SAFETY: NVML's contract is that of `put_text`.
    unsafe { put_text(text, room, &kept) }
}

pub unsafe fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> u32 {
    // SAFETY: NVML's contract: an out-parameter that may be written.
    unsafe { put(count, books::cards().len() as c_uint) };
    SUCCESS
}

pub unsafe fn nvmlDeviceGetCount(count: *mut c_uint) -> u32 {
    // SAFETY: as above.
    unsafe { nvmlDeviceGetCount_v2(count) }
}

pub unsafe fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, to: *mut *mut c_void) -> u32 {
    // SAFETY: NVML's contract is that of `give`.
    unsafe { give(card(index as usize).map(|card| card.index), to, INVALID_ARGUMENT) }
}

pub unsafe fn nvmlDeviceGetHandleByIndex(index: c_uint, to: *mut *mut c_void) -> u32 {
    // SAFETY: as above.
    unsafe { nvmlDeviceGetHandleByIndex_v2(index, to) }
}

/// The card of a PCI address, however many digits its domain has, or none at all.
fn card_of_address(text: &str) -> Option<usize> {
    let mut parts = text.trim().rsplit(':');
    let function = parts.next()?;
    let bus = usize::from_str_radix(parts.next()?, 16).ok()?;
    if parts.next().is_some_and(|domain| !domain.bytes().all(|digit| digit == b'0')) || !function.starts_with("00") {
        return None;
    }
    // `driver::pci_bus_id` numbers the buses from 1.
    bus.checked_sub(1)
}

pub unsafe fn nvmlDeviceGetHandleByPciBusId_v2(text: *const c_char, to: *mut *mut c_void) -> u32 {
    // SAFETY: NVML's contract is that of `take_text` and `give`.
    unsafe {
        let Some(text) = take_text(text) else { return INVALID_ARGUMENT };
        give(card_of_address(&text).and_then(card).map(|card| card.index), to, NOT_FOUND)
    }
}

pub unsafe fn nvmlDeviceGetHandleByPciBusId(text: *const c_char, to: *mut *mut c_void) -> u32 {
    // SAFETY: as above.
    unsafe { nvmlDeviceGetHandleByPciBusId_v2(text, to) }
}

pub unsafe fn nvmlDeviceGetHandleByUUID(text: *const c_char, to: *mut *mut c_void) -> u32 {
    // SAFETY: NVML's contract is that of `take_text` and `give`.
    unsafe {
        let Some(text) = take_text(text) else { return INVALID_ARGUMENT };
        let found = books::cards().iter().position(|card| device::uuid_text(&card.uuid).eq_ignore_ascii_case(&text));
        give(found, to, NOT_FOUND)
    }
}

/// The identity in a structure: its version, its type (1 for text, 2 for bytes), and it.
pub unsafe fn nvmlDeviceGetHandleByUUIDV(uuid: *const c_void, to: *mut *mut c_void) -> u32 {
    if uuid.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: NVML's contract: a `nvmlUUID_t`, whose value begins after two words.
    unsafe {
        let value = uuid.cast::<u8>().add(8);
        match uuid.cast::<c_uint>().add(1).read_unaligned() {
            1 => nvmlDeviceGetHandleByUUID(value.cast(), to),
            2 => {
                let bytes = value.cast::<[u8; 16]>().read_unaligned();
                give(books::cards().iter().position(|card| card.uuid == bytes), to, NOT_FOUND)
            }
            _ => INVALID_ARGUMENT,
        }
    }
}

/// Virtual cards have no serial numbers, like consumer cards.
pub unsafe fn nvmlDeviceGetHandleBySerial(_serial: *const c_char, to: *mut *mut c_void) -> u32 {
    // SAFETY: NVML's contract is that of `give`.
    unsafe { give(None, to, NOT_FOUND) }
}

pub unsafe fn nvmlDeviceGetName(handle: *mut c_void, text: *mut c_char, room: c_uint) -> u32 {
    let Some(card) = of_handle(handle) else { return INVALID_ARGUMENT };
    // SAFETY: NVML's contract is that of `put_text`.
    unsafe { put_text(text, room, &card.description.name) }
}

pub unsafe fn nvmlDeviceGetUUID(handle: *mut c_void, text: *mut c_char, room: c_uint) -> u32 {
    let Some(card) = of_handle(handle) else { return INVALID_ARGUMENT };
    // SAFETY: as above.
    unsafe { put_text(text, room, &device::uuid_text(&card.description.uuid)) }
}

/// Defines functions that write one number about a card.
macro_rules! numbers {
    ($($name:ident($kind:ty $(, $parameter:ident: $given:ty)*) = |$card:pat_param| $value:expr;)*) => {$(
        /// One number about a card.
        pub unsafe fn $name(handle: *mut c_void $(, $parameter: $given)*, to: *mut $kind) -> u32 {
            let Some($card) = $crate::nvml::of_handle(handle) else { return $crate::nvml::INVALID_ARGUMENT };
            // SAFETY: NVML's contract: an out-parameter that may be written.
            unsafe { $crate::cublas::versions::put(to, $value) };
            $crate::nvml::SUCCESS
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

pub unsafe fn nvmlDeviceGetCudaComputeCapability(handle: *mut c_void, major: *mut c_int, minor: *mut c_int) -> u32 {
    let Some(card) = of_handle(handle) else { return INVALID_ARGUMENT };
    // SAFETY: NVML's contract: out-parameters that may be written.
    unsafe {
        put(major, card.description.cc_major as c_int);
        put(minor, card.description.cc_minor as c_int);
    }
    SUCCESS
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
    let short = driver::pci_bus_id(index);
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

unsafe fn write_pci_info(handle: *mut c_void, to: *mut c_void, size: usize) -> u32 {
    let (Some(card), false) = (of_handle(handle), to.is_null()) else { return INVALID_ARGUMENT };
    let info = pci_info(card.index, driver::attributes::pci_device_id(card.description));
    // SAFETY: NVML's contract: a structure of `size` bytes, which is at most what was made.
    unsafe { std::ptr::copy_nonoverlapping(info.as_ptr(), to.cast(), size.min(info.len())) };
    SUCCESS
}

pub unsafe fn nvmlDeviceGetPciInfo_v3(handle: *mut c_void, to: *mut c_void) -> u32 {
    // SAFETY: NVML's contract is that of `write_pci_info`.
    unsafe { write_pci_info(handle, to, 68) }
}

/// The structure without the long address.
pub unsafe fn nvmlDeviceGetPciInfo_v2(handle: *mut c_void, to: *mut c_void) -> u32 {
    // SAFETY: as above.
    unsafe { write_pci_info(handle, to, 36) }
}

/// The structure without the subsystem.
pub unsafe fn nvmlDeviceGetPciInfo(handle: *mut c_void, to: *mut c_void) -> u32 {
    // SAFETY: as above.
    unsafe { write_pci_info(handle, to, 32) }
}

/// Total, free and used bytes of a card.
fn memory(card: Card) -> [c_ulonglong; 3] {
    let total = books::capacity_bytes(card.index).unwrap_or(card.description.capacity_bytes);
    let free = books::free_bytes(card.index);
    [total, free, total.saturating_sub(free)]
}

pub unsafe fn nvmlDeviceGetMemoryInfo(handle: *mut c_void, to: *mut [c_ulonglong; 3]) -> u32 {
    let Some(card) = of_handle(handle) else { return INVALID_ARGUMENT };
    // SAFETY: NVML's contract: a `nvmlMemory_t` (total, free, used) that may be written.
    unsafe { put(to, memory(card)) };
    SUCCESS
}

/// The structure of version 2 has other fields in another order: version, total, reserved, free, used. What the driver
/// keeps is not in the capacity that CUDA reports, so that nothing is reserved of it here.
pub unsafe fn nvmlDeviceGetMemoryInfo_v2(handle: *mut c_void, to: *mut c_void) -> u32 {
    let (Some(card), false) = (of_handle(handle), to.is_null()) else { return INVALID_ARGUMENT };
    let [total, free, used] = memory(card);
    // SAFETY: NVML's contract: a `nvmlMemory_v2_t`, whose numbers begin after the version and its padding.
    unsafe { put(to.cast::<u8>().add(8).cast::<[c_ulonglong; 4]>(), [total, 0, free, used]) };
    SUCCESS
}

pub unsafe fn nvmlDeviceGetBAR1MemoryInfo(handle: *mut c_void, to: *mut [c_ulonglong; 3]) -> u32 {
    if of_handle(handle).is_none() {
        return INVALID_ARGUMENT;
    }
    // The usual aperture of 256 MiB, unused.
    let aperture = 256 << 20;
    // SAFETY: NVML's contract: total, free and used, which may be written.
    unsafe { put(to, [aperture, aperture, 0]) };
    SUCCESS
}

/// Whether two cards reach each other: as `cuDeviceCanAccessPeer` says.
pub unsafe fn nvmlDeviceGetP2PStatus(first: *mut c_void, second: *mut c_void, _kind: c_int, status: *mut c_int) -> u32 {
    let (Some(first), Some(second)) = (of_handle(first), of_handle(second)) else { return INVALID_ARGUMENT };
    let device = |card: &Card| Device { card: card.index, description: card.description };
    // SAFETY: NVML's contract: an out-parameter that may be written. 0 is "OK", 2 "not supported by this GPU".
    unsafe { put(status, if peers::reach(device(&first), device(&second)) { 0 } else { 2 }) };
    SUCCESS
}

/// All cards hang on one PCI host bridge (30), and a card on itself (0).
pub unsafe fn nvmlDeviceGetTopologyCommonAncestor(first: *mut c_void, second: *mut c_void, level: *mut c_int) -> u32 {
    let (Some(first), Some(second)) = (of_handle(first), of_handle(second)) else { return INVALID_ARGUMENT };
    // SAFETY: NVML's contract: an out-parameter that may be written.
    unsafe { put(level, if first.index == second.index { 0 } else { 30 }) };
    SUCCESS
}

pub unsafe fn nvmlDeviceOnSameBoard(first: *mut c_void, second: *mut c_void, same: *mut c_int) -> u32 {
    let (Some(first), Some(second)) = (of_handle(first), of_handle(second)) else { return INVALID_ARGUMENT };
    // SAFETY: as above.
    unsafe { put(same, c_int::from(first.index == second.index)) };
    SUCCESS
}

/// The processors near a card: all of them.
pub unsafe fn nvmlDeviceGetCpuAffinity(handle: *mut c_void, words: c_uint, to: *mut u64) -> u32 {
    static PROCESSORS: Once<usize> = Once::new();
    if of_handle(handle).is_none() || to.is_null() {
        return INVALID_ARGUMENT;
    }
    let processors = *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from));
    for word in 0..words as usize {
        let here = processors.saturating_sub(word * 64).min(64) as u32;
        let mask = 1_u64.checked_shl(here).map_or(u64::MAX, |bit| bit - 1);
        // SAFETY: NVML's contract: `words` words may be written.
        unsafe { put(to.add(word), mask) };
    }
    SUCCESS
}

pub unsafe fn nvmlDeviceGetCpuAffinityWithinScope(
    handle: *mut c_void,
    words: c_uint,
    to: *mut u64,
    _scope: c_uint,
) -> u32 {
    // SAFETY: NVML's contract is that of `nvmlDeviceGetCpuAffinity`.
    unsafe { nvmlDeviceGetCpuAffinity(handle, words, to) }
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
        assert_eq!(card_of_address(&driver::pci_bus_id(10)), Some(10), "the two sides number alike");
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
        let mut room: [c_char; 4] = [1; 4];
        // SAFETY: the buffer has the room that is said.
        unsafe {
            assert_eq!(put_text(room.as_mut_ptr(), 4, "abc"), SUCCESS);
            assert_eq!(put_text(room.as_mut_ptr(), 4, "abcd"), INSUFFICIENT_SIZE);
            assert_eq!(put_text(std::ptr::null_mut(), 4, ""), INVALID_ARGUMENT);
        }
        assert_eq!(room[3], 0);
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
