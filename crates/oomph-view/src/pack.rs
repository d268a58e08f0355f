//! Packs columns of whole numbers for a page: differences as variable-length integers, then gzip and base64.
//!
//! The document is a length, a JSON header of that length, and the columns one after the other. The header names each
//! column with its place and its coding.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

/// Where a column lies among the bytes after the header, and how it is coded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Column {
    /// Its first byte.
    pub at: usize,
    /// How many numbers it has.
    pub count: usize,
    /// Whether each number is the difference from the one before it.
    pub delta: bool,
}

/// The bytes of all columns.
#[derive(Debug, Default)]
pub struct Columns {
    bytes: Vec<u8>,
}

impl Columns {
    /// Adds a column of numbers that are small, or that repeat.
    pub fn plain(&mut self, numbers: impl IntoIterator<Item = u64>) -> Column {
        let (at, mut count) = (self.bytes.len(), 0);
        for number in numbers {
            self.number(number);
            count += 1;
        }
        Column { at, count, delta: false }
    }

    /// Adds a column of numbers of which each is close to the one before it.
    pub fn delta(&mut self, numbers: impl IntoIterator<Item = u64>) -> Column {
        let (at, mut count, mut before) = (self.bytes.len(), 0, 0_u64);
        for number in numbers {
            let step = number.wrapping_sub(before).cast_signed();
            self.number(((step << 1) ^ (step >> 63)).cast_unsigned());
            before = number;
            count += 1;
        }
        Column { at, count, delta: true }
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    /// The header and the columns as text that is safe in a page.
    pub fn pack(&self, header: &impl Serialize) -> Result<String, serde_json::Error> {
        let header = serde_json::to_vec(header)?;
        let mut packed = GzEncoder::new(Vec::new(), Compression::new(7));
        let length = u32::try_from(header.len()).unwrap_or(u32::MAX);
        for part in [&length.to_le_bytes()[..], &header, &self.bytes] {
            packed.write_all(part).map_err(serde_json::Error::io)?;
        }
        Ok(STANDARD.encode(packed.finish().map_err(serde_json::Error::io)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the page does to read a column.
    fn unpack(columns: &Columns, column: Column) -> Vec<u64> {
        let (mut at, mut before, mut numbers) = (column.at, 0_u64, Vec::new());
        for _ in 0..column.count {
            let (mut number, mut shift) = (0_u64, 0);
            loop {
                let byte = columns.bytes[at];
                at += 1;
                number |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    break;
                }
            }
            if column.delta {
                number = before.wrapping_add((number >> 1) ^ (number & 1).wrapping_neg());
            }
            before = number;
            numbers.push(number);
        }
        numbers
    }

    #[test]
    fn columns_come_back_as_they_were() {
        let numbers = [0, 1, 127, 128, 5, u64::MAX, 0, 1 << 47, (1 << 47) - 512];
        let mut columns = Columns::default();
        let (plain, delta) = (columns.plain(numbers), columns.delta(numbers));
        assert_eq!(unpack(&columns, plain), numbers);
        assert_eq!(unpack(&columns, delta), numbers);
    }
}
