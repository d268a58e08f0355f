//! A profiler's trace, given as the text between the brackets of its list of events.
#![no_main]

use std::io::Read;

use oomph_trace::write::{perfetto, tensorboard};
use oomph_trace::{ReadOptions, read_from};

libfuzzer_sys::fuzz_target!(|events: &[u8]| {
    let whole = (&b"{\"traceEvents\":["[..]).chain(events).chain(&b"]}"[..]);
    let options = ReadOptions { salvage: true, memory_limit: 256 << 20, any_growth: true };
    let Ok(trace) = read_from(whole, "fuzz", &options) else { return };
    let mut written = Vec::new();
    perfetto(&trace, &mut written).expect("writing to memory");
    tensorboard(&trace, &[], &mut written).expect("writing to memory");
});
