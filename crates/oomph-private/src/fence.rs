//! Puts a fence around a process: it may write to some folders and nowhere else.
//!
//! Where the kernel gives no namespaces, Landlock still takes rights from a process, and from everything that it
//! starts. What would have changed a file of the user's is an error then. Reading stays unchanged. Landlock knows no
//! rule for changing modes, times and owners of files, and before Linux 6.2 none for shortening a file by its path.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use landlock::{
    ABI, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus,
};

use rustix::process::geteuid;

use crate::Plan;

/// Everything that Linux 6.10 has a rule for.
const KNOWN: ABI = ABI::V5;

/// Devices and interfaces that programs write to, and that store nothing of the user's. Real cards are not among them.
const TALK: [&str; 9] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/shm",
];

/// What a process says of itself lies here, and what root may set of the machine.
const PROCESSES: &str = "/proc";

/// Takes the right to write from this process, except for what the plan keeps open and the run's own folders. The record
/// of the plan is written first.
///
/// # Errors
/// When the kernel does not know Landlock, or has it turned off. Nothing has changed then.
pub(crate) fn raise(plan: &Plan) -> io::Result<()> {
    let all = AccessFs::from_write(KNOWN);
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(all).map_err(other)?;
    let mut ruleset = ruleset.create().map_err(other)?;
    let processes = (!geteuid().is_root()).then_some(PROCESSES);
    let talk = TALK.into_iter().chain(processes).map(Path::new);
    let ours = plan.open.iter().chain([&plan.disk, &plan.memory]).map(|path| path.as_path());
    for path in talk.chain(ours) {
        // What is not there cannot be written to.
        let Ok(place) = PathFd::new(path) else { continue };
        let is_file = fs::metadata(path).is_ok_and(|found| !found.is_dir());
        let access = if is_file { all & AccessFs::from_file(KNOWN) } else { all };
        ruleset = ruleset.add_rule(PathBeneath::new(place, access)).map_err(other)?;
    }
    File::create(&plan.record)?;
    let status = ruleset.restrict_self().map_err(other)?;
    if status.ruleset == RulesetStatus::NotEnforced {
        fs::remove_file(&plan.record)?;
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(())
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}
