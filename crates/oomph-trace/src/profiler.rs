//! Reads profiler traces: Kineto's Chrome JSON, with `[memory]` and `[OutOfMemory]` instants.
//!
//! The instants of 2021 hold the device and the bytes; later ones the address and what was allocated and reserved
//! afterwards as well. Sizes are those of blocks, rounded, not of requests. Where the reserved memory changes, an event
//! for a segment of that size (without an address) goes before; memory from before the recording is one allocation.
//! Instants without addresses are paired by their sizes ([`Pairing`]).
//! The stack of an event is what was running around it on its thread: operators, ranges and Python functions.

use serde::Deserialize;

use crate::intern::WholeStacks;
use crate::json::{Scalar, TOO_LARGE};
use crate::pairing::{PAIRED, Pairing};
use crate::{
    Action, Annotation, Device, DeviceKind, Event, Frame, FrameId, Note, SourceKind, StackId, Stage, StringId, Trace,
};

/// One object of `traceEvents`.
#[derive(Deserialize)]
pub(crate) struct ChromeEvent {
    #[serde(default)]
    ph: Scalar,
    #[serde(default)]
    name: Scalar,
    #[serde(default)]
    cat: Scalar,
    #[serde(default)]
    pid: Scalar,
    #[serde(default)]
    tid: Scalar,
    #[serde(default)]
    ts: Scalar,
    #[serde(default)]
    dur: Scalar,
    #[serde(default)]
    args: Option<Args>,
}

#[derive(Deserialize)]
struct Args {
    #[serde(default, rename = "Device Type")]
    device_type: Scalar,
    #[serde(default, rename = "Device Id")]
    device_id: Scalar,
    #[serde(default, rename = "Bytes")]
    bytes: Scalar,
    #[serde(default, rename = "Addr")]
    address: Scalar,
    #[serde(default, rename = "Total Allocated")]
    allocated: Scalar,
    #[serde(default, rename = "Total Reserved")]
    reserved: Scalar,
}

/// A trace while it is read.
pub(crate) struct Profile {
    memory: u64,
    trace: Trace,
    instants: Vec<Instant>,
    slices: Vec<Slice>,
    /// How many objects of any kind there were.
    seen: usize,
}

/// A `[memory]` or `[OutOfMemory]` instant.
struct Instant {
    time_us: f64,
    thread: StringId,
    kind: DeviceKind,
    index: u32,
    oom: bool,
    bytes: i64,
    address: Option<u64>,
    allocated: Option<u64>,
    reserved: Option<u64>,
    stack: StackId,
}

/// Something that ran from one time to another.
struct Slice {
    thread: StringId,
    start_us: f64,
    end_us: f64,
    name: StringId,
}

impl Profile {
    pub(crate) fn new(memory: u64) -> Self {
        let trace = Trace { source: SourceKind::Profiler, ..Trace::default() };
        Self { memory, trace, instants: Vec::new(), slices: Vec::new(), seen: 0 }
    }

    /// Takes one event; most are of no interest.
    pub(crate) fn event(&mut self, event: ChromeEvent) -> Result<(), String> {
        self.seen += 1;
        if self.seen.is_multiple_of(1024) {
            let held = self.trace.strings.held()
                + self.instants.capacity() * size_of::<Instant>()
                + self.slices.capacity() * size_of::<Slice>();
            if held as u64 > self.memory {
                return Err(TOO_LARGE.into());
            }
        }
        let (Some(name), Some(phase)) = (event.name.text(), event.ph.text()) else { return Ok(()) };
        match (phase, name) {
            ("i" | "I", "[memory]") => self.instant(&event, false)?,
            ("i" | "I", "[OutOfMemory]" | "[OOM]") => self.instant(&event, true)?,
            ("X", name) => match event.cat.text().unwrap_or("") {
                "cpu_op" | "Operator" | "python_function" => self.slice(&event, name),
                "user_annotation" => {
                    self.slice(&event, name);
                    self.annotation(&event, name);
                }
                _ => {}
            },
            _ => {}
        }
        Ok(())
    }

