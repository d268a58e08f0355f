//! The whole of a recording for those who draw it: every block with its owner, and every range taken from the driver.
//!
//! [`super::explain`] speaks of one moment. A picture goes from moment to moment, and shows at the explained one what the
//! explanation says of it.

use std::collections::{BTreeMap, HashMap};

use oomph_allocator::Settings;
use oomph_trace::{Action, Device, DeviceKind, FrameId, PoolId, StackId, Trace};

use super::explanation::{Owner, Phase};
use super::lifetimes::{NEVER, Position};
use super::names::Names;
use super::options::Options;
use super::owners::{Inference, Naming};
use super::phases::Phases;
use super::segments::Range;
use super::stacks::Facts;
use super::timeline::Timeline;

/// Moments at which owners are looked at that only the comparison with other blocks can tell.
const MOST_MOMENTS: usize = 48;

/// The memory of one card from the first event to the last.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The index as the program counts.
    pub index: u32,
    /// How many events were recorded. A position `p` is the state after the first `p` of them.
    pub end: u32,
    /// Every block, in the order of birth.
    pub blocks: Vec<HistoryBlock>,
    /// Every range taken from the driver, in the order of time.
    pub ranges: Vec<HistoryRange>,
    /// Bytes in blocks after each position.
    pub active: Vec<u64>,
    /// Bytes taken from the driver after each position.
    pub reserved: Vec<u64>,
    /// Where each part of the program begins, and which one it is.
    pub phases: Vec<(u32, Phase)>,
    /// Where each step ends.
    pub step_ends: Vec<u32>,
    /// The modules that [`HistoryBlock::module`] counts.
    pub modules: Vec<String>,
    /// The names of tensors that [`HistoryBlock::name`] counts.
    pub names: Vec<String>,
    /// The positions just before each allocation that failed.
    pub failures: Vec<u32>,
    /// The last of them, where the recording ends with it.
    pub fatal: Option<u32>,
    /// The position that the explanation speaks of.
    pub moment: u32,
}

/// One block, from its allocation to its end.
#[derive(Clone, Copy, Debug)]
pub struct HistoryBlock {
    /// Where it starts.
    pub address: u64,
    /// What it takes, rounding and slack included.
    pub size: u64,
    /// What the program asked for.
    pub requested: u64,
    /// The stream that asked.
    pub stream: u64,
    /// The first position at which it lives; 0 for what was there before the recording.
    pub birth: u32,
    /// From where on the program no longer holds it; `u32::MAX` where it always does.
    pub released: u32,
    /// From where on its memory can be reused; `u32::MAX` for what is still there at the end.
    pub death: u32,
    /// Where in the program it was allocated.
    pub stack: StackId,
    /// The line of the program.
    pub line: Option<FrameId>,
    /// Whose it is.
    pub owner: Owner,
    /// Whether the hook named it.
    pub named: bool,
    /// The part of the program that allocated it.
    pub phase: Phase,
    /// The step in which it was allocated, from 0.
    pub step: u32,
    /// Its module, in [`History::modules`].
    pub module: Option<u32>,
    /// What the hook calls it, in [`History::names`].
    pub name: Option<u32>,
}

/// Memory taken from the driver, from when to when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryRange {
    /// Where it starts.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// The stream that it serves.
    pub stream: u64,
    /// Whether it serves blocks above 1 MiB.
    pub large: bool,
    /// Its pool.
    pub pool: PoolId,
    /// Whether it is part of an expandable segment.
    pub expandable: bool,
    /// The first position at which it is there.
    pub from: u32,
    /// The position from which it is not; `u32::MAX` for what is still there at the end.
    pub to: u32,
}

/// The history of every card of a recording.
pub fn history(trace: &Trace, options: &Options, names: Option<&Names>) -> Vec<History> {
    let settings = Settings::recorded(&trace.settings);
    let facts = Facts::of(trace);
    let cards = trace.devices.iter().filter(|device| device.kind == DeviceKind::Cuda);
    cards.map(|device| of_device(trace, device, &settings, &facts, options, names)).collect()
}

