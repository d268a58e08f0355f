//! Reads snapshots that somebody converted to JSON: the same dicts, with every stack written out.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{Error, IgnoredAny, MapAccess};

use super::gather::{Gathered, GatheredBlock, GatheredSegment, Labels, Layout, pool};
use crate::json::{Each, Scalar, TOO_LARGE};
use crate::{
    Annotation, Block, DeviceKind, Event, FrameId, PoolId, Segment, Settings, StackId, Stage, StringId, Trace,
};

/// A snapshot while it is read.
pub(crate) struct JsonSnapshot {
    memory: u64,
    gathered: Gathered,
    layout: Layout,
    scratch: Vec<FrameId>,
}

#[derive(Deserialize)]
struct JsonFrame {
    #[serde(default)]
    name: Scalar,
    #[serde(default)]
    filename: Scalar,
    #[serde(default)]
    line: Scalar,
}

#[derive(Deserialize)]
struct JsonEvent {
    action: String,
    #[serde(default)]
    addr: Scalar,
    #[serde(default)]
    device_free: Scalar,
    #[serde(default)]
    size: Scalar,
    #[serde(default)]
    stream: Scalar,
    #[serde(default)]
    time_us: Scalar,
    #[serde(default)]
    frames: Vec<JsonFrame>,
    #[serde(default)]
    pool_id: Option<Vec<Scalar>>,
    #[serde(default)]
    user_metadata: Scalar,
    #[serde(default)]
    compile_context: Scalar,
    #[serde(default)]
    internal_metadata: Scalar,
}

#[derive(Deserialize)]
struct JsonBlock {
    #[serde(default)]
    address: Scalar,
    #[serde(default)]
    size: Scalar,
    #[serde(default)]
    requested_size: Scalar,
    state: String,
    #[serde(default)]
    frames: Vec<JsonFrame>,
    #[serde(default)]
    history: Vec<JsonHistory>,
}

#[derive(Deserialize)]
struct JsonHistory {
    #[serde(default)]
    real_size: Scalar,
    #[serde(default)]
    frames: Vec<JsonFrame>,
}

#[derive(Deserialize)]
struct JsonSegment {
    #[serde(default)]
    device: Scalar,
    #[serde(default)]
    address: Scalar,
    #[serde(default)]
    total_size: Scalar,
    #[serde(default)]
    stream: Scalar,
    #[serde(default)]
    segment_type: Scalar,
    #[serde(default)]
    segment_pool_id: Option<Vec<Scalar>>,
    #[serde(default)]
    is_expandable: Scalar,
    #[serde(default)]
    frames: Vec<JsonFrame>,
    blocks: Vec<JsonBlock>,
}

#[derive(Deserialize)]
struct JsonAnnotation {
    #[serde(default)]
    stage: Scalar,
    #[serde(default)]
    name: Scalar,
    #[serde(default)]
    device: Scalar,
    #[serde(default)]
    time_us: Scalar,
}

/// A setting: plain, or a table of plain ones.
#[derive(Deserialize)]
#[serde(untagged)]
enum JsonSetting {
    Table(BTreeMap<String, Scalar>),
    Plain(Scalar),
}

impl JsonSnapshot {
    pub(crate) fn new(memory: u64) -> Self {
        Self { memory, gathered: Gathered::new(), layout: Layout::default(), scratch: Vec::new() }
    }

    /// Whether this key is one of a snapshot's.
    pub(crate) fn knows(key: &str) -> bool {
        matches!(
            key,
            "segments"
                | "device_traces"
                | "host_segments"
                | "host_traces"
                | "external_annotations"
                | "allocator_settings"
        )
    }

