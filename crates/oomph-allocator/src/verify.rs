//! Compares the model with PyTorch's own recorded decisions.

use std::collections::{BTreeMap, VecDeque};

use oomph_trace::{Action, BlockState as BlockUse, Device, Event, Trace};

use crate::addresses::AddressMap;
use crate::driver::Driver;
use crate::native::{BlockId, BlockState, Native, SegmentState, State};
use crate::pools::EventPools;
use crate::reconstruct::start_state;
use crate::settings::Settings;
use crate::version::Version;

/// How many mismatches are kept.
const KEPT: usize = 20;
/// After so many mismatches the trace is of another allocator, or made up, and the rest is not looked at.
const GIVE_UP: u64 = 1000;

/// How often the model and the trace agreed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How often they agreed.
    pub right: u64,
    /// How often there was something to agree on.
    pub total: u64,
}

impl Tally {
    /// Agreed every time.
    pub fn is_exact(self) -> bool {
        self.right == self.total
    }

    fn count(&mut self, right: bool) {
        self.total += 1;
        self.right += u64::from(right);
    }
}

/// The outcome of [`verify`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Allocations that PyTorch served from its cache: the model takes the same address.
    pub cache_hits: Tally,
    /// Allocations for which PyTorch took a new native segment: the model finds none that fits either, and asks for as
    /// many bytes.
    pub new_segments: Tally,
    /// Pages mapped into expandable segments: the model maps the same ones.
    pub maps: Tally,
    /// Segments and pages given back: in the model they are free as well.
    pub releases: Tally,
    /// Blocks of the recorded end state: the model ends with the same address, size and use.
    pub final_blocks: Tally,
    /// A version whose rules the trace shows: [`Version::NEWEST`], or [`Version::LAST_BY_ADDRESS`] if only that one's
    /// order of equal blocks explains it.
    pub version: Version,
    /// The trace distinguishes the two.
    pub version_shown: bool,
    /// There were so many mismatches that the rest of the trace was not looked at.
    pub gave_up: bool,
    /// The first mismatches, at most 20.
    pub mismatches: Vec<Mismatch>,
}

impl Verification {
    /// Everything agrees.
    pub fn is_exact(&self) -> bool {
        !self.gave_up && self.tallies().iter().all(|tally| tally.is_exact())
    }

    fn tallies(&self) -> [Tally; 5] {
        [self.cache_hits, self.new_segments, self.maps, self.releases, self.final_blocks]
    }

    fn wrong(&self) -> u64 {
        self.tallies().iter().map(|tally| tally.total - tally.right).sum()
    }

    fn report(&mut self, event: usize, address: u64, size: u64, what: Disagreement) {
        if self.mismatches.len() < KEPT {
            self.mismatches.push(Mismatch { event, address, size, what });
        }
    }
}

/// A point at which the model and the trace disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The event, or the number of events for the end state.
    pub event: usize,
    /// The address in the trace.
    pub address: u64,
    /// The size in the trace, in bytes.
    pub size: u64,
    /// What the model says.
    pub what: Disagreement,
}

/// What the model says where it disagrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disagreement {
    /// It takes the free block at another address.
    OtherAddress(u64),
    /// It needs a new segment of so many bytes, where PyTorch found a free block or took another size.
    NewSegment(u64),
    /// It finds a free block at this address, where PyTorch took a new segment.
    CacheHit(u64),
    /// It maps other pages: address and bytes.
    OtherPages(u64, u64),
    /// What PyTorch gave back is not free, or not there.
    NotFree,
    /// It ends with another block there, or with none.
    OtherBlock(Option<BlockState>),
}

/// Follows the events of a device and compares each decision of PyTorch with the model's.
///
/// Three things come from the trace, because they are not the allocator's to decide: the addresses of new segments, the
/// moment at which another stream has finished with a block, and the moment at which memory is given back. After a
/// mismatch the model is put into the recorded state, as far as that can be done, and goes on. Native and expandable
/// segments are covered, with the settings that the file records; a file does not name the version of PyTorch, so that both
/// orders of equal blocks are tried and the better one is reported.
pub fn verify(trace: &Trace, device: &Device) -> Verification {
    let settings = Settings::recorded(&trace.settings);
    let start = start_state(device, &settings);
    let check = |version| Check::new(device, &settings, &start, version).run(device);
    let newest = check(Version::NEWEST);
    let older = check(Version::LAST_BY_ADDRESS);
    let version_shown = newest.wrong() != older.wrong();
    let better = if older.wrong() < newest.wrong() { older } else { newest };
    Verification { version_shown, ..better }
}

/// Pages that were mapped: the event, the address and the bytes.
type Pages = (usize, u64, u64);

