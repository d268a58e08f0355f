//! The requests that a program made of the allocator, without the answers: the part of a trace that can be replayed.

use std::collections::HashMap;

use oomph_trace::{Action, BlockState as BlockUse, Device, Event, PoolId, StackId};

use crate::addresses::AddressMap;
use crate::native::State;
use crate::pools::EventPools;
use crate::reconstruct::start_state;
use crate::settings::Settings;

/// The requests of one device's trace, ready to be replayed many times.
///
/// The start state is rebuilt (see [`start_state`](crate::start_state)); frees that another stream held up are
/// completed when the trace says so; calls of `empty_cache()` are kept, and the flushes that PyTorch made itself while
/// it ran out of memory are left out, because another card or setting may not need them.
#[derive(Clone, Debug)]
pub struct Script {
    pub(crate) steps: Vec<Step>,
    /// The event of each step.
    pub(crate) events: Vec<u32>,
    pub(crate) slots: u32,
    pub(crate) streams: Vec<u64>,
    pub(crate) pools: Vec<PoolId>,
    pub(crate) start: State,
    /// The slot of each block in use in the start state, by its address.
    pub(crate) start_slots: Vec<(u64, u32)>,
    /// The last failed allocation that the program did not survive: nothing was allocated after it.
    pub(crate) fatal: Option<u32>,
}

/// One request. `slot` is the place of a block while it is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub size: u64,
    pub slot: u32,
    pub stream: u16,
    pub pool: u16,
    pub kind: Kind,
}

impl Step {
    /// Whether it asks for a block.
    pub(crate) fn takes(&self) -> bool {
        matches!(self.kind, Kind::Allocate | Kind::AllocateScratch)
    }

    /// Whether it has to do with the end of a block.
    pub(crate) fn gives_back(&self) -> bool {
        matches!(self.kind, Kind::Free | Kind::FreeLater | Kind::Complete)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// Allocate, into a slot.
    Allocate,
    /// Allocate working memory that the program can do without; see [`Script::let_do_without`].
    AllocateScratch,
    /// Free the slot's block.
    Free,
    /// The program gives the block back, another stream still uses it.
    FreeLater,
    /// The other stream has finished.
    Complete,
    /// `empty_cache()`.
    Flush,
    /// The pool's last user is gone.
    ReleasePool,
    /// An allocation that failed when the trace was recorded.
    Attempt,
    /// A library takes memory of the driver and gives it back; see [`Script::take_outside`].
    Library,
}

impl Script {
    /// The requests of a device, which ran with `settings`.
    pub fn new(device: &Device, settings: &Settings) -> Self {
        let mut compiler = Compiler::new(device, settings);
        let mut index = 0;
        while index < device.events.len() {
            index = compiler.event(index);
        }
        compiler.script
    }

    /// How many requests there are.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// True for a trace without history.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Marks allocations that the program survives without, given as the places of their events: a replay in which one
    /// of them fails counts it and goes on. cuDNN's workspaces are such, because PyTorch tries the next algorithm, which
    /// needs less, when there is no memory for the workspace of the first.
    pub fn let_do_without(&mut self, is_one: impl Fn(usize) -> bool) {
        for (step, &event) in self.steps.iter_mut().zip(&self.events) {
            if step.kind == Kind::Allocate && is_one(event as usize) {
                step.kind = Kind::AllocateScratch;
            }
        }
    }

    /// Says where libraries take memory of their own from the driver for a moment: the places of events, in order, and
    /// how many bytes right after them. Libraries do not ask the allocator for its cache, so that a card that cannot
    /// spare the bytes at that moment ends the program, whatever lies free in the cache.
    pub fn take_outside(&mut self, needs: &[(usize, u64)]) {
        let (steps, events) = (std::mem::take(&mut self.steps), std::mem::take(&mut self.events));
        let fatal = self.fatal.take();
        let mut needs = needs.iter().peekable();
        for (index, (step, event)) in steps.into_iter().zip(events).enumerate() {
            if fatal == Some(index as u32) {
                self.fatal = Some(self.steps.len() as u32);
            }
            self.steps.push(step);
            self.events.push(event);
            while let Some((_, bytes)) = needs.next_if(|(place, _)| *place <= event as usize) {
                self.steps.push(Step { size: *bytes, kind: Kind::Library, ..step });
                self.events.push(event);
            }
        }
    }

