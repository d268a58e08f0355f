//! What one optimizer step computes and moves, in the hook's report.

use serde::{Deserialize, Serialize};

/// What one optimizer step computes and moves, as the virtual GPU counted it: of those that were seen, the one in the middle by
/// what it computes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Counted {
    /// How many steps were seen, without the first.
    pub steps: u64,
    /// How many samples its loaders gave to one of them; 0 where it trains on no loader.
    pub samples: u64,
    /// Products, convolutions and attention: the numbers they are computed with, operations and bytes of one, and how many.
    pub products: Vec<(String, u64, u64, u64)>,
    /// Other kernels in groups of like size: how many, and their bytes together.
    pub kernels: Vec<(u64, u64)>,
    /// Copies: how many, and their bytes together.
    pub copies: Copies,
    /// What the host's optimizers read and write, in bytes.
    pub host_bytes: u64,
}

/// Copies of one step by direction: how many, and their bytes together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Copies {
    /// From the host to a card.
    pub to_card: (u64, u64),
    /// From a card to the host.
    pub to_host: (u64, u64),
    /// From card to card, or within one.
    pub on_card: (u64, u64),
}

impl Counted {
    /// Additions and multiplications of a step's products.
    pub fn operations(&self) -> u64 {
        self.products.iter().map(|(_, operations, _, times)| operations.saturating_mul(*times)).sum()
    }
}
