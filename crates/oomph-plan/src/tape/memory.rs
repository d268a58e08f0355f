//! Tracks the live bytes of each owner, now and at the peak.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use oomph_allocator::{BlockId, Card, Native, Settings, Version};
pub use oomph_protocol::TapePhase;
use oomph_trace::PoolId;
use serde::Serialize;

/// What PyTorch's allocator rounds every request up to, in bytes (`kMinBlockSize` of its `CUDACachingAllocator`).
pub const GRAIN: u64 = 512;

/// Whose bytes they are in a plan. It is not `oomph_protocol::Owner`, which is of blocks that were allocated: a plan has the parts of
/// its arithmetic (logits, what is gathered of other cards) and does not distinguish buffers, caches or other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TapeOwner {
    /// Parameters and buffers of the model.
    Weights,
    /// Gradients of parameters.
    Gradients,
    /// What the optimizer keeps between steps.
    OptimizerState,
    /// What the forward pass made and still needs.
    Activations,
    /// Logits, their copies and the loss.
    Logits,
    /// Keys and values of earlier tokens.
    KvCache,
    /// What the loader brought.
    Inputs,
    /// What the backward pass and the optimizer hold for a moment.
    Temporaries,
    /// Workspaces of cuBLAS and cuDNN, and buffers of communication.
    Workspaces,
    /// Parameters of other cards that are on this one for a moment, and buffers of what is sent.
    Gathered,
    /// Reserved by the allocator and not handed out.
    Slack,
    /// The CUDA context and loaded modules.
    Context,
}

impl TapeOwner {
    /// All of them, in the order in which reports name them.
    pub const ALL: [TapeOwner; 12] = [
        TapeOwner::Weights,
        TapeOwner::Gradients,
        TapeOwner::OptimizerState,
        TapeOwner::Activations,
        TapeOwner::Logits,
        TapeOwner::KvCache,
        TapeOwner::Inputs,
        TapeOwner::Temporaries,
        TapeOwner::Workspaces,
        TapeOwner::Gathered,
        TapeOwner::Slack,
        TapeOwner::Context,
    ];

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TapeOwner::Weights => "weights",
            TapeOwner::Gradients => "gradients",
            TapeOwner::OptimizerState => "optimizer-state",
            TapeOwner::Activations => "activations",
            TapeOwner::Logits => "logits",
            TapeOwner::KvCache => "kv-cache",
            TapeOwner::Inputs => "inputs",
            TapeOwner::Temporaries => "temporaries",
            TapeOwner::Workspaces => "workspaces",
            TapeOwner::Gathered => "gathered",
            TapeOwner::Slack => "slack",
            TapeOwner::Context => "context",
        }
    }
}

/// Bytes by owner.
pub type Owners = [u64; TapeOwner::ALL.len()];

struct Book {
    live: u64,
    owners: Owners,
    peak: u64,
    peak_owners: Owners,
    peak_phase: TapePhase,
    phase_peaks: [u64; 4],
    phase: TapePhase,
    allocator: Option<Native>,
}

/// The memory that tensors take theirs from. Clones are the same memory.
#[derive(Clone)]
pub struct Memory(Rc<RefCell<Book>>);

impl Memory {
    /// Memory without a limit. With `reserved` a model of PyTorch's allocator follows every request, which gives what
    /// is reserved and takes some time.
    pub fn new(reserved: bool) -> Self {
        let allocator =
            reserved.then(|| Native::new(Settings::default(), Version::NEWEST, u64::MAX, Card::new(u64::MAX)));
        Self(Rc::new(RefCell::new(Book {
            live: 0,
            owners: Owners::default(),
            peak: 0,
            peak_owners: Owners::default(),
            peak_phase: TapePhase::Load,
            phase_peaks: [0; 4],
            phase: TapePhase::Load,
            allocator,
        })))
    }

    /// Takes bytes, rounded up as the allocator does; they are given back when the storage is dropped.
    pub fn take(&self, bytes: u64, owner: TapeOwner) -> Rc<Storage> {
        self.take_on(bytes, owner, 0)
    }

