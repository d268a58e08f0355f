//! The answer of `oomph cache`, `oomph.cache/1`: the cache's contents, and what was removed.

use serde::Serialize;

oomph_protocol::schema!(CacheSchema, "oomph.cache/1");

/// The cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CacheReport {
    /// Name and version of this document.
    pub schema: CacheSchema,
    /// Its folder.
    pub folder: String,
    /// What is in it; after a removal, what is left.
    pub entries: Vec<CacheEntry>,
    /// What was removed; `null` where nothing was to be.
    pub removed: Option<Vec<CacheEntry>>,
}

/// One thing in the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CacheEntry {
    /// What it is.
    pub kind: CacheKind,
    /// Its folder.
    pub path: String,
    /// The sizes of its files added up, in bytes.
    pub bytes: u64,
    /// How long ago it was last used, in seconds; `null` where that is not known.
    pub unused_seconds: Option<u64>,
    /// Whether something uses it now.
    pub in_use: bool,
    /// Whether it was made to its end.
    pub whole: bool,
    /// What an environment was made for.
    pub requirements: Vec<String>,
    /// How many packages an environment has.
    pub packages: usize,
    /// The version of an environment's Python.
    pub python: Option<String>,
}

/// What a thing in the cache is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CacheKind {
    /// A Python environment of `--with`.
    Environment,
    /// An unpacked virtual GPU with the hook.
    VirtualGpu,
    /// Kernels that programs compiled.
    CompiledKernels,
}
