//! The result type for batches of different sizes, and what the longest of them needs.

use serde::{Deserialize, Serialize};

/// How the batches that a program trains on differ in size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Batches {
    /// The batches that came from the program's own sampler.
    pub seen: BatchRange,
    /// The batch that was made of the longest samples; `null` where none was larger than those that came, or they could not
    /// be found.
    #[serde(default)]
    pub longest: Option<BatchPeak>,
    /// The batches before it.
    #[serde(default)]
    pub usual: Option<BatchPeak>,
}

/// The smallest and the largest batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BatchRange {
    /// Elements of the smallest.
    pub min: u64,
    /// Elements of the largest.
    pub max: u64,
    /// What was counted: `tokens` or `elements`.
    pub unit: String,
}

/// A batch and the framework's peaks up to the end of its step, in bytes; 0 where the step did not end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BatchPeak {
    /// The optimizer step that it was part of, from 1; 0 for the usual batches.
    pub step: u64,
    /// Its elements; 0 for the usual batches.
    pub elements: u64,
    /// The shape of the tensor that was counted, where it was one.
    pub shape: Option<Vec<u64>>,
    /// Allocated.
    pub peak_allocated: u64,
    /// Reserved.
    pub peak_reserved: u64,
}

impl Batches {
    /// The longest batch, where this was its optimizer step.
    #[must_use]
    pub fn longest_in(&self, step: Option<u64>) -> Option<&BatchPeak> {
        self.longest.as_ref().filter(|batch| Some(batch.step) == step)
    }
}
