//! Reads snapshots in pickles.

use std::io::Read;
use std::ops::Range;

use super::gather::{Gathered, GatheredBlock, GatheredSegment, Labels, Layout, pool};
use super::keys::*;
use crate::error::{Cause, Fault};
use crate::pickle::{Atom, Heap, Limits, List, Machine, Shapes, Value};
use crate::{Action, Annotation, DeviceKind, Event, FrameId, Note, PoolId, Settings, StackId, Stage, StringId, Trace};

/// What dicts and lists are recognised as.
mod kind {
    pub(super) const FRAME: u8 = 0;
    pub(super) const STACK: u8 = 1;
    pub(super) const EVENT: u8 = 2;
    pub(super) const BLOCK: u8 = 3;
    pub(super) const SEGMENT: u8 = 4;
    pub(super) const ANNOTATION: u8 = 5;
    pub(super) const HISTORY: u8 = 6;
}

/// Reads a pickled snapshot. With `salvage`, a file that breaks off or goes wrong gives what precedes that.
pub(crate) fn read(source: impl Read, limits: Limits, salvage: bool) -> Result<Trace, Fault> {
    let mut recorder = Recorder { gathered: Gathered::new(), histories: Vec::new(), scratch: Vec::new() };
    let mut machine = Machine::new(source, &mut recorder, limits);
    let (value, fault) = match machine.run() {
        Ok(value) => (value, None),
        Err(fault) if salvage => (machine.close_open(), Some(fault)),
        Err(fault) => return Err(fault),
    };
    let mut heap = std::mem::take(&mut machine.heap);
    drop(machine);
    let cause = match recorder.layout(value, &mut heap) {
        Ok(Some(layout)) => {
            if let Some(fault) = fault {
                let text = format!("only what stands before this offset was read: {}", fault.cause);
                recorder.gathered.notes.push(Note { offset: fault.offset, text });
            }
            return Ok(recorder.gathered.into_trace(layout));
        }
        Ok(None) => Cause::Unknown("a pickle of something else".into()),
        Err(what) => Cause::Malformed(what),
    };
    Err(fault.unwrap_or(Fault { offset: None, cause }))
}

struct Recorder {
    gathered: Gathered,
    /// What PyTorch 2.0 and before wrote of a block: the size asked for, and where.
    histories: Vec<(u64, StackId)>,
    scratch: Vec<FrameId>,
}

impl Shapes for Recorder {
    fn text(&mut self, text: &str) -> StringId {
        self.gathered.strings.intern(text)
    }

    fn dict(&mut self, items: &[Value], heap: &mut Heap) -> Result<Option<Atom>, String> {
        let items = items.as_chunks::<2>().0;
        for [key, _] in items {
            // Each key is in one kind of dict only.
            return match *key {
                Value::Text(ACTION) => self.event(items, heap).map(|index| atom(kind::EVENT, index)),
                Value::Text(FILENAME) => Ok(self.frame(items)),
                Value::Text(STATE) => self.block(items, heap).map(|index| atom(kind::BLOCK, index)),
                Value::Text(BLOCKS) => self.segment(items, heap).map(|index| atom(kind::SEGMENT, index)),
                Value::Text(STAGE) => Ok(self.annotation(items)),
                Value::Text(REAL_SIZE) => self.history(items, heap).map(|index| atom(kind::HISTORY, index)),
                _ => continue,
            };
        }
        Ok(None)
    }

    fn list(&mut self, items: &[Value], heap: &Heap) -> Option<Atom> {
        self.scratch.clear();
        for &item in items {
            match item {
                Value::Atom(Atom { kind: kind::FRAME, index }) => self.scratch.push(FrameId(index)),
                item => match heap.resolve(item) {
                    Value::Atom(Atom { kind: kind::FRAME, index }) => self.scratch.push(FrameId(index)),
                    _ => return None,
                },
            }
        }
        let stack = self.gathered.stack(&self.scratch);
        Some(Atom { kind: kind::STACK, index: stack.0 })
    }

    fn expand(&self, atom: Atom) -> Vec<Value> {
        let frame = |frame: FrameId| Value::Atom(Atom { kind: kind::FRAME, index: frame.0 });
        self.gathered.stacks.innermost_first(StackId(atom.index)).map(frame).collect()
    }

    fn held(&self) -> usize {
        self.gathered.held() + self.histories.capacity() * 16
    }
}

fn atom(kind: u8, index: u32) -> Option<Atom> {
    Some(Atom { kind, index })
}