    /// The most that libraries take outside the allocator at once, in bytes, as far as the script has it
    /// ([`Script::take_outside`]).
    pub fn most_outside(&self) -> u64 {
        self.steps.iter().filter(|step| step.kind == Kind::Library).map(|step| step.size).max().unwrap_or(0)
    }

    /// What was allocated before the first event.
    pub fn start(&self) -> &State {
        &self.start
    }

    /// The most bytes that the program held at once, as it asked for them and without those that it can do without: no
    /// card below this can do.
    pub fn peak_requested(&self) -> u64 {
        let mut sizes = vec![0u64; self.slots as usize];
        let mut held = 0u64;
        for (_, block) in self.start.active() {
            held = held.saturating_add(block.requested);
        }
        for (&(_, slot), (_, block)) in self.start_slots.iter().zip(self.start.active()) {
            sizes[slot as usize] = block.requested;
        }
        let mut peak = held;
        for step in &self.steps {
            match step.kind {
                Kind::Allocate => {
                    sizes[step.slot as usize] = step.size;
                    held = held.saturating_add(step.size);
                    peak = peak.max(held);
                }
                Kind::Free | Kind::Complete => {
                    held = held.saturating_sub(std::mem::take(&mut sizes[step.slot as usize]));
                }
                _ => {}
            }
        }
        peak
    }
}

/// What the walk over the events knows of a live block.
#[derive(Clone, Copy)]
struct Live {
    slot: u32,
    pending: bool,
}

struct Compiler<'a> {
    device: &'a Device,
    pools: EventPools,
    script: Script,
    streams: AddressMap<u16>,
    pool_indices: HashMap<PoolId, u16>,
    live: AddressMap<Live>,
    vacant: Vec<u32>,
    reserved: u64,
    peak_reserved: u64,
}

impl<'a> Compiler<'a> {
    fn new(device: &'a Device, settings: &Settings) -> Self {
        let start = start_state(device, settings);
        let mut script = Script {
            steps: Vec::with_capacity(device.events.len()),
            events: Vec::with_capacity(device.events.len()),
            slots: 0,
            streams: device.events.streams().to_vec(),
            pools: vec![PoolId::DEFAULT],
            start_slots: Vec::new(),
            start,
            fatal: None,
        };
        let mut live = AddressMap::default();
        for (_, block) in script.start.active() {
            let pending = block.state == BlockUse::ActivePendingFree;
            live.insert(block.address, Live { slot: script.slots, pending });
            script.start_slots.push((block.address, script.slots));
            script.slots += 1;
        }
        let reserved = script.start.reserved();
        let (mut now, mut peak_reserved) = (reserved, reserved);
        for event in device.events.iter() {
            now = match event.action {
                Action::SegmentAlloc | Action::SegmentMap => now.saturating_add(event.size),
                Action::SegmentFree | Action::SegmentUnmap => now.saturating_sub(event.size),
                _ => continue,
            };
            peak_reserved = peak_reserved.max(now);
        }
        let streams = script.streams.iter().zip(0u16..).map(|(&stream, index)| (stream, index)).collect();
        let pool_indices = HashMap::from([(PoolId::DEFAULT, 0)]);
        let pools = EventPools::of(device);
        Self { device, pools, script, streams, pool_indices, live, vacant: Vec::new(), reserved, peak_reserved }
    }

