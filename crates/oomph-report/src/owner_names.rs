//! The names of memory owners in texts for people.

use oomph_explain::snapshot::Owner;

/// The name of an owner in a table.
pub(crate) fn owner_name(owner: Owner) -> &'static str {
    match owner {
        Owner::Parameters => "parameters",
        Owner::Buffers => "buffers",
        Owner::Gradients => "gradients",
        Owner::OptimizerState => "optimizer state",
        Owner::Activations => "activations",
        Owner::Temporaries => "temporaries",
        Owner::Inputs => "inputs",
        Owner::KvCache => "KV cache",
        Owner::Workspace => "library workspaces",
        Owner::GraphPools => "CUDA graph pools",
        Owner::Unattributed => "unattributed",
        Owner::SlackInBlocks => "slack inside blocks",
        Owner::CachedSplit => "cached, pinned by blocks",
        Owner::CachedUnsplit => "cached, whole segments",
        Owner::Context => "CUDA context",
        Owner::OtherProcesses => "other processes",
        Owner::Free => "free",
    }
}
