//! NCCL: communicators of one rank among many, of which the others are taken to be like this one.
//!
//! Small messages are exchanged with the other ranks that run ([`exchange`]). Of all others, a collective
//! writes what it would have received if all ranks held what this one holds; see [`collectives`].
#![allow(clippy::too_many_arguments, reason = "the parameters are those of NCCL's header")]

mod arithmetic;
pub mod collectives;
mod exchange;
mod memory;

pub use collectives::*;

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use oomph_ledger::Kind;

use crate::abi::Bytes128;
use crate::boundary::{Handle, In, Items, Object, Out, Room, hand_out, statuses};
use crate::cublas::versions::library_version;
use crate::device::{self, Device};
use crate::gpu::gpu;
use crate::holdings;
use crate::nccl::exchange::Meeting;

statuses! {
    /// `ncclResult_t`
    pub NcclStatus {
        /// A call of CUDA's failed.
        UNHANDLED_CUDA_ERROR = 1,
        /// An argument is out of range, or no communicator.
        INVALID_ARGUMENT = 4,
    }
}

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
    /// The other ranks that run.
    meeting: Meeting,
    /// How often it was split.
    splits: AtomicU64,
}

impl Communicator {
    /// Charges what NCCL allocates itself. A card that is full fails the call, as it does in NCCL.
    fn charge(&self, bytes: u64) -> Result<(), NcclStatus> {
        if bytes == 0 {
            return Ok(());
        }
        if !gpu().charge(self.device.card, Kind::Library, bytes) {
            return Err(NcclStatus::UNHANDLED_CUDA_ERROR);
        }
        self.charged.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn release(&self) {
        let bytes = self.charged.swap(0, Ordering::Relaxed);
        if bytes > 0 {
            gpu().release(self.device.card, Kind::Library, bytes);
        }
    }

    /// Connects the communicator for collectives, at the first of them.
    pub(super) fn connect(&self) -> Result<(), NcclStatus> {
        if self.connected.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.charge(memory::collectives(memory::links(self.device.description), settings(), self.ranks))
    }

    /// Connects the communicator with one peer, at the first exchange with it.
    pub(super) fn connect_with(&self, peer: usize) -> Result<(), NcclStatus> {
        let bit = 1_u64 << (peer % 8);
        if !memory::is_local(self.rank, peer) || self.peers.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            return Ok(());
        }
        self.charge(memory::peer(memory::links(self.device.description), settings()))
    }
}

fn settings() -> memory::Settings {
    *gpu().libraries.nccl_settings.get_or_init(memory::Settings::from_environment)
}

// SAFETY: all fields that change are atomic, or have locks of their own.
unsafe impl Object for Communicator {
    fn is_live(&self) -> bool {
        self.magic.load(Ordering::Relaxed) == MAGIC
    }
}

/// The communicator of a handle, or what NCCL answers to others.
pub(super) fn known<'a>(handle: &'a Handle<'_, Communicator>) -> Result<&'a Communicator, NcclStatus> {
    handle.get().ok_or(NcclStatus::INVALID_ARGUMENT)
}

/// The address of a new object, or why there is none.
type Made = Result<*mut c_void, NcclStatus>;

/// Makes a communicator on a card, whose ranks meet where the name says.
fn create(ranks: c_int, rank: c_int, ordinal: usize, name: Option<&str>) -> Made {
    let (Ok(ranks), Ok(rank)) = (usize::try_from(ranks), usize::try_from(rank)) else {
        return Err(NcclStatus::INVALID_ARGUMENT);
    };
    if rank >= ranks {
        return Err(NcclStatus::INVALID_ARGUMENT);
    }
    let device = c_int::try_from(ordinal).ok().and_then(device::get).ok_or(NcclStatus::UNHANDLED_CUDA_ERROR)?;
    device::activate(device).map_err(|_| NcclStatus::UNHANDLED_CUDA_ERROR)?;
    let communicator = Communicator {
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
    };
    communicator.charge(memory::COMMUNICATOR)?;
    let kernels = holdings::of(device.description).nccl;
    if kernels > 0 && !gpu().libraries.nccl_charged.swap(true, Ordering::Relaxed) {
        // They stay when the communicator ends.
        if !gpu().charge(device.card, Kind::Library, kernels) {
            gpu().libraries.nccl_charged.store(false, Ordering::Relaxed);
            communicator.release();
            return Err(NcclStatus::UNHANDLED_CUDA_ERROR);
        }
    }
    Ok(hand_out(communicator))
}

/// Writes a new communicator.
fn give(out: Out<'_, *mut c_void>, made: Made) -> Result<(), NcclStatus> {
    let out = out.given().ok_or(NcclStatus::INVALID_ARGUMENT)?;
    out.set(made?);
    Ok(())
}

