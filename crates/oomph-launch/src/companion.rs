//! Starts a process of oomph's own next to a running program. It is not part of the program's run, whose clean-up
//! leaves it alone.

use std::io::{self, Read};
use std::process::{Child, Command};

#[cfg(target_os = "linux")]
use crate::processes::{self, Helper};

/// A process next to a run. Dropped, it is asked to end, and waited for.
#[derive(Debug)]
pub struct Companion {
    child: Child,
    #[cfg(target_os = "linux")]
    _helper: Helper,
}

impl Companion {
    /// Starts it. What it writes on a piped standard output should be short: it is read at its end.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        {
            let (child, helper) = processes::spawn_helper(command)?;
            Ok(Self { child, _helper: helper })
        }
        // No run has a clean-up there.
        #[cfg(not(target_os = "linux"))]
        Ok(Self { child: command.spawn()? })
    }

    /// Whether it has ended.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// What it wrote.
    ///
    /// # Errors
    /// When that is not UTF-8, or cannot be read.
    pub fn output(&mut self) -> io::Result<String> {
        let mut text = String::new();
        if let Some(output) = &mut self.child.stdout {
            output.read_to_string(&mut text)?;
        }
        Ok(text)
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            #[cfg(target_os = "linux")]
            processes::send(i32::try_from(self.child.id()).unwrap_or(0), rustix::process::Signal::TERM.as_raw());
            #[cfg(not(target_os = "linux"))]
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
