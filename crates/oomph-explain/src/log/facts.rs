//! From a message to its typed facts.

use regex::Captures;

use super::patterns::Pattern;
use super::report::{Facts, OtherProcess};
use super::size;
use super::text::Paragraph;

/// What llama.cpp calls the memory that it computes in.
pub(crate) const COMPUTE_BUFFER: &str = "compute buffer";

/// What a pattern found in a message.
pub(crate) struct Reading {
    /// The typed figures.
    pub facts: Facts,
    /// The back end that the words name.
    pub backend: Option<String>,
    /// A part of the program or an operation that the words name.
    pub named: Option<String>,
    /// Where the head starts in the paragraph.
    pub start: usize,
    /// Where the head ends.
    pub end: usize,
    /// How many facts were read.
    pub count: usize,
}

/// Reads a message with a pattern; None if the pattern does not match.
pub(crate) fn read(pattern: &Pattern, paragraph: &Paragraph) -> Option<Reading> {
    let text = paragraph.text.as_str();
    let searched = if pattern.line_only { &text[..paragraph.first_line] } else { text };
    if pattern.needs.as_ref().is_some_and(|needs| !needs.matches(text))
        || pattern.unless.as_ref().is_some_and(|unless| unless.matches(text))
    {
        return None;
    }
    let head = pattern.head.regex()?.captures(searched)?;
    let whole = head.get(0)?;
    if whole.start() >= paragraph.first_line.max(1) {
        return None;
    }
    let mut reading = Reading {
        facts: Facts::default(),
        backend: pattern.backend.clone(),
        named: None,
        start: whole.start(),
        end: whole.end(),
        count: 0,
    };
    let names: Vec<&str> = pattern.head.regex()?.capture_names().flatten().collect();
    reading.take(&head, &names, paragraph, 0);
    // Details follow the head; a second message of the same form after it does not belong to this one.
    let rest_from = whole.start();
    let rest_to = next_head(pattern, text, whole.as_str(), whole.end());
    let rest = &text[rest_from..rest_to];
    for detail in &pattern.details {
        let Some(regex) = detail.regex() else { continue };
        let names: Vec<&str> = regex.capture_names().flatten().collect();
        if names.contains(&"other_pid") {
            for captures in regex.captures_iter(rest).take(64) {
                reading.other_process(&captures, paragraph, rest_from);
            }
        } else if let Some(captures) = regex.captures(rest) {
            reading.take(&captures, &names, paragraph, rest_from);
            reading.end = reading.end.max(rest_from + captures.get(0).map_or(0, |found| found.end()));
        }
    }
    Some(reading)
}

/// Where a second message of the same form starts.
fn next_head(pattern: &Pattern, text: &str, found: &str, from: usize) -> usize {
    pattern
        .head
        .regex()
        .and_then(|head| head.find_at(text, from))
        .filter(|next| next.start() > from && first_words(next.as_str()) == first_words(found))
        .map_or(text.len(), |next| next.start())
}

/// The start of a head, which distinguishes its alternatives: one message may hold two of them.
fn first_words(head: &str) -> &[u8] {
    &head.as_bytes()[..head.len().min(8)]
}

impl Reading {
    fn take(&mut self, captures: &Captures<'_>, names: &[&str], paragraph: &Paragraph, offset: usize) {
        for name in names {
            let Some(found) = captures.name(name) else { continue };
            let line = paragraph.line_at(offset + found.start());
            self.put(name.trim_end_matches(|c: char| c.is_ascii_digit()), found.as_str(), line);
        }
    }

