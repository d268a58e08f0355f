//! The last allocation that a card refused, and the calls that led to it: `device/PID.refused.json`, which
//! `docs/internals/run-folder.md` describes.
//!
//! It is written at once and not when the process ends, because a program that cannot have its memory often ends
//! without a good-bye, and what was counted is written with it. Where the site is not known nothing is written: in Python
//! the hook sees the error itself.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use oomph_protocol::{DEVICE_REFUSAL, paths};

use super::place::Place;
use super::{Activity, site, write};
use crate::books::Books;

impl Activity {
    /// How many requests a card has refused this process: whether an error that does not say so is for lack of memory.
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// Leaves word that a card refused a request of `bytes`, as the program asked for them. Called without a lock held: the
    /// files are looked up through the loader, which may wait for other threads of the program.
    #[cold]
    pub fn refused(&self, books: Option<&Books>, card: usize, bytes: usize) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
        let Some(stack) = self.stacks.of_caller() else { return };
        let Some(books) = books else { return };
        let folder = books.run_folder();
        let text = document(card, bytes, books.free_bytes(card), &site::places(&stack, &self.lines));
        write::put(&folder, &format!("{}{}", std::process::id(), paths::REFUSAL_END), &text);
        self.write_at_refusal(&folder);
    }
}

fn document(card: usize, bytes: usize, free_bytes: u64, places: &[Place]) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "{{\"schema\":\"{DEVICE_REFUSAL}\",\"pid\":{},\"card\":{card},\"bytes\":{bytes},\"free_bytes\":{},",
        std::process::id(),
        free_bytes
    );
    write::frames(&mut text, places);
    text.push('}');
    text
}

#[cfg(test)]
mod tests {
    use oomph_protocol::device::Refusal;

    #[test]
    fn it_is_what_the_protocol_declares() {
        let place = super::Place { module: "/a \"b\"".into(), offset: 16, function: None };
        let text = super::document(1, 512, 7, &[place]);
        let read: Refusal = oomph_protocol::strict::read(text.as_bytes()).unwrap();
        assert_eq!((read.card, read.bytes, read.free_bytes, read.frames[0].offset), (1, 512, 7, 16));
    }
}
