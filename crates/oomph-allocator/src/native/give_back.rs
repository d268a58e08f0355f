//! Takes back blocks from the program: pending where another stream uses them, then free and joined with their
//! neighbours.

use oomph_trace::Action;

use super::Native;
use super::block::{Block, BlockId, Use};
use crate::driver::Driver;

impl<D: Driver> Native<D> {
    /// `Tensor.record_stream`: another stream uses the block, so that [`free`](Self::free) will leave it pending.
    pub fn record_stream(&mut self, id: BlockId, stream: u64) {
        let stream = self.stream_index(stream);
        if self.blocks.get(id).is_some_and(|block| block.stream != stream && block.state == Use::Allocated) {
            self.blocks.at_mut(id).used_elsewhere = true;
        }
    }

    /// Gives a block back. It is free at once, or pending where another stream uses it. False, and nothing done, if the
    /// program does not hold such a block.
    #[inline]
    pub fn free(&mut self, id: BlockId) -> bool {
        if !self.request_free(id) {
            return false;
        }
        if self.blocks.at(id).used_elsewhere {
            self.pending.push(id);
        } else {
            self.make_free(id);
        }
        true
    }

    /// Gives a block back that stays pending until [`complete`](Self::complete), whoever uses it.
    pub fn free_later(&mut self, id: BlockId) -> bool {
        let requested = self.request_free(id);
        if requested {
            self.pending.push(id);
        }
        requested
    }

    #[inline]
    fn request_free(&mut self, id: BlockId) -> bool {
        let Some(block) = self.blocks.get(id).copied().filter(|block| block.state == Use::Allocated) else {
            return false;
        };
        self.blocks.at_mut(id).state = Use::Pending;
        self.statistics.allocated.subtract(block.size);
        self.emit(Action::FreeRequested, block.address, block.requested, block.stream, block.pool);
        true
    }

    /// The other streams have finished with a pending block: it is free. False if it is not pending.
    pub fn complete(&mut self, id: BlockId) -> bool {
        let pending = self.blocks.get(id).is_some_and(|block| block.state == Use::Pending);
        if pending {
            self.make_free(id);
        }
        pending
    }

    /// All other streams have finished with all pending blocks, as after `torch.cuda.synchronize()` and the next
    /// allocation.
    pub fn complete_all(&mut self) {
        for id in std::mem::take(&mut self.pending) {
            self.complete(id);
        }
    }

    /// Puts a block that nobody uses into its pool, together with the adjacent free blocks.
    #[inline]
    pub(super) fn make_free(&mut self, id: BlockId) {
        let block = *self.blocks.at(id);
        self.emit(Action::FreeCompleted, block.address, block.requested, block.stream, block.pool);
        self.statistics.active.subtract(block.size);
        self.statistics.requested.subtract(block.requested);
        let block = self.blocks.at_mut(id);
        block.state = Use::Free;
        block.used_elsewhere = false;
        self.merge(id);
        let block = self.blocks.at_mut(id);
        self.pools[block.pool as usize].insert(id, block);
    }

    /// Joins a free or unmapped block, which is in no pool, with neighbours of its own kind. The block keeps its id.
    #[inline]
    pub(super) fn merge(&mut self, id: BlockId) {
        let block = *self.blocks.at(id);
        if let Some(previous) = block.previous.some()
            && self.blocks.at(previous).state == block.state
        {
            let merged = *self.blocks.at(previous);
            self.forget(previous, &merged);
            let block = self.blocks.at_mut(id);
            block.address = merged.address;
            block.size += merged.size;
            block.previous = merged.previous;
            if let Some(before) = merged.previous.some() {
                self.blocks.at_mut(before).next = id;
            }
        }
        if let Some(next) = block.next.some()
            && self.blocks.at(next).state == block.state
        {
            let merged = *self.blocks.at(next);
            self.forget(next, &merged);
            let block = self.blocks.at_mut(id);
            block.size += merged.size;
            block.next = merged.next;
            if let Some(after) = merged.next.some() {
                self.blocks.at_mut(after).previous = id;
            }
        }
    }

    /// Removes a free or unmapped block from its pool and from the slab.
    #[inline]
    pub(super) fn forget(&mut self, id: BlockId, block: &Block) {
        let pool = &mut self.pools[block.pool as usize];
        if block.is_mapped() {
            pool.remove(id, block);
        } else {
            pool.shelf_mut(block.stream).unmapped.remove(&(block.address, id));
        }
        self.blocks.remove(id);
    }
}
