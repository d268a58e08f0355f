//! A test that fails is run once more, and what happened is told either way.
//!
//! Each test starts whole programs with PyTorch, hundreds in a run of all tests. One in some thousands of those starts
//! ends in a way that nobody could bring about again. Such a failure is not hidden: a test that passes the second time
//! is counted and its first story printed as `flaky:` (`.ci/run` repeats both at its end). What fails always fails.

use libtest_mimic::{Failed, Trial};

/// A test that gets a second try.
pub fn tried(name: impl Into<String>, test: impl Fn() -> Result<(), Failed> + Send + 'static) -> Trial {
    let name = name.into();
    let told = name.clone();
    Trial::test(name, move || {
        let Err(first) = test() else { return Ok(()) };
        let story = first.message().unwrap_or("no reason was given").to_owned();
        match test() {
            Ok(()) => {
                eprintln!("flaky: {told} failed, and passed when it was run again. It had failed so:\n{story}");
                eprintln!("end of flaky {told}");
                Ok(())
            }
            Err(second) => Err(second),
        }
    })
}
