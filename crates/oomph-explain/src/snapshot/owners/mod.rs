//! Whose bytes: one owner for every live block.

mod infer;
mod naming;

pub(super) use infer::{CUBLAS_WORKSPACES, Inference};
pub(super) use naming::Naming;

use super::explanation::Owner;

/// What is known of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Identity {
    pub owner: Owner,
    /// From 0 to 1.
    pub confidence: f64,
    /// Whether the hook named it.
    pub named: bool,
}

impl Identity {
    fn inferred(owner: Owner, confidence: f64) -> Self {
        Self { owner, confidence, named: false }
    }

    /// Nothing is known.
    pub const UNKNOWN: Identity = Identity { owner: Owner::Unattributed, confidence: 0.0, named: false };
}
