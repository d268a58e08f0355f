//! Finds the bytes of a recording: containers and formats are recognised by content, not by name.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::DeflateDecoder;

use crate::compression::Compression;
use crate::error::{Cause, Fault};

/// What a file's contents are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Pickle,
    Json,
}

/// Bytes after decompression, looked at but not read.
pub(crate) type Source<'a> = Box<dyn BufRead + 'a>;

/// How much is looked at to tell a format, in bytes.
const PEEK: usize = 1 << 16;

/// A file in a compressed file in a compressed file is still a file; more is a trap.
const NESTED: usize = 3;

/// Unpacks `source` until something that is not a container, and says what that is.
pub(crate) fn open<'a>(source: impl Read + 'a, any_growth: bool) -> Result<(Source<'a>, Format), Fault> {
    let mut source: Source<'a> = Box::new(BufReader::with_capacity(PEEK, source));
    for _ in 0..=NESTED {
        let start = source.fill_buf().map_err(broken)?;
        if let Some(compression) = Compression::of(start) {
            let unpacked =
                compression.unpack(source, any_growth).map_err(|error| Fault::malformed(0, error.to_string()))?;
            source = Box::new(BufReader::with_capacity(PEEK, unpacked));
            continue;
        }
        source = match start {
            [] => return Err(Fault { offset: None, cause: Cause::Empty }),
            [b'P', b'K', 3, 4, ..] => pickle_in_zip(source)?,
            [0x80, ..] => return Ok((source, Format::Pickle)),
            [0xef, 0xbb, 0xbf, b'{' | b'[', ..] => {
                source.consume(3);
                return Ok((source, Format::Json));
            }
            [b'{' | b'[' | b' ' | b'\t' | b'\r' | b'\n', ..] => return Ok((source, Format::Json)),
            other => return Err(Fault { offset: None, cause: Cause::Unknown(describe(other).into()) }),
        };
    }
    Err(Fault::malformed(0, "it is compressed many times over"))
}

fn broken(error: io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::QuotaExceeded => Fault { offset: None, cause: Cause::Grows },
        io::ErrorKind::UnexpectedEof => Fault { offset: None, cause: Cause::Cut },
        _ => Fault { offset: None, cause: Cause::Io(error) },
    }
}

/// What a file is that holds no record of memory, from its first bytes.
fn describe(start: &[u8]) -> &'static str {
    match start {
        [b'G', b'G', b'U', b'F', ..] => "a GGUF model",
        [b'S', b'Q', b'L', b'i', ..] => "a SQLite database (Nsight Systems?)",
        [0x7f, b'E', b'L', b'F', ..] => "a program",
        [b'P', b'A', b'R', b'1', ..] => "a Parquet file",
        [b'<', ..] => "HTML or XML",
        _ if start.iter().take(512).all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) => "text",
        _ => "no format that is known",
    }
}

/// The pickle in a file of `torch.save`: a ZIP archive whose first entries include `NAME/data.pkl`.
fn pickle_in_zip(mut source: Source<'_>) -> Result<Source<'_>, Fault> {
    // Twenty entries before the pickle are more than any version writes.
    for _ in 0..20 {
        let mut header = [0; 30];
        source.read_exact(&mut header).map_err(broken)?;
        let number = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        if header[..4] != *b"PK\x03\x04" {
            break;
        }
        let (streamed, method, name, extra) = (number(6) & 8 != 0, number(8), number(26), number(28));
        let size = u64::from(u32::from_le_bytes([header[18], header[19], header[20], header[21]]));
        let mut rest = vec![0; name + extra];
        source.read_exact(&mut rest).map_err(broken)?;
        let name = &rest[..name];
        if name.ends_with(b"data.pkl") || name.ends_with(b".pickle") || name.ends_with(b".pkl") {
            return match method {
                // The pickle says itself where it ends.
                0 => Ok(source),
                8 => Ok(Box::new(BufReader::with_capacity(PEEK, DeflateDecoder::new(source)))),
                _ => Err(Fault::malformed(0, format!("ZIP compression method {method} is not supported"))),
            };
        }
        if streamed && size == 0 {
            break;
        }
        io::copy(&mut (&mut source).take(size), &mut io::sink()).map_err(broken)?;
    }
    Err(Fault { offset: None, cause: Cause::Unknown("a ZIP archive without a pickle at its beginning".into()) })
}
