//! Reads the virtual GPU's own log of device calls: one JSON object a line.
//!
//! ```text
//! {"schema":"oomph.device-log/1","t":1748730219595970,"pid":17,"device":0,"kind":"malloc","address":140548276224,"size":2097152,"stream":0}
//! ```
//!
//! | field | meaning |
//! |---|---|
//! | `schema` | name and version of the log, in its first line |
//! | `t` | microseconds since the Unix epoch |
//! | `pid` | the process |
//! | `device` | the card as the run counts |
//! | `kind` | one of the kinds below |
//! | `address` | where; for `refuse` the bytes that were free |
//! | `size` | bytes |
//! | `stream` | for stream-ordered calls; 0 otherwise |
//!
//! | kind | meaning |
//! |---|---|
//! | `malloc`, `free` | a block with granules of 2 MiB of its own (`cudaMalloc`, `cuMemAlloc`) |
//! | `take`, `give` | granules for blocks to come: a pool's growth, or the granule that small blocks share |
//! | `place`, `unplace` | a block in such granules (`cudaMallocAsync`, and `cudaMalloc` below 1 MiB) |
//! | `map`, `unmap` | physical memory at a reserved address (`cuMemMap`) |
//! | `refuse` | a request that the card could not hold |
//! | `context` | memory that the driver takes for itself; not part of the recording, but noted |
//! | `cut` | the log grew too long and ends here |
//!
//! Fields may come in any order, `pid`, `address` and `stream` may be absent, unknown fields and kinds are passed over.
//! What is at the end of the log is what was not given back; the segments and blocks of the trace say so.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};

use oomph_protocol::DEVICE_LOG;
use oomph_protocol::device_log::Kind;
use serde::Deserialize;

use crate::error::{Cause, Fault};
use crate::json::{Scalar, fault};
use crate::{Action, Block, BlockState, Device, DeviceKind, Event, Note, Segment, SourceKind, StackId, Trace};

/// The longest line, in bytes.
const LINE: u64 = 1 << 16;

/// The most notes that are kept.
const MOST_NOTES: usize = 64;

#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    schema: Option<String>,
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

/// What the driver gives memory in, in bytes.
const GRANULE: u64 = 2 << 20;

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
            Err(error) if error.kind() == std::io::ErrorKind::QuotaExceeded => {
                break Some(Fault::at(offset, Cause::Grows));
            }
            Err(error) => break Some(Fault::at(offset, Cause::Io(error))),
        }
        match serde_json::from_slice::<Line>(&text) {
            Ok(line) => {
                // Logs of before there was a schema have none.
                if let Some(Err(mismatch)) = line.schema.as_deref().map(|schema| DEVICE_LOG.check(Some(schema))) {
                    break Some(Fault::malformed(offset, mismatch.to_string()));
                }
                if let Err(what) = add(&mut trace, &line) {
                    break Some(Fault::malformed(offset, what));
                }
            }
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
    trace.devices.iter_mut().for_each(stand);
    Ok(trace)
}

