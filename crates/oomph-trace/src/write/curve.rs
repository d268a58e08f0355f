//! Computes allocated and reserved memory over time.

use crate::{Action, BlockState, Device};

/// What a device held after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The event, as an index into [`Device::events`].
    pub event: usize,
    /// Microseconds as in [`Event::time_us`](crate::Event::time_us); the event's index where no times were recorded.
    pub time_us: i64,
    /// Bytes that the program held, as it had asked for them (blocks are a little larger).
    pub allocated: u64,
    /// Bytes taken from the driver.
    pub reserved: u64,
}

/// What a device held after each of its events.
///
/// A history may have begun late. Where the file says what was live at its end, the beginning follows from that and the
/// changes in between; otherwise it is taken as zero.
pub fn curve(device: &Device) -> impl Iterator<Item = Sample> + '_ {
    let events = &device.events;
    // The program has no use of memory after its request to free it; profilers only record that it was freed.
    let requests = events.iter().any(|event| event.action == Action::FreeRequested);
    let change = move |action: Action, size: u64| -> (i128, i128) {
        let size = i128::from(size);
        match action {
            Action::Alloc => (size, 0),
            Action::FreeRequested if requests => (-size, 0),
            Action::FreeCompleted if !requests => (-size, 0),
            Action::SegmentAlloc | Action::SegmentMap => (0, size),
            Action::SegmentFree | Action::SegmentUnmap => (0, -size),
            _ => (0, 0),
        }
    };
    let net = events.iter().map(|event| change(event.action, event.size)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    let (mut allocated, mut reserved) = (0, 0);
    if !device.segments.is_empty() {
        let live = device.blocks.iter().filter(|block| block.state == BlockState::ActiveAllocated);
        allocated = (live.map(|block| i128::from(block.requested)).sum::<i128>() - net.0).max(0);
        reserved = (device.segments.iter().map(|segment| i128::from(segment.total_size)).sum::<i128>() - net.1).max(0);
    }
    let timed = events.iter().any(|event| event.time_us != 0);
    events.iter().enumerate().map(move |(index, event)| {
        let (a, r) = change(event.action, event.size);
        allocated += a;
        reserved += r;
        let bytes = |value: i128| u64::try_from(value.max(0)).unwrap_or(u64::MAX);
        Sample {
            event: index,
            time_us: if timed { event.time_us } else { index as i64 },
            allocated: bytes(allocated),
            reserved: bytes(reserved),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Block, Event, Segment, StackId, StringId};

    fn event(action: Action, size: u64) -> Event {
        Event {
            action,
            address: 0,
            size,
            stream: 0,
            pool: None,
            stack: StackId::NONE,
            time_us: 0,
            label: StringId::EMPTY,
        }
    }

    #[test]
    fn a_history_that_began_late_ends_at_what_stood_at_the_end() {
        let mut device = Device::default();
        device.events.push(event(Action::Alloc, 100));
        device.events.push(event(Action::FreeRequested, 300));
        device.events.push(event(Action::FreeCompleted, 300));
        device.segments.push(Segment { total_size: 4096, end_block: 1, ..Segment::default() });
        device.blocks.push(Block { size: 512, requested: 500, state: BlockState::ActiveAllocated, ..Block::default() });
        let samples: Vec<Sample> = curve(&device).collect();
        assert_eq!(samples.iter().map(|sample| sample.allocated).collect::<Vec<_>>(), [800, 500, 500]);
        assert!(samples.iter().all(|sample| sample.reserved == 4096));
        assert_eq!(samples[2].time_us, 2);
    }

    #[test]
    fn frees_of_a_profiler_count_when_they_complete() {
        let mut device = Device::default();
        device.events.push(event(Action::SegmentAlloc, 2048));
        device.events.push(event(Action::Alloc, 512));
        device.events.push(event(Action::FreeCompleted, 512));
        let samples: Vec<(u64, u64)> = curve(&device).map(|sample| (sample.allocated, sample.reserved)).collect();
        assert_eq!(samples, [(0, 2048), (512, 2048), (0, 2048)]);
    }
}
