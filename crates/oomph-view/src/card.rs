//! Prepares one card of one recording: the columns and the tables that the page reads.

use std::collections::HashMap;

use oomph_explain::snapshot::{DeviceExplanation, History};
use oomph_trace::{DeviceKind, PoolId, StackId, Trace};
use serde::Serialize;

use crate::groups::{self, Grouping};
use crate::levels;
use crate::pack::{Column, Columns};
use crate::space::Space;

/// The times of so many moments are written; those between follow from them.
const TIMES: usize = 4096;

/// One card.
#[derive(Serialize)]
pub struct Card {
    /// What it is called.
    label: String,
    /// How many events were recorded.
    events: u32,
    /// The moment of the explanation.
    moment: u32,
    failures: Vec<u32>,
    fatal: Option<u32>,
    /// What the explanation says.
    explanation: serde_json::Value,
    /// Whether any allocation has a stack.
    stacks: bool,
    /// Each once: what a block takes, and what was asked for.
    shapes: [Column; 2],
    /// Each once: where blocks lie.
    places: Column,
    blocks: Blocks,
    ranges: Ranges,
    /// Address, size and place on the axis of what was ever taken.
    islands: [Column; 3],
    /// Each stack's caller, innermost frame and line.
    nodes: [Column; 3],
    /// Each frame's function, file, line, and whether it is worth showing.
    frames: [Column; 4],
    modules: Vec<u32>,
    names: Vec<u32>,
    streams: Vec<String>,
    /// Where parts of the program begin, and which.
    phases: [Column; 2],
    steps: Column,
    /// Positions and microseconds since the first.
    times: [Column; 2],
    /// Where moments of levels are.
    moments: Column,
    groupings: Vec<Levels>,
}

#[derive(Serialize)]
struct Blocks {
    birth: Column,
    /// 0: to the end; otherwise one more than how long it lived.
    life: Column,
    /// 0: until it died; otherwise one more than how long the program held it.
    held: Column,
    shape: Column,
    place: Column,
    stack: Column,
    stream: Column,
    owner: Column,
    named: Column,
    module: Column,
    name: Column,
}

#[derive(Serialize)]
struct Ranges {
    from: Column,
    life: Column,
    offset: Column,
    size: Column,
    stream: Column,
    /// 1 for large blocks, 2 for expandable, 4 for a private pool.
    kind: Column,
}

#[derive(Serialize)]
struct Levels {
    by: &'static str,
    names: Vec<String>,
    /// The group of each block, where that is not one of the other columns.
    of: Option<Column>,
    curves: Vec<Column>,
}

/// Strings of the page, each once.
#[derive(Default)]
pub struct Strings {
    /// By place.
    pub rows: Vec<String>,
    index: HashMap<String, u32>,
}

impl Strings {
    fn place(&mut self, text: &str) -> u32 {
        if let Some(&known) = self.index.get(text) {
            return known;
        }
        let next = self.rows.len() as u32;
        self.rows.push(text.to_owned());
        self.index.insert(text.to_owned(), next);
        next
    }
}

/// Numbers of any size, each once.
#[derive(Default)]
struct Palette<T> {
    rows: Vec<T>,
    index: HashMap<T, u64>,
}

impl<T: Copy + Eq + std::hash::Hash> Palette<T> {
    fn place(&mut self, value: T) -> u64 {
        let next = self.rows.len() as u64;
        let rows = &mut self.rows;
        *self.index.entry(value).or_insert_with(|| {
            rows.push(value);
            next
        })
    }
}

