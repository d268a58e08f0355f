//! Describes a run that ran out of memory, or would: the question that the catalogue answers.
//!
//! Everything but the list of frameworks may be unknown. What is unknown never rules a remedy out; what is known does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::framework::{Framework, Version};

macro_rules! words {
    ($(#[$outer:meta])* $name:ident { $($(#[$inner:meta])* $variant:ident $id:literal $title:literal,)* }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum $name {
            $($(#[$inner])* #[serde(rename = $id)] $variant,)*
        }

        impl $name {
            /// Every value, in the order of its documentation.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// The word that data files and JSON use.
            pub fn id(self) -> &'static str {
                match self { $($name::$variant => $id,)* }
            }

            /// The value with this word.
            pub fn from_id(id: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.id() == id)
            }

            /// As it reads inside a sentence.
            pub fn title(self) -> &'static str {
                match self { $($name::$variant => $title,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(self.title())
            }
        }
    };
}

words! {
    /// Why the memory ran out.
    Cause {
        /// One request is larger than the whole card, or than what is left of it with little else on it.
        TooLarge "too-large" "a single request is too large",
        /// The steady need is larger than the card.
        Full "full" "the run needs more than the card has",
        /// Enough is free in the framework's cache, but not in one piece.
        Fragmentation "fragmentation" "the free memory is in pieces that are too small",
        /// Another process holds the memory.
        OtherProcess "other-process" "other processes hold part of the card",
        /// This process holds memory outside the framework's allocator: context, NCCL, cuBLAS, a second library.
        NonFrameworkMemory "non-framework-memory" "memory outside the framework's allocator",
        /// A limit below the card's capacity: a fraction, a MIG slice, a container's quota.
        Limit "limit" "a limit below the card's capacity",
        /// The KV cache of a language model.
        KvCache "kv-cache" "the cache of keys and values (KV cache) does not fit",
        /// The context or sequence is too long.
        ContextLength "context-length" "the context or sequence is too long",
        /// Private pools of CUDA graphs.
        GraphPools "graph-pools" "the private pools of CUDA graphs",
        /// What should have been released is kept.
        Leak "leak" "memory is kept that is no longer needed",
        /// Refused with enough free: the memory came free an instant too late, was in pieces, or a pool could not grow.
        SpuriousRetry "spurious-retry" "a request refused although enough was free",
        /// The driver spills to host memory instead of failing.
        DriverSpill "driver-spill" "the driver spills to host memory",
        /// Host memory ran out, not the card's.
        HostMemory "host-memory" "host memory, not the card's",
        /// Not known.
        Unknown "unknown" "an unknown cause",
    }
}

words! {
    /// Whose bytes they are, as coarsely as remedies tell them apart. The groups of a peak add up to the peak. It is not
    /// `oomph_protocol::Owner`, which has owners that no remedy changes by themselves: buffers are among the parameters here, and
    /// slack and both kinds of cache are one.
    OwnerGroup {
        /// The model's weights and buffers.
        Parameters "parameters" "parameters",
        /// Gradients of the weights.
        Gradients "gradients" "gradients",
        /// What the optimizer keeps from step to step.
        OptimizerState "optimizer-state" "optimizer state",
        /// What the forward pass saves for the backward pass, and results that are kept.
        Activations "activations" "activations",
        /// Short-lived results inside one operation.
        Temporaries "temporaries" "temporaries",
        /// Batches of data.
        Inputs "inputs" "inputs",
        /// Keys and values of earlier tokens.
        KvCache "kv-cache" "KV cache",
        /// Scratch space of cuBLAS, cuDNN and the like.
        Workspace "workspace" "library workspaces",
        /// Private pools of CUDA graphs.
        GraphPools "graph-pools" "CUDA graph pools",
        /// Reserved by the framework and not in use.
        Cached "cached" "cached memory",
        /// The CUDA context and loaded modules.
        Context "context" "the CUDA context",
        /// Other processes on the card.
        OtherProcesses "other-processes" "other processes",
        /// Host memory rather than the card's.
        Host "host" "host memory",
    }
}

words! {
    /// What the program was doing.
    Operation {
        /// The scores of eager attention, which grow with the square of the length.
        AttentionScores "attention-scores" "attention scores",
        /// The logits over the vocabulary, or their cross-entropy.
        Logits "logits" "logits and cross-entropy",
        /// The forward pass.
        Forward "forward" "the forward pass",
        /// The backward pass.
        Backward "backward" "the backward pass",
        /// The optimizer makes its state, at the first step.
        OptimizerInit "optimizer-init" "making the optimizer's state",
        /// A later step of the optimizer.
        OptimizerStep "optimizer-step" "the optimizer's step",
        /// A VAE turns latents into pixels, or pixels into latents.
        VaeDecode "vae-decode" "the VAE",
        /// A denoising step of a diffusion model.
        Denoise "denoise" "a denoising step",
        /// Weights are brought to the card.
        Load "load" "loading the weights",
        /// A training checkpoint is read back.
        Resume "resume" "reading a checkpoint back",
        /// A checkpoint is written.
        Save "save" "saving a checkpoint",
        /// Predictions or losses are gathered during evaluation.
        Evaluation "evaluation" "evaluation",
        /// Tokens are generated.
        Generation "generation" "generating tokens",
        /// A server reserves its KV cache.
        KvCacheInit "kv-cache-init" "reserving the KV cache",
        /// CUDA graphs are captured.
        GraphCapture "graph-capture" "capturing CUDA graphs",
        /// Several GPUs exchange data.
        Communication "communication" "communication between GPUs",
        /// Batches are loaded and moved.
        DataLoading "data-loading" "loading data",
        /// The CUDA context is made, before anything else.
        ContextInit "context-init" "starting CUDA",
    }
}

impl Operation {
    /// A phase of its own, for which remedies are offered only where it is known that the run died in it.
    pub fn is_phase(self) -> bool {
        use Operation::{Communication, DataLoading, Evaluation, Resume, Save};
        matches!(self, Evaluation | Save | Resume | DataLoading | Communication)
    }

    /// The owners whose bytes are on the card while this goes on, and which a remedy must therefore shrink.
    ///
    /// An optimizer makes its state when the activations of its step are already gone, and weights are loaded before
    /// there is anything else; advice that overlooks this is useless however often it is repeated.
    pub fn live_owners(self) -> &'static [OwnerGroup] {
        use OwnerGroup::*;
        match self {
            Operation::Load | Operation::ContextInit => {
                &[Parameters, Temporaries, KvCache, Workspace, Cached, Context, OtherProcesses, Host]
            }
            Operation::Resume => &[Parameters, OptimizerState, Temporaries, Cached, Context, OtherProcesses, Host],
            Operation::OptimizerInit | Operation::OptimizerStep => &[
                Parameters,
                Gradients,
                OptimizerState,
                Temporaries,
                Workspace,
                GraphPools,
                Cached,
                Context,
                OtherProcesses,
                Host,
            ],
            Operation::KvCacheInit | Operation::GraphCapture | Operation::Generation => &[
                Parameters,
                KvCache,
                Activations,
                Temporaries,
                Inputs,
                Workspace,
                GraphPools,
                Cached,
                Context,
                OtherProcesses,
                Host,
            ],
            _ => OwnerGroup::ALL,
        }
    }
}

