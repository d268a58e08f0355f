//! Models PyTorch's CUDA caching allocator.
//!
//! The rules are those that PyTorch 2.0 to 2.15 share; [`Version`] holds what differs. What PyTorch itself leaves open (the address of a new segment, the moment at which
//! another stream has finished with a block) the caller decides.

mod block;
mod expandable;
mod give_back;
mod pool;
mod release;
mod state;

use std::collections::HashMap;

use oomph_trace::{Action, PoolId};

use self::block::{Block, NATIVE, Slab, Use};
use self::expandable::Reservation;
use self::pool::{Pool, key};
use crate::addresses::AddressMap;
use crate::driver::{Card, Driver};
use crate::settings::Settings;
use crate::size::{MIN_BLOCK, SMALL_SIZE, TOO_LARGE};
use crate::statistics::Statistics;
use crate::version::{BlockOrder, Version};

pub use self::block::BlockId;
pub use self::pool::PoolOptions;
pub use self::state::{BlockState, SegmentState, State};

/// An allocation that failed for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oom {
    /// Bytes that the program asked for.
    pub requested: u64,
    /// The block that would have served it, in bytes: the `size` of PyTorch's `oom` event.
    pub rounded: u64,
    /// What was asked of the driver, in bytes: the "Tried to allocate" of PyTorch's message.
    pub segment: u64,
    /// Bytes that the driver still had.
    pub driver_free: u64,
    /// Bytes reserved at that moment, after the cache was given back.
    pub reserved: u64,
    /// Bytes in blocks that the program held.
    pub allocated: u64,
    /// Bytes in free blocks of private pools, which are kept from everyone else.
    pub private_free: u64,
    /// A block that fits is free all the same: PyTorch does not look again after it has waited for other streams, so
    /// that the same request would succeed if it were made once more.
    pub fits_on_retry: bool,
    /// `throw_on_cudamalloc_oom` refused it before the driver was asked.
    pub rejected: bool,
}

/// An event as PyTorch would record it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emitted {
    /// What happened.
    pub action: Action,
    /// Where; the driver's free bytes for [`Action::Oom`].
    pub address: u64,
    /// Bytes, with the meaning of [`oomph_trace::Event::size`].
    pub size: u64,
    /// The stream.
    pub stream: u64,
    /// The pool.
    pub pool: PoolId,
}

/// The most streams, and the most pools, that are distinguished. PyTorch makes at most 32 streams of a priority; only a
/// malformed file has more than this.
const MOST: usize = 4096;

/// PyTorch's caching allocator for one card.
#[derive(Clone, Debug)]
pub struct Native<D: Driver = Card> {
    settings: Settings,
    version: Version,
    total: u64,
    /// `set_per_process_memory_fraction` in bytes.
    allowed: Option<u64>,
    driver: D,
    blocks: Slab,
    /// The small and the large half of each pool, the default pool first.
    pools: Vec<Pool>,
    options: Vec<PoolOptions>,
    streams: Vec<u64>,
    stream_indices: AddressMap<u16>,
    pool_indices: HashMap<PoolId, u16>,
    reservations: Vec<Reservation>,
    /// Blocks that wait for other streams, in the order in which they were given back, and some that did.
    pending: Vec<BlockId>,
    capturing: bool,
    segments_taken: u32,
    statistics: Statistics,
    log: Option<Vec<Emitted>>,
}

impl<D: Driver> Native<D> {
    /// An allocator that holds nothing yet, on a card of `total` bytes (as CUDA reports it: what a memory fraction is a
    /// fraction of).
    pub fn new(settings: Settings, version: Version, total: u64, driver: D) -> Self {
        let fraction = settings.per_process_memory_fraction;
        let allowed = (fraction < 1.0).then(|| (fraction * total as f64).round() as u64);
        Self {
            settings,
            version,
            total,
            allowed,
            driver,
            blocks: Slab::default(),
            pools: vec![Pool::new(PoolId::DEFAULT, true), Pool::new(PoolId::DEFAULT, false)],
            options: vec![PoolOptions::default()],
            streams: Vec::new(),
            stream_indices: AddressMap::default(),
            pool_indices: HashMap::new(),
            reservations: Vec::new(),
            pending: Vec::new(),
            capturing: false,
            segments_taken: 0,
            statistics: Statistics::default(),
            log: None,
        }
    }

