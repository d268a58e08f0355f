//! Reads a recording in any of the formats.

use std::io::{self, Read};
use std::path::Path;

use crate::error::Fault;
use crate::pickle::Limits;
use crate::source::{self, Format};
use crate::{ReadError, Trace, document, snapshot};

/// How to read.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Use what precedes the point at which a file breaks off or goes wrong, with a note, instead of an error.
    pub salvage: bool,
    /// The most memory that reading may take, in bytes. A file is also refused when it takes far more memory than its
    /// size explains.
    pub memory_limit: u64,
    /// Unpack a compressed file however much it grows. Without it, one that grows to more than 256 MiB and to more than
    /// 200 times its size is refused.
    pub any_growth: bool,
}

impl Default for ReadOptions {
    /// No salvage, and 4 GiB: a snapshot of 2 GB takes less than one.
    fn default() -> Self {
        Self { salvage: false, memory_limit: 4 << 30, any_growth: false }
    }
}

/// Reads the file at `path`, or standard input for `-`, whatever its format: a memory snapshot (pickle, also from
/// `torch.save`), or one of the others that [`SourceKind`](crate::SourceKind) names; gzip and zstd are unpacked.
///
/// # Errors
/// When the file cannot be opened, is of no known format, breaks off, or is not what it says it is.
pub fn read(path: &Path, options: &ReadOptions) -> Result<Trace, ReadError> {
    if path.as_os_str() == "-" {
        return read_from(io::stdin().lock(), "standard input", options);
    }
    let name = path.display().to_string();
    let file =
        crate::open(path).map_err(|error| ReadError { name: name.clone(), offset: None, cause: error.into() })?;
    read_from(file, &name, options)
}

/// Reads from anything; `name` is for messages.
///
/// # Errors
/// As for [`read`].
pub fn read_from(reader: impl Read, name: &str, options: &ReadOptions) -> Result<Trace, ReadError> {
    read_any(reader, options).map_err(|fault| fault.named(name))
}

fn read_any(reader: impl Read, options: &ReadOptions) -> Result<Trace, Fault> {
    let (source, format) = source::open(reader, options.any_growth)?;
    let limits = Limits { memory: options.memory_limit };
    match format {
        Format::Pickle => snapshot::read_pickle(source, limits, options.salvage),
        Format::Json => document::read(source, options.memory_limit, options.salvage),
    }
}
