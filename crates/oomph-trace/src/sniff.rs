//! Distinguishes a recording of memory from a log, by its first bytes.

use std::io::{self, BufRead, Read};

use crate::compression::Compression;

/// How much of a compressed file's beginning is unpacked, in bytes.
const PEEK: u64 = 64 << 10;

/// Words that the beginning of a recording in JSON holds and that of another JSON text does not.
const KEYS: [&str; 7] = [
    "\"traceEvents\"",
    "\"schemaVersion\"",
    "\"deviceProperties\"",
    "\"segments\"",
    "\"device_traces\"",
    "\"blocks\"",
    "\"ph\"",
];

/// Whether a file that begins with these bytes (some tens of KiB are enough) is a recording of memory rather than a text
/// that a program printed. A damaged recording is one too.
#[must_use]
pub fn is_recording(start: &[u8]) -> bool {
    match start {
        [0x80, 2..=5, ..] | [b'P', b'K', 3, 4, ..] => true,
        _ => match Compression::of(start) {
            Some(compression) => {
                let mut inner = Vec::new();
                // The beginning of a file breaks off somewhere, which is no reason to say no.
                if let Ok(unpacked) = compression.unpack(start, true) {
                    let _ = unpacked.take(PEEK).read_to_end(&mut inner);
                }
                Compression::of(&inner).is_none() && is_recording(&inner)
            }
            None => is_json_recording(start),
        },
    }
}

/// What is in a file that may be compressed with gzip or zstd. `any_growth` is that of [`ReadOptions`](crate::ReadOptions).
///
/// # Errors
/// When the reader fails, or the first bytes promise a compression that does not follow.
pub fn unpacked(mut reader: impl BufRead + Send + 'static, any_growth: bool) -> io::Result<Box<dyn Read + Send>> {
    let start = reader.fill_buf()?;
    Ok(match Compression::of(start) {
        Some(compression) => Box::new(compression.unpack(reader, any_growth)?),
        None => Box::new(reader),
    })
}

fn is_json_recording(start: &[u8]) -> bool {
    let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start();
    let holds_key = || KEYS.iter().any(|key| text.windows(key.len()).any(|window| window == key.as_bytes()));
    match text {
        [b'{', ..] => {
            // One object to a line is how logs are written too; the virtual GPU's own log names an address in each.
            let line = text.split(|byte| *byte == b'\n').next().unwrap_or(text);
            let first: Result<serde_json::Value, _> = serde_json::from_slice(line);
            match first {
                Ok(object) if line.len() < text.len() => {
                    object.get("kind").is_some() && object.get("pid").is_some() || holds_key()
                }
                _ => holds_key(),
            }
        }
        [b'[', rest @ ..] => match rest.trim_ascii_start() {
            // An exported memory timeline is lists of numbers; "[[34m" is a colour that lost its escape.
            [b'[', inner @ ..] => {
                let inner = inner.trim_ascii_start();
                let digits =
                    inner.iter().take_while(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'.')).count();
                digits > 0 && matches!(inner[digits..].trim_ascii_start().first(), Some(b',' | b']'))
            }
            [b'{', ..] => holds_key(),
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn recordings_are_distinguished_from_logs() {
        let recordings: [&[u8]; 6] = [
            b"\x80\x04\x95",
            b"PK\x03\x04",
            b"{\n  \"schemaVersion\": 1, \"traceEvents\": [",
            b"[[1690000000, 1, 2, 3], [1690000001",
            b" [ {\"ph\": \"i\", \"name\": \"[memory]\"",
            b"{\"t\":1,\"pid\":7,\"device\":0,\"kind\":\"malloc\",\"address\":1,\"size\":2}\n{",
        ];
        let logs: [&[u8]; 7] = [
            b"",
            b"Traceback (most recent call last):",
            b"(venv) ada@host:~$ python train.py",
            b"[rank0]: Traceback",
            b"[2026-11-20 10:00:00] INFO",
            b"[[34;49mINFO] start",
            b"{\"level\":\"info\",\"msg\":\"start\"}\n{\"level\":\"error\"}\n",
        ];
        for start in recordings {
            assert!(is_recording(start), "{}", String::from_utf8_lossy(start));
            assert!(is_recording(&gzip(start)), "{}", String::from_utf8_lossy(start));
        }
        for start in logs {
            assert!(!is_recording(start), "{}", String::from_utf8_lossy(start));
            assert!(!is_recording(&gzip(start)), "{}", String::from_utf8_lossy(start));
        }
        // What breaks off in its compressed beginning is looked at as far as it goes.
        let long = gzip(&[b"\x80\x04".as_slice(), &[7; 100_000]].concat());
        assert!(is_recording(&long[..40]));
    }

    #[test]
    fn a_compressed_log_is_unpacked() {
        let mut text = String::new();
        unpacked(io::Cursor::new(gzip(b"step 1\n")), false).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "step 1\n");
    }
}
