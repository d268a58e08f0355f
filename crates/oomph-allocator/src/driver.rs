//! The CUDA driver, as far as an allocator sees it: it provides segments.

use std::collections::{BTreeMap, BTreeSet};

/// What an allocator asks of the driver. Sizes and addresses are bytes.
///
/// Which address a new segment gets is the driver's business and not a rule of the allocator, so that the caller
/// supplies it: [`Card`] hands out addresses of its own, and a check of a recorded trace those of the trace.
pub trait Driver {
    /// `cudaMalloc`: the address of new memory, or `None` when the card is full.
    fn allocate(&mut self, bytes: u64) -> Option<u64>;
    /// `cudaFree` of what [`allocate`](Self::allocate) gave.
    fn free(&mut self, address: u64, bytes: u64);
    /// `cuMemAddressReserve`: addresses without memory; `u64::MAX` when there are none left.
    fn reserve(&mut self, bytes: u64) -> u64;
    /// `cuMemAddressFree`.
    fn unreserve(&mut self, address: u64, bytes: u64);
    /// `cuMemCreate` and `cuMemMap` of all these pages; false, and nothing done, when the card is full.
    fn map(&mut self, address: u64, bytes: u64) -> bool;
    /// `cuMemUnmap` and `cuMemRelease`.
    fn unmap(&mut self, address: u64, bytes: u64);
    /// `cudaMemGetInfo`: bytes that are free.
    fn free_bytes(&self) -> u64;
}

/// The driver's granularity of device memory, in bytes.
const GRANULE: u64 = 2 << 20;
/// Address space that is opened at once, in bytes.
const CHUNK: u64 = 64 << 30;
/// Where the addresses begin. Any value does; this one looks like an address.
const BASE: u64 = 0x7000_0000_0000;

/// A card of a given size that nobody else uses.
///
/// It hands out the lowest of the smallest free ranges that fit, as the virtual GPU does, so that a replay orders blocks
/// of equal size as a dry run does. A [scattered](Card::scattered) one hands out any.
#[derive(Clone, Debug)]
pub struct Card {
    available: u64,
    used: u64,
    by_start: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    next: u64,
    /// Chooses among the free ranges, where the lowest is not always taken.
    scatter: Option<fastrand::Rng>,
}

impl Card {
    /// A card that gives `available` bytes in all. `u64::MAX` is without limit.
    pub fn new(available: u64) -> Self {
        Self { available, used: 0, by_start: BTreeMap::new(), by_size: BTreeSet::new(), next: BASE, scatter: None }
    }

    /// Such a card whose addresses are in no order, because another driver may give them in another one than the virtual
    /// GPU. Equal seeds give equal addresses.
    pub fn scattered(available: u64, seed: u64) -> Self {
        Self { scatter: Some(fastrand::Rng::with_seed(seed)), ..Self::new(available) }
    }

    /// Marks a range as taken that a recorded state begins with.
    pub(crate) fn take_recorded(&mut self, bytes: u64, end: u64) {
        self.used = self.used.saturating_add(bytes);
        // A state with addresses near the end of all addresses is made up; its blocks may then share theirs with others.
        if end < 1 << 62 {
            self.next = self.next.max(end.next_multiple_of(GRANULE));
        }
    }

