//! Opens a file to collect: in a folder, in a tar file, in an object store.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::PathBuf;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

/// Files up to this size are held in memory, in bytes; larger ones are read twice, once for their hash.
pub const IN_MEMORY: u64 = 8 << 20;

/// A file to collect.
pub struct Item {
    /// Where it was found, as the user would name it.
    pub path: String,
    /// When it was last written, in microseconds since 1970.
    pub modified_us: i64,
    /// Its size in bytes.
    pub size: u64,
    /// Its content.
    pub body: Body,
    /// What a dry run named, in addition to a snapshot.
    pub names: Option<PathBuf>,
}

/// The content of a file.
pub enum Body {
    /// It lies on a disk.
    File(PathBuf),
    /// It is in memory.
    Memory(Bytes),
    /// It was copied from where it cannot be read twice.
    Copied(NamedTempFile),
}

impl Body {
    /// Keeps what a reader gives: in memory where that is little, else in a temporary file.
    ///
    /// # Errors
    /// When it cannot be read, or the disk is full.
    pub fn keep(mut reader: impl Read) -> io::Result<(Self, u64)> {
        let mut start = Vec::new();
        reader.by_ref().take(IN_MEMORY).read_to_end(&mut start)?;
        if (start.len() as u64) < IN_MEMORY {
            let size = start.len() as u64;
            return Ok((Self::Memory(start.into()), size));
        }
        let mut file = NamedTempFile::new()?;
        let size = io::copy(&mut Cursor::new(start).chain(reader), &mut file)?;
        Ok((Self::Copied(file), size))
    }

    /// Reads it into memory where it is little.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn load(&mut self) -> io::Result<()> {
        if let Self::File(path) = self {
            // A pipe or a device among the files would never end.
            let metadata = std::fs::metadata(&path)?;
            if !metadata.is_file() {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not an ordinary file"));
            }
            if metadata.len() <= IN_MEMORY {
                *self = Self::Memory(std::fs::read(path)?.into());
            }
        }
        Ok(())
    }

    /// Reads it from its beginning.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(&self) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Self::File(path) => Box::new(BufReader::with_capacity(256 << 10, File::open(path)?)),
            Self::Memory(bytes) => Box::new(Cursor::new(bytes.clone())),
            Self::Copied(file) => Box::new(BufReader::with_capacity(256 << 10, file.reopen()?)),
        })
    }

    /// The hash of its content.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn id(&self) -> io::Result<Id> {
        if let Self::Memory(bytes) = self {
            return Ok(Id::of(bytes));
        }
        let mut hasher = Sha256::new();
        let mut reader = self.open()?;
        let mut buffer = vec![0; 256 << 10];
        loop {
            match reader.read(&mut buffer)? {
                0 => return Ok(Id::from_hash(&hasher.finalize())),
                read => hasher.update(&buffer[..read]),
            }
        }
    }
}

/// The first half of a SHA-256: with a billion files, two of the same have a chance of 1 in 10^21.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(pub u128);

impl Id {
    /// The hash of bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_hash(&Sha256::digest(bytes))
    }

    fn from_hash(hash: &[u8]) -> Self {
        Self(hash.iter().take(16).fold(0, |number, byte| (number << 8) | u128::from(*byte)))
    }

    /// The hash that a text of [`Id::to_string`] is of.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok().map(Self)).flatten()
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_does_not_depend_on_where_the_content_lies() {
        let content = vec![7; IN_MEMORY as usize + 1];
        let (copied, size) = Body::keep(&content[..]).unwrap();
        assert!(matches!(copied, Body::Copied(_)));
        assert_eq!(size, content.len() as u64);
        let id = copied.id().unwrap();
        assert_eq!(id, Id::of(&content));
        assert_eq!(Id::parse(&id.to_string()), Some(id));
        // The hash that sha256sum prints for "abc".
        assert_eq!(Id::of(b"abc").to_string(), "ba7816bf8f01cfea414140de5dae2223");
    }
}
