//! Which of the exported functions were called, and which calls the report has to name.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::lock::Once;

include!(concat!(env!("OUT_DIR"), "/functions.rs"));

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

/// Words of the set of functions that were noted: a bit for each. A function beyond is noted at every call.
const WORDS: usize = 256;

/// How often each function was called, by its id.
pub struct Calls {
    /// The counts, if `OOMPH_TRACE` asked for them.
    counts: Once<Box<[AtomicU64]>>,
    /// The refused functions that were noted.
    noted: [AtomicU64; WORDS],
    written: AtomicBool,
}

impl Calls {
    /// Counts nothing yet.
    pub const fn new() -> Self {
        Self { counts: Once::new(), noted: [const { AtomicU64::new(0) }; WORDS], written: AtomicBool::new(false) }
    }

    /// Counts a call, if `OOMPH_TRACE` asked for it.
    #[inline]
    pub fn called(&self, id: usize) {
        if let Some(calls) = self.counts.get().and_then(|counts| counts.get(id)) {
            calls.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a call of a function that is refused. Gives its name at the first call, for the report.
    #[cold]
    pub fn refused(&self, id: usize) -> Option<&'static str> {
        self.called(id);
        let function = FUNCTIONS.get(id)?;
        let bit = 1 << (id % 64);
        let is_known = self.noted.get(id / 64).is_some_and(|word| word.fetch_or(bit, Ordering::Relaxed) & bit != 0);
        (!is_known).then_some(function.name)
    }

    /// Starts counting where `OOMPH_TRACE` is set. Called once, when the books are opened.
    pub fn start(&self) {
        if std::env::var_os("OOMPH_TRACE").is_some() {
            self.counts.get_or_init(|| FUNCTIONS.iter().map(|_| AtomicU64::new(0)).collect());
        }
    }

    /// Writes the counts to `calls-PID.txt` in the folder that `OOMPH_TRACE` names, when the process ends.
    pub fn finish(&self) {
        let Some(counts) = self.counts.get() else { return };
        if self.written.swap(true, Ordering::Relaxed) {
            return;
        }
        let Some(folder) = std::env::var_os("OOMPH_TRACE") else { return };
        let mut text = String::new();
        for (function, calls) in FUNCTIONS.iter().zip(counts) {
            let calls = calls.load(Ordering::Relaxed);
            if calls > 0 {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{calls}\t{:?}\t{}\t{}", function.class, function.library, function.name);
            }
        }
        let path = Path::new(&folder).join(format!("calls-{}.txt", std::process::id()));
        // A trace that cannot be written must not disturb the program that is being traced.
        let _ = std::fs::write(path, text);
    }
}
