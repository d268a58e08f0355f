//! The answer of `oomph gpus`, `oomph.gpus/1`: the catalogue of cards.

use oomph_gpu::Gpu;
use serde::Serialize;

oomph_protocol::schema!(GpusSchema, "oomph.gpus/1");

/// Cards of the catalogue.
///
/// A card's fields are those of [`Gpu`], whose names are therefore part of the contract.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpusReport<'a> {
    /// Name and version of this document.
    pub schema: GpusSchema,
    /// The cards, smallest capacity first.
    pub gpus: Vec<&'a Gpu>,
}
