//! The result type for a line of a program.

use serde::{Deserialize, Serialize};

/// A line of the user's program, or of a library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Site {
    /// The file, as the program named it.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// The function that the line is in.
    pub function: String,
    /// The line's text, where the file could be read.
    #[serde(default)]
    pub text: Option<String>,
    /// The number of the notebook's cell that the line is in, as in `In [5]`; the line counts from the cell's first.
    #[serde(default)]
    pub cell: Option<u64>,
}
