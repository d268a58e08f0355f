//! Traces that the model itself made.

use oomph_allocator::{Card, Native, Settings, State, Version};
use oomph_trace::{Block, Device, Event, PoolId, Segment, StackId, StringId, Trace};

/// An allocator on a card without limit, whose events are recorded.
pub fn recorder() -> Native {
    let mut native = Native::new(Settings::default(), Version::NEWEST, 1 << 40, Card::new(u64::MAX));
    native.record_events();
    native
}

/// Moves what an allocator recorded to the end of a device's events.
pub fn collect(native: &mut Native, device: &mut Device) {
    for event in native.take_events() {
        device.events.push(Event {
            action: event.action,
            address: event.address,
            size: event.size,
            stream: event.stream,
            pool: Some(event.pool),
            stack: StackId::NONE,
            time_us: 0,
            label: StringId::EMPTY,
        });
    }
}

/// A trace of one device that ends with a state.
pub fn end_with(mut device: Device, state: &State) -> Trace {
    for segment in &state.segments {
        let first_block = device.blocks.len() as u32;
        device.blocks.extend(segment.blocks.iter().map(|block| Block {
            address: block.address,
            size: block.size,
            requested: block.requested,
            state: block.state,
            stack: StackId::NONE,
        }));
        device.segments.push(Segment {
            address: segment.address,
            total_size: segment.size,
            stream: segment.stream,
            large: segment.large,
            pool: segment.pool,
            expandable: segment.reservation.is_some(),
            first_block,
            end_block: device.blocks.len() as u32,
            ..Segment::default()
        });
    }
    Trace { devices: vec![device], ..Trace::default() }
}

/// Allocates for the default stream and pool of a card that has no end.
pub fn allocate(native: &mut Native, bytes: u64) -> oomph_allocator::BlockId {
    native.malloc(bytes, 0, PoolId::DEFAULT).expect("the card has no end")
}
