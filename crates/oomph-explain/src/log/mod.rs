//! What a log says about a failure: which memory ran out, by which figures, why, where and what to do.
//!
//! A log is read in one pass and in bounded memory ([`scan`]): lines that hold a known word are matched against one
//! table of messages ([`patterns`]), the message is joined from its lines ([`text`]) and read into typed facts
//! ([`facts`]), and messages about the same crash become one failure ([`incident`]). The figures' identities
//! ([`identities`]), the traceback ([`site`], [`operation`]) and the run's settings ([`settings`]) then speak for causes
//! ([`causes`]), and these for remedies ([`remedies`]). A line without a known message is read by its words ([`words`]).
//!
//! Input is hostile: no line is too long, no number too large, no byte invalid, and the time is linear in the length.

mod aftermath;
mod bfc;
mod by_form;
mod causes;
mod draft;
mod encoding;
mod facts;
mod follow;
mod front_end;
mod identities;
mod incident;
mod ingredients;
mod kind;
mod operation;
mod patterns;
mod place;
mod programs;
mod quoted;
mod remedies;
mod report;
mod scan;
mod settings;
mod site;
mod size;
mod text;
mod words;
mod wrapping;

use std::io::{self, Read};

pub use bfc::{Bin, Heap, SizeClass};
pub use follow::follow;
pub use kind::Kind;
pub use report::{
    AvoidAdvice, Derived, Facts, Failure, NotOom, OtherProcess, Range, RankedCause, RemedyOffer, Report, RunSettings,
    Setting, Site,
};

/// How a log is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The most failures that are kept; of more, the first half and the last half.
    pub most_failures: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { most_failures: 64 }
    }
}

/// Reads a log to its end. Buffering is done here: hand over the file or pipe itself.
///
/// # Errors
/// Only those of the reader: whatever the bytes are, they are a log.
pub fn explain(reader: impl Read, options: &Options) -> io::Result<Report> {
    let mut reader = encoding::Utf8::new(reader);
    let mut scanner = scan::Scanner::new(options.most_failures);
    while scanner.read_from(&mut reader)? {}
    // The scanner was given text, which UTF-16 is shorter or longer than.
    Ok(Report { bytes: reader.taken(), ..scanner.finish() })
}

/// Reads a log that is in memory.
pub fn explain_text(text: &str) -> Report {
    let mut scanner = scan::Scanner::new(Options::default().most_failures);
    scanner.feed(text.as_bytes());
    scanner.finish()
}

#[cfg(test)]
mod table_tests;
