//! Describes a card to the processes that use it.

use crate::layout::DESCRIPTION_BYTES;

const NAME_BYTES: usize = 96;
const UUID_BYTES: usize = 16;

/// Defines [`DeviceDescription`] and its encoding from one list of fields, so that writer and reader cannot disagree.
macro_rules! description {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// One virtual card, as the processes of a run see it.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct DeviceDescription {
            /// The name as CUDA prints it, at most 95 bytes.
            pub name: String,
            /// The identity that CUDA and NVML report.
            pub uuid: [u8; UUID_BYTES],
            $($(#[$doc])* pub $field: u64,)*
        }

        impl DeviceDescription {
            /// Encodes the card into the ledger's fixed-size record.
            #[must_use]
            pub fn encode(&self) -> Vec<u8> {
                let mut bytes = vec![0; NAME_BYTES];
                for (slot, byte) in bytes.iter_mut().take(NAME_BYTES - 1).zip(self.name.bytes()) {
                    *slot = byte;
                }
                bytes.extend_from_slice(&self.uuid);
                $(bytes.extend_from_slice(&self.$field.to_le_bytes());)*
                bytes.resize(DESCRIPTION_BYTES, 0);
                bytes
            }

            /// Decodes a record that [`encode`](Self::encode) made; `None` where the bytes are too few.
            #[must_use]
            pub fn decode(bytes: &[u8]) -> Option<Self> {
                let (name, rest) = bytes.split_at_checked(NAME_BYTES)?;
                let (uuid, mut rest) = rest.split_at_checked(UUID_BYTES)?;
                let name: Vec<u8> = name.iter().copied().take_while(|byte| *byte != 0).collect();
                let mut description = Self {
                    name: String::from_utf8_lossy(&name).into_owned(),
                    uuid: uuid.try_into().ok()?,
                    ..Self::default()
                };
                $(
                    let (word, after) = rest.split_first_chunk::<8>()?;
                    description.$field = u64::from_le_bytes(*word);
                    rest = after;
                )*
                let _ = rest;
                Some(description)
            }
        }
    };
}

description! {
    /// What `cudaMemGetInfo` reports as the total, in bytes.
    capacity_bytes,
    /// What creating a CUDA context takes from the card, in bytes.
    context_bytes,
    /// Major part of the compute capability.
    cc_major,
    /// Minor part of the compute capability.
    cc_minor,
    /// Streaming multiprocessors.
    sm_count,
    /// Resident threads per multiprocessor.
    max_threads_per_sm,
    /// Resident blocks per multiprocessor.
    max_blocks_per_sm,
    /// 32-bit registers per block.
    regs_per_block,
    /// 32-bit registers per multiprocessor.
    regs_per_sm,
    /// Shared memory a block may use without opting in, in bytes.
    shared_per_block,
    /// Shared memory a block may use after opting in, in bytes.
    shared_per_block_optin,
    /// Shared memory per multiprocessor, in bytes.
    shared_per_sm,
    /// Shared memory per block that the system keeps, in bytes.
    reserved_shared_per_block,
    /// Level-2 cache, in bytes.
    l2_bytes,
    /// Multiprocessor clock, in kHz.
    clock_khz,
    /// Memory clock, in kHz.
    memory_clock_khz,
    /// Memory bus width, in bits.
    bus_width_bits,
    /// PCI device id (the upper half of NVML's `pciDeviceId`).
    pci_device_id,
    /// 1 for a card that shares the host's memory (Jetson), 0 otherwise.
    integrated,
}

impl DeviceDescription {
    /// Where [`capacity_bytes`](Self::capacity_bytes) is in the encoded record, in bytes: it is the only part of a
    /// card that the runs of one fork server may have of their own.
    pub const CAPACITY_AT: usize = NAME_BYTES + UUID_BYTES;

    /// Whether the card stands for "no limit".
    #[must_use]
    pub fn is_unbounded(&self) -> bool {
        self.capacity_bytes >= crate::UNBOUNDED_CAPACITY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_survives_the_file() {
        let card = DeviceDescription {
            name: "NVIDIA GeForce RTX 3060".into(),
            uuid: [7; 16],
            capacity_bytes: 12_628_656_128,
            integrated: 1,
            sm_count: 28,
            ..DeviceDescription::default()
        };
        let bytes = card.encode();
        assert_eq!(bytes.len(), DESCRIPTION_BYTES);
        assert_eq!(DeviceDescription::decode(&bytes), Some(card));
        assert_eq!(DeviceDescription::decode(&bytes[..40]), None);
    }

    #[test]
    fn an_overlong_name_is_cut_and_stays_terminated() {
        let card = DeviceDescription { name: "x".repeat(500), ..DeviceDescription::default() };
        let read = DeviceDescription::decode(&card.encode()).map(|card| card.name.len());
        assert_eq!(read, Some(NAME_BYTES - 1));
    }
}
