//! What `driver.py` recorded of PyTorch's allocator, and the comparison with the model.
//!
//! The model gets the same requests, on a card that is as large, and has to produce the same events with the same
//! addresses, the same counters after every operation and the same blocks. Only the addresses of new segments come from
//! the recording.

use std::collections::{HashMap, VecDeque};

use oomph_allocator::{BlockId, Driver, Native, PoolOptions, Settings, Version};
use oomph_trace::{Action, BlockState, PoolId};
use serde::Deserialize;

/// The first line.
#[derive(Debug, Deserialize)]
pub struct Header {
    pub torch: String,
    pub conf: String,
    seed: u64,
    features: String,
    total: u64,
    available: u64,
    fraction: f64,
}

/// Every other line.
#[derive(Debug, Deserialize)]
struct Operation {
    #[serde(rename = "do")]
    name: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    failed: bool,
    #[serde(default)]
    address: u64,
    #[serde(default)]
    stream: u64,
    #[serde(default)]
    pool: (u64, u64),
    events: Vec<Recorded>,
    stats: Vec<u64>,
    state: Option<Vec<RecordedSegment>>,
}

/// Action, address, size, stream, and the pool where PyTorch records it.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Recorded {
    WithPool(String, u64, u64, u64, (u64, u64)),
    Plain(String, u64, u64, u64),
}

/// Address, size, stream, whether it is large, blocks of address, size and state.
type RecordedSegment = (u64, u64, u64, bool, Vec<(u64, u64, String)>);

/// An event in a form that both sides have. The pool is left out where PyTorch does not record it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    action: &'static str,
    address: u64,
    size: u64,
    stream: u64,
    pool: Option<(u64, u64)>,
}

/// How much was compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Compared {
    pub operations: usize,
    pub events: usize,
    pub allocations: usize,
    pub blocks: usize,
    pub retries: u64,
    pub ooms: u64,
}

/// A card whose addresses come from the recording.
#[derive(Debug)]
struct Card {
    available: u64,
    used: u64,
    /// New segments of the present operation: size and address.
    segments: VecDeque<(u64, u64)>,
    /// Addresses of the pages mapped in it, in case a new range is reserved.
    maps: VecDeque<u64>,
    /// Where the range lies that the present request reserves, if it fails: known from the first page that a later
    /// operation maps there.
    later: Option<u64>,
}

impl Card {
    fn charge(&mut self, bytes: u64) -> bool {
        let fits = self.used + bytes <= self.available;
        self.used += if fits { bytes } else { 0 };
        fits
    }
}

impl Driver for Card {
    fn allocate(&mut self, bytes: u64) -> Option<u64> {
        // An address that the recording does not have shows up as a difference.
        self.charge(bytes).then(|| self.segments.pop_front().map_or(0xbad0_0000_0000, |(_, address)| address))
    }

    fn free(&mut self, _address: u64, bytes: u64) {
        self.used -= bytes;
    }

    fn reserve(&mut self, _bytes: u64) -> u64 {
        self.maps.front().copied().or(self.later).unwrap_or(0xbad0_0000_0000)
    }

    fn unreserve(&mut self, _address: u64, _bytes: u64) {}

    fn map(&mut self, _address: u64, bytes: u64) -> bool {
        let fits = self.charge(bytes);
        if fits {
            self.maps.pop_front();
        }
        fits
    }

    fn unmap(&mut self, _address: u64, bytes: u64) {
        self.used -= bytes;
    }

    fn free_bytes(&self) -> u64 {
        self.available - self.used
    }
}

/// Compares a recording with the model, and stops at the first difference.
pub fn compare(text: &str) -> Result<Compared, String> {
    let mut lines = text.lines();
    let header: Header = parse(lines.next().unwrap_or_default(), 1)?;
    let version: Version = header.torch.parse().map_err(|error| format!("{error}"))?;
    let mut settings = Settings::read(&header.conf, version).map_err(|error| format!("{error}"))?;
    settings.per_process_memory_fraction = settings.per_process_memory_fraction.min(header.fraction);
    let card =
        Card { available: header.available, used: 0, segments: VecDeque::new(), maps: VecDeque::new(), later: None };
    let mut native = Native::new(settings, version, header.total, card);
    native.record_events();
    let mut player = Player { native, live: HashMap::new(), capture: None, compared: Compared::default() };
    let operations: Vec<Operation> =
        lines.enumerate().map(|(index, line)| parse(line, index + 2)).collect::<Result<_, _>>()?;
    for (index, operation) in operations.iter().enumerate() {
        player.native.driver_mut().later = first_map(operation, &operations[index..]);
        player.play(operation).map_err(|difference| {
            let Header { torch, conf, seed, features, .. } = &header;
            format!(
                "PyTorch {torch} {conf:?} {features} seed {seed}, line {}, {}: {difference}",
                index + 2,
                operation.name
            )
        })?;
    }
    Ok(player.compared)
}

