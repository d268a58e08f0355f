//! The requests of a recording, ready to be replayed: what the program asked of PyTorch's allocator, what it can do
//! without, and what libraries take outside it.

use oomph_allocator::{Model, Script, Settings};
use oomph_trace::{DeviceKind, SourceKind, Trace};

use super::Options;
use super::explanation::Phase;
use super::lifetimes::{Lifetime, NEVER, Position};
use super::names::Names;
use super::owners::CUBLAS_WORKSPACES;
use super::phases::Phases;
use super::stacks::{Facts, Signs};
use super::timeline::Timeline;

/// What is given back right after it was taken dies so many events after its birth, at most: two events tell of a free.
const ONE_CALL: Position = 2;

/// Workspaces up to this many bytes come from the pool of small blocks, which rarely is what is missing.
const LARGEST_SMALL: u64 = 1 << 20;

/// What a program asked of the allocator on one card.
#[derive(Clone, Debug)]
pub struct Requests {
    /// The card's index in the recording.
    pub index: u32,
    /// The requests as they were made: one that cannot be met ends the program.
    pub firm: Script,
    /// The same, except that the program can do without the workspaces of cuDNN's convolutions, which fall back to
    /// smaller ones; `None` for a program without convolutions.
    pub yielding: Option<Script>,
    /// The allocator that the program ran with.
    pub model: Model,
    /// Whether the recording lacks its beginning, so that an earlier peak may be missing.
    pub truncated: bool,
    /// The events after which the optimizer's steps end, ascending.
    pub step_ends: Vec<usize>,
}

/// The requests on each card of a recording that has events of PyTorch's allocator.
pub fn requests(trace: &Trace, options: &Options, names: Option<&Names>) -> Vec<Requests> {
    if trace.source == SourceKind::VirtualGpu {
        return Vec::new();
    }
    let settings = Settings::recorded(&trace.settings);
    let facts = Facts::of(trace);
    let devices = trace.devices.iter().filter(|device| device.kind == DeviceKind::Cuda && !device.events.is_empty());
    let of_device = |device| {
        let timeline = Timeline::new(device, &settings);
        let names = names.map(|names| names.of_device(device.index, timeline.allocations.len()));
        let phases = Phases::of(trace, &timeline, &facts, names.as_ref());
        let Scripts { firm, yielding } = Scripts::of(&timeline, &facts, &phases, &settings);
        Requests {
            index: device.index,
            firm,
            yielding,
            model: Model::pytorch(settings.clone(), options.version(trace)),
            truncated: timeline.lifetimes.iter().any(Lifetime::before_recording),
            step_ends: phases.step_ends().iter().map(|&end| end as usize).collect(),
        }
    };
    devices.map(of_device).collect()
}

/// The requests of the recording.
#[derive(Clone, Debug)]
pub(super) struct Scripts {
    /// As they were made: a request that cannot be met ends the program.
    pub firm: Script,
    /// The same, except that cuDNN's convolutions can do without their workspaces; `None` for a program without any.
    pub yielding: Option<Script>,
}

impl Scripts {
    pub fn of(timeline: &Timeline, facts: &Facts, phases: &Phases, settings: &Settings) -> Self {
        let mut firm = Script::new(timeline.device, settings);
        firm.take_outside(&cublas_handles(timeline, facts));
        let workspaces = workspaces_of_convolutions(timeline, facts, phases);
        let yielding = (!workspaces.is_empty()).then(|| {
            let mut script = firm.clone();
            script.let_do_without(|event| workspaces.binary_search(&(event as Position)).is_ok());
            script
        });
        Self { firm, yielding }
    }
}

/// The events, in order, that allocate a workspace for one of cuDNN's convolutions.
///
/// PyTorch asks cuDNN for algorithms, best first, and takes the next one when there is no memory for the workspace of the
/// first (`try_plans` in `Conv_v8.cpp`), so that running out of memory there does not end the program. Such a workspace
/// lives for one call in which nothing else is allocated. Autograd's threads have no Python frames, so that in a backward
/// pass every such block counts where the program has convolutions; cuBLAS, which does not try again, is known by its
/// sizes.
fn workspaces_of_convolutions(timeline: &Timeline, facts: &Facts, phases: &Phases) -> Vec<Position> {
    if !facts.has(Signs::CONVOLUTION) {
        return Vec::new();
    }
    let is_one = |block: &&Lifetime| {
        let signs = facts.get(block.stack).signs;
        let in_backward = || phases.birth(block.birth).kind == Phase::Backward;
        block.birth > 0
            && block.requested > LARGEST_SMALL
            && block.death.saturating_sub(block.birth) <= ONE_CALL
            && !CUBLAS_WORKSPACES.contains(&block.requested)
            && (signs.any(Signs::CONVOLUTION) || !signs.any(Signs::PYTHON) && in_backward())
    };
    timeline.lifetimes.iter().filter(is_one).map(|block| block.birth - 1).collect()
}

/// The driver hands out memory in these steps, in bytes.
const GRANULE: u64 = 2 << 20;

/// The events after which PyTorch makes a handle of cuBLAS, and what a handle takes of the card, in bytes.
///
/// PyTorch makes one for each thread that multiplies matrices: the program's own, and autograd's. `cublasCreate` takes
/// its default workspace from the driver, until PyTorch brings one of its own of the same size, and does not have
/// the cache given back first: on a card that is full of cache it fails with `CUBLAS_STATUS_ALLOC_FAILED`. The first
/// workspace of each side shows where; where blocks were allocated before the recording, the handles may have been
/// there too.
fn cublas_handles(timeline: &Timeline, facts: &Facts) -> Vec<(usize, u64)> {
    let lifetimes = &timeline.lifetimes;
    if lifetimes.iter().any(|block| block.birth == 0) {
        return Vec::new();
    }
    let first = |of_autograd: bool| {
        let mut of_side = lifetimes.iter().filter(|block| {
            let signs = facts.get(block.stack).signs;
            let autograd = signs.any(Signs::BACKWARD) || !signs.any(Signs::PYTHON);
            CUBLAS_WORKSPACES.contains(&block.requested)
                && autograd == of_autograd
                && (block.released == NEVER || block.death.saturating_sub(block.birth) <= ONE_CALL)
        });
        let block = of_side.next()?;
        Some((usize::try_from(block.birth - 1).ok()?, block.requested.next_multiple_of(GRANULE)))
    };
    let mut handles: Vec<(usize, u64)> = [first(false), first(true)].into_iter().flatten().collect();
    handles.sort_unstable();
    handles
}
