//! Everything that this process knows of its virtual cards: the one root of the library's state.
//!
//! [`gpu`] reaches it from anywhere. Its parts are built when the library is compiled, so that it exists before the first
//! call, before the loader has finished, and in a forked child; what has to be looked up is looked up when it is first
//! asked for. The parts do not know the root, and are given what they need of each other. The modules above work with
//! them: `crate::memory` with `space` and `slabs`, `crate::stream` with `streams`, and so on.
//!
//! Locks are taken in the order that [`crate::lock::Rank`] declares. A fork is [`Gpu::forked`].
//!
//! What is not here: the gate of the locks (`crate::lock`), which is below; the loader's own `dlopen` (`crate::loader`),
//! which a stub without a frame jumps through; and what C keeps for each thread: its current card and contexts
//! (`crate::device`), its capture mode (`crate::capture`), its last error (`crate::status`), the launch that it configures
//! (`crate::runtime`), the depth of its NCCL groups, and the line of Python that is under way.

mod devices;
mod ledger;
mod libraries;
mod memory;
mod modules;
mod registered;
mod streams;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use oomph_ledger::{MAX_DEVICES, NoteKind};

use crate::activity::Activity;
use crate::books::{self, Books};
use crate::changed::ChangedCalls;
use crate::device_log::DeviceLog;
use crate::flags::Flags;
use crate::handed::Handed;
use crate::handle::Handles;
use crate::latecomers::Latecomers;
use crate::libcudnn::{Cudnn, namespace};
use crate::lock::{Mutex, Once, Rank};
use crate::space::{FreeRanges, Space};
use crate::trace::Calls;
use crate::work::Work;

pub use devices::{Context, Device, uuid_text};
pub use libraries::{FftPlan, GroupCall, Libraries, Library, Link, NcclSettings, Version};
pub use memory::{GraphMemory, Mappings, PARAMETERS, Physical, Piece, Pool, PoolCounters};
pub use modules::{Kernel, LoadedVariables, Module, Modules};
pub use registered::{Architectures, Binaries, Binary, REMEMBERED, Registered};
pub use streams::{Captures, Event, FreeList, STREAM_MAGIC, Session, Stream, Streams};

/// Nobody has used CUDA in this process.
const UNUSED: u8 = 0;
/// This process has used CUDA.
const USED: u8 = 1;
/// This process was forked from one that had used CUDA.
const FORKED: u8 = 2;

/// The virtual cards as this process has them.
pub struct Gpu {
    /// Whether CUDA was used, here or before a fork.
    readiness: AtomicU8,
    /// The ledger, opened when it is first asked for; `None` without one.
    books: Once<Option<Books>>,
    /// The cards that `CUDA_VISIBLE_DEVICES` leaves.
    visible: Once<Vec<Device>>,
    /// Which primary contexts this process created, by card.
    pub contexts: [AtomicBool; MAX_DEVICES],
    /// What was changed of them, by card.
    pub changes: [Context; MAX_DEVICES],
    /// For each card, by ordinal, a bit for each peer that it may read.
    pub peers: [AtomicU32; MAX_DEVICES],

    /// How often each exported function was called.
    pub calls: Calls,
    /// What the program does with memory.
    pub activity: Activity,
    /// Calls that are answered as if the program had changed them.
    pub changed: ChangedCalls,
    /// What the program computes.
    pub work: Work,
    /// The log of what is taken of a card and given back.
    pub log: DeviceLog,

    /// Which block lies where, and which addresses are free.
    pub space: Mutex<Space>,
    /// Pieces of granules that small requests share, by card.
    pub slabs: [Mutex<FreeRanges>; MAX_DEVICES],
    /// Pieces of granules in which the small variables of modules lie.
    pub module_slabs: Mutex<FreeRanges>,
    /// The default pool of each card, by ordinal; 0 where none was made.
    pub default_pools: Mutex<[usize; MAX_DEVICES]>,
    /// Stream-ordered pools.
    pub pools: Mutex<Vec<Pool>>,
    /// Physical memory, and where it is mapped.
    pub mappings: Mutex<Mappings>,
    /// Memory that graphs own.
    pub graph_memory: GraphMemory,

    /// Handles of objects without a state.
    pub handles: Handles,
    /// Streams and events.
    pub streams: Streams,
    /// Captures and graphs.
    pub captures: Captures,
    /// Modules and their kernels.
    pub modules: Modules,
    /// What nvcc's start-up code registered.
    pub registered: Registered,
    /// What the driver's linker was given, by handle.
    pub links: Mutex<BTreeMap<usize, Link>>,
    /// What single bytes are read as.
    pub flags: Flags,
    /// Blocks that PyTorch's allocator handed out.
    pub handed: Handed,
    /// Threads that take part in the hook's kernels from their next call on.
    pub latecomers: Latecomers,
    /// How often a static runtime asked for a table that is not there.
    pub static_runtime_looks: AtomicU32,

    /// What cuDNN keeps, with the program's own copy of it.
    pub cudnn: Cudnn,
    /// What the other libraries above the driver keep.
    pub libraries: Libraries,
    /// The file that this library was loaded from.
    pub own_path: Once<Option<CString>>,
    /// The major version of the runtime that the program is linked against.
    pub runtime_major: Once<u32>,
}

/// The root.
static GPU: Gpu = Gpu::new();

/// The state of this process.
#[inline]
pub fn gpu() -> &'static Gpu {
    &GPU
}