    fn thread(&mut self, event: &ChromeEvent) -> StringId {
        self.trace.strings.intern(&format!("{}/{}", event.pid, event.tid))
    }

    fn instant(&mut self, event: &ChromeEvent, oom: bool) -> Result<(), String> {
        let Some(args) = &event.args else { return Ok(()) };
        // c10::DeviceType: 0 is the CPU, 1 CUDA, 6 HIP, which PyTorch shows as CUDA.
        let kind = match args.device_type.signed() {
            Some(0) => DeviceKind::Host,
            Some(1 | 6) => DeviceKind::Cuda,
            _ => return Ok(()),
        };
        // The sums of the CPU are meaningless where it was not followed from the beginning.
        let total = |sum: &Scalar, field| if kind == DeviceKind::Cuda { sum.bytes(field) } else { Ok(sum.unsigned()) };
        let instant = Instant {
            time_us: event.ts.float().unwrap_or(0.0),
            thread: self.thread(event),
            kind,
            // The CPU's is -1.
            index: args.device_id.signed().and_then(|index| u32::try_from(index).ok()).unwrap_or(0),
            oom,
            bytes: args.bytes.change("Bytes")?.unwrap_or(0),
            address: args.address.unsigned(),
            allocated: total(&args.allocated, "Total Allocated")?,
            reserved: total(&args.reserved, "Total Reserved")?,
            stack: StackId::NONE,
        };
        self.instants.push(instant);
        Ok(())
    }

    fn slice(&mut self, event: &ChromeEvent, name: &str) {
        let (thread, name) = (self.thread(event), self.trace.strings.intern(name));
        let start_us = event.ts.float().unwrap_or(0.0);
        let end_us = start_us + event.dur.float().unwrap_or(0.0);
        self.slices.push(Slice { thread, start_us, end_us, name });
        // Steps and optimizers were ordinary operators in 2021.
        let text = self.trace.strings.get(name);
        if event.cat.text() == Some("Operator") && (text.starts_with("ProfilerStep") || text.starts_with("Optimizer")) {
            let text = text.to_owned();
            self.annotation(event, &text);
        }
    }

    fn annotation(&mut self, event: &ChromeEvent, name: &str) {
        let name = self.trace.strings.intern(name);
        let start = event.ts.float().unwrap_or(0.0);
        let end = start + event.dur.float().unwrap_or(0.0);
        for (stage, time) in [(Stage::Start, start), (Stage::End, end)] {
            self.trace.annotations.push(Annotation { stage, name, device: 0, time_us: time as i64 });
        }
    }

    pub(crate) fn finish(mut self) -> Trace {
        self.find_stacks();
        self.instants.sort_by(|a, b| a.time_us.total_cmp(&b.time_us));
        self.trace.annotations.sort_by_key(|annotation| annotation.time_us);
        let before = self.trace.strings.intern("before the recording");
        let mut devices: Vec<(Device, Totals)> = Vec::new();
        for instant in &self.instants {
            let same = |(device, _): &(Device, Totals)| device.kind == instant.kind && device.index == instant.index;
            let at = devices.iter().position(same).unwrap_or_else(|| {
                let device = Device { kind: instant.kind, index: instant.index, ..Device::default() };
                devices.push((device, Totals::default()));
                devices.len() - 1
            });
            let (device, totals) = &mut devices[at];
            totals.add(device, instant, before);
        }
        self.trace.devices = devices.into_iter().map(|(device, _)| device).collect();
        self.trace.devices.sort_by_key(|device| (device.kind, device.index));
        if self.instants.iter().any(|instant| instant.address.is_none() && !instant.oom) {
            self.trace.notes.push(Note { offset: None, text: PAIRED.into() });
        }
        if self.instants.is_empty() {
            let text = "no memory was recorded; profile with profile_memory=True".into();
            self.trace.notes.push(Note { offset: None, text });
        }
        self.trace
    }

