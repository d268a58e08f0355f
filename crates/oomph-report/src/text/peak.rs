//! Draws a card's memory as bars: what it had, and what the program needs.

use super::bar::{Part, draw};
use super::page::{Ink, Page};
use crate::device::{DeviceReport, Peak};
use crate::oom::Oom;
use oomph_gpu::size::format as size;

/// A bar wider than this is no easier to read.
const WIDEST_BAR: usize = 96;

/// The card at the moment of the error. It differs from the peak, because the allocator gives its cache back before it
/// gives up.
pub(super) fn at_oom(device: &DeviceReport, oom: &Oom) -> Peak {
    let has_told = oom.allocated_bytes.or(device.peak.allocated_bytes).or(device.peak.reserved_bytes).is_some();
    if let (false, Some(free), Some(capacity)) = (has_told, oom.free_bytes, device.capacity_bytes) {
        // No framework reported anything, but the card did.
        let process_bytes = capacity.saturating_sub(free);
        let other_bytes = process_bytes.saturating_sub(device.peak.context_bytes);
        return Peak { process_bytes, other_bytes, ..device.peak };
    }
    Peak {
        allocated_bytes: oom.allocated_bytes.or(device.peak.allocated_bytes),
        reserved_bytes: oom.reserved_bytes.or(device.peak.reserved_bytes),
        ..device.peak
    }
}

/// The parts of a card in use. Where no framework reported anything, everything but the context counts as allocated;
/// where one reported what it allocated and not what it reserved, the rest counts as its cache, which most of it is.
fn parts(peak: &Peak) -> [(Part, u64); 3] {
    let allocated = peak.allocated_bytes.or(peak.reserved_bytes).unwrap_or(peak.other_bytes);
    let (cached, context) = match peak.reserved_bytes {
        Some(_) => (peak.cached_bytes(), peak.context_bytes.saturating_add(peak.other_bytes)),
        None => (peak.other_bytes.saturating_sub(allocated), peak.context_bytes),
    };
    [(Part::Allocated, allocated), (Part::Cached, cached), (Part::Context, context)]
}

/// What the card had, and below it to one scale what the program needs, where that is more.
pub(super) fn bars(page: &mut Page, device: &DeviceReport, now: &Peak) {
    let used: u64 = parts(now).iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes));
    let capacity = device.capacity_bytes.unwrap_or(used).max(1);
    let with_free = |peak: &Peak| {
        let parts = parts(peak);
        let used: u64 = parts.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes));
        [parts[0], parts[1], parts[2], (Part::Free, capacity.saturating_sub(used))]
    };
    let needed = device.needed.filter(|needed| device.oom.is_some() && needed.process_bytes > capacity);
    let Some(needed) = needed else {
        let cells = page.width().saturating_sub(4).clamp(8, WIDEST_BAR);
        draw(page, "", &with_free(now), capacity.max(used), None, cells);
        return;
    };
    // Two bars to one scale, with the card's end marked on both.
    let (labels, taken) = if page.width() >= 60 { (["it had   ", "it needs "], 9) } else { (["", ""], 0) };
    let cells = page.width().saturating_sub(5 + taken).clamp(8, WIDEST_BAR - taken);
    let scale = needed.process_bytes.max(used);
    if u128::from(capacity) * (cells as u128) < 8 * u128::from(scale) {
        // The card would be a speck at the bar's left end: only what it had is worth a picture.
        draw(page, "", &with_free(now), capacity.max(used), None, cells + taken);
        return;
    }
    draw(page, labels[0], &with_free(now), scale, Some(capacity), cells);
    draw(page, labels[1], &with_free(&needed)[..3], scale, Some(capacity), cells);
}

/// The bars' parts with their sizes.
pub(super) fn legend(page: &mut Page, device: &DeviceReport, now: &Peak) {
    let unicode = page.unicode();
    let known = now.reserved_bytes.is_some() || now.allocated_bytes.is_some();
    let parts = parts(now);
    let used: u64 = parts.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes));
    let mut items = Vec::new();
    let mut item = |part: Part, name: &str, bytes: u64| {
        items
            .push(vec![(part.ink(), part.glyph(unicode).to_owned()), (Ink::Plain, format!(" {name} {}", size(bytes)))]);
    };
    item(Part::Allocated, if known { "allocated" } else { "the program's" }, parts[0].1);
    let knows_reserved = now.reserved_bytes.is_some();
    if known {
        item(Part::Cached, if knows_reserved { "cached" } else { "rest of its pool, other" }, parts[1].1);
    }
    let context = if knows_reserved && now.other_bytes > 0 { "context, other" } else { "context" };
    item(Part::Context, context, parts[2].1);
    if let Some(capacity) = device.capacity_bytes {
        let free = device.oom.as_ref().and_then(|oom| oom.free_bytes);
        item(Part::Free, "free", free.unwrap_or(capacity.saturating_sub(used)));
    }
    page.items(2, &items);
}
