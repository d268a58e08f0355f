//! Starts the real `oomph` on real programs (`acceptance/programs`) and compares its report with what the programs
//! themselves print.
//!
//! Each row of the table in `programs.rs` is a test, and so is each function of `scenarios.rs`. The usual arguments
//! work: `cargo test -p acceptance -- flux` runs the rows with that in their name. Without a name only the short tier runs
//! (`tiers.rs`).

#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod again;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod agents;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod allocator;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod answers;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod attaching;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod binary;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod by_hand;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod calibrating;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod calls;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod check;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod composed;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod device_log;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod distributed;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod docs;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod doubt;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod explanations;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod fix;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod frameworks;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod guarded;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod harm;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod leaks;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod library;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod needs;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod numba;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod owners;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod patches;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod plan;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod programs;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod review;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod run;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod rust_frameworks;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod scenarios;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod serving;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod sweeping;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod tiers;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod tune;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod watching;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod what_if;

use libtest_mimic::{Arguments, Trial};

/// How many of the slowest tests are listed after a run.
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
const SLOWEST: usize = 30;

fn main() {
    let mut arguments = Arguments::from_args();
    // The programs are large and the machine may be small: two at a time, and a heavy one alone (`run::Turn`).
    arguments.test_threads = Some(arguments.test_threads.unwrap_or(2).min(2));
    #[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
    let trials = || if arguments.filter.is_some() { trials() } else { tiers::of_this_run(trials()) };
    let conclusion = libtest_mimic::run(&arguments, trials());
    #[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
    for line in again::slowest(SLOWEST) {
        eprintln!("{line}");
    }
    conclusion.exit();
}

#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
fn trials() -> Vec<Trial> {
    run::heed_ctrl_c();
    let mut trials = scenarios::trials();
    trials.extend(harm::trials());
    trials.extend(programs::trials());
    trials.extend(allocator::trials());
    trials.extend(explanations::trials());
    trials.extend(tune::trials());
    trials.extend(fix::trials());
    trials.extend(by_hand::trials());
    trials.extend(calls::trials());
    trials.extend(what_if::trials());
    trials.extend(doubt::trials());
    trials.extend(needs::trials());
    trials.extend(composed::trials());
    trials.extend(owners::trials());
    trials.extend(frameworks::trials());
    trials.extend(numba::trials());
    trials.extend(device_log::trials());
    trials.extend(distributed::trials());
    trials.extend(plan::trials());
    trials.extend(serving::trials());
    trials.extend(answers::trials());
    trials.extend(patches::trials());
    trials.extend(leaks::trials());
    trials.extend(guarded::trials());
    trials.extend(watching::trials());
    trials.extend(calibrating::trials());
    trials.extend(library::trials());
    trials.extend(attaching::trials());
    trials.extend(sweeping::trials());
    trials.extend(agents::trials());
    trials.extend(review::trials());
    trials.extend(docs::trials());
    trials
}

/// The virtual GPU replaces the libraries of the Linux wheels of PyTorch, so there is nothing to run elsewhere.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")))]
fn trials() -> Vec<Trial> {
    eprintln!("acceptance: skipped, because programs run on the virtual GPU only on Linux x86-64 with glibc");
    Vec::new()
}
