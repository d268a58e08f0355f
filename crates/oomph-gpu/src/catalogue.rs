//! Reads the catalogue of cards from `data/gpus.toml`.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::gpu::{Architecture, ComputeCapability, ContextCost, Gpu, Kind};
use crate::names::{self, SharedName};

/// The cards that oomph knows.
#[derive(Clone, Debug)]
pub struct Catalogue {
    architectures: Vec<Architecture>,
    /// The cards in the order of the file, which decides who gets a name that several share.
    pub(crate) gpus: Vec<Gpu>,
    /// Positions in `gpus`, smallest capacity first.
    by_capacity: Vec<usize>,
    /// Positions in `gpus` by normalised id, alias and name.
    pub(crate) keys: HashMap<String, usize>,
}

/// A catalogue file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// The file is not TOML, or a field is missing or of the wrong type.
    #[error("cannot read the catalogue of GPUs: {0}")]
    Syntax(#[from] toml::de::Error),
    /// A card names a compute capability that no `[[architecture]]` describes.
    #[error("the card {id} has compute capability {capability}, which has no [[architecture]]; add one")]
    NoArchitecture {
        /// The card.
        id: String,
        /// Its compute capability.
        capability: ComputeCapability,
    },
    /// Two cards answer to the same id or alias.
    #[error("the cards {first} and {second} both answer to \"{key}\"; take it from one of them")]
    Ambiguous {
        /// The normalised name.
        key: String,
        /// The card that came first.
        first: String,
        /// The card that came second.
        second: String,
    },
    /// A MIG slice names a whole card that is not in the catalogue.
    #[error("the slice {id} belongs to {parent}, which is not in the catalogue; add it")]
    NoParent {
        /// The slice.
        id: String,
        /// The card it names.
        parent: String,
    },
}

impl From<SharedName> for CatalogueError {
    fn from(SharedName { key, first, second }: SharedName) -> Self {
        Self::Ambiguous { key, first, second }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    architecture: Vec<Architecture>,
    gpu: Vec<Entry>,
}

/// A card as the file has it: units that are pleasant to read, and what can be left out is optional.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    name: String,
    aliases: Vec<String>,
    kind: Kind,
    compute_capability: ComputeCapability,
    memory_gb: u32,
    capacity_bytes: u64,
    capacity_seen_mib: Option<[u32; 2]>,
    capacity_source: String,
    sm_count: u32,
    l2_bytes: u64,
    sm_clock_khz: u32,
    memory_clock_khz: u32,
    memory_bus_bits: u32,
    pci_device_id: Option<u16>,
    #[serde(default)]
    integrated: bool,
    mig_parent: Option<String>,
    silicon_source: String,
    context_mib: [u32; 3],
    context_source: String,
    note: Option<String>,
}

fn mib(count: u32) -> u64 {
    u64::from(count) << 20
}

impl Entry {
    fn into_gpu(self, architecture: Architecture) -> Gpu {
        let [low, high] = self.capacity_seen_mib.map_or([self.capacity_bytes; 2], |seen| seen.map(mib));
        let [context_low, context_expected, context_high] = self.context_mib.map(mib);
        Gpu {
            id: self.id,
            name: self.name,
            aliases: self.aliases,
            kind: self.kind,
            architecture,
            memory_gb: self.memory_gb,
            capacity_bytes: self.capacity_bytes,
            // The seen figures are in whole MiB, so the exact one may lie just outside them.
            capacity_low_bytes: low.min(self.capacity_bytes),
            capacity_high_bytes: high.max(self.capacity_bytes),
            capacity_source: self.capacity_source,
            sm_count: self.sm_count,
            l2_bytes: self.l2_bytes,
            sm_clock_khz: self.sm_clock_khz,
            memory_clock_khz: self.memory_clock_khz,
            memory_bus_bits: self.memory_bus_bits,
            pci_device_id: self.pci_device_id,
            integrated: self.integrated,
            mig_parent: self.mig_parent,
            silicon_source: self.silicon_source,
            context: ContextCost {
                low_bytes: context_low,
                expected_bytes: context_expected,
                high_bytes: context_high,
                source: self.context_source,
            },
            note: self.note,
        }
    }
}

static BUILTIN: LazyLock<Catalogue> = LazyLock::new(|| {
    // The file is part of the program and a test reads it, so this cannot fail in a program that was released.
    let file = serde_json::from_str(include_str!(concat!(env!("OUT_DIR"), "/gpus.json")));
    file.ok().and_then(|file| Catalogue::of(file).ok()).expect("the built-in catalogue is valid")
});

impl Catalogue {
    /// The catalogue that is compiled into the program. It is read once.
    pub fn builtin() -> &'static Self {
        &BUILTIN
    }

    /// Reads a catalogue in the format of `data/gpus.toml`.
    pub fn parse(text: &str) -> Result<Self, CatalogueError> {
        Self::of(toml::from_str(text)?)
    }

    fn of(file: File) -> Result<Self, CatalogueError> {
        let mut gpus = Vec::with_capacity(file.gpu.len());
        for entry in file.gpu {
            let architecture =
                file.architecture.iter().find(|known| known.compute_capability == entry.compute_capability);
            let Some(architecture) = architecture else {
                return Err(CatalogueError::NoArchitecture { id: entry.id, capability: entry.compute_capability });
            };
            gpus.push(entry.into_gpu(architecture.clone()));
        }
        let keys = names::keys(&gpus)?;
        for gpu in &gpus {
            if let Some(parent) = &gpu.mig_parent
                && !gpus.iter().any(|other| &other.id == parent)
            {
                return Err(CatalogueError::NoParent { id: gpu.id.clone(), parent: parent.clone() });
            }
        }
        let mut by_capacity: Vec<usize> = (0..gpus.len()).collect();
        by_capacity.sort_by_key(|&position| {
            let gpu: &Gpu = &gpus[position];
            (gpu.capacity_bytes, gpu.id.clone())
        });
        Ok(Self { architectures: file.architecture, gpus, by_capacity, keys })
    }

    /// The card with exactly this id, for example `rtx-4090`.
    pub fn get(&self, id: &str) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.id == id)
    }

    /// All cards, smallest capacity first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Gpu> {
        self.by_capacity.iter().map(|&position| &self.gpus[position])
    }

    /// The number of cards.
    pub fn len(&self) -> usize {
        self.gpus.len()
    }

    /// Whether there are no cards.
    pub fn is_empty(&self) -> bool {
        self.gpus.is_empty()
    }

    /// The limits of a compute capability.
    pub fn architecture(&self, capability: ComputeCapability) -> Option<&Architecture> {
        self.architectures.iter().find(|known| known.compute_capability == capability)
    }

    /// All architectures, in the order of the file.
    pub fn architectures(&self) -> &[Architecture] {
        &self.architectures
    }

    /// The GPUs on which a process fits: first the cards that can be bought or rented ([`Kind::is_card`]), then
    /// laptops' GPUs, slices and modules; each part smallest capacity first.
    ///
    /// `process_bytes_excluding_context` is the peak of everything but the CUDA context, in bytes: the context
    /// differs between cards, and each card's own expected cost is subtracted from its capacity.
    pub fn smallest_that_hold(&self, process_bytes_excluding_context: u64) -> impl Iterator<Item = &Gpu> {
        let cards = self.iter().filter(|gpu| gpu.kind.is_card());
        let others = self.iter().filter(|gpu| !gpu.kind.is_card());
        cards.chain(others).filter(move |gpu| gpu.usable_bytes() >= process_bytes_excluding_context)
    }
}

#[cfg(test)]
mod tests;
