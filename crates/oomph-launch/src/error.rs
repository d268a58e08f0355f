//! The errors before and around a run. Each message is one line: what, where, what next.

use std::io;
use std::path::PathBuf;

/// Why a program could not be prepared, started or watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A process of the run speaks another version of the protocol.
    #[error("{} cannot be read: {mismatch}; remove other installations of oomph from the program's PYTHONPATH", path.display())]
    OtherVersion {
        /// The file that it wrote.
        path: PathBuf,
        /// Its version and ours.
        mismatch: oomph_protocol::Mismatch,
    },
    /// There is no folder in which to keep environments.
    #[error("there is no cache folder: neither OOMPH_CACHE_DIR, XDG_CACHE_HOME nor HOME is set; set OOMPH_CACHE_DIR")]
    NoCacheDir,
    /// The cache folder is there, or should be, and cannot be used.
    #[error("the cache folder {} cannot be used: {source}; set OOMPH_CACHE_DIR to a folder that you can write", path.display())]
    CacheUnusable {
        /// The folder or the file in it.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Everybody can write into a cache folder of somebody else's.
    #[error(
        "the cache folder {} belongs to another user and everybody can write into it, so its code cannot be trusted; set OOMPH_CACHE_DIR to a folder of your own",
        path.display()
    )]
    CacheOpen {
        /// The folder.
        path: PathBuf,
    },
    /// Libraries cannot be loaded from the cache folder.
    #[error(
        "the cache folder {} is on a file system mounted noexec, so the virtual GPU cannot be loaded from it; set OOMPH_CACHE_DIR to another folder",
        path.display()
    )]
    CacheNoExec {
        /// The folder.
        path: PathBuf,
    },
    /// The disk that holds a folder of ours is full.
    #[error("no space is left on the disk that holds {}; free some, or point {setting} to a larger disk", path.display())]
    DiskFull {
        /// The folder that was being written.
        path: PathBuf,
        /// The environment variable that moves it.
        setting: &'static str,
    },
    /// Runs cannot be forked from one process; they can be processes of their own.
    #[error("the fork server cannot be used: {reason}; run each time from the start")]
    ForkServer {
        /// Why.
        reason: String,
    },
    /// Nothing was named to run.
    #[error("no program was named; write it after `--`, for example `-- python train.py`")]
    EmptyCommand,
    /// The program is not on PATH and not in the environment.
    #[error("there is no program `{program}` {searched}; {hint}")]
    ProgramNotFound {
        /// What was typed.
        program: String,
        /// Where it was looked for.
        searched: String,
        /// What to do.
        hint: String,
    },
    /// The program is there and the system will not run it.
    #[error("`{}` cannot be run: {reason}; {hint}", program.display())]
    NotRunnable {
        /// The file.
        program: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// What to do.
        hint: String,
    },
    /// No Python from which an environment could be made.
    #[error("no python3 was found on PATH to make an environment with; install Python 3, or name one in the command")]
    NoBasePython,
    /// The Python that was found does not work.
    #[error("the Python at {} does not work: {reason}; try `{} -V`", python.display(), python.display())]
    BrokenPython {
        /// The interpreter.
        python: PathBuf,
        /// The last line that it wrote, or what the system said.
        reason: String,
    },
    /// A `--with` that is not a requirement.
    #[error("`{requirement}` is not a package requirement: {reason}")]
    BadRequirement {
        /// What was typed.
        requirement: String,
        /// Why it cannot be used.
        reason: &'static str,
    },
    /// Nothing is there that could install packages.
    #[error(
        "packages cannot be installed: there is no uv, and the Python at {} lacks the venv module; install uv (https://docs.astral.sh/uv), or on Debian and Ubuntu the package python3-venv",
        python.display()
    )]
    NoInstaller {
        /// The interpreter that would have been the base.
        python: PathBuf,
    },
    /// uv or pip gave up.
    #[error("{tool} could not install {requirements}: {reason}")]
    InstallFailed {
        /// `uv` or `pip`.
        tool: &'static str,
        /// The requirements, as they were typed.
        requirements: String,
        /// One line: the installer's own last words, or where to find them.
        reason: String,
        /// The last lines of the installer's standard error; empty when a terminal showed them already.
        details: String,
    },
    /// The run folder could not be made or written.
    #[error("the run folder {} cannot be written: {source}; set TMPDIR to a folder that you can write", path.display())]
    RunFolder {
        /// The folder or the file in it.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused something that supervision needs.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried, as a verb phrase.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The network was to be cut off, and the kernel does not do that for this user.
    #[error(
        "the network cannot be cut off: the kernel gives no private view ({reason}); leave out --network none, or run it in a container without a network (docker run --network none)"
    )]
    NetworkNotCut {
        /// Why there is no private view.
        reason: String,
    },
    /// Not Linux.
    #[error("programs can be run on the virtual GPU on Linux only; use WSL2 or a Linux container")]
    UnsupportedPlatform,
}

impl LaunchError {
    /// The last lines of the installer's standard error, to be shown below the message. Empty for every other error.
    pub fn details(&self) -> &str {
        match self {
            Self::InstallFailed { details, .. } => details,
            _ => "",
        }
    }

    /// An error below the cache folder: a full disk is said to be one.
    pub(crate) fn cache(path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        if is_disk_full(&source) {
            Self::DiskFull { path, setting: "OOMPH_CACHE_DIR" }
        } else {
            Self::CacheUnusable { path, source }
        }
    }

    /// An error in the run folder: a full disk is said to be one.
    pub(crate) fn run_folder(path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        if is_disk_full(&source) {
            Self::DiskFull { path, setting: "TMPDIR" }
        } else {
            Self::RunFolder { path, source }
        }
    }
}

/// Whether an error says that there is no room: a full disk and a full quota are the same to the user.
pub(crate) fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
