//! Which cards may read each other. All may; what is kept is only what the program switched on.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use oomph_ledger::MAX_DEVICES;

use crate::device;
use crate::status::{INVALID_DEVICE, INVALID_VALUE, PEER_ACCESS_ALREADY_ENABLED, SUCCESS};

/// For each card, a bit for each peer that it may read.
static ENABLED: [AtomicU32; MAX_DEVICES] = [const { AtomicU32::new(0) }; MAX_DEVICES];

fn change(peer: c_int, on: bool) -> u32 {
    let current = device::current_ordinal();
    if device::get(peer).is_none() || peer as usize == current {
        return INVALID_DEVICE;
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
