//! The fork server: a Python that has done a program's imports and forks a child per run.
//!
//! Most of the time of a short run goes into imports, and no real CUDA context exists that a fork would break. So the
//! server (`python/oomph/server`) imports once what every run of the program imports first, and each run is a child of
//! it with a run folder of its own. What a child does is what a process of its own would have done, or the run is
//! refused and the caller starts a process.

use std::path::Path;

use crate::{Launch, LaunchError, Limits, Outcome, Output, RunFolder};

mod command;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as platform;

#[cfg(not(target_os = "linux"))]
mod platform {
    #[derive(Debug)]
    pub(super) enum Server {}

    impl Server {
        pub(super) fn start(
            _launch: super::Launch,
            _program: &super::PythonProgram,
            _packages: &[String],
        ) -> Result<Self, super::LaunchError> {
            Err(super::LaunchError::UnsupportedPlatform)
        }

        pub(super) fn run(&self, _run: &super::ForkedRun<'_>) -> Result<super::Forked, super::LaunchError> {
            match *self {}
        }
    }
}

pub use command::PythonProgram;

/// A run that a fork server is asked for.
#[derive(Debug, Clone, Copy)]
pub struct ForkedRun<'a> {
    /// The program: the same as the server's, with arguments of its own.
    pub program: &'a PythonProgram,
    /// Variables that are set over those of the server.
    pub env: &'a [(String, String)],
    /// The run folder, with its ledger: of the same cards as the server's.
    pub folder: &'a RunFolder,
    /// What a process of its own would be started with; the child's private view is of it.
    pub launch: &'a Launch,
    /// Where the output goes.
    pub output: Output,
    /// How long it may take.
    pub limits: Limits<'a>,
}

/// What came of a run that a fork server was asked for.
#[derive(Debug)]
pub enum Forked {
    /// It ran, as a process of its own would have.
    Ran(Outcome),
    /// A variable of this run is read by libraries while they are imported, which the server has done already.
    NeedsAProcess,
    /// The program sets such a variable itself, so no run of it can be forked.
    NeverForked,
}

/// A Python that forks the runs of one program. It ends when this value is dropped, with all that it has forked.
#[derive(Debug)]
pub struct ForkServer(platform::Server);

impl ForkServer {
    /// Starts the Python of `launch`, a program on the virtual GPU, as a server of its runs, and waits until it has
    /// imported what the text of the program and `packages` name. Its run folder and cards are the server's own.
    ///
    /// # Errors
    /// When it cannot be started, or what was imported cannot be forked; the caller then starts processes.
    pub fn start(launch: Launch, program: &PythonProgram, packages: &[String]) -> Result<Self, LaunchError> {
        platform::Server::start(launch, program, packages).map(Self)
    }

    /// Runs the program in a child, to its end, and ends every process that it left behind. Several threads may do so
    /// at a time.
    ///
    /// # Errors
    /// When the server is gone.
    pub fn run(&self, run: &ForkedRun<'_>) -> Result<Forked, LaunchError> {
        self.0.run(run)
    }
}

/// The file in which a child says that a variable was set too late; `python/oomph/server/environment.py` writes it.
const SET_TOO_LATE: &str = oomph_protocol::paths::SET_TOO_LATE;

/// What a child left there: by whom the variable was set.
fn refusal(folder: &Path) -> Option<Forked> {
    let text = std::fs::read_to_string(folder.join(SET_TOO_LATE)).ok()?;
    Some(if text.starts_with("program") { Forked::NeverForked } else { Forked::NeedsAProcess })
}
