//! Rounds requests to block sizes, and computes what is taken from the driver for them.
//!
//! The constants are those of PyTorch's CUDA caching allocator, unchanged from 1.0 to 2.15.

use crate::settings::{INTERVALS, MIB, Settings};

/// Every block is a multiple of this many bytes.
pub const MIN_BLOCK: u64 = 512;
/// A block of at most this many bytes comes from the small pool.
pub const SMALL_SIZE: u64 = MIB;
/// A segment of the small pool, in bytes; also the page of its expandable segments.
pub const SMALL_SEGMENT: u64 = 2 * MIB;
/// From this many bytes on, a block gets a segment of its own size.
pub const MIN_LARGE: u64 = 10 * MIB;
/// Segments of that kind are multiples of this many bytes.
pub const ROUND_LARGE: u64 = 2 * MIB;
/// PyTorch refuses requests of this size, in bytes, before it looks at anything.
pub const TOO_LARGE: u64 = 1 << 60;

impl Settings {
    /// The size of the block that serves a request of `bytes`. Saturates near 2^64.
    pub fn round(&self, bytes: u64) -> u64 {
        if bytes < MIN_BLOCK {
            return MIN_BLOCK;
        }
        let divisions = self.divisions(bytes);
        if divisions > 1 && bytes > MIN_BLOCK.saturating_mul(divisions) {
            return round_to_division(bytes, divisions);
        }
        round_up(bytes, MIN_BLOCK)
    }

    /// The divisions that `roundup_power2_divisions` sets for a size.
    fn divisions(&self, bytes: u64) -> u64 {
        let interval = (bytes.ilog2() as usize).saturating_sub(MIB.ilog2() as usize);
        self.roundup_power2_divisions[interval.min(INTERVALS - 1)]
    }

    /// What a new segment for a block of `rounded` bytes takes from the driver.
    pub fn segment(&self, rounded: u64) -> u64 {
        if rounded <= SMALL_SIZE {
            SMALL_SEGMENT
        } else if rounded < MIN_LARGE {
            self.large_segment_size
        } else {
            round_up(rounded, ROUND_LARGE)
        }
    }

    /// The pages that expandable segments are mapped in.
    pub(crate) fn page(&self, small: bool) -> u64 {
        if small { SMALL_SEGMENT } else { self.large_segment_size }
    }
}

/// The next multiple of a power of two; saturates to its largest multiple.
pub(crate) fn round_up(bytes: u64, power: u64) -> u64 {
    bytes.checked_add(power - 1).map_or(!(power - 1), |sum| sum / power * power)
}

/// The next of the equal steps between two powers of two.
fn round_to_division(bytes: u64, divisions: u64) -> u64 {
    let floor = 1u64 << bytes.ilog2();
    if bytes == floor {
        return bytes;
    }
    match floor >> divisions.ilog2() {
        0 => floor.saturating_mul(2),
        step => round_up(bytes, step),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_rounded_to_blocks() {
        let settings = Settings::default();
        assert_eq!([0, 1, 512, 513, 1025].map(|bytes| settings.round(bytes)), [512, 512, 512, 1024, 1536]);
        assert_eq!(settings.round(u64::MAX), u64::MAX - 511);
    }

    #[test]
    fn divisions_follow_the_power_of_two() {
        let settings: Settings = "roundup_power2_divisions:4".parse().unwrap();
        // At most 512 * 4 bytes are rounded as usual.
        assert_eq!(settings.round(2048), 2048);
        assert_eq!(settings.round(1025), 1536);
        assert_eq!(settings.round(2049), 2560);
        assert_eq!(settings.round(5 * MIB + 1), 6 * MIB);
        assert_eq!(settings.round(8 * MIB), 8 * MIB);
        let settings: Settings = "roundup_power2_divisions:[2:1,4:4]".parse().unwrap();
        assert_eq!(settings.round(3 * MIB + 1), 3 * MIB + 512);
        assert_eq!(settings.round(5 * MIB + 1), 6 * MIB);
    }

    #[test]
    fn segments_have_the_sizes_that_pytorch_asks_for() {
        let settings = Settings::default();
        assert_eq!(settings.segment(MIB), 2 * MIB);
        assert_eq!(settings.segment(MIB + 512), 20 * MIB);
        assert_eq!(settings.segment(10 * MIB - 512), 20 * MIB);
        assert_eq!(settings.segment(10 * MIB), 10 * MIB);
        assert_eq!(settings.segment(11 * MIB + 512), 12 * MIB);
    }
}
