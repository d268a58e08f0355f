//! The records of streams, events and captures.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use std::time::Instant;

use oomph_ledger::MAX_DEVICES;

use crate::lock::{Mutex, Once, Rank};

/// What a living stream has in its first word.
pub const STREAM_MAGIC: u32 = 0x7374_726d;

/// A stream.
#[derive(Debug)]
pub struct Stream {
    /// Whether it lives, and that it is one.
    pub magic: AtomicU32,
    /// Ordinal of its card.
    pub ordinal: AtomicU32,
    /// Its creation flags.
    pub flags: AtomicU32,
    /// Its priority, as the bits of an `i32`.
    pub priority: AtomicU32,
    /// A number that no other stream of the process has.
    pub id: AtomicU64,
    /// The capture it takes part in, 0 for none.
    pub capture: AtomicU64,
}

/// An event.
#[derive(Debug)]
pub struct Event {
    /// Whether it lives, and that it is one.
    pub magic: AtomicU32,
    /// Its creation flags.
    pub flags: AtomicU32,
    /// The capture that was under way on the stream when it was recorded, 0 for none.
    pub capture: AtomicU64,
    /// When it was recorded, in nanoseconds since the first event; 0 for never.
    pub recorded: AtomicU64,
}

impl Stream {
    /// A stream on the first card.
    pub const fn new(magic: u32) -> Self {
        Self {
            magic: AtomicU32::new(magic),
            ordinal: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            priority: AtomicU32::new(0),
            id: AtomicU64::new(0),
            capture: AtomicU64::new(0),
        }
    }
}

/// Objects that were destroyed. Their memory is used again but never given back, so that a stale handle is an error and not a
/// crash.
pub type FreeList<T> = Mutex<Vec<&'static T>>;

/// Streams and events.
pub struct Streams {
    /// The default stream of each card, by ordinal.
    pub defaults: [Stream; MAX_DEVICES],
    /// The number of the next stream.
    pub next: AtomicU64,
    /// Streams that were destroyed.
    pub free_streams: FreeList<Stream>,
    /// Events that were destroyed.
    pub free_events: FreeList<Event>,
    /// When the first event was recorded.
    pub start: Once<Instant>,
}

impl Streams {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self {
            defaults: [const { Stream::new(STREAM_MAGIC) }; MAX_DEVICES],
            next: AtomicU64::new(MAX_DEVICES as u64),
            free_streams: Mutex::new(Rank::FreeStreams, Vec::new()),
            free_events: Mutex::new(Rank::FreeEvents, Vec::new()),
            start: Once::new(),
        }
    }
}

/// A capture that is under way.
pub struct Session {
    /// Its number.
    pub id: u64,
    /// The stream that it was begun on.
    pub origin: &'static Stream,
    /// The streams that joined it.
    pub joined: Vec<&'static Stream>,
    /// The graph that it fills.
    pub graph: usize,
    /// The mode that it was begun in.
    pub mode: u32,
    /// The number of the thread that began it.
    pub thread: u64,
    /// An error has spoilt it.
    pub invalid: bool,
}

/// Captures and graphs.
pub struct Captures {
    /// Captures that are under way.
    pub sessions: Mutex<Vec<Session>>,
    /// How many captures are under way, so that everything outside them costs one load.
    pub active: AtomicUsize,
    /// Captures that were begun.
    pub begun: AtomicU64,
    /// Threads that have a number.
    pub threads: AtomicU64,
    /// Nodes of each graph.
    pub graphs: Mutex<BTreeMap<usize, u64>>,
}

impl Captures {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self {
            sessions: Mutex::new(Rank::Captures, Vec::new()),
            active: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            threads: AtomicU64::new(0),
            graphs: Mutex::new(Rank::Graphs, BTreeMap::new()),
        }
    }
}
