//! `cudaMallocAsync`: the driver's stream-ordered pool, as PyTorch's `backend:cudaMallocAsync` uses it.
//!
//! NVIDIA documents what the pool guarantees and not how it works. The model: blocks are multiples of 512 bytes; the
//! pool grows by what is missing, in multiples of 32 MiB as on an H100 (`acceptance/readings/real`, six blocks; exactly, in
//! granules of 2 MiB, where the card has no more); it keeps all that it has taken (PyTorch sets the release threshold to
//! its maximum) until it is trimmed; and because the driver maps physical memory to addresses as it likes, free memory
//! is never too scattered to be used. What a real driver reserves can differ by some tens of MiB.

use oomph_trace::PoolId;

use crate::machine::{Capacity, Machine};
use crate::native::{BlockId, Oom};
use crate::settings::{MIB, Settings};
use crate::size::round_up;
use crate::statistics::Statistics;

const ALIGNMENT: u64 = 512;
const GRANULE: u64 = 2 * MIB;
const GROWTH: u64 = 32 * MIB;

/// The driver's pool on one card.
#[derive(Clone, Debug)]
pub(crate) struct Asynchronous {
    limit: u64,
    blocks: Vec<Option<Held>>,
    vacant: Vec<u32>,
    statistics: Statistics,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    size: u64,
    requested: u64,
    pending: bool,
}

impl Asynchronous {
    pub fn new(settings: &Settings, capacity: Capacity) -> Self {
        // The back end compares what is in use with the fraction; what the pool holds beyond that does not count.
        let allowed = (settings.per_process_memory_fraction * capacity.total as f64).round() as u64;
        let limit = if settings.per_process_memory_fraction < 1.0 { allowed } else { u64::MAX };
        Self {
            limit: limit.min(capacity.available),
            blocks: Vec::new(),
            vacant: Vec::new(),
            statistics: Statistics::default(),
        }
    }

    fn fail(&mut self, requested: u64, rounded: u64) -> Oom {
        self.statistics.ooms += 1;
        Oom {
            requested,
            rounded,
            segment: rounded,
            driver_free: self.limit.saturating_sub(self.statistics.reserved.current),
            reserved: self.statistics.reserved.current,
            allocated: self.statistics.allocated.current,
            private_free: 0,
            fits_on_retry: false,
            rejected: false,
        }
    }

    /// Takes more of the card until `needed` bytes are held.
    fn grow(&mut self, needed: u64) -> bool {
        let reserved = self.statistics.reserved.current;
        if needed <= reserved {
            return true;
        }
        let exact = round_up(needed - reserved, GRANULE);
        // A card that is nearly full still gives what is needed.
        for growth in [round_up(exact, GROWTH), exact] {
            if reserved.checked_add(growth).is_some_and(|sum| sum <= self.limit) {
                self.statistics.reserve(growth);
                return true;
            }
        }
        false
    }

    fn give_back(&mut self, id: BlockId) {
        let Some(held) = self.blocks.get_mut(id.0 as usize).and_then(Option::take) else { return };
        self.vacant.push(id.0);
        if !held.pending {
            self.statistics.allocated.subtract(held.size);
        }
        self.statistics.active.subtract(held.size);
        self.statistics.requested.subtract(held.requested);
    }
}

impl Machine for Asynchronous {
    fn stream(&mut self, _stream: u64) -> u16 {
        0
    }

    fn pool(&mut self, _pool: PoolId) -> u16 {
        0
    }

    fn malloc(&mut self, bytes: u64, _stream: u16, _pool: u16) -> Result<BlockId, Oom> {
        let size = round_up(bytes.max(1), ALIGNMENT);
        if !self.grow(self.statistics.active.current.saturating_add(size)) {
            return Err(self.fail(bytes, size));
        }
        self.statistics.allocate(size, bytes);
        let held = Some(Held { size, requested: bytes, pending: false });
        Ok(BlockId(match self.vacant.pop() {
            Some(index) => {
                self.blocks[index as usize] = held;
                index
            }
            None => {
                self.blocks.push(held);
                (self.blocks.len() - 1) as u32
            }
        }))
    }

    fn free(&mut self, id: BlockId) {
        self.give_back(id);
    }

    fn free_later(&mut self, id: BlockId) {
        if let Some(Some(held)) = self.blocks.get_mut(id.0 as usize)
            && !held.pending
        {
            held.pending = true;
            self.statistics.allocated.subtract(held.size);
        }
    }

    fn complete(&mut self, id: BlockId) {
        self.give_back(id);
    }

    fn flush(&mut self) {
        let keep = round_up(self.statistics.active.current, GRANULE);
        let reserved = self.statistics.reserved.current;
        if keep < reserved {
            self.statistics.release(reserved - keep);
        }
    }

    fn release_pool(&mut self, _pool: PoolId) {}

    fn statistics(&self) -> &Statistics {
        &self.statistics
    }
}