    /// Keeps a record of events from now on, for [`take_events`](Self::take_events).
    pub fn record_events(&mut self) {
        self.log.get_or_insert_default();
    }

    /// The events since the last call.
    pub fn take_events(&mut self) -> Vec<Emitted> {
        self.log.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The driver, for a caller that supplies addresses.
    pub fn driver_mut(&mut self) -> &mut D {
        &mut self.driver
    }

    /// The driver.
    pub fn driver(&self) -> &D {
        &self.driver
    }

    /// The settings that it runs with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The counters.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Says what kind of pool `pool` is.
    pub fn set_pool(&mut self, pool: PoolId, options: PoolOptions) {
        let index = self.pool_index(pool);
        self.options[index as usize / 2] = options;
    }

    /// While a CUDA graph is captured, nothing is given back to the driver and no other stream is waited for.
    pub fn set_capturing(&mut self, capturing: bool) {
        self.capturing = capturing;
    }

    /// Where a block lies.
    pub fn address(&self, id: BlockId) -> Option<u64> {
        self.blocks.get(id).map(|block| block.address)
    }

    /// A block's size in bytes, rounding and slack included.
    pub fn size(&self, id: BlockId) -> Option<u64> {
        self.blocks.get(id).map(|block| block.size)
    }

    /// Allocates `bytes` for a stream from a pool. 0 bytes take a block of 512, which PyTorch itself never asks for.
    ///
    /// # Errors
    /// [`Oom`] when neither the cache nor the driver has the memory. The cache has been given back by then, and the
    /// allocator can be used on.
    pub fn malloc(&mut self, bytes: u64, stream: u64, pool: PoolId) -> Result<BlockId, Oom> {
        let stream = self.stream_index(stream);
        let pool = self.pool_index(pool);
        self.malloc_at(bytes, stream, pool)
    }

    /// [`malloc`](Self::malloc) with the indices of [`stream_index`](Self::stream_index) and
    /// [`pool_index`](Self::pool_index).
    #[inline]
    pub(crate) fn malloc_at(&mut self, bytes: u64, stream: u16, small_pool: u16) -> Result<BlockId, Oom> {
        let request = self.request(bytes, stream, small_pool);
        match self.take_free(&request) {
            Some(id) => Ok(self.hand_out(id, &request)),
            None => self.malloc_new(request),
        }
    }

    #[inline]
    fn request(&self, bytes: u64, stream: u16, small_pool: u16) -> Request {
        let size = self.settings.round(bytes);
        let private = small_pool > 0;
        Request {
            bytes,
            size,
            segment: self.settings.segment(size),
            stream,
            pool: small_pool + u16::from(size > SMALL_SIZE),
            expandable: self.settings.expandable_segments && !self.options[small_pool as usize / 2].own_allocator,
            grows: !private || self.version.expands_private_pools(),
        }
    }

    /// Where the free block lies that [`malloc`](Self::malloc) would take, if there is one.
    pub fn find(&mut self, bytes: u64, stream: u64, pool: PoolId) -> Option<u64> {
        let stream = self.stream_index(stream);
        let pool = self.pool_index(pool);
        self.find_free(&self.request(bytes, stream, pool)).map(|id| self.blocks.at(id).address)
    }

    /// Allocates without looking for a free block that is large enough.
    pub(crate) fn malloc_growing(&mut self, bytes: u64, stream: u16, small_pool: u16) -> Option<BlockId> {
        let request = self.request(bytes, stream, small_pool);
        let id = self.take_new(&request)?;
        Some(self.hand_out(id, &request))
    }

    /// What is tried, in this order, when no free block fits.
    #[cold]
    fn malloc_new(&mut self, mut request: Request) -> Result<BlockId, Oom> {
        if request.bytes >= TOO_LARGE {
            return Err(self.fail(&request, false));
        }
        if self.collects_garbage() {
            self.collect_garbage();
        }
        if self.rejects(&request) {
            return Err(self.fail(&request, true));
        }
        let mut found = self.take_new(&request);
        if found.is_none()
            && request.pool < 2
            && let Some((pool, id)) = self.take_from_overflow(&request)
        {
            request.pool = pool;
            found = Some(id);
        }
        if found.is_none() && !self.capturing {
            if self.release_oversized(&request) {
                found = self.take_new(&request);
            }
            if found.is_none() {
                self.empty_cache();
                self.statistics.retries += 1;
                found = self.take_new(&request);
            }
        }
        match found {
            Some(id) => Ok(self.hand_out(id, &request)),
            None => Err(self.fail(&request, false)),
        }
    }

    /// `throw_on_cudamalloc_oom` counts what is reserved, not what the driver has.
    fn rejects(&self, request: &Request) -> bool {
        let limit = (self.settings.per_process_memory_fraction * self.total as f64) as u64;
        self.settings.throw_on_cudamalloc_oom
            && self.statistics.reserved.current.saturating_add(request.segment) > limit
            && !self.exceeds_fraction(request.segment)
    }

    fn exceeds_fraction(&self, segment: u64) -> bool {
        self.allowed.is_some_and(|allowed| self.statistics.reserved.current.saturating_add(segment) > allowed)
    }

    fn fail(&mut self, request: &Request, rejected: bool) -> Oom {
        let driver_free = self.driver.free_bytes();
        if !rejected {
            self.statistics.ooms += 1;
            self.statistics.look_for_peak();
            self.emit(Action::Oom, driver_free, request.size, request.stream, request.pool);
        }
        Oom {
            requested: request.bytes,
            rounded: request.size,
            segment: request.segment,
            driver_free,
            reserved: self.statistics.reserved.current,
            allocated: self.statistics.allocated.current,
            private_free: self.pools.iter().skip(2).map(Pool::free_bytes).fold(0, u64::saturating_add),
            fits_on_retry: self.find_free(request).is_some(),
            rejected,
        }
    }

    /// The best free block, out of its pool.
    #[inline]
    fn take_free(&mut self, request: &Request) -> Option<BlockId> {
        if self.collects_garbage() {
            self.pools[request.pool as usize].searches += 1;
        }
        let id = self.find_free(request)?;
        let pool = &mut self.pools[request.pool as usize];
        pool.remove(id, self.blocks.at(id));
        Some(id)
    }

    #[inline]
    fn find_free(&self, request: &Request) -> Option<BlockId> {
        let shelf = self.pools[request.pool as usize].shelf(request.stream)?;
        let mut candidates = shelf.free.range((request.size, 0, 0, BlockId(0))..).map(|key| key.3);
        let mut id = candidates.next()?;
        if self.blocks.at(id).is_expandable() {
            if request.expandable {
                // The block at the growing end counts as large as it can grow, so that it is taken last.
                let mut room = self.room(id);
                for next in candidates {
                    let next_room = self.room(next);
                    if !self.blocks.at(id).is_expandable() || next_room >= room {
                        break;
                    }
                    (id, room) = (next, next_room);
                }
            } else {
                id = candidates.find(|&next| !self.blocks.at(next).is_expandable())?;
            }
        }
        let (size, limit) = (self.blocks.at(id).size, self.settings.max_split_size);
        let refused = if request.size < limit {
            size >= limit
        } else {
            size >= request.size.saturating_add(self.settings.max_non_split_rounding)
        };
        (!refused).then_some(id)
    }

    /// The size that a block could grow to.
    fn room(&self, id: BlockId) -> u64 {
        let block = self.blocks.at(id);
        let next = block.next.some().map(|next| self.blocks.at(next)).filter(|next| !next.is_mapped());
        block.size.saturating_add(next.map_or(0, |next| next.size))
    }

    /// A new segment, or the growth of an expandable one: a block that is in no pool.
    fn take_new(&mut self, request: &Request) -> Option<BlockId> {
        if self.exceeds_fraction(request.segment) {
            return None;
        }
        if request.expandable && request.grows {
            return self.grow(request);
        }
        let address = self.driver.allocate(request.segment)?;
        address.checked_add(request.segment)?;
        let order = self.next_order();
        let id = self.blocks.insert(Block {
            address,
            size: request.segment,
            requested: 0,
            searches: 0,
            previous: BlockId::NONE,
            next: BlockId::NONE,
            order,
            reservation: NATIVE,
            stream: request.stream,
            pool: request.pool,
            state: Use::Free,
            used_elsewhere: false,
        });
        self.statistics.reserve(request.segment);
        self.statistics.segments.add(1);
        self.emit(Action::SegmentAlloc, address, request.segment, request.stream, request.pool);
        Some(id)
    }

    /// The running number of a new segment, where it decides.
    fn next_order(&mut self) -> u32 {
        match self.version.block_order() {
            BlockOrder::Address => 0,
            BlockOrder::SegmentAge => {
                self.segments_taken = self.segments_taken.saturating_add(1);
                self.segments_taken
            }
        }
    }

    /// A free block of a pool that was opened to others for this case.
    fn take_from_overflow(&mut self, request: &Request) -> Option<(u16, BlockId)> {
        for index in 1..self.options.len() {
            if !self.options[index].use_on_oom {
                continue;
            }
            let pool = index as u16 * 2 + request.pool;
            let request = Request { pool, expandable: false, ..*request };
            if let Some(id) = self.take_free(&request) {
                return Some((pool, id));
            }
        }
        None
    }

    /// Splits a block that is in no pool if it is worth it, and hands its lower part out.
    #[inline]
    fn hand_out(&mut self, id: BlockId, request: &Request) -> BlockId {
        let whole = *self.blocks.at(id);
        let rest = whole.size - request.size;
        let pool = &mut self.pools[request.pool as usize];
        let split = !self.options[request.pool as usize / 2].no_split
            && if pool.small || request.expandable {
                rest >= MIN_BLOCK
            } else {
                request.size < self.settings.max_split_size && rest > SMALL_SIZE
            };
        if split {
            let mut remainder = Block {
                address: whole.address + request.size,
                size: rest,
                requested: 0,
                previous: id,
                state: Use::Free,
                ..whole
            };
            remainder.searches = pool.searches;
            let rest_id = self.blocks.insert(remainder);
            pool.shelf_mut(whole.stream).free.insert(key(rest_id, &remainder));
            if let Some(next) = whole.next.some() {
                self.blocks.at_mut(next).previous = rest_id;
            }
            let block = self.blocks.at_mut(id);
            block.size = request.size;
            block.next = rest_id;
        }
        let block = self.blocks.at_mut(id);
        block.state = Use::Allocated;
        block.requested = request.bytes;
        let (address, size) = (block.address, block.size);
        self.statistics.allocate(size, request.bytes);
        self.emit(Action::Alloc, address, request.bytes, request.stream, request.pool);
        id
    }

    /// The index of a stream, which is kept if it is new. After [`MOST`] different ones the rest share the last.
    pub(crate) fn stream_index(&mut self, stream: u64) -> u16 {
        if let Some(&index) = self.stream_indices.get(&stream) {
            return index;
        }
        if self.streams.len() < MOST {
            self.streams.push(stream);
        }
        let index = (self.streams.len() - 1) as u16;
        self.stream_indices.insert(stream, index);
        index
    }

    /// The index of a pool's small half; the large half follows it. After [`MOST`] different pools the rest share the
    /// last.
    pub(crate) fn pool_index(&mut self, pool: PoolId) -> u16 {
        if pool == PoolId::DEFAULT {
            return 0;
        }
        if let Some(&index) = self.pool_indices.get(&pool) {
            return index;
        }
        if self.options.len() < MOST {
            self.pools.push(Pool::new(pool, true));
            self.pools.push(Pool::new(pool, false));
            self.options.push(PoolOptions::default());
        }
        let index = (self.options.len() - 1) as u16 * 2;
        self.pool_indices.insert(pool, index);
        index
    }

    #[inline]
    fn emit(&mut self, action: Action, address: u64, size: u64, stream: u16, pool: u16) {
        if let Some(log) = &mut self.log {
            let (stream, pool) = (self.streams[stream as usize], self.pools[pool as usize].id);
            log.push(Emitted { action, address, size, stream, pool });
        }
    }
}

/// One allocation on its way through the allocator.
#[derive(Clone, Copy, Debug)]
struct Request {
    bytes: u64,
    /// The block, rounded.
    size: u64,
    /// What a new segment takes.
    segment: u64,
    stream: u16,
    pool: u16,
    /// Whether expandable segments are on for it.
    expandable: bool,
    /// Whether new memory for it comes from an expandable segment, where they are on.
    grows: bool,
}