    fn put(&mut self, name: &str, value: &str, line: u64) {
        let facts = &mut self.facts;
        let (name, bytes) = match name.strip_suffix("_gib") {
            Some(name) => (name, size::parse_gib(value)),
            None => (name, size::parse(value)),
        };
        // TensorRT counts what a tactic asks for in bytes or, in its releases before 8.6, in MiB, and prints no unit.
        let (name, bytes) = match name.strip_suffix("_tactic") {
            Some(name) => (name, bytes.map(|bytes| if bytes < 1 << 20 { bytes << 20 } else { bytes })),
            None => (name, bytes),
        };
        let (field, key) = match name {
            "requested" => (&mut facts.requested_bytes, "requested_bytes"),
            "exact" => {
                // The same request in plain bytes: better than its rounded figure.
                if bytes.is_some() {
                    facts.requested_bytes = None;
                }
                (&mut facts.requested_bytes, "requested_bytes")
            }
            "capacity" => (&mut facts.capacity_bytes, "capacity_bytes"),
            "free" => (&mut facts.free_bytes, "free_bytes"),
            "allocated" => (&mut facts.allocated_bytes, "allocated_bytes"),
            "reserved" => (&mut facts.reserved_bytes, "reserved_bytes"),
            "process" => (&mut facts.process_bytes, "process_bytes"),
            "unallocated" => (&mut facts.unallocated_bytes, "unallocated_bytes"),
            "private_pools" => (&mut facts.private_pools_bytes, "private_pools_bytes"),
            "limit" => (&mut facts.limit_bytes, "limit_bytes"),
            "kv_available" => (&mut facts.kv_cache_available_bytes, "kv_cache_available_bytes"),
            "device" => {
                if facts.device.is_none()
                    && let Ok(device) = value.parse()
                {
                    facts.device = Some(device);
                    facts.lines.insert("device", line);
                    self.count += 1;
                }
                return;
            }
            "context" => (&mut facts.context_tokens, "context_tokens"),
            "context_fits" => (&mut facts.context_tokens_that_fit, "context_tokens_that_fit"),
            "fraction" => {
                facts.utilization = value.parse().ok();
                return;
            }
            "shape" => {
                facts.shape = shape(value);
                return;
            }
            "dtype" => {
                facts.dtype = Some(value.to_owned());
                return;
            }
            "backend" => {
                self.backend = backend(value);
                return;
            }
            "op" | "component" => {
                self.named = Some(value.to_owned());
                return;
            }
            "kv" => {
                self.named = Some("kv cache".to_owned());
                return;
            }
            "compute" => {
                self.named = Some(COMPUTE_BUFFER.to_owned());
                return;
            }
            _ => return,
        };
        // A limit of 2^64 says that there is none.
        let bytes = bytes.filter(|bytes| name != "limit" || *bytes < super::identities::UNKNOWN_FROM);
        if field.is_none() && bytes.is_some() {
            *field = bytes;
            facts.lines.insert(key, line);
            self.count += 1;
        }
    }

    fn other_process(&mut self, captures: &Captures<'_>, paragraph: &Paragraph, offset: usize) {
        let (Some(pid), Some(bytes)) = (captures.name("other_pid"), captures.name("other_bytes")) else { return };
        let Ok(number) = pid.as_str().parse() else { return };
        let bytes = size::parse(bytes.as_str()).filter(|bytes| *bytes < super::identities::UNKNOWN_FROM);
        let line = paragraph.line_at(offset + pid.start());
        self.facts.other_processes.push(OtherProcess { pid: number, bytes, line });
        self.count += 1;
    }
}

/// The back end's name where it is not the usual one.
fn backend(word: &str) -> Option<String> {
    let name = match word.to_ascii_lowercase().as_str() {
        "cuda" => return None,
        "hip" | "rocm" => "rocm",
        "vk" | "vulkan" => "vulkan",
        other => return Some(other.to_owned()),
    };
    Some(name.to_owned())
}

fn shape(text: &str) -> Option<Vec<u64>> {
    let inside = text.trim_start_matches('[').trim_end_matches(']');
    inside.split(',').map(str::trim).filter(|part| !part.is_empty()).map(|part| part.parse().ok()).collect()
}

impl Facts {
    /// Whether two messages can be about the same failure: no figure of theirs contradicts another.
    pub(crate) fn agrees_with(&self, other: &Facts) -> bool {
        let close = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (Some(one), Some(other)) => one.abs_diff(other) <= (one / 128).max(16 << 10),
            _ => true,
        };
        close(self.requested_bytes, other.requested_bytes)
            && close(self.capacity_bytes, other.capacity_bytes)
            && close(self.free_bytes, other.free_bytes)
            && close(self.allocated_bytes, other.allocated_bytes)
            && (self.device.is_none() || other.device.is_none() || self.device == other.device)
    }

    /// Fills what is missing from another message about the same failure.
    pub(crate) fn complete_from(&mut self, other: Facts) {
        macro_rules! fill {
            ($($field:ident),*) => { $( if self.$field.is_none() { self.$field = other.$field; } )* };
        }
        fill!(
            device,
            requested_bytes,
            capacity_bytes,
            free_bytes,
            allocated_bytes,
            reserved_bytes,
            process_bytes,
            unallocated_bytes,
            private_pools_bytes,
            limit_bytes,
            kv_cache_available_bytes,
            context_tokens,
            context_tokens_that_fit,
            utilization,
            shape,
            dtype
        );
        if self.other_processes.is_empty() {
            self.other_processes = other.other_processes;
        }
        for (key, line) in other.lines {
            self.lines.entry(key).or_insert(line);
        }
    }

    /// Whether any figure was read.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.other_processes.is_empty() && self.shape.is_none()
    }
}