    /// Reads the value of a key that [`knows`](Self::knows) knows.
    pub(crate) fn value<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "segments" => map.next_value_seed(Each::new(|segment| self.segment(segment, false))),
            "host_segments" => map.next_value_seed(Each::new(|segment| self.segment(segment, true))),
            "device_traces" => {
                let mut device = 0;
                map.next_value_seed(Each::new(|events: Events| {
                    self.events(DeviceKind::Cuda, device, events.0)?;
                    device += 1;
                    Ok(())
                }))
            }
            "host_traces" => {
                let mut events = Vec::new();
                map.next_value_seed(Each::new(|event| {
                    events.push(event);
                    Ok(())
                }))?;
                self.events(DeviceKind::PinnedHost, 0, events).map_err(A::Error::custom)
            }
            "external_annotations" => map.next_value_seed(Each::new(|annotation| self.annotation(&annotation))),
            "allocator_settings" => {
                self.layout.settings = settings(map.next_value()?);
                Ok(())
            }
            _ => map.next_value::<IgnoredAny>().map(|_| ()),
        }
    }

    /// Reads one segment of a bare list.
    pub(crate) fn segment_of<'de, A: MapAccess<'de>>(&mut self, map: A) -> Result<(), A::Error> {
        let segment = JsonSegment::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
        self.segment(segment, false).map_err(A::Error::custom)
    }

    pub(crate) fn finish(self) -> Trace {
        self.gathered.into_trace(self.layout)
    }

    fn check(&self) -> Result<(), String> {
        if self.gathered.held() as u64 > self.memory { Err(TOO_LARGE.into()) } else { Ok(()) }
    }

    fn text(&mut self, value: &Scalar) -> StringId {
        value.text().map_or(StringId::EMPTY, |text| self.gathered.strings.intern(text))
    }

    fn stack(&mut self, frames: &[JsonFrame]) -> StackId {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        for frame in frames {
            let (name, file) = (self.text(&frame.name), self.text(&frame.filename));
            // An unknown line may be -1 as an unsigned number.
            let line = if let Scalar::Int(line) = frame.line { line } else { 0 };
            scratch.push(self.gathered.frame(name, file, line));
        }
        let stack = self.gathered.stack(&scratch);
        self.scratch = scratch;
        stack
    }

    fn events(&mut self, kind: DeviceKind, device: u32, events: Vec<JsonEvent>) -> Result<(), String> {
        let start = self.gathered.events.len() as u32;
        for event in events {
            self.event(&event)?;
        }
        let run = start..self.gathered.events.len() as u32;
        self.layout.events.push((kind, device, Vec::from([run])));
        Ok(())
    }

    fn event(&mut self, event: &JsonEvent) -> Result<(), String> {
        let action = self.gathered.strings.intern(&event.action);
        let labels = Labels {
            user: Some(self.text(&event.user_metadata)),
            compile: Some(self.text(&event.compile_context)),
            other: Some(self.text(&event.internal_metadata)),
        };
        let event = Event {
            action: self.gathered.action(action),
            address: event.addr.unsigned().or(event.device_free.bytes("device_free")?).unwrap_or(0),
            size: event.size.bytes("size")?.unwrap_or(0),
            stream: event.stream.unsigned().unwrap_or(0),
            pool: pool(event.pool_id.as_deref().and_then(pair)),
            stack: self.stack(&event.frames),
            time_us: event.time_us.signed().unwrap_or(0),
            label: labels.chosen(),
        };
        self.gathered.push_event(event);
        self.check()
    }

    fn segment(&mut self, segment: JsonSegment, host: bool) -> Result<(), String> {
        let first_block = self.gathered.blocks.len() as u32;
        for block in segment.blocks {
            self.block(&block)?;
        }
        let device = segment.device.signed().and_then(|device| u32::try_from(device).ok()).unwrap_or(0);
        let segment = Segment {
            address: segment.address.unsigned().unwrap_or(0),
            total_size: segment.total_size.bytes("total_size")?.unwrap_or(0),
            stream: segment.stream.unsigned().unwrap_or(0),
            large: segment.segment_type.text() == Some("large"),
            pool: pool(segment.segment_pool_id.as_deref().and_then(pair)).unwrap_or(PoolId::DEFAULT),
            expandable: segment.is_expandable.truth().unwrap_or(false),
            stack: self.stack(&segment.frames),
            first_block,
            end_block: self.gathered.blocks.len() as u32,
        };
        let index = self.gathered.segments.len() as u32;
        self.gathered.segments.push(GatheredSegment { device, segment });
        let runs = if host { &mut self.layout.host_segments } else { &mut self.layout.segments };
        runs.push(index..index + 1);
        self.check()
    }

    fn block(&mut self, block: &JsonBlock) -> Result<(), String> {
        let newest = block.history.first();
        let state = self.gathered.strings.intern(&block.state);
        let real = newest.map_or(Ok(None), |history| history.real_size.bytes("real_size"))?;
        let requested = block.requested_size.bytes("requested_size")?.or(real);
        let size = block.size.bytes("size")?.unwrap_or(0);
        let gathered = GatheredBlock {
            has_address: block.address.unsigned().is_some(),
            block: Block {
                address: block.address.unsigned().unwrap_or(0),
                size,
                requested: requested.unwrap_or(size),
                state: Gathered::state(state),
                stack: self.stack(newest.map_or(&block.frames, |history| &history.frames)),
            },
        };
        self.gathered.push_block(gathered);
        Ok(())
    }

    fn annotation(&mut self, annotation: &JsonAnnotation) -> Result<(), String> {
        let stage = match annotation.stage.text() {
            Some("START") => Stage::Start,
            Some("END") => Stage::End,
            _ => return Ok(()),
        };
        let name = self.text(&annotation.name);
        let device = annotation.device.unsigned().unwrap_or(0) as u32;
        let time_us = annotation.time_us.signed().unwrap_or(0);
        let index = self.gathered.annotations.len() as u32;
        self.gathered.annotations.push(Annotation { stage, name, device, time_us });
        self.layout.annotations.push(index..index + 1);
        self.check()
    }
}

/// The events of one device.
#[derive(Deserialize)]
#[serde(transparent)]
struct Events(Vec<JsonEvent>);

fn pair(values: &[Scalar]) -> Option<(u64, u64)> {
    match values {
        [a, b] => Some((a.unsigned()?, b.unsigned()?)),
        _ => None,
    }
}

fn settings(table: BTreeMap<String, JsonSetting>) -> Settings {
    let mut settings = Settings::default();
    for (name, value) in table {
        match (name.as_str(), value) {
            ("PYTORCH_CUDA_ALLOC_CONF", JsonSetting::Plain(Scalar::Text(conf))) => settings.conf = Some(conf),
            ("max_split_size", JsonSetting::Plain(value)) => settings.max_split_size = value.unsigned(),
            ("garbage_collection_threshold", JsonSetting::Plain(value)) => {
                settings.garbage_collection_threshold = value.float();
            }
            ("expandable_segments", JsonSetting::Plain(value)) => settings.expandable_segments = value.truth(),
            ("roundup_power2_divisions", JsonSetting::Table(table)) => {
                let entry = |(from, divisions): (String, Scalar)| Some((from.parse().ok()?, divisions.unsigned()?));
                settings.roundup_power2_divisions = table.into_iter().filter_map(entry).collect();
                settings.roundup_power2_divisions.sort_unstable();
            }
            (_, JsonSetting::Plain(value)) => settings.others.push((name, value.to_string())),
            (_, JsonSetting::Table(_)) => {}
        }
    }
    settings
}
