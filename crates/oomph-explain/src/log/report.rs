//! What is read from a log: the types of the answer, with the field names of the JSON contract.

use std::collections::BTreeMap;

use oomph_remedy::{Cause, Operation};
use serde::Serialize;

use super::kind::Kind;

/// What a log says.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// The failures, the root one first. Empty if none was found.
    pub failures: Vec<Failure>,
    /// What the log says about the run.
    pub settings: RunSettings,
    /// Lines read.
    pub lines: u64,
    /// Bytes read, as they were: of a log in UTF-16, twice its characters or so.
    pub bytes: u64,
    /// Failures beyond those that are kept.
    pub left_out: u64,
}

impl Report {
    /// Whether memory of a GPU ran out.
    pub fn is_gpu_oom(&self) -> bool {
        self.failures.first().is_some_and(|failure| failure.is_gpu_oom)
    }
}

/// One failure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Failure {
    /// Whether memory of a GPU ran out.
    pub is_gpu_oom: bool,
    /// How sure that is, 0 to 1. Below 0.65 the words leave it open.
    pub certainty: f64,
    /// What it is instead, where it is not a GPU's memory.
    pub not_oom: Option<NotOom>,
    /// The library or program whose words these are.
    pub framework: Option<String>,
    /// Its back end, where that is not CUDA.
    pub backend: Option<String>,
    /// The program around it, for example `comfyui` around `pytorch`.
    pub front_end: Option<String>,
    /// The releases that print this form, or the release itself where the log names it.
    pub era: Option<String>,
    /// The rank that failed.
    pub rank: Option<u32>,
    /// The figures as they were printed.
    pub facts: Facts,
    /// What follows from them.
    pub derived: Derived,
    /// Why, the likeliest cause first.
    pub causes: Vec<RankedCause>,
    /// The user's innermost line in the traceback.
    pub site: Option<Site>,
    /// What the program was doing there.
    pub operation: Option<Operation>,
    /// What to do, the first to try first.
    pub remedies: Vec<RemedyOffer>,
    /// What not to try, with the reason.
    pub avoid: Vec<AvoidAdvice>,
    /// The program caught the error and went on.
    pub survived: bool,
    /// How often the same message came.
    pub times: u64,
    /// The line of the log (from 1).
    pub line: u64,
    /// The message, shortened.
    pub message: String,
    /// The id of the pattern that recognised it.
    pub pattern: String,
    /// No known message: the failure was recognised by its words.
    pub by_words: bool,
}

impl Failure {
    /// Whether memory of a GPU ran out and the program did not survive it.
    pub fn ended_it(&self) -> bool {
        self.is_gpu_oom && !self.survived
    }
}

/// What a failure is, where it is not a GPU's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NotOom {
    /// Which kind.
    pub kind: Kind,
    /// What it is.
    pub what: String,
    /// Where to look.
    pub look: String,
}

impl From<Kind> for NotOom {
    fn from(kind: Kind) -> Self {
        Self { kind, what: kind.what().to_owned(), look: kind.look().to_owned() }
    }
}

/// Figures of a message, as printed. All sizes in bytes; printed figures are rounded to two decimals of their unit.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Facts {
    /// The GPU's index, as the process sees it.
    pub device: Option<u32>,
    /// What was asked for. PyTorch names the segment that it needed, not the tensor: see [`Derived::request`].
    pub requested_bytes: Option<u64>,
    /// The card's memory (or the most that the framework may use, where only that is printed: MPS).
    pub capacity_bytes: Option<u64>,
    /// What the driver reports as free.
    pub free_bytes: Option<u64>,
    /// What live tensors hold.
    pub allocated_bytes: Option<u64>,
    /// What the framework's allocator holds. PyTorch 1.0 to 1.3 print the part beyond the allocated ("cached") instead;
    /// [`Derived::reserved_bytes`] evens that out.
    pub reserved_bytes: Option<u64>,
    /// What this process holds in all.
    pub process_bytes: Option<u64>,
    /// Reserved and not allocated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unallocated_bytes: Option<u64>,
    /// Held by private pools (CUDA graphs, MemPool); PyTorch counts these in the allocated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_pools_bytes: Option<u64>,
    /// The most that this process may use, where a limit below the card is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// Memory for the KV cache that a server found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_cache_available_bytes: Option<u64>,
    /// Tokens of context that were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// Tokens of context that would fit, as the server says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_tokens_that_fit: Option<u64>,
    /// The share of the card that the server was configured to use, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
    /// The shape of the tensor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<Vec<u64>>,
    /// Its element type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// Other processes on the card.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_processes: Vec<OtherProcess>,
    /// The line of the log that each figure is from.
    pub lines: BTreeMap<&'static str, u64>,
}

