//! Forks: every lock of this library is free in a forked child, and a child of a process that used CUDA gets none.
//!
//! A child has only the thread that forked it. A lock that another thread held then would be held in the child until its
//! end, over data that is half changed. So locks are taken through a gate: whoever forks closes it and waits until no
//! other thread holds a lock. A thread that holds one may take more, so the order of locks does not matter.
//!
//! A real driver does not survive a fork: calls of a child whose parent had initialised it are answered by
//! `CUDA_ERROR_NOT_INITIALIZED`. Children of the fork server are runs of their own and say so ([`oomph_forked_afresh`]).

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::{books, device};

/// How many locks this process's threads hold or wait for.
static HELD: AtomicUsize = AtomicUsize::new(0);
/// How many threads are about to fork.
static FORKING: AtomicUsize = AtomicUsize::new(0);
/// How long a fork waits for others. Nobody holds a lock that long, unless it waits for what the forking thread holds.
const GATE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a waiting thread looks before it sleeps between looks.
const LOOKS: u32 = 64;
const NAP: Duration = Duration::from_micros(50);

/// Nobody has used CUDA in this process.
const UNUSED: u8 = 0;
/// This process has used CUDA.
const USED: u8 = 1;
/// This process was forked from one that had used CUDA.
const FORKED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNUSED);

thread_local! {
    // `const` and without a destructor, so that a thread's end runs no code of this library.
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

/// A mutex that no other thread holds when this process is forked, and that a panic does not poison.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

/// A locked [`Mutex`].
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    // Fields are dropped in this order: the lock is free before forks are allowed.
    value: std::sync::MutexGuard<'a, T>,
    _hold: Hold,
}

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let hold = hold();
        MutexGuard { value: self.0.lock().unwrap_or_else(PoisonError::into_inner), _hold: hold }
    }

    /// The lock, if nobody has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let hold = hold();
        match self.0.try_lock() {
            Ok(value) => Some(MutexGuard { value, _hold: hold }),
            Err(TryLockError::Poisoned(poisoned)) => Some(MutexGuard { value: poisoned.into_inner(), _hold: hold }),
            Err(TryLockError::WouldBlock) => None,
        }
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

/// Registers for notice of every fork. Called once, when the library is loaded: handlers that are registered later run
/// before this one at a fork, and may take locks of this library then.
pub fn follow() {
    // SAFETY: the three are `extern "C"` functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

extern "C" fn before() {
    FORKING.fetch_add(1, Ordering::SeqCst);
    let mine = MINE.get();
    // Where it takes too long, the program forks all the same: it is the program's fork.
    ORDERLY.set(wait(|| HELD.load(Ordering::SeqCst) == mine));
}

extern "C" fn in_parent() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

extern "C" fn in_child() {
    // Threads that were at the gate are counted for a moment, and are not here.
    HELD.store(MINE.get(), Ordering::SeqCst);
    FORKING.store(0, Ordering::SeqCst);
    let is_orderly = ORDERLY.get();
    // Where somebody still held a lock, no call may reach it.
    if !is_orderly || STATE.load(Ordering::Relaxed) != UNUSED {
        STATE.store(FORKED, Ordering::Relaxed);
    }
    books::forked();
}

/// Notes a call that makes CUDA ready in this process. Returns whether it has to be refused, because this process was
/// forked from one where CUDA was ready.
#[inline]
pub fn is_refused() -> bool {
    match STATE.load(Ordering::Relaxed) {
        USED => false,
        FORKED => true,
        _ => {
            note_use();
            false
        }
    }
}

/// A driver without cards does not get ready.
#[cold]
fn note_use() {
    if !device::visible().is_empty() {
        STATE.store(USED, Ordering::Relaxed);
    }
}

/// Makes a child of the fork server a process like one that was started: what the server's imports asked of CUDA, this
/// process has asked itself. The server has one thread and no contexts, so nothing was lost in the fork.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn oomph_forked_afresh() {
    let _ = STATE.compare_exchange(FORKED, USED, Ordering::Relaxed, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_a_lock_takes_more_while_another_waits_to_fork() {
        let (first, second) = (Mutex::new(1), Mutex::new(2));
        let held = first.lock();
        std::thread::scope(|scope| {
            let fork = scope.spawn(|| {
                before();
                // What the thread below took is free now.
                let free = first.try_lock_beside_the_gate() && second.try_lock_beside_the_gate();
                in_parent();
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

    impl<T> Mutex<T> {
        fn try_lock_beside_the_gate(&self) -> bool {
            self.0.try_lock().is_ok()
        }
    }
}
