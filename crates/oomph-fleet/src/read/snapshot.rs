//! Reads recordings of memory: who owned it, why it ran out, and what would have helped.

use std::io::Read;

use oomph_explain::snapshot::{self, DeviceExplanation, Explanation, Group, Names, Options, Outcome, Owner};
use oomph_gpu::Catalogue;
use oomph_trace::{DeviceKind, ReadOptions, Trace};

use super::{Context, Reason, day_of};
use crate::found::{Day, Found, figure, word};
use crate::schema;

/// The most groups of one kind that become rows: the largest ones.
const MOST_GROUPS: usize = 50;
/// The most frames of a stack that are written.
const MOST_FRAMES: usize = 48;
/// The most events of a device that become rows.
const MOST_EVENTS: usize = 1_000_000;
/// The largest file of names, in bytes.
const LARGEST_NAMES: u64 = 64 << 20;

/// Reads a recording.
///
/// # Errors
/// When it is too large, breaks off, or is not what it says it is.
pub(super) fn read(
    context: &Context,
    reader: impl Read,
    found: &mut Found,
    notes: &mut Vec<String>,
) -> Result<(), Reason> {
    let reading = context.reading;
    if context.item.size > reading.largest_snapshot {
        let (size, limit) = (context.item.size >> 20, reading.largest_snapshot >> 20);
        return Err(format!(
            "the snapshot has {size} MiB, and {limit} MiB are allowed; pass --snapshot-limit to read it"
        ));
    }
    let options =
        ReadOptions { salvage: reading.salvage, memory_limit: reading.snapshot_memory, ..ReadOptions::default() };
    let trace = oomph_trace::read_from(reader, "", &options).map_err(|error| {
        let offset = error.offset.map_or(String::new(), |offset| format!("byte {offset}: "));
        format!("{offset}{}", error.cause)
    })?;
    let names = names(context, notes);
    let options = Options {
        capacity: reading.gpu.as_ref().map(|gpu| gpu.capacity_bytes),
        context_bytes: reading.gpu.as_ref().map(|gpu| gpu.context.expected_bytes),
        what_if: reading.what_if,
        cards: reading.cards.clone(),
        ..Options::default()
    };
    let explanation = snapshot::explain(&trace, &options, names.as_ref());
    if explanation.devices.is_empty() {
        return Err("no GPU memory events in this file".to_owned());
    }
    notes.extend(explanation.notes.iter().cloned());
    for device in &explanation.devices {
        add(context, &explanation, device, found);
    }
    if reading.events {
        for device in trace.devices.iter().filter(|device| device.kind == DeviceKind::Cuda) {
            add_events(context, &trace, device, found, notes);
        }
    }
    Ok(())
}

/// What a dry run named, in addition to the snapshot.
fn names(context: &Context, notes: &mut Vec<String>) -> Option<Names> {
    let path = context.item.names.as_ref()?;
    let text = std::fs::metadata(path).and_then(|metadata| match metadata.len() {
        0..=LARGEST_NAMES => std::fs::read(path),
        _ => Err(std::io::Error::other("the file of names is too large")),
    });
    match text
        .map_err(|error| error.to_string())
        .and_then(|text| Names::parse(&text).map_err(|error| error.to_string()))
    {
        Ok(names) => Some(names),
        Err(error) => {
            notes.push(error);
            None
        }
    }
}

