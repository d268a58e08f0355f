//! Replays a memory trace through the models of PyTorch's, CUDA's and TensorFlow's allocators.
//!
//! - [`Native`] is PyTorch's caching allocator itself: [`malloc`](Native::malloc), [`free`](Native::free), the events and
//!   counters that PyTorch would produce. [`Settings`] is what `PYTORCH_CUDA_ALLOC_CONF` says.
//! - [`Bfc`] is the allocator of TensorFlow and JAX, set up by [`BfcSettings`].
//! - [`start_state`] rebuilds what was allocated before a trace's first event.
//! - [`Script`] is a trace made ready for "what if": [`Script::replay`] runs it through any [`Model`] on any
//!   [`Capacity`], and [`Script::smallest_card`] finds the least memory on which it survives.
//! - [`Script::spread`] says how far it may come out otherwise on another machine.
//! - [`verify`] says whether the model and the trace agree on every address, segment and block.
//!
//! All sizes are bytes. Nothing here starts a thread, reads a file or panics on a trace, whatever it holds.
//!
//! PyTorch's allocator on a card of 1 GiB, asked for a tensor of 600 MiB twice:
//!
//! ```
//! use oomph_allocator::{Card, Native, Settings, Version};
//! use oomph_trace::PoolId;
//!
//! const MIB: u64 = 1 << 20;
//! let card = Card::new(1024 * MIB);
//! let mut allocator = Native::new(Settings::default(), Version::default(), 1024 * MIB, card);
//!
//! let first = allocator.malloc(600 * MIB, 0, PoolId::default()).unwrap();
//! assert_eq!(allocator.size(first), Some(600 * MIB));
//! assert!(allocator.malloc(600 * MIB, 0, PoolId::default()).is_err());
//! ```
#![forbid(unsafe_code)]

mod addresses;
mod asynchronous;
mod bfc;
mod card;
mod driver;
mod machine;
mod model;
mod native;
mod pools;
mod reconstruct;
mod repeat;
mod replay;
mod script;
mod settings;
mod size;
mod spread;
mod statistics;
mod verify;
mod version;

pub use bfc::{Bfc, BfcSettings};
pub use card::SmallestCard;
pub use driver::{Card, Driver};
pub use machine::Capacity;
pub use model::Model;
pub use native::{BlockId, BlockState, Emitted, Native, Oom, PoolOptions, SegmentState, State};
pub use pools::EventPools;
pub use reconstruct::start_state;
pub use repeat::Repeated;
pub use replay::{Failure, Replay, Start};
pub use script::Script;
pub use settings::{Backend, INTERVALS, Reserve, Settings, SettingsError};
pub use spread::{REPLAYS, Spread, Unlike};
pub use statistics::{AtPeak, Gauge, Statistics};
pub use verify::{Disagreement, Mismatch, Tally, Verification, verify};
pub use version::{BlockOrder, Version, VersionError};