    /// The same on a stream, whose blocks the allocator keeps apart from those of others.
    pub fn take_on(&self, bytes: u64, owner: TapeOwner, stream: u64) -> Rc<Storage> {
        let bytes = if bytes == 0 { 0 } else { bytes.checked_next_multiple_of(GRAIN).unwrap_or(u64::MAX / 2) };
        let mut book = self.0.borrow_mut();
        let block = match (&mut book.allocator, bytes) {
            (Some(allocator), 1..) => allocator.malloc(bytes, stream, PoolId::DEFAULT).ok(),
            _ => None,
        };
        // A block from the cache may be larger than what was requested, and counts with its full size.
        let size = block.and_then(|block| book.allocator.as_ref()?.size(block));
        let bytes = size.unwrap_or(bytes);
        book.live = book.live.saturating_add(bytes);
        book.owners[owner as usize] = book.owners[owner as usize].saturating_add(bytes);
        let phase = book.phase as usize;
        book.phase_peaks[phase] = book.phase_peaks[phase].max(book.live);
        if book.live > book.peak {
            book.peak = book.live;
            book.peak_owners = book.owners;
            book.peak_phase = book.phase;
        }
        Rc::new(Storage { memory: self.clone(), bytes, owner: Cell::new(owner), block })
    }

    /// Says what happens from now on.
    pub fn enter(&self, phase: TapePhase) {
        let mut book = self.0.borrow_mut();
        book.phase = phase;
        let live = book.live;
        let peak = &mut book.phase_peaks[phase as usize];
        *peak = (*peak).max(live);
    }

    /// Forgets the peaks so far, so that loading is not counted.
    pub fn reset_peaks(&self) {
        let mut book = self.0.borrow_mut();
        (book.peak, book.peak_owners, book.peak_phase) = (book.live, book.owners, book.phase);
        book.phase_peaks = [0; 4];
    }

    /// Whether a model of the allocator follows every request.
    pub fn is_followed(&self) -> bool {
        self.0.borrow().allocator.is_some()
    }

    /// What was gone through up to `earlier` happens once more, in addition to so many bytes of an owner that have come
    /// since. Only true of what is allocated: what is reserved depends on where the new bytes lie.
    pub(crate) fn repeat_alongside(&self, earlier: &Usage, owner: TapeOwner, bytes: u64) {
        let mut book = self.0.borrow_mut();
        for phase in [TapePhase::Forward, TapePhase::Backward] {
            let again = earlier.phase_peaks[phase as usize].saturating_add(bytes);
            let peak = &mut book.phase_peaks[phase as usize];
            *peak = (*peak).max(again);
        }
        let again = earlier.allocated.saturating_add(bytes);
        if again > book.peak {
            book.peak = again;
            book.peak_owners = earlier.owners;
            book.peak_owners[owner as usize] = book.peak_owners[owner as usize].saturating_add(bytes);
            book.peak_phase = earlier.phase;
        }
    }

    /// Gives back to the card what is cached (`torch.cuda.empty_cache`).
    pub fn empty_cache(&self) {
        if let Some(allocator) = &mut self.0.borrow_mut().allocator {
            allocator.empty_cache();
        }
    }

    /// Bytes that are live.
    pub fn live(&self) -> u64 {
        self.0.borrow().live
    }

    /// Bytes by owner that are live.
    pub fn owners(&self) -> Owners {
        self.0.borrow().owners
    }

    /// What the memory went through.
    pub fn usage(&self) -> Usage {
        let book = self.0.borrow();
        let reserved = book.allocator.as_ref().map(|allocator| allocator.statistics().reserved.peak);
        Usage {
            allocated: book.peak,
            reserved,
            owners: book.peak_owners,
            phase: book.peak_phase,
            phase_peaks: book.phase_peaks,
        }
    }
}

/// What a memory went through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The largest number of bytes that were handed out at once.
    pub allocated: u64,
    /// The largest number of bytes that PyTorch's allocator would have taken from the card, where it was followed.
    pub reserved: Option<u64>,
    /// Whose bytes they were when most were handed out.
    pub owners: Owners,
    /// When that was.
    pub phase: TapePhase,
    /// The peak of each phase.
    pub phase_peaks: [u64; 4],
}

/// Bytes that are given back when nothing refers to them any more.
pub struct Storage {
    memory: Memory,
    bytes: u64,
    owner: Cell<TapeOwner>,
    block: Option<BlockId>,
}

impl Storage {
    /// Whose bytes they are.
    pub(super) fn owner(&self) -> TapeOwner {
        self.owner.get()
    }

    /// How many they are.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Says whose bytes they are from now on.
    pub fn belongs_to(&self, owner: TapeOwner) {
        let before = self.owner.replace(owner);
        let mut book = self.memory.0.borrow_mut();
        book.owners[before as usize] = book.owners[before as usize].saturating_sub(self.bytes);
        book.owners[owner as usize] = book.owners[owner as usize].saturating_add(self.bytes);
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        let mut book = self.memory.0.borrow_mut();
        book.live = book.live.saturating_sub(self.bytes);
        let owner = self.owner.get() as usize;
        book.owners[owner] = book.owners[owner].saturating_sub(self.bytes);
        if let (Some(block), Some(allocator)) = (self.block, &mut book.allocator) {
            allocator.free(block);
        }
    }
}
