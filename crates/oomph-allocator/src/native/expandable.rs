//! Expandable segments: one range of addresses for a stream and a pool, which memory is mapped to in pages.

use oomph_trace::Action;

use super::block::{Block, BlockId, Use};
use super::{Native, Request};
use crate::driver::Driver;
use crate::settings::MIB;
use crate::size::round_up;

/// One range of reserved addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reservation {
    pub base: u64,
    pub size: u64,
    pub page: u64,
}

impl<D: Driver> Native<D> {
    /// A block of at least the request's size at the lowest address where it fits, mapped and out of its pool.
    /// `None` when the card is full; what had been mapped by then stays mapped and free.
    pub(super) fn grow(&mut self, request: &Request) -> Option<BlockId> {
        let mut id = self.find_growable(request)?;
        if !self.blocks.at(id).is_mapped() {
            let size = self.blocks.at(id).size.min(request.size);
            id = self.map(id, size)?;
        }
        while self.blocks.at(id).size < request.size {
            // What follows is unmapped, because `find_growable` found room and free neighbours are always joined.
            let next = self.blocks.at(id).next.some()?;
            let size = self.blocks.at(next).size.min(request.size - self.blocks.at(id).size);
            id = self.map(next, size)?;
        }
        self.pools[request.pool as usize].remove(id, self.blocks.at(id));
        Some(id)
    }

    /// The lowest run of free and unmapped blocks that is large enough, or a new range of addresses.
    fn find_growable(&mut self, request: &Request) -> Option<BlockId> {
        if let Some(shelf) = self.pools[request.pool as usize].shelf(request.stream) {
            for &(_, unmapped) in &shelf.unmapped {
                let before = self.blocks.at(unmapped).previous.some();
                let start = before.filter(|&before| self.blocks.at(before).state == Use::Free).unwrap_or(unmapped);
                if self.has_room(start, request.size) {
                    return Some(start);
                }
            }
        }
        self.reserve(request)
    }

    fn has_room(&self, start: BlockId, size: u64) -> bool {
        let (mut bytes, mut at) = (0u64, Some(start));
        while let Some(id) = at
            && bytes < size
            && matches!(self.blocks.at(id).state, Use::Free | Use::Unmapped)
        {
            bytes = bytes.saturating_add(self.blocks.at(id).size);
            at = self.blocks.at(id).next.some();
        }
        bytes >= size
    }

    /// Reserves addresses: 9/8 of the card's memory, or what the settings say if that is less.
    fn reserve(&mut self, request: &Request) -> Option<BlockId> {
        let page = self.settings.page(self.pools[request.pool as usize].small);
        let full = self.total.saturating_add(self.total / 8);
        let wanted =
            self.settings.expandable_segments_reserve.map_or(full, |reserve| reserve.bytes(self.total).min(full));
        let size = wanted.div_ceil(page).saturating_mul(page).min(1 << 50);
        if size < request.size {
            // PyTorch fails as well: one allocation cannot span two ranges.
            return None;
        }
        let base = self.driver.reserve(size);
        // Only a trace that lies has addresses that near the end.
        base.checked_add(size)?;
        let id = self.add_reservation(Reservation { base, size, page }, request.stream, request.pool);
        let block = self.blocks.at(id);
        let (stream, pool, address) = (block.stream, block.pool, block.address);
        self.pools[pool as usize].shelf_mut(stream).unmapped.insert((address, id));
        Some(id)
    }

    /// Enters a range as one unmapped block that is not yet on its shelf.
    pub(super) fn add_reservation(&mut self, reservation: Reservation, stream: u16, pool: u16) -> BlockId {
        let order = self.next_order();
        let index = self.reservations.len() as u32;
        self.reservations.push(reservation);
        self.blocks.insert(Block {
            address: reservation.base,
            size: reservation.size,
            requested: 0,
            searches: 0,
            previous: BlockId::NONE,
            next: BlockId::NONE,
            order,
            reservation: index,
            stream,
            pool,
            state: Use::Unmapped,
            used_elsewhere: false,
        })
    }