fn parse<'a, T: Deserialize<'a>>(line: &'a str, number: usize) -> Result<T, String> {
    serde_json::from_str(line).map_err(|error| format!("line {number}: {error}"))
}

struct Player {
    native: Native<Card>,
    live: HashMap<u64, BlockId>,
    capture: Option<PoolId>,
    compared: Compared,
}

impl Player {
    fn play(&mut self, operation: &Operation) -> Result<(), String> {
        let recorded: Vec<Seen> = operation.events.iter().map(seen).collect();
        let card = self.native.driver_mut();
        card.segments = addresses(&recorded, "segment_alloc").map(|event| (event.size, event.address)).collect();
        card.maps = addresses(&recorded, "segment_map").map(|event| event.address).collect();
        let pool = PoolId(operation.pool.0, operation.pool.1);
        let options = |released| PoolOptions { released, ..PoolOptions::default() };
        match operation.name.as_str() {
            "begin_capture" => self.native.set_pool(pool, options(false)),
            "end_capture" => {
                self.capture = None;
                self.native.set_capturing(false);
            }
            "drop_graph" => self.native.set_pool(pool, options(true)),
            "record_stream" => {
                let id = self.live.get(&operation.address).ok_or("the model has no block at that address")?;
                self.native.record_stream(*id, operation.stream);
            }
            "empty_cache" => self.native.empty_cache(),
            _ => {}
        }
        let mut failed = false;
        for event in &recorded {
            match event.action {
                // In a capture, PyTorch asks for the generator's state before the capture's pool is there.
                "alloc" | "oom" => failed |= !self.allocate(event, operation),
                "free_requested" => {
                    let id = self.live.remove(&event.address).ok_or("a block is freed that the model has not")?;
                    self.native.free(id);
                }
                _ => {}
            }
        }
        if operation.name == "begin_capture" {
            self.capture = Some(pool);
            self.native.set_capturing(true);
        }
        if failed != operation.failed {
            return Err(format!("{} bytes: PyTorch failed {}, the model {failed}", operation.size, operation.failed));
        }
        self.compare_events(recorded)?;
        self.compare_counters(&operation.stats)?;
        if let Some(state) = &operation.state {
            self.compare_state(state)?;
        }
        self.compared.operations += 1;
        Ok(())
    }

    fn allocate(&mut self, event: &Seen, operation: &Operation) -> bool {
        let pool = event.pool.map(|(first, second)| PoolId(first, second)).or(self.capture).unwrap_or_default();
        if self.capture.is_none() {
            // Work on the virtual card is done when it is launched, so that PyTorch finds all streams ready.
            self.native.complete_all();
        }
        let size = if event.action == "oom" { operation.size } else { event.size };
        self.compared.allocations += 1;
        match self.native.malloc(size, event.stream, pool) {
            Ok(id) => {
                self.live.insert(self.native.address(id).unwrap_or(0), id);
                true
            }
            Err(_) => false,
        }
    }

    fn compare_events(&mut self, mut recorded: Vec<Seen>) -> Result<(), String> {
        let with_pool = recorded.iter().any(|event| event.pool.is_some());
        let mut ours: Vec<Seen> = self
            .native
            .take_events()
            .iter()
            .map(|event| Seen {
                action: name(event.action),
                address: event.address,
                size: event.size,
                stream: event.stream,
                pool: with_pool.then_some((event.pool.0, event.pool.1)),
            })
            .collect();
        self.compared.events += recorded.len();
        // PyTorch asks the streams in an order of its own, and keeps private pools unordered.
        sort_runs(&mut recorded);
        sort_runs(&mut ours);
        if recorded == ours {
            return Ok(());
        }
        let at = recorded.iter().zip(&ours).take_while(|(theirs, ours)| theirs == ours).count();
        Err(format!("event {at}: PyTorch {:x?}, the model {:x?}", recorded.get(at), ours.get(at)))
    }

