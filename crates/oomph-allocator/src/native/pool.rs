//! Free blocks, sorted as PyTorch searches them.

use std::collections::BTreeSet;

use oomph_trace::PoolId;

use super::block::{Block, BlockId};

/// How free blocks of one stream are ordered: best fit first, then the older segment, then the lower address.
pub(super) type Key = (u64, u32, u64, BlockId);

/// The key of a block.
#[inline]
pub(super) fn key(id: BlockId, block: &Block) -> Key {
    (block.size, block.order, block.address, id)
}

/// Free blocks of one stream in one pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Shelf {
    pub stream: u16,
    pub free: BTreeSet<Key>,
    /// Addresses of expandable segments without memory, lowest first.
    pub unmapped: BTreeSet<(u64, BlockId)>,
}

/// The small or the large half of the default pool or of a private one.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub id: PoolId,
    pub small: bool,
    /// One for each stream that has had blocks here.
    pub shelves: Vec<Shelf>,
    /// The shelf of each stream, plus one; 0 is none.
    by_stream: Vec<u16>,
    /// How often a block was looked for. Only counted while garbage collection is on.
    pub searches: u64,
}

impl Pool {
    pub fn new(id: PoolId, small: bool) -> Self {
        Self { id, small, shelves: Vec::new(), by_stream: Vec::new(), searches: 0 }
    }

    #[inline]
    pub fn shelf(&self, stream: u16) -> Option<&Shelf> {
        let index = self.by_stream.get(stream as usize)?.checked_sub(1)?;
        self.shelves.get(index as usize)
    }

    #[inline]
    pub fn shelf_mut(&mut self, stream: u16) -> &mut Shelf {
        let at = stream as usize;
        if at >= self.by_stream.len() {
            self.by_stream.resize(at + 1, 0);
        }
        if self.by_stream[at] == 0 {
            self.shelves.push(Shelf { stream, ..Shelf::default() });
            self.by_stream[at] = self.shelves.len() as u16;
        }
        &mut self.shelves[self.by_stream[at] as usize - 1]
    }

    #[inline]
    pub fn insert(&mut self, id: BlockId, block: &mut Block) {
        block.searches = self.searches;
        self.shelf_mut(block.stream).free.insert(key(id, block));
    }

    #[inline]
    pub fn remove(&mut self, id: BlockId, block: &Block) {
        self.shelf_mut(block.stream).free.remove(&key(id, block));
    }

    /// Bytes in free blocks.
    pub fn free_bytes(&self) -> u64 {
        self.shelves.iter().flat_map(|shelf| &shelf.free).map(|key| key.0).fold(0, u64::saturating_add)
    }
}

/// The options that PyTorch was given for a private pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolOptions {
    /// `torch.cuda.MemPool(no_split=True)`: a block always takes its whole segment.
    pub no_split: bool,
    /// `torch.cuda.MemPool(use_on_oom=True)`: its free blocks serve others before an out-of-memory error.
    pub use_on_oom: bool,
    /// It has an allocator of its own, for which expandable segments are off.
    pub own_allocator: bool,
    /// Nothing uses it any more, so that its free segments are given back with the cache.
    pub released: bool,
}
