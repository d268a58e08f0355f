//! NCCL: communicators of one rank among many, of which the others are taken to be like this one.
//!
//! Small messages are exchanged with the ranks that run beside this one ([`exchange`]). Of all others, a collective
//! writes what it would have received if all ranks held what this one holds; see [`collectives`].
#![allow(clippy::missing_safety_doc, clippy::too_many_arguments)]

mod arithmetic;
pub mod collectives;
mod exchange;
mod memory;

pub use collectives::*;

use crate::fork::Once;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use oomph_ledger::Kind;

use crate::abi::Bytes128;
use crate::books;
use crate::cublas::versions::{library_version, put};
use crate::device::{self, Device};
use crate::nccl::exchange::Meeting;

pub(super) const SUCCESS: u32 = 0;
const UNHANDLED_CUDA_ERROR: u32 = 1;
pub(super) const INVALID_ARGUMENT: u32 = 4;

const MAGIC: u64 = 0x6f6f_6d70_686e_6363;
/// `NCCL_SPLIT_NOCOLOR`
const NO_COLOR: c_int = -1;

/// A communicator.
#[derive(Debug)]
pub struct Communicator {
    magic: AtomicU64,
    /// How many ranks there are, and which one this is.
    pub ranks: usize,
    /// This process's rank.
    pub rank: usize,
    ordinal: usize,
    device: Device,
    /// Bytes that are charged for it.
    charged: AtomicU64,
    /// Whether it is connected for collectives.
    connected: AtomicBool,
    /// The ranks of its machine that it is connected with, a bit each.
    peers: AtomicU64,
    /// The ranks that run beside this one.
    meeting: Meeting,
    /// How often it was split.
    splits: AtomicU64,
}

impl Communicator {
    /// Charges what NCCL allocates itself. A card that is full fails the call, as it does in NCCL.
    fn charge(&self, bytes: u64) -> Result<(), u32> {
        if bytes == 0 {
            return Ok(());
        }
        if !books::charge(self.device.card, Kind::Library, bytes) {
            return Err(UNHANDLED_CUDA_ERROR);
        }
        self.charged.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn release(&self) {
        let bytes = self.charged.swap(0, Ordering::Relaxed);
        if bytes > 0 {
            books::release(self.device.card, Kind::Library, bytes);
        }
    }

    /// Connects the communicator for collectives, at the first of them.
    pub(super) fn connect(&self) -> Result<(), u32> {
        if self.connected.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.charge(memory::collectives(memory::links(self.device.description), settings(), self.ranks))
    }

    /// Connects the communicator with one peer, at the first exchange with it.
    pub(super) fn connect_with(&self, peer: usize) -> Result<(), u32> {
        let bit = 1_u64 << (peer % 8);
        if !memory::is_local(self.rank, peer) || self.peers.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            return Ok(());
        }
        self.charge(memory::peer(memory::links(self.device.description), settings()))
    }
}

fn settings() -> memory::Settings {
    static SETTINGS: Once<memory::Settings> = Once::new();
    *SETTINGS.get_or_init(memory::Settings::from_environment)
}

/// The communicator at an address.
///
/// # Safety
/// `address` is null or was handed out here and not destroyed.
pub(super) unsafe fn get<'a>(address: *mut c_void) -> Result<&'a Communicator, u32> {
    let communicator = address.cast::<Communicator>();
    if communicator.is_null() || !communicator.is_aligned() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise. All fields that change are atomic, so sharing is sound.
    let communicator = unsafe { &*communicator };
    if communicator.magic.load(Ordering::Relaxed) == MAGIC { Ok(communicator) } else { Err(INVALID_ARGUMENT) }
}

/// Makes a communicator on a card, whose ranks meet where the name says.
fn create(ranks: c_int, rank: c_int, ordinal: usize, name: Option<&str>) -> Result<*mut c_void, u32> {
    let (Ok(ranks), Ok(rank)) = (usize::try_from(ranks), usize::try_from(rank)) else { return Err(INVALID_ARGUMENT) };
    if rank >= ranks {
        return Err(INVALID_ARGUMENT);
    }
    let device = c_int::try_from(ordinal).ok().and_then(device::get).ok_or(UNHANDLED_CUDA_ERROR)?;
    if device::activate(device) != 0 {
        return Err(UNHANDLED_CUDA_ERROR);
    }
    let communicator = Box::new(Communicator {
        magic: AtomicU64::new(MAGIC),
        ranks,
        rank,
        ordinal,
        device,
        charged: AtomicU64::new(0),
        connected: AtomicBool::new(false),
        peers: AtomicU64::new(0),
        meeting: name.map_or_else(|| Meeting::alone(ranks, rank), |name| Meeting::join(name, ranks, rank)),
        splits: AtomicU64::new(0),
    });
    communicator.charge(memory::COMMUNICATOR)?;
    Ok(Box::into_raw(communicator).cast())
}

