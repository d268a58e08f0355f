//! Reads bytes of a file from a disk, or from a server that answers ranges.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use crate::ModelError;

/// Something that can be asked for a range of its bytes.
pub trait Source {
    /// The whole length in bytes.
    fn len(&self) -> u64;

    /// Whether there is nothing in it.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` where the source ends before the buffer is full, and whatever the system says.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

/// A file on disk.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    length: u64,
}

impl FileSource {
    /// Opens a file.
    ///
    /// # Errors
    /// When it cannot be opened, or is not a regular file: a pipe of that name would block forever.
    pub fn open(path: &Path) -> io::Result<Self> {
        // Opening a pipe waits for who writes into it, so it is looked at before.
        let regular = |found: &std::fs::Metadata| {
            let error = || io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file");
            if found.is_file() { Ok(()) } else { Err(error()) }
        };
        regular(&std::fs::metadata(path)?)?;
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        regular(&metadata)?;
        Ok(Self { file, length: metadata.len() })
    }
}

impl Source for FileSource {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(offset))?;
        self.file.read_exact(buffer)
    }
}

impl Source for &[u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let rest = usize::try_from(offset).ok().and_then(|start| self.get(start..));
        let bytes = rest.and_then(|rest| rest.get(..buffer.len())).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }
}

/// Reads a header of unknown length from the front of a source, a piece at a time.
pub(crate) struct Front<'a> {
    source: &'a mut dyn Source,
    /// Offset in the source of the next byte that is handed out.
    offset: u64,
    buffer: Vec<u8>,
    used: usize,
    piece: u64,
}

/// Bytes that are asked for at first: most headers fit, and one request to a server brings as much for the price.
const FIRST_PIECE: u64 = 256 << 10;
/// The most that is asked for at once.
const LARGEST_PIECE: u64 = 8 << 20;

impl<'a> Front<'a> {
    pub(crate) fn new(source: &'a mut dyn Source) -> Self {
        Self { source, offset: 0, buffer: Vec::new(), used: 0, piece: FIRST_PIECE }
    }

    /// Offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes between here and the end of the source.
    pub(crate) fn remaining(&self) -> u64 {
        self.source.len().saturating_sub(self.offset)
    }

    /// The next `count` bytes, which the caller has bounded.
    pub(crate) fn take(&mut self, count: usize) -> Result<&[u8], ModelError> {
        if self.buffer.len() - self.used < count {
            self.fill(count)?;
        }
        let start = self.used;
        self.used += count;
        self.offset += count as u64;
        Ok(&self.buffer[start..start + count])
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], ModelError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    /// Passes over bytes without asking for them where they have not been read yet.
    pub(crate) fn skip(&mut self, count: u64) -> Result<(), ModelError> {
        if count > self.remaining() {
            return Err(self.cut(count));
        }
        let buffered = (self.buffer.len() - self.used) as u64;
        if count <= buffered {
            self.used += count as usize;
        } else {
            self.buffer.clear();
            self.used = 0;
        }
        self.offset += count;
        Ok(())
    }

    fn fill(&mut self, count: usize) -> Result<(), ModelError> {
        let wanted = count as u64;
        if wanted > self.remaining() {
            return Err(self.cut(wanted));
        }
        self.buffer.drain(..self.used);
        self.used = 0;
        let missing = wanted - self.buffer.len() as u64;
        let at = self.offset + self.buffer.len() as u64;
        let rest = self.source.len().saturating_sub(at);
        let piece = missing.max(self.piece).min(rest);
        self.piece = (self.piece * 2).min(LARGEST_PIECE);
        let old = self.buffer.len();
        // The piece is no longer than the source, so a header that lies about a length cannot ask for more memory.
        self.buffer.resize(old + piece as usize, 0);
        let read = self.source.read_at(at, &mut self.buffer[old..]);
        read.map_err(|source| ModelError::Read { offset: at, wanted: piece, source })
    }

    fn cut(&self, wanted: u64) -> ModelError {
        ModelError::Read { offset: self.offset, wanted, source: io::Error::from(io::ErrorKind::UnexpectedEof) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_front_reads_in_pieces_and_skips_without_reading() {
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
        let mut source = bytes.as_slice();
        let mut front = Front::new(&mut source);
        assert_eq!(front.take(3).unwrap(), &bytes[..3]);
        front.skip(400_000).unwrap();
        assert_eq!(front.take(5).unwrap(), &bytes[400_003..400_008]);
        assert_eq!(front.take(500_000).unwrap(), &bytes[400_008..900_008]);
        assert_eq!(front.offset(), 900_008);
        assert!(matches!(front.take(100_000), Err(ModelError::Read { offset: 900_008, wanted: 100_000, .. })));
        assert!(front.skip(u64::MAX).is_err());
    }
}