library_version!(Nccl, "libnccl.so.", "nccl", [2, 21, 5], [2, 27, 5], [2, 30, 7]);

/// The version in one number: 23007 for 2.30.7.
pub fn ncclGetVersion(value: Out<'_, c_int>) -> Result<(), NcclStatus> {
    let [major, minor, patch] = version();
    value.set(major * 10_000 + minor * 100 + patch);
    Ok(())
}

/// A name for a communicator that no other process of the machine makes.
fn unique_id(to: Out<'_, [u8; 128]>) -> Result<(), NcclStatus> {
    let to = to.given().ok_or(NcclStatus::INVALID_ARGUMENT)?;
    let mut id = [0; 128];
    let number = gpu().libraries.nccl_ids.fetch_add(1, Ordering::Relaxed) + 1;
    let parts = [u64::from(std::process::id()), number, MAGIC];
    for (place, byte) in id.iter_mut().zip(parts.iter().flat_map(|part| part.to_le_bytes())) {
        *place = byte;
    }
    to.set(id);
    Ok(())
}

pub fn ncclGetUniqueId(to: Out<'_, [u8; 128]>) -> Result<(), NcclStatus> {
    unique_id(to)
}

pub fn ncclCommGetUniqueId(_communicator: *mut c_void, to: Out<'_, [u8; 128]>) -> Result<(), NcclStatus> {
    unique_id(to)
}

/// Where the ranks of a communicator with this unique id meet, if the id was made here.
fn meeting_place(id: &[u64; 16]) -> Option<String> {
    (id[2] == MAGIC).then(|| format!("{:x}-{:x}", id[0], id[1]))
}

pub fn ncclCommInitRank(out: Out<'_, *mut c_void>, ranks: c_int, id: Bytes128, rank: c_int) -> Result<(), NcclStatus> {
    let name = meeting_place(&id.0);
    give(out, create(ranks, rank, device::current_ordinal(), name.as_deref()))
}

pub fn ncclCommInitRankConfig(
    out: Out<'_, *mut c_void>,
    ranks: c_int,
    id: Bytes128,
    rank: c_int,
    _config: *const c_void,
) -> Result<(), NcclStatus> {
    ncclCommInitRank(out, ranks, id, rank)
}

/// With several unique ids, of which the first names the place.
pub fn ncclCommInitRankScalable(
    out: Out<'_, *mut c_void>,
    ranks: c_int,
    rank: c_int,
    _count: c_int,
    ids: Items<'_, [u64; 16]>,
    _config: *const c_void,
) -> Result<(), NcclStatus> {
    let name = ids.get(0).as_ref().and_then(meeting_place);
    give(out, create(ranks, rank, device::current_ordinal(), name.as_deref()))
}

/// One communicator for each card of this process.
pub fn ncclCommInitAll(out: Room<'_, *mut c_void>, count: c_int, devices: Items<'_, c_int>) -> Result<(), NcclStatus> {
    if count < 0 || out.is_null() {
        return Err(NcclStatus::INVALID_ARGUMENT);
    }
    for index in 0..out.count() {
        let ordinal = if devices.is_null() {
            Some(index)
        } else {
            devices.get(index).and_then(|device| usize::try_from(device).ok())
        };
        let ordinal = ordinal.ok_or(NcclStatus::INVALID_ARGUMENT)?;
        out.set(index, create(count, index as c_int, ordinal, None)?);
    }
    Ok(())
}

