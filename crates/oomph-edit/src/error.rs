//! The error of a remedy that cannot be placed.

use std::fmt;

/// Why a remedy cannot be placed with certainty, in a clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CannotPlace(pub String);

impl fmt::Display for CannotPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for CannotPlace {}
