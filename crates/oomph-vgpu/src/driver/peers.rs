//! Which cards may read each other, and what of that the program switched on.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use oomph_ledger::MAX_DEVICES;

use crate::device::{self, Device};
use crate::status::{INVALID_DEVICE, INVALID_VALUE, PEER_ACCESS_ALREADY_ENABLED, PEER_ACCESS_UNSUPPORTED, SUCCESS};

/// For each card, a bit for each peer that it may read.
static ENABLED: [AtomicU32; MAX_DEVICES] = [const { AtomicU32::new(0) }; MAX_DEVICES];

/// The first compute capability whose GeForce cards do not reach each other over PCIe with NVIDIA's own driver: of the
/// RTX 2080, 3090 (NVIDIA/nccl#1127), 4090 and 5090 that is reported.
const FIRST_APART: (u64, u64) = (7, 5);

/// Whether one card can read another's memory: two of one generation, unless they are GeForce cards since Turing.
pub fn reach(one: Device, other: Device) -> bool {
    let generation = |device: Device| (device.description.cc_major, device.description.cc_minor);
    let apart = |device: Device| device.description.name.contains("GeForce") && generation(device) >= FIRST_APART;
    one.card != other.card && generation(one) == generation(other) && !apart(one) && !apart(other)
}

fn change(peer: c_int, on: bool) -> u32 {
    let current = device::current_ordinal();
    let own = c_int::try_from(current).ok().and_then(device::get);
    let (Some(own), Some(other)) = (own, device::get(peer)) else { return INVALID_DEVICE };
    if peer as usize == current {
        return INVALID_DEVICE;
    }
    if on && !reach(own, other) {
        return PEER_ACCESS_UNSUPPORTED;
    }
    let Some(peers) = ENABLED.get(current) else { return INVALID_DEVICE };
    let bit = 1_u32 << peer;
    let before = if on { peers.fetch_or(bit, Ordering::Relaxed) } else { peers.fetch_and(!bit, Ordering::Relaxed) };
    match (on, before & bit != 0) {
        (true, true) => PEER_ACCESS_ALREADY_ENABLED,
        (false, false) => INVALID_VALUE,
        _ => SUCCESS,
    }
}

/// Lets the current card read a peer.
pub fn enable(peer: c_int) -> u32 {
    change(peer, true)
}

/// Stops the current card from reading a peer.
pub fn disable(peer: c_int) -> u32 {
    change(peer, false)
}
