//! Compressed files, told by their first bytes.

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

    /// Begins to unpack.
    ///
    /// # Errors
    /// When what follows the first bytes is no beginning of such a file.
    pub fn unpack<R: BufRead>(self, reader: R) -> io::Result<Unpacked<R>> {
        Ok(match self {
            Self::Gzip => Unpacked::Gzip(MultiGzDecoder::new(reader)),
            Self::Zstd => {
                let broken = |error| io::Error::new(io::ErrorKind::InvalidData, format!("broken zstd data: {error}"));
                Unpacked::Zstd(Box::new(StreamingDecoder::new(reader).map_err(broken)?))
            }
        })
    }
}

/// What is in a compressed file.
pub(crate) enum Unpacked<R: BufRead> {
    Gzip(MultiGzDecoder<R>),
    Zstd(Box<StreamingDecoder<R, FrameDecoder>>),
}

impl<R: BufRead> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Zstd(decoder) => decoder.read(buffer),
        }
    }
}