    /// Gives each instant the stack of slices around it on its thread.
    fn find_stacks(&mut self) {
        // Of two slices that begin together the longer is the outer.
        let order = |a: &Slice, b: &Slice| {
            a.thread.cmp(&b.thread).then(a.start_us.total_cmp(&b.start_us)).then(b.end_us.total_cmp(&a.end_us))
        };
        self.slices.sort_by(order);
        self.instants.sort_by(|a, b| a.thread.cmp(&b.thread).then(a.time_us.total_cmp(&b.time_us)));
        let mut whole = WholeStacks::default();
        let mut open: Vec<(f64, FrameId)> = Vec::new();
        let mut next = 0;
        let mut thread = None;
        for instant in &mut self.instants {
            if thread != Some(instant.thread) {
                thread = Some(instant.thread);
                open.clear();
                next += self.slices[next..].partition_point(|slice| slice.thread < instant.thread);
            }
            while let Some(slice) = self.slices.get(next)
                && slice.thread == instant.thread
                && slice.start_us <= instant.time_us
            {
                while open.last().is_some_and(|&(end_us, _)| end_us <= slice.start_us) {
                    open.pop();
                }
                let frame = frame(&mut self.trace, slice.name);
                open.push((slice.end_us, frame));
                next += 1;
            }
            while open.last().is_some_and(|&(end_us, _)| end_us < instant.time_us) {
                open.pop();
            }
            let innermost_first: Vec<FrameId> = open.iter().rev().map(|&(_, frame)| frame).collect();
            instant.stack = whole.intern(&mut self.trace.stacks, &innermost_first);
        }
    }
}

/// A slice as a frame. Python functions are named `file(line): function`.
fn frame(trace: &mut Trace, name: StringId) -> FrameId {
    let text = trace.strings.get(name);
    let parts = text.split_once("): ").and_then(|(place, function)| {
        let (file, line) = place.rsplit_once('(')?;
        Some((file.to_owned(), line.parse().ok()?, function.to_owned()))
    });
    let frame = match parts {
        Some((file, line, function)) => {
            Frame { name: trace.strings.intern(&function), file: trace.strings.intern(&file), line }
        }
        None => Frame { name, file: StringId::EMPTY, line: 0 },
    };
    trace.frames.intern(frame)
}

/// What a device had after the last instant, as the profiler said.
#[derive(Default)]
struct Totals {
    started: bool,
    reserved: u64,
    pairing: Pairing,
}

impl Totals {
    fn add(&mut self, device: &mut Device, instant: &Instant, before: StringId) {
        let event = |action, address, size, label| Event {
            action,
            address,
            size,
            stream: 0,
            pool: None,
            stack: instant.stack,
            time_us: instant.time_us as i64,
            label,
        };
        let bytes = instant.bytes;
        if let Some(reserved) = instant.reserved {
            let size = reserved.abs_diff(self.reserved);
            let action = if reserved > self.reserved { Action::SegmentAlloc } else { Action::SegmentFree };
            if size > 0 {
                device.events.push(event(action, 0, size, StringId::EMPTY));
            }
            self.reserved = reserved;
        }
        if !std::mem::replace(&mut self.started, true)
            && let Some(allocated) = instant.allocated
        {
            let change = if instant.oom { 0 } else { bytes };
            let earlier = i128::from(allocated) - i128::from(change);
            if let Ok(earlier @ 1..) = u64::try_from(earlier) {
                device.events.push(event(Action::Alloc, 0, earlier, before));
            }
        }
        let action = match bytes {
            _ if instant.oom => Action::Oom,
            0.. => Action::Alloc,
            _ => Action::FreeCompleted,
        };
        let event = event(action, instant.address.unwrap_or(0), bytes.unsigned_abs(), StringId::EMPTY);
        match instant.address {
            Some(_) => device.events.push(event),
            None => self.pairing.place(event, StringId::EMPTY, |event| device.events.push(event)),
        }
    }
}
