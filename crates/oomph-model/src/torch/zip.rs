//! Finds an entry of a zip archive whose entries are not compressed.
//!
//! The layout is that of PKWARE's APPNOTE 6.3, with its 64-bit records; PyTorch writes no others.

use super::malformed;
use crate::{ModelError, Source};

/// A central directory longer than this is not that of a model: a checkpoint of a million tensors has 80 MB.
const LONGEST_DIRECTORY: u64 = 256 << 20;
/// The last record with the longest comment that it may have.
const LONGEST_END: u64 = 22 + 0xFFFF;

/// An entry's bytes in the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// The first entry whose name, behind the last slash, is `name`.
pub(super) fn find(source: &mut dyn Source, name: &str) -> Result<Entry, ModelError> {
    let (start, length) = directory(source)?;
    let records = bytes(source, start, length)?;
    let mut at = 0_usize;
    while let Some(record) = records.get(at..at + 46) {
        if !record.starts_with(b"PK\x01\x02") {
            break;
        }
        let [name_length, extra_length, comment_length] = [28, 30, 32].map(|field| usize::from(short(record, field)));
        let text = records.get(at + 46..at + 46 + name_length).unwrap_or_default();
        if text.rsplit(|&byte| byte == b'/').next() == Some(name.as_bytes()) {
            let extra = records.get(at + 46 + name_length..at + 46 + name_length + extra_length).unwrap_or_default();
            return entry(source, record, extra, start + at as u64);
        }
        at += 46 + name_length + extra_length + comment_length;
    }
    Err(malformed(format!("no {name} among its entries"), start))
}

/// Where the list of entries begins and how long it is.
fn directory(source: &mut dyn Source) -> Result<(u64, u64), ModelError> {
    let size = source.len();
    let tail_start = size.saturating_sub(LONGEST_END);
    let tail = bytes(source, tail_start, size - tail_start)?;
    let end = tail.windows(4).rposition(|window| window == b"PK\x05\x06");
    let end = end.filter(|&end| tail.len() - end >= 22);
    let end = end.ok_or_else(|| malformed("no end of a zip archive; the file is cut short or no archive", size))?;
    let record = &tail[end..end + 22];
    let (mut length, mut start) = (u64::from(int(record, 12)), u64::from(int(record, 16)));
    let at = tail_start + end as u64;
    if start == u64::from(u32::MAX) || length == u64::from(u32::MAX) || short(record, 10) == u16::MAX {
        let locator = bytes(source, at.saturating_sub(20), 20)?;
        if locator.starts_with(b"PK\x06\x07") {
            let wide_at = long(&locator, 8);
            let wide = bytes(source, wide_at, 56)?;
            if !wide.starts_with(b"PK\x06\x06") {
                return Err(malformed("no 64-bit record where one is announced", wide_at));
            }
            (length, start) = (long(&wide, 40), long(&wide, 48));
        }
    }
    if length > LONGEST_DIRECTORY || start.checked_add(length).is_none_or(|end| end > size) {
        return Err(malformed(format!("a directory of {length} bytes from byte {start}"), at));
    }
    Ok((start, length))
}

fn entry(source: &mut dyn Source, record: &[u8], extra: &[u8], at: u64) -> Result<Entry, ModelError> {
    if short(record, 10) != 0 {
        return Err(malformed("a compressed entry, which PyTorch does not write", at));
    }
    let mut length = u64::from(int(record, 24));
    let mut header = u64::from(int(record, 42));
    // The 64-bit field holds, in this order, what did not fit: length, compressed length, offset.
    let mut rest = extra;
    while rest.len() >= 4 {
        let (kind, size) = (short(rest, 0), usize::from(short(rest, 2)));
        let Some(field) = rest.get(4..4 + size) else { break };
        if kind == 1 {
            let mut values = field.chunks_exact(8).map(|chunk| long(chunk, 0));
            if length == u64::from(u32::MAX) {
                length = values.next().unwrap_or(length);
            }
            if int(record, 20) == u32::MAX {
                values.next();
            }
            if header == u64::from(u32::MAX) {
                header = values.next().unwrap_or(header);
            }
        }
        rest = &rest[4 + size..];
    }
    let local = bytes(source, header, 30)?;
    if !local.starts_with(b"PK\x03\x04") {
        return Err(malformed("no entry where one is announced", header));
    }
    // Both lengths have 16 bits, and `header` lies in the file.
    let offset = header + 30 + u64::from(short(&local, 26)) + u64::from(short(&local, 28));
    if offset.checked_add(length).is_none_or(|end| end > source.len()) {
        return Err(malformed(format!("an entry of {length} bytes, more than are left"), at));
    }
    Ok(Entry { offset, length })
}

/// Bytes of the archive, of a length that the caller has bounded; checked against the archive before any are asked for.
fn bytes(source: &mut dyn Source, offset: u64, length: u64) -> Result<Vec<u8>, ModelError> {
    if offset.checked_add(length).is_none_or(|end| end > source.len()) {
        return Err(malformed(format!("{length} bytes announced where the file has ended"), offset));
    }
    let mut buffer = vec![0; length as usize];
    source.read_at(offset, &mut buffer).map_err(|error| ModelError::Read { offset, wanted: length, source: error })?;
    Ok(buffer)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    // Every caller reads within a record whose length it has checked; what is missing reads as 0.
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(number(bytes, at))
}

fn int(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(number(bytes, at))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(number(bytes, at))
}
