//! The catalogue as a document, `oomph.gpus/1`.

use oomph_gpu::Gpu;
use serde::{Serialize, Serializer};

/// The document's name and version. It is written as `"oomph.gpus/1"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpusSchema;

impl GpusSchema {
    /// The name and version as they are written.
    pub const NAME: &str = "oomph.gpus/1";
}

impl Serialize for GpusSchema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(Self::NAME)
    }
}

/// Cards of the catalogue.
///
/// A card's fields are those of [`Gpu`], whose names are therefore part of the contract.
#[derive(Clone, Debug, Serialize)]
pub struct GpusReport<'a> {
    /// Name and version of this document.
    pub schema: GpusSchema,
    /// The cards, smallest capacity first.
    pub gpus: Vec<&'a Gpu>,
}