/// Writes a new communicator.
unsafe fn give(out: *mut *mut c_void, made: Result<*mut c_void, u32>) -> u32 {
    if out.is_null() {
        return INVALID_ARGUMENT;
    }
    match made {
        Ok(communicator) => {
            // SAFETY: NCCL's contract: an out-parameter that may be written.
            unsafe { put(out, communicator) };
            SUCCESS
        }
        Err(status) => status,
    }
}

pub(super) fn answer(result: Result<(), u32>) -> u32 {
    result.err().unwrap_or(SUCCESS)
}

library_version!("libnccl.so.", "nccl", [2, 21, 5], [2, 27, 5], [2, 30, 7]);

/// The version in one number: 23007 for 2.30.7.
pub unsafe fn ncclGetVersion(value: *mut c_int) -> u32 {
    let [major, minor, patch] = version();
    // SAFETY: NCCL's contract: an out-parameter that may be written.
    unsafe { put(value, major * 10_000 + minor * 100 + patch) };
    SUCCESS
}

/// A name for a communicator that no other process of the machine makes.
unsafe fn unique_id(to: *mut [u8; 128]) -> u32 {
    static MADE: AtomicU64 = AtomicU64::new(1);
    if to.is_null() {
        return INVALID_ARGUMENT;
    }
    let mut id = [0; 128];
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let parts = [u64::from(std::process::id()), number, MAGIC];
    for (place, byte) in id.iter_mut().zip(parts.iter().flat_map(|part| part.to_le_bytes())) {
        *place = byte;
    }
    // SAFETY: NCCL's contract: an out-parameter that may be written.
    unsafe { put(to, id) };
    SUCCESS
}

pub unsafe fn ncclGetUniqueId(to: *mut [u8; 128]) -> u32 {
    // SAFETY: NCCL's contract is that of `unique_id`.
    unsafe { unique_id(to) }
}

pub unsafe fn ncclCommGetUniqueId(_communicator: *mut c_void, to: *mut [u8; 128]) -> u32 {
    // SAFETY: as above.
    unsafe { unique_id(to) }
}

/// Where the ranks of a communicator with this unique id meet, if the id was made here.
fn meeting_place(id: &[u64; 16]) -> Option<String> {
    (id[2] == MAGIC).then(|| format!("{:x}-{:x}", id[0], id[1]))
}

pub unsafe fn ncclCommInitRank(out: *mut *mut c_void, ranks: c_int, id: Bytes128, rank: c_int) -> u32 {
    let name = meeting_place(&id.0);
    // SAFETY: NCCL's contract is that of `give`.
    unsafe { give(out, create(ranks, rank, device::current_ordinal(), name.as_deref())) }
}

pub unsafe fn ncclCommInitRankConfig(
    out: *mut *mut c_void,
    ranks: c_int,
    id: Bytes128,
    rank: c_int,
    _config: *const c_void,
) -> u32 {
    // SAFETY: as above.
    unsafe { ncclCommInitRank(out, ranks, id, rank) }
}

/// With several unique ids, of which the first names the place.
pub unsafe fn ncclCommInitRankScalable(
    out: *mut *mut c_void,
    ranks: c_int,
    rank: c_int,
    ids: c_int,
    list: *const c_void,
    _config: *const c_void,
) -> u32 {
    let first = (ids > 0 && !list.is_null()).then(|| {
        // SAFETY: NCCL's contract: `ids` unique ids of 128 bytes each.
        unsafe { list.cast::<[u64; 16]>().read_unaligned() }
    });
    let name = first.as_ref().and_then(meeting_place);
    // SAFETY: as above.
    unsafe { give(out, create(ranks, rank, device::current_ordinal(), name.as_deref())) }
}

/// One communicator for each card of this process.
pub unsafe fn ncclCommInitAll(out: *mut *mut c_void, count: c_int, devices: *const c_int) -> u32 {
    let Ok(many) = usize::try_from(count) else { return INVALID_ARGUMENT };
    if out.is_null() {
        return INVALID_ARGUMENT;
    }
    for index in 0..many {
        let ordinal = if devices.is_null() {
            Some(index)
        } else {
            // SAFETY: NCCL's contract: `count` devices where there is a list.
            usize::try_from(unsafe { devices.add(index).read_unaligned() }).ok()
        };
        let Some(ordinal) = ordinal else { return INVALID_ARGUMENT };
        // SAFETY: NCCL's contract: room for `count` communicators.
        let status = unsafe { give(out.add(index), create(count, index as c_int, ordinal, None)) };
        if status != SUCCESS {
            return status;
        }
    }
    SUCCESS
}

