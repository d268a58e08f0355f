//! Detects the format of a JSON document, and calls its reader.

use std::io::BufRead;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::device_log;
use crate::error::{Cause, Fault};
use crate::json::{Counted, Each, fault};
use crate::profiler::Profile;
use crate::snapshot::JsonSnapshot;
use crate::timeline::Timeline;
use crate::{Note, Trace};

/// Reads JSON of any of the formats. With `salvage`, a file that breaks off or goes wrong gives what precedes that.
pub(crate) fn read(mut source: impl BufRead, memory: u64, salvage: bool) -> Result<Trace, Fault> {
    let start = source.fill_buf().map_err(|error| Fault { offset: None, cause: Cause::Io(error) })?;
    if device_log::is_one(start) {
        return device_log::read(source, memory, salvage);
    }
    // A list of objects is a bare list of profiler events or of segments; only the former have phases.
    let list_of_events = start.windows(4).any(|window| window == b"\"ph\"");
    let mut counted = Counted::new(source, memory);
    let mut document = Document { list_of_events, ..Document::new(memory) };
    let result = {
        let mut deserializer = serde_json::Deserializer::from_reader(&mut counted);
        (&mut document).deserialize(&mut deserializer)
    };
    let fault = result.err().map(|error| fault(&error, counted.read(), document.memory));
    match fault {
        Some(fault) if !salvage => return Err(fault),
        Some(fault) => {
            let text = format!("only what stands before this offset was read: {}", fault.cause);
            let mut trace = document.finish().ok_or(fault)?;
            trace.notes.push(Note { offset: Some(counted.read()), text });
            return Ok(trace);
        }
        None => {}
    }
    let unknown = || Fault { offset: None, cause: Cause::Unknown("JSON of something else".into()) };
    document.finish().ok_or_else(unknown)
}

/// A document while it is read. Which format it is shows by its keys, and these may come in any order.
struct Document {
    memory: u64,
    list_of_events: bool,
    profile: Option<Profile>,
    snapshot: Option<JsonSnapshot>,
    timeline: Option<Timeline>,
}

impl Document {
    fn new(memory: u64) -> Self {
        Self { memory, list_of_events: false, profile: None, snapshot: None, timeline: None }
    }

    fn profile(&mut self) -> &mut Profile {
        self.profile.get_or_insert_with(|| Profile::new(self.memory))
    }

    fn snapshot(&mut self) -> &mut JsonSnapshot {
        self.snapshot.get_or_insert_with(|| JsonSnapshot::new(self.memory))
    }

    fn finish(self) -> Option<Trace> {
        match self {
            Document { profile: Some(profile), .. } => Some(profile.finish()),
            Document { snapshot: Some(snapshot), .. } => Some(snapshot.finish()),
            Document { timeline: Some(timeline), .. } => timeline.finish(),
            _ => None,
        }
    }
}

impl<'de> DeserializeSeed<'de> for &mut Document {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Document {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a snapshot, a profiler trace or a memory timeline")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "traceEvents" => {
                    let profile = self.profile();
                    map.next_value_seed(Each::new(|event| profile.event(event)))?;
                }
                key if JsonSnapshot::knows(key) => self.snapshot().value(key, &mut map)?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if self.list_of_events {
            let profile = self.profile();
            while let Some(event) = list.next_element()? {
                profile.event(event).map_err(serde::de::Error::custom)?;
            }
            return Ok(());
        }
        // Objects are segments, lists are a timeline's.
        loop {
            let member = Member { document: &mut *self };
            if list.next_element_seed(member)?.is_none() {
                break;
            }
        }
        if self.timeline.is_none() {
            self.snapshot();
        }
        Ok(())
    }
}

/// A member of a list that is a whole document.
struct Member<'a> {
    document: &'a mut Document,
}

impl<'de> DeserializeSeed<'de> for Member<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Member<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a segment or a row of a memory timeline")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        self.document.snapshot().segment_of(map)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<(), A::Error> {
        let memory = self.document.memory;
        self.document.timeline.get_or_insert_with(|| Timeline::new(memory)).member(list)
    }
}
