//! Computes the bytes of a workload per owner, without running anything.
//!
//! - [`Workload`] says what is done with a model.
//! - [`tape`] executes it on sizes: PyTorch's autograd, its allocator and the code of `transformers`, on tensors that
//!   have a size and nothing else.
//!
//! All sizes are bytes; GiB is 2^30 bytes. Nothing here reads a file or panics on a workload.
//!
//! What training GPT-2 takes on an RTX 3060, before there is a program:
//!
//! ```
//! use oomph_gpu::Catalogue;
//! use oomph_model::{Architecture, Library};
//! use oomph_plan::{CardCost, Subject, Task, Workload, estimate};
//!
//! let model = Library::builtin().model("gpt2").unwrap();
//! let Some(Architecture::Transformer(shape)) = &model.components[0].architecture else { panic!("GPT-2 is a transformer") };
//! let subject = Subject::Transformer { shape: shape.clone(), stored: None };
//! let card = Catalogue::builtin().find("rtx-3060").unwrap();
//!
//! let small = Workload { task: Task::Full, batch: 1, length: 512, ..Workload::default() };
//! let large = Workload { batch: 8, ..small.clone() };
//! let needs = |workload| estimate(&subject, workload, CardCost::of(card)).total.expected;
//! assert!(needs(&small) < needs(&large));
//! ```
#![forbid(unsafe_code)]

mod answer;
pub mod calibration;
mod estimate;
pub mod guide;
mod interval;
mod known;
mod limits;
mod nearby;
mod network;
pub mod pipeline;
mod remedies;
pub mod run;
mod serve;
mod split;
pub mod tape;
mod workload;

pub use answer::{CardCost, Estimate, Term};
pub use estimate::{Subject, estimate};
pub use interval::{Interval, Quantiles, quantiles};
pub use limits::Limits;
pub use nearby::Nearby;
pub use remedies::Change;
pub use serve::{Stored, serves};
pub use split::{Share, Split, split};
pub use tape::{TapeOwner, TapePhase};
pub use workload::{
    Attention, Image, Lora, Objective, Offloading, Optimizer, Parallel, Precision, Targets, Task, Workload,
};
