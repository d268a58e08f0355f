//! Which cards may read each other, and what of that the program switched on.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use crate::device::{self, Device};
use crate::gpu::gpu;
use crate::status::CudaStatus;

/// The first compute capability whose GeForce cards do not reach each other over PCIe with NVIDIA's own driver: of the
/// RTX 2080, 3090 (NVIDIA/nccl#1127), 4090 and 5090 that is reported.
const FIRST_APART: (u64, u64) = (7, 5);

/// Whether one card can read another's memory: two of one generation, unless they are GeForce cards since Turing, or
/// slices of cards.
pub fn reach(one: Device, other: Device) -> bool {
    let generation = |device: Device| (device.description.cc_major, device.description.cc_minor);
    let apart = |device: Device| {
        let name = &device.description.name;
        name.contains(" MIG ") || name.contains("GeForce") && generation(device) >= FIRST_APART
    };
    one.card != other.card && generation(one) == generation(other) && !apart(one) && !apart(other)
}

fn change(peer: c_int, on: bool) -> Result<(), CudaStatus> {
    let current = device::current_ordinal();
    let own = c_int::try_from(current).ok().and_then(device::get).ok_or(CudaStatus::INVALID_DEVICE)?;
    let other = device::get(peer).filter(|_| peer as usize != current).ok_or(CudaStatus::INVALID_DEVICE)?;
    if on && !reach(own, other) {
        return Err(CudaStatus::PEER_ACCESS_UNSUPPORTED);
    }
    let peers = gpu().peers.get(current).ok_or(CudaStatus::INVALID_DEVICE)?;
    let bit = 1_u32 << peer;
    let before = if on { peers.fetch_or(bit, Ordering::Relaxed) } else { peers.fetch_and(!bit, Ordering::Relaxed) };
    match (on, before & bit != 0) {
        (true, true) => Err(CudaStatus::PEER_ACCESS_ALREADY_ENABLED),
        (false, false) => Err(CudaStatus::INVALID_VALUE),
        _ => Ok(()),
    }
}

/// Lets the current card read a peer.
pub fn enable(peer: c_int) -> Result<(), CudaStatus> {
    change(peer, true)
}

/// Stops the current card from reading a peer.
pub fn disable(peer: c_int) -> Result<(), CudaStatus> {
    change(peer, false)
}

#[cfg(test)]
mod tests {
    use oomph_ledger::DeviceDescription;

    use super::*;

    fn card(card: usize, name: &str, (cc_major, cc_minor): (u64, u64)) -> Device {
        let description = DeviceDescription { name: name.into(), cc_major, cc_minor, ..DeviceDescription::default() };
        Device { card, description: Box::leak(Box::new(description)) }
    }

    #[test]
    fn cards_of_one_generation_reach_each_other_unless_they_are_geforce_or_slices() {
        let h100 = |index| card(index, "NVIDIA H100 80GB HBM3", (9, 0));
        assert!(reach(h100(0), h100(1)));
        assert!(!reach(h100(0), h100(0)), "a card is not a peer of itself");
        assert!(!reach(h100(0), card(1, "NVIDIA A100-SXM4-80GB", (8, 0))));
        let geforce = |index| card(index, "NVIDIA GeForce RTX 4090", (8, 9));
        assert!(!reach(geforce(0), geforce(1)));
        let old = |index| card(index, "NVIDIA GeForce GTX 1080 Ti", (6, 1));
        assert!(reach(old(0), old(1)));
        let slice = |index| card(index, "NVIDIA A100-SXM4-40GB MIG 1g.5gb", (8, 0));
        assert!(!reach(slice(0), slice(1)));
    }
}
