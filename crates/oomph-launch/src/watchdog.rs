//! Ends a run whose launcher was killed.
//!
//! SIGKILL cannot be handled, and it strikes the launcher alone: the program would run on, with nobody to end it. So
//! each run has a second process, this same executable, that holds one end of a pipe and sleeps. The system closes the
//! other end when the launcher dies, however it dies; then the watchdog ends what is left of the run and removes its
//! folder.
//!
//! The parent-death signal of Linux would be simpler and is not enough: it reaches the program and not its workers, it
//! is sent when a *thread* of the parent ends, and setting it between `fork` and `exec` takes unsafe code.
//!
//! After the launcher's death nothing ties the processes of a run together but what they inherited, so the run is known
//! by a variable in their environment. A process that cleared its environment, and whose parent is gone, gets away.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::unique_names::is_run_folder;
use crate::{cleanup, processes};

/// The argument that makes this executable a watchdog. What it watches over follows: the run's mark and its folders.
const ARGUMENT: &str = "--watch-over-run";

/// The environment variable by which the processes of a run are known.
pub(crate) const MARK_VARIABLE: &str = "OOMPH_RUN_MARK";

/// The executable knows how to be a watchdog.
static AVAILABLE: AtomicBool = AtomicBool::new(false);

/// Becomes the watchdog and never returns, if this process was started as one; otherwise lets runs have one.
pub(crate) fn serve() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().as_deref() != Some(OsStr::new(ARGUMENT)) {
        AVAILABLE.store(true, Ordering::Relaxed);
        return;
    }
    let mark = arguments.next().unwrap_or_default();
    // Nothing is ever written to the pipe: its end is the message.
    let _ = io::stdin().read(&mut [0]);
    if !mark.is_empty() {
        processes::end_marked(&entry(&mark));
    }
    // Whoever types the argument by hand cannot remove anything else with it.
    for folder in arguments.map(PathBuf::from).filter(|folder| is_run_folder(folder)) {
        cleanup::remove_folder(&folder);
    }
    std::process::exit(0);
}

/// The mark's variable as `/proc/PID/environ` has it.
fn entry(mark: &OsStr) -> Vec<u8> {
    [MARK_VARIABLE.as_bytes(), b"=", mark.as_encoded_bytes()].concat()
}

/// A watchdog that lasts as long as this value.
pub(crate) struct Watchdog {
    child: Child,
    /// A run's clean-up leaves it alone.
    _helper: processes::Helper,
}

impl Watchdog {
    /// Starts one over the run of this mark. Without one a run is as good until somebody kills its launcher, so a
    /// failure to start it is not a failure of the run.
    pub(crate) fn over(mark: &OsString) -> Option<Self> {
        if !AVAILABLE.load(Ordering::Relaxed) {
            return None;
        }
        // The path stays true when the file is replaced while we run, as a build or an update does.
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("oomph")
            .arg(ARGUMENT)
            .arg(mark)
            .args(cleanup::registered())
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Away from what a terminal sends to our group, and from somebody who kills the group.
            .process_group(0);
        let (child, helper) = processes::spawn_helper(&mut command).ok()?;
        Some(Self { child, _helper: helper })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