words! {
    /// What the program is for.
    Task {
        /// Weights are changed.
        Training "training" "training",
        /// Weights are only used: generation, evaluation, serving.
        Inference "inference" "inference",
    }
}

words! {
    /// Where it runs.
    Platform {
        /// Linux.
        Linux "linux" "Linux",
        /// Windows without WSL.
        Windows "windows" "Windows",
        /// Linux under Windows.
        Wsl "wsl" "WSL",
    }
}

/// A framework that takes part in the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Which.
    pub framework: Framework,
    /// Its release, where known.
    pub version: Option<Version>,
    /// Whether its flags, or the arguments of the same names, are within reach: a loop of one's own around a model of
    /// Transformers has neither the flags of its scripts nor `TrainingArguments`.
    pub takes_flags: bool,
}

impl From<Framework> for Installed {
    fn from(framework: Framework) -> Self {
        Self { framework, version: None, takes_flags: true }
    }
}

impl Installed {
    /// A framework of this release; a release that cannot be read counts as unknown.
    pub fn new(framework: Framework, version: &str) -> Self {
        Self { version: version.parse().ok(), ..framework.into() }
    }

    /// The same framework where only its library is used, so that no flag of its scripts reaches it.
    #[must_use]
    pub fn as_library(self) -> Self {
        Self { takes_flags: false, ..self }
    }
}

/// A cause that is likely, with the bytes that it accounts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The cause.
    pub cause: Cause,
    /// Bytes that it accounts for, where known.
    pub bytes: Option<u64>,
}

impl From<Cause> for Suspect {
    fn from(cause: Cause) -> Self {
        Self { cause, bytes: None }
    }
}

/// The figures of the failure, in bytes. All of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// What was asked for.
    pub requested: Option<u64>,
    /// What the card has.
    pub capacity: Option<u64>,
    /// What the driver says is free, after the framework gave back its cache.
    pub free: Option<u64>,
    /// What live tensors hold.
    pub allocated: Option<u64>,
    /// What the framework's allocator holds.
    pub reserved: Option<u64>,
    /// The most that this process may hold, where a limit below the capacity is set.
    pub allowed: Option<u64>,
    /// What this process holds in all.
    pub process: Option<u64>,
    /// What other processes hold.
    pub other_processes: Option<u64>,
    /// What the largest of them holds, where each is named.
    pub largest_other: Option<u64>,
    /// Pools of CUDA graphs.
    pub graph_pools: Option<u64>,
}

impl Memory {
    /// Reserved and not allocated: what better packing could give at most.
    pub fn slack(&self) -> Option<u64> {
        Some(self.reserved?.saturating_sub(self.allocated?))
    }

    /// What is missing for the request, after what is free.
    pub fn shortage(&self) -> Option<u64> {
        Some(self.requested?.saturating_sub(self.free?))
    }
}

