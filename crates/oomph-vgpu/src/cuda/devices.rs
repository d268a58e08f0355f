//! Cards and what is between them, limits.

use std::ffi::c_int;

use crate::boundary::{Out, Room, Text};
use crate::cuda::{attributes, peers};
use crate::device::{self, Device};
use crate::gpu::gpu;
use crate::status::CudaStatus;

/// The card with an ordinal of this process, as the driver answers for one that is not there.
pub fn get(ordinal: c_int) -> Result<Device, CudaStatus> {
    device::get(ordinal).ok_or(CudaStatus::INVALID_DEVICE)
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

/// Writes a limit of a context.
pub fn limit(value: Out<'_, usize>, limit: c_int) -> Result<(), CudaStatus> {
    // Stack size, printf buffer, malloc heap, nesting depth, pending launches, fetch granularity, L2 persistence: the
    // defaults of a fresh context.
    let defaults = [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0];
    value.set(*defaults.get(limit.max(0) as usize).ok_or(CudaStatus::INVALID_VALUE)?);
    Ok(())
}

/// Writes the range of a stream's priorities.
pub fn priorities(least: Out<'_, c_int>, greatest: Out<'_, c_int>) {
    least.set(0);
    greatest.set(-5);
}