/// Writes a card into the columns.
pub fn card(
    columns: &mut Columns,
    strings: &mut Strings,
    label: String,
    trace: &Trace,
    history: &History,
    explanation: &DeviceExplanation,
) -> Result<Card, serde_json::Error> {
    let space = Space::of(history);
    let (mut shapes, mut places, mut streams) = (Palette::default(), Palette::default(), Palette::default());
    let stacks = Stacks::of(trace, history);
    let every = &history.blocks;
    let text = |names: &[String], strings: &mut Strings| names.iter().map(|name| strings.place(name)).collect();
    let (modules, names) = (text(&history.modules, strings), text(&history.names, strings));
    let owners = groups::by_owner(history);
    // Allocations of one line come one after the other, so that a column of differences is mostly noughts.
    let blocks = Blocks {
        birth: columns.delta(every.iter().map(|block| u64::from(block.birth))),
        life: columns.plain(every.iter().map(|block| life(block.birth, block.death))),
        held: columns.plain(
            every.iter().map(|block| if block.released >= block.death { 0 } else { life(block.birth, block.released) }),
        ),
        shape: columns.plain(every.iter().map(|block| shapes.place((block.size, block.requested)))),
        place: columns.plain(every.iter().map(|block| places.place(space.offset(block.address)))),
        stack: columns.plain(every.iter().map(|block| stacks.node(block.stack))),
        stream: columns.plain(every.iter().map(|block| streams.place(block.stream))),
        owner: columns.plain(owners.of.iter().map(|&owner| u64::from(owner))),
        named: columns.plain(every.iter().map(|block| u64::from(block.named))),
        module: columns.plain(every.iter().map(|block| block.module.map_or(0, |module| u64::from(module) + 1))),
        name: columns.plain(every.iter().map(|block| block.name.map_or(0, |name| u64::from(name) + 1))),
    };
    let ranges = Ranges::of(columns, history, &space, &mut streams);
    let moments = levels::moments(history);
    let groupings = groupings(columns, trace, history, &owners, &moments);
    let times = times(trace, history);
    let islands = &space.islands;
    Ok(Card {
        label,
        events: history.end,
        moment: history.moment,
        failures: history.failures.clone(),
        fatal: history.fatal,
        explanation: serde_json::to_value(explanation)?,
        stacks: stacks.nodes.len() > 1,
        shapes: [
            columns.plain(shapes.rows.iter().map(|shape| shape.0)),
            columns.plain(shapes.rows.iter().map(|shape| shape.0.saturating_sub(shape.1))),
        ],
        places: columns.delta(places.rows.iter().copied()),
        blocks,
        ranges,
        islands: [
            columns.delta(islands.iter().map(|island| island.address)),
            columns.plain(islands.iter().map(|island| island.size)),
            columns.delta(islands.iter().map(|island| island.offset)),
        ],
        nodes: stacks.nodes(columns),
        frames: stacks.frames(columns, strings, trace),
        modules,
        names,
        streams: streams.rows.iter().map(|stream| format!("{stream:#x}")).collect(),
        phases: [
            columns.delta(history.phases.iter().map(|phase| u64::from(phase.0))),
            columns.plain(history.phases.iter().map(|phase| groups::phase(phase.1) as u64)),
        ],
        steps: columns.delta(history.step_ends.iter().map(|&end| u64::from(end))),
        times: [
            columns.delta(times.iter().map(|time| u64::from(time.0))),
            columns.delta(times.iter().map(|time| time.1)),
        ],
        moments: columns.delta(moments.iter().map(|&moment| u64::from(moment))),
        groupings,
    })
}

impl Ranges {
    fn of(columns: &mut Columns, history: &History, space: &Space, streams: &mut Palette<u64>) -> Self {
        let taken = &history.ranges;
        let kind = |large: bool, expandable: bool, pool: PoolId| {
            u64::from(large) | u64::from(expandable) << 1 | u64::from(pool != PoolId::DEFAULT) << 2
        };
        Self {
            from: columns.delta(taken.iter().map(|range| u64::from(range.from))),
            life: columns.plain(taken.iter().map(|range| life(range.from, range.to))),
            offset: columns.delta(taken.iter().map(|range| space.offset(range.address))),
            size: columns.plain(taken.iter().map(|range| range.size)),
            stream: columns.plain(taken.iter().map(|range| streams.place(range.stream))),
            kind: columns.plain(taken.iter().map(|range| kind(range.large, range.expandable, range.pool))),
        }
    }
}

/// The curves of memory over time, by everything that blocks can be grouped by.
fn groupings(
    columns: &mut Columns,
    trace: &Trace,
    history: &History,
    owners: &Grouping,
    moments: &[u32],
) -> Vec<Levels> {
    let deaths = levels::deaths(history);
    let mut level = |by: &'static str, grouping: &Grouping, known: bool| {
        let of = |index: usize, _: &_| usize::from(grouping.of.get(index).copied().unwrap_or(0));
        let levels = levels::levels(history, moments, &deaths, grouping.names.len(), of);
        Levels {
            by,
            names: grouping.names.clone(),
            of: (!known).then(|| columns.plain(grouping.of.iter().map(|&group| u64::from(group)))),
            curves: levels.iter().map(|curve| columns.delta(curve.iter().copied())).collect(),
        }
    };
    let mut groupings = vec![level("owner", owners, true)];
    for (by, grouping) in [
        ("phase", groups::by_phase(history)),
        ("module", groups::by_module(history)),
        ("line", groups::by_line(trace, history)),
    ] {
        if grouping.divides() {
            groupings.push(level(by, &grouping, false));
        }
    }
    groupings
}

/// How long something was there: 0 is to the end.
fn life(from: u32, to: u32) -> u64 {
    if to == u32::MAX { 0 } else { u64::from(to.saturating_sub(from)) + 1 }
}

