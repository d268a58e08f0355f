//! The errors of reading a file.

use std::fmt;
use std::io;

use oomph_pickle::Problem;

/// A file that could not be read, in one line: which, where in it, what, and what to do.
#[derive(Debug, thiserror::Error)]
pub struct ReadError {
    /// The file's name as the user gave it, or `standard input`.
    pub name: String,
    /// The offset in bytes, in the decompressed data, where there is one.
    pub offset: Option<u64>,
    /// What is wrong.
    #[source]
    pub cause: Cause,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        if let Some(offset) = self.offset {
            write!(f, ", byte {offset}")?;
        }
        write!(f, ": {}", self.cause)?;
        let hint = self.cause.hint();
        if hint.is_empty() { Ok(()) } else { write!(f, "; {hint}") }
    }
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The operating system could not open or read it.
    #[error("cannot read it: {0}")]
    Io(#[from] io::Error),
    /// There is nothing in it.
    #[error("the file is empty")]
    Empty,
    /// It ends before its contents do.
    #[error("the file ends in the middle of its contents")]
    Cut,
    /// It is not a known format.
    #[error("this is {0}, which holds no record of memory")]
    Unknown(String),
    /// It breaks the rules of its format.
    #[error("{0}")]
    Malformed(String),
    /// It is a pickle that wants to run code.
    #[error("the pickle wants to run code ({0}), which a memory snapshot never does")]
    RunsCode(String),
    /// It is compressed, and holds far more than such files do.
    #[error("the compressed file grows to more than {} times its size", crate::compression::MOST_GROWTH)]
    Grows,
    /// Reading on would take more memory than was allowed.
    #[error("reading on would take more than {0} MiB of memory")]
    TooLarge(u64),
}

impl Cause {
    /// What the user can do about it; empty where there is nothing.
    pub fn hint(&self) -> &'static str {
        match self {
            Cause::Io(_) => "",
            Cause::Empty => "the program ended before it had written it, so take the snapshot again",
            Cause::Cut => "copy it again, or pass --salvage to use the part that is there",
            Cause::Unknown(_) => {
                "give a file of torch.cuda.memory._dump_snapshot(), a profiler trace or an exported memory timeline"
            }
            Cause::Malformed(_) => "pass --salvage to use what stands before it",
            Cause::RunsCode(_) => "nothing was run; do not load this file with Python",
            Cause::Grows => "pass --no-limit if you trust it",
            Cause::TooLarge(_) => "record a shorter history (max_entries), or allow more",
        }
    }
}

/// A cause and the offset at which it was found, before the file's name is known.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) offset: Option<u64>,
    pub(crate) cause: Cause,
}

impl Fault {
    pub(crate) fn at(offset: u64, cause: Cause) -> Self {
        Self { offset: Some(offset), cause }
    }

    pub(crate) fn malformed(offset: u64, what: impl Into<String>) -> Self {
        Self::at(offset, Cause::Malformed(what.into()))
    }

    pub(crate) fn named(self, name: &str) -> ReadError {
        ReadError { name: name.to_owned(), offset: self.offset, cause: self.cause }
    }
}

impl From<oomph_pickle::Error> for Fault {
    fn from(error: oomph_pickle::Error) -> Self {
        let cause = match error.problem {
            Problem::Cut => Cause::Cut,
            Problem::Io(error) if error.kind() == io::ErrorKind::QuotaExceeded => Cause::Grows,
            Problem::Io(error) => Cause::Io(error),
            problem @ (Problem::NegativeLength | Problem::LongLine(_)) => Cause::Malformed(problem.to_string()),
        };
        Self::at(error.offset, cause)
    }
}
