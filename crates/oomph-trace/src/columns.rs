//! Stores the events of one device, a column for each property.

use std::hash::Hash;
use std::ops::Range;

use hashbrown::HashMap;

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
    stream_values: Palette<u64>,
    /// Index into `pool_values`, plus one; 0 is "not recorded".
    pools: Vec<u16>,
    pool_values: Palette<PoolId>,
    stacks: Vec<StackId>,
    times: Vec<i64>,
    /// As long as the last event with a label: most traces label nothing, some every event.
    labels: Vec<StringId>,
}

impl Events {
    /// Adds an event at the end.
    pub fn push(&mut self, event: Event) {
        let stream = self.stream_values.index_of(event.stream);
        let pool = event.pool.map_or(0, |pool| self.pool_values.index_of(pool).saturating_add(1));
        if event.label != StringId::EMPTY {
            self.labels.resize(self.actions.len(), StringId::EMPTY);
            self.labels.push(event.label);
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
        Some(Event {
            action,
            address: self.addresses[index],
            size: self.sizes[index],
            stream: self.stream_values.values[self.streams[index] as usize],
            pool: self.pools[index].checked_sub(1).map(|pool| self.pool_values.values[pool as usize]),
            stack: self.stacks[index],
            time_us: self.times[index],
            label: self.labels.get(index).copied().unwrap_or(StringId::EMPTY),
        })
    }

    /// All events in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Event> + ExactSizeIterator + '_ {
        (0..self.len()).map(|index| self.get(index).expect("the index is below the length"))
    }

    /// A copy of the events of some ranges, one range after the other. Parts of ranges beyond the end are left out.
    pub fn select(&self, ranges: &[Range<u32>]) -> Events {
        let mut chosen = Events::default();
        for range in ranges {
            for index in range.start as usize..(range.end as usize).min(self.len()) {
                if let Some(event) = self.get(index) {
                    chosen.push(event);
                }
            }
        }
        chosen
    }

    /// About how many bytes of memory the columns hold.
    pub(crate) fn held(&self) -> usize {
        self.actions.capacity() * (1 + 8 + 8 + 2 + 2 + 4 + 8)
            + self.labels.capacity() * 4
            + (self.stream_values.values.capacity() + self.pool_values.values.capacity()) * 40
    }

    /// The streams that occur, in the order of their first event.
    pub fn streams(&self) -> &[u64] {
        &self.stream_values.values
    }

    /// The pools that occur, in the order of their first event.
    pub fn pools(&self) -> &[PoolId] {
        &self.pool_values.values
    }
}

/// The few different values of a column, each kept once.
#[derive(Clone, Debug, Default)]
struct Palette<T> {
    values: Vec<T>,
    index: HashMap<T, u16>,
    /// The one asked for last, which nearly always is the one asked for next.
    last: u16,
}

impl<T: Copy + Eq + Hash> Palette<T> {
    /// The place of `value`, which is added if it is new. After 65,534 different values the rest share the last place;
    /// no program has so many streams or pools.
    fn index_of(&mut self, value: T) -> u16 {
        if self.values.get(self.last as usize) == Some(&value) {
            return self.last;
        }
        let next = self.values.len().min(u16::MAX as usize - 1) as u16;
        self.last = match self.index.get(&value) {
            Some(&known) => known,
            None if self.values.len() < u16::MAX as usize - 1 => {
                self.values.push(value);
                self.index.insert(value, next);
                next
            }
            None => next - 1,
        };
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_comes_back_as_it_was_pushed() {
        let mut events = Events::default();
        let event = |i: u64| Event {
            action: if i.is_multiple_of(2) { Action::Alloc } else { Action::FreeCompleted },
            address: i << 40,
            size: i,
            stream: i % 3,
            pool: (!i.is_multiple_of(5)).then_some(PoolId(i % 5, 1)),
            stack: StackId(i as u32),
            time_us: -(i as i64),
            label: StringId(u32::from(i.is_multiple_of(7))),
        };
        (0..100).for_each(|i| events.push(event(i)));
        assert!(events.iter().eq((0..100).map(event)));
        assert_eq!(events.get(100), None);
        assert_eq!(events.streams(), [0, 1, 2]);
        let chosen = events.select(&[90..95, 3..4]);
        assert!(chosen.iter().eq((90..95).chain(3..4).map(event)));
    }

    #[test]
    fn more_streams_than_any_program_has_do_not_cost_quadratic_time_or_panic() {
        let mut palette = Palette::default();
        for value in 0..70_000_u64 {
            palette.index_of(value);
        }
        assert_eq!(palette.index_of(0), 0);
        assert_eq!(palette.index_of(69_999), u16::MAX - 2);
        assert_eq!(palette.values.len(), u16::MAX as usize - 1);
    }
}
