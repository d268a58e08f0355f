//! The events of one device, a column for each property.

use crate::{Action, PoolId, StackId, StringId};

/// One event, put together from the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub action: Action,
    /// The address. For [`Action::Oom`] it is the device's free memory in bytes instead, as PyTorch records it.
    pub address: u64,
    /// Bytes: the program's request for allocations and frees, the rounded request for an OOM, the segment's size for
    /// segment events.
    pub size: u64,
    /// The stream as PyTorch prints it (a pointer; 0 is the default stream).
    pub stream: u64,
    /// The pool, where the writer recorded it.
    pub pool: Option<PoolId>,
    /// Where in the program.
    pub stack: StackId,
    /// Microseconds since the Unix epoch (or since an epoch of the writer's); 0 where not recorded.
    pub time_us: i64,
    /// What the program attached to the event, or the compiled region it came from; empty mostly.
    pub label: StringId,
}

/// Events in the order in which they happened.
#[derive(Clone, Debug, Default)]
pub struct Events {
    actions: Vec<Action>,
    addresses: Vec<u64>,
    sizes: Vec<u64>,
    /// Index into `stream_values`: there are few streams and they are eight bytes wide.
    streams: Vec<u16>,
    stream_values: Vec<u64>,
    /// Index into `pool_values`, plus one; 0 is "not recorded".
    pools: Vec<u16>,
    pool_values: Vec<PoolId>,
    stacks: Vec<StackId>,
    times: Vec<i64>,
    /// Sparse: most traces label nothing.
    labels: Vec<(u32, StringId)>,
}

impl Events {
    /// Adds an event at the end.
    pub fn push(&mut self, event: Event) {
        let stream = index_of(&mut self.stream_values, event.stream);
        let pool = event.pool.map_or(0, |pool| index_of(&mut self.pool_values, pool).saturating_add(1));
        if event.label != StringId::EMPTY {
            self.labels.push((u32::try_from(self.actions.len()).unwrap_or(u32::MAX), event.label));
        }
        self.actions.push(event.action);
        self.addresses.push(event.address);
        self.sizes.push(event.size);
        self.streams.push(stream);
        self.pools.push(pool);
        self.stacks.push(event.stack);
        self.times.push(event.time_us);
    }

    /// How many events there are.
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// True when nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// The event at `index`, from 0.
    pub fn get(&self, index: usize) -> Option<Event> {
        let action = *self.actions.get(index)?;
        let label = match self.labels.binary_search_by_key(&(index as u32), |label| label.0) {
            Ok(found) => self.labels[found].1,
            Err(_) => StringId::EMPTY,
        };
        Some(Event {
            action,
            address: self.addresses[index],
            size: self.sizes[index],
            stream: self.stream_values[self.streams[index] as usize],
            pool: self.pools[index].checked_sub(1).map(|pool| self.pool_values[pool as usize]),
            stack: self.stacks[index],
            time_us: self.times[index],
            label,
        })
    }

    /// All events in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Event> + ExactSizeIterator + '_ {
        (0..self.len()).map(|index| self.get(index).expect("the index is below the length"))
    }

    /// The streams that occur, in the order of their first event.
    pub fn streams(&self) -> &[u64] {
        &self.stream_values
    }

    /// The pools that occur, in the order of their first event.
    pub fn pools(&self) -> &[PoolId] {
        &self.pool_values
    }
}

/// The place of `value` in `values`, where it is added if it is new. A trace names a handful of streams and pools, so
/// that the last ones are looked at first and no map is kept; after 65,535 different ones the rest share the last.
fn index_of<T: Copy + PartialEq>(values: &mut Vec<T>, value: T) -> u16 {
    if let Some(index) = values.iter().rposition(|&known| known == value) {
        return index as u16;
    }
    if values.len() < u16::MAX as usize {
        values.push(value);
    }
    (values.len() - 1) as u16
}
