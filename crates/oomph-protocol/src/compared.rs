//! `hook/PID.compared.json`: what a training computed, for a comparison with a change of it. The numbers themselves are in
//! `hook/PID.numbers`, 64-bit floats as the machine writes them.

use serde::{Deserialize, Serialize};

use crate::{Document, Schema};

crate::schema!(ComparedSchema, crate::COMPARED.text);

/// What the hook does in a run that is compared with another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Compare {
    /// After how many steps of one optimizer the run ends.
    pub steps: u64,
    /// The seed of all generators before the program sets one.
    pub seed: u64,
    /// How many samples each loader gives, in the order in which they are made; the hook chooses for those beyond the list.
    pub samples: Vec<u64>,
    /// What the batch of each loader is divided by.
    pub divide: u64,
    /// How many samples the program makes at a time where no loader gives them; 0 where that is not known yet.
    pub batch: u64,
    /// How many it makes in place of so many, and with how many more at a time the run ends where that is not known.
    pub few: u64,
    /// Whether the weights are changed by about as much as rounding changes them.
    pub perturbed: bool,
    /// Whether each sample gets the same random numbers, however the batch is cut.
    pub still: bool,
    /// Whether autocast is left out.
    pub whole_precision: bool,
    /// Whether of many equal blocks in a row only two are kept.
    pub fewer_blocks: bool,
}

/// What one process computed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Compared {
    /// Name and version of this document.
    pub schema: ComparedSchema,
    /// The steps of optimizers, in order.
    pub steps: Vec<ComparedStep>,
    /// What the program held at the end.
    pub kept: Vec<ComparedValue>,
    /// The first lines that it printed.
    pub printed: Vec<String>,
    /// How often the training drew random numbers on the card.
    pub draws: u64,
    /// The loaders, in the order in which they were made.
    pub loaders: Vec<ComparedLoader>,
    /// Rows of equal blocks that were cut.
    pub blocks: Vec<ComparedBlocks>,
    /// How many samples the program makes at a time, where no loader gives them and they were made fewer, or the run ended to begin
    /// again with fewer.
    pub batch: Option<u64>,
    /// How many were made in their place; `None` where the run ended for that.
    pub few: Option<u64>,
    /// Operations whose results were used and not computed.
    pub uncomputed: Vec<String>,
    /// Whether the run came to its end, or to as many steps as were asked for.
    pub ended: bool,
}

impl Document for Compared {
    const SCHEMA: Schema = crate::COMPARED;
}

/// One step of an optimizer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ComparedStep {
    /// Which optimizer, in the order of their first steps.
    pub optimizer: u64,
    /// The gradients before it.
    pub gradients: Vec<ComparedPiece>,
    /// The weights after it.
    pub weights: Vec<ComparedPiece>,
    /// The learning rates of its groups.
    pub rates: Vec<f64>,
}

/// A tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ComparedPiece {
    /// The place of its first noted element in the file of numbers, counted in numbers.
    pub at: u64,
    /// How many elements were noted, spread over it.
    pub noted: u64,
    /// How many it has.
    pub count: u64,
    /// The root of the sum of the squares of all; `None` where that is not a number.
    pub norm: Option<f64>,
}

/// A variable that lives on, or a weight of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ComparedValue {
    /// What the program calls it.
    pub name: String,
    /// What it holds.
    pub piece: ComparedPiece,
}

/// A loader whose samples were made fewer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ComparedLoader {
    /// Samples of a batch.
    pub batch: u64,
    /// Samples in all.
    pub samples: u64,
}

/// A row of equal blocks of which two were kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ComparedBlocks {
    /// Their class.
    pub name: String,
    /// How many modules were in the row.
    pub count: u64,
}
