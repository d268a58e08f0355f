//! Logs in UTF-16, which is what `>` in Windows PowerShell 5 writes.

use std::io::{self, Read};

/// Bytes that are read at a time.
const BLOCK: usize = 16 << 10;

/// Hands on what a reader gives: converted to UTF-8 where it begins with the mark of UTF-16, else unchanged.
pub(crate) struct Utf8<R> {
    reader: R,
    /// `None` until the first bytes are there.
    encoding: Option<Encoding>,
    /// Bytes that were read and not yet handed on; of UTF-16, at most the beginning of a character.
    raw: Vec<u8>,
    /// Text that was not yet handed on.
    text: Vec<u8>,
    /// How many bytes the reader gave.
    taken: u64,
    ended: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Bytes,
    Utf16LittleEndian,
    Utf16BigEndian,
}

impl<R: Read> Utf8<R> {
    pub fn new(reader: R) -> Self {
        Self { reader, encoding: None, raw: Vec::new(), text: Vec::new(), taken: 0, ended: false }
    }

    /// How many bytes the reader gave: those of the log itself, not of its text.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Reads until the two bytes are there that a mark has.
    fn encoding(&mut self) -> io::Result<Encoding> {
        if let Some(known) = self.encoding {
            return Ok(known);
        }
        while self.raw.len() < 2 && !self.ended {
            self.fill()?;
        }
        let encoding = match self.raw.as_slice() {
            [0xff, 0xfe, ..] => Encoding::Utf16LittleEndian,
            [0xfe, 0xff, ..] => Encoding::Utf16BigEndian,
            _ => Encoding::Bytes,
        };
        if encoding == Encoding::Bytes {
            self.text = std::mem::take(&mut self.raw);
        } else {
            self.raw.drain(..2);
        }
        self.encoding = Some(encoding);
        Ok(encoding)
    }

    fn fill(&mut self) -> io::Result<()> {
        let held = self.raw.len();
        self.raw.resize(held + BLOCK, 0);
        let read = self.reader.read(&mut self.raw[held..]);
        self.raw.truncate(held + read.as_ref().map_or(0, |read| *read));
        let read = read?;
        self.taken += read as u64;
        self.ended |= read == 0;
        Ok(())
    }

    /// Moves whole characters from `raw` to `text`.
    fn decode(&mut self, unit: fn([u8; 2]) -> u16) {
        let mut units: Vec<u16> = self.raw.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect();
        // The second half of a pair is yet to come.
        if !self.ended && units.last().is_some_and(|last| (0xd800..0xdc00).contains(last)) {
            units.pop();
        }
        self.raw.drain(..2 * units.len());
        let text: String =
            char::decode_utf16(units).map(|result| result.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
        self.text.extend_from_slice(text.as_bytes());
    }
}

impl<R: Read> Read for Utf8<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let unit = match self.encoding()? {
            Encoding::Bytes if self.text.is_empty() => {
                let read = self.reader.read(buffer)?;
                self.taken += read as u64;
                return Ok(read);
            }
            Encoding::Bytes | Encoding::Utf16LittleEndian => u16::from_le_bytes,
            Encoding::Utf16BigEndian => u16::from_be_bytes,
        };
        loop {
            self.decode(unit);
            if !self.text.is_empty() || self.ended {
                break;
            }
            self.fill()?;
        }
        let handed = buffer.len().min(self.text.len());
        buffer[..handed].copy_from_slice(&self.text[..handed]);
        self.text.drain(..handed);
        Ok(handed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives so many bytes at a time.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let read = self.1.min(buffer.len()).min(self.0.len());
            buffer[..read].copy_from_slice(&self.0[..read]);
            self.0 = &self.0[read..];
            Ok(read)
        }
    }

    fn read(bytes: &[u8]) -> Vec<String> {
        [1, 2, 3, 5, 4096]
            .into_iter()
            .map(|size| {
                let mut text = Vec::new();
                let mut reader = Utf8::new(Pieces(bytes, size));
                reader.read_to_end(&mut text).unwrap();
                assert_eq!(reader.taken(), bytes.len() as u64);
                String::from_utf8_lossy(&text).into_owned()
            })
            .collect()
    }

    #[test]
    fn every_encoding_reads_as_the_same_text() {
        let text = "CUDA out of memory.\r\n🦀 12 MiB";
        let units: Vec<u16> =
            std::iter::once('\u{feff}').chain(text.chars()).collect::<String>().encode_utf16().collect();
        let little: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        let big: Vec<u8> = units.iter().flat_map(|unit| unit.to_be_bytes()).collect();
        for bytes in [text.as_bytes(), &little, &big] {
            assert!(read(bytes).iter().all(|read| read == text), "{:?}", read(bytes));
        }
    }

    #[test]
    fn short_and_broken_texts_are_read_as_far_as_they_go() {
        assert!(read(b"").iter().all(String::is_empty));
        assert!(read(b"x").iter().all(|read| read == "x"));
        assert!(read(b"\xff\xfe").iter().all(String::is_empty));
        // Half a pair, and half a unit.
        assert!(read(b"\xff\xfea\0\x3d\xd8").iter().all(|read| read == "a\u{fffd}"));
        assert!(read(b"\xff\xfea\0b").iter().all(|read| read == "a"));
    }
}
