//! The values of conditions that no kernel computes: single bytes that graphs of TensorFlow's read back.
//!
//! What lies in such a byte is what was there before. TensorFlow takes it for the number of a branch: a condition that is zero by
//! chance has its branch left out, and any byte but 0 and 1 ends the process. Here each condition is true and false in turn, so that
//! both branches are seen and loops come to their end. What the host wrote is read as it was written, once: pools give the place to
//! others without a word to the driver, and constants that are read again and again lie in host memory.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::lock::{Mutex, Rank};

/// More places than this are not remembered.
const MOST: usize = 4096;

/// What is known of a single byte on a card.
#[derive(Clone, Copy)]
enum Flag {
    /// The host wrote it, and has not read it since.
    Written,
    /// It is to be read as this.
    Next(bool),
}

/// The conditions of a process.
pub struct Flags {
    wanted: AtomicBool,
    places: Mutex<BTreeMap<usize, Flag>>,
}

impl Flags {
    /// Bytes are bytes until [`Flags::are_read`].
    pub const fn new() -> Self {
        Self { wanted: AtomicBool::new(false), places: Mutex::new(Rank::Flags, BTreeMap::new()) }
    }

    /// From now on a byte that the host reads alone is a flag.
    pub fn are_read(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// Whether a byte that the host reads alone is a flag.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// The host wrote one byte at this address of a card.
    pub fn written(&self, address: usize) {
        self.replace(address, |_| Flag::Written);
    }

    /// The value of a flag that is read; `None` where the host wrote it.
    pub fn value(&self, address: usize) -> Option<bool> {
        let known = self.replace(address, |known| match known {
            Some(Flag::Next(value)) => Flag::Next(!value),
            Some(Flag::Written) => Flag::Next(true),
            None => Flag::Next(false),
        });
        match known {
            Some(Flag::Written) => None,
            Some(Flag::Next(value)) => Some(value),
            None => Some(true),
        }
    }

    /// Puts what follows from what was known of a place in its stead; gives what was known.
    fn replace(&self, address: usize, next: impl Fn(Option<Flag>) -> Flag) -> Option<Flag> {
        let mut places = self.places.lock();
        let known = places.get(&address).copied();
        if places.len() >= MOST && known.is_none() {
            places.clear();
        }
        places.insert(address, next(known));
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_condition_is_true_and_false_in_turn() {
        let flags = Flags::new();
        assert_eq!(
            [flags.value(1), flags.value(1), flags.value(2), flags.value(1)],
            [Some(true), Some(false), Some(true), Some(true)]
        );
        flags.written(1);
        assert_eq!((flags.value(1), flags.value(1), flags.value(2)), (None, Some(true), Some(false)));
    }
}
