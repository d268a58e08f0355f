//! Pinned host memory.

use std::collections::BTreeMap;

use oomph_allocator::Settings;
use oomph_trace::{Device, DeviceKind, FrameId, Trace};

use super::explanation::{PinnedHost, PinnedLine};
use super::rows;
use super::stacks::Facts;
use super::timeline::Timeline;

/// What a recording says of pinned memory; `None` where it says nothing.
pub(super) fn pinned(trace: &Trace, settings: &Settings, facts: &Facts) -> Option<PinnedHost> {
    let devices: Vec<&Device> = trace.devices.iter().filter(|device| device.kind == DeviceKind::PinnedHost).collect();
    let mut host = PinnedHost { reserved_bytes: 0, in_use_bytes: 0, peak_reserved_bytes: 0, by_line: Vec::new() };
    let mut lines = BTreeMap::<Option<FrameId>, u64>::new();
    for device in devices {
        let timeline = Timeline::new(device, settings);
        host.reserved_bytes += timeline.reserved.last().copied().unwrap_or(0);
        host.peak_reserved_bytes += timeline.reserved.iter().copied().max().unwrap_or(0);
        for block in timeline.living_at(timeline.end).filter_map(|index| timeline.lifetimes.get(index as usize)) {
            host.in_use_bytes = host.in_use_bytes.saturating_add(block.size);
            *lines.entry(facts.get(block.stack).line).or_default() += block.size;
        }
    }
    let site = |frame: Option<FrameId>| frame.and_then(|frame| rows::line(trace, frame));
    host.by_line = lines.into_iter().map(|(frame, bytes)| PinnedLine { bytes, site: site(frame) }).collect();
    host.by_line.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.site.cmp(&b.site)));
    (host.peak_reserved_bytes > 0 || host.in_use_bytes > 0).then_some(host)
}