    fn compare_counters(&mut self, recorded: &[u64]) -> Result<(), String> {
        let our = self.native.statistics();
        let gauges = [our.allocated, our.active, our.requested, our.reserved, our.segments];
        let mut ours: Vec<u64> = gauges.iter().flat_map(|gauge| [gauge.current, gauge.peak]).collect();
        ours.extend([our.retries, our.ooms]);
        (self.compared.retries, self.compared.ooms) = (our.retries, our.ooms);
        if recorded == ours {
            return Ok(());
        }
        Err(format!("counters: PyTorch {recorded:?}, the model {ours:?}"))
    }

    fn compare_state(&mut self, recorded: &[RecordedSegment]) -> Result<(), String> {
        let state = self.native.state();
        let ours: Vec<RecordedSegment> = state
            .segments
            .iter()
            .map(|segment| {
                let blocks = segment.blocks.iter().map(|block| (block.address, block.size, use_of(block.state).into()));
                (segment.address, segment.size, segment.stream, segment.large, blocks.collect())
            })
            .collect();
        self.compared.blocks += recorded.iter().map(|segment| segment.4.len()).sum::<usize>();
        if recorded == ours {
            return Ok(());
        }
        let at = recorded.iter().zip(&ours).take_while(|(theirs, ours)| theirs == ours).count();
        Err(format!("segment {at}: PyTorch {:x?}, the model {:x?}", recorded.get(at), ours.get(at)))
    }
}

/// The first page that is mapped, from these operations on, for the stream, pool and size class of a failed allocation.
fn first_map(failed: &Operation, operations: &[Operation]) -> Option<u64> {
    let oom = failed.events.iter().map(seen).find(|event| event.action == "oom")?;
    let page = if oom.size > 1 << 20 { 20 << 20 } else { 2 << 20 };
    let events = operations.iter().flat_map(|operation| &operation.events).map(seen);
    let mut maps = events.filter(|event| event.action == "segment_map" && event.size % page == 0);
    maps.find(|event| event.stream == oom.stream && event.pool == oom.pool).map(|event| event.address)
}

fn addresses<'a>(events: &'a [Seen], action: &'a str) -> impl Iterator<Item = &'a Seen> {
    events.iter().filter(move |event| event.action == action)
}

/// Sorts each run of frees and each run of releases: within one, PyTorch's order depends on hashes of pointers.
fn sort_runs(events: &mut [Seen]) {
    for action in ["free_completed", "segment_free", "segment_unmap"] {
        for run in events.chunk_by_mut(|a, b| (a.action == action) == (b.action == action)) {
            if run[0].action == action {
                run.sort();
            }
        }
    }
}

fn seen(event: &Recorded) -> Seen {
    let (action, address, size, stream, pool) = match event {
        Recorded::WithPool(action, address, size, stream, pool) => (action, *address, *size, *stream, Some(*pool)),
        Recorded::Plain(action, address, size, stream) => (action, *address, *size, *stream, None),
    };
    let known = ACTIONS.iter().find(|(_, name)| name == action).map_or("unknown", |(_, name)| name);
    Seen { action: known, address, size, stream, pool }
}

const ACTIONS: [(Action, &str); 8] = [
    (Action::Alloc, "alloc"),
    (Action::FreeRequested, "free_requested"),
    (Action::FreeCompleted, "free_completed"),
    (Action::SegmentAlloc, "segment_alloc"),
    (Action::SegmentFree, "segment_free"),
    (Action::SegmentMap, "segment_map"),
    (Action::SegmentUnmap, "segment_unmap"),
    (Action::Oom, "oom"),
];

fn name(action: Action) -> &'static str {
    ACTIONS.iter().find(|(known, _)| *known == action).map_or("unknown", |(_, name)| name)
}

fn use_of(state: BlockState) -> &'static str {
    match state {
        BlockState::ActiveAllocated => "active_allocated",
        BlockState::ActivePendingFree => "active_pending_free",
        BlockState::Inactive => "inactive",
    }
}