/// The text of a value, if it is one.
fn text(value: Value) -> Option<StringId> {
    match value {
        Value::Text(id) => Some(id),
        _ => None,
    }
}

impl Recorder {
    fn event(&mut self, items: &[[Value; 2]], heap: &mut Heap) -> Result<u32, String> {
        let mut event = Event {
            action: Action::Other,
            address: 0,
            size: 0,
            stream: 0,
            pool: None,
            stack: StackId::NONE,
            time_us: 0,
            label: StringId::EMPTY,
        };
        let mut labels = Labels::default();
        for &[key, value] in items {
            match key {
                Value::Text(ACTION) => event.action = self.gathered.action(text(value).unwrap_or(StringId::EMPTY)),
                Value::Text(ADDR) => event.address = value.unsigned().unwrap_or(0),
                Value::Text(DEVICE_FREE) => event.address = value.bytes("device_free")?.unwrap_or(0),
                Value::Text(SIZE) => event.size = value.bytes("size")?.unwrap_or(0),
                Value::Text(STREAM) => event.stream = value.unsigned().unwrap_or(0),
                Value::Text(TIME_US) => event.time_us = value.signed().unwrap_or(0),
                Value::Text(FRAMES) => event.stack = self.stack(value, heap)?,
                Value::Text(POOL_ID | SEGMENT_POOL_ID) => event.pool = pool(heap.pair(value)),
                Value::Text(USER_METADATA) => labels.user = text(value),
                Value::Text(COMPILE_CONTEXT) => labels.compile = text(value),
                Value::Text(INTERNAL_METADATA | CATEGORY) => labels.other = text(value),
                _ => {}
            }
        }
        event.label = labels.chosen();
        Ok(self.gathered.push_event(event))
    }

    fn frame(&mut self, items: &[[Value; 2]]) -> Option<Atom> {
        let (mut name, mut file, mut line) = (StringId::EMPTY, StringId::EMPTY, 0);
        for &[key, value] in items {
            match key {
                Value::Text(NAME) => name = text(value).unwrap_or_default(),
                Value::Text(FILENAME) => file = text(value).unwrap_or_default(),
                // An unknown line is -1 in some versions, and that as an unsigned number in others.
                Value::Text(LINE) => line = if let Value::Int(line) = value { line } else { 0 },
                _ => {}
            }
        }
        atom(kind::FRAME, self.gathered.frame(name, file, line).0)
    }

    fn block(&mut self, items: &[[Value; 2]], heap: &mut Heap) -> Result<u32, String> {
        let mut gathered = GatheredBlock::default();
        let block = &mut gathered.block;
        let mut requested = None;
        for &[key, value] in items {
            match key {
                Value::Text(ADDRESS) => {
                    block.address = value.unsigned().unwrap_or(0);
                    gathered.has_address = true;
                }
                Value::Text(SIZE) => block.size = value.bytes("size")?.unwrap_or(0),
                Value::Text(REQUESTED_SIZE) => requested = value.bytes("requested_size")?,
                Value::Text(STATE) => block.state = Gathered::state(text(value).unwrap_or_default()),
                Value::Text(FRAMES) => block.stack = self.stack(value, heap)?,
                // The newest tenant of the memory is the first.
                Value::Text(HISTORY) => {
                    if let Some(&(size, stack)) = first(value, kind::HISTORY, heap, &self.histories) {
                        requested = requested.or(Some(size));
                        block.stack = stack;
                    }
                }
                _ => {}
            }
        }
        block.requested = requested.unwrap_or(block.size);
        Ok(self.gathered.push_block(gathered))
    }

    fn history(&mut self, items: &[[Value; 2]], heap: &mut Heap) -> Result<u32, String> {
        let (mut size, mut stack) = (0, StackId::NONE);
        for &[key, value] in items {
            match key {
                Value::Text(REAL_SIZE) => size = value.bytes("real_size")?.unwrap_or(0),
                Value::Text(FRAMES) => stack = self.stack(value, heap)?,
                _ => {}
            }
        }
        self.histories.push((size, stack));
        Ok((self.histories.len() - 1) as u32)
    }

