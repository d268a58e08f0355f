//! What a context takes of a card beyond what it begins with: larger stacks, and streams.
//!
//! The driver keeps a stack for every thread that can be resident, so that a larger stack takes memory at once, when the
//! limit is set, and gives it back when the limit is lowered. What streams take was read on one generation of cards.

use std::sync::atomic::Ordering;

use oomph_ledger::Kind;

use crate::device_log::Kind as Logged;
use crate::gpu::{Context, Device, gpu};
use crate::space::GRANULE;
use crate::status::CudaStatus;

/// The stack of a thread that every context has room for, in bytes.
pub const USUAL_STACK: u64 = 1024;
/// The generation on which the memory of streams was read: an H100, driver 580.159.04, 2026-11-26.
const READ_ON: u64 = 9;

/// What was changed of a card's context.
pub fn changes(device: Device) -> Option<&'static Context> {
    gpu().changes.get(device.card)
}

/// What stacks of this size take beyond the usual ones, in bytes.
fn stack_bytes(device: Device, stack: u64) -> u64 {
    let card = device.description;
    let threads = card.sm_count.saturating_mul(card.max_threads_per_sm);
    let bytes = threads.saturating_mul(stack.saturating_sub(USUAL_STACK));
    bytes.checked_next_multiple_of(GRANULE as u64).unwrap_or(u64::MAX)
}

/// What this many streams take, in bytes: a granule at the second, the sixth, the tenth, and so on.
fn stream_bytes(device: Device, streams: u64) -> u64 {
    if device.description.cc_major == READ_ON { (streams + 2) / 4 * GRANULE as u64 } else { 0 }
}

/// What a card's context took after it was made, in bytes.
pub fn taken(device: Device) -> u64 {
    changes(device).map_or(0, |changes| {
        let (stack, streams) = (changes.stack.load(Ordering::Relaxed), changes.most_streams.load(Ordering::Relaxed));
        stack_bytes(device, stack).saturating_add(stream_bytes(device, streams))
    })
}

/// Forgets what a card's context took. Its limits are the usual ones again.
pub fn forget(device: Device) {
    if let Some(changes) = changes(device) {
        changes.forget();
    }
}

/// Charges what a context takes more.
fn charge(device: Device, bytes: u64) -> Result<(), CudaStatus> {
    if bytes == 0 {
        return Ok(());
    }
    let gpu = gpu();
    if !gpu.charge(device.card, Kind::Context, bytes) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        gpu.log_refusal(device.card, bytes);
        gpu.request_refused(device.card, bytes);
        return Err(CudaStatus::OUT_OF_MEMORY);
    }
    Ok(())
}

/// Makes the stack of a thread as large as this, in bytes.
pub fn set_stack(device: Device, stack: u64) -> Result<(), CudaStatus> {
    let Some(changes) = changes(device) else { return Ok(()) };
    let before = changes.stack.swap(stack, Ordering::Relaxed);
    let (old, new) = (stack_bytes(device, before), stack_bytes(device, stack));
    if new < old {
        gpu().release(device.card, Kind::Context, old - new);
    } else if new > old {
        charge(device, new - old).inspect_err(|_| changes.stack.store(before, Ordering::Relaxed))?;
        gpu().log.note(Logged::Context, device.card, 0, (new - old) as usize);
    }
    Ok(())
}

/// Takes what one more stream needs.
pub fn add_stream(device: Device) -> Result<(), CudaStatus> {
    let Some(changes) = changes(device) else { return Ok(()) };
    let now = changes.streams.fetch_add(1, Ordering::Relaxed) + 1;
    let before = changes.most_streams.fetch_max(now, Ordering::Relaxed);
    let more = stream_bytes(device, now).saturating_sub(stream_bytes(device, before));
    charge(device, more).inspect_err(|_| {
        changes.most_streams.store(before, Ordering::Relaxed);
        remove_stream(device);
    })
}

/// Lets another stream have what one that was destroyed took.
pub fn remove_stream(device: Device) {
    if let Some(changes) = changes(device) {
        let less = |streams: u64| streams.checked_sub(1);
        let _ = changes.streams.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

#[cfg(test)]
mod tests {
    use oomph_ledger::DeviceDescription;

    use super::*;

    fn card(cc_major: u64) -> Device {
        let description =
            DeviceDescription { cc_major, sm_count: 132, max_threads_per_sm: 2048, ..DeviceDescription::default() };
        Device { card: 0, description: Box::leak(Box::new(description)) }
    }

    /// Read on an H100, driver 580.159.04, 2026-11-26.
    #[test]
    fn larger_stacks_take_what_they_take_on_an_h100() {
        assert_eq!(stack_bytes(card(9), 64 << 10), 17_439_916_032);
        assert_eq!(stack_bytes(card(9), 1024), 0);
        assert_eq!(stack_bytes(card(9), u64::MAX), u64::MAX);
    }

    /// Read on an H100, driver 580.159.04, 2026-11-26: the first 34 of 96 streams, in granules. Later ones took a granule
    /// more here and there, 54,525,952 bytes together.
    #[test]
    fn every_fourth_stream_takes_a_granule() {
        let read =
            [0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7, 8, 8, 8, 8, 9];
        let taken: Vec<u64> = (1..=34).map(|streams| stream_bytes(card(9), streams) >> 21).collect();
        assert_eq!(taken, read);
        assert_eq!(stream_bytes(card(8), 96), 0, "not read on other cards");
    }
}
