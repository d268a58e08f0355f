//! Runs a script through an allocator.

use crate::machine::{Capacity, Machine};
use crate::model::{Model, Visitor, with_machine};
use crate::native::{BlockId, Oom};
use crate::script::{Kind, Script};
use crate::statistics::Statistics;

/// What a replay begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// An empty card, on which the blocks from before the first event are allocated in the order of their
    /// addresses. Right for another setting, card or allocator.
    #[default]
    Cold,
    /// The recorded segments and blocks as they were. Right for the same setting on a similar card. Only PyTorch's own
    /// allocator can begin so; the others begin cold.
    Recorded,
}

/// What came of a replay. All sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Replay {
    /// The program would have come as far as it did, and past the allocation that killed it, if one did.
    pub survived: bool,
    /// The allocation, of the program or of another library ([`Script::take_outside`]), that failed and ended the
    /// replay.
    pub oom: Option<Failure>,
    /// Allocations that failed in the trace, that the program survived, and that fail here too.
    pub caught_ooms: u64,
    /// Allocations that failed in the trace and succeed here.
    pub averted_ooms: u64,
    /// Allocations that failed and that the program can do without ([`Script::let_do_without`]). What it takes instead
    /// is not known, so that with any of them the peak is the least that can be expected.
    pub done_without: u64,
    /// The allocator's counters at the end.
    pub statistics: Statistics,
}

/// Where a replay ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The event of the trace; `None` while the blocks from before the first event were allocated.
    pub event: Option<usize>,
    /// What failed.
    pub oom: Oom,
}

impl Replay {
    /// The most that was reserved, in bytes.
    pub fn peak_reserved(&self) -> u64 {
        self.statistics.reserved.peak
    }

    /// The most that was allocated, in bytes.
    pub fn peak_allocated(&self) -> u64 {
        self.statistics.allocated.peak
    }

    /// How often the cache was given back for lack of memory.
    pub fn retries(&self) -> u64 {
        self.statistics.retries
    }
}

impl Script {
    /// Replays the script. It ends at the first allocation that fails and that the trace does not have as failed.
    pub fn replay(&self, model: &Model, capacity: Capacity, start: Start) -> Replay {
        with_machine(model, capacity, None, Player { script: self, start, available: capacity.available })
    }

    /// Replays the script on an empty card whose segments lie anywhere ([`Card::scattered`](crate::Card::scattered)).
    pub(crate) fn replay_scattered(&self, model: &Model, capacity: Capacity, seed: u64) -> Replay {
        let player = Player { script: self, start: Start::Cold, available: capacity.available };
        with_machine(model, capacity, Some(seed), player)
    }
}

struct Player<'a> {
    script: &'a Script,
    start: Start,
    /// What the allocator can take, in bytes.
    available: u64,
}

const EMPTY: BlockId = BlockId(u32::MAX);

impl Visitor<Replay> for Player<'_> {
    fn visit<M: Machine>(self, mut machine: M) -> Replay {
        let script = self.script;
        let mut replay = Replay {
            survived: true,
            oom: None,
            caught_ooms: 0,
            averted_ooms: 0,
            done_without: 0,
            statistics: Statistics::default(),
        };
        let failure = self.play(&mut machine, &mut replay).err().map(|(step, oom)| Failure {
            event: step.and_then(|step| script.events.get(step)).map(|&event| event as usize),
            oom,
        });
        Replay { survived: failure.is_none(), oom: failure, statistics: *machine.statistics(), ..replay }
    }
}

impl Player<'_> {
    /// Runs the script to its end, or to the step that fails: `None` while what was live at the start is allocated.
    fn play<M: Machine>(&self, machine: &mut M, replay: &mut Replay) -> Result<(), (Option<usize>, Oom)> {
        let script = self.script;
        let mut slots = vec![EMPTY; script.slots as usize];
        match if M::RESUMES { self.start } else { Start::Cold } {
            Start::Cold => self.allocate_start(machine, &mut slots).map_err(|oom| (None, oom))?,
            Start::Recorded => {
                let active = machine.resume(&script.start);
                let by_address: std::collections::BTreeMap<u64, BlockId> = active.into_iter().collect();
                for &(address, slot) in &script.start_slots {
                    slots[slot as usize] = by_address.get(&address).copied().unwrap_or(EMPTY);
                }
            }
        }
        let streams: Vec<u16> = script.streams.iter().map(|&stream| machine.stream(stream)).collect();
        let pools: Vec<u16> = script.pools.iter().map(|&pool| machine.pool(pool)).collect();
        for (index, step) in script.steps.iter().enumerate() {
            let mut allocate = || machine.malloc(step.size, streams[step.stream as usize], pools[step.pool as usize]);
            match step.kind {
                Kind::Allocate => slots[step.slot as usize] = allocate().map_err(|oom| (Some(index), oom))?,
                Kind::AllocateScratch => {
                    slots[step.slot as usize] = allocate().unwrap_or_else(|_| {
                        replay.done_without += 1;
                        EMPTY
                    });
                }
                Kind::Free => {
                    let id = std::mem::replace(&mut slots[step.slot as usize], EMPTY);
                    machine.free(id);
                }
                Kind::FreeLater => machine.free_later(slots[step.slot as usize]),
                Kind::Complete => {
                    let id = std::mem::replace(&mut slots[step.slot as usize], EMPTY);
                    machine.complete(id);
                }
                Kind::Flush => machine.flush(),
                Kind::ReleasePool => machine.release_pool(script.pools[step.pool as usize]),
                Kind::Attempt => match allocate() {
                    // Nobody knows what the program would have done with it.
                    Ok(id) => {
                        replay.averted_ooms += 1;
                        machine.free(id);
                    }
                    Err(oom) if script.fatal == Some(index as u32) => return Err((Some(index), oom)),
                    Err(_) => replay.caught_ooms += 1,
                },
                Kind::Library => self.spare(machine, step.size).map_err(|oom| (Some(index), oom))?,
            }
        }
        Ok(())
    }

    /// Whether the driver has `bytes` left for a library, which the allocator does not know of.
    fn spare<M: Machine>(&self, machine: &M, bytes: u64) -> Result<(), Oom> {
        let statistics = machine.statistics();
        let reserved = statistics.reserved.current;
        let driver_free = self.available.saturating_sub(reserved);
        if driver_free >= bytes {
            return Ok(());
        }
        Err(Oom {
            requested: bytes,
            rounded: bytes,
            segment: bytes,
            driver_free,
            reserved,
            allocated: statistics.allocated.current,
            private_free: 0,
            fits_on_retry: false,
            rejected: false,
        })
    }

    fn allocate_start<M: Machine>(&self, machine: &mut M, slots: &mut [BlockId]) -> Result<(), Oom> {
        for ((segment, block), &(_, slot)) in self.script.start.active().zip(&self.script.start_slots) {
            let (stream, pool) = (machine.stream(segment.stream), machine.pool(segment.pool));
            let id = machine.malloc(block.requested, stream, pool)?;
            slots[slot as usize] = id;
            if block.state == oomph_trace::BlockState::ActivePendingFree {
                machine.free_later(id);
            }
        }
        Ok(())
    }
}
