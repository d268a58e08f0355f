//! Lays out the address space without its empty parts: every range that was ever taken from the driver, one after the
//! other.

use oomph_explain::snapshot::History;

/// A part of the address space that was taken at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Island {
    /// Its address.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Where it lies on the axis of the page.
    pub offset: u64,
}

/// All islands by address; on the axis they touch.
#[derive(Debug, Default)]
pub struct Space {
    /// The islands.
    pub islands: Vec<Island>,
}

impl Space {
    /// The islands of a history. What lies in no range has one of its own.
    pub fn of(history: &History) -> Self {
        let ranges = history.ranges.iter().map(|range| (range.address, range.size));
        let blocks = history.blocks.iter().map(|block| (block.address, block.size));
        let mut parts: Vec<(u64, u64)> = ranges.chain(blocks).filter(|part| part.1 > 0).collect();
        parts.sort_unstable();
        let mut space = Self::default();
        for (address, size) in parts {
            let end = address.saturating_add(size);
            match space.islands.last_mut() {
                // Ranges that touch are two islands where one of them ends for good, but one axis either way.
                Some(last) if address <= last.address.saturating_add(last.size) => {
                    last.size = last.size.max(end - last.address);
                }
                _ => space.islands.push(Island { address, size: end - address, offset: 0 }),
            }
        }
        let mut offset = 0_u64;
        for island in &mut space.islands {
            island.offset = offset;
            offset = offset.saturating_add(island.size);
        }
        space
    }

    /// Where an address lies on the axis.
    pub fn offset(&self, address: u64) -> u64 {
        let after = self.islands.partition_point(|island| island.address <= address);
        after.checked_sub(1).map_or(0, |at| {
            let island = self.islands[at];
            island.offset.saturating_add((address - island.address).min(island.size))
        })
    }
}

#[cfg(test)]
mod tests {
    use oomph_explain::snapshot::HistoryRange;
    use oomph_trace::PoolId;

    use super::*;

    fn range(address: u64, size: u64) -> HistoryRange {
        let pool = PoolId::DEFAULT;
        HistoryRange { address, size, stream: 0, large: true, pool, expandable: false, from: 0, to: u32::MAX }
    }

    #[test]
    fn empty_parts_of_the_address_space_take_no_room() {
        let ranges =
            vec![range(1 << 40, 100), range(1 << 20, 50), range((1 << 40) + 50, 100), range(u64::MAX - 5, 100)];
        let space = Space::of(&History { ranges, ..History::default() });
        let islands: Vec<(u64, u64)> = space.islands.iter().map(|island| (island.offset, island.size)).collect();
        assert_eq!(islands, [(0, 50), (50, 150), (200, 5)]);
        assert_eq!(space.offset((1 << 40) + 10), 60);
        assert_eq!(space.offset(3), 0);
    }
}
