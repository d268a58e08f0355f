//! A log of two gigabytes with one failure in the middle: what does not matter costs next to nothing.
//!
//! The full size and its limits are for an optimised build (`cargo test --release`); any other reads a small one.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use oomph_explain::log::{self, Options};

const FAILURE: &str = "Traceback (most recent call last):
  File \"/home/me/train.py\", line 88, in <module>
    loss.backward()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0 has a total capacity of 23.52 GiB of which 471.69 MiB is free. Including non-PyTorch memory, this process has 23.05 GiB memory in use. Of the allocated memory 21.03 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.
";

/// The steps of a training run, over and over, with the failure in the middle.
struct Training {
    steps: Vec<u8>,
    at: usize,
    left: u64,
    failure: &'static [u8],
    failure_at: u64,
    /// The line of the failure's message.
    failure_line: u64,
}

impl Training {
    fn new(size: u64) -> Self {
        let mut steps = String::new();
        for step in 0..20_000u32 {
            steps.push_str(&format!(
                "{{'loss': {:.4}, 'grad_norm': {:.5}, 'learning_rate': 2.{step}e-05, 'epoch': {:.2}}}\n",
                f64::from(step % 1000) / 331.0,
                f64::from(step % 777) / 97.0,
                f64::from(step) / 1e4
            ));
            if step % 3 == 0 {
                steps.push_str(&format!(
                    " {}%|███████▏  | {step}/90000 [00:{:02}<00:12,  2.1it/s]\r",
                    step % 100,
                    step % 60
                ));
            }
            if step % 7 == 0 {
                steps.push_str(&format!(
                    "[INFO] [trainer.py:{}] step={step} saved a checkpoint to /data/out-{step}\n",
                    step % 900
                ));
            }
        }
        // A whole number of blocks, so that the failure is between lines.
        let blocks = (size / steps.len() as u64).max(2);
        let length = steps.len() as u64;
        let lines = steps.bytes().filter(|byte| *byte == b'\n').count() as u64;
        Self {
            steps: steps.into_bytes(),
            at: 0,
            left: blocks * length,
            failure: FAILURE.as_bytes(),
            failure_at: blocks / 2 * length,
            failure_line: (blocks - blocks / 2) * lines + 4,
        }
    }
}

impl Read for Training {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == self.failure_at && !self.failure.is_empty() {
            let length = self.failure.len().min(buffer.len());
            buffer[..length].copy_from_slice(&self.failure[..length]);
            self.failure = &self.failure[length..];
            return Ok(length);
        }
        let until = if self.left > self.failure_at { self.left - self.failure_at } else { self.left };
        let length = (self.steps.len() - self.at).min(buffer.len()).min(until as usize);
        buffer[..length].copy_from_slice(&self.steps[self.at..self.at + length]);
        self.at = (self.at + length) % self.steps.len();
        self.left -= length as u64;
        Ok(length)
    }
}

/// The processor time of this thread: the machine may be shared. None where the system does not say.
fn own_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// The most memory that this process has held, in bytes. None where the system does not say.
fn most_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib << 10)
}

#[test]
fn two_gigabytes_in_four_seconds_and_a_hundred_megabytes() {
    let size: u64 = if cfg!(debug_assertions) { 16 << 20 } else { 2 << 30 };
    let training = Training::new(size);
    let line = training.failure_line;
    let (wall, before) = (Instant::now(), own_time());
    let report = log::explain(training, &Options::default()).unwrap();
    let took = match (before, own_time()) {
        (Some(before), Some(after)) => after - before,
        _ => wall.elapsed(),
    };
    println!("{} bytes, {} lines in {took:?}, at most {:?} bytes held", report.bytes, report.lines, most_memory());
    assert_eq!(report.failures.len(), 1);
    assert_eq!(report.failures[0].facts.requested_bytes, Some(1_245_540_515));
    assert_eq!(report.failures[0].line, line);
    if !cfg!(debug_assertions) {
        assert!(took < Duration::from_secs(4), "{took:?}");
        assert!(most_memory().is_none_or(|bytes| bytes < 100 << 20));
    }
}