    /// Maps at least `size` bytes, in whole pages, at the start of an unmapped block, and joins them with the free
    /// memory adjacent to them. The free block that results is in its pool.
    fn map(&mut self, id: BlockId, size: u64) -> Option<BlockId> {
        let block = *self.blocks.at(id);
        let reservation = self.reservations[block.reservation as usize];
        let end = round_up_from(reservation.base, block.address.saturating_add(size), reservation.page);
        let mapped = end.saturating_sub(block.address).min(block.size);
        if !self.driver.map(block.address, mapped) {
            return None;
        }
        self.pools[block.pool as usize].shelf_mut(block.stream).unmapped.remove(&(block.address, id));
        if mapped < block.size {
            let rest = Block { address: block.address + mapped, size: block.size - mapped, previous: id, ..block };
            let rest_id = self.blocks.insert(rest);
            self.pools[block.pool as usize].shelf_mut(block.stream).unmapped.insert((rest.address, rest_id));
            if let Some(next) = block.next.some() {
                self.blocks.at_mut(next).previous = rest_id;
            }
            self.blocks.at_mut(id).next = rest_id;
        }
        let grown = self.blocks.at_mut(id);
        grown.size = mapped;
        grown.state = Use::Free;
        self.merge(id);
        let grown = self.blocks.at_mut(id);
        self.pools[grown.pool as usize].insert(id, grown);
        self.statistics.reserve(mapped);
        self.emit(Action::SegmentMap, block.address, mapped, block.stream, block.pool);
        Some(id)
    }

    /// The whole pages that a block of an expandable segment covers, as address and size; `None` if there are none.
    pub(super) fn whole_pages(&self, id: BlockId) -> Option<(u64, u64)> {
        let block = self.blocks.at(id);
        let Reservation { base, page, .. } = self.reservations[block.reservation as usize];
        let start = round_up_from(base, block.address, page);
        let end = base + (block.end() - base) / page * page;
        (start < end).then(|| (start, end - start))
    }

    /// Gives the whole pages of a free block back to the driver, and its range of addresses if nothing else is left in
    /// it.
    pub(super) fn unmap(&mut self, id: BlockId) {
        let block = *self.blocks.at(id);
        let Reservation { base, size: reserved, .. } = self.reservations[block.reservation as usize];
        let Some((start, size)) = self.whole_pages(id) else { return };
        let end = start + size;
        self.pools[block.pool as usize].remove(id, &block);
        if block.address < start {
            let before = Block { size: start - block.address, next: id, ..block };
            let before_id = self.blocks.insert(before);
            if let Some(previous) = block.previous.some() {
                self.blocks.at_mut(previous).next = before_id;
            }
            self.blocks.at_mut(id).previous = before_id;
            let before = self.blocks.at_mut(before_id);
            self.pools[block.pool as usize].insert(before_id, before);
        }
        if end < block.end() {
            let after = Block { address: end, size: block.end() - end, previous: id, ..block };
            let after_id = self.blocks.insert(after);
            if let Some(next) = block.next.some() {
                self.blocks.at_mut(next).previous = after_id;
            }
            self.blocks.at_mut(id).next = after_id;
            let after = self.blocks.at_mut(after_id);
            self.pools[block.pool as usize].insert(after_id, after);
        }
        let unmapped = self.blocks.at_mut(id);
        unmapped.address = start;
        unmapped.size = end - start;
        unmapped.state = Use::Unmapped;
        self.merge(id);
        self.driver.unmap(start, end - start);
        self.statistics.release(end - start);
        self.emit(Action::SegmentUnmap, start, end - start, block.stream, block.pool);
        let unmapped = *self.blocks.at(id);
        if unmapped.is_split() {
            self.pools[block.pool as usize].shelf_mut(block.stream).unmapped.insert((unmapped.address, id));
        } else {
            self.driver.unreserve(base, reserved);
            self.blocks.remove(id);
        }
    }
}

/// The next multiple of `page`, counted from `base`.
fn round_up_from(base: u64, address: u64, page: u64) -> u64 {
    // Any page of the settings is a multiple of 1 MiB but need not be a power of two.
    debug_assert!(page.is_multiple_of(MIB));
    let offset = address.saturating_sub(base);
    if page.is_power_of_two() {
        return base.saturating_add(round_up(offset, page));
    }
    base.saturating_add(offset.div_ceil(page).saturating_mul(page))
}