/// Another process on the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OtherProcess {
    /// Its process id, of the host: a container's own process appears here too.
    pub pid: u64,
    /// What it holds, in bytes; None where the driver could not say (Windows, WSL).
    pub bytes: Option<u64>,
    /// The line of the log.
    pub line: u64,
}

/// What follows from the facts, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Derived {
    /// What the framework's allocator holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_bytes: Option<u64>,
    /// Reserved and not in use: the most that better packing could give.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slack_bytes: Option<u64>,
    /// This process's memory outside the framework's allocator: context, NCCL, cuBLAS, other libraries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub non_framework_bytes: Option<u64>,
    /// What is on the card and not this process's: other processes, and what the driver keeps. Where the message has no
    /// figure of the process itself, what it holds outside the framework's allocator is counted here too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_tenants_bytes: Option<u64>,
    /// What is missing for the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shortfall_bytes: Option<u64>,
    /// Allocated beyond the card's capacity: the driver spilled into host memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spilled_bytes: Option<u64>,
    /// What the tensor itself takes, from its shape and type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensor_bytes: Option<u64>,
    /// What was really asked for, where the printed figure stands for a range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Range>,
    /// The figure of this process is not a measurement: the driver does not report it (Windows, WSL).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub process_unknown: bool,
    /// The heap of TensorFlow's or JAX's allocator, from its dump.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heap: Option<super::bfc::Heap>,
}

/// A range of bytes, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Range {
    /// At least.
    pub at_least_bytes: u64,
    /// At most.
    pub at_most_bytes: u64,
}

/// A cause, with what speaks for it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RankedCause {
    /// Which.
    pub cause: Cause,
    /// How likely, 0 to 1.
    pub confidence: f64,
    /// The bytes that it accounts for.
    pub bytes: Option<u64>,
    /// The figures or the sentence of the log that prove it.
    pub because: String,
}

/// A place in the user's program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Site {
    /// The file, as the log names it.
    pub file: String,
    /// The line.
    pub line: u64,
    /// The function.
    pub function: Option<String>,
    /// The source line, where the traceback shows it.
    pub code: Option<String>,
    /// The line of the log.
    pub log_line: u64,
}

/// A remedy from the catalogue.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RemedyOffer {
    /// The remedy's id in the catalogue.
    pub id: String,
    /// A few words.
    pub title: String,
    /// The exact words for this framework.
    pub apply: String,
    /// Bytes that it frees, where the facts allow a figure; not verified by a run.
    pub frees_bytes: Option<u64>,
    /// What it costs.
    pub cost: String,
    /// Why it helps here.
    pub because: String,
}

/// Advice that would not help here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AvoidAdvice {
    /// The advice's id in the catalogue.
    pub id: String,
    /// The advice as people give it.
    pub title: String,
    /// Why not.
    pub because: String,
}

/// What the usual start-up prints say about the run; the last word before the failure wins.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunSettings {
    /// Each setting that was seen.
    #[serde(flatten)]
    pub seen: BTreeMap<&'static str, Setting>,
}

/// A setting of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Setting {
    /// As printed.
    pub value: String,
    /// The line of the log.
    pub line: u64,
}

impl RunSettings {
    /// The value of a setting.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.seen.get(name).map(|setting| setting.value.as_str())
    }

    /// The value of a setting that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.replace([',', '_'], "").parse().ok()
    }
}
