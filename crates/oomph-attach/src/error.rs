//! Errors, with advice.

use thiserror::Error;

use crate::permission::Denied;

/// Why a process was not attached to.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The process has ended, or never was.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// A thread's number was given, not a process's.
    #[error("{0} is a thread of process {1}, not a process")]
    Thread(u32, u32),
    /// The process is not Python, or one that has not started yet.
    #[error("process {0} ({1}) is not running Python")]
    NotPython(u32, String),
    /// The process is this one.
    #[error("process {0} is oomph itself")]
    Own(u32),
    /// The kernel does not allow it.
    #[error("the kernel does not allow attaching to process {pid}: {denied}")]
    Denied {
        /// The process.
        pid: u32,
        /// The reason.
        denied: Denied,
    },
    /// No way in fits the process, for a reason other than permission.
    #[error("cannot attach to process {pid}: {reason}")]
    NoWay {
        /// The process.
        pid: u32,
        /// The reason, one clause.
        reason: String,
    },
    /// Another attacher is at work.
    #[error("another oomph attach is at work on process {0}")]
    Busy(u32),
    /// The script was sent, and the program did not get to it in time.
    #[error("process {pid} did not run the script within {seconds} s: {reason}")]
    TimedOut {
        /// The process.
        pid: u32,
        /// The limit.
        seconds: u64,
        /// What the process is busy with, one clause.
        reason: String,
    },
    /// A file or the target's memory could not be read or written.
    #[error("cannot {what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's error.
        error: std::io::Error,
    },
}

impl AttachError {
    /// An error of the system, with what was tried.
    pub(crate) fn io(what: impl Into<String>, error: impl Into<std::io::Error>) -> Self {
        Self::Io { what: what.into(), error: error.into() }
    }

    /// What to do about it, one line.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoProcess(_) => Some("`ps -e` lists the processes; in a container, those of the container".into()),
            Self::Thread(_, process) => Some(format!("give the process: oomph attach {process}")),
            Self::NotPython(..) => Some("give the process that runs the training script, not its launcher".into()),
            Self::Denied { denied, .. } => Some(denied.hint()),
            Self::Busy(_) => Some("wait until it ends, and try again".into()),
            Self::TimedOut { .. } => Some("give it more time with --timeout; the script will not run later".into()),
            Self::Own(_) | Self::NoWay { .. } | Self::Io { .. } => None,
        }
    }
}
