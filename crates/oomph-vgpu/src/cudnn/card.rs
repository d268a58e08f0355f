//! The description of the current card that libcudnn is given.
#![deny(unsafe_code)]

use crate::device;
use crate::libcudnn::props::Props;

/// The current card.
pub fn current() -> Option<Props> {
    let device = device::current()?;
    let card = device.description;
    Some(Props {
        name: card.name.clone(),
        version: card.cc_major * 100 + card.cc_minor * 10,
        sm_count: card.sm_count,
        max_threads_per_sm: card.max_threads_per_sm,
        max_blocks_per_sm: card.max_blocks_per_sm,
        regs_per_block: card.regs_per_block,
        regs_per_sm: card.regs_per_sm,
        shared_per_block: card.shared_per_block,
        shared_per_block_optin: card.shared_per_block_optin,
        reserved_shared_per_block: card.reserved_shared_per_block,
        l2_bytes: card.l2_bytes,
        clock_khz: card.clock_khz,
        memory_clock_khz: card.memory_clock_khz,
        bus_width_bits: card.bus_width_bits,
        pci_device_id: device::PCI_SLOT,
        capacity_bytes: device.capacity_bytes(),
        ordinal: device::current_ordinal(),
    })
}
