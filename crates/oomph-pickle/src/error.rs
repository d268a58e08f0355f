//! The errors of decoding an instruction.

use std::fmt;
use std::io;

/// What is wrong with a pickle, and where.
#[derive(Debug, thiserror::Error)]
pub struct Error {
    /// The offset in the pickle, in bytes.
    pub offset: u64,
    /// What is wrong there.
    #[source]
    pub problem: Problem,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {}", self.offset, self.problem)
    }
}

/// What is wrong with a pickle.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// It ends before its STOP.
    #[error("the pickle is cut short")]
    Cut,
    /// The length of an integer is negative.
    #[error("an integer has a negative number of bytes")]
    NegativeLength,
    /// A line is longer than the caller accepts.
    #[error("a line is longer than {0} bytes")]
    LongLine(usize),
    /// The source could not be read.
    #[error("cannot read it: {0}")]
    Io(#[source] io::Error),
}
