//! The errors of reading a model's files.

use std::io;

/// Why a model could not be read. The file's name is added by whoever opened it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The file ended, or a device refused, while its header was read.
    #[error("cannot read {wanted} bytes at byte {offset}: {source}")]
    Read {
        /// Where the bytes were expected.
        offset: u64,
        /// How many were expected.
        wanted: u64,
        /// The system's reason.
        source: io::Error,
    },
    /// The file says something that cannot be.
    #[error("not a sound {format} file: {problem} at byte {offset}")]
    Malformed {
        /// The format that was expected.
        format: &'static str,
        /// What is wrong, in a few words.
        problem: String,
        /// Where it is.
        offset: u64,
    },
}

impl ModelError {
    pub(crate) fn malformed(format: &'static str, problem: impl Into<String>, offset: u64) -> Self {
        Self::Malformed { format, problem: problem.into(), offset }
    }
}
