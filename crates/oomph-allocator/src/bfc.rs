//! The best-fit allocator with coalescing of TensorFlow and XLA (JAX).
//!
//! The rules are those of `BFCAllocator` as of 2026, with the spatial partitioning off: blocks ("chunks") are
//! multiples of 256 bytes; the smallest free one that fits is taken, the lowest of equal ones; it is split where it is
//! at least twice the request or 128 MiB larger; memory is taken from the driver in regions, either all of it at once or
//! in regions that double. Streams and private pools mean nothing to it.

use std::collections::BTreeSet;

use oomph_trace::PoolId;

use crate::driver::{Card, Driver};
use crate::machine::Machine;
use crate::native::{BlockId, Oom};
use crate::settings::MIB;
use crate::size::round_up;
use crate::statistics::Statistics;

/// Every chunk is a multiple of this many bytes.
const ALIGNMENT: u64 = 256;
/// The first region of an allocator that grows, in bytes.
const FIRST_REGION: u64 = 2 * MIB;

/// How the allocator was set up.
#[derive(Clone, Debug, PartialEq)]
pub struct BfcSettings {
    /// The share of the available memory that it may take (`XLA_CLIENT_MEM_FRACTION`,
    /// `per_process_gpu_memory_fraction`).
    pub memory_fraction: f64,
    /// Take memory as it is needed, in regions that double, instead of all at once
    /// (`TF_FORCE_GPU_ALLOW_GROWTH=true`, `XLA_PYTHON_CLIENT_PREALLOCATE=false`).
    pub allow_growth: bool,
    /// Give free regions back before an allocation fails (`TF_ENABLE_GPU_GARBAGE_COLLECTION`).
    pub garbage_collection: bool,
    /// The most by which an unsplit chunk may exceed its request, in bytes.
    pub max_internal_fragmentation: u64,
}

impl BfcSettings {
    /// TensorFlow's defaults.
    pub fn tensorflow() -> Self {
        Self {
            memory_fraction: 1.0,
            allow_growth: false,
            garbage_collection: true,
            max_internal_fragmentation: 128 * MIB,
        }
    }

    /// JAX's defaults: three quarters of the card, at the first operation.
    pub fn jax() -> Self {
        Self { memory_fraction: 0.75, ..Self::tensorflow() }
    }
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Chunk {
    address: u64,
    size: u64,
    requested: u64,
    previous: u32,
    next: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Vacant,
    Free,
    InUse,
    Pending,
}

/// The allocator on one card.
#[derive(Clone, Debug)]
pub struct Bfc<D: Driver = Card> {
    settings: BfcSettings,
    driver: D,
    limit: u64,
    next_region: u64,
    chunks: Vec<Chunk>,
    vacant: Vec<u32>,
    free: BTreeSet<(u64, u64, u32)>,
    statistics: Statistics,
}

impl<D: Driver> Bfc<D> {
    /// An allocator that takes its regions from `driver`, which has `available` bytes for it.
    pub fn new(settings: BfcSettings, available: u64, driver: D) -> Self {
        let fraction = settings.memory_fraction.clamp(0.0, 1.0);
        let limit = if fraction < 1.0 { (available as f64 * fraction) as u64 } else { available };
        let next_region = round_up(if settings.allow_growth { limit.min(FIRST_REGION) } else { limit }, ALIGNMENT);
        Self {
            settings,
            driver,
            limit,
            next_region,
            chunks: Vec::new(),
            vacant: Vec::new(),
            free: BTreeSet::new(),
            statistics: Statistics::default(),
        }
    }

    /// Where its regions come from.
    pub fn driver_mut(&mut self) -> &mut D {
        &mut self.driver
    }

    /// The address of a chunk that is in use.
    pub fn address(&self, id: BlockId) -> Option<u64> {
        self.chunks.get(id.0 as usize).filter(|chunk| chunk.state == State::InUse).map(|chunk| chunk.address)
    }

    /// Its counters, in bytes.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Takes a chunk for `bytes`.
    ///
    /// # Errors
    /// When neither a free chunk nor what it may still take of the card is large enough.
    pub fn malloc(&mut self, bytes: u64) -> Result<BlockId, Oom> {
        let rounded = round_up(bytes.max(1), ALIGNMENT);
        if let Some(id) = self.take_free(rounded, bytes) {
            return Ok(id);
        }
        if (self.extend(rounded) || self.give_back_regions(rounded) && self.extend(rounded))
            && let Some(id) = self.take_free(rounded, bytes)
        {
            return Ok(id);
        }
        self.statistics.ooms += 1;
        Err(Oom {
            requested: bytes,
            rounded,
            segment: rounded,
            driver_free: self.driver.free_bytes(),
            reserved: self.statistics.reserved.current,
            allocated: self.statistics.allocated.current,
            private_free: 0,
            fits_on_retry: false,
            rejected: false,
        })
    }

