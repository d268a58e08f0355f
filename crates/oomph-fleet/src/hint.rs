//! Errors with advice.

use std::fmt;

/// An error of one line, and one line of advice.
#[derive(Debug)]
pub struct Hinted {
    message: String,
    /// What to do.
    pub hint: String,
}

impl fmt::Display for Hinted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Hinted {}

/// An error with advice.
pub fn hinted(message: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Hinted { message: message.into(), hint: hint.into() }.into()
}