fn of_device(
    trace: &Trace,
    device: &Device,
    settings: &Settings,
    facts: &Facts,
    options: &Options,
    names: Option<&Names>,
) -> History {
    let mut timeline = Timeline::new(device, settings);
    if names.is_some_and(|names| names.oom_caught()) {
        timeline.caught_the_last();
    }
    let (moment, _) = timeline.find(options.at);
    let of_device = names.map(|names| names.of_device(device.index, timeline.allocations.len()));
    let phases = Phases::of(trace, &timeline, facts, of_device.as_ref());
    let naming = of_device.as_ref().map(|names| Naming::of(&timeline, names));
    let inference = Inference::new(trace, &timeline, facts, &phases, naming.as_ref());
    let owners = owners(&timeline, &inference, moment);

    let mut history = History {
        index: device.index,
        end: timeline.end,
        ranges: ranges(&timeline),
        phases: phases.spans().iter().map(|span| (span.start, span.kind)).collect(),
        step_ends: phases.step_ends().to_vec(),
        failures: timeline.ooms.clone(),
        fatal: timeline.fatal(),
        moment,
        ..History::default()
    };
    let (mut modules, mut tensors) = (Table::default(), Table::default());
    for (index, block) in timeline.lifetimes.iter().enumerate() {
        let birth = phases.birth(block.birth);
        let (owner, named) = owners[index];
        let of = |naming: &Naming<'_>| naming.module(index as u32).map(str::to_owned);
        let module = naming.as_ref().filter(|naming| naming.has_modules()).and_then(of);
        let name = naming.as_ref().and_then(|naming| naming.name(index as u32));
        history.blocks.push(HistoryBlock {
            address: block.address,
            size: block.size,
            requested: block.requested.min(block.size),
            stream: block.stream,
            birth: block.birth,
            released: timeline.released(block).min(block.death),
            death: block.death,
            stack: block.stack,
            line: facts.get(block.stack).line,
            owner,
            named,
            phase: birth.kind,
            step: birth.step,
            module: module.filter(|module| !module.is_empty()).map(|module| modules.place(&module)),
            name: name.map(|name| tensors.place(name)),
        });
    }
    (history.modules, history.names) = (modules.rows, tensors.rows);
    (history.active, history.reserved) = (timeline.active, timeline.reserved);
    history
}

/// Strings, each kept once.
#[derive(Default)]
struct Table {
    rows: Vec<String>,
    index: HashMap<String, u32>,
}

impl Table {
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

/// One owner for each block. Most follow from a block alone. Where only the blocks that live at the same time can show
/// the owner, the moment of the explanation is examined, and then moments chosen so that each block lives at one of
/// them.
fn owners(timeline: &Timeline, inference: &Inference, moment: Position) -> Vec<(Owner, bool)> {
    let mut owners: Vec<Option<(Owner, bool)>> = (0..timeline.lifetimes.len() as u32)
        .map(|index| inference.alone(index).map(|identity| (identity.owner, identity.named)))
        .collect();
    let look = |owners: &mut Vec<Option<(Owner, bool)>>, blocks: &[u32], all: bool| {
        for (&block, identity) in blocks.iter().zip(inference.identify(blocks)) {
            let known = &mut owners[block as usize];
            if all || known.is_none() {
                *known = Some((identity.owner, identity.named));
            }
        }
    };
    let live: Vec<u32> = timeline.living_at(moment).collect();
    look(&mut owners, &live, true);
    let mut open: Vec<u32> = (0..owners.len() as u32).filter(|&index| owners[index as usize].is_none()).collect();
    open.sort_unstable_by_key(|&index| timeline.lifetimes[index as usize].death);
    let mut moments = 0;
    for index in 0..open.len() {
        let block = open[index];
        if owners[block as usize].is_some() {
            continue;
        }
        if moments == MOST_MOMENTS {
            let rest: Vec<u32> = open[index..].iter().copied().filter(|&b| owners[b as usize].is_none()).collect();
            look(&mut owners, &rest, false);
            break;
        }
        moments += 1;
        let life = &timeline.lifetimes[block as usize];
        let at = life.death.saturating_sub(1).min(timeline.end).max(life.birth);
        let live: Vec<u32> = timeline.living_at(at).collect();
        look(&mut owners, &live, false);
        // A block without a lifetime of its own lives at no moment.
        owners[block as usize].get_or_insert((Owner::Unattributed, false));
    }
    owners.into_iter().map(|owner| owner.unwrap_or((Owner::Unattributed, false))).collect()
}

/// The ranges of a device with the time that each was there.
fn ranges(timeline: &Timeline) -> Vec<HistoryRange> {
    let mut done: Vec<HistoryRange> = Vec::new();
    let mut standing = BTreeMap::<u64, HistoryRange>::new();
    for range in timeline.segments_at(0).iter() {
        standing.insert(range.address, held(range, 0));
    }
    for (index, event, pool) in timeline.segment_changes() {
        let (start, end) = (event.address, event.address.saturating_add(event.size));
        let position = index + 1;
        // What a new range covers was given back at the latest now, whatever the file says.
        while let Some(range) = standing.range(..end).next_back().map(|(_, range)| *range) {
            if range.address.saturating_add(range.size) <= start {
                break;
            }
            standing.remove(&range.address);
            if range.from < position {
                done.push(HistoryRange { to: position, ..range });
            }
            for (from, to) in [(range.address, start), (end, range.address.saturating_add(range.size))] {
                if from < to {
                    standing.insert(from, HistoryRange { address: from, size: to - from, from: position, ..range });
                }
            }
        }
        if matches!(event.action, Action::SegmentAlloc | Action::SegmentMap) && end > start {
            let range = Range {
                address: start,
                size: end - start,
                stream: event.stream,
                large: event.size > 2 << 20,
                pool,
                expandable: event.action == Action::SegmentMap,
            };
            standing.insert(start, held(&range, position));
        }
    }
    done.extend(standing.into_values());
    done.sort_unstable_by_key(|range| (range.from, range.address));
    done
}

fn held(range: &Range, from: Position) -> HistoryRange {
    HistoryRange {
        address: range.address,
        size: range.size,
        stream: range.stream,
        large: range.large,
        pool: range.pool,
        expandable: range.expandable,
        from,
        to: NEVER,
    }
}
