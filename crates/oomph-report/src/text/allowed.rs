//! Says what a program lets PyTorch take of a card, and what follows for the card that it needs.

use crate::device::{DeviceReport, PoolScale};
use oomph_gpu::size::format as size;

/// What the program lets PyTorch take, and whether that decides.
pub(super) fn words(device: &DeviceReport) -> Option<String> {
    let allowed = device.allowed.as_ref()?;
    let limit = size(allowed.bytes);
    let decides = device.oom.as_ref().filter(|oom| !oom.forecast).is_some_and(|oom| {
        let reserved = oom.reserved_bytes.unwrap_or(0);
        let (wanted, free) = (oom.requested_bytes, oom.free_bytes.unwrap_or(0));
        reserved.saturating_add(wanted) > allowed.bytes && wanted > 0 && wanted <= free
    });
    let decides = if decides { ", which decides: the card itself has the memory" } else { "" };
    Some(match (allowed.scales, device.capacity_bytes) {
        (PoolScale::Share, Some(capacity)) if capacity > 0 => {
            let percent = (allowed.bytes as f64 * 100.0 / capacity as f64).round();
            format!("the program lets PyTorch take {limit} of this card ({percent} %){decides}")
        }
        (PoolScale::Share, _) => return None,
        _ => format!("the program lets PyTorch take {limit}, on any card{decides}"),
    })
}

/// What is said of a need of which the program's own limit makes a larger card, after the size of that card.
pub(super) fn need_words(device: &DeviceReport, need: u64) -> Option<String> {
    let (allowed, capacity, needed) = (device.allowed.as_ref()?, device.capacity_bytes?, device.needed?);
    if allowed.scales != PoolScale::Share || need <= needed.process_bytes || needed.process_bytes == 0 {
        return None;
    }
    let percent = (allowed.bytes as f64 * 100.0 / capacity.max(1) as f64).round();
    Some(format!(
        ": PyTorch needs {} of it, and the program lets it take {percent} %",
        size(needed.reserved_bytes.unwrap_or(needed.process_bytes))
    ))
}

/// Whether the program lets PyTorch take so many bytes on any card.
pub(super) fn is_fixed(device: &DeviceReport) -> bool {
    device.allowed.is_some_and(|allowed| allowed.scales == PoolScale::Fixed)
}

/// How much more PyTorch might have taken, in bytes.
pub(super) fn room(device: &DeviceReport) -> i128 {
    device.allowed.map_or(i128::MAX, |allowed| {
        // What loops that were left out add counts, where it is known.
        let more = device.needed.and_then(|needed| needed.reserved_bytes).unwrap_or(0);
        i128::from(allowed.bytes) - i128::from(allowed.reserved_bytes.max(more))
    })
}