    fn segment(&mut self, items: &[[Value; 2]], heap: &mut Heap) -> Result<u32, String> {
        let mut gathered = GatheredSegment::default();
        let segment = &mut gathered.segment;
        for &[key, value] in items {
            match key {
                Value::Text(DEVICE) => {
                    gathered.device = value.signed().and_then(|device| u32::try_from(device).ok()).unwrap_or(0);
                }
                Value::Text(ADDRESS) => segment.address = value.unsigned().unwrap_or(0),
                Value::Text(TOTAL_SIZE) => segment.total_size = value.bytes("total_size")?.unwrap_or(0),
                Value::Text(STREAM) => segment.stream = value.unsigned().unwrap_or(0),
                Value::Text(SEGMENT_TYPE) => segment.large = text(value) == Some(LARGE),
                Value::Text(SEGMENT_POOL_ID) => segment.pool = pool(heap.pair(value)).unwrap_or(PoolId::DEFAULT),
                Value::Text(IS_EXPANDABLE) => segment.expandable = value.truth().unwrap_or(false),
                Value::Text(FRAMES) => segment.stack = self.stack(value, heap)?,
                Value::Text(BLOCKS) => {
                    let blocks = self.contiguous(&runs(value, kind::BLOCK, heap)?);
                    (segment.first_block, segment.end_block) = (blocks.start, blocks.end);
                }
                _ => {}
            }
        }
        self.gathered.segments.push(gathered);
        Ok((self.gathered.segments.len() - 1) as u32)
    }

    /// One run of blocks for several: those that do not follow each other are copied to the end.
    fn contiguous(&mut self, runs: &[Range<u32>]) -> Range<u32> {
        let blocks = &mut self.gathered.blocks;
        match runs {
            [] => 0..0,
            [run] => run.clone(),
            _ => {
                let start = blocks.len();
                for index in runs.iter().cloned().flatten() {
                    if let Some(&block) = blocks.get(index as usize) {
                        blocks.push(block);
                    }
                }
                start as u32..blocks.len() as u32
            }
        }
    }

    fn annotation(&mut self, items: &[[Value; 2]]) -> Option<Atom> {
        let mut annotation = Annotation { stage: Stage::Start, name: StringId::EMPTY, device: 0, time_us: 0 };
        for &[key, value] in items {
            match key {
                Value::Text(STAGE) => {
                    annotation.stage = match text(value) {
                        Some(START) => Stage::Start,
                        Some(END) => Stage::End,
                        _ => return None,
                    }
                }
                Value::Text(NAME) => annotation.name = text(value).unwrap_or_default(),
                Value::Text(DEVICE) => annotation.device = value.unsigned().unwrap_or(0) as u32,
                Value::Text(TIME_US) => annotation.time_us = value.signed().unwrap_or(0),
                _ => {}
            }
        }
        self.gathered.annotations.push(annotation);
        atom(kind::ANNOTATION, (self.gathered.annotations.len() - 1) as u32)
    }

    /// The stack of a list of frames. A list that was put together in several steps is interned at its first use.
    fn stack(&mut self, value: Value, heap: &mut Heap) -> Result<StackId, String> {
        if let Value::Atom(Atom { kind: kind::STACK, index }) = heap.resolve(value) {
            return Ok(StackId(index));
        }
        let Some(list) = heap.list(value) else { return Ok(StackId::NONE) };
        let frames: Vec<FrameId> = match list {
            List::Values(values) => values
                .iter()
                .filter_map(|&item| match heap.resolve(item) {
                    Value::Atom(Atom { kind: kind::FRAME, index }) => Some(FrameId(index)),
                    _ => None,
                })
                .collect(),
            List::Empty => return Ok(StackId::NONE),
            List::Atom { .. } | List::Records(_) | List::Taken => {
                return Err("the frames of an entry are no list of frames".into());
            }
        };
        let stack = self.gathered.stack(&frames);
        heap.set_atom(value, Atom { kind: kind::STACK, index: stack.0 });
        Ok(stack)
    }