fn add(trace: &mut Trace, line: &Line) -> Result<(), String> {
    let index = line.device.unsigned().and_then(|index| u32::try_from(index).ok()).unwrap_or(0).min(4095);
    let size = line.size.bytes("size")?.unwrap_or(0);
    let granules = size.checked_next_multiple_of(GRANULE).unwrap_or(size);
    // What one line says is one or two events: the program's, and the card's, which encloses it.
    let actions: &[(Action, u64)] = match Kind::named(&line.kind) {
        Some(Kind::Malloc) => &[(Action::SegmentAlloc, granules), (Action::Alloc, size)],
        Some(Kind::Free) => &[(Action::FreeCompleted, size), (Action::SegmentFree, granules)],
        Some(Kind::Place) => &[(Action::Alloc, size)],
        Some(Kind::Unplace) => &[(Action::FreeCompleted, size)],
        Some(Kind::Take) => &[(Action::SegmentMap, size)],
        Some(Kind::Give) => &[(Action::SegmentUnmap, size)],
        Some(Kind::Map) => &[(Action::SegmentMap, size), (Action::Alloc, size)],
        Some(Kind::Unmap) => &[(Action::FreeCompleted, size), (Action::SegmentUnmap, size)],
        Some(Kind::Refuse) => &[(Action::Oom, size)],
        Some(Kind::Context) => {
            let text = format!(
                "the driver took {} MiB of card {index} for itself, in addition to what is recorded",
                size >> 20
            );
            note_once(trace, text);
            return Ok(());
        }
        Some(Kind::Cut) => {
            note_once(trace, "the log grew too long: what came later was not recorded".to_owned());
            return Ok(());
        }
        None => &[(Action::Other, size)],
    };
    // Processes of one run share a card; the label keeps them apart.
    let label = match line.pid.unsigned() {
        Some(pid) => trace.strings.intern(&format!("pid {pid}")),
        None => Default::default(),
    };
    let at = trace.devices.iter().position(|device| device.index == index).unwrap_or_else(|| {
        trace.devices.push(Device { kind: DeviceKind::Cuda, index, ..Device::default() });
        trace.devices.len() - 1
    });
    for &(action, size) in actions {
        trace.devices[at].events.push(Event {
            action,
            address: line.address.unsigned().unwrap_or(0),
            size,
            stream: line.stream.unsigned().unwrap_or(0),
            pool: None,
            stack: StackId::NONE,
            time_us: line.t.signed().unwrap_or(0),
            label,
        });
    }
    Ok(())
}

/// Leaves a note, unless it was left before: a file may repeat itself without end.
fn note_once(trace: &mut Trace, text: String) {
    if trace.notes.iter().take(MOST_NOTES).all(|note| note.text != text) && trace.notes.len() < MOST_NOTES {
        trace.notes.push(Note { offset: None, text });
    }
}

/// Gives a device the segments and blocks that its events leave standing.
fn stand(device: &mut Device) {
    // Ranges by address: their end, whether pages were mapped, and the stream.
    let mut segments = BTreeMap::<u64, (u64, bool, u64)>::new();
    let mut blocks = BTreeMap::<u64, u64>::new();
    for event in device.events.iter() {
        let end = event.address.saturating_add(event.size);
        match event.action {
            Action::SegmentAlloc => drop(segments.insert(event.address, (end, false, event.stream))),
            Action::SegmentMap => drop(segments.insert(event.address, (end, true, event.stream))),
            Action::SegmentFree | Action::SegmentUnmap => drop(segments.remove(&event.address)),
            Action::Alloc => drop(blocks.insert(event.address, event.size)),
            Action::FreeCompleted => drop(blocks.remove(&event.address)),
            _ => {}
        }
    }
    let mut reached = 0;
    for (address, (end, expandable, stream)) in segments {
        // Only a file that contradicts itself has ranges that overlap.
        if address < reached {
            continue;
        }
        reached = end;
        let first = device.blocks.len();
        let mut at = address;
        let mut push = |from: u64, to: u64, state: BlockState| {
            if to > from {
                let requested = if state == BlockState::Inactive { 0 } else { to - from };
                device.blocks.push(Block { address: from, size: to - from, requested, state, stack: StackId::NONE });
            }
        };
        for (&block, &size) in blocks.range(address..end) {
            if block < at {
                continue;
            }
            push(at, block, BlockState::Inactive);
            at = block.saturating_add(size).min(end);
            push(block, at, BlockState::ActiveAllocated);
        }
        push(at, end, BlockState::Inactive);
        device.segments.push(Segment {
            address,
            total_size: end - address,
            stream,
            large: true,
            expandable,
            first_block: u32::try_from(first).unwrap_or(u32::MAX),
            end_block: u32::try_from(device.blocks.len()).unwrap_or(u32::MAX),
            ..Segment::default()
        });
    }
}
