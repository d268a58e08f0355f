//! Has threads take part in the hook's kernels that were there before these were made.
//!
//! A thread takes part in kernels of PyTorch's dispatcher by a word that only the thread itself can set. What starts later is
//! caught at its start, in Python; a thread of a pool that waits for its work is caught here, at its first call of CUDA.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU16, AtomicUsize, Ordering};

/// How many threads are waited for at most.
const MOST: usize = 512;

/// `c10::impl::tls_set_dispatch_key_included`.
pub type Admit = unsafe extern "C" fn(key: u16, included: bool);

/// The threads that have made no call of CUDA since the kernels are there.
pub struct Latecomers {
    /// How many there are.
    waiting: AtomicUsize,
    /// Their numbers; 0 in a place that is free.
    threads: [AtomicI32; MOST],
    /// The function by which a thread takes part, an [`Admit`]; 0 while nobody is waited for.
    admit: AtomicUsize,
    /// The key of the kernels.
    key: AtomicU16,
}

impl Latecomers {
    /// Waits for nobody.
    pub const fn new() -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            threads: [const { AtomicI32::new(0) }; MOST],
            admit: AtomicUsize::new(0),
            key: AtomicU16::new(0),
        }
    }

    /// Has each of some threads take part in the kernels of `key` at its next call of CUDA.
    pub fn wait_for(&self, admit: Admit, key: u16, threads: &[c_int]) {
        self.admit.store(admit as usize, Ordering::Relaxed);
        self.key.store(key, Ordering::Relaxed);
        for &thread in threads {
            let free =
                |place: &&AtomicI32| place.compare_exchange(0, thread, Ordering::Release, Ordering::Relaxed).is_ok();
            if self.threads.iter().find(free).is_some() {
                self.waiting.fetch_add(1, Ordering::Release);
            }
        }
    }

    /// This thread calls CUDA.
    #[inline]
    pub fn called(&self) {
        if self.waiting.load(Ordering::Acquire) != 0 {
            self.look();
        }
    }

    #[cold]
    fn look(&self) {
        // SAFETY: it takes nothing and cannot fail.
        let own = unsafe { libc::gettid() };
        let is_own = |place: &&AtomicI32| place.compare_exchange(own, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if self.threads.iter().find(is_own).is_none() {
            return;
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        let admit = self.admit.load(Ordering::Relaxed);
        // SAFETY: only `wait_for` writes to it, before any thread was listed, and what it writes is such a function.
        let admit = unsafe { std::mem::transmute::<usize, Option<Admit>>(admit) };
        if let Some(admit) = admit {
            // SAFETY: the caller of `oomph_admit` promised a function that sets a word of this thread's own.
            unsafe { admit(self.key.load(Ordering::Relaxed), true) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static TAKES_PART: Cell<u16> = const { Cell::new(0) };
    }

    unsafe extern "C" fn admit(key: u16, included: bool) {
        TAKES_PART.set(if included { key } else { 0 });
    }

    #[test]
    fn a_thread_takes_part_at_its_next_call_and_no_other_does() {
        let latecomers = Latecomers::new();
        // SAFETY: it takes nothing and cannot fail.
        let own = unsafe { libc::gettid() };
        latecomers.called();
        assert_eq!(TAKES_PART.get(), 0, "nobody was waited for");
        latecomers.wait_for(admit, 6, &[own, own + 1]);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                // The number of the second may be this thread's by chance; what is asked is the first's.
                latecomers.called();
                // SAFETY: it takes nothing and cannot fail.
                let this = unsafe { libc::gettid() };
                (this == own + 1, TAKES_PART.get())
            });
            let (listed, takes_part) = other.join().unwrap();
            assert_eq!(takes_part == 6, listed);
        });
        assert_eq!(TAKES_PART.get(), 0);
        latecomers.called();
        assert_eq!(TAKES_PART.get(), 6);
        TAKES_PART.set(0);
        latecomers.called();
        assert_eq!(TAKES_PART.get(), 0, "a thread is admitted once: later it decides for itself");
    }

    #[test]
    fn more_threads_than_there_is_room_for_are_left_out() {
        let latecomers = Latecomers::new();
        let threads: Vec<c_int> = (1..=c_int::try_from(MOST).unwrap() + 10).map(|thread| thread + (1 << 30)).collect();
        latecomers.wait_for(admit, 6, &threads);
        assert_eq!(latecomers.waiting.load(Ordering::Relaxed), MOST);
    }
}