fn add(context: &Context, explanation: &Explanation, device: &DeviceExplanation, found: &mut Found) {
    let id = context.part(device.index);
    let at = context.plausible(device.oom.as_ref().and_then(|oom| oom.time_us).or(device.peak.time_us));
    let day = day_of(at.unwrap_or(context.item.modified_us));
    let catalogue = Catalogue::builtin();
    let smallest = device.smallest_card.as_ref();
    let smallest_gpu = smallest.and_then(|smallest| smallest.card.as_deref()).and_then(|card| catalogue.get(card));
    let gpu = context.reading.gpu.as_ref();
    let died = device.verdict.outcome == Outcome::Oom;
    found.push(
        day,
        schema::Report {
            id: id.clone(),
            file_id: Some(context.id.clone()),
            source: Some("snapshot".to_owned()),
            path: Some(context.item.path.clone()),
            written_at: Some(at.unwrap_or(context.item.modified_us)),
            verdict: word(&device.verdict.outcome),
            gpu: gpu.map(|gpu| gpu.id.clone()),
            device: Some(i64::from(device.index)),
            capacity_bytes: device.card.and_then(|card| figure(card.capacity_bytes)),
            process_bytes: device
                .card
                .and_then(|card| figure(device.peak_reserved_bytes.saturating_add(card.context_bytes))),
            reserved_bytes: figure(device.peak_reserved_bytes),
            allocated_bytes: figure(device.peak_active_bytes),
            context_bytes: device.card.and_then(|card| figure(card.context_bytes)),
            needed_bytes: smallest.and_then(|smallest| figure(smallest.capacity_bytes)),
            smallest_gpu: smallest_gpu.map(|gpu| gpu.id.clone()),
            smallest_gpu_bytes: smallest_gpu.and_then(|gpu| figure(gpu.capacity_bytes)),
            steps: Some(i64::from(device.steps)),
            settings: Some(explanation.settings.clone()),
            ..schema::Report::default()
        },
    );
    if died {
        add_failure(context, device, at, day, found);
    }
    let id = id.as_deref();
    add_owners(id, device, day, found);
    add_causes(id, device, day, found);
    add_what_if(id, device, day, found);
    for (grouped_by, groups) in [
        ("line", &device.by_line),
        ("module", &device.by_module),
        ("dtype", &device.by_dtype),
        ("phase", &device.by_phase),
    ] {
        add_groups(id, grouped_by, groups, day, found);
    }
    add_stacks(id, device, day, found);
}

/// Whose the memory was.
fn add_owners(id: Option<&str>, device: &DeviceExplanation, day: Day, found: &mut Found) {
    let moment = word(&device.peak.at);
    for row in &device.owners {
        found.push(
            day,
            schema::Owner {
                id: id.map(str::to_owned),
                source: Some("snapshot".to_owned()),
                moment: moment.clone(),
                owner: word(&row.owner),
                bytes: figure(row.bytes),
                blocks: figure(row.blocks),
                confidence: Some(row.confidence),
                known_by: word(&row.source),
                in_reserved: Some(in_reserved(row.owner)),
            },
        );
    }
}

/// Why it ran out, or was nearly full.
fn add_causes(id: Option<&str>, device: &DeviceExplanation, day: Day, found: &mut Found) {
    for (place, cause) in device.causes.iter().enumerate() {
        let site = cause.evidence.iter().find_map(|evidence| evidence.site.as_ref());
        found.push(
            day,
            schema::Cause {
                id: id.map(str::to_owned),
                source: Some("snapshot".to_owned()),
                place: i64::try_from(place + 1).ok(),
                cause: word(&cause.cause),
                background: Some(cause.background),
                confidence: Some(cause.confidence),
                bytes: figure(cause.bytes),
                each_bytes: cause.each_bytes.and_then(figure),
                because: Some(cause.because.clone()),
                site_file: site.map(|site| site.file.clone()),
                site_line: site.map(|site| i64::from(site.line)),
            },
        );
    }
}

/// What other settings and cards would have changed.
fn add_what_if(id: Option<&str>, device: &DeviceExplanation, day: Day, found: &mut Found) {
    for row in &device.what_if {
        found.push(
            day,
            schema::WhatIf {
                id: id.map(str::to_owned),
                known_by: Some("replayed".to_owned()),
                settings: Some(row.settings.clone()),
                as_recorded: Some(row.as_recorded),
                gpu: Catalogue::builtin().get(&row.card).map(|gpu| gpu.id.clone()),
                capacity_bytes: figure(row.capacity_bytes),
                survives: Some(row.survives),
                peak_reserved_bytes: figure(row.peak_reserved_bytes),
                frees_bytes: row.difference_bytes.checked_neg(),
                ..schema::WhatIf::default()
            },
        );
    }
}

/// Where the most of it was allocated.
fn add_stacks(id: Option<&str>, device: &DeviceExplanation, day: Day, found: &mut Found) {
    for stack in &device.top_stacks {
        let frames: Vec<String> = stack.frames.iter().take(MOST_FRAMES).map(ToString::to_string).collect();
        found.push(
            day,
            schema::Stack {
                id: id.map(str::to_owned),
                grouped_by: Some("stack".to_owned()),
                name: Some(frames.join(";")),
                bytes: figure(stack.bytes),
                blocks: figure(stack.blocks),
                owner: word(&stack.owner),
            },
        );
    }
}