/// Splits a communicator. Where every rank runs, all tell each other what they chose. Where some do not, all are taken
/// to be like this one. Without a colour there is none.
pub unsafe fn ncclCommSplit(
    parent: *mut c_void,
    color: c_int,
    key: c_int,
    out: *mut *mut c_void,
    _config: *const c_void,
) -> u32 {
    // SAFETY: NCCL's contract is that of `get` and `give`.
    unsafe {
        let parent = match get(parent) {
            Ok(parent) => parent,
            Err(status) => return status,
        };
        let number = parent.splits.fetch_add(1, Ordering::Relaxed);
        let mine = (u64::from(color.cast_unsigned()) << 32 | u64::from(key.cast_unsigned())).to_le_bytes();
        let heard = parent.meeting.share(&mine);
        if color == NO_COLOR {
            return give(out, Ok(std::ptr::null_mut()));
        }
        let choices: Vec<(usize, c_int, c_int)> = heard
            .iter()
            .enumerate()
            .filter_map(|(rank, part)| {
                let choice = u64::from_le_bytes(part.as_deref()?.try_into().ok()?);
                Some((rank, ((choice >> 32) as u32).cast_signed(), (choice as u32).cast_signed()))
            })
            .filter(|(_, theirs, _)| *theirs == color)
            .collect();
        let (ranks, rank) = if heard.iter().flatten().count() + 1 == parent.ranks {
            let before = choices.iter().filter(|(rank, _, theirs)| (*theirs, *rank) < (key, parent.rank)).count();
            (choices.len() + 1, before)
        } else {
            let rank = usize::try_from(key).ok().filter(|key| *key < parent.ranks).unwrap_or(parent.rank);
            (parent.ranks, rank)
        };
        let name = parent.meeting.name().map(|name| format!("{name}-{number}-{color}"));
        give(out, create(ranks as c_int, rank as c_int, parent.ordinal, name.as_deref()))
    }
}

/// A communicator without some ranks.
pub unsafe fn ncclCommShrink(
    parent: *mut c_void,
    excluded: *const c_int,
    count: c_int,
    out: *mut *mut c_void,
    _config: *const c_void,
    _flags: c_int,
) -> u32 {
    // SAFETY: NCCL's contract: a communicator, `count` ranks, and an out-parameter that may be written.
    unsafe {
        let parent = match get(parent) {
            Ok(parent) => parent,
            Err(status) => return status,
        };
        let many = if excluded.is_null() { 0 } else { usize::try_from(count).unwrap_or(0) };
        let before = (0..many)
            .filter(|index| usize::try_from(excluded.add(*index).read_unaligned()).is_ok_and(|rank| rank < parent.rank))
            .count();
        let ranks = parent.ranks.saturating_sub(many).max(1);
        let rank = parent.rank.saturating_sub(before).min(ranks - 1);
        give(out, create(ranks as c_int, rank as c_int, parent.ordinal, None))
    }
}

/// A communicator with more ranks.
pub unsafe fn ncclCommGrow(
    parent: *mut c_void,
    ranks: c_int,
    _id: *const c_void,
    rank: c_int,
    out: *mut *mut c_void,
    _config: *const c_void,
) -> u32 {
    // SAFETY: NCCL's contract is that of `get` and `give`. A new rank has no parent, and an old one keeps its number.
    unsafe {
        match get(parent) {
            Ok(parent) => give(out, create(ranks, parent.rank as c_int, parent.ordinal, None)),
            Err(_) => give(out, create(ranks, rank, device::current_ordinal(), None)),
        }
    }
}

pub unsafe fn ncclCommDestroy(address: *mut c_void) -> u32 {
    if address.is_null() {
        return SUCCESS;
    }
    // SAFETY: NCCL's contract is that of `get`.
    let communicator = match unsafe { get(address) } {
        Ok(communicator) => communicator,
        Err(status) => return status,
    };
    communicator.release();
    // It stays in memory: frameworks ask a communicator for its state in another thread while they destroy it.
    communicator.magic.store(0, Ordering::Relaxed);
    SUCCESS
}

pub unsafe fn ncclCommAbort(address: *mut c_void) -> u32 {
    // SAFETY: NCCL's contract is that of `ncclCommDestroy`.
    unsafe { ncclCommDestroy(address) }
}

