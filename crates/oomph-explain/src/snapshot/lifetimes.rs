//! When each allocation lived: its birth, its release and its death as positions among the events of a device.
//!
//! Grouping the events by address puts each allocation next to its frees, so that one sort does the work of a hash
//! table and nothing is allocated per event.

use oomph_allocator::EventPools;
use oomph_trace::{Action, Block, BlockState, Device, PoolId, StackId, StringId};

/// A place between events: position `p` is the state after the first `p` events of the device.
pub(super) type Position = u32;

/// The position of what never happens within the recording.
pub(super) const NEVER: Position = Position::MAX;

/// One allocation of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lifetime {
    /// Where the block starts.
    pub address: u64,
    /// What the program asked for, in bytes.
    pub requested: u64,
    /// What the block took, rounding and slack included, in bytes; never less than `requested`.
    pub size: u64,
    /// The stream that asked.
    pub stream: u64,
    /// The pool.
    pub pool: PoolId,
    /// The first position at which it lives; 0 when it was there before the recording began.
    pub birth: Position,
    /// The position from which the program no longer holds it.
    pub released: Position,
    /// The position from which its memory can be reused.
    pub death: Position,
    /// Where in the program it was allocated.
    pub stack: StackId,
    /// What the recorder calls it.
    pub label: StringId,
    /// Whether `size` is what the file states for it, and not what the allocator's rules say.
    pub size_recorded: bool,
}

impl Lifetime {
    /// Whether the block is in use at `position`.
    pub fn lives_at(&self, position: Position) -> bool {
        self.birth <= position && position < self.death
    }

    /// Whether it was there before the first event.
    pub fn before_recording(&self) -> bool {
        self.birth == 0
    }
}

/// The stream and the pool of a request.
type Asker = (u64, PoolId);

/// Every allocation of a device in the order of birth, and of address where several were there before the recording.
///
/// `round` gives the bytes of a block for the bytes of a request.
pub(super) fn lifetimes(device: &Device, pools: &EventPools, round: impl Fn(u64) -> u64) -> Vec<Lifetime> {
    let events = &device.events;
    // Positions are 32 bits wide, as are the trace's own indices: four billion events do not fit into memory.
    let count = events.len().min(NEVER as usize - 1);
    let mut by_address: Vec<(u64, Position)> = Vec::new();
    let mut records_release = false;
    for (index, event) in events.iter().take(count).enumerate() {
        records_release |= event.action == Action::FreeRequested;
        if matches!(event.action, Action::Alloc | Action::FreeRequested | Action::FreeCompleted) {
            by_address.push((event.address, index as Position));
        }
    }
    by_address.sort_unstable();
    let mut standing: Vec<(&Block, Asker)> = device
        .segments
        .iter()
        .flat_map(|segment| device.blocks_of(segment).iter().map(move |block| (block, (segment.stream, segment.pool))))
        .filter(|(block, _)| block.state != BlockState::Inactive)
        .collect();
    standing.sort_unstable_by_key(|(block, _)| block.address);
    standing.dedup_by_key(|(block, _)| block.address);

    let mut all = Vec::with_capacity(by_address.len() / 2 + standing.len());
    let mut standing = standing.into_iter().peekable();
    let before = |address: u64, requested: u64, (stream, pool): Asker| Lifetime {
        address,
        requested,
        size: round(requested),
        stream,
        pool,
        birth: 0,
        released: NEVER,
        death: NEVER,
        stack: StackId::NONE,
        label: StringId::EMPTY,
        size_recorded: false,
    };
    for group in by_address.chunk_by(|a, b| a.0 == b.0) {
        let address = group[0].0;
        while let Some((block, asker)) = standing.next_if(|(block, _)| block.address < address) {
            all.push(recorded(before(block.address, block.requested, asker), block));
        }
        let (current, known_until) = at_address(device, pools, group, records_release, &before, &mut all);
        let end = standing.next_if(|(block, _)| block.address == address);
        match (current, end) {
            (Some(block), Some((end, _))) => all.push(recorded(block, end)),
            (Some(block), None) => all.push(block),
            (None, Some((end, asker))) => {
                let unseen = Lifetime { birth: known_until, ..before(address, end.requested, asker) };
                all.push(recorded(unseen, end));
            }
            (None, None) => {}
        }
    }
    for (block, asker) in standing {
        all.push(recorded(before(block.address, block.requested, asker), block));
    }
    all.sort_unstable_by_key(|block| (block.birth, block.address));
    all
}

/// Adds the allocations at one address that ended, from the events there. What remains is the one that lives on, if there
/// is one, and the position up to which the address is known.
fn at_address(
    device: &Device,
    pools: &EventPools,
    group: &[(u64, Position)],
    records_release: bool,
    before: &impl Fn(u64, u64, Asker) -> Lifetime,
    all: &mut Vec<Lifetime>,
) -> (Option<Lifetime>, Position) {
    let mut current: Option<Lifetime> = None;
    // Where an allocation was not recorded (recording was paused, or had not begun), the block lives from the last thing
    // that is known of its address.
    let mut known_until = 0;
    for &(address, index) in group {
        let Some(event) = device.events.get(index as usize) else { continue };
        let after = index + 1;
        let asker = (event.stream, pools.pool(index as usize, &event));
        match event.action {
            Action::Alloc => {
                // An allocation where one is live: its free was not recorded, so it ends here at the latest.
                all.extend(current.take().map(|earlier| ended(earlier, index)));
                let (stack, label) = (event.stack, event.label);
                current = Some(Lifetime { birth: after, stack, label, ..before(address, event.size, asker) });
            }
            Action::FreeRequested => {
                let block = current
                    .get_or_insert_with(|| Lifetime { birth: known_until, ..before(address, event.size, asker) });
                block.released = block.released.min(after);
            }
            _ => {
                let block = current.take().unwrap_or_else(|| Lifetime {
                    birth: known_until,
                    label: event.label,
                    released: if records_release { known_until } else { NEVER },
                    ..before(address, event.size, asker)
                });
                all.push(ended(block, after));
            }
        }
        known_until = after;
    }
    (current, known_until)
}

fn ended(block: Lifetime, at: Position) -> Lifetime {
    Lifetime { released: block.released.min(at), death: at, ..block }
}

/// A block with what the file says of it at the end.
fn recorded(mut lifetime: Lifetime, block: &Block) -> Lifetime {
    if block.size == 0 {
        return lifetime;
    }
    lifetime.size = block.size;
    lifetime.size_recorded = true;
    // PyTorch 1.13 and 2.0 do not always record the request; the block's own size is then the best that is known.
    let requested = if block.requested == 0 { block.size } else { block.requested };
    if lifetime.birth == 0 || lifetime.requested > block.size {
        lifetime.requested = requested.min(block.size);
    }
    if lifetime.stack == StackId::NONE {
        lifetime.stack = block.stack;
    }
    if block.state == BlockState::ActivePendingFree && lifetime.released == NEVER {
        lifetime.released = lifetime.birth;
    }
    lifetime
}
