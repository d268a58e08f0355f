//! Writes PyTorch snapshots, for PyTorch's own viewer and for tests of the reader.

use std::io::{self, BufWriter, Write};

use hashbrown::HashMap;

use crate::{
    Action, Annotation, Block, BlockState, Device, DeviceKind, Event, FrameId, PoolId, Segment, Settings, StackId,
    Stage, StringId, Trace,
};

/// Which entries of a snapshot share one list of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StackSharing {
    /// All that have the same stack: the smallest file.
    #[default]
    All,
    /// Only an event and the one before it. PyTorch writes so: a request to free and its completion share a traceback
    /// object, other events have one each, however equal.
    Neighbours,
}

/// Writes a trace as a snapshot, in pickle protocol 4, which PyTorch's viewer opens.
///
/// Events of [`DeviceKind::Host`] have no place in a snapshot and are left out; labels are written as user metadata.
///
/// # Errors
/// When writing fails, or when the trace has a device index above 4095.
pub fn snapshot(trace: &Trace, sharing: StackSharing, out: impl Write) -> io::Result<()> {
    let mut pickler = Pickler {
        out: BufWriter::with_capacity(1 << 16, out),
        trace,
        sharing,
        remembered: 0,
        words: HashMap::new(),
        strings: HashMap::new(),
        frames: HashMap::new(),
        stacks: HashMap::new(),
        pools: HashMap::new(),
    };
    pickler.whole()?;
    pickler.out.flush()
}

/// As CPython, which so bounds its own stack.
const BATCH: usize = 1000;

struct Pickler<'t, W: Write> {
    out: BufWriter<W>,
    trace: &'t Trace,
    sharing: StackSharing,
    /// How many memo entries there are.
    remembered: u32,
    words: HashMap<&'static str, u32>,
    strings: HashMap<StringId, u32>,
    frames: HashMap<FrameId, u32>,
    stacks: HashMap<StackId, u32>,
    pools: HashMap<PoolId, u32>,
}

