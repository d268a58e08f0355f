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
pub mod refusal;
mod script;
pub mod site;
mod transfers;
mod write;

use crate::fork::{Mutex, MutexGuard};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use allocations::Allocations;
use site::{Site, Sites};
use transfers::Transfers;
pub use transfers::Way;

/// Everything that was counted.
#[derive(Clone, Default)]
struct Activity {
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

static COUNTING: AtomicBool = AtomicBool::new(false);
static ACTIVITY: Mutex<Option<Activity>> = Mutex::new(None);

/// Starts counting. Called once, when the books are opened.
pub fn start() {
    site::follow(!is_python());
    COUNTING.store(true, Ordering::Relaxed);
}

/// In a forked child: what the parent did is the parent's.
pub fn forget() {
    // Where a thread of the parent holds the lock in the child all the same, the child counts nothing.
    match ACTIVITY.try_lock() {
        Some(mut activity) => *activity = None,
        None => COUNTING.store(false, Ordering::Relaxed),
    }
}

/// Notes a block that the program took straight from the card, in bytes as it asked for them.
pub fn allocated(start: *const c_void, size: usize) {
    if !start.is_null() {
        with(|activity, site| activity.allocations.add(start as usize, size, site));
    }
}

/// Notes a block that the program took from a pool, in bytes as it asked for them.
pub fn allocated_from_pool(start: *const c_void, size: usize) {
    if !start.is_null() {
        with(|activity, site| activity.pooled.add(start as usize, size, site));
    }
}

/// Notes that the program freed a block, wherever it was from.
pub fn freed(start: *const c_void) {
    let Some(mut activity) = counting() else { return };
    let Activity { allocations, pooled, transfers, .. } = activity.get_or_insert_default();
    if let Some(size) = allocations.remove(start as usize).or_else(|| pooled.remove(start as usize)) {
        transfers.forget(start as usize, size);
    }
}

/// Notes that a pool took memory of the card; `again` where it had given such back at a synchronisation.
pub fn pool_grew(again: bool) {
    let Some(mut activity) = counting() else { return };
    let activity = activity.get_or_insert_default();
    activity.pools_grew += 1;
    activity.pools_regrew += u64::from(again);
}

/// Notes a copy that the program asked for, before it is made. Only where `contents` says so are they looked at.
///
/// # Safety
/// With `contents`, `from` must be readable for `size` bytes, as CUDA requires of a copy.
pub unsafe fn copied(to: *const c_void, from: *const c_void, size: usize, contents: bool) {
    if size == 0 || to.is_null() || from.is_null() {
        return;
    }
    with(|activity, site| {
        // SAFETY: the caller's promise.
        unsafe { activity.transfers.add(to as usize, from as usize, size, contents, site) };
    });
}

/// Notes what is held when a card refuses a request, and writes what was counted so far: a process that cannot have its
/// memory may not live to write it at its end, or frees all that it held on its way there.
fn refused(run_folder: &std::path::Path) {
    if let Some(activity) = counting().as_deref_mut().and_then(Option::as_mut) {
        activity.allocations.refused();
        activity.pooled.refused();
    }
    // A copy, because the files are looked up through the loader, which may wait for a thread that waits for this lock.
    let counted = counting().and_then(|activity| activity.clone());
    if let Some(activity) = counted {
        write::write(run_folder, &activity);
    }
}

/// Writes what was counted, when the process ends.
pub fn finish(run_folder: &std::path::Path) {
    let Some(mut activity) = counting() else { return };
    if let Some(activity) = activity.take() {
        write::write(run_folder, &activity);
    }
}

fn is_python() -> bool {
    let executable = std::env::current_exe().unwrap_or_default();
    executable.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"))
}

fn with(note: impl FnOnce(&mut Activity, Site)) {
    if !COUNTING.load(Ordering::Relaxed) {
        return;
    }
    // The stack is walked before the lock is taken, because the walk may allocate and others wait.
    let stack = site::of_caller();
    if let Some(mut activity) = counting() {
        let activity = activity.get_or_insert_default();
        let site = activity.sites.of(stack);
        note(activity, site);
    }
}

fn counting() -> Option<MutexGuard<'static, Option<Activity>>> {
    COUNTING.load(Ordering::Relaxed).then(|| ACTIVITY.lock())
}
