//! The allocators that a trace can be replayed through.

use crate::asynchronous::Asynchronous;
use crate::bfc::{Bfc, BfcSettings};
use crate::driver::Card;
use crate::machine::{Capacity, Machine};
use crate::native::Native;
use crate::settings::{Backend, Settings};
use crate::version::Version;

/// An allocator and its settings.
#[derive(Clone, Debug, PartialEq)]
pub enum Model {
    /// PyTorch's caching allocator.
    Native {
        /// Its settings.
        settings: Settings,
        /// The version of PyTorch whose rules apply.
        version: Version,
    },
    /// `cudaMallocAsync`, PyTorch's `backend:cudaMallocAsync`: modelled, not replayed exactly.
    Async {
        /// The settings; of them only the memory fraction counts.
        settings: Settings,
    },
    /// The best-fit allocator of TensorFlow and JAX (XLA).
    Bfc(BfcSettings),
}

impl Model {
    /// The model that settings ask for, in a version of PyTorch.
    pub fn pytorch(settings: Settings, version: Version) -> Self {
        match settings.backend {
            Backend::Native => Model::Native { settings, version },
            Backend::CudaMallocAsync => Model::Async { settings },
        }
    }
}

/// The allocator that a model names, handed to whoever can work with any of them. `seed` scatters its segments.
pub(crate) fn with_machine<R>(model: &Model, capacity: Capacity, seed: Option<u64>, visit: impl Visitor<R>) -> R {
    let card = seed.map_or(Card::new(capacity.available), |seed| Card::scattered(capacity.available, seed));
    match model {
        Model::Native { settings, version } => {
            visit.visit(Native::new(settings.clone(), *version, capacity.total, card))
        }
        Model::Async { settings } => visit.visit(Asynchronous::new(settings, capacity)),
        Model::Bfc(settings) => visit.visit(Bfc::new(settings.clone(), capacity.available, card)),
    }
}

/// Works with an allocator of any model.
pub(crate) trait Visitor<R> {
    fn visit<M: Machine>(self, machine: M) -> R;
}
