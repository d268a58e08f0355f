//! How the pools of JAX and TensorFlow take memory.

use serde::{Deserialize, Serialize};

/// How a framework's pool takes a card's memory, where it can take most of it at its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Pools {
    /// As the program needs it, unless the user has decided: that shows what it needs.
    #[default]
    AsNeeded,
    /// As the program needs it, whatever the user has decided: on a card without a limit, "most of it" has no end.
    AlwaysAsNeeded,
    /// As the framework does on its own and the user has decided. Nothing lies between the parts of a pool that was taken
    /// whole, so that it may hold what one that grows in parts does not.
    AsOnACard,
}

impl Pools {
    pub(super) fn are_as_needed(&self) -> bool {
        *self == Self::AsNeeded
    }
}
