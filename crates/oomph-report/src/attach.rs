//! The answer of `oomph attach`, `oomph.attach/1`: what was seen inside running processes.

use oomph_explain::snapshot::DeviceExplanation;
use serde::Serialize;

oomph_protocol::schema!(AttachSchema, "oomph.attach/1");

/// The processes that were attached to, or that were only checked.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttachReport {
    /// Name and version of this document.
    pub schema: AttachSchema,
    /// What was done: look, record, watch, stop or check.
    pub action: &'static str,
    /// The processes, in the order in which they were given, or by their rank.
    pub processes: Vec<AttachedProcess>,
}

/// One process.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttachedProcess {
    /// Its id.
    pub pid: u32,
    /// Its command line.
    pub command: Option<String>,
    /// The user that it runs as, by number.
    pub user: Option<u32>,
    /// Its rank in a job, where its variables say one.
    pub rank: Option<u32>,
    /// How many threads it has.
    pub threads: Option<usize>,
    /// The version of its Python.
    pub python: Option<String>,
    /// The version of its PyTorch; null where it has not imported it.
    pub torch: Option<String>,
    /// The ways in, the best first.
    pub ways: Vec<WayIn>,
    /// The method that was used: `door`, `remote-debug` or `ptrace`.
    pub way: Option<&'static str>,
    /// Why it was not attached to, or has nothing to say, in one line.
    pub reason: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
    /// Whether the reason is a failure, and not that the process uses no GPU.
    pub failed: bool,
    /// How long the program was paused for the last script, in seconds.
    pub seconds: Option<f64>,
    /// The cards that PyTorch uses in it.
    pub devices: Vec<AttachedDevice>,
    /// Whether PyTorch records its allocator: `off`, `ours` or `theirs`.
    pub recording: Option<String>,
    /// What a recording covers.
    pub recorded: Option<Recorded>,
    /// Where a snapshot will be written when memory runs out.
    pub dump: Option<String>,
    /// Where the snapshot was kept.
    pub snapshot: Option<String>,
    /// Whose memory it is, as `oomph explain` answers for that snapshot.
    pub explanation: Vec<DeviceExplanation>,
    /// What the user should know, one sentence each.
    pub notes: Vec<String>,
}

/// A way into a process.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WayIn {
    /// `door`, `remote-debug` or `ptrace`.
    pub id: &'static str,
    /// What it is, for people.
    pub name: String,
    /// Why it is closed, one clause; null where it is open.
    pub closed: Option<String>,
    /// What would open it.
    pub hint: Option<String>,
}

/// A card as PyTorch in the process counts it. Sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttachedDevice {
    /// The number in the process.
    pub index: u32,
    /// The name.
    pub name: String,
    /// The identifier, where this PyTorch says it.
    pub uuid: Option<String>,
    /// The card's memory.
    pub total_bytes: u64,
    /// What is free on it; null while a CUDA graph is captured, when it cannot be asked.
    pub free_bytes: Option<u64>,
    /// In live tensors.
    pub allocated_bytes: u64,
    /// Taken from the card by PyTorch.
    pub reserved_bytes: u64,
    /// The highest that allocated memory was since the start, or since the program reset it.
    pub allocated_peak_bytes: u64,
    /// The same of reserved memory.
    pub reserved_peak_bytes: u64,
    /// On the card, and not PyTorch's in this process: contexts, other libraries, other processes.
    pub outside_bytes: Option<u64>,
    /// Live allocations.
    pub allocations: u64,
    /// How often PyTorch gave its cache back because the card refused.
    pub retries: u64,
    /// Out-of-memory errors that it raised.
    pub refusals: u64,
}

/// What a recording covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Recorded {
    /// Optimizer steps.
    pub steps: u64,
    /// Seconds since it began.
    pub seconds: f64,
    /// Events that are kept for each card, the last ones.
    pub entries: u64,
    /// The program itself records, and its recording was used.
    pub theirs: bool,
}
