//! What was called, and what the report must know of it.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use oomph_ledger::NoteKind;

use crate::books;
use crate::device_log;
use crate::exports::FUNCTIONS;

/// How a function is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A function of this crate answers.
    Answered,
    /// It returns success and moves nothing.
    Compute,
    /// It is refused and named in the report.
    Unsupported,
}

/// One exported function.
#[derive(Debug)]
pub struct Function {
    /// Its exported name.
    pub name: &'static str,
    /// The table that declares it.
    pub library: &'static str,
    /// How it is treated.
    pub class: Class,
}

/// More than the tables will ever hold; a larger id is not counted.
const MOST_FUNCTIONS: usize = 16_384;

static COUNTING: AtomicBool = AtomicBool::new(false);
static CALLS: [AtomicU64; MOST_FUNCTIONS] = [const { AtomicU64::new(0) }; MOST_FUNCTIONS];
static NOTED: [AtomicBool; MOST_FUNCTIONS] = [const { AtomicBool::new(false) }; MOST_FUNCTIONS];

/// Counts a call, if `OOMPH_TRACE` asked for it.
#[inline]
pub fn called(id: usize) {
    if COUNTING.load(Ordering::Relaxed) {
        count(id);
    }
}

#[cold]
fn count(id: usize) {
    if let Some(calls) = CALLS.get(id) {
        calls.fetch_add(1, Ordering::Relaxed);
    }
}

/// Notes the call of a function that is refused, once.
#[cold]
pub fn unsupported(id: usize) {
    count(id);
    let Some(function) = FUNCTIONS.get(id) else { return };
    let first = NOTED.get(id).is_none_or(|noted| !noted.swap(true, Ordering::Relaxed));
    if first {
        books::note(NoteKind::Unsupported, function.name);
    }
}

/// Leaves a sentence for the report's warnings. The report shows equal ones once.
#[cold]
pub fn warn(sentence: &str) {
    books::note(NoteKind::Warning, sentence);
}

/// Starts counting where `OOMPH_TRACE` is set. Called once, when the books are opened.
pub fn start() {
    if std::env::var_os("OOMPH_TRACE").is_some() {
        COUNTING.store(true, Ordering::Relaxed);
    }
}

/// Writes the counts to `calls-PID.txt` in the folder that `OOMPH_TRACE` names, when the process ends.
pub fn finish() {
    device_log::finish();
    static DONE: AtomicBool = AtomicBool::new(false);
    if !COUNTING.load(Ordering::Relaxed) || DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    let Some(folder) = std::env::var_os("OOMPH_TRACE") else { return };
    let mut text = String::new();
    for (function, calls) in FUNCTIONS.iter().zip(&CALLS) {
        let calls = calls.load(Ordering::Relaxed);
        if calls > 0 {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{calls}\t{:?}\t{}\t{}", function.class, function.library, function.name);
        }
    }
    let path = std::path::Path::new(&folder).join(format!("calls-{}.txt", std::process::id()));
    // A trace that cannot be written must not disturb the program that is being traced.
    let _ = std::fs::write(path, text);
}
