//! Gives cached memory back to the driver.

use oomph_trace::{Action, PoolId};

use super::block::BlockId;
use super::{Native, Request};
use crate::driver::Driver;

impl<D: Driver> Native<D> {
    /// `torch.cuda.empty_cache()`: waits for all other streams and gives back every segment that is one free block,
    /// and every free page of expandable segments.
    pub fn empty_cache(&mut self) {
        if !self.capturing {
            self.complete_all();
            self.release_pool(1);
            self.release_pool(0);
        }
        for index in 1..self.options.len() {
            if self.options[index].released {
                self.release_pool(index * 2);
                self.release_pool(index * 2 + 1);
            }
        }
    }

    /// Gives back what is free in a private pool.
    pub(crate) fn empty_pool(&mut self, pool: PoolId) {
        let index = self.pool_index(pool) as usize;
        self.release_pool(index);
        self.release_pool(index + 1);
    }

    fn release_pool(&mut self, pool: usize) {
        let mut shelves: Vec<_> = self.pools[pool].shelves.iter().collect();
        shelves.sort_by_key(|shelf| self.streams[shelf.stream as usize]);
        let free: Vec<BlockId> = shelves.into_iter().flat_map(|shelf| &shelf.free).map(|key| key.3).collect();
        let (expandable, native): (Vec<_>, Vec<_>) =
            free.into_iter().partition(|&id| self.blocks.at(id).is_expandable());
        for id in native {
            if !self.blocks.at(id).is_split() {
                self.release(id);
            }
        }
        for id in expandable {
            self.unmap(id);
        }
    }

    /// Gives back a native segment that is one free block.
    fn release(&mut self, id: BlockId) {
        let block = *self.blocks.at(id);
        self.pools[block.pool as usize].remove(id, &block);
        self.blocks.remove(id);
        self.driver.free(block.address, block.size);
        self.statistics.release(block.size);
        self.statistics.segments.subtract(1);
        self.emit(Action::SegmentFree, block.address, block.size, block.stream, block.pool);
    }

    /// Gives back the native segment at an address, as a trace says. False if it is not one free block.
    pub(crate) fn release_segment(&mut self, address: u64, size: u64) -> bool {
        let found = self.pools.iter().find_map(|pool| {
            pool.shelves.iter().find_map(|shelf| {
                shelf.free.range((size, 0, 0, BlockId(0))..=(size, u32::MAX, u64::MAX, BlockId::NONE)).find_map(|key| {
                    let block = self.blocks.at(key.3);
                    (key.2 == address && !block.is_split() && !block.is_expandable()).then_some(key.3)
                })
            })
        });
        if let Some(id) = found {
            self.release(id);
        }
        found.is_some()
    }

    /// Gives pages of an expandable segment back, as a trace says. False if they are not all the whole pages of one free
    /// block.
    pub(crate) fn unmap_range(&mut self, address: u64, size: u64) -> bool {
        let found = self.pools.iter().find_map(|pool| {
            let mut free = pool.shelves.iter().flat_map(|shelf| &shelf.free).map(|key| key.3);
            free.find(|&id| self.blocks.at(id).is_expandable() && self.whole_pages(id) == Some((address, size)))
        });
        if let Some(id) = found {
            self.unmap(id);
        }
        found.is_some()
    }

    /// PyTorch collects garbage only where a memory fraction is set.
    #[inline]
    pub(super) fn collects_garbage(&self) -> bool {
        self.allowed.is_some() && self.settings.garbage_collection_threshold > 0.0
    }

    /// Gives back unsplit blocks of the default large pool that have been passed over for longer than the mean, until
    /// reserved memory is at the threshold again.
    pub(super) fn collect_garbage(&mut self) {
        let allowed = self.allowed.unwrap_or(u64::MAX);
        let threshold = (self.settings.garbage_collection_threshold * allowed as f64) as u64;
        let reserved = self.statistics.reserved.current;
        if reserved <= threshold {
            return;
        }
        let (target, searches) = (reserved - threshold, self.pools[1].searches);
        let age = |native: &Self, id: BlockId| searches - native.blocks.at(id).searches;
        let mut shelves: Vec<_> = self.pools[1].shelves.iter().collect();
        shelves.sort_by_key(|shelf| self.streams[shelf.stream as usize]);
        let unsplit: Vec<BlockId> = shelves
            .into_iter()
            .flat_map(|shelf| &shelf.free)
            .map(|key| key.3)
            .filter(|&id| !self.blocks.at(id).is_split())
            .collect();
        // Expandable blocks count for the mean but are never given back here.
        let mut total_age: u64 = unsplit.iter().map(|&id| age(self, id)).sum();
        let mut count = unsplit.len() as u64;
        let mut left: Vec<BlockId> = unsplit.into_iter().filter(|&id| !self.blocks.at(id).is_expandable()).collect();
        let mut reclaimed = 0;
        while reclaimed < target && count > 0 {
            let mean = total_age as f64 / count as f64;
            let (old, young): (Vec<_>, Vec<_>) = left.into_iter().partition(|&id| age(self, id) as f64 >= mean);
            if old.is_empty() {
                return;
            }
            for id in old {
                reclaimed += self.blocks.at(id).size;
                total_age -= age(self, id);
                count -= 1;
                self.release(id);
            }
            left = young;
        }
    }

    /// With `max_split_size_mb`: gives back one block that is large enough, or the largest ones until their sum is.
    pub(super) fn release_oversized(&mut self, request: &Request) -> bool {
        let limit = self.settings.max_split_size;
        if limit == u64::MAX {
            return false;
        }
        let wanted = request.size.max(limit);
        let Some(shelf) = self.pools[request.pool as usize].shelf(request.stream) else { return false };
        let fitting = shelf.free.range((wanted, 0, 0, BlockId(0))..).next().map(|key| key.3);
        if let Some(id) = fitting.filter(|&id| !self.blocks.at(id).is_expandable()) {
            // At or above the limit a native block is never split.
            if self.blocks.at(id).is_split() {
                return false;
            }
            self.release(id);
            return true;
        }
        // Where the fitting block is expandable PyTorch goes on from the block before it, downwards.
        let end = fitting.map(|id| super::key(id, self.blocks.at(id)));
        let downwards: Vec<(u64, BlockId)> = match end {
            Some(end) => shelf.free.range(..end).rev().map(|key| (key.0, key.3)).collect(),
            None => shelf.free.iter().rev().map(|key| (key.0, key.3)).collect(),
        };
        let mut released = 0u64;
        for (size, id) in downwards {
            if released >= wanted || size < limit {
                break;
            }
            let block = self.blocks.at(id);
            if !block.is_expandable() && !block.is_split() {
                released += size;
                self.release(id);
            }
        }
        released >= wanted
    }
}
