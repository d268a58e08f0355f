//! Starts a program on the virtual GPU, supervises it, and leaves nothing behind.
//!
//! A run goes through these steps, each a module of its own:
//!
//! 1. [`prepare`] finds the program, makes its Python environment when packages were asked for
//!    ([`environment`]), and looks at what it will run with ([`inspect`]).
//! 2. [`RuntimeFiles::unpack`] puts the virtual GPU and the Python hook where a program can load them.
//! 3. [`RunFolder::create`] makes the folder in which the processes of the run meet.
//! 4. [`Launch::run`] starts the program, passes signals on, and ends every process that it left.
//!
//! What is printed or stored holds no secret of the command line:
//!
//! ```
//! let shown = oomph_launch::masked_text("pip install --index-url https://me:secret@example.org/simple torch");
//! assert!(!shown.contains("secret"));
//! assert!(shown.contains("example.org/simple"));
//! ```
//!
//! # Design constraints
//!
//! - The program is the user's: its standard streams, its terminal, its signals and its exit status are its
//!   own. It therefore stays in our process group and our session.
//! - Whatever ends a run (its end, Ctrl-C, a timeout, an error), no process and no folder of it remains. After a
//!   SIGKILL to this process a watchdog sees to that, and what escapes even that (a machine that went down) the next
//!   run sweeps.
//! - No unsafe code: what must happen between `fork` and `exec` is not done at all.

#![forbid(unsafe_code)]
// Elsewhere a run is refused before most of this is reached.
#![cfg_attr(not(target_os = "linux"), allow(dead_code))]

mod cache;
mod cached;
mod cleanup;
mod companion;
mod crash;
mod elf;
pub mod environment;
mod error;
mod group;
mod home;
mod hook;
mod host;
pub mod inspect;
mod installer;
#[cfg(target_os = "linux")]
mod interrupts;
mod lease;
mod newer_cudnn;
mod nvidia_smi;
mod own_time;
mod permissions;
#[cfg(target_os = "linux")]
mod places;
mod prepare;
mod private;
#[cfg(target_os = "linux")]
mod processes;
mod program;
mod records;
mod run_folder;
mod running;
mod runtime_files;
mod secrets;
mod server;
mod supervise;
mod toolkit;
mod unique_names;
mod version_stub;
#[cfg(target_os = "linux")]
mod watchdog;

pub use cache::CacheDir;
pub use cached::{Cached, CachedKind, Hold};
pub use companion::Companion;
pub use environment::Environment;
pub use error::LaunchError;
pub use group::{Ending, end_group, end_with_parent};
pub use hook::{HookHistory, HookReports};
pub use host::{available_host_memory_bytes, host_memory_bytes};
pub use inspect::{Problem, PythonFacts, TorchFacts};
pub use installer::{InstallerOutput, installer_of};
pub use newer_cudnn::nearest_cudnn;
pub use nvidia_smi::asked as asked_as_nvidia_smi;
pub use oomph_private::{Written, WrittenFile};
pub use oomph_protocol::device as activity;
pub use oomph_protocol::hook::*;
pub use oomph_protocol::{LimitScales, LoopKind, Moment, Phase, RemedyState, Stopped};
pub use own_time::{Limits, OwnLimit};
pub use prepare::{Prepared, Request, prepare};
pub use private::WriteFloor;
pub use program::{ProgramKind, find_program};
pub use run_folder::RunFolder;
pub use running::{Running, running};
pub use runtime_files::{Runtime, RuntimeFiles};
pub use secrets::{masked, masked_text};
pub use server::{ForkServer, Forked, ForkedRun, PythonProgram};
pub use supervise::{Exit, Launch, Outcome, Output, Place, Waits, handle_signals, serve_watchdog};
pub use toolkit::{Brought, Wheel, brought_by, missing as missing_libraries, wheels};
