//! Whatever the bytes are, they are a log: no panic, and every line number lies within it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use oomph_explain::log::{self, Options};

fuzz_target!(|bytes: &[u8]| {
    let Ok(report) = log::explain(bytes, &Options::default()) else { return };
    assert_eq!(report.bytes, bytes.len() as u64);
    for failure in &report.failures {
        assert!(failure.line >= 1 && failure.line <= report.lines.max(1));
        assert!(failure.is_gpu_oom == failure.not_oom.is_none());
    }
});
