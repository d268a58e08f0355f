//! What a program does with the card's memory besides filling it: how often it allocates and frees, what it never gives
//! back, what it keeps twice, and what it sends to and fro. For the authors of CUDA programs, who can change that.
//!
//! Everything is counted in this process and written to `device/PID.json` in the run folder when it ends. All tables are
//! bounded: what finds no room in one is left out of it, and the totals stay true.
//!
//! Call sites are not followed in Python: walking the stack costs about a microsecond, and each site would be the
//! framework's own. Where the user's own lines allocate, as in Numba, the hook says which one is under way (`script.rs`).

mod allocations;
mod place;
mod refusal;
mod script;
mod site;
mod transfers;
mod write;

use std::ffi::c_void;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::lock::{Mutex, MutexGuard, Rank};
use crate::space::Space;
use crate::work::Way;
use allocations::Allocations;
pub use place::Place;
use script::Lines;
use site::{Site, Sites, Stacks};
pub use transfers::Copied;
use transfers::{End, Transfers};

/// What the program does with memory, where it is counted.
pub struct Activity {
    counting: AtomicBool,
    counted: Mutex<Option<Counted>>,
    stacks: Stacks,
    lines: Lines,
    /// Requests that a card refused this process.
    refusals: AtomicU64,
}

/// Everything that was counted.
#[derive(Clone, Default)]
struct Counted {
    sites: Sites,
    /// Straight from the card.
    allocations: Allocations,
    /// From stream-ordered pools.
    pooled: Allocations,
    /// How often a pool took memory of the card.
    pools_grew: u64,
    /// How often a pool took memory that it had given back at a synchronisation.
    pools_regrew: u64,
    transfers: Transfers,
}

impl Activity {
    /// Counts nothing yet.
    pub const fn new() -> Self {
        Self {
            counting: AtomicBool::new(false),
            counted: Mutex::new(Rank::Activity, None),
            stacks: Stacks::new(),
            lines: Lines::new(),
            refusals: AtomicU64::new(0),
        }
    }

    /// Starts counting. Called once, when the books are opened.
    pub fn start(&self) {
        self.stacks.follow(!is_python());
        self.counting.store(true, Ordering::Relaxed);
    }

    /// In a forked child: what the parent did is the parent's.
    pub fn forget(&self) {
        // Where a thread of the parent holds the lock in the child all the same, the child counts nothing.
        match self.counted.try_lock() {
            Some(mut counted) => *counted = None,
            None => self.counting.store(false, Ordering::Relaxed),
        }
    }

    /// Has the calls of this thread come from a line of Python from now on; from none where there is no `place`.
    pub fn set_python_line(&self, place: Option<Place>) {
        self.lines.set_current(place);
    }

    /// Where the innermost call from outside this library lies, whether sites are followed or not.
    pub fn innermost_outside(&self) -> Option<Place> {
        self.stacks.innermost_outside()
    }

    /// Where the call that is under way comes from, the innermost place first.
    pub fn places_of_call(&self) -> Vec<Place> {
        self.stacks.of_caller().map(|stack| site::places(&stack, &self.lines)).unwrap_or_default()
    }

    /// Notes a block that the program took straight from the card, in bytes as it asked for them.
    pub fn allocated(&self, start: *const c_void, size: usize) {
        if !start.is_null() {
            self.with(|counted, site| counted.allocations.add(start as usize, size, site));
        }
    }

    /// Notes a block that the program took from a pool, in bytes as it asked for them.
    pub fn allocated_from_pool(&self, start: *const c_void, size: usize) {
        if !start.is_null() {
            self.with(|counted, site| counted.pooled.add(start as usize, size, site));
        }
    }

    /// Notes that the program freed a block, wherever it was from.
    pub fn freed(&self, start: *const c_void) {
        let Some(mut counted) = self.counting() else { return };
        let Counted { allocations, pooled, transfers, .. } = counted.get_or_insert_default();
        if let Some(size) = allocations.remove(start as usize).or_else(|| pooled.remove(start as usize)) {
            transfers.forget(start as usize, size);
        }
    }

    /// Notes that a pool took memory of the card; `again` where it had given such back at a synchronisation.
    pub fn pool_grew(&self, again: bool) {
        let Some(mut counted) = self.counting() else { return };
        let counted = counted.get_or_insert_default();
        counted.pools_grew += 1;
        counted.pools_regrew += u64::from(again);
    }

    /// Notes a copy that the program asked for, before it is made. Only where the copy says so are its contents looked at.
    /// Returns its direction, where copies are counted and it does not stay on the host.
    ///
    /// # Safety
    /// With `contents`, `from` must be readable for `size` bytes, as CUDA requires of a copy.
    pub unsafe fn copied(&self, space: &Mutex<Space>, copied: Copied) -> Option<Way> {
        let Copied { to, from, size, .. } = copied;
        if size == 0 || to == 0 || from == 0 {
            return None;
        }
        self.with(|counted, site| {
            let ends = {
                let space = space.lock();
                (End::of(&space, from), End::of(&space, to))
            };
            let way = transfers::way(ends.0, ends.1)?;
            // SAFETY: the caller's promise.
            unsafe { counted.transfers.add(copied, way, site) };
            Some(way.0)
        })?
    }

    /// Notes what is held when a card refuses a request, and writes what was counted so far: a process that cannot have its
    /// memory may not live to write it at its end, or frees all that it held on its way there.
    fn write_at_refusal(&self, run_folder: &Path) {
        if let Some(counted) = self.counting().as_deref_mut().and_then(Option::as_mut) {
            counted.allocations.refused();
            counted.pooled.refused();
        }
        // A copy, because the files are looked up through the loader, which may wait for a thread that waits for this lock.
        let counted = self.counting().and_then(|counted| counted.clone());
        if let Some(counted) = counted {
            write::write(run_folder, &counted, &self.lines);
        }
    }

    /// Writes what was counted, when the process ends.
    pub fn finish(&self, run_folder: &Path) {
        let Some(mut counted) = self.counting() else { return };
        if let Some(counted) = counted.take() {
            write::write(run_folder, &counted, &self.lines);
        }
    }

    fn with<T>(&self, note: impl FnOnce(&mut Counted, Site) -> T) -> Option<T> {
        if !self.counting.load(Ordering::Relaxed) {
            return None;
        }
        // The stack is walked before the lock is taken, because the walk may allocate and others wait.
        let stack = self.stacks.of_caller();
        let mut counted = self.counting()?;
        let counted = counted.get_or_insert_default();
        let site = counted.sites.of(stack);
        Some(note(counted, site))
    }

    fn counting(&self) -> Option<MutexGuard<'_, Option<Counted>>> {
        self.counting.load(Ordering::Relaxed).then(|| self.counted.lock())
    }
}

fn is_python() -> bool {
    let executable = std::env::current_exe().unwrap_or_default();
    executable.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"))
}
