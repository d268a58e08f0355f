//! Finds the pool of each event in traces that do not record it.

use std::collections::BTreeMap;

use oomph_trace::{Action, Device, Event, PoolId};

/// The pools of a device's events.
///
/// Before 2.11 or so PyTorch records the pool of a segment, but not of an event: an event's pool is then that of the
/// segment it lies in. A segment that is gone by the end of the trace counts as the default pool's.
#[derive(Clone, Debug)]
pub struct EventPools {
    /// By event, where the trace does not record them and there are private pools; empty otherwise.
    inferred: Vec<PoolId>,
}

impl EventPools {
    /// Finds the pools of a device's events.
    pub fn of(device: &Device) -> Self {
        let recorded = !device.events.pools().is_empty();
        if recorded || device.segments.iter().all(|segment| segment.pool == PoolId::DEFAULT) {
            return Self { inferred: Vec::new() };
        }
        let mut segments: BTreeMap<u64, (u64, PoolId)> = BTreeMap::new();
        for segment in &device.segments {
            segments.insert(segment.address, (segment.address.saturating_add(segment.total_size), segment.pool));
        }
        let mut inferred = vec![PoolId::DEFAULT; device.events.len()];
        for (index, event) in device.events.iter().enumerate().rev() {
            if event.action == Action::SegmentFree {
                segments.insert(event.address, (event.address.saturating_add(event.size), PoolId::DEFAULT));
                continue;
            }
            let at = segments.range(..=event.address).next_back();
            inferred[index] = match at {
                Some((_, &(end, pool))) if event.address < end => pool,
                _ => PoolId::DEFAULT,
            };
            if event.action == Action::SegmentAlloc {
                segments.remove(&event.address);
            }
        }
        Self { inferred }
    }

    /// The pool of an event, which is the one at `index`.
    pub fn pool(&self, index: usize, event: &Event) -> PoolId {
        event.pool.or_else(|| self.inferred.get(index).copied()).unwrap_or_default()
    }
}
