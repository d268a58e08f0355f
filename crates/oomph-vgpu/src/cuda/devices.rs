//! Cards and what is between them, limits.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use oomph_ledger::DeviceDescription;

use crate::boundary::{Out, Room, Text};
use crate::context;
use crate::cuda::{attributes, peers};
use crate::device::{self, Device};
use crate::gpu::gpu;
use crate::status::CudaStatus;

/// The card with an ordinal of this process, as the driver answers for one that is not there.
pub fn get(ordinal: c_int) -> Result<Device, CudaStatus> {
    device::get(ordinal).ok_or_else(|| {
        gpu().note_missing(ordinal);
        CudaStatus::INVALID_DEVICE
    })
}

/// Writes an attribute of a card.
pub fn attribute(value: Out<'_, c_int>, attribute: c_int, ordinal: c_int) -> Result<(), CudaStatus> {
    write_attribute(value, get(ordinal)?, ordinal, attribute)
}

/// Writes an attribute of a card that was found.
pub fn write_attribute(
    value: Out<'_, c_int>,
    device: Device,
    ordinal: c_int,
    attribute: c_int,
) -> Result<(), CudaStatus> {
    let value = value.given().ok_or(CudaStatus::INVALID_VALUE)?;
    value.set(attributes::of(device, ordinal, attribute).ok_or(CudaStatus::INVALID_VALUE)?);
    Ok(())
}

/// Copies a text into a buffer, cut to fit and terminated.
pub fn put_text(to: Room<'_, u8>, text: &str) {
    if let Some(room) = to.count().checked_sub(1) {
        to.fill(text.bytes().take(room).chain([0]));
    }
}

/// The PCI address of a card: buses are numbered from 1 in the order of the cards.
pub fn pci_bus_id(ordinal: usize) -> String {
    format!("0000:{:02X}:00.0", ordinal + 1)
}

/// Writes the PCI address of a card.
pub fn write_pci_bus_id(text: Room<'_, u8>, ordinal: c_int) -> Result<(), CudaStatus> {
    put_text(text, &pci_bus_id(get(ordinal)?.card));
    Ok(())
}

/// Writes the ordinal of the card with a PCI address.
pub fn by_pci_bus_id(ordinal: Out<'_, c_int>, text: Text<'_>) -> Result<(), CudaStatus> {
    let text = text.get().ok_or(CudaStatus::INVALID_VALUE)?.to_string_lossy().to_uppercase();
    let is_named = |device: &Device| text.ends_with(pci_bus_id(device.card).trim_start_matches('0'));
    let found = gpu().visible().iter().position(is_named).ok_or(CudaStatus::INVALID_DEVICE)?;
    ordinal.set(found as c_int);
    Ok(())
}

/// Writes whether one card can read another's memory.
pub fn can_access_peer(can: Out<'_, c_int>, ordinal: c_int, peer: c_int) -> Result<(), CudaStatus> {
    can.set(c_int::from(peers::reach(get(ordinal)?, get(peer)?)));
    Ok(())
}

/// Writes an attribute of the link between two cards.
pub fn link_attribute(value: Out<'_, c_int>, attribute: c_int, source: c_int, target: c_int) -> Result<(), CudaStatus> {
    let (one, other) = (get(source)?, get(target)?);
    // 2 is "access supported"; performance rank, native atomics and array access are 0.
    value.set(c_int::from(attribute == 2 && peers::reach(one, other)));
    Ok(())
}

/// `CU_LIMIT_STACK_SIZE`, `CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH`, `CU_LIMIT_PERSISTING_L2_CACHE_SIZE`, `CU_LIMIT_SHMEM_SIZE`.
const STACK: c_int = 0;
const SYNC_DEPTH: c_int = 3;
const PERSISTING_L2: c_int = 6;
const SHARED: c_int = 7;

/// A limit of a fresh context. Those of compute capability 9 were read on an H100 (driver 580.159.04), where the buffer of
/// `printf` has 64 KiB for each multiprocessor.
fn usual_limit(card: &DeviceDescription, limit: c_int) -> Result<u64, CudaStatus> {
    let read = attributes::is_hopper(card);
    match limit {
        STACK => Ok(context::USUAL_STACK),
        1 if read => Ok(card.sm_count << 16),
        1 => Ok(1 << 20),
        // The heap of `malloc`.
        2 => Ok(8 << 20),
        // Kernels cannot wait for kernels that they launch since Hopper.
        SYNC_DEPTH if card.cc_major >= 9 => Err(CudaStatus::UNSUPPORTED_LIMIT),
        SYNC_DEPTH => Ok(2),
        // Launches that kernels may have pending, and the bytes that the level-2 cache fetches at once.
        4 => Ok(2048),
        5 => Ok(64),
        PERSISTING_L2 => Ok(attributes::most_persisting_l2(card) / 10 * 3),
        SHARED if read => Ok(card.shared_per_block_optin),
        _ => Err(CudaStatus::INVALID_VALUE),
    }
}

/// Where a limit is kept that a program sets; `None` for one that can only be read.
fn set_limit_of(device: Device, limit: c_int) -> Option<&'static AtomicU64> {
    context::changes(device)?.limits.get(usize::try_from(limit).ok()?)
}

/// Writes a limit of the current card's context.
pub fn limit(value: Out<'_, usize>, limit: c_int) -> Result<(), CudaStatus> {
    let device = device::current().ok_or_else(device::missing)?;
    let usual = usual_limit(device.description, limit)?;
    let set = set_limit_of(device, limit).map_or(0, |set| set.load(Ordering::Relaxed));
    value.set(if set == 0 { usual } else { set } as usize);
    Ok(())
}

/// Sets a limit of a card's context. A larger stack takes memory.
pub fn set_limit(device: Device, limit: c_int, value: usize) -> Result<(), CudaStatus> {
    usual_limit(device.description, limit)?;
    let value = match limit {
        PERSISTING_L2 => (value as u64).min(attributes::most_persisting_l2(device.description)),
        _ => value as u64,
    };
    let set = set_limit_of(device, limit).ok_or(CudaStatus::UNSUPPORTED_LIMIT)?;
    if limit == STACK {
        context::set_stack(device, value)?;
    }
    set.store(value, Ordering::Relaxed);
    Ok(())
}

/// Writes the range of a stream's priorities.
pub fn priorities(least: Out<'_, c_int>, greatest: Out<'_, c_int>) {
    least.set(0);
    greatest.set(-5);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Read on an H100, driver 580.159.04, 2026-11-26.
    #[test]
    fn the_limits_of_a_fresh_context_are_those_of_an_h100() {
        let card = DeviceDescription {
            cc_major: 9,
            sm_count: 132,
            l2_bytes: 52_428_800,
            shared_per_block_optin: 232_448,
            ..DeviceDescription::default()
        };
        let limits: Vec<_> = (0..8).map(|limit| usual_limit(&card, limit)).collect();
        let depth = Err(CudaStatus::UNSUPPORTED_LIMIT);
        let read = [1024, 8_650_752, 8_388_608, 0, 2048, 64, 9_830_400, 232_448].map(Ok);
        assert_eq!((&limits[..3], limits[3], &limits[4..]), (&read[..3], depth, &read[4..]));
        assert_eq!(usual_limit(&card, 99), Err(CudaStatus::INVALID_VALUE));
        let older = DeviceDescription { cc_major: 8, ..DeviceDescription::default() };
        assert_eq!(usual_limit(&older, SYNC_DEPTH), Ok(2));
    }
}
