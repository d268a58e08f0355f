//! Blocks, in a slab: a block's id stays the same from its allocation to its release.

/// Names a block of one allocator. It is valid from the allocation to the moment the block is free again; then the
/// number is used for another block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub(crate) u32);

impl BlockId {
    /// No block: the end of a segment.
    pub(super) const NONE: BlockId = BlockId(u32::MAX);

    pub(super) fn some(self) -> Option<BlockId> {
        (self != BlockId::NONE).then_some(self)
    }
}

/// What a block is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// The slab's entry is vacant.
    Vacant,
    /// In a pool, to be handed out.
    Free,
    /// The program holds it.
    Allocated,
    /// The program gave it back, but another stream may still use it.
    Pending,
    /// Addresses of an expandable segment without memory.
    Unmapped,
}

/// One block. Neighbours in a segment are linked by `previous` and `next`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub address: u64,
    pub size: u64,
    pub requested: u64,
    /// The pool's searches when the block became free; its age is what they have grown by since.
    pub searches: u64,
    pub previous: BlockId,
    pub next: BlockId,
    /// When its segment was taken, as a running number; 0 where the order of addresses decides instead.
    pub order: u32,
    /// Index of its expandable segment, or `NATIVE`.
    pub reservation: u32,
    pub stream: u16,
    pub pool: u16,
    pub state: Use,
    /// `record_stream` named another stream.
    pub used_elsewhere: bool,
}

/// The `reservation` of a block of a native segment.
pub(super) const NATIVE: u32 = u32::MAX;

impl Block {
    pub fn is_split(&self) -> bool {
        self.previous != BlockId::NONE || self.next != BlockId::NONE
    }

    pub fn is_expandable(&self) -> bool {
        self.reservation != NATIVE
    }

    pub fn is_mapped(&self) -> bool {
        self.state != Use::Unmapped
    }

    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.size)
    }
}

/// All blocks of an allocator.
#[derive(Clone, Debug, Default)]
pub(super) struct Slab {
    blocks: Vec<Block>,
    vacant: Vec<u32>,
}

impl Slab {
    pub fn insert(&mut self, block: Block) -> BlockId {
        match self.vacant.pop() {
            Some(index) => {
                self.blocks[index as usize] = block;
                BlockId(index)
            }
            None => {
                // A block is at least 512 bytes of a 64-bit address space, but no trace has 2^32 of them alive.
                let index = u32::try_from(self.blocks.len()).unwrap_or(u32::MAX - 1);
                self.blocks.push(block);
                BlockId(index)
            }
        }
    }

    pub fn remove(&mut self, id: BlockId) {
        self.blocks[id.0 as usize].state = Use::Vacant;
        self.vacant.push(id.0);
    }

    /// The block of an id that is known to be valid: every id in a pool, a link or a reservation is.
    #[inline]
    pub fn at(&self, id: BlockId) -> &Block {
        &self.blocks[id.0 as usize]
    }

    #[inline]
    pub fn at_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id.0 as usize]
    }

    /// The block of an id that came from outside.
    pub fn get(&self, id: BlockId) -> Option<&Block> {
        self.blocks.get(id.0 as usize).filter(|block| block.state != Use::Vacant)
    }

    pub fn iter(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        (0u32..).map(BlockId).zip(&self.blocks).filter(|(_, block)| block.state != Use::Vacant)
    }
}
