//! The types of an estimate: what one card needs, and what a card costs.

use oomph_gpu::Gpu;
use serde::Serialize;

use crate::interval::Interval;
use crate::tape::{CardTraits, Owners, TapeOwner, TapePhase};

/// What one card needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// Bytes by owner at the peak; they add up to the expected total.
    pub owners: Owners,
    /// The peak of the process on the card, the context included.
    pub total: Interval,
    /// When the peak is.
    pub phase: TapePhase,
    /// Parameters of the model.
    pub parameters: u64,
    /// Parameters that are trained.
    pub trained: u64,
    /// Bytes that offloading puts into host memory.
    pub host_bytes: u64,
    /// The sum, term by term.
    pub terms: Vec<Term>,
}

/// One term of the sum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Term {
    /// Whose bytes they are.
    pub owner: TapeOwner,
    /// How they come about, with the numbers in it.
    pub formula: String,
    /// Where that is from.
    pub source: &'static str,
    /// Bytes.
    pub bytes: u64,
}

/// What a card costs before anything is allocated, in bytes: low, expected, high.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardCost {
    /// What of the card decides which kernels run.
    pub traits: CardTraits,
    /// The context.
    pub context: [u64; 3],
    /// What CUDA reports as the card's total, where a card is meant; some programs take more of a larger one.
    pub capacity: Option<u64>,
}

/// What handles of cuBLAS and cuDNN take in addition to the context on cards of compute capability 9, in bytes: for one thread that
/// multiplies, for the two of a training loop, and with cuDNN in both. The virtual GPU charges them one by one
/// (`holdings` of oomph-vgpu); on other cards the context's readings have them.
const HOPPERS_HANDLES: [u64; 3] = [64 << 20, 128 << 20, 144 << 20];

impl CardCost {
    /// Of a card of the catalogue.
    #[must_use]
    pub fn of(gpu: &Gpu) -> Self {
        let capability = gpu.compute_capability();
        let context = &gpu.context;
        let handles = if capability.major == 9 { HOPPERS_HANDLES } else { [0; 3] };
        let [low, expected, high] = handles;
        Self {
            traits: CardTraits { capability: capability.major * 10 + capability.minor },
            context: [context.low_bytes + low, context.expected_bytes + expected, context.high_bytes + high],
            capacity: Some(gpu.capacity_bytes),
        }
    }
}
