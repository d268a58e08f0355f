//! Charging the ledger, and notes for the report. Without a ledger there are no cards and nothing is noted.

use oomph_ledger::{DeviceDescription, Kind, NoteKind};

use super::Gpu;
use crate::device_log::Kind as Logged;
use crate::space;

impl Gpu {
    /// The cards of the run, by ledger index; none without a ledger.
    pub fn cards(&self) -> &[DeviceDescription] {
        self.books().map_or(&[], |books| books.cards())
    }

    /// What a card can hold, in bytes; `None` without a ledger.
    pub fn capacity_bytes(&self, card: usize) -> Option<u64> {
        self.books()?.capacity_bytes(card)
    }

    /// Gives back what processes hold that died without saying so, as a driver does: before somebody asks what is free.
    pub fn forget_dead(&self) {
        if let Some(books) = self.books() {
            books.sweep_dead();
        }
    }

    /// Bytes of a card that nobody holds.
    pub fn free_bytes(&self, card: usize) -> u64 {
        self.books().map_or(0, |books| books.free_bytes(card))
    }

    /// Charges `bytes` on a card to this process, or refuses what the card cannot hold.
    pub fn charge(&self, card: usize, kind: Kind, bytes: u64) -> bool {
        self.books().is_some_and(|books| books.charge(card, kind, bytes))
    }

    /// As [`charge`](Self::charge), for an internal best-effort request: a failure is not counted as a refusal.
    pub fn charge_if_free(&self, card: usize, kind: Kind, bytes: u64) -> bool {
        self.books().is_some_and(|books| books.charge_if_free(card, kind, bytes))
    }

    /// Gives back what [`charge`](Self::charge) took.
    pub fn release(&self, card: usize, kind: Kind, bytes: u64) {
        if let Some(books) = self.books() {
            books.release(card, kind, bytes);
        }
    }

    /// Every process that holds memory on a card, with the bytes it holds.
    pub fn holders(&self, card: usize) -> Vec<(u32, u64)> {
        self.books().map_or_else(Vec::new, |books| books.holders(card))
    }

    /// Leaves a note in the ledger.
    pub fn note(&self, kind: NoteKind, text: &str) {
        if let Some(books) = self.books() {
            books.note(kind, text);
        }
    }

    /// Leaves a sentence for the report's warnings. The report shows equal ones once.
    #[cold]
    pub fn warn(&self, sentence: &str) {
        self.note(NoteKind::Warning, sentence);
    }

    /// Takes `span` bytes of address space, a multiple of [`space::GRANULE`]. Where the host has no more, the report names
    /// its limit.
    pub fn take_addresses(&self, span: usize) -> Option<usize> {
        let start = self.space.lock().take(span);
        if start.is_none()
            && let Some(limit) = space::host_limit()
        {
            self.note(NoteKind::HostLimit, &limit);
        }
        start
    }

    /// Logs a request, in bytes, that a card could not hold.
    pub fn log_refusal(&self, card: usize, size: usize) {
        self.log.note(Logged::Refuse, card, self.free_bytes(card) as usize, size);
    }

    /// Leaves word that a card refused a request of `bytes`, as the program asked for them. Called without a lock held.
    #[cold]
    pub fn request_refused(&self, card: usize, bytes: usize) {
        self.activity.refused(self.books(), card, bytes);
    }
}
