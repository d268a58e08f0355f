//! Describes GPUs: the catalogue of cards, their names, and sizes in bytes.
//!
//! - [`Catalogue`] holds the cards that oomph knows, from `data/gpus.toml`, and finds one by whatever people call it.
//! - [`size`] reads and writes sizes as PyTorch users mean them.
//! - [`roofline`] says how much longer one piece of work takes than another on a card.
//! - [`nvml`] lists the cards that are really installed.
//!
//! Which cards hold what a program needs:
//!
//! ```
//! use oomph_gpu::{Catalogue, size};
//!
//! let catalogue = Catalogue::builtin();
//! let card = catalogue.find("NVIDIA GeForce RTX 3060").unwrap();
//! assert_eq!(card.id, "rtx-3060");
//!
//! // What a program takes besides the CUDA context, which differs from card to card.
//! let needed = size::parse("20 GiB").unwrap();
//! assert!(catalogue.smallest_that_hold(needed).all(|card| card.capacity_bytes > needed));
//! ```
//!
//! Design constraints:
//!
//! - A figure is what CUDA reports on Linux, and says where it came from. What nobody has measured says so.
//! - Nothing here needs a GPU, a driver or a network.
//! - No unsafe code.

#![forbid(unsafe_code)]

mod catalogue;
mod gpu;
mod lookup;
mod names;
pub mod nvml;
pub mod roofline;
pub mod size;

pub use catalogue::{Catalogue, CatalogueError};
pub use gpu::{Architecture, ComputeCapability, ContextCost, Gpu, Kind, OperationsPerClock, UnknownComputeCapability};
pub use lookup::UnknownGpu;
pub use size::{Size, SizeError};
