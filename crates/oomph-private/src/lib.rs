//! Gives a process, and everything that it starts, a private and writable view of the file system, or a fence.
//!
//! The process gets mounts of its own (a mount namespace, and a user namespace where it has no right to mount
//! otherwise). Each real file system that can be written is covered by an overlay: reads see what lies there, writes go
//! to a *store* in the run's folders. So nothing outside changes, whichever library, language or child writes.
//!
//! Where the kernel gives no namespaces, a fence (Landlock) makes an error of what would change a file outside.
//!
//! - [`Plan`] says what the view is made of; a launcher writes it to a file, because a child of the fork server makes
//!   its view long after the server was started.
//! - [`enter`] makes the view and moves the calling process into it. It runs in two places: in a process that is about
//!   to become the program, and, through the virtual GPU, in a child of the fork server.
//! - [`Written`] lists what lies in the stores once the processes are gone.
//!
//! A view is described by a plan, which travels in a file to the process that enters it:
//!
//! ```
//! use oomph_private::Plan;
//!
//! let plan = Plan {
//!     base: "/".into(),
//!     open: vec!["/home/me/out".into()],
//!     directory: "/home/me".into(),
//!     ..Plan::default()
//! };
//! assert_eq!(Plan::from_bytes(&plan.to_bytes())?, plan);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Design constraints:
//! - What cannot be made private is left out of the view or is read-only: the worst case is an error, never a change.
//! - Nothing panics and nothing is printed, because part of this runs inside somebody else's process.
//! - Root is not an exception: what it could leave a view by is taken from it, and the kernel's settings are read-only.
//! - Sockets and pipes of others stay reachable: an overlay would cut them off, and talking is not storing.

#[cfg(target_os = "linux")]
mod cover;
#[cfg(target_os = "linux")]
mod fence;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod namespace;
#[cfg(target_os = "linux")]
mod network;
#[cfg(target_os = "linux")]
mod overlay;
#[cfg(target_os = "linux")]
mod own;
#[cfg(target_os = "linux")]
mod plan;
#[cfg(target_os = "linux")]
mod rights;
mod written;

#[cfg(target_os = "linux")]
pub use namespace::enter;
#[cfg(target_os = "linux")]
pub use plan::{FENCE_FILE, Made, PLAN_FILE, Plan, Record};
pub use written::{Written, WrittenFile};

/// Where this crate's sources are, for [the build of the virtual GPU](https://docs.rs/oomph-vgpu).
pub const FOLDER: &str = env!("CARGO_MANIFEST_DIR");