    /// Takes addresses; `None` when there are no more, which only made-up sizes bring about.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let span = bytes.checked_next_multiple_of(GRANULE)?;
        if let Some(start) = self.take_anywhere(span) {
            return Some(start);
        }
        if let Some(&(length, start)) = self.by_size.range((span, 0)..).next() {
            self.remove(start, length);
            if length > span {
                self.insert(start + span, length - span);
            }
            return Some(start);
        }
        let chunk = span.max(CHUNK);
        let start = self.next;
        self.next = start.checked_add(chunk)?;
        self.give(start, chunk);
        // The new chunk may have joined a free range before it, whose start is then the lower one.
        let whole = self.by_start.range(..=start).next_back().map(|(&start, &length)| (start, length));
        let (start, length) = whole.unwrap_or((start, chunk));
        self.remove(start, length);
        if length > span {
            self.insert(start + span, length - span);
        }
        Some(start)
    }

    /// Takes addresses somewhere in the largest free range, on a scattered card that has one.
    fn take_anywhere(&mut self, span: u64) -> Option<u64> {
        let scatter = self.scatter.as_mut()?;
        let &(length, start) = self.by_size.last().filter(|&&(length, _)| length >= span)?;
        let before = scatter.u64(0..=(length - span) / GRANULE) * GRANULE;
        self.remove(start, length);
        if before > 0 {
            self.insert(start, before);
        }
        if before + span < length {
            self.insert(start + before + span, length - before - span);
        }
        Some(start + before)
    }

    fn give(&mut self, mut start: u64, bytes: u64) {
        let mut length = crate::size::round_up(bytes, GRANULE);
        if let Some((&before, &size)) = self.by_start.range(..start).next_back()
            && before.saturating_add(size) == start
        {
            self.remove(before, size);
            start = before;
            length = length.saturating_add(size);
        }
        if let Some(&size) = self.by_start.get(&start.saturating_add(length)) {
            self.remove(start + length, size);
            length = length.saturating_add(size);
        }
        self.insert(start, length);
    }

    fn insert(&mut self, start: u64, length: u64) {
        self.by_start.insert(start, length);
        self.by_size.insert((length, start));
    }

    fn remove(&mut self, start: u64, length: u64) {
        self.by_start.remove(&start);
        self.by_size.remove(&(length, start));
    }

    fn charge(&mut self, bytes: u64) -> bool {
        let fits = self.used.checked_add(bytes).filter(|&used| used <= self.available);
        self.used = fits.unwrap_or(self.used);
        fits.is_some()
    }
}

impl Driver for Card {
    fn allocate(&mut self, bytes: u64) -> Option<u64> {
        if !self.charge(bytes) {
            return None;
        }
        let address = self.take(bytes);
        if address.is_none() {
            self.used = self.used.saturating_sub(bytes);
        }
        address
    }

    fn free(&mut self, address: u64, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
        self.give(address, bytes);
    }

    fn reserve(&mut self, bytes: u64) -> u64 {
        self.take(bytes).unwrap_or(u64::MAX)
    }

    fn unreserve(&mut self, address: u64, bytes: u64) {
        self.give(address, bytes);
    }

    fn map(&mut self, _address: u64, bytes: u64) -> bool {
        self.charge(bytes)
    }

    fn unmap(&mut self, _address: u64, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
    }

    fn free_bytes(&self) -> u64 {
        self.available.saturating_sub(self.used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_card_refuses_and_a_freed_range_is_used_again() {
        let mut card = Card::new(10 << 20);
        let first = card.allocate(4 << 20).unwrap();
        let second = card.allocate(6 << 20).unwrap();
        assert_eq!(second, first + (4 << 20));
        assert_eq!(card.allocate(2 << 20), None);
        card.free(first, 4 << 20);
        assert_eq!(card.allocate(2 << 20), Some(first));
        assert_eq!(card.free_bytes(), 2 << 20);
    }

    #[test]
    fn a_scattered_card_gives_ranges_apart_in_no_order_and_the_same_for_the_same_seed() {
        let take = |seed: u64| {
            let mut card = Card::scattered(64 << 20, seed);
            let ranges: Vec<u64> = (0..16).map(|_| card.allocate(4 << 20).unwrap()).collect();
            assert_eq!(card.allocate(2 << 20), None);
            let mut sorted = ranges.clone();
            sorted.sort_unstable();
            assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= 4 << 20));
            assert_ne!(sorted, ranges);
            ranges.iter().for_each(|&start| card.free(start, 4 << 20));
            assert_eq!(card.free_bytes(), 64 << 20);
            ranges
        };
        assert_eq!(take(7), take(7));
        assert_ne!(take(7), take(8));
    }

    #[test]
    fn addresses_without_memory_cost_nothing() {
        let mut card = Card::new(4 << 20);
        let range = card.reserve(90 << 30);
        assert!(card.map(range, 4 << 20));
        assert!(!card.map(range + (4 << 20), 2 << 20));
        card.unmap(range, 4 << 20);
        card.unreserve(range, 90 << 30);
        assert_eq!(card.free_bytes(), 4 << 20);
        assert_eq!(card.allocate(2 << 20), Some(range));
    }
}
