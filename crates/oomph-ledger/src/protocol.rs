//! Charges memory to a card, from several processes, over shared words and without a lock between them.
//!
//! A card's counter of bytes in use is raised first, and only as far as its capacity, then the books of the process; giving
//! back goes the other way round. So what the card counts is never less than what living processes hold, and a process
//! that dies on the way makes the card look fuller, never emptier. `tests/protocol.rs` runs this code in every order that
//! threads can take (loom), with deaths in between.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

use crate::layout::{
    DeviceWord, HeaderWord, Kind, MAX_PROCESSES, PROCESS_AT_PEAK, PROCESS_USED, device_word, process_device_word,
    process_word,
};

/// The words of a ledger, wherever they lie.
pub trait Words {
    /// The word at an index of the layout.
    fn word(&self, index: usize) -> &AtomicU64;

    /// What a card can hold, in bytes.
    fn capacity(&self, device: usize) -> Option<u64>;

    /// How many cards there are.
    fn devices(&self) -> usize;

    /// Takes a slot for a process; `None` where there are no more. The start time distinguishes processes with the same
    /// id.
    fn take_slot(&self, pid: u32, start_time: u64) -> Option<usize> {
        let slot = self.word(HeaderWord::Processes as usize).fetch_add(1, Ordering::Relaxed);
        let slot = usize::try_from(slot).ok().filter(|slot| *slot < MAX_PROCESSES)?;
        self.word(process_word(slot) + 1).store(start_time, Ordering::Relaxed);
        // Who sees the number sees the time.
        self.word(process_word(slot)).store(u64::from(pid), Ordering::Release);
        Some(slot)
    }

    /// How many slots were taken.
    fn slots(&self) -> usize {
        let taken = self.word(HeaderWord::Processes as usize).load(Ordering::Relaxed);
        usize::try_from(taken).unwrap_or(MAX_PROCESSES).min(MAX_PROCESSES)
    }

    /// The process of a slot; 0 where it is only being taken.
    fn process(&self, slot: usize) -> u32 {
        self.word(process_word(slot)).load(Ordering::Acquire) as u32
    }

    /// Bytes that a slot's process holds on a card.
    fn held(&self, slot: usize, device: usize) -> u64 {
        self.word(process_device_word(slot, device)).load(Ordering::Relaxed)
    }

    /// Takes bytes from a card if it has them.
    fn take(&self, device: usize, bytes: u64) -> bool {
        let Some(capacity) = self.capacity(device) else { return false };
        let used = self.word(device_word(device, DeviceWord::Used));
        let taken = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|used| *used <= capacity)
        });
        if let Ok(before) = taken {
            self.word(device_word(device, DeviceWord::Peak)).fetch_max(before + bytes, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    /// Enters taken bytes in the books of a process. Gives what it holds now, if that is a new peak; the composition of a
    /// peak is kept by [`keep_peak`](Self::keep_peak).
    fn enter(&self, slot: usize, device: usize, kind: Kind, bytes: u64) -> Option<u64> {
        let at = process_device_word(slot, device);
        self.word(at + PROCESS_USED + kind as usize).fetch_add(bytes, Ordering::Relaxed);
        let held = self.word(at).fetch_add(bytes, Ordering::Relaxed) + bytes;
        (held > self.word(at + 1).load(Ordering::Relaxed)).then_some(held)
    }

    /// Keeps a peak with what it is made of. The threads of a process do this one at a time.
    fn keep_peak(&self, slot: usize, device: usize, held: u64) {
        let at = process_device_word(slot, device);
        if held > self.word(at + 1).load(Ordering::Relaxed) {
            self.word(at + 1).store(held, Ordering::Relaxed);
            for kind in Kind::ALL {
                let used = self.word(at + PROCESS_USED + kind as usize).load(Ordering::Relaxed);
                self.word(at + PROCESS_AT_PEAK + kind as usize).store(used, Ordering::Relaxed);
            }
        }
    }

    /// Gives back what was taken and entered.
    fn give_back(&self, slot: usize, device: usize, kind: Kind, bytes: u64) {
        let at = process_device_word(slot, device);
        self.word(at).fetch_sub(bytes, Ordering::Relaxed);
        self.word(at + PROCESS_USED + kind as usize).fetch_sub(bytes, Ordering::Relaxed);
        self.word(device_word(device, DeviceWord::Used)).fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Gives back what a slot's process holds on every card. Two that do this at once give it back once.
    fn clear(&self, slot: usize) {
        for device in 0..self.devices() {
            let at = process_device_word(slot, device);
            let held = self.word(at).swap(0, Ordering::Relaxed);
            self.word(device_word(device, DeviceWord::Used)).fetch_sub(held, Ordering::Relaxed);
            for kind in Kind::ALL {
                self.word(at + PROCESS_USED + kind as usize).store(0, Ordering::Relaxed);
            }
        }
    }

    /// Gives back what processes hold that died without saying so. Returns whether there were any. `lives` is asked about a
    /// process and its start time.
    fn sweep(&self, lives: &dyn Fn(u32, u64) -> bool) -> bool {
        let mut found = false;
        for slot in 0..self.slots() {
            let pid = self.process(slot);
            let holds = (0..self.devices()).any(|device| self.held(slot, device) > 0);
            if holds && pid != 0 && !lives(pid, self.word(process_word(slot) + 1).load(Ordering::Relaxed)) {
                self.clear(slot);
                found = true;
            }
        }
        found
    }
}
