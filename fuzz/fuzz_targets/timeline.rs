//! JSON of any format: memory timelines, the virtual GPU's log, snapshots as JSON.
#![no_main]

use oomph_trace::{ReadOptions, read_from};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for salvage in [false, true] {
        let _ = read_from(bytes, "fuzz", &ReadOptions { salvage, memory_limit: 256 << 20, any_growth: true });
    }
});