impl<W: Write> Pickler<'_, W> {
    fn whole(&mut self) -> io::Result<()> {
        let trace = self.trace;
        let of_kind = |kind| trace.devices.iter().filter(move |device| device.kind == kind);
        self.out.write_all(&[0x80, 4])?;
        self.dict(|p| {
            p.word("segments")?;
            p.list(|p| of_kind(DeviceKind::Cuda).try_for_each(|device| p.segments(device)))?;
            p.word("device_traces")?;
            p.list(|p| {
                let count = of_kind(DeviceKind::Cuda).map(|device| device.index as usize + 1).max().unwrap_or(0);
                if count > 4096 {
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, "a snapshot has at most 4096 devices"));
                }
                (0..count).try_for_each(|index| {
                    let mut devices = of_kind(DeviceKind::Cuda).filter(|device| device.index as usize == index);
                    p.list(|p| devices.try_for_each(|device| p.events(device)))
                })
            })?;
            p.word("allocator_settings")?;
            p.settings(&trace.settings)?;
            p.word("external_annotations")?;
            p.list(|p| trace.annotations.iter().try_for_each(|annotation| p.annotation(annotation)))?;
            if of_kind(DeviceKind::PinnedHost).next().is_some() {
                p.word("host_segments")?;
                p.list(|p| of_kind(DeviceKind::PinnedHost).try_for_each(|device| p.segments(device)))?;
                p.word("host_traces")?;
                p.list(|p| of_kind(DeviceKind::PinnedHost).try_for_each(|device| p.events(device)))?;
            }
            Ok(())
        })?;
        self.out.write_all(b".")
    }

    /// A dict whose items `fill` writes.
    fn dict(&mut self, fill: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        self.out.write_all(b"}")?;
        self.memoize()?;
        self.out.write_all(b"(")?;
        fill(self)?;
        self.out.write_all(b"u")
    }

    /// A list whose items `fill` writes.
    fn list(&mut self, fill: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        self.out.write_all(b"]")?;
        self.memoize()?;
        self.out.write_all(b"(")?;
        fill(self)?;
        self.out.write_all(b"e")
    }

    /// Ends a batch of a list's items, and begins the next.
    fn batch(&mut self, done: usize) -> io::Result<()> {
        if done > 0 && done.is_multiple_of(BATCH) { self.out.write_all(b"e(") } else { Ok(()) }
    }

    fn memoize(&mut self) -> io::Result<u32> {
        self.remembered += 1;
        self.out.write_all(&[0x94])?;
        Ok(self.remembered - 1)
    }

    fn get(&mut self, entry: u32) -> io::Result<()> {
        match u8::try_from(entry) {
            Ok(entry) => self.out.write_all(&[b'h', entry]),
            Err(_) => {
                self.out.write_all(b"j")?;
                self.out.write_all(&entry.to_le_bytes())
            }
        }
    }

    fn text(&mut self, text: &str) -> io::Result<u32> {
        match u8::try_from(text.len()) {
            Ok(length) => self.out.write_all(&[0x8c, length])?,
            // BINUNICODE, as CPython writes texts below 4 GiB; PyTorch's viewer does not know the wider one.
            Err(_) => {
                let length = u32::try_from(text.len())
                    .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a text is longer than 4 GiB"))?;
                self.out.write_all(b"X")?;
                self.out.write_all(&length.to_le_bytes())?;
            }
        }
        self.out.write_all(text.as_bytes())?;
        self.memoize()
    }

    fn word(&mut self, word: &'static str) -> io::Result<()> {
        if let Some(&entry) = self.words.get(word) {
            return self.get(entry);
        }
        let entry = self.text(word)?;
        self.words.insert(word, entry);
        Ok(())
    }

    fn string(&mut self, id: StringId) -> io::Result<()> {
        if let Some(&entry) = self.strings.get(&id) {
            return self.get(entry);
        }
        let entry = self.text(self.trace.strings.get(id))?;
        self.strings.insert(id, entry);
        Ok(())
    }

    fn unsigned(&mut self, value: u64) -> io::Result<()> {
        match i64::try_from(value) {
            Ok(value) => self.signed(value),
            Err(_) => {
                // A ninth byte keeps the sign.
                self.out.write_all(&[0x8a, 9])?;
                self.out.write_all(&value.to_le_bytes())?;
                self.out.write_all(&[0])
            }
        }
    }

    fn signed(&mut self, value: i64) -> io::Result<()> {
        if let Ok(value) = u8::try_from(value) {
            self.out.write_all(&[b'K', value])
        } else if let Ok(value) = u16::try_from(value) {
            self.out.write_all(b"M")?;
            self.out.write_all(&value.to_le_bytes())
        } else if let Ok(value) = i32::try_from(value) {
            self.out.write_all(b"J")?;
            self.out.write_all(&value.to_le_bytes())
        } else {
            self.out.write_all(&[0x8a, 8])?;
            self.out.write_all(&value.to_le_bytes())
        }
    }

    fn truth(&mut self, value: bool) -> io::Result<()> {
        self.out.write_all(&[if value { 0x88 } else { 0x89 }])
    }

    fn pool(&mut self, pool: PoolId) -> io::Result<()> {
        if let Some(&entry) = self.pools.get(&pool) {
            return self.get(entry);
        }
        self.unsigned(pool.0)?;
        self.unsigned(pool.1)?;
        self.out.write_all(&[0x86])?;
        let entry = self.memoize()?;
        self.pools.insert(pool, entry);
        Ok(())
    }

    fn frame(&mut self, id: FrameId) -> io::Result<()> {
        if let Some(&entry) = self.frames.get(&id) {
            return self.get(entry);
        }
        let Some(frame) = self.trace.frames.get(id) else { return Ok(()) };
        self.frames.insert(id, self.remembered);
        self.dict(|p| {
            p.word("name")?;
            p.string(frame.name)?;
            p.word("filename")?;
            p.string(frame.file)?;
            p.word("line")?;
            p.unsigned(u64::from(frame.line))
        })
    }

    fn stack(&mut self, stack: StackId) -> io::Result<()> {
        if let Some(&entry) = self.stacks.get(&stack) {
            return self.get(entry);
        }
        if self.sharing == StackSharing::Neighbours {
            self.stacks.clear();
        }
        self.stacks.insert(stack, self.remembered);
        let trace = self.trace;
        self.list(|p| {
            trace.stacks.innermost_first(stack).enumerate().try_for_each(|(done, frame)| {
                p.batch(done)?;
                p.frame(frame)
            })
        })
    }

    fn events(&mut self, device: &Device) -> io::Result<()> {
        device.events.iter().enumerate().try_for_each(|(done, event)| {
            self.batch(done)?;
            self.event(&event)
        })
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.dict(|p| {
            p.word("action")?;
            p.word(action(event.action))?;
            p.word(if event.action == Action::Oom { "device_free" } else { "addr" })?;
            p.unsigned(event.address)?;
            p.word("size")?;
            p.unsigned(event.size)?;
            p.word("stream")?;
            p.unsigned(event.stream)?;
            if event.time_us != 0 {
                p.word("time_us")?;
                p.signed(event.time_us)?;
            }
            if event.label != StringId::EMPTY {
                p.word("user_metadata")?;
                p.string(event.label)?;
            }
            if let Some(pool) = event.pool {
                p.word("pool_id")?;
                p.pool(pool)?;
            }
            if event.stack != StackId::NONE {
                p.word("frames")?;
                p.stack(event.stack)?;
            }
            Ok(())
        })
    }

    fn segments(&mut self, device: &Device) -> io::Result<()> {
        device.segments.iter().try_for_each(|segment| self.segment(device, segment))
    }

    fn segment(&mut self, device: &Device, segment: &Segment) -> io::Result<()> {
        let blocks = device.blocks_of(segment);
        let sum = |of: fn(&Block) -> u64| blocks.iter().map(of).fold(0, u64::saturating_add);
        self.dict(|p| {
            p.word("device")?;
            p.signed(if device.kind == DeviceKind::PinnedHost { -1 } else { i64::from(device.index) })?;
            p.word("address")?;
            p.unsigned(segment.address)?;
            p.word("total_size")?;
            p.unsigned(segment.total_size)?;
            p.word("allocated_size")?;
            p.unsigned(sum(|block| if block.state == BlockState::ActiveAllocated { block.size } else { 0 }))?;
            p.word("active_size")?;
            p.unsigned(sum(|block| if block.state == BlockState::Inactive { 0 } else { block.size }))?;
            p.word("requested_size")?;
            p.unsigned(sum(|block| if block.state == BlockState::Inactive { 0 } else { block.requested }))?;
            p.word("stream")?;
            p.unsigned(segment.stream)?;
            p.word("segment_type")?;
            p.word(if segment.large { "large" } else { "small" })?;
            p.word("segment_pool_id")?;
            p.pool(segment.pool)?;
            p.word("is_expandable")?;
            p.truth(segment.expandable)?;
            p.word("frames")?;
            p.stack(segment.stack)?;
            p.word("blocks")?;
            p.list(|p| {
                blocks.iter().enumerate().try_for_each(|(done, block)| {
                    p.batch(done)?;
                    p.block(block)
                })
            })
        })
    }

    fn block(&mut self, block: &Block) -> io::Result<()> {
        self.dict(|p| {
            p.word("address")?;
            p.unsigned(block.address)?;
            p.word("size")?;
            p.unsigned(block.size)?;
            p.word("requested_size")?;
            p.unsigned(block.requested)?;
            p.word("state")?;
            p.word(match block.state {
                BlockState::ActiveAllocated => "active_allocated",
                BlockState::ActivePendingFree => "active_pending_free",
                BlockState::Inactive => "inactive",
            })?;
            p.word("frames")?;
            p.stack(block.stack)
        })
    }

    fn annotation(&mut self, annotation: &Annotation) -> io::Result<()> {
        self.dict(|p| {
            p.word("stage")?;
            p.word(if annotation.stage == Stage::Start { "START" } else { "END" })?;
            p.word("name")?;
            p.string(annotation.name)?;
            p.word("device")?;
            p.unsigned(u64::from(annotation.device))?;
            p.word("time_us")?;
            p.signed(annotation.time_us)
        })
    }

    fn settings(&mut self, settings: &Settings) -> io::Result<()> {
        self.dict(|p| {
            if let Some(conf) = &settings.conf {
                p.word("PYTORCH_CUDA_ALLOC_CONF")?;
                p.text(conf)?;
            }
            if let Some(size) = settings.max_split_size {
                p.word("max_split_size")?;
                if size == u64::MAX { p.signed(-1)? } else { p.unsigned(size)? }
            }
            if let Some(threshold) = settings.garbage_collection_threshold {
                p.word("garbage_collection_threshold")?;
                p.out.write_all(b"G")?;
                p.out.write_all(&threshold.to_be_bytes())?;
            }
            if let Some(expandable) = settings.expandable_segments {
                p.word("expandable_segments")?;
                p.truth(expandable)?;
            }
            if !settings.roundup_power2_divisions.is_empty() {
                p.word("roundup_power2_divisions")?;
                p.dict(|p| {
                    settings.roundup_power2_divisions.iter().try_for_each(|(from, divisions)| {
                        p.text(&from.to_string())?;
                        p.unsigned(*divisions)
                    })
                })?;
            }
            settings.others.iter().try_for_each(|(name, value)| {
                p.text(name)?;
                match value.as_str() {
                    "true" | "false" => p.truth(value == "true"),
                    number => match number.parse() {
                        Ok(number) => p.signed(number),
                        Err(_) => p.text(value).map(|_| ()),
                    },
                }
            })
        })
    }
}

/// An action as PyTorch writes it.
pub(super) fn action(action: Action) -> &'static str {
    match action {
        Action::Alloc => "alloc",
        Action::FreeRequested => "free_requested",
        Action::FreeCompleted => "free_completed",
        Action::SegmentAlloc => "segment_alloc",
        Action::SegmentFree => "segment_free",
        Action::SegmentMap => "segment_map",
        Action::SegmentUnmap => "segment_unmap",
        Action::Oom => "oom",
        Action::Snapshot => "snapshot",
        Action::Annotate => "annotate",
        Action::Other => "other",
    }
}
