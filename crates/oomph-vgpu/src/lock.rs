//! Locks that a forked child finds free, and the order in which they are taken.
//!
//! A child has only the thread that forked it. A lock that another thread held then would be held in the child until its
//! end, over data that is half changed. So locks are taken through a gate: whoever forks closes it and waits until no
//! other thread holds a lock. A thread that holds one may take more while a fork waits.
//!
//! A thread takes locks in the order of [`Rank`], so that no two threads wait for each other. Debug builds check it.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

// The gate is below the root of the state (`gpu`), whose locks go through it, so it has statics of its own.

/// How many locks this process's threads hold or wait for.
static HELD: AtomicUsize = AtomicUsize::new(0);
/// How many threads are about to fork.
static FORKING: AtomicUsize = AtomicUsize::new(0);
/// How long a fork waits for others. Nobody holds a lock that long, unless it waits for what the forking thread holds.
const GATE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a waiting thread looks before it sleeps between looks.
const LOOKS: u32 = 64;
const NAP: Duration = Duration::from_micros(50);

thread_local! {
    // `const` and without a destructor, so that a thread's end runs no code of this library.
    /// How many locks this thread holds.
    static MINE: Cell<usize> = const { Cell::new(0) };
    /// Whether nobody else held a lock when this thread last went on to fork.
    static ORDERLY: Cell<bool> = const { Cell::new(true) };
}

/// While it lives, no other thread forks.
#[derive(Debug)]
pub struct Hold(());

/// Keeps other threads from forking, after those that are about to have done so.
fn hold() -> Hold {
    let mine = MINE.get();
    loop {
        HELD.fetch_add(1, Ordering::SeqCst);
        if mine > 0 || FORKING.load(Ordering::SeqCst) == 0 {
            MINE.set(mine + 1);
            return Hold(());
        }
        HELD.fetch_sub(1, Ordering::SeqCst);
        wait(|| FORKING.load(Ordering::SeqCst) == 0);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        MINE.set(MINE.get().saturating_sub(1));
        HELD.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Waits until something holds; false if that takes too long.
#[cold]
fn wait(is_done: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    for look in 0_u32.. {
        if is_done() {
            return true;
        }
        if look < LOOKS {
            std::thread::yield_now();
        } else if begun.elapsed() < GATE_TIMEOUT {
            std::thread::sleep(NAP);
        } else {
            break;
        }
    }
    false
}

/// The locks of this library in the order in which a thread takes them: whoever holds one takes only later ones.
///
/// The order follows the layers. What libraries keep comes first, then what the driver keeps of modules, captures and
/// memory, then what every allocation is counted in. The last ones are held for a moment, and nothing is taken under them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Rank {
    /// The making of a link namespace, one at a time.
    Namespaces,
    /// cuDNN: plans of the program's library.
    Plans,
    /// cuDNN: what they compute.
    Computations,
    /// cuDNN: workspaces that were asked for.
    Workspaces,
    /// cuFFT: plans, which are charged while they are made.
    FftPlans,
    /// NCCL: what groups still have to do.
    GroupCalls,
    /// NCCL: ranks of a communicator that are not waited for.
    LostRanks,
    /// NCCL: messages of a communicator.
    Messages,
    /// NCCL: files that a communicator posted.
    PostedFiles,
    /// Inputs of the driver's linker.
    Links,
    /// Captures that are under way.
    Captures,
    /// Nodes of graphs.
    Graphs,
    /// Memory that graphs own.
    GraphMemory,
    /// Images that were loaded.
    Images,
    /// Kernels of them.
    Kernels,
    /// Variables of images that cannot be read.
    ImageVariables,
    /// What nvcc's start-up code registered.
    Registered,
    /// The default pools of the cards.
    DefaultPools,
    /// All pools.
    Pools,
    /// Granules that small requests share.
    Slabs,
    /// Granules in which small variables of modules lie.
    ModuleSlabs,
    /// Physical memory and its mappings.
    Mappings,
    /// Calls that are answered as if the program had changed them.
    ChangedCalls,
    /// What the program's allocations and copies come to.
    Activity,
    /// The lines of Python that made them.
    PythonLines,
    /// What single bytes are read as.
    Flags,
    /// Blocks that PyTorch's allocator handed out.
    Handed,
    /// Which block lies where.
    Space,
    /// This process's slot in the ledger.
    LedgerSlot,
    /// The run folder whose ledger is mapped.
    RunFolder,
    /// The log of what is taken and given back.
    DeviceLog,
    /// Products that were computed.
    Products,
    /// Streams that were destroyed.
    FreeStreams,
    /// Events that were destroyed.
    FreeEvents,
}

/// In debug builds, checks that a thread takes its locks in their order.
#[cfg(debug_assertions)]
mod order {
    use std::cell::Cell;

    use super::Rank;

    thread_local! {
        /// The ranks of the locks that this thread holds, a bit for each.
        static TAKEN: Cell<u64> = const { Cell::new(0) };
    }

    pub fn check(rank: Rank) {
        let taken = TAKEN.get();
        debug_assert!(taken >> rank as u8 == 0, "{rank:?} is taken after a lock of its rank or a later one: {taken:b}");
    }

    pub fn took(rank: Rank) {
        TAKEN.set(TAKEN.get() | 1 << rank as u8);
    }

    pub fn gave_back(rank: Rank) {
        TAKEN.set(TAKEN.get() & !(1 << rank as u8));
    }
}

/// Release builds check nothing.
#[cfg(not(debug_assertions))]
mod order {
    use super::Rank;

    pub fn check(_: Rank) {}

    pub fn took(_: Rank) {}

    pub fn gave_back(_: Rank) {}
}

/// A mutex that no other thread holds when this process is forked, and that a panic does not poison.
#[derive(Debug)]
pub struct Mutex<T> {
    rank: Rank,
    inner: std::sync::Mutex<T>,
}

/// A locked [`Mutex`].
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    // Fields are dropped in this order: the lock is free before forks are allowed.
    value: std::sync::MutexGuard<'a, T>,
    _taken: Taken,
    _hold: Hold,
}