    /// Gives a chunk back. One that is not in use is left alone.
    pub fn free(&mut self, id: BlockId) {
        self.give_back(id, State::InUse);
    }

    fn insert(&mut self, chunk: Chunk) -> u32 {
        match self.vacant.pop() {
            Some(index) => {
                self.chunks[index as usize] = chunk;
                index
            }
            None => {
                self.chunks.push(chunk);
                (self.chunks.len() - 1) as u32
            }
        }
    }

    fn enter(&mut self, index: u32) {
        let chunk = self.chunks[index as usize];
        self.free.insert((chunk.size, chunk.address, index));
    }

    fn leave(&mut self, index: u32) {
        let chunk = self.chunks[index as usize];
        self.free.remove(&(chunk.size, chunk.address, index));
    }

    fn take_free(&mut self, rounded: u64, requested: u64) -> Option<BlockId> {
        let &(size, address, index) = self.free.range((rounded, 0, 0)..).next()?;
        self.free.remove(&(size, address, index));
        let excess = size - rounded;
        if excess >= rounded || excess >= self.settings.max_internal_fragmentation {
            let chunk = self.chunks[index as usize];
            let rest = Chunk { address: address + rounded, size: excess, previous: index, ..chunk };
            let rest_index = self.insert(rest);
            if let Some(next) = self.chunks.get_mut(chunk.next as usize) {
                next.previous = rest_index;
            }
            let chunk = &mut self.chunks[index as usize];
            chunk.size = rounded;
            chunk.next = rest_index;
            self.enter(rest_index);
        }
        let chunk = &mut self.chunks[index as usize];
        chunk.state = State::InUse;
        chunk.requested = requested;
        self.statistics.allocate(chunk.size, requested);
        Some(BlockId(index))
    }

    /// Takes one more region from the driver, or less than planned where the driver has no more.
    fn extend(&mut self, rounded: u64) -> bool {
        let available = self.limit.saturating_sub(self.statistics.reserved.current) / ALIGNMENT * ALIGNMENT;
        if rounded > available {
            return false;
        }
        let mut doubled = false;
        while self.next_region < rounded {
            self.next_region = self.next_region.saturating_mul(2).max(ALIGNMENT);
            doubled = true;
        }
        let mut bytes = self.next_region.min(available);
        let address = loop {
            if let Some(address) = self.driver.allocate(bytes) {
                break address;
            }
            // In single precision, as BFCAllocator computes it: with several refusals the difference shows.
            let less = round_up((bytes as f32 * 0.9) as u64, ALIGNMENT);
            bytes = less.min(bytes.saturating_sub(ALIGNMENT));
            if bytes < rounded {
                return false;
            }
        };
        if !doubled {
            self.next_region = self.next_region.saturating_mul(2);
        }
        self.statistics.reserve(bytes);
        self.statistics.segments.add(1);
        let region = Chunk { address, size: bytes, requested: 0, previous: NONE, next: NONE, state: State::Free };
        let index = self.insert(region);
        self.enter(index);
        true
    }

    /// Gives back regions that are wholly free, if what is then left would do.
    fn give_back_regions(&mut self, rounded: u64) -> bool {
        if !self.settings.garbage_collection {
            return false;
        }
        let whole: Vec<u32> = self
            .free
            .iter()
            .map(|&(_, _, index)| index)
            .filter(|&index| self.chunks[index as usize].previous == NONE && self.chunks[index as usize].next == NONE)
            .collect();
        let bytes: u64 = whole.iter().map(|&index| self.chunks[index as usize].size).sum();
        let left = self.limit.saturating_sub(self.statistics.reserved.current).saturating_add(bytes);
        if bytes == 0 || rounded > left {
            return false;
        }
        for index in whole {
            self.leave(index);
            let chunk = &mut self.chunks[index as usize];
            chunk.state = State::Vacant;
            let (address, size) = (chunk.address, chunk.size);
            self.vacant.push(index);
            self.driver.free(address, size);
            self.statistics.release(size);
            self.statistics.segments.subtract(1);
        }
        true
    }