/// A driver that gives what the trace says that the driver gave.
#[derive(Debug, Default)]
struct Recorded {
    /// Mapped in the trace since the last allocation.
    maps: VecDeque<Pages>,
    /// Mapped by the model: the recorded pages, if any, and the model's.
    outcomes: Vec<(Option<Pages>, u64, u64)>,
    next: u64,
}

impl Recorded {
    /// Addresses for what the trace does not have, which happens only after a mismatch: out of everybody's way.
    fn elsewhere(&mut self, bytes: u64) -> u64 {
        let address = (1u64 << 62).saturating_add(self.next);
        self.next = self.next.saturating_add(bytes);
        address
    }
}

impl Driver for Recorded {
    fn allocate(&mut self, bytes: u64) -> Option<u64> {
        Some(self.elsewhere(bytes))
    }

    fn free(&mut self, _address: u64, _bytes: u64) {}

    fn reserve(&mut self, bytes: u64) -> u64 {
        match self.maps.front() {
            Some(&(_, address, _)) => address,
            None => self.elsewhere(bytes),
        }
    }

    fn unreserve(&mut self, _address: u64, _bytes: u64) {}

    fn map(&mut self, address: u64, bytes: u64) -> bool {
        let recorded = self.maps.pop_front();
        self.outcomes.push((recorded, address, bytes));
        true
    }

    fn unmap(&mut self, _address: u64, _bytes: u64) {}

    fn free_bytes(&self) -> u64 {
        u64::MAX
    }
}

struct Check {
    native: Native<Recorded>,
    pools: EventPools,
    live: AddressMap<BlockId>,
    verification: Verification,
    /// New native segments since the last allocation.
    segments: Vec<Event>,
    /// Memory was given back, and blocks became free, since the last allocation or free of the program.
    flushed: bool,
    completed: bool,
}

/// Large enough for the addresses of any expandable segment, whose size is not recorded.
const TOTAL: u64 = 1 << 40;

impl Check {
    fn new(device: &Device, settings: &Settings, start: &State, version: Version) -> Self {
        // What the driver refused is not recorded either, so that no limit applies.
        let settings =
            Settings { per_process_memory_fraction: 1.0, throw_on_cudamalloc_oom: false, ..settings.clone() };
        let mut native = Native::new(settings, version, TOTAL, Recorded::default());
        let live = native.adopt(start).into_iter().collect();
        let verification = Verification { version, ..Verification::default() };
        let pools = EventPools::of(device);
        Self { native, pools, live, verification, segments: Vec::new(), flushed: false, completed: false }
    }

    fn run(mut self, device: &Device) -> Verification {
        for (index, event) in device.events.iter().enumerate() {
            self.event(index, &event);
            if self.verification.wrong() > GIVE_UP {
                self.verification.gave_up = true;
                return self.verification;
            }
        }
        self.compare_end(device);
        self.verification
    }

    fn event(&mut self, index: usize, event: &Event) {
        match event.action {
            Action::Alloc => {
                self.allocate(index, event);
                (self.flushed, self.completed) = (false, false);
            }
            Action::FreeRequested => {
                (self.flushed, self.completed) = (false, false);
                if let Some(&id) = self.live.get(&event.address) {
                    self.native.free_later(id);
                }
            }
            Action::FreeCompleted => {
                if let Some(id) = self.live.remove(&event.address) {
                    self.native.free_later(id);
                    self.native.complete(id);
                    self.completed = true;
                }
            }
            Action::SegmentAlloc => self.segments.push(*event),
            Action::SegmentFree => {
                self.flushed = true;
                let legal = self.native.release_segment(event.address, event.size);
                self.release(index, event, legal);
            }
            Action::SegmentMap => self.native.driver_mut().maps.push_back((index, event.address, event.size)),
            Action::SegmentUnmap => {
                self.flushed = true;
                let legal = self.native.unmap_range(event.address, event.size);
                self.release(index, event, legal);
            }
            Action::Oom => self.settle(),
            Action::Snapshot | Action::Annotate | Action::Other => {}
        }
    }

    fn release(&mut self, index: usize, event: &Event, legal: bool) {
        self.verification.releases.count(legal);
        if !legal {
            self.verification.report(index, event.address, event.size, Disagreement::NotFree);
        }
    }