/// The settings of the run that decide what a remedy can still change.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Settings {
    /// Samples in one micro-batch on one GPU.
    pub batch_size: Option<u64>,
    /// Micro-batches in one step of the optimizer.
    pub gradient_accumulation: Option<u64>,
    /// Tokens in a sequence.
    pub sequence_length: Option<u64>,
    /// Tokens of context that a server or runtime is asked to hold.
    pub context_length: Option<u64>,
    /// The longest context for which a server says that its KV cache would do, in tokens.
    pub context_that_fits: Option<u64>,
    /// Sequences that a server handles at a time.
    pub concurrent_sequences: Option<u64>,
    /// The share of the card that vLLM or SGLang may use, 0 to 1.
    pub memory_utilization: Option<f64>,
    /// Layers on the GPU (llama.cpp, Ollama).
    pub gpu_layers: Option<u64>,
    /// Whether the model is a mixture of experts.
    pub is_mixture: Option<bool>,
    /// The most layers that fit on the GPU.
    pub layers_that_fit: Option<u64>,
    /// Images made at a time.
    pub images: Option<u64>,
    /// Width and height of images, in pixels.
    pub resolution: Option<(u64, u64)>,
    /// Weights of the model, counted.
    pub model_parameters: Option<u64>,
    /// Weights that are trained, counted.
    pub trainable_parameters: Option<u64>,
    /// Bytes that one weight takes, as loaded.
    pub bytes_per_parameter: Option<f64>,
    /// Entries of the vocabulary.
    pub vocabulary: Option<u64>,
    /// Whether samples are joined up to the maximal length.
    pub packing: Option<bool>,
    /// Whether the program collects tensors without a graph on the card, step by step, while it trains.
    pub collects_on_card: Option<bool>,
    /// Whether a trained model normalises by the statistics of a batch.
    pub batch_norm: Option<bool>,
    /// Whether the program steps its optimizers itself although a trainer runs its loop, which refuses to accumulate then.
    pub steps_by_hand: Option<bool>,
    /// Whether the program has an option of its own for the side of the tiles in which it works on an image.
    pub takes_tiles: Option<bool>,
    /// Whether the model is made of convolutions, without attention.
    pub convolves: Option<bool>,
    /// Whether a model that no optimizer changes is called with gradients on, in addition to one that is trained.
    pub calls_untrained: Option<bool>,
    /// Whether the loss compares the samples of a batch with each other.
    pub compares_samples: Option<bool>,
    /// Processes that share the training, one per GPU.
    pub world_size: Option<u64>,
    /// By how much a remedy that divides something is to divide it; 2 where nothing is said.
    pub divide_by: Option<u64>,
}

impl Settings {
    /// By how much a remedy that divides something divides it, never 0.
    pub fn divisor(&self) -> u64 {
        self.divide_by.unwrap_or(2).max(1)
    }

    /// What the weights take, in bytes.
    pub fn weight_bytes(&self) -> Option<u64> {
        Some((self.model_parameters? as f64 * self.bytes_per_parameter?) as u64)
    }
}

/// What is known about a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Situation {
    /// The frameworks in whose words the answer should be, the most specific first: `[automatic1111, pytorch]`.
    pub frameworks: Vec<Installed>,
    /// What the program is for.
    pub task: Option<Task>,
    /// The likely causes, the likeliest first. None means [`Cause::Full`].
    pub causes: Vec<Suspect>,
    /// The bytes of each owner at the peak. An owner that is missing from a map that is there has none.
    pub owners: Option<BTreeMap<OwnerGroup, u64>>,
    /// The figures of the failure.
    pub memory: Memory,
    /// The settings of the run.
    pub settings: Settings,
    /// The ids of the remedies that are already in effect.
    pub on: BTreeSet<String>,
    /// What the program was doing.
    pub operation: Option<Operation>,
    /// What it was doing within that: an evaluation may run out in its forward pass or while it gathers results.
    pub within: Option<Operation>,
    /// The compute capability of the card, for example `(8, 6)`.
    pub compute_capability: Option<(u32, u32)>,
    /// GPUs in the machine.
    pub gpus: Option<u32>,
    /// Where it runs.
    pub platform: Option<Platform>,
    /// Whether it runs in a notebook.
    pub notebook: bool,
}

impl Situation {
    /// A run of these frameworks that ran out of memory for this cause; everything else is unknown.
    pub fn of(frameworks: impl IntoIterator<Item = Framework>, cause: Cause) -> Self {
        Self {
            frameworks: frameworks.into_iter().map(Installed::from).collect(),
            causes: vec![cause.into()],
            ..Self::default()
        }
    }

    /// The release of a framework that takes part.
    pub fn version(&self, framework: Framework) -> Option<&Version> {
        self.frameworks.iter().find(|known| known.framework == framework)?.version.as_ref()
    }

    /// The bytes of an owner, where the owners are known.
    pub fn owner_bytes(&self, owner: OwnerGroup) -> Option<u64> {
        let owners = self.owners.as_ref()?;
        Some(owners.get(&owner).copied().unwrap_or(0))
    }
}
