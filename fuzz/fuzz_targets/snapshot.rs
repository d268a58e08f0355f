//! A snapshot of any wrapping; what is read can be written, and is the same when it is read again.
#![no_main]

use oomph_trace::write::{StackSharing, curve, snapshot};
use oomph_trace::{ReadOptions, read_from};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let options = ReadOptions { salvage: true, memory_limit: 256 << 20, any_growth: true };
    let Ok(trace) = read_from(bytes, "fuzz", &options) else { return };
    for device in &trace.devices {
        assert_eq!(curve(device).count(), device.events.len());
    }
    let mut written = Vec::new();
    if snapshot(&trace, StackSharing::Neighbours, &mut written).is_err() {
        return;
    }
    let back = read_from(&written[..], "fuzz", &options).expect("what was written can be read");
    let events = |trace: &oomph_trace::Trace| -> usize {
        let kept = trace.devices.iter().filter(|device| device.kind != oomph_trace::DeviceKind::Host);
        kept.map(|device| device.events.len() + device.segments.len()).sum()
    };
    assert_eq!(events(&trace), events(&back));
    assert_eq!(trace.annotations.len(), back.annotations.len());
});
