//! The ledger's protocol in every order that threads can take, with processes that die at every instruction.
//!
//!     RUSTFLAGS="--cfg loom" cargo test --release -p oomph-ledger --test protocol
#![cfg(loom)]

use std::cell::Cell;
use std::collections::BTreeMap;

use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;
use oomph_ledger::{DeviceWord, HeaderWord, Kind, Words, device_word, process_device_word, process_word};

const CARD: usize = 0;
const CAPACITY: u64 = 3;
const KIND: Kind = Kind::Malloc;

/// The words of a ledger of one card and two processes.
struct Shared(BTreeMap<usize, AtomicU64>);

impl Shared {
    fn new() -> Self {
        let header = [HeaderWord::Processes as usize];
        let card = [DeviceWord::Used, DeviceWord::Peak].map(|word| device_word(CARD, word));
        let books = (0..2).flat_map(|slot| {
            let at = process_device_word(slot, CARD);
            [process_word(slot), process_word(slot) + 1].into_iter().chain(at..at + 14)
        });
        let all = header.into_iter().chain(card).chain(books);
        Self(all.map(|index| (index, AtomicU64::new(0))).collect())
    }

    fn used(&self) -> u64 {
        self.word(device_word(CARD, DeviceWord::Used)).load(Ordering::Relaxed)
    }

    fn peak(&self) -> u64 {
        self.word(device_word(CARD, DeviceWord::Peak)).load(Ordering::Relaxed)
    }

    fn all_held(&self) -> u64 {
        (0..self.slots()).map(|slot| self.held(slot, CARD)).sum()
    }
}

impl Words for Shared {
    fn word(&self, index: usize) -> &AtomicU64 {
        &self.0[&index]
    }

    fn capacity(&self, _device: usize) -> Option<u64> {
        Some(CAPACITY)
    }

    fn devices(&self) -> usize {
        1
    }
}

/// A process that dies after some accesses: from then on what it does is done to words that nobody else sees.
struct Mortal {
    shared: Arc<Shared>,
    left: Cell<usize>,
    beyond: Shared,
}

impl Mortal {
    fn is_dead(&self) -> bool {
        self.left.get() == 0
    }
}

impl Words for Mortal {
    fn word(&self, index: usize) -> &AtomicU64 {
        if self.is_dead() {
            return self.beyond.word(index);
        }
        self.left.set(self.left.get() - 1);
        self.shared.word(index)
    }

    fn capacity(&self, device: usize) -> Option<u64> {
        self.shared.capacity(device)
    }

    fn devices(&self) -> usize {
        1
    }
}

/// Takes memory, and keeps it if it can.
fn charge(words: &impl Words, slot: usize, bytes: u64) -> bool {
    if !words.take(CARD, bytes) {
        return false;
    }
    if let Some(held) = words.enter(slot, CARD, KIND, bytes) {
        words.keep_peak(slot, CARD, held);
    }
    true
}

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

#[test]
fn a_card_never_gives_more_than_it_has() {
    model(|| {
        let shared = Arc::new(Shared::new());
        let process = |pid: u32| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let slot = shared.take_slot(pid, 7).unwrap();
                let taken = charge(&*shared, slot, 2);
                assert!(shared.used() <= CAPACITY);
                if taken && pid == 1 {
                    shared.give_back(slot, CARD, KIND, 2);
                }
                taken
            })
        };
        let (first, second) = (process(1), process(2));
        let (first, second) = (first.join().unwrap(), second.join().unwrap());
        assert!(first || second, "a card with room refused both");
        assert_eq!(shared.used(), if second { 2 } else { 0 });
        assert_eq!(shared.all_held(), shared.used());
        assert_eq!(shared.peak(), 2);
        assert_eq!(shared.slots(), 2);
    });
}

#[test]
fn two_sweeps_at_once_give_back_once() {
    model(|| {
        let shared = Arc::new(Shared::new());
        let dead = shared.take_slot(1, 7).unwrap();
        assert!(charge(&*shared, dead, 2));
        let living = shared.take_slot(2, 7).unwrap();
        let other = Arc::clone(&shared);
        let lives = |pid: u32, started: u64| (pid, started) == (2, 7);
        let sweeping = thread::spawn(move || other.sweep(&lives));
        let mine = charge(&*shared, living, 2) || shared.sweep(&lives) && charge(&*shared, living, 2);
        sweeping.join().unwrap();
        assert_eq!((shared.used(), shared.all_held()), if mine { (2, 2) } else { (0, 0) });
    });
}

#[test]
fn a_process_that_begins_is_not_swept() {
    model(|| {
        let shared = Arc::new(Shared::new());
        let other = Arc::clone(&shared);
        let sweeping = thread::spawn(move || other.sweep(&|pid, started| (pid, started) == (1, 7)));
        let slot = shared.take_slot(1, 7).unwrap();
        assert!(charge(&*shared, slot, 2));
        assert!(!sweeping.join().unwrap());
        assert_eq!((shared.used(), shared.held(slot, CARD)), (2, 2));
    });
}

/// Whatever instruction a process dies at, others lose at most what it was about to take or to give back, and a sweep
/// at the same time takes nothing from the living.
#[test]
fn a_death_at_any_instruction_costs_no_more_than_it_held() {
    for accesses in 1..=30 {
        model(move || {
            let shared = Arc::new(Shared::new());
            let living = shared.take_slot(1, 7).unwrap();
            assert!(charge(&*shared, living, 1));
            let alive = Arc::new(AtomicBool::new(true));
            let mortal = Mortal { shared: Arc::clone(&shared), left: Cell::new(accesses), beyond: Shared::new() };
            let until_death = Arc::clone(&alive);
            let dying = thread::spawn(move || {
                let slot = mortal.take_slot(2, 7).unwrap();
                if !mortal.is_dead() && charge(&mortal, slot, 2) {
                    mortal.give_back(slot, CARD, KIND, 2);
                }
                until_death.store(false, Ordering::Release);
            });
            let lives = |pid: u32, _: u64| pid == 1 || alive.load(Ordering::Acquire);
            shared.sweep(&lives);
            dying.join().unwrap();
            shared.sweep(&lives);
            let (used, held) = (shared.used(), shared.all_held());
            assert_eq!((held, shared.held(living, CARD)), (1, 1));
            assert!(used == 1 || used == 3, "after a death at access {accesses} the card counts {used}");
        });
    }
}
