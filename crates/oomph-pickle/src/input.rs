//! Bytes in order, with their offset.

use std::io::{self, Read};

use crate::error::{Error, Problem};

/// How much is asked of the source at once, in bytes.
const CHUNK: usize = 1 << 18;

/// A source read through a buffer. The source may be a pipe, or a file that still changes: nothing is mapped.
pub(crate) struct Input<R> {
    source: R,
    buffer: Vec<u8>,
    /// The next byte in `buffer`.
    at: usize,
    /// One past the last byte in `buffer` that was read.
    end: usize,
    /// The offset of `buffer`'s first byte in the source.
    before: u64,
}

impl<R: Read> Input<R> {
    pub(crate) fn new(source: R) -> Self {
        Self { source, buffer: vec![0; CHUNK], at: 0, end: 0, before: 0 }
    }

    /// The offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.before + self.at as u64
    }

    /// What is in the buffer; perhaps nothing.
    #[inline]
    pub(crate) fn buffered(&self) -> &[u8] {
        &self.buffer[self.at..self.end]
    }

    /// Passes over bytes that [`buffered`](Self::buffered) has shown.
    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        self.at = (self.at + count).min(self.end);
    }

    /// The next `N` bytes.
    #[inline]
    pub(crate) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        if self.end - self.at < N {
            self.fill(N)?;
        }
        let bytes = self.buffer[self.at..].first_chunk::<N>().copied().unwrap_or([0; N]);
        self.at += N;
        Ok(bytes)
    }

    /// The next `count` bytes, which are at most a chunk.
    #[inline]
    fn near(&mut self, count: usize) -> Result<&[u8], Error> {
        if self.end - self.at < count {
            self.fill(count)?;
        }
        let start = self.at;
        self.at += count;
        Ok(&self.buffer[start..start + count])
    }

    /// Hands the next `count` bytes to `take`. A length comes from the file, so that memory for bytes which are not in
    /// one buffer is only taken as they arrive.
    #[inline]
    pub(crate) fn with<T>(&mut self, count: u64, take: impl FnOnce(&[u8]) -> T) -> Result<T, Error> {
        if count <= CHUNK as u64 {
            return self.near(count as usize).map(take);
        }
        let mut whole = Vec::new();
        self.pass(count, |part| whole.extend_from_slice(part))?;
        Ok(take(&whole))
    }

    /// Reads over `count` bytes.
    pub(crate) fn skip(&mut self, count: u64) -> Result<(), Error> {
        self.pass(count, |_| ())
    }

    /// The bytes up to the next line feed, which is read too. They are at most `most`.
    pub(crate) fn line(&mut self, most: usize) -> Result<Vec<u8>, Error> {
        let mut line = Vec::new();
        loop {
            let buffered = self.buffered();
            let ended = buffered.iter().position(|&byte| byte == b'\n');
            let part = &buffered[..ended.unwrap_or(buffered.len())];
            if part.len() > most - line.len() {
                return Err(Error { offset: self.offset(), problem: Problem::LongLine(most) });
            }
            line.extend_from_slice(part);
            let read = part.len() + usize::from(ended.is_some());
            self.consume(read);
            if ended.is_some() {
                return Ok(line);
            }
            self.fill(1)?;
        }
    }

    fn pass(&mut self, mut count: u64, mut see: impl FnMut(&[u8])) -> Result<(), Error> {
        while count > 0 {
            let part = count.min(CHUNK as u64) as usize;
            see(self.near(part)?);
            count -= part as u64;
        }
        Ok(())
    }

    /// Reads until `count` bytes, at most a chunk, are in the buffer.
    #[cold]
    fn fill(&mut self, count: usize) -> Result<(), Error> {
        self.buffer.copy_within(self.at..self.end, 0);
        self.before += self.at as u64;
        self.end -= self.at;
        self.at = 0;
        while self.end < count {
            let problem = match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => Problem::Cut,
                Ok(read) => {
                    self.end += read;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // A compressed file that is cut short.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Problem::Cut,
                Err(error) => Problem::Io(error),
            };
            return Err(Error { offset: self.before + self.end as u64, problem });
        }
        Ok(())
    }
}