/// Splits a communicator. Where every rank runs, all tell each other what they chose. Where some do not, all are taken
/// to be like this one. Without a colour there is none.
pub fn ncclCommSplit(
    parent: Handle<'_, Communicator>,
    color: c_int,
    key: c_int,
    out: Out<'_, *mut c_void>,
    _config: *const c_void,
) -> Result<(), NcclStatus> {
    let parent = known(&parent)?;
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

/// A communicator without some ranks.
pub fn ncclCommShrink(
    parent: Handle<'_, Communicator>,
    excluded: Items<'_, c_int>,
    _count: c_int,
    out: Out<'_, *mut c_void>,
    _config: *const c_void,
    _flags: c_int,
) -> Result<(), NcclStatus> {
    let parent = known(&parent)?;
    let many = excluded.iter().count();
    let before = excluded.iter().filter(|rank| usize::try_from(*rank).is_ok_and(|rank| rank < parent.rank)).count();
    let ranks = parent.ranks.saturating_sub(many).max(1);
    let rank = parent.rank.saturating_sub(before).min(ranks - 1);
    give(out, create(ranks as c_int, rank as c_int, parent.ordinal, None))
}

/// A communicator with more ranks. A new rank has no parent, and an old one keeps its number.
pub fn ncclCommGrow(
    parent: Handle<'_, Communicator>,
    ranks: c_int,
    _id: *const c_void,
    rank: c_int,
    out: Out<'_, *mut c_void>,
    _config: *const c_void,
) -> Result<(), NcclStatus> {
    let (rank, ordinal) = match known(&parent) {
        Ok(parent) => (parent.rank as c_int, parent.ordinal),
        Err(_) => (rank, device::current_ordinal()),
    };
    give(out, create(ranks, rank, ordinal, None))
}

pub fn ncclCommDestroy(handle: Handle<'_, Communicator>) -> Result<(), NcclStatus> {
    if handle.is_null() {
        return Ok(());
    }
    let communicator = known(&handle)?;
    communicator.release();
    // It stays in memory: frameworks ask a communicator for its state in another thread while they destroy it.
    communicator.magic.store(0, Ordering::Relaxed);
    Ok(())
}

pub fn ncclCommAbort(handle: Handle<'_, Communicator>) -> Result<(), NcclStatus> {
    ncclCommDestroy(handle)
}

/// Defines functions that write one number of a communicator.
macro_rules! numbers {
    ($($name:ident = |$communicator:pat_param| $value:expr;)*) => {$(
        /// One number of a communicator.
        pub fn $name(handle: Handle<'_, Communicator>, to: Out<'_, c_int>) -> Result<(), NcclStatus> {
            let $communicator = known(&handle)?;
            to.set($value);
            Ok(())
        }
    )*};
}
numbers! {
    ncclCommCount = |communicator| communicator.ranks as c_int;
    ncclCommUserRank = |communicator| communicator.rank as c_int;
    ncclCommCuDevice = |communicator| communicator.ordinal as c_int;
}

/// Nothing goes wrong behind a virtual communicator's back: the error is success.
pub fn ncclCommGetAsyncError(_address: *mut c_void, error: Out<'_, c_int>) -> Result<(), NcclStatus> {
    error.set(0);
    Ok(())
}

/// Bytes on the card: 2 is what stays, 3 is all of it, 0 and 1 are what is suspended.
pub fn ncclCommMemStats(handle: Handle<'_, Communicator>, which: c_int, value: Out<'_, u64>) -> Result<(), NcclStatus> {
    let communicator = known(&handle)?;
    value.set(if which >= 2 { communicator.charged.load(Ordering::Relaxed) } else { 0 });
    Ok(())
}

pub fn ncclGetErrorString(result: c_int) -> &'static CStr {
    match result {
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
    }
}

pub fn ncclGetLastError(_address: *mut c_void) -> &'static CStr {
    c""
}

/// Memory that NCCL can register, which is device memory like any other.
pub fn ncclMemAlloc(out: Out<'_, *mut c_void>, size: usize) -> Result<(), NcclStatus> {
    let out = out.given().ok_or(NcclStatus::INVALID_ARGUMENT)?;
    give(out, crate::memory::allocate(size, Kind::Malloc).map_err(|_| NcclStatus::UNHANDLED_CUDA_ERROR))
}

pub fn ncclMemFree(address: *mut c_void) -> Result<(), NcclStatus> {
    crate::memory::free(address).map_err(|_| NcclStatus::UNHANDLED_CUDA_ERROR)
}

/// A window over a range of the program's memory, which its handle remembers.
pub fn ncclCommWindowRegister(
    _address: *mut c_void,
    buffer: *mut c_void,
    _size: usize,
    window: Out<'_, *mut c_void>,
    _flags: c_int,
) -> Result<(), NcclStatus> {
    window.set(gpu().handles.fresh_with(buffer as u64));
    Ok(())
}

pub fn ncclWinGetUserPtr(
    _address: *mut c_void,
    window: In<'_, *mut c_void>,
    to: Out<'_, *mut c_void>,
) -> Result<(), NcclStatus> {
    to.set(window.get().ok_or(NcclStatus::INVALID_ARGUMENT)?);
    Ok(())
}

/// The number of the first operator of the program's own; the built-in ones end at 4.
const FIRST_OPERATOR: u64 = 5;

/// Makes an operator of the program's own.
pub fn ncclRedOpCreatePreMulSum(
    operator: Out<'_, c_int>,
    _scalar: *mut c_void,
    _kind: c_int,
    _residence: c_int,
    _address: *mut c_void,
) -> Result<(), NcclStatus> {
    let made = gpu().libraries.nccl_operators.fetch_add(1, Ordering::Relaxed);
    operator.set(c_int::try_from(made + FIRST_OPERATOR).unwrap_or(c_int::MAX));
    Ok(())
}
