//! The actions and pools that an event can name.

/// A private pool's name, as PyTorch counts: (0, 0) is the default pool; capture pools have the first number 0,
/// pools made by the user (`torch.cuda.MemPool`) the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub u64, pub u64);

impl PoolId {
    /// The pool of everything that is not routed elsewhere.
    pub const DEFAULT: PoolId = PoolId(0, 0);
}

/// What an event says. Names as in PyTorch's snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Action {
    /// A block was handed to the program.
    Alloc,
    /// The program gave a block back; another stream may still use it.
    FreeRequested,
    /// The block can be reused.
    FreeCompleted,
    /// A segment was taken from the driver.
    SegmentAlloc,
    /// A segment was given back to the driver.
    SegmentFree,
    /// Pages were mapped into an expandable segment.
    SegmentMap,
    /// Pages of an expandable segment were given back.
    SegmentUnmap,
    /// An allocation failed for good.
    Oom,
    /// A snapshot was taken; the size is the active memory at that moment.
    Snapshot,
    /// The program marked a block (PyTorch 2.15).
    Annotate,
    /// An action of a writer that this version does not know.
    Other,
}
