//! Writes TensorBoard's event files: framed protocol buffers, of which three messages with few fields are needed.
//!
//! The frame is that of TFRecord: length (u64), masked CRC-32C of it, the message, masked CRC-32C of it, little end
//! first. The fields are those of `tensorflow/core/util/event.proto` and `tensorboard/compat/proto/summary.proto`.

use std::io::{self, BufWriter, Write};

use super::{Sample, curve, device_name};
use crate::Trace;

/// A bucket of a curve is its highest sample: TensorBoard itself shows a thousand points.
const POINTS: usize = 10_000;

/// Writes scalars of TensorBoard to one event file, a record each.
///
/// Its directory is a run, and TensorBoard finds the file where its name contains `tfevents`. A step may come twice only
/// for different tags: of two values for one tag and one step, TensorBoard shows the later.
///
/// ```
/// use oomph_trace::write::EventWriter;
///
/// let mut file = EventWriter::new(Vec::new(), 1_700_000_000.0)?;
/// file.scalar("memory/allocated GiB", 1_700_000_012.5, 3, 5.86)?;
/// file.flush()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct EventWriter<W: Write> {
    out: W,
}

impl<W: Write> EventWriter<W> {
    /// Begins a file with the record that every event file begins with. `seconds` is the moment, since 1970.
    ///
    /// # Errors
    /// When writing fails.
    pub fn new(mut out: W, seconds: f64) -> io::Result<Self> {
        let mut version = Message::default();
        version.double(1, seconds);
        version.bytes(3, b"brain.Event:2");
        frame(&mut out, &version)?;
        Ok(Self { out })
    }

    /// Writes the value of `tag` at a step and a moment, in seconds since 1970.
    ///
    /// # Errors
    /// When writing fails.
    pub fn scalar(&mut self, tag: &str, seconds: f64, step: u64, number: f64) -> io::Result<()> {
        let mut value = Message::default();
        value.bytes(1, tag.as_bytes());
        value.float(2, number as f32);
        let mut summary = Message::default();
        summary.bytes(1, &value.0);
        let mut event = Message::default();
        event.double(1, seconds);
        event.integer(2, step);
        event.bytes(5, &summary.0);
        frame(&mut self.out, &event)
    }

    /// Hands over what is buffered, so that TensorBoard reads whole records.
    ///
    /// # Errors
    /// When writing fails.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes allocated and reserved memory of each device in GiB, and any further series of (microseconds, value).
/// Steps are microseconds since the first point.
///
/// # Errors
/// When writing fails.
pub fn tensorboard(trace: &Trace, series: &[(String, Vec<(i64, f64)>)], out: impl Write) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    let mut curves: Vec<(String, Vec<(i64, f64)>)> = Vec::new();
    for device in &trace.devices {
        let samples = highest(curve(device), device.events.len().div_ceil(POINTS));
        let points = |bytes: fn(&Sample) -> u64| {
            samples.iter().map(|sample| (sample.time_us, bytes(sample) as f64 / f64::from(1 << 30))).collect()
        };
        let name = device_name(device);
        curves.push((format!("{name}/allocated GiB"), points(|sample| sample.allocated)));
        curves.push((format!("{name}/reserved GiB"), points(|sample| sample.reserved)));
    }
    let all = || curves.iter().chain(series).flat_map(|(tag, points)| points.iter().map(move |point| (tag, point)));
    let start = all().map(|(_, &(time, _))| time).min().unwrap_or(0);

    let mut file = EventWriter::new(&mut out, seconds(start))?;
    for (tag, &(time, number)) in all() {
        file.scalar(tag, seconds(time), time.saturating_sub(start) as u64, number)?;
    }
    file.flush()
}

fn seconds(time_us: i64) -> f64 {
    time_us as f64 / 1e6
}

/// The highest sample of each `width` ones.
fn highest(samples: impl Iterator<Item = Sample>, width: usize) -> Vec<Sample> {
    let mut kept: Vec<Sample> = Vec::new();
    for sample in samples {
        match kept.last_mut() {
            Some(last) if width > 1 && last.event / width == sample.event / width => {
                if sample.allocated > last.allocated {
                    *last = sample;
                }
            }
            _ => kept.push(sample),
        }
    }
    kept
}

/// A protocol buffer while it is written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn integer(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn double(&mut self, field: u64, value: f64) {
        self.varint(field << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn float(&mut self, field: u64, value: f32) {
        self.varint(field << 3 | 5);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, value: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }
}

fn frame(out: &mut impl Write, message: &Message) -> io::Result<()> {
    let length = (message.0.len() as u64).to_le_bytes();
    out.write_all(&length)?;
    out.write_all(&masked_crc(&length).to_le_bytes())?;
    out.write_all(&message.0)?;
    out.write_all(&masked_crc(&message.0).to_le_bytes())
}

/// CRC-32C, rotated and shifted as TFRecord does, so that a checksum of data that holds checksums stays a good one.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Castagnoli's CRC, the reflected polynomial 0x82f63b78.
fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let mut crc = i as u32;
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
                bit += 1;
            }
            table[i] = crc;
            i += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |crc, &byte| crc >> 8 ^ TABLE[(crc as u8 ^ byte) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_castagnolis() {
        // The check value of the CRC catalogue, and 32 zeros from RFC 3720, B.4.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }
}