    /// Which of the records are whose. `None` for a pickle of something else; `Err` says in one sentence why
    /// the file cannot be right.
    fn layout(&mut self, value: Value, heap: &mut Heap) -> Result<Option<Layout>, String> {
        let mut layout = Layout::default();
        // torch.cuda.memory_snapshot() gives the segments alone, and some keep the history of one device alone.
        match heap.list(value) {
            Some(List::Empty) => return Ok(Some(layout)),
            Some(List::Records(records)) if records.kind == kind::EVENT => {
                layout.events.push((DeviceKind::Cuda, 0, runs(value, kind::EVENT, heap)?));
                return Ok(Some(layout));
            }
            Some(_) => {
                layout.segments = runs(value, kind::SEGMENT, heap)?;
                return Ok((!layout.segments.is_empty()).then_some(layout));
            }
            None => {}
        }
        let items = heap.items(value).to_vec();
        let mut known = false;
        for (key, value) in items {
            match key {
                Value::Text(SEGMENTS) => layout.segments = runs(value, kind::SEGMENT, heap)?,
                Value::Text(HOST_SEGMENTS) => layout.host_segments = runs(value, kind::SEGMENT, heap)?,
                Value::Text(DEVICE_TRACES) => {
                    for (device, trace) in members(value, heap).into_iter().enumerate() {
                        let events = runs(trace, kind::EVENT, heap)?;
                        layout.events.push((DeviceKind::Cuda, device as u32, events));
                    }
                }
                // One list for all host memory in 2.15; a list of lists is read as well.
                Value::Text(HOST_TRACES) => {
                    let mut events = Vec::new();
                    for trace in members(value, heap) {
                        events.extend(runs(trace, kind::EVENT, heap)?);
                    }
                    events.extend(runs(value, kind::EVENT, heap)?);
                    layout.events.push((DeviceKind::PinnedHost, 0, events));
                }
                Value::Text(EXTERNAL_ANNOTATIONS) => layout.annotations = runs(value, kind::ANNOTATION, heap)?,
                Value::Text(ALLOCATOR_SETTINGS) => layout.settings = self.settings(value, heap),
                _ => continue,
            }
            known = true;
        }
        Ok(known.then_some(layout))
    }

    fn settings(&self, value: Value, heap: &Heap) -> Settings {
        let strings = &self.gathered.strings;
        let mut settings = Settings::default();
        for &(key, value) in heap.items(value) {
            let Value::Text(name) = key else { continue };
            match (name, value) {
                (PYTORCH_CUDA_ALLOC_CONF, Value::Text(conf)) => settings.conf = Some(strings.get(conf).to_owned()),
                // Unlimited is written as -1, which is u64::MAX when it is unsigned.
                (MAX_SPLIT_SIZE, value) => settings.max_split_size = value.unsigned(),
                (GARBAGE_COLLECTION_THRESHOLD, Value::Float(value)) => {
                    settings.garbage_collection_threshold = Some(value);
                }
                (EXPANDABLE_SEGMENTS, value) => settings.expandable_segments = value.truth(),
                (ROUNDUP_POWER2_DIVISIONS, value) => {
                    for &(from, divisions) in heap.items(value) {
                        let from = text(from).and_then(|from| strings.get(from).parse().ok());
                        if let (Some(from), Some(divisions)) = (from, divisions.unsigned()) {
                            settings.roundup_power2_divisions.push((from, divisions));
                        }
                    }
                    settings.roundup_power2_divisions.sort_unstable();
                }
                (name, value) => {
                    let value = match value {
                        Value::Bool(value) => value.to_string(),
                        Value::Int(value) => value.to_string(),
                        Value::Unsigned(value) => value.to_string(),
                        Value::Float(value) => value.to_string(),
                        Value::Text(value) => strings.get(value).to_owned(),
                        _ => continue,
                    };
                    settings.others.push((strings.get(name).to_owned(), value));
                }
            }
        }
        settings
    }
}

/// The first record of a list.
fn first<'a, T>(value: Value, kind: u8, heap: &Heap, records: &'a [T]) -> Option<&'a T> {
    let index = match heap.list(value)? {
        List::Records(list) if list.kind == kind => list.runs.first()?.start,
        List::Values(values) => match heap.resolve(*values.first()?) {
            Value::Atom(atom) if atom.kind == kind => atom.index,
            _ => return None,
        },
        _ => return None,
    };
    records.get(index as usize)
}

/// The records of one kind in a list, which is taken: a list that is used twice would be there twice.
fn runs(value: Value, wanted: u8, heap: &mut Heap) -> Result<Vec<Range<u32>>, String> {
    match heap.list(value) {
        Some(List::Records(records)) if records.kind != wanted => return Ok(Vec::new()),
        Some(List::Records(_) | List::Values(_)) => {}
        Some(List::Taken) => return Err("one list is used in two places".into()),
        Some(List::Empty | List::Atom { .. }) | None => return Ok(Vec::new()),
    }
    match heap.take(value) {
        Some(List::Records(records)) => Ok(records.runs),
        Some(List::Values(values)) => Ok(values
            .into_iter()
            .filter_map(|item| match heap.resolve(item) {
                Value::Atom(Atom { kind, index }) if kind == wanted => Some(index..index.saturating_add(1)),
                _ => None,
            })
            .collect()),
        _ => Ok(Vec::new()),
    }
}

/// The members of a list of lists.
fn members(value: Value, heap: &Heap) -> Vec<Value> {
    match heap.list(value) {
        Some(List::Values(values)) => values.to_vec(),
        _ => Vec::new(),
    }
}
