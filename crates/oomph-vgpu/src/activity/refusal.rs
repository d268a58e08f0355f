//! The last allocation that a card refused, and the calls that led to it: `device/PID.refused.json`, which
//! `docs/internals/run-folder.md` describes.
//!
//! It is written at once and not when the process ends, because a program that cannot have its memory often ends
//! without a good-bye. Where sites are not followed nothing is written: in Python the hook sees the error itself.

use std::fmt::Write as _;

use super::{site, write};
use crate::books;
use crate::status::OUT_OF_MEMORY;

/// Leaves word that a card refused a request of `bytes`, as the program asked for them, if `status` says so. Called
/// without a lock held: the files are looked up through the loader, which may wait for other threads of the program.
#[cold]
pub fn note(status: u32, card: usize, bytes: usize) {
    if status != OUT_OF_MEMORY {
        return;
    }
    let Some(stack) = site::of_caller() else { return };
    let Some(folder) = books::run_folder() else { return };
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "{{\"pid\":{},\"card\":{card},\"bytes\":{bytes},\"free_bytes\":{},",
        std::process::id(),
        books::free_bytes(card)
    );
    write::frames(&mut text, &site::places(&stack));
    text.push('}');
    write::put(&folder, &format!("{}.refused.json", std::process::id()), &text);
}