/// A place in the order of locks that this thread is at.
#[derive(Debug)]
struct Taken(Rank);

impl Taken {
    fn new(rank: Rank) -> Self {
        order::took(rank);
        Self(rank)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        order::gave_back(self.0);
    }
}

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self { rank, inner: std::sync::Mutex::new(value) }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        order::check(self.rank);
        let hold = hold();
        let value = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        MutexGuard { value, _taken: Taken::new(self.rank), _hold: hold }
    }

    /// The lock, if nobody has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let hold = hold();
        let value = match self.inner.try_lock() {
            Ok(value) => value,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { value, _taken: Taken::new(self.rank), _hold: hold })
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// A value that is made once, and that no other thread is making when this process is forked.
#[derive(Debug)]
pub struct Once<T>(OnceLock<T>);

impl<T> Once<T> {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// The value, if it was made.
    pub fn get(&self) -> Option<&T> {
        self.0.get()
    }

    /// The value, which is made now if it was not before.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.0.get() {
            return value;
        }
        let _hold = hold();
        self.0.get_or_init(make)
    }
}

/// Closes the gate: once the thread that forks returns from here, no other thread holds a lock.
pub fn before_fork() {
    FORKING.fetch_add(1, Ordering::SeqCst);
    let mine = MINE.get();
    // Where it takes too long, the program forks all the same: it is the program's fork.
    ORDERLY.set(wait(|| HELD.load(Ordering::SeqCst) == mine));
}

/// Opens the gate in the process that forked.
pub fn after_fork_in_parent() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

/// Opens the gate in a forked child. False where another thread of the parent still held a lock, which nobody will give back.
pub fn after_fork_in_child() -> bool {
    // Threads that were at the gate are counted for a moment, and are not here.
    HELD.store(MINE.get(), Ordering::SeqCst);
    FORKING.store(0, Ordering::SeqCst);
    ORDERLY.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_a_lock_takes_more_while_another_waits_to_fork() {
        let (first, second) = (Mutex::new(Rank::Pools, 1), Mutex::new(Rank::Space, 2));
        let held = first.lock();
        std::thread::scope(|scope| {
            let fork = scope.spawn(|| {
                before_fork();
                // What the thread below took is free now.
                let free = first.try_lock_beside_the_gate() && second.try_lock_beside_the_gate();
                after_fork_in_parent();
                free
            });
            while FORKING.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            assert_eq!(*second.lock() + *held, 3);
            drop(held);
            assert!(fork.join().expect("no panic"));
        });
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "Pools is taken after")]
    fn locks_are_taken_in_their_order() {
        let (first, second) = (Mutex::new(Rank::Pools, ()), Mutex::new(Rank::Space, ()));
        let _second = second.lock();
        let _first = first.lock();
    }

    impl<T> Mutex<T> {
        fn try_lock_beside_the_gate(&self) -> bool {
            self.inner.try_lock().is_ok()
        }
    }
}
