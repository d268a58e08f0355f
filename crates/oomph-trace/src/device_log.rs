//! The virtual GPU's own log of device calls: one JSON object a line.
//!
//! ```text
//! {"t":1748730219595970,"pid":17,"device":0,"kind":"malloc","address":140548276224,"size":2097152,"stream":0}
//! ```
//!
//! | field | meaning |
//! |---|---|
//! | `t` | microseconds since the Unix epoch |
//! | `pid` | the process |
//! | `device` | the card as the process counts |
//! | `kind` | `malloc` (`cudaMalloc`, `cuMemAlloc`, pool growth), `free`, `map` and `unmap` (pages of `cuMemMap`), `refuse` (a request that the card could not hold), `context` (memory that the driver takes for itself) |
//! | `address` | where; for `refuse` the bytes that were free |
//! | `size` | bytes |
//! | `stream` | for stream-ordered calls; 0 otherwise |
//!
//! Fields may come in any order, `pid`, `address` and `stream` may be absent, unknown fields are passed over.

use std::io::{BufRead, Read};

use serde::Deserialize;

use crate::error::{Cause, Fault};
use crate::json::{Scalar, fault};
use crate::{Action, Device, DeviceKind, Event, Note, SourceKind, StackId, Trace};

/// The longest line, in bytes.
const LINE: u64 = 1 << 16;

#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    t: Scalar,
    #[serde(default)]
    pid: Scalar,
    #[serde(default)]
    device: Scalar,
    kind: String,
    #[serde(default)]
    address: Scalar,
    #[serde(default)]
    size: Scalar,
    #[serde(default)]
    stream: Scalar,
}

/// Whether a file that begins so is a device log.
pub(crate) fn is_one(start: &[u8]) -> bool {
    let line = start.split(|&byte| byte == b'\n').next().unwrap_or(&[]);
    line.first() == Some(&b'{') && serde_json::from_slice::<Line>(line).is_ok()
}

/// Reads a device log.
pub(crate) fn read(mut source: impl BufRead, memory: u64, salvage: bool) -> Result<Trace, Fault> {
    let mut trace = Trace { source: SourceKind::VirtualGpu, ..Trace::default() };
    let mut offset = 0;
    let mut text = Vec::new();
    let found = loop {
        text.clear();
        match (&mut source).take(LINE).read_until(b'\n', &mut text) {
            Ok(0) => break None,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                break Some(Fault::at(offset, Cause::Cut));
            }
            Err(error) => break Some(Fault::at(offset, Cause::Io(error))),
        }
        match serde_json::from_slice::<Line>(&text) {
            Ok(line) => add(&mut trace, &line),
            Err(_) if text.trim_ascii().is_empty() => {}
            Err(error) => break Some(fault(&error, offset + error.column() as u64, memory)),
        }
        offset += text.len() as u64;
        let held: usize = trace.devices.iter().map(|device| device.events.held()).sum::<usize>() + trace.strings.held();
        if held as u64 > memory {
            break Some(Fault::at(offset, Cause::TooLarge(memory >> 20)));
        }
    };
    match found {
        Some(fault) if !salvage => return Err(fault),
        Some(fault) => {
            let text = format!("only what stands before this offset was read: {}", fault.cause);
            trace.notes.push(Note { offset: fault.offset, text });
        }
        None => {}
    }
    trace.devices.sort_by_key(|device| device.index);
    Ok(trace)
}

fn add(trace: &mut Trace, line: &Line) {
    let index = line.device.unsigned().and_then(|index| u32::try_from(index).ok()).unwrap_or(0).min(4095);
    // Processes of one run share a card; the label keeps them apart.
    let label = match line.pid.unsigned() {
        Some(pid) => trace.strings.intern(&format!("pid {pid}")),
        None => Default::default(),
    };
    let event = Event {
        action: match line.kind.as_str() {
            "malloc" | "context" => Action::SegmentAlloc,
            "free" => Action::SegmentFree,
            "map" => Action::SegmentMap,
            "unmap" => Action::SegmentUnmap,
            "refuse" => Action::Oom,
            _ => Action::Other,
        },
        address: line.address.unsigned().unwrap_or(0),
        size: line.size.unsigned().unwrap_or(0),
        stream: line.stream.unsigned().unwrap_or(0),
        pool: None,
        stack: StackId::NONE,
        time_us: line.t.signed().unwrap_or(0),
        label,
    };
    let at = trace.devices.iter().position(|device| device.index == index).unwrap_or_else(|| {
        trace.devices.push(Device { kind: DeviceKind::Cuda, index, ..Device::default() });
        trace.devices.len() - 1
    });
    trace.devices[at].events.push(event);
}
