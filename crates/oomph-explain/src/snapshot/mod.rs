//! From a recording of PyTorch's allocator to owners, causes, and what would have helped.
//!
//! [`explain`] takes a [`Trace`] and answers for each card in it. The steps, each a module of its own:
//!
//! 1. `lifetimes`, `segments`, `timeline`: which block lived when, how large it was, and how full the card was after
//!    each event. A snapshot holds the state at its end; undoing its events gives the state at its start.
//! 2. `layout`: what lay where at the moment that is asked about.
//! 3. `stacks`, `phases`, `owners`: which part of the program allocated each block, and whose it is; exact where the
//!    hook left its `names`, inferred with a confidence where not.
//! 4. `failures`, `rounds`: which allocations failed for good, and the loop that was under way.
//! 5. `groups`, `host`, `pinned`, `causes`, `what_if`, `beyond`: what follows from that.
//!
//! [`diff`], [`check`] and [`ranks`] compare explanations; [`requests`] gives what a replay takes, and [`history`] what
//! there is to draw.

mod beyond;
mod causes;
mod check;
mod diff;
mod explanation;
mod failures;
mod groups;
mod grown;
mod history;
mod host;
mod layout;
mod lifetimes;
mod names;
mod options;
mod owners;
mod phases;
mod pinned;
mod ranks;
mod requests;
mod rounds;
mod rows;
mod segments;
mod stacks;
mod timeline;
mod verdict;
mod what_if;

use oomph_allocator::Settings;
use oomph_trace::{Device, DeviceKind, Trace};

pub use check::{CheckResult, Limits, Violation, check};
pub use diff::{DeviceDiff, Diff, DiffRow, diff};
pub use explanation::{
    Beyond, BeyondKind, CardBytes, Cause, CauseKind, Churn, DeviceExplanation, Evidence, Explanation, GotPast, Group,
    Line, Moment, OomEvent, Outcome, Owner, OwnerRow, Peak, Phase, PinnedHost, PinnedLine, PinnedSegment, PinningBlock,
    SmallestCard, Source, StackGroup, Verdict, WhatIf,
};
pub use groups::phase_name;
pub use grown::{GrownAt, ends_of_iterations, grown_at};
pub use history::{History, HistoryBlock, HistoryRange, history};
pub use names::{Names, NamesError};
pub use options::{At, AtError, Card, Options};
pub use ranks::{Holding, Rank, RankComparison, ranks};
pub use requests::{Requests, requests};

use failures::Failures;
use layout::Layout;
use lifetimes::Position;
use owners::{Identity, Inference, Naming};
use phases::Phases;
use rounds::Rounds;
use stacks::Facts;
use timeline::Timeline;

/// Explains every card of a recording.
///
/// Nothing in a trace makes this fail: what contradicts itself is cut so that the bytes still add up, and a recording
/// without events is explained by the state at its end.
pub fn explain(trace: &Trace, options: &Options, names: Option<&Names>) -> Explanation {
    let settings = Settings::recorded(&trace.settings);
    let facts = Facts::of(trace);
    let devices: Vec<DeviceExplanation> = trace
        .devices
        .iter()
        .filter(|device| device.kind == DeviceKind::Cuda)
        .map(|device| explain_device(trace, device, &settings, &facts, options, names))
        .collect();
    let too_small = devices.iter().filter_map(|device| too_small(device, options));
    let notes = trace.notes.iter().map(|note| note.text.clone()).chain(too_small).collect();
    Explanation { devices, pinned_host: host::pinned(trace, &settings, &facts), settings: settings.to_string(), notes }
}

/// What is said where the card that the user names cannot be the one that was recorded.
fn too_small(device: &DeviceExplanation, options: &Options) -> Option<String> {
    let capacity =
        options.capacity.filter(|&capacity| device.card.is_none() && device.peak_reserved_bytes > capacity)?;
    Some(format!(
        "cuda:{} reserved {}, more than the {} of the card that was named: what was recorded does not fit there",
        device.index,
        causes::readable(device.peak_reserved_bytes),
        causes::readable(capacity),
    ))
}

