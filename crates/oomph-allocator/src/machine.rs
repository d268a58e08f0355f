//! The interface of every allocator to a replay, and how much memory it has.

use oomph_trace::PoolId;

use crate::driver::Card;
use crate::native::{BlockId, Native, Oom, PoolOptions, State};
use crate::statistics::Statistics;

/// How much memory there is. Both figures are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The card's memory as CUDA reports it: what a memory fraction is a fraction of.
    pub total: u64,
    /// What the allocator can take of it: the total less contexts, other libraries and other processes.
    pub available: u64,
}

impl Capacity {
    /// A card of `total` bytes of which `other` bytes are used by something else.
    pub fn card(total: u64, other: u64) -> Self {
        Self { total, available: total.saturating_sub(other) }
    }

    /// No limit: what a program would take if it could.
    pub const UNLIMITED: Capacity = Capacity { total: 1 << 50, available: u64::MAX };
}

/// What a replay does with an allocator.
pub(crate) trait Machine {
    fn stream(&mut self, stream: u64) -> u16;
    fn pool(&mut self, pool: PoolId) -> u16;
    fn malloc(&mut self, bytes: u64, stream: u16, pool: u16) -> Result<BlockId, Oom>;
    fn free(&mut self, id: BlockId);
    fn free_later(&mut self, id: BlockId);
    fn complete(&mut self, id: BlockId);
    fn flush(&mut self);
    fn release_pool(&mut self, pool: PoolId);
    fn statistics(&self) -> &Statistics;
    /// Whether it can begin with a recorded state.
    const RESUMES: bool = false;
    /// Begins with a recorded state. Returns the blocks in use and their addresses.
    fn resume(&mut self, _state: &State) -> Vec<(u64, BlockId)> {
        Vec::new()
    }
}

impl Machine for Native<Card> {
    fn stream(&mut self, stream: u64) -> u16 {
        self.stream_index(stream)
    }

    fn pool(&mut self, pool: PoolId) -> u16 {
        self.pool_index(pool)
    }

    #[inline]
    fn malloc(&mut self, bytes: u64, stream: u16, pool: u16) -> Result<BlockId, Oom> {
        self.malloc_at(bytes, stream, pool)
    }

    #[inline]
    fn free(&mut self, id: BlockId) {
        Native::free(self, id);
    }

    fn free_later(&mut self, id: BlockId) {
        Native::free_later(self, id);
    }

    fn complete(&mut self, id: BlockId) {
        Native::complete(self, id);
    }

    fn flush(&mut self) {
        self.empty_cache();
    }

    fn release_pool(&mut self, pool: PoolId) {
        self.set_pool(pool, PoolOptions { released: true, ..PoolOptions::default() });
        self.empty_pool(pool);
    }

    fn statistics(&self) -> &Statistics {
        Native::statistics(self)
    }

    const RESUMES: bool = true;

    fn resume(&mut self, state: &State) -> Vec<(u64, BlockId)> {
        Native::resume(self, state)
    }
}