    fn allocate(&mut self, index: usize, event: &Event) {
        if let Some(lost) = self.live.remove(&event.address) {
            self.native.free_later(lost);
            self.native.complete(lost);
        }
        let pool = self.pools.pool(index, event);
        let found = self.native.find(event.size, event.stream, pool);
        let grew = !self.native.driver_mut().maps.is_empty();
        let segment = self.segments.pop();
        let id = match (found, segment) {
            // A block that the flush itself set free is not looked for again.
            (Some(_), Some(segment)) if self.flushed && self.completed => {
                self.take_segment(index, event, &segment, None)
            }
            (Some(address), Some(segment)) => {
                self.take_segment(index, event, &segment, Some(Disagreement::CacheHit(address)))
            }
            (None, Some(segment)) => self.take_segment(index, event, &segment, None),
            (Some(address), None) if !grew => {
                let right = address == event.address;
                self.verification.cache_hits.count(right);
                if right {
                    self.native.malloc(event.size, event.stream, pool).ok()
                } else {
                    self.verification.report(index, event.address, event.size, Disagreement::OtherAddress(address));
                    self.native.force(event.address, event.size)
                }
            }
            (found, None) => self.grow(index, event, found.filter(|_| !self.flushed || !self.completed)),
        };
        if let Some(id) = id {
            self.live.insert(event.address, id);
        }
    }

    /// PyTorch took a new native segment.
    fn take_segment(
        &mut self,
        index: usize,
        event: &Event,
        segment: &Event,
        disagreement: Option<Disagreement>,
    ) -> Option<BlockId> {
        let wanted = self.native.settings().segment(self.native.settings().round(event.size));
        let disagreement = disagreement.or_else(|| {
            let right = wanted == segment.size && segment.address == event.address;
            (!right).then_some(Disagreement::NewSegment(wanted))
        });
        self.verification.new_segments.count(disagreement.is_none());
        if let Some(what) = disagreement {
            self.verification.report(index, segment.address, segment.size, what);
        }
        let id = self.enter_segment(index, segment);
        self.settle();
        self.native.force_in(id?, event.address, event.size)
    }

    fn enter_segment(&mut self, index: usize, segment: &Event) -> Option<BlockId> {
        self.native.force_segment(&SegmentState {
            address: segment.address,
            size: segment.size,
            stream: segment.stream,
            large: segment.size != crate::size::SMALL_SEGMENT,
            pool: self.pools.pool(index, segment),
            reservation: None,
            blocks: Vec::new(),
        })
    }

    /// PyTorch mapped pages, or the model would and PyTorch did not.
    fn grow(&mut self, index: usize, event: &Event, found: Option<u64>) -> Option<BlockId> {
        if let Some(address) = found {
            self.verification.report(index, event.address, event.size, Disagreement::CacheHit(address));
            let maps = self.native.driver_mut().maps.len() as u64;
            self.verification.maps.total += maps;
            self.settle();
            return self.native.force(event.address, event.size);
        }
        let pool = self.pools.pool(index, event);
        let recorded = self.native.driver_mut().maps.len();
        if recorded == 0 {
            let wanted = self.native.settings().segment(self.native.settings().round(event.size));
            self.verification.cache_hits.count(false);
            self.verification.report(index, event.address, event.size, Disagreement::NewSegment(wanted));
            return self.native.force(event.address, event.size);
        }
        let stream = self.native.stream_index(event.stream);
        let half = self.native.pool_index(pool);
        let id = self.native.malloc_growing(event.size, stream, half);
        for (recorded, address, bytes) in std::mem::take(&mut self.native.driver_mut().outcomes) {
            let right = recorded.is_some_and(|(_, known, size)| (known, size) == (address, bytes));
            self.verification.maps.count(right);
            if !right {
                let (at, known, size) = recorded.unwrap_or((index, 0, 0));
                self.verification.report(at, known, size, Disagreement::OtherPages(address, bytes));
            }
        }
        self.verification.maps.total += self.native.driver_mut().maps.len() as u64;
        self.settle();
        let placed = id.and_then(|id| self.native.address(id));
        if placed != Some(event.address) {
            self.verification.maps.count(false);
            let what = Disagreement::OtherAddress(placed.unwrap_or(0));
            self.verification.report(index, event.address, event.size, what);
        }
        id
    }

    /// Forgets what the driver gave and nobody took.
    fn settle(&mut self) {
        self.segments.clear();
        self.native.driver_mut().maps.clear();
        self.native.driver_mut().outcomes.clear();
    }

    fn compare_end(&mut self, device: &Device) {
        let state = self.native.state();
        let ours: BTreeMap<u64, BlockState> =
            state.segments.iter().flat_map(|segment| &segment.blocks).map(|block| (block.address, *block)).collect();
        for segment in &device.segments {
            for block in device.blocks_of(segment) {
                let our = ours.get(&block.address).copied();
                let right = our.is_some_and(|our| {
                    our.size == block.size
                        && our.state == block.state
                        && (block.state == BlockUse::Inactive || our.requested == block.requested)
                });
                self.verification.final_blocks.count(right);
                if !right {
                    let what = Disagreement::OtherBlock(our);
                    self.verification.report(device.events.len(), block.address, block.size, what);
                }
            }
        }
    }
}
