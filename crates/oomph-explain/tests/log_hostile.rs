//! Whatever the bytes of a log are: no panic, every line number within the log, and time linear in the length.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use oomph_explain::log::{self, Options, Report};
use proptest::prelude::*;

fn explain(bytes: &[u8]) -> Report {
    log::explain(bytes, &Options::default()).expect("memory is read without errors")
}

/// Fragments of real messages, which random bytes would never hit.
const FRAGMENTS: &[&str] = &[
    "CUDA out of memory. ",
    "Tried to allocate ",
    "17179869184.00 GiB",
    "99999999999999999999999999 MiB",
    "GPU 4294967296 has a total capacity of ",
    " of which 0 bytes is free. ",
    "Process 1 has 1.00 GiB memory in use. ",
    "Of the allocated memory ",
    "(GPU 0; 2.00 GiB total capacity; ",
    "OOM when allocating tensor with shape[18446744073709551615,2] and type float",
    "bfc_allocator.cc:1] InUse at 7f00 of size 18446744073709551615 next 1",
    "bfc_allocator.cc:1] Free  at 7f00 of size 18446744073709551615 next 1",
    "bfc_allocator.cc:1] Bin (256): \tTotal Chunks: 4, Chunks in use: 3. 1.0KiB allocated for chunks. ",
    "bfc_allocator.cc:1] Stats: Limit: 1 InUse: 2",
    "Traceback (most recent call last):\n",
    "  File \"/a.py\", line 99999999999999999999, in f\n    x = y\n",
    "[rank7]: ",
    "\u{1b}[31m",
    "mem_allocated: 2939 MB",
    "max seq len (1), (1 GiB KV cache is needed, which is larger than the available KV cache memory (",
    "Killed\n",
    "\n",
    "\r",
    "\r\n",
    "{",
    "é",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 40 } else { 300 }))]

    #[test]
    fn any_bytes_are_a_log(bytes in proptest::collection::vec(any::<u8>(), 0..4000)) {
        let report = explain(&bytes);
        prop_assert_eq!(report.bytes, bytes.len() as u64);
    }

    #[test]
    fn any_mixture_of_messages_is_read(
        pieces in proptest::collection::vec((0..FRAGMENTS.len(), "[ -~\\n]{0,12}"), 0..80),
        cut in 1usize..4000,
    ) {
        let mut text = String::new();
        for (fragment, noise) in &pieces {
            write!(text, "{}{noise}", FRAGMENTS[*fragment]).unwrap();
        }
        let whole = explain(text.as_bytes());
        for failure in &whole.failures {
            prop_assert!(failure.line >= 1 && failure.line <= whole.lines.max(1), "{} of {}", failure.line, whole.lines);
            prop_assert!((0.0..=1.0).contains(&failure.certainty));
            prop_assert!(failure.facts.lines.values().all(|line| *line >= 1 && *line <= whole.lines.max(1)));
            for cause in &failure.causes {
                prop_assert!((0.0..=1.0).contains(&cause.confidence) && !cause.because.is_empty());
            }
            prop_assert!(failure.is_gpu_oom == failure.not_oom.is_none());
        }
        // What a log says does not depend on how its bytes arrive.
        let pieces = Pieces { bytes: text.as_bytes(), at_most: cut };
        prop_assert_eq!(log::explain(pieces, &Options::default()).unwrap(), whole);
    }
}

/// A reader that gives few bytes at a time, like a pipe.
struct Pieces<'a> {
    bytes: &'a [u8],
    at_most: usize,
}

impl std::io::Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.at_most.min(self.bytes.len()).min(buffer.len());
        buffer[..length].copy_from_slice(&self.bytes[..length]);
        self.bytes = &self.bytes[length..];
        Ok(length)
    }
}

/// The processor time that this thread has used: the machine that tests run on is shared.
fn own_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0);
    Duration::from_nanos(nanoseconds)
}

/// Ten megabytes in one line, in a second of an optimised build; any other reads one, and may be twenty times slower.
fn a_line_of(unit: &str) {
    let size = if cfg!(debug_assertions) { 1 << 20 } else { 10 << 20 };
    let text = unit.repeat(size / unit.len());
    let (wall, own) = (Instant::now(), own_time());
    let report = explain(text.as_bytes());
    let took = if own > Duration::ZERO { own_time() - own } else { wall.elapsed() };
    let limit = if cfg!(debug_assertions) { Duration::from_secs(2) } else { Duration::from_secs(1) };
    println!("{took:?} for {:?}..., {} failures", &unit[..unit.len().min(30)], report.failures.len());
    assert!(took < limit, "{took:?} for {unit:?}");
}

#[test]
fn a_line_of_ten_megabytes_is_read_in_time() {
    for unit in [
        "x",
        "emory ",
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB ",
        "Tried to allocate ",
        "MemoryError ",
        "bfc_allocator ",
        "max_seq_length batch_size: 4 mem_allocated 3 MB ",
        "((((((((1.00 GiB ",
        "File \"a.py\", line 1, in f ",
        "Traceback (most recent call last) CUDA error: out of memory\r",
        "1,1,1,1,1,1,1,1,",
        "OOM\\|grep ",
    ] {
        a_line_of(unit);
    }
}

#[test]
fn many_failures_are_kept_in_bounds() {
    let mut text = String::new();
    for step in 0..5000 {
        let _ = writeln!(text, "CUDA out of memory. Tried to allocate {}.00 GiB. GPU 0 has a total", step + 1);
        text.push_str(&"filling text\n".repeat(20));
    }
    let report = explain(text.as_bytes());
    assert!(report.failures.len() <= Options::default().most_failures);
    assert!(!report.failures.is_empty());
}

/// A log whose line ends were lost is one line: what is early in it, and what is far behind all else, is read.
#[test]
fn a_failure_is_found_wherever_it_is_in_a_long_line() {
    let message = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 1; 8.00 GiB total capacity) ";
    let filler = "step 12 loss 0.25 lr 3e-4 ".repeat(40_000);
    for text in [format!("{message}{filler}"), format!("{filler}{message}"), format!("{filler}{message}{filler}")] {
        let report = explain(text.as_bytes());
        let found = report.failures.first().map(|failure| (failure.is_gpu_oom, failure.facts.requested_bytes));
        assert_eq!(found, Some((true, Some(2 << 30))));
    }
}