/// What is known of one device at the moment that is asked about, from which its explanation is made.
struct Analysis<'a> {
    trace: &'a Trace,
    timeline: &'a Timeline<'a>,
    facts: &'a Facts,
    phases: &'a Phases,
    naming: Option<&'a Naming<'a>>,
    position: Position,
    layout: &'a Layout,
    /// One for each piece of the layout.
    identities: &'a [Identity],
    settings: &'a Settings,
    /// The allocation that failed, if this is the moment of it.
    oom: Option<&'a OomEvent>,
    /// The allocations that failed on the way.
    failures: &'a Failures,
    /// Whether the recording ends with a failure.
    died: bool,
    card: Option<&'a CardBytes>,
}

fn explain_device(
    trace: &Trace,
    device: &Device,
    settings: &Settings,
    facts: &Facts,
    options: &Options,
    names: Option<&Names>,
) -> DeviceExplanation {
    let mut timeline = Timeline::new(device, settings);
    if names.is_some_and(|names| names.oom_caught()) {
        timeline.caught_the_last();
    }
    let (position, moment) = timeline.find(options.at);
    let recorded = timeline.allocations.len();
    let of_device = names.map(|names| names.of_device(device.index, recorded));
    let phases = Phases::of(trace, &timeline, facts, of_device.as_ref());
    let naming = of_device.as_ref().map(|names| Naming::of(&timeline, names));
    let layout = Layout::at(&timeline, position);
    let inference = Inference::new(trace, &timeline, facts, &phases, naming.as_ref());
    let live: Vec<u32> = layout.pieces.iter().map(|piece| piece.block).collect();
    let identities = inference.identify(&live);

    let failures = Failures::of(&timeline, facts);
    let peak = rows::peak(&timeline, &layout, position, moment);
    let oom = rows::oom(trace, &timeline, facts, &phases);
    let card = rows::card(&peak, oom.as_ref(), options);
    let analysis = Analysis {
        trace,
        timeline: &timeline,
        facts,
        phases: &phases,
        naming: naming.as_ref(),
        position,
        layout: &layout,
        identities: &identities,
        settings,
        oom: oom.as_ref().filter(|_| moment == Moment::Oom),
        failures: &failures,
        died: timeline.fatal().is_some(),
        card: card.as_ref(),
    };
    let owners = rows::owners(&analysis);
    let pinned = pinned::pinned(&analysis, options.top);
    let rounds = Rounds::of(&analysis);
    let causes = causes::causes(&analysis, rounds.as_ref());
    let beyond = beyond::beyond(&analysis, rounds.as_ref(), &causes);
    let (what_if, smallest_card) = what_if::what_if(&analysis, options);
    let verdict = verdict::verdict(&analysis, &peak, &causes, &what_if);
    DeviceExplanation {
        index: device.index,
        verdict,
        peak,
        peak_active_bytes: timeline.active.iter().copied().max().unwrap_or(0),
        peak_reserved_bytes: timeline.reserved.iter().copied().max().unwrap_or(0).max(peak.reserved_bytes),
        owners,
        by_module: groups::by_module(&analysis),
        by_line: groups::by_line(&analysis),
        by_dtype: groups::by_dtype(&analysis),
        by_phase: groups::by_phase(&analysis),
        by_size: groups::by_size(&analysis, options.top),
        churn: groups::churn(&analysis),
        top_stacks: groups::top_stacks(&analysis, options.top),
        got_past: failures.got_past(trace, &timeline, facts),
        beyond,
        causes,
        what_if,
        smallest_card,
        pinned,
        steps: phases.step_ends().len() as u32,
        unmatched_names: naming.as_ref().map_or(0, |naming| naming.unmatched as u64),
        oom,
        card,
    }
}