    /// Takes one event, or a run of them that belong together. Returns the index of the next one.
    fn event(&mut self, index: usize) -> usize {
        let Some(event) = self.device.events.get(index) else { return index + 1 };
        match event.action {
            Action::Alloc => {
                let slot = self.vacant.pop().unwrap_or_else(|| {
                    self.script.slots = self.script.slots.saturating_add(1);
                    self.script.slots - 1
                });
                let pool = self.pools.pool(index, &event);
                if let Some(lost) = self.live.insert(event.address, Live { slot, pending: false }) {
                    // The trace lost the free of the block that was here.
                    self.step(index, Kind::Free, lost.slot, &event, PoolId::DEFAULT);
                    self.vacant.push(lost.slot);
                }
                self.step(index, Kind::Allocate, slot, &event, pool);
                self.script.fatal = None;
            }
            Action::FreeRequested => {
                if let Some(live) = self.live.get_mut(&event.address)
                    && !live.pending
                {
                    let slot = live.slot;
                    let next = self.device.events.get(index + 1);
                    if next.is_some_and(|next| next.action == Action::FreeCompleted && next.address == event.address) {
                        self.live.remove(&event.address);
                        self.step(index, Kind::Free, slot, &event, PoolId::DEFAULT);
                        self.vacant.push(slot);
                        return index + 2;
                    }
                    live.pending = true;
                    self.step(index, Kind::FreeLater, slot, &event, PoolId::DEFAULT);
                }
            }
            Action::FreeCompleted => {
                if let Some(live) = self.live.remove(&event.address) {
                    let kind = if live.pending { Kind::Complete } else { Kind::Free };
                    self.step(index, kind, live.slot, &event, PoolId::DEFAULT);
                    self.vacant.push(live.slot);
                }
            }
            Action::SegmentAlloc | Action::SegmentMap => self.reserved = self.reserved.saturating_add(event.size),
            Action::SegmentFree | Action::SegmentUnmap => return self.release(index, &event),
            Action::Oom => {
                let pool = self.pools.pool(index, &event);
                self.script.fatal = Some(self.script.steps.len() as u32);
                self.step(index, Kind::Attempt, 0, &event, pool);
            }
            Action::Snapshot | Action::Annotate | Action::Other => {}
        }
        index + 1
    }

    /// A run of segments given back: by `empty_cache()`, by the end of a private pool, or by an allocation for which
    /// the card was full.
    fn release(&mut self, first: usize, event: &Event) -> usize {
        let before = self.reserved;
        let (mut default, mut private) = (false, Vec::new());
        let mut index = first;
        while let Some(event) = self.device.events.get(index) {
            match event.action {
                Action::SegmentFree | Action::SegmentUnmap => {
                    self.reserved = self.reserved.saturating_sub(event.size);
                    match self.pools.pool(index, &event) {
                        PoolId::DEFAULT => default = true,
                        pool if !private.contains(&pool) => private.push(pool),
                        _ => {}
                    }
                    index += 1;
                }
                Action::FreeCompleted => index = self.event(index),
                _ => break,
            }
        }
        for pool in private {
            self.step(first, Kind::ReleasePool, 0, event, pool);
        }
        let by_allocation = self.device.events.get(index).is_some_and(|next| match next.action {
            Action::SegmentAlloc | Action::SegmentMap | Action::Oom => {
                if event.stack != StackId::NONE && next.stack != StackId::NONE {
                    // PyTorch gives back what a failed allocation flushes under that allocation's own stack.
                    event.stack == next.stack
                } else {
                    // Without stacks: a flush that more memory than ever before would have been needed without.
                    next.action == Action::Oom || before.saturating_add(next.size) > self.peak_reserved
                }
            }
            _ => false,
        });
        if default && !by_allocation {
            self.step(first, Kind::Flush, 0, event, PoolId::DEFAULT);
        }
        index
    }

    fn step(&mut self, index: usize, kind: Kind, slot: u32, event: &Event, pool: PoolId) {
        let stream = self.streams.get(&event.stream).copied().unwrap_or(0);
        let pools = &mut self.script.pools;
        let pool = *self.pool_indices.entry(pool).or_insert_with(|| {
            pools.push(pool);
            u16::try_from(pools.len() - 1).unwrap_or(u16::MAX)
        });
        self.script.steps.push(Step { size: event.size, slot, stream, pool, kind });
        self.script.events.push(u32::try_from(index).unwrap_or(u32::MAX));
    }
}
