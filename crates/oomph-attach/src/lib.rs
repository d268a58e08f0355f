//! Runs a Python script inside a running process that was not prepared for it.
//!
//! There is a ladder of ways in, and [`Ladder::of`] says of each whether it works and why:
//!
//! | rung | who opens it | needs |
//! |---|---|---|
//! | [`Rung::Door`] | the hook, in a program under `oomph run` or `oomph dry-run` | the same user |
//! | [`Rung::RemoteDebug`] | CPython 3.14 and later | the kernel's permission to trace |
//! | [`Rung::Inject`] | nobody: CPython 3.9 to 3.14 on x86-64 | the kernel's permission to trace |
//!
//! [`Errand`] is what the script is sent in: a folder that the target can read, with an order that is taken once, and
//! an answer that comes back. An order that was given up on, or that outlives whoever sent it, does nothing.
//!
//! How a script could get into a running program:
//!
//! ```no_run
//! use oomph_attach::{Ladder, Target};
//!
//! let target = Target::look(4242)?;
//! match Ladder::of(&target).best() {
//!     Some(rung) => println!("{}", rung.id()),
//!     None => println!("{}", Ladder::of(&target).refusal(&target)),
//! }
//! # Ok::<(), oomph_attach::AttachError>(())
//! ```
//!
//! Design constraints:
//! - The target goes on whatever happens to the attacher. No code of the target is patched, and there is no moment at
//!   which the target needs the attacher to continue (`inject` has the argument).
//! - A refusal names the true reason ([`permission`]) and what to do about it.
//! - Everything has a time limit.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "some readers serve only the routine for x86-64"))]

mod door;
mod elf;
mod errand;
mod error;
#[cfg_attr(not(target_arch = "x86_64"), path = "inject/elsewhere.rs")]
mod inject;
mod ladder;
mod memory;
pub mod permission;
mod process;
mod remote_debug;
mod target;
mod waits;

pub use errand::{Errand, ErrandFile};
pub use error::AttachError;
pub use ladder::{Checked, Ladder, Rung};
pub use process::{environment, siblings};
pub use target::{Python, Target};