fn add_failure(context: &Context, device: &DeviceExplanation, at: Option<i64>, day: Day, found: &mut Found) {
    let Some(oom) = &device.oom else { return };
    let cause = device.causes.iter().find(|cause| !cause.background);
    found.push(
        day,
        schema::Failure {
            id: context.part(device.index),
            file_id: Some(context.id.clone()),
            source: Some("snapshot".to_owned()),
            path: Some(context.item.path.clone()),
            happened_at: Some(at.unwrap_or(context.item.modified_us)),
            time_is_recorded: Some(at.is_some()),
            is_gpu_oom: Some(true),
            certainty: Some(1.0),
            framework: Some("pytorch".to_owned()),
            gpu: context.reading.gpu.as_ref().map(|gpu| gpu.id.clone()),
            device: Some(i64::from(device.index)),
            site_file: oom.site.as_ref().map(|site| site.file.clone()),
            site_line: oom.site.as_ref().map(|site| i64::from(site.line)),
            site_function: oom.site.as_ref().map(|site| site.function.clone()),
            operation: word(&oom.phase),
            cause: cause.and_then(|cause| word(&cause.cause)),
            cause_confidence: cause.map(|cause| cause.confidence),
            requested_bytes: figure(oom.requested_bytes),
            capacity_bytes: device.card.and_then(|card| figure(card.capacity_bytes)),
            free_bytes: figure(oom.free_bytes),
            allocated_bytes: figure(device.peak.allocated_bytes),
            reserved_bytes: figure(device.peak.reserved_bytes),
            shortfall_bytes: figure(oom.requested_bytes.saturating_sub(oom.free_bytes)),
            needed_bytes: device.smallest_card.as_ref().and_then(|smallest| figure(smallest.capacity_bytes)),
            survived: Some(!oom.fatal),
            times: figure(oom.count),
            message: Some(device.verdict.happened.clone()),
            ..schema::Failure::default()
        },
    );
}

/// Live bytes with something in common.
pub(super) fn add_groups(id: Option<&str>, grouped_by: &str, groups: &[Group], day: Day, found: &mut Found) {
    for group in groups.iter().take(MOST_GROUPS) {
        found.push(
            day,
            schema::Stack {
                id: id.map(str::to_owned),
                grouped_by: Some(grouped_by.to_owned()),
                name: Some(group.name.clone()),
                bytes: figure(group.bytes),
                blocks: figure(group.blocks),
                owner: word(&group.owner),
            },
        );
    }
}

/// Whether an owner's bytes are part of what the framework's allocator reserved.
pub(super) fn in_reserved(owner: Owner) -> bool {
    !matches!(owner, Owner::Context | Owner::OtherProcesses | Owner::Free)
}

fn add_events(
    context: &Context,
    trace: &Trace,
    device: &oomph_trace::Device,
    found: &mut Found,
    notes: &mut Vec<String>,
) {
    let id = context.part(device.index);
    let day = context.day();
    if device.events.len() > MOST_EVENTS {
        notes.push(format!("only the last {MOST_EVENTS} of {} events are kept", device.events.len()));
    }
    let first = device.events.len().saturating_sub(MOST_EVENTS);
    for (index, event) in device.events.iter().enumerate().skip(first) {
        let frame = trace.stacks.innermost_first(event.stack).next().and_then(|frame| trace.frames.get(frame));
        found.push(
            day,
            schema::Event {
                id: id.clone(),
                event: i64::try_from(index).ok(),
                time_us: (event.time_us != 0).then_some(event.time_us),
                action: Some(action(event.action).to_owned()),
                address: Some(format!("{:#x}", event.address)),
                bytes: figure(event.size),
                stream: Some(event.stream.to_string()),
                line: frame.map(|frame| format!("{}:{}", trace.strings.get(frame.file), frame.line)),
            },
        );
    }
}

/// What PyTorch calls an event.
fn action(action: oomph_trace::Action) -> &'static str {
    use oomph_trace::Action;
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
