//! Where a call comes from: return addresses, and the files that they lie in.

/// Frames of a call that are kept, from the innermost outside this library on: a program that calls CUDA through
/// libraries has its own line far out.
pub const DEEPEST: usize = 24;
/// Return addresses, the innermost first; zeros behind the last.
pub type Stack = [usize; DEEPEST];

/// Where an address lies, for somebody who has the files.
#[derive(Clone)]
pub struct Place {
    /// The program or library, or the Python file.
    pub module: String,
    /// The address in its file's own terms, as debug information counts; of a Python file the line.
    pub offset: usize,
    /// The function, where the symbols tell.
    pub function: Option<String>,
}
