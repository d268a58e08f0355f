//! Lists the blocks that PyTorch's allocator handed out since the hook last asked.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::lock::{Mutex, Rank};

/// So many blocks are listed before those that were handed out several times are merged.
const LISTED: usize = 8192;
/// Blocks of at most so many bytes begin as zeros: what is read of them before anything is seen to be written is zero.
const ZEROED: usize = 4096;
/// A test's pattern fills at most so many bytes of a block. The values of larger ones are not computed.
const PATTERN_ROOM: usize = 1 << 20;
/// The pattern: as a number of any type it is none that a program works with.
pub const PATTERN: u8 = 0x5a;

/// The blocks that were handed out since the hook last asked.
pub struct Handed {
    /// How many are listed: what the hook reads without a call.
    waiting: AtomicUsize,
    list: Mutex<Listed>,
    with_pattern: AtomicBool,
}

struct Listed {
    /// Address and size in bytes, in the order in which they were handed out.
    blocks: Vec<[usize; 2]>,
    /// The length at which the list is made shorter.
    limit: usize,
}

impl Handed {
    /// No block.
    pub const fn new() -> Self {
        let listed = Listed { blocks: Vec::new(), limit: LISTED };
        Self {
            waiting: AtomicUsize::new(0),
            list: Mutex::new(Rank::Handed, listed),
            with_pattern: AtomicBool::new(false),
        }
    }

    /// Where the number of listed blocks lies.
    pub fn waiting(&self) -> *const usize {
        self.waiting.as_ptr()
    }

    /// Has blocks begin with a pattern, for a test of what is read before it is written.
    pub fn begin_with_pattern(&self) {
        self.with_pattern.store(true, Ordering::Relaxed);
    }

    /// Notes a block.
    pub fn add(&self, address: usize, size: usize) {
        let mut list = self.list.lock();
        if list.blocks.len() >= list.limit {
            list.merge();
        }
        list.blocks.push([address, size]);
        self.waiting.store(list.blocks.len(), Ordering::Release);
    }

    /// Takes as many blocks off the list as there is room for, the earliest first.
    pub fn take(&self, to: &mut [[usize; 2]]) -> usize {
        let mut list = self.list.lock();
        let count = list.blocks.len().min(to.len());
        for (place, block) in to.iter_mut().zip(list.blocks.drain(..count)) {
            *place = block;
        }
        self.waiting.store(list.blocks.len(), Ordering::Release);
        count
    }

    /// What a new block of `size` bytes begins with: a byte, and how often.
    pub fn first_bytes(&self, size: usize) -> Option<(u8, usize)> {
        if self.with_pattern.load(Ordering::Relaxed) {
            return Some((PATTERN, size.min(PATTERN_ROOM)));
        }
        (size <= ZEROED).then_some((0, size))
    }
}

impl Listed {
    /// Keeps of each address what was handed out last.
    fn merge(&mut self) {
        self.blocks.reverse();
        self.blocks.sort_by_key(|block| block[0]);
        self.blocks.dedup_by_key(|block| block[0]);
        self.limit = LISTED.max(2 * self.blocks.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_nobody_asks_for_stays_short_and_keeps_the_last() {
        let handed = Handed::new();
        for round in 1..=5 * LISTED {
            handed.add(round % 100, round);
        }
        let mut room = vec![[0; 2]; 2 * LISTED];
        let count = handed.take(&mut room);
        assert!(count <= LISTED);
        let last: std::collections::BTreeMap<_, _> =
            room[..count].iter().map(|&[address, size]| (address, size)).collect();
        assert_eq!(last.len(), 100);
        assert!(last.values().all(|&size| size > 5 * LISTED - 100));
    }
}
