//! Lists the ways into a process, the best first, and whether each is open.

use std::fmt;
use std::fs::File;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

use crate::errand::Errand;
use crate::error::AttachError;
use crate::permission::{self, Denied};
use crate::target::Target;
use crate::{door, inject, process, remote_debug, waits};

/// How often the main thread's wait is interrupted, so that it looks for the call.
const WAKE: Duration = Duration::from_millis(250);

/// A way into a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rung {
    /// The socket that oomph's hook opened.
    Door,
    /// CPython's remote debugging.
    RemoteDebug,
    /// A pending call, through `ptrace`.
    Inject,
}

impl Rung {
    /// All of them, the best first.
    pub const ALL: [Self; 3] = [Self::Door, Self::RemoteDebug, Self::Inject];

    /// The name in documents.
    pub fn id(self) -> &'static str {
        match self {
            Self::Door => "door",
            Self::RemoteDebug => "remote-debug",
            Self::Inject => "ptrace",
        }
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Door => "the hook's socket",
            Self::RemoteDebug => "CPython's remote debugging (PEP 768)",
            Self::Inject => "a pending call through ptrace",
        })
    }
}

/// What one way says.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The method.
    pub rung: Rung,
    /// The reason why it is closed, one clause.
    pub closed: Option<String>,
    /// What would open it, one line.
    pub hint: Option<String>,
}

/// What all ways say.
#[derive(Clone, Debug)]
pub struct Ladder {
    /// The ways, the best first.
    pub checked: Vec<Checked>,
    /// Why the kernel does not allow tracing.
    pub denied: Option<Denied>,
}

impl Ladder {
    /// Asks all ways; nothing in the target changes.
    pub fn of(target: &Target) -> Self {
        let denied = permission::check(target.pid).err();
        let check = |rung: Rung| {
            let verdict = match (rung, &denied) {
                (Rung::Door, _) => door::check(target),
                (_, Some(denied)) => Err(denied.to_string()),
                (Rung::RemoteDebug, None) => remote_debug::check(target),
                (Rung::Inject, None) => inject::check(target),
            };
            let hint = denied.as_ref().filter(|_| rung != Rung::Door && verdict.is_err()).map(Denied::hint);
            Checked { rung, closed: verdict.err(), hint }
        };
        Self { checked: Rung::ALL.map(check).into(), denied }
    }

    /// The best way that is open.
    pub fn best(&self) -> Option<Rung> {
        self.checked.iter().find(|checked| checked.closed.is_none()).map(|checked| checked.rung)
    }

    fn is_open(&self, rung: Rung) -> bool {
        self.checked.iter().any(|checked| checked.rung == rung && checked.closed.is_none())
    }

    /// Why no way is open.
    pub fn refusal(&self, target: &Target) -> AttachError {
        if let Some(denied) = &self.denied {
            return AttachError::Denied { pid: target.pid, denied: denied.clone() };
        }
        // The method for its version of Python is the one that should have worked.
        let own = if target.python.is_some_and(|python| python.minor >= 14) { Rung::RemoteDebug } else { Rung::Inject };
        let reason = self.checked.iter().find(|checked| checked.rung == own).and_then(|checked| checked.closed.clone());
        AttachError::NoWay { pid: target.pid, reason: reason.unwrap_or_else(|| "no way in is open".to_owned()) }
    }

    /// Sends an errand by the best way, and waits until the target has begun with it.
    ///
    /// # Errors
    /// When no way is open, or the target does not begin in time; then it never will.
    pub fn send(&self, target: &Target, errand: &Errand, limit: Duration) -> Result<Rung, AttachError> {
        let rung = self.best().ok_or_else(|| self.refusal(target))?;
        let end = Instant::now() + limit;
        let _lock = lock(target.pid, end)?;
        let script = errand.script();
        let sent = match rung {
            Rung::Door => door::send(target, &script, end),
            Rung::RemoteDebug => remote_debug::send(target, &script),
            Rung::Inject => inject::send(target, &script, end),
        };
        // What a process that has just ended refuses has no other reason.
        let alive = |error| if process::is_alive(target.pid) { error } else { AttachError::NoProcess(target.pid) };
        sent.map_err(alive)?;
        let mut used = rung;
        loop {
            if errand.wait_taken(end.min(Instant::now() + WAKE)) {
                if used != rung {
                    remote_debug::cancel(target);
                }
                return Ok(used);
            }
            if Instant::now() >= end || !process::is_alive(target.pid) {
                break;
            }
            if used == Rung::RemoteDebug && waits::waits_for_lock(target.pid) && self.is_open(Rung::Inject) {
                // CPython looks for a script between two instructions, and for pending calls also while it waits for a
                // lock.
                if inject::send(target, &script, end).is_ok() {
                    used = Rung::Inject;
                }
            } else if used == Rung::Inject {
                inject::wake(target.pid);
            }
        }
        if rung == Rung::RemoteDebug {
            remote_debug::cancel(target);
        }
        if !errand.cancel() {
            return Ok(used);
        }
        if !process::is_alive(target.pid) {
            return Err(AttachError::NoProcess(target.pid));
        }
        let reason = waits::describe(target.pid);
        Err(AttachError::TimedOut { pid: target.pid, seconds: limit.as_secs(), reason })
    }
}

/// Keeps other attachers away from a process.
fn lock(pid: u32, end: Instant) -> Result<Option<Flock<File>>, AttachError> {
    let Ok(mut folder) = File::open(process::folder(pid)) else { return Err(AttachError::NoProcess(pid)) };
    loop {
        match Flock::lock(folder, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(Some(lock)),
            Err((back, nix::errno::Errno::EAGAIN)) => folder = back,
            // A kernel that has no locks on these folders has them on none.
            Err(_) => return Ok(None),
        }
        if Instant::now() >= end {
            return Err(AttachError::Busy(pid));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