/// Some positions and their times; none where the recording has no clock.
fn times(trace: &Trace, history: &History) -> Vec<(u32, u64)> {
    let device = trace.devices.iter().find(|device| device.kind == DeviceKind::Cuda && device.index == history.index);
    let Some(events) = device.map(|device| &device.events).filter(|events| !events.is_empty()) else {
        return Vec::new();
    };
    let time = |index: usize| events.get(index).map_or(0, |event| event.time_us);
    let (first, last) = (time(0), time(events.len() - 1));
    if first == 0 || last <= first {
        return Vec::new();
    }
    let count = TIMES.min(events.len());
    let index = |at: usize| at * (events.len() - 1) / (count - 1).max(1);
    let mut latest = 0;
    (0..count)
        .map(|at| {
            // Clocks that run back are cut, so that time never does.
            latest = time(index(at)).saturating_sub(first).cast_unsigned().min(i64::MAX as u64).max(latest);
            (index(at) as u32 + 1, latest)
        })
        .filter(|at| at.1 <= last.abs_diff(first))
        .collect()
}

/// The stacks that blocks have, with their callers.
struct Stacks<'a> {
    trace: &'a Trace,
    /// The trace's stack of each node; the first node has none.
    nodes: Vec<StackId>,
    place: HashMap<StackId, u64>,
    lines: HashMap<StackId, u64>,
}

impl<'a> Stacks<'a> {
    fn of(trace: &'a Trace, history: &History) -> Self {
        let mut used: Vec<bool> = vec![false; trace.stacks.len()];
        for block in &history.blocks {
            let mut at = block.stack;
            while at != StackId::NONE && used.get(at.0 as usize) == Some(&false) {
                used[at.0 as usize] = true;
                at = trace.stacks.caller(at);
            }
        }
        let chosen = (1..used.len() as u32).filter(|&id| used[id as usize]).map(StackId);
        let nodes: Vec<StackId> = std::iter::once(StackId::NONE).chain(chosen).collect();
        let place = nodes.iter().enumerate().map(|(place, &stack)| (stack, place as u64)).collect();
        let mut lines = HashMap::new();
        for block in &history.blocks {
            if let Some(frame) = block.line {
                lines.insert(block.stack, u64::from(frame.0) + 1);
            }
        }
        Self { trace, nodes, place, lines }
    }

    fn node(&self, stack: StackId) -> u64 {
        self.place.get(&stack).copied().unwrap_or(0)
    }

    fn nodes(&self, columns: &mut Columns) -> [Column; 3] {
        let stacks = &self.trace.stacks;
        let frame = |&stack: &StackId| stacks.frame(stack).map_or(0, |frame| u64::from(frame.0) + 1);
        [
            columns.delta(self.nodes.iter().map(|&stack| self.node(stacks.caller(stack)))),
            columns.delta(self.nodes.iter().map(frame)),
            columns.plain(self.nodes.iter().map(|stack| self.lines.get(stack).copied().unwrap_or(0))),
        ]
    }

    fn frames(&self, columns: &mut Columns, strings: &mut Strings, trace: &Trace) -> [Column; 4] {
        let all: Vec<_> =
            (0..trace.frames.len() as u32).filter_map(|id| trace.frames.get(oomph_trace::FrameId(id))).collect();
        let names: Vec<u64> = all.iter().map(|frame| u64::from(strings.place(trace.strings.get(frame.name)))).collect();
        let files: Vec<u64> = all.iter().map(|frame| u64::from(strings.place(trace.strings.get(frame.file)))).collect();
        let worth = |frame: &oomph_trace::Frame| worth(trace.strings.get(frame.file), trace.strings.get(frame.name));
        [
            columns.delta(names),
            columns.delta(files),
            columns.delta(all.iter().map(|frame| u64::from(frame.line))),
            columns.plain(all.iter().map(worth)),
        ]
    }
}

/// 0: C++; 1: Python that is around every call; 2: PyTorch and Python's own library; 3: the program, its models and
/// what they are made of.
fn worth(file: &str, name: &str) -> u64 {
    let python = file.ends_with(".py") || file.starts_with('<');
    let path = file.replace('\\', "/");
    let torch = path.contains("-packages/torch/") || path.starts_with("torch/");
    let standard = path.contains("/lib/python3") && !path.contains("-packages/");
    let plumbing = matches!(name, "_call_impl" | "_wrapped_call_impl" | "_apply") || path.contains("/python/oomph/");
    match (python, plumbing) {
        (false, _) => 0,
        (true, true) => 1,
        _ if torch || standard || file.starts_with("<frozen") => 2,
        _ => 3,
    }
}
