//! Starts a command of oomph from another process of oomph, so that the two end together.

/// How a command is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It is asked to: it ends its program, and removes what it made.
    Asked,
    /// It and all processes of its group are killed. Its watchdog removes what it made.
    Killed,
}

/// Ends a command that leads a process group of its own. One that has ended is left alone.
#[cfg(target_os = "linux")]
pub fn end_group(leader: u32, ending: Ending) {
    use rustix::process::{Pid, Signal, kill_process, kill_process_group};
    let Some(leader) = i32::try_from(leader).ok().and_then(Pid::from_raw) else { return };
    // That it is gone already is what was wanted.
    let _ = match ending {
        Ending::Asked => kill_process(leader, Signal::TERM),
        Ending::Killed => kill_process_group(leader, Signal::KILL),
    };
}

/// Has this process ended as by SIGTERM when the process that started it ends, however that ends.
#[cfg(target_os = "linux")]
pub fn end_with_parent() {
    use rustix::process::{Signal, getpid, getppid, kill_process, set_parent_process_death_signal};
    if set_parent_process_death_signal(Some(Signal::TERM)).is_ok() && getppid().is_none_or(|parent| parent.is_init()) {
        // The parent ended before it was asked for.
        let _ = kill_process(getpid(), Signal::TERM);
    }
}

/// Elsewhere the caller has what its standard library has.
#[cfg(not(target_os = "linux"))]
pub fn end_group(_leader: u32, _ending: Ending) {}

/// Elsewhere nothing ends with its parent.
#[cfg(not(target_os = "linux"))]
pub fn end_with_parent() {}