/// Defines functions that write one number of a communicator.
macro_rules! numbers {
    ($($name:ident = |$communicator:pat_param| $value:expr;)*) => {$(
        /// One number of a communicator.
        pub unsafe fn $name(address: *mut c_void, to: *mut c_int) -> u32 {
            // SAFETY: NCCL's contract is that of `get`, and an out-parameter that may be written.
            unsafe {
                let $communicator = match get(address) {
                    Ok(communicator) => communicator,
                    Err(status) => return status,
                };
                put(to, $value);
            }
            SUCCESS
        }
    )*};
}
numbers! {
    ncclCommCount = |communicator| communicator.ranks as c_int;
    ncclCommUserRank = |communicator| communicator.rank as c_int;
    ncclCommCuDevice = |communicator| communicator.ordinal as c_int;
}

/// Nothing goes wrong behind a virtual communicator's back.
pub unsafe fn ncclCommGetAsyncError(_address: *mut c_void, error: *mut c_int) -> u32 {
    // SAFETY: NCCL's contract: an out-parameter that may be written.
    unsafe { put(error, SUCCESS as c_int) };
    SUCCESS
}

/// Bytes on the card: 2 is what stays, 3 is all of it, 0 and 1 are what is suspended.
pub unsafe fn ncclCommMemStats(address: *mut c_void, which: c_int, value: *mut u64) -> u32 {
    // SAFETY: NCCL's contract is that of `get`, and an out-parameter that may be written.
    unsafe {
        let communicator = match get(address) {
            Ok(communicator) => communicator,
            Err(status) => return status,
        };
        put(value, if which >= 2 { communicator.charged.load(Ordering::Relaxed) } else { 0 });
    }
    SUCCESS
}

pub unsafe fn ncclGetErrorString(result: c_int) -> *const c_char {
    let text = match result {
        0 => c"no error",
        1 => c"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        2 => c"unhandled system error (run with NCCL_DEBUG=INFO for details)",
        3 => c"internal error - please report this issue to the NCCL developers",
        4 => c"invalid argument (run with NCCL_DEBUG=WARN for details)",
        5 => c"invalid usage (run with NCCL_DEBUG=WARN for details)",
        6 => c"remote process exited or there was a network error",
        7 => c"NCCL operation in progress",
        8 => c"operation timed out",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

pub unsafe fn ncclGetLastError(_address: *mut c_void) -> *const c_char {
    c"".as_ptr()
}

/// Memory that NCCL can register, which is device memory like any other.
pub unsafe fn ncclMemAlloc(out: *mut *mut c_void, size: usize) -> u32 {
    if out.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: NCCL's contract is that of `give`.
    unsafe { give(out, crate::memory::allocate(size, Kind::Malloc).map_err(|_| UNHANDLED_CUDA_ERROR)) }
}

pub unsafe fn ncclMemFree(address: *mut c_void) -> u32 {
    if crate::memory::free(address) == 0 { SUCCESS } else { UNHANDLED_CUDA_ERROR }
}

/// A window over a range of the program's memory, which its handle remembers.
pub unsafe fn ncclCommWindowRegister(
    _address: *mut c_void,
    buffer: *mut c_void,
    _size: usize,
    window: *mut *mut c_void,
    _flags: c_int,
) -> u32 {
    let handle = crate::handle::fresh();
    // SAFETY: a fresh handle is memory that may be written; the out-parameter may be by NCCL's contract.
    unsafe {
        put(handle.cast::<*mut c_void>(), buffer);
        put(window, handle);
    }
    SUCCESS
}

pub unsafe fn ncclWinGetUserPtr(_address: *mut c_void, window: *mut c_void, to: *mut *mut c_void) -> u32 {
    if window.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: NCCL's contract: a window that was registered, and an out-parameter that may be written.
    unsafe { put(to, window.cast::<*mut c_void>().read_unaligned()) };
    SUCCESS
}

/// An operator of the program's own; the built-in ones end at 4.
pub unsafe fn ncclRedOpCreatePreMulSum(
    operator: *mut c_int,
    _scalar: *mut c_void,
    _kind: c_int,
    _residence: c_int,
    _address: *mut c_void,
) -> u32 {
    static MADE: AtomicU64 = AtomicU64::new(5);
    // SAFETY: NCCL's contract: an out-parameter that may be written.
    unsafe { put(operator, c_int::try_from(MADE.fetch_add(1, Ordering::Relaxed)).unwrap_or(c_int::MAX)) };
    SUCCESS
}
