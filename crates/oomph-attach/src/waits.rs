//! Describes in words what a thread of another process waits for.

use std::fs;

use nix::libc::{
    SYS_clock_nanosleep, SYS_epoll_pwait, SYS_epoll_pwait2, SYS_futex, SYS_ioctl, SYS_nanosleep, SYS_ppoll,
    SYS_pselect6, SYS_wait4, SYS_waitid, c_long,
};

use crate::process::{self, Status};

/// System calls that wait for a time or for input, and exist on some processors only.
#[cfg(target_arch = "x86_64")]
const OLDER: [c_long; 3] = [nix::libc::SYS_poll, nix::libc::SYS_select, nix::libc::SYS_epoll_wait];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: [c_long; 0] = [];

/// What the main thread of a process is doing, one clause: a pending call has to wait for it.
pub(crate) fn describe(pid: u32) -> String {
    let status = Status::read(&process::folder(pid)).unwrap_or_default();
    if matches!(status.state(), 'T' | 't') {
        return "it is stopped".to_owned();
    }
    let Some(call) = waits_in(pid, pid) else { return "its main thread computes outside of Python".to_owned() };
    let is_any = |calls: &[c_long]| calls.iter().any(|known| known.cast_unsigned() == call);
    if is_any(&[SYS_futex]) {
        "its main thread waits for a lock or another thread".to_owned()
    } else if is_any(&[SYS_nanosleep, SYS_clock_nanosleep]) {
        "its main thread sleeps".to_owned()
    // Up to CPython 3.10 `time.sleep` is `select`.
    } else if is_any(&[SYS_pselect6, SYS_ppoll, SYS_epoll_pwait, SYS_epoll_pwait2]) || is_any(&OLDER) {
        "its main thread sleeps or waits for input".to_owned()
    } else if is_any(&[SYS_wait4, SYS_waitid]) {
        "its main thread waits for another process".to_owned()
    } else if is_any(&[SYS_ioctl]) {
        "its main thread waits for a device".to_owned()
    } else {
        format!("its main thread is in system call {call}")
    }
}

/// Whether the main thread waits for a lock or for another thread.
pub(crate) fn waits_for_lock(pid: u32) -> bool {
    waits_in(pid, pid) == Some(SYS_futex.cast_unsigned())
}

/// The number of the system call that a thread waits in.
pub(crate) fn waits_in(pid: u32, thread: u32) -> Option<u64> {
    let path = process::folder(pid).join("task").join(thread.to_string()).join("syscall");
    fs::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok()
}
