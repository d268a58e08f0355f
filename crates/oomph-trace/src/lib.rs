//! Reads and writes recordings of GPU memory over time, in one columnar model.
//!
//! Everything that records memory (a PyTorch snapshot, the virtual GPU's log, a profiler's trace) is read into a
//! [`Trace`]: events in columns, stacks as a prefix tree of interned frames, and the segments and blocks that were live at
//! the end.  Readers never execute what they read, and never need more memory than a small multiple of the information
//! in a file.
//!
//! Who holds memory in the virtual GPU's device log, in PyTorch's snapshot or in a profiler's trace is asked in the same way:
//!
//! ```no_run
//! use std::path::Path;
//! use oomph_trace::{ReadOptions, read};
//!
//! let trace = read(Path::new("snapshot.pickle"), &ReadOptions::default())?;
//! for device in &trace.devices {
//!     println!("{} events, {} segments live at the end", device.events.len(), device.segments.len());
//! }
//! # Ok::<(), oomph_trace::ReadError>(())
//! ```
#![forbid(unsafe_code)]

mod action;
mod columns;
mod compression;
pub mod device_log;
mod document;
mod error;
mod figure;
mod intern;
mod json;
mod model;
mod open;
mod pairing;
mod pickle;
mod profiler;
mod read;
mod snapshot;
mod sniff;
mod source;
mod timeline;
pub mod write;

pub use action::{Action, PoolId};
pub use columns::{Event, Events};
pub use error::{Cause, ReadError};
pub use intern::{Frame, FrameId, Frames, StackId, Stacks, StringId, Strings};
pub use model::{Annotation, Block, BlockState, Device, DeviceKind, Note, Segment, Settings, SourceKind, Stage, Trace};
pub use open::open;
pub use read::{ReadOptions, read, read_from};
pub use sniff::{is_recording, unpacked};
