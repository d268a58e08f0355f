//! Opens compressed files, recognised by their first bytes.

use std::io::{self, BufRead, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    Gzip,
    Zstd,
}

impl Compression {
    /// What the first bytes of a file promise.
    pub fn of(start: &[u8]) -> Option<Self> {
        match start {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Begins to unpack. Unless `any_growth`, reading ends with [`QuotaExceeded`](io::ErrorKind::QuotaExceeded) where
    /// there is far more in it than files of this size hold.
    ///
    /// # Errors
    /// When what follows the first bytes is not a beginning of such a file.
    pub fn unpack<R: BufRead>(self, reader: R, any_growth: bool) -> io::Result<Unpacked<R>> {
        let reader = Counted { reader, read: 0 };
        let decoder = match self {
            Self::Gzip => Decoder::Gzip(MultiGzDecoder::new(reader)),
            Self::Zstd => {
                let broken = |error| io::Error::new(io::ErrorKind::InvalidData, format!("broken zstd data: {error}"));
                Decoder::Zstd(Box::new(StreamingDecoder::new(reader).map_err(broken)?))
            }
        };
        Ok(Unpacked { decoder, unpacked: 0, any_growth })
    }
}

/// How many times its size a compressed file may grow to. Logs of equal lines reach about 150, snapshots 30.
pub(crate) const MOST_GROWTH: u64 = 200;

/// What a file may grow to in any case, in bytes: little enough to be harmless.
const HARMLESS: u64 = 256 << 20;

/// What is in a compressed file.
pub(crate) struct Unpacked<R: BufRead> {
    decoder: Decoder<R>,
    /// Bytes that were handed out.
    unpacked: u64,
    any_growth: bool,
}

enum Decoder<R: BufRead> {
    Gzip(MultiGzDecoder<Counted<R>>),
    Zstd(Box<StreamingDecoder<Counted<R>, FrameDecoder>>),
}

/// Counts the bytes of the compressed file.
struct Counted<R> {
    reader: R,
    read: u64,
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.read += read as u64;
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.read += amount as u64;
        self.reader.consume(amount);
    }
}

impl<R: BufRead> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (read, packed) = match &mut self.decoder {
            Decoder::Gzip(decoder) => (decoder.read(buffer)?, decoder.get_ref().read),
            Decoder::Zstd(decoder) => (decoder.read(buffer)?, decoder.get_ref().read),
        };
        self.unpacked += read as u64;
        let grows = self.unpacked > HARMLESS && self.unpacked / MOST_GROWTH > packed;
        if grows && !self.any_growth {
            let text = format!(
                "the compressed file grows to more than {MOST_GROWTH} times its size; pass --no-limit if you trust it"
            );
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_grows_too_much_is_refused_unless_that_is_wanted() {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        let zeros = vec![0; 1 << 20];
        for _ in 0..=HARMLESS >> 20 {
            packed.write_all(&zeros).expect("it is packed");
        }
        let packed = packed.finish().expect("it is packed");
        let unpack = |any_growth| {
            let mut unpacked = Compression::Gzip.unpack(&packed[..], any_growth).expect("it begins");
            io::copy(&mut unpacked, &mut io::sink())
        };
        assert_eq!(unpack(false).expect_err("it grows").kind(), io::ErrorKind::QuotaExceeded);
        assert_eq!(unpack(true).expect("it is read"), HARMLESS + (1 << 20));
    }
}