impl Gpu {
    const fn new() -> Self {
        Self {
            readiness: AtomicU8::new(UNUSED),
            books: Once::new(),
            visible: Once::new(),
            contexts: [const { AtomicBool::new(false) }; MAX_DEVICES],
            changes: [const { Context::new() }; MAX_DEVICES],
            peers: [const { AtomicU32::new(0) }; MAX_DEVICES],
            calls: Calls::new(),
            activity: Activity::new(),
            changed: ChangedCalls::new(),
            work: Work::new(),
            log: DeviceLog::new(),
            space: Mutex::new(Rank::Space, Space::new()),
            slabs: [const { Mutex::new(Rank::Slabs, FreeRanges::WITHIN_GRANULES) }; MAX_DEVICES],
            module_slabs: Mutex::new(Rank::ModuleSlabs, FreeRanges::WITHIN_GRANULES),
            default_pools: Mutex::new(Rank::DefaultPools, [0; MAX_DEVICES]),
            pools: Mutex::new(Rank::Pools, Vec::new()),
            mappings: Mutex::new(Rank::Mappings, Mappings::new()),
            graph_memory: GraphMemory::new(),
            handles: Handles::new(),
            streams: Streams::new(),
            captures: Captures::new(),
            modules: Modules::new(),
            registered: Registered::new(),
            links: Mutex::new(Rank::Links, BTreeMap::new()),
            flags: Flags::new(),
            handed: Handed::new(),
            latecomers: Latecomers::new(),
            static_runtime_looks: AtomicU32::new(0),
            cudnn: Cudnn::new(),
            libraries: Libraries::new(),
            own_path: Once::new(),
            runtime_major: Once::new(),
        }
    }

    /// The ledger of this process's run, opened at the first call; `None` without one.
    pub fn books(&self) -> Option<&Books> {
        let books = self.books.get_or_init(|| self.open()).as_ref()?;
        books.refresh();
        Some(books)
    }

    /// Opens the ledger, and starts what is written to its run folder.
    #[cold]
    fn open(&self) -> Option<Books> {
        let books = books::open(!namespace::is_inside())?;
        self.calls.start();
        if books.is_programs {
            self.activity.start();
        }
        // SAFETY: `close` is an `extern "C"` function that may run while the process ends.
        unsafe { libc::atexit(close) };
        Some(books)
    }

    /// In a forked child, whose one thread forked it: what the parent holds is the parent's. The locks are free (see
    /// `crate::lock`), unless the fork was not `is_orderly`: then another thread of the parent held one, and no call may
    /// reach it.
    pub fn forked(&self, is_orderly: bool) {
        if !is_orderly || self.readiness.load(Ordering::Relaxed) != UNUSED {
            self.readiness.store(FORKED, Ordering::Relaxed);
        }
        let Some(Some(books)) = self.books.get() else { return };
        books.forked();
        for context in &self.contexts {
            context.store(false, Ordering::Relaxed);
        }
        self.changes.iter().for_each(Context::forget);
        self.libraries.solver_charged.store(false, Ordering::Relaxed);
        self.libraries.nccl_charged.store(false, Ordering::Relaxed);
        self.log.forget();
        self.activity.forget();
    }

    /// Makes a child of the fork server a process like one that was started (see `crate::fork`).
    pub fn forked_afresh(&self) {
        let _ = self.readiness.compare_exchange(FORKED, USED, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Notes a call that makes CUDA ready in this process: `cuInit`, or a function of the runtime or of a library above it.
    /// Returns whether it has to be refused, because this process was forked from one where CUDA was ready.
    #[inline]
    pub fn is_refused(&'static self) -> bool {
        match self.readiness.load(Ordering::Relaxed) {
            USED => false,
            FORKED => true,
            _ => {
                self.used();
                false
            }
        }
    }

    /// Whether a function of the driver API, which does not make CUDA ready, has to be refused: nothing else did, or this
    /// process was forked.
    #[inline]
    pub fn is_unready(&'static self) -> bool {
        match self.readiness.load(Ordering::Relaxed) {
            USED => false,
            FORKED => true,
            _ => self.is_unused(),
        }
    }

    /// Whether CUDA could be ready and is not. Without cards nothing gets ready, and a library in a namespace asks this
    /// instance of the library what the program's would answer.
    #[cold]
    fn is_unused(&'static self) -> bool {
        !self.visible().is_empty() && !namespace::is_inside()
    }

    /// Notes that CUDA is ready in this process. A driver without cards does not get ready.
    #[cold]
    pub fn used(&'static self) {
        if !self.visible().is_empty() {
            let _ = self.readiness.compare_exchange(UNUSED, USED, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// A function is called that is not refused.
    #[inline]
    pub fn called(&self, id: usize) {
        self.latecomers.called();
        self.calls.called(id);
    }

    /// Notes the call of a function that is refused, for the report, which names each once.
    #[cold]
    pub fn refuse_call(&self, id: usize) {
        if let Some(name) = self.calls.refused(id) {
            self.note(NoteKind::Unsupported, name);
        }
    }
}

/// When the process ends in good order: what is counted is written, and what it held is free again for the others.
extern "C" fn close() {
    let gpu = gpu();
    gpu.log.finish();
    gpu.calls.finish();
    let Some(Some(books)) = gpu.books.get() else { return };
    gpu.activity.finish(&books.run_folder());
    books.close();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_fork(readiness: u8, is_orderly: bool) -> &'static Gpu {
        let gpu: &'static Gpu = Box::leak(Box::new(Gpu::new()));
        gpu.readiness.store(readiness, Ordering::Relaxed);
        gpu.forked(is_orderly);
        gpu
    }

    #[test]
    fn a_child_is_refused_where_its_parent_used_cuda_or_held_a_lock() {
        assert!(!after_fork(UNUSED, true).is_refused());
        assert!(after_fork(UNUSED, false).is_refused());
        let child = after_fork(USED, true);
        assert!(child.is_refused());
        child.forked_afresh();
        assert!(!child.is_refused(), "a child of the fork server is a process of its own");
    }
}
