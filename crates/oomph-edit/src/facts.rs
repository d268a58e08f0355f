//! What a run showed of a program: it says which of the places in the code are the ones that matter.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// What is known of a program from running it.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The class of the Trainer, where one was made.
    pub trainer: Option<String>,
    /// The models that were called, the largest first.
    pub models: Vec<ModelFacts>,
    /// Places that keep more and more tensors.
    pub kept: Vec<KeptAt>,
    /// The files, as absolute paths, and the lines in them that call a model which is not trained, so that a graph is made.
    pub untrained: Vec<(PathBuf, usize)>,
    /// The file, as an absolute path, and the line in it that asked for too much.
    pub died_at: Option<(PathBuf, usize)>,
    /// Samples that are processed at a time.
    pub batch_size: Option<u64>,
    /// Micro-batches per optimizer step.
    pub accumulation: Option<u64>,
    /// Tokens in a sequence.
    pub sequence_length: Option<u64>,
    /// The card's compute capability.
    pub capability: (u32, u32),
    /// Whether a model that is trained normalises over the samples of a batch.
    pub normalises_batches: bool,
    /// How many cards there are; 0 where that is not known.
    pub cards: u32,
    /// The longest context that fits on the card, in tokens, where the program serves a language model.
    pub context_that_fits: Option<u64>,
    /// The same with a cache, or with weights, of 8 bits.
    pub context_with_8_bits: With8Bits,
    /// The share of the card to which a server is to be held, by how many percent of the card that is less.
    pub lower_shares: BTreeMap<u64, f64>,
    /// How many of the model's layers fit on the card, where the program serves one by llama.cpp.
    pub layers_that_fit: Option<u64>,
}

/// A model.
#[derive(Clone, Debug, Default)]
pub struct ModelFacts {
    /// Its class.
    pub class: String,
    /// `transformers`, `diffusers`, `timm`, `torchvision` or `plain`.
    pub library: String,
    /// The paths of its lists of equal modules.
    pub blocks: Vec<String>,
}

/// A place that keeps tensors.
#[derive(Clone, Debug, Default)]
pub struct KeptAt {
    /// The file, as an absolute path.
    pub file: PathBuf,
    /// The line, counted from 1.
    pub line: usize,
    /// `loss-history`, `graph-history`, `running-total`, `carried-state` or `results`.
    pub kind: String,
    /// What the program calls it: `losses`, `meter.sum`, `history['loss']`.
    pub name: String,
}

/// How much of a remedy is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// What it divides by, or how many there are.
    pub by: Option<u64>,
}

/// The longest context of a server that fits with something in 8 bits, in tokens; `None` where it is not known, or where
/// the whole context fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct With8Bits {
    /// With its cache.
    pub cache: Option<u64>,
    /// With its weights.
    pub weights: Option<u64>,
}
