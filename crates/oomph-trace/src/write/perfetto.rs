//! Writes Chrome's trace format, which ui.perfetto.dev and chrome://tracing open.

use std::io::{self, BufWriter, Write};

use super::{curve, device_name, pickle};
use crate::{Action, Stage, Trace};

/// Writes counters of allocated and reserved bytes for each device, named ranges as slices, and failed allocations as
/// instants with their stack.
///
/// # Errors
/// When writing fails.
pub fn perfetto(trace: &Trace, out: impl Write) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, out);
    out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
    let mut first = true;
    // A process of the viewer for each device; 0 is for what belongs to none.
    for (device, process) in trace.devices.iter().zip(1_u32..) {
        let name = text(&format!("memory of {}", device_name(device)))?;
        let header = format!(r#"{{"ph":"M","name":"process_name","pid":{process},"args":{{"name":{name}}}}}"#);
        write(&mut out, &mut first, &header)?;
        let mut before = None;
        for sample in curve(device) {
            let (time, allocated, reserved) = (sample.time_us, sample.allocated, sample.reserved);
            if before != Some((allocated, reserved)) {
                before = Some((allocated, reserved));
                let counter = |name, value| {
                    format!(r#"{{"ph":"C","pid":{process},"ts":{time},"name":"{name}","args":{{"bytes":{value}}}}}"#)
                };
                write(&mut out, &mut first, &counter("allocated", allocated))?;
                write(&mut out, &mut first, &counter("reserved", reserved))?;
            }
            let Some(event) = device.events.get(sample.event) else { continue };
            if matches!(event.action, Action::Oom | Action::Snapshot) {
                let frames = trace.stacks.innermost_first(event.stack).filter_map(|id| {
                    let frame = trace.frames.get(id)?;
                    let (name, file) = (trace.strings.get(frame.name), trace.strings.get(frame.file));
                    Some(format!("{name} ({file}:{})", frame.line))
                });
                let stack = text(&frames.collect::<Vec<_>>().join("\n"))?;
                let (name, size) = (pickle::action(event.action), event.size);
                let instant = format!(
                    r#"{{"ph":"i","s":"p","pid":{process},"tid":0,"ts":{time},"name":"{name}","args":{{"bytes":{size},"stack":{stack}}}}}"#
                );
                write(&mut out, &mut first, &instant)?;
            }
        }
    }
    for annotation in &trace.annotations {
        let phase = if annotation.stage == Stage::Start { "B" } else { "E" };
        let (name, time) = (text(trace.strings.get(annotation.name))?, annotation.time_us);
        write(&mut out, &mut first, &format!(r#"{{"ph":"{phase}","pid":0,"tid":0,"ts":{time},"name":{name}}}"#))?;
    }
    out.write_all(b"\n]}\n")?;
    out.flush()
}

fn write(out: &mut impl Write, first: &mut bool, event: &str) -> io::Result<()> {
    out.write_all(if std::mem::take(first) { b"\n" } else { b",\n" })?;
    out.write_all(event.as_bytes())
}

/// A text as JSON.
fn text(text: &str) -> io::Result<String> {
    serde_json::to_string(text).map_err(io::Error::from)
}