    fn give_back(&mut self, id: BlockId, from: State) {
        let Some(chunk) = self.chunks.get(id.0 as usize).copied().filter(|chunk| chunk.state == from) else { return };
        if from == State::InUse {
            self.statistics.allocated.subtract(chunk.size);
        }
        self.statistics.active.subtract(chunk.size);
        self.statistics.requested.subtract(chunk.requested);
        let (mut index, mut merged) = (id.0, Chunk { state: State::Free, requested: 0, ..chunk });
        if let Some(next) = self.chunks.get(merged.next as usize).copied()
            && next.state == State::Free
        {
            self.leave(merged.next);
            self.vacate(merged.next);
            merged.size += next.size;
            merged.next = next.next;
        }
        if let Some(previous) = self.chunks.get(merged.previous as usize).copied()
            && previous.state == State::Free
        {
            self.leave(merged.previous);
            self.vacate(index);
            index = merged.previous;
            merged = Chunk { size: previous.size + merged.size, next: merged.next, ..previous };
        }
        self.chunks[index as usize] = merged;
        if let Some(next) = self.chunks.get_mut(merged.next as usize) {
            next.previous = index;
        }
        self.enter(index);
    }

    fn vacate(&mut self, index: u32) {
        self.chunks[index as usize].state = State::Vacant;
        self.vacant.push(index);
    }
}

impl Machine for Bfc {
    fn stream(&mut self, _stream: u64) -> u16 {
        0
    }

    fn pool(&mut self, _pool: PoolId) -> u16 {
        0
    }

    fn malloc(&mut self, bytes: u64, _stream: u16, _pool: u16) -> Result<BlockId, Oom> {
        Bfc::malloc(self, bytes)
    }

    fn free(&mut self, id: BlockId) {
        Bfc::free(self, id);
    }

    fn free_later(&mut self, id: BlockId) {
        if let Some(chunk) = self.chunks.get_mut(id.0 as usize)
            && chunk.state == State::InUse
        {
            chunk.state = State::Pending;
            let size = chunk.size;
            self.statistics.allocated.subtract(size);
        }
    }

    fn complete(&mut self, id: BlockId) {
        self.give_back(id, State::Pending);
    }

    /// It never gives memory back because it is asked to.
    fn flush(&mut self) {}

    fn release_pool(&mut self, _pool: PoolId) {}

    fn statistics(&self) -> &Statistics {
        Bfc::statistics(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_card(settings: BfcSettings, available: u64) -> Bfc {
        Bfc::new(settings, available, Card::new(available))
    }

    #[test]
    fn regions_double_and_chunks_are_split_and_joined() {
        let mut bfc = on_card(BfcSettings { allow_growth: true, ..BfcSettings::tensorflow() }, 1 << 30);
        let first = bfc.malloc(MIB).unwrap();
        assert_eq!(bfc.statistics().reserved.current, 2 * MIB);
        let second = bfc.malloc(MIB + 1).unwrap();
        assert_eq!(bfc.statistics().reserved.current, 6 * MIB);
        // The second region has 4 MiB: more than twice the request, so that the rest is split off.
        assert_eq!(bfc.statistics().allocated.current, 2 * MIB + 256);
        bfc.free(first);
        bfc.free(second);
        assert_eq!(bfc.free.iter().map(|chunk| chunk.0).collect::<Vec<_>>(), [2 * MIB, 4 * MIB]);
    }

    #[test]
    fn a_full_allocator_collects_its_free_regions() {
        let growing = BfcSettings { allow_growth: true, ..BfcSettings::tensorflow() };
        for (garbage_collection, fits) in [(true, true), (false, false)] {
            let mut bfc = on_card(BfcSettings { garbage_collection, ..growing.clone() }, 10 * MIB);
            let blocks: Vec<_> = [2 * MIB, 3 * MIB].map(|size| bfc.malloc(size).unwrap()).into();
            blocks.into_iter().for_each(|id| bfc.free(id));
            assert_eq!(bfc.malloc(7 * MIB).is_ok(), fits);
        }
    }

    #[test]
    fn jax_takes_three_quarters_at_once() {
        let mut bfc = on_card(BfcSettings::jax(), 16 << 30);
        assert!(bfc.malloc(1).is_ok());
        assert_eq!(bfc.statistics().reserved.current, 12 << 30);
        assert!(bfc.malloc(12 << 30).is_err());
    }
}
