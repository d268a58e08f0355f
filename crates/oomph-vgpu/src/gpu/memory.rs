//! What is kept of memory: pools, physical memory with its mappings, and what graphs own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use oomph_ledger::MAX_DEVICES;

use crate::lock::{Mutex, Rank};
use crate::space::FreeRanges;

/// Counters of a pool, in bytes, by the names of the attributes that both APIs have for them.
#[derive(Clone, Copy, Default)]
pub struct PoolCounters {
    /// What it may keep when all of it is free.
    pub threshold: u64,
    /// What it holds of the card.
    pub reserved: u64,
    /// The most that it held.
    pub reserved_high: u64,
    /// What lies in blocks.
    pub used: u64,
    /// The most that lay in blocks.
    pub used_high: u64,
}

/// A stream-ordered pool.
pub struct Pool {
    /// What the program knows it by.
    pub handle: usize,
    /// Ledger index of its card.
    pub card: usize,
    /// Ordinal of that card in this process.
    pub ordinal: usize,
    /// What is in no block.
    pub free: FreeRanges,
    /// Ranges taken from the address space, as start and size.
    pub ranges: Vec<(usize, usize)>,
    /// It gave memory back at a synchronisation and has not grown since.
    pub gave_back: bool,
    /// Its attributes.
    pub counters: PoolCounters,
}

/// A piece of physical memory.
pub struct Physical {
    /// Its size in bytes.
    pub size: usize,
    /// The card that is charged; `None` for memory on the host.
    pub card: Option<usize>,
    /// Handles and mappings that keep it alive.
    pub references: usize,
}

/// Physical memory, and where it is mapped.
pub struct Mappings {
    /// Physical memory by handle.
    pub physical: BTreeMap<u64, Physical>,
    /// Mapped ranges: start to size and handle.
    pub mapped: BTreeMap<usize, (usize, u64)>,
    /// The next handle.
    pub next: u64,
}

impl Mappings {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self { physical: BTreeMap::new(), mapped: BTreeMap::new(), next: 1 }
    }
}

/// Size of `cudaMemAllocNodeParams`, in bytes, which is also the driver's structure.
pub const PARAMETERS: usize = 120;

/// One allocation of a graph, freed when its last graph or executable goes (see `crate::graph_memory`).
pub struct Piece {
    /// Its address.
    pub start: usize,
    /// Its size in bytes.
    pub size: u64,
    /// Ordinal of its card.
    pub ordinal: usize,
}

/// Which graph or executable keeps which memory.
#[derive(Default)]
pub struct GraphOwners {
    /// What each graph or executable keeps.
    pub pieces: BTreeMap<usize, Vec<Arc<Piece>>>,
    /// The parameters of each allocation node, as they were answered.
    pub nodes: BTreeMap<usize, [u8; PARAMETERS]>,
    /// The graphs that each graph's conditional nodes run. A program keeps the address of such a list.
    pub bodies: BTreeMap<usize, Vec<Box<[usize]>>>,
}

/// Memory that graphs own.
pub struct GraphMemory {
    /// Who keeps what.
    pub owners: Mutex<GraphOwners>,
    /// Bytes that are held, by ordinal.
    pub held: [AtomicU64; MAX_DEVICES],
    /// The most bytes that were held, by ordinal.
    pub held_high: [AtomicU64; MAX_DEVICES],
}

impl GraphMemory {
    /// Nothing yet.
    pub const fn new() -> Self {
        let owners = GraphOwners { pieces: BTreeMap::new(), nodes: BTreeMap::new(), bodies: BTreeMap::new() };
        Self {
            owners: Mutex::new(Rank::GraphMemory, owners),
            held: [const { AtomicU64::new(0) }; MAX_DEVICES],
            held_high: [const { AtomicU64::new(0) }; MAX_DEVICES],
        }
    }
}
