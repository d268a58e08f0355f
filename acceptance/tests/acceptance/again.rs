//! Runs a failed test once more, and shows in the totals what happened either way.
//!
//! Each test starts whole programs with PyTorch, hundreds in a run of all tests. One in some thousands of those starts
//! ends in a way that nobody could bring about again. Such a failure is not hidden: a test that passes the second time
//! is counted and its first story printed as `flaky:` (`.ci/run` repeats both at its end). What fails always fails.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};

/// How long each test has taken, in the order in which they ended.
static TAKEN: Mutex<Vec<(String, Duration)>> = Mutex::new(Vec::new());

/// A line for each of the slowest tests, so that what a run of all tests spends its time on can be read from its output.
/// `cargo xtask test` repeats the first of them in its totals.
pub fn slowest(count: usize) -> Vec<String> {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    taken.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    taken.iter().take(count).map(|(name, time)| format!("timed: {:.1} s  {name}", time.as_secs_f64())).collect()
}

/// A test that gets a second try.
pub fn tried(name: impl Into<String>, test: impl Fn() -> Result<(), Failed> + Send + 'static) -> Trial {
    let name = name.into();
    let copy = name.clone();
    Trial::test(name, move || {
        let start = Instant::now();
        let result = twice(&copy, &test);
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner).push((copy, start.elapsed()));
        result
    })
}

/// The result of the test, or of its second run where the first one fails.
fn twice(name: &str, test: impl Fn() -> Result<(), Failed>) -> Result<(), Failed> {
    let Err(first) = test() else { return Ok(()) };
    let story = first.message().unwrap_or("no reason was given").to_owned();
    match test() {
        Ok(()) => {
            eprintln!("flaky: {name} failed, and passed when it was run again. It had failed so:\n{story}");
            eprintln!("end of flaky {name}");
            Ok(())
        }
        Err(second) => Err(second),
    }
}
