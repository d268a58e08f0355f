//! What a communicator takes from its card.
//!
//! **Model.** NCCL gives each connection of each channel a receive buffer for its three protocols and a smaller send
//! buffer. With the defaults of its public source (`NCCL_BUFFSIZE` 4 MiB, 8 lines of 16 bytes for 512 threads in 8
//! steps of LL, 120 words for 640 threads in 8 steps of LL128) a receive buffer is 9.69 MiB, which takes 10 MiB; its
//! log shows allocations of 10,485,760 and 2,097,152 bytes (NVIDIA/nccl issue 1685). A collective connects a ring and a
//! tree: on the ring a buffer, on each edge of the tree a buffer and a send buffer. That and 16 MiB for the
//! communicator itself are calibrated on the two readings of issue 964, four A100 with NVLink (24 channels): 544 MiB
//! for groups of 2, 688 MiB for larger ones. Point-to-point connections take a buffer and two send buffers for each
//! channel and peer: 7 peers and 32 channels of 8 H100 give 3,136 MiB, where issue 1685 measured 3.28 GB.
//!
//! From NCCL 2.22 on the ring and the tree are connected when a collective first uses them, so that a program whose
//! collectives all take one of them holds less than this.
//!
//! Cards without NVLink exchange through host memory or PCIe with few channels; where peers cannot map each other's
//! memory (GeForce) the buffers lie in host memory. NVLink multicast (NVLS) and network buffers are not modelled, nor
//! is the memory of NCCL's kernels, which counts as the context's.

use oomph_ledger::DeviceDescription;

pub use crate::gpu::NcclSettings as Settings;

const MIB: u64 = 1 << 20;
/// Bytes that the driver hands out at a time.
const GRANULE: u64 = 2 * MIB;
/// What a communicator takes before it has any connection, in bytes.
pub const COMMUNICATOR: u64 = 16 * MIB;
/// Bytes of the buffers of the LL and LL128 protocols.
const LL: u64 = 8 * 512 * 8 * 16;
const LL128: u64 = 120 * 640 * 8 * 8;
/// Bytes of the buffer of the simple protocol, unless `NCCL_BUFFSIZE` says otherwise.
pub const SIMPLE: u64 = 4 * MIB;
/// The peers that a card can have in one machine.
const MOST_LOCAL_RANKS: u64 = 8;

/// How the cards of a machine are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links {
    /// Channels of collectives.
    pub channels: u64,
    /// Channels between two peers.
    pub peer_channels: u64,
    /// Whether the buffers lie on the card.
    pub on_card: bool,
}

/// The connections of cards of this kind, as NCCL's log prints them for the usual machines with 8 of them.
pub fn links(card: &DeviceDescription) -> Links {
    let name = card.name.as_str();
    let has = |names: &[&str]| names.iter().any(|known| name.contains(known));
    if has(&["GeForce", "TITAN", "Orin"]) {
        // GeForce drivers refuse peer access since the RTX 20 series, so the buffers are in host memory.
        Links { channels: 2, peer_channels: 2, on_card: false }
    } else if name.contains("PCI") || !has(&["A100", "A800", "H100", "H800", "H200", "H20", "B200", "B300", "V100"]) {
        Links { channels: 4, peer_channels: 2, on_card: true }
    } else if card.cc_major >= 9 {
        Links { channels: 16, peer_channels: 32, on_card: true }
    } else if card.cc_major == 8 {
        Links { channels: 24, peer_channels: 16, on_card: true }
    } else {
        Links { channels: 12, peer_channels: 8, on_card: true }
    }
}

impl Settings {
    /// What the environment says.
    pub fn from_environment() -> Settings {
        let number =
            |name| std::env::var(name).ok().and_then(|text| text.trim().parse::<u64>().ok()).filter(|n| *n > 0);
        Settings {
            simple: number("NCCL_BUFFSIZE").unwrap_or(SIMPLE),
            most_channels: number("NCCL_MAX_NCHANNELS").or_else(|| number("NCCL_MAX_CTAS")).unwrap_or(u64::MAX),
        }
    }

    fn buffer(self) -> u64 {
        LL.saturating_add(LL128).saturating_add(self.simple).checked_next_multiple_of(GRANULE).unwrap_or(u64::MAX)
    }
}

/// What the first collective takes.
pub fn collectives(links: Links, settings: Settings, ranks: usize) -> u64 {
    if ranks < 2 || !links.on_card {
        return 0;
    }
    let channels = links.channels.min(settings.most_channels);
    let ring = channels.saturating_mul(settings.buffer());
    // In a tree of two each rank has one edge; in a longer chain between one and two, three halves on average.
    let halves = if ranks == 2 { 2 } else { 3 };
    let tree = channels.saturating_mul(settings.buffer().saturating_add(GRANULE)).saturating_mul(halves) / 2;
    ring.saturating_add(tree)
}

/// What the first exchange with one more peer takes.
pub fn peer(links: Links, settings: Settings) -> u64 {
    if !links.on_card {
        return 0;
    }
    let channels = links.peer_channels.min(settings.most_channels);
    channels.saturating_mul(settings.buffer().saturating_add(2 * GRANULE))
}

/// Whether a rank is in the same machine, if machines hold eight.
pub fn is_local(own: usize, other: usize) -> bool {
    own != other && own as u64 / MOST_LOCAL_RANKS == other as u64 / MOST_LOCAL_RANKS
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: Settings = Settings { simple: SIMPLE, most_channels: u64::MAX };

    fn card(name: &str, cc_major: u64) -> DeviceDescription {
        DeviceDescription { name: name.into(), cc_major, ..DeviceDescription::default() }
    }

    #[test]
    fn the_published_readings_come_out() {
        assert_eq!(DEFAULT.buffer(), 10_485_760);
        let a100 = links(&card("NVIDIA A100-SXM4-80GB", 8));
        assert_eq!(COMMUNICATOR + collectives(a100, DEFAULT, 2), 544 * MIB);
        assert_eq!(COMMUNICATOR + collectives(a100, DEFAULT, 4), 688 * MIB);
        let h100 = links(&card("NVIDIA H100 80GB HBM3", 9));
        assert_eq!(7 * peer(h100, DEFAULT), 3136 * MIB);
    }

    #[test]
    fn settings_and_slow_links_take_less() {
        let h100 = links(&card("NVIDIA H100 80GB HBM3", 9));
        let small = Settings { simple: MIB, most_channels: 4 };
        assert!(collectives(h100, small, 8) < collectives(h100, DEFAULT, 8) / 4);
        let consumer = links(&card("NVIDIA GeForce RTX 4090", 8));
        assert_eq!(collectives(consumer, DEFAULT, 2), 0);
        assert_eq!(links(&card("NVIDIA H100 PCIe", 9)).channels, 4);
        assert_eq!(collectives(h100, DEFAULT, 1), 0);
        assert!(is_local(0, 7) && !is_local(7, 8) && !is_local(3, 3));
    }
}
