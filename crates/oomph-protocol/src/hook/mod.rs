//! The messages between the launcher and the Python hook. `docs/internals/run-folder.md` describes both files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::compared::Compare;
use crate::work::Counted;
use crate::{Document, LimitScales, Phase, RemedyState, Schema, Stopped};

mod doubt;
mod followed;
mod guard;
mod pools;
mod program;

pub use doubt::{HookFault, HookHostShortage, HookUnknownSize, UnknownSizes};
pub use followed::{HookFollowedLoop, HookGrowth, HookHolder, HookPhase, HookUnreached};
pub use guard::{Guard, HookBatchSize, HookCheckpoint, HookHeld, HookMemoryNow, HookProgress};
pub use pools::Pools;
pub use program::{
    HookBlocks, HookKept, HookLoader, HookLoop, HookModel, HookOptimizer, HookPipeline, HookProgram, HookTrainer,
    HookTrainerArguments,
};

crate::schema!(HookConfigSchema, crate::HOOK_CONFIG.text);
crate::schema!(HookReportSchema, crate::HOOK_REPORT.text);

/// `hook.json`: what the hook is to do in each Python process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HookConfig {
    /// Name and version of this document. The hook refuses to work by one of another version.
    pub schema: HookConfigSchema,
    /// When the run has seen enough.
    pub stop: Stop,
    /// Whether the program's loops and phases are followed; not in a run on a real card.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub follow: bool,
    /// Which small results are computed for real.
    pub values: Values,
    /// Whether files are written where the program says.
    pub allow_writes: bool,
    /// What may go out over the network.
    #[serde(default, skip_serializing_if = "Network::is_read")]
    pub network: Network,
    /// Whether missing weights are replaced by a model built from its config.
    pub random_weights: bool,
    /// The folder of the user's program: files below it are the user's own lines. What is not UTF-8 in it is replaced, and
    /// the hook takes the folder that it was started in.
    #[serde(serialize_with = "lossy")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub program_root: PathBuf,
    /// Whether the framework's allocator records its history, for the explanation.
    #[serde(default)]
    pub history: bool,
    /// How many events per device the allocator's history keeps; `None` is the hook's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_entries: Option<u32>,
    /// Whether the hook names the bytes of that history.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub names: bool,
    /// What is changed in the program from inside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<HookRemedy>,
    /// Files of the program that are run with another text, by their absolute paths.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub edited: BTreeMap<PathBuf, String>,
    /// Which ranks of a job run: numbers, ranges and `last` with commas, or `all`. `None` is `0,1,last` of more than 4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<String>,
    /// Which experts get the tokens where the router's choice was not computed.
    #[serde(default, skip_serializing_if = "Routing::is_balanced")]
    pub routing: Routing,
    /// Which batches are seen, where their sizes differ.
    #[serde(default, skip_serializing_if = "Batches::are_longest")]
    pub batches: Batches,
    /// Which end is taken of a size that depends on values that were never computed.
    #[serde(default, skip_serializing_if = "UnknownSizes::are_most")]
    pub unknown_sizes: UnknownSizes,
    /// How the pools of JAX and TensorFlow take memory.
    #[serde(default, skip_serializing_if = "Pools::are_as_needed")]
    pub pools: Pools,
    /// What a run that counts does in addition; `None` in a dry run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<Guard>,
    /// Whether the hook lists which files of its own the program reads.
    #[serde(default, skip_serializing_if = "is_no")]
    pub reads: bool,
    /// Where Python keeps the bytecode of libraries that were installed without; `None` to compile them in each process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytecode: Option<PathBuf>,
    /// What is recorded of the training for a comparison; `None` in every other run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compare: Option<Compare>,
}

impl Document for HookConfig {
    const SCHEMA: Schema = crate::HOOK_CONFIG;
}

impl Document for HookReport {
    const SCHEMA: Schema = crate::HOOK_REPORT;
}

/// Which batches of a training loader are seen, where they differ in size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Batches {
    /// Those that come, and one of the longest samples.
    #[default]
    Longest,
    /// Those that come.
    Seen,
}

impl Batches {
    fn are_longest(&self) -> bool {
        *self == Self::Longest
    }
}

/// What a program may do on the network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// Nothing; the kernel sees to it.
    None,
    /// What reads. The hook stops requests that send.
    #[default]
    Read,
    /// Everything.
    All,
}

impl Network {
    fn is_read(&self) -> bool {
        *self == Self::Read
    }
}

/// A path as text; a name that is not UTF-8 has no other form in JSON.
fn lossy<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

fn yes() -> bool {
    true
}

fn is_no(value: &bool) -> bool {
    !*value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn is_yes(value: &bool) -> bool {
    *value
}

/// Where the tokens of a mixture of experts go when nothing computed the router's choice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Routing {
    /// Each expert gets as many.
    #[default]
    Balanced,
    /// The same few experts get all of them, which takes the most memory.
    Worst,
}

impl Routing {
    fn is_balanced(&self) -> bool {
        *self == Self::Balanced
    }
}

/// A remedy of the catalogue that the hook applies inside the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HookRemedy {
    /// Its id in the catalogue.
    pub id: String,
    /// What it takes, by name; `python/oomph/remedies` says which.
    #[serde(default)]
    pub options: Map<String, Value>,
}

/// What became of a remedy in one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AppliedRemedy {
    /// Its id in the catalogue.
    pub id: String,
    /// Whether it took effect.
    pub state: RemedyState,
    /// One clause: what was changed, or why not.
    #[serde(default)]
    pub what: String,
    /// How it was verified from inside; `None` where it could not be.
    #[serde(default)]
    pub evidence: Option<String>,
}

/// The rule by which the hook ends a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stop {
    /// What is waited for.
    pub mode: StopMode,
    /// For how many optimizer steps.
    pub steps: u32,
    /// How many seconds loops that cannot be shortened go on; `None` is the hook's own choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_seconds: Option<u32>,
}

/// What a run waits for before it is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum StopMode {
    /// The program ends, its loops being shortened once the peak of reserved memory has not moved for that many steps.
    PeakStable,
    /// That many steps were made.
    Steps,
    /// The program ends on its own.
    Exit,
}

/// Which results of kernels are computed on the CPU, so that a host that reads them back reads the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Values {
    /// None.
    Off,
    /// Those of small tensors.
    Small,
    /// All of them, in host memory.
    AllHost,
}

/// `hook/PID.json`: what the hook saw in one process. Every field may be missing: a process may die at any time, and
/// an older hook knows fewer of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookReport {
    /// Name and version of this document.
    pub schema: HookReportSchema,
    /// The process.
    pub pid: u32,
    /// Its command line.
    pub argv: Vec<String>,
    /// Its rank among the processes of a distributed run.
    pub rank: Option<u32>,
    /// The ranks of its job that run, where the others are answered for; else empty.
    pub ranks_run: Vec<u32>,
    /// How many ranks the job has, where that is known.
    pub world_size: Option<u32>,
    /// Versions of what it imported, by name.
    pub frameworks: BTreeMap<String, String>,
    /// Why the hook ended the program, if it did: `peak-stable`, `steps` or `budget`.
    #[serde(deserialize_with = "program::lenient")]
    pub stopped: Option<Stopped>,
    /// How many optimizer steps were made.
    pub optimizer_steps: u64,
    /// The framework's own peaks on each device.
    pub devices: Vec<HookDevice>,
    /// The last out-of-memory error that the framework raised.
    pub oom: Option<HookOom>,
    /// How the batches that it trained on differ, where they do.
    pub batches: Option<HookBatches>,
    /// What XLA says that the largest compiled programs need, the largest first.
    pub compiled: Vec<HookCompiled>,
    /// One sentence each.
    pub warnings: Vec<String>,
    /// What became of the remedies that it was to apply.
    pub remedies: Vec<AppliedRemedy>,
    /// What the program is.
    #[serde(deserialize_with = "program::lenient")]
    pub program: Option<HookProgram>,
    /// What the framework's kernels were built for, such as `sm_90`; empty where it does not say.
    pub architectures: Vec<String>,
    /// The parts of the program that were seen, with the peak of each, in the order in which they came first.
    pub phases: Vec<HookPhase>,
    /// Loops that were shortened, or whose memory grows with each iteration.
    pub loops: Vec<HookFollowedLoop>,
    /// The files that a notebook's kernel has for its cells.
    pub cells: Vec<HookCell>,
    /// What the program would do that the run did not reach.
    pub unreached: Vec<HookUnreached>,
    /// Sizes that hang on values that were never computed.
    pub unknown_sizes: Vec<HookUnknownSize>,
    /// What the host could not give, where that ended the program.
    pub host: Option<HookHostShortage>,
    /// Why something other than the cards did the work, in a sentence.
    pub fallback: Option<String>,
    /// Libraries with a CUDA runtime of their own, by the start of the file's name, and whether the program asked them for
    /// a card.
    pub asked_for_card: BTreeMap<String, bool>,
    /// The engine that takes a share of its card, where this process is one's.
    #[serde(deserialize_with = "program::lenient")]
    pub engine: Option<HookEngine>,
    /// The exception that ended the program.
    pub failure: Option<HookFailure>,
    /// What died in oomph's own code.
    pub faults: Vec<HookFault>,
    /// The files below the program's folder that it read, where that was asked for.
    pub reads: Option<Vec<PathBuf>>,
    /// What one optimizer step computes and moves; `None` where fewer than two steps were made.
    pub work: Option<Counted>,
    /// How far the program's trainer is; `None` in a dry run.
    #[serde(deserialize_with = "program::lenient")]
    pub progress: Option<HookProgress>,
    /// What the framework held when this was written; `None` in a dry run.
    #[serde(deserialize_with = "program::lenient")]
    pub memory_now: Option<HookMemoryNow>,
}

/// An engine of vLLM's. Its cache is what its share of the card leaves, and has to hold one request of the longest length.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HookEngine {
    /// The share of the card that it takes, of 1.
    pub share: f64,
    /// What the cache has to hold, of the worker that has the least room.
    pub needed_bytes: u64,
    /// What the cache of that worker may take.
    pub available_bytes: u64,
}

/// The exception that ended a program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookFailure {
    /// Its class.
    pub kind: String,
    /// Its words.
    pub message: String,
    /// The user's line that it came through last.
    pub site: Option<HookSite>,
    /// The user's line where a value was read that was never computed, if the function that raised the exception read one.
    pub read_at: Option<HookSite>,
    /// The loop whose iterations were abridged when it was raised in one of them: their results are stand-ins.
    pub abridged: Option<HookSite>,
    /// The number of the card that PyTorch refused itself, without asking CUDA for it.
    pub asked_card: Option<u32>,
}

/// A file that a notebook's kernel has for one of its cells.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookCell {
    /// The file.
    pub file: String,
    /// The notebook, by its path; `null` where it is not known.
    pub notebook: Option<String>,
    /// The cell's number, as in `In [5]`.
    pub cell: u32,
}

/// The peaks of one device as the framework counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookDevice {
    /// The device's index as the process sees it.
    pub index: u32,
    /// The peak of reserved memory; `None` where the framework does not report it.
    pub reserved_peak_bytes: Option<u64>,
    /// The peak of allocated memory.
    pub allocated_peak_bytes: u64,
    /// How much of the device a framework's pool may take, where it sets itself a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<HookLimit>,
    /// Whether the pool was taken at the program's start, so that its size says nothing of the need.
    #[serde(skip_serializing_if = "is_no")]
    pub preallocates: bool,
    /// What PyTorch's allocator reserved of the device in addition to the pool of another framework in this process.
    #[serde(skip_serializing_if = "is_zero")]
    pub beside_pool_bytes: u64,
    /// What the program lets PyTorch's allocator take of the device, where that is less than all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<HookAllowed>,
}

/// What a program lets PyTorch's allocator take of a device (`set_per_process_memory_fraction`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HookAllowed {
    /// The most that it may take of this device.
    pub bytes: u64,
    /// What that would be on another device.
    pub scales: LimitScales,
    /// How often the allocator was refused memory, gave its cache back and asked again.
    pub retries: u64,
}

/// How much of a device a framework's pool may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HookLimit {
    /// The most that it may take of this device.
    pub bytes: u64,
    /// What the limit would be on another device.
    pub scales: LimitScales,
}

/// What XLA says that a compiled program needs on each device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookCompiled {
    /// Its name, such as `jit_train_step`.
    pub name: String,
    /// What it is given.
    pub argument_bytes: u64,
    /// What it gives back.
    pub output_bytes: u64,
    /// The part of the outputs that takes the place of arguments.
    pub alias_bytes: u64,
    /// What it needs while it runs.
    pub temp_bytes: u64,
    /// The code.
    pub code_bytes: u64,
}

/// How the batches that a program trained on differ in size.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookBatches {
    /// The batches that came from the program's own sampler.
    pub seen: HookBatchRange,
    /// The batch that was made of the longest samples, where there was one.
    pub longest: Option<HookBatch>,
    /// The peak of the batches before it.
    pub usual: Option<HookBatch>,
}

/// The smallest and the largest batch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookBatchRange {
    /// Elements of the smallest.
    pub min: u64,
    /// Elements of the largest.
    pub max: u64,
    /// What was counted: `tokens` or `elements`.
    pub unit: String,
}

/// A batch and the peak of its step; zeros where the step did not end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookBatch {
    /// The optimizer step that it was part of, counted from 1.
    pub step: u64,
    /// Its elements.
    pub elements: u64,
    /// The shape of the tensor that was counted, where it was one.
    pub shape: Option<Vec<u64>>,
    /// The framework's peak of allocated memory up to then.
    pub peak_allocated: u64,
    /// The framework's peak of reserved memory up to then.
    pub peak_reserved: u64,
}

/// An out-of-memory error as the framework raised it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookOom {
    /// The device's index as the process sees it.
    pub device: u32,
    /// The bytes that were requested; 0 where the error does not say.
    pub requested_bytes: u64,
    /// The bytes allocated at that moment; `None` where the framework does not say.
    pub allocated_bytes: Option<u64>,
    /// The bytes reserved at that moment; `None` where the framework does not say.
    pub reserved_bytes: Option<u64>,
    /// The bytes that the card had left.
    pub free_bytes: u64,
    /// The framework's message.
    pub message: String,
    /// The optimizer step in which it happened, counted from 1.
    pub step: u64,
    /// The part of the program in which it happened.
    pub phase: Phase,
    /// The user's innermost line.
    pub site: Option<HookSite>,
    /// The innermost line of a library below it that computes something.
    pub library_site: Option<HookSite>,
    /// The module at work by its path in the model, such as `model.layers.17.mlp`.
    pub module: Option<String>,
    /// The class of the model that was called.
    pub model: Option<String>,
    /// Whether the error ended the program rather than being caught.
    pub fatal: bool,
    /// Whether the program never asked for what was refused, so that it ended as if there had been memory: JAX runs ahead.
    pub unread: bool,
    /// Whether the handler that caught it is the program's own and asks for this error: it knows what to do then.
    #[serde(skip_serializing_if = "is_no")]
    pub meant: bool,
    /// Whether it came from another process, which raised it: a worker of a pool or of a loader.
    #[serde(skip_serializing_if = "is_no")]
    pub relayed: bool,
    /// How many optimizer steps were made since.
    #[serde(skip_serializing_if = "is_zero")]
    pub steps_since: u64,
}

/// A line of the user's program, or of a library.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookSite {
    /// The file.
    pub file: String,
    /// The line, counted from 1.
    pub line: u32,
    /// The function.
    pub function: String,
    /// The number of the notebook's cell that the line is in; the line counts from the cell's first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cell: Option<u32>,
    /// The line's text, where no file has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hook_json_is_what_the_contract_says() {
        let config = HookConfig {
            schema: HookConfigSchema,
            stop: Stop { mode: StopMode::PeakStable, steps: 3, budget_seconds: None },
            follow: true,
            values: Values::AllHost,
            allow_writes: false,
            network: Network::Read,
            random_weights: true,
            program_root: PathBuf::from("/cwd"),
            history: true,
            history_entries: None,
            names: true,
            remedies: Vec::new(),
            edited: Default::default(),
            ranks: None,
            routing: Routing::Balanced,
            batches: Batches::Longest,
            unknown_sizes: UnknownSizes::Most,
            pools: Pools::AsNeeded,
            guard: None,
            reads: false,
            bytecode: None,
            compare: None,
        };
        assert_eq!(
            serde_json::to_string(&config).unwrap(),
            r#"{"schema":"oomph.hook-config/1","stop":{"mode":"peak-stable","steps":3},"values":"all-host","allow_writes":false,"random_weights":true,"program_root":"/cwd","history":true}"#
        );
    }

    #[test]
    fn a_remedy_is_named_with_its_options() {
        let text = r#"{"id":"micro-batch","options":{"divide_by":4}}"#;
        let remedy: HookRemedy = serde_json::from_str(text).unwrap();
        assert_eq!(remedy.options["divide_by"], 4);
        assert_eq!(serde_json::to_string(&remedy).unwrap(), text);
    }

    #[test]
    fn what_the_program_is_survives_odd_values() {
        let report: HookReport = serde_json::from_str(
            r#"{"pid":7,
                "remedies":[{"id":"sdpa","state":"refused","what":"no attention"},{"id":"x","state":"later"}],
                "program":{"task":"training","trainer":{"class":"Trainer","arguments":{
                    "per_device_train_batch_size":"auto","bf16":true,"optim":"adamw_torch"}},
                  "loop":{"recognized":true,"file":"train.py","line":41},"later":1}}"#,
        )
        .unwrap();
        assert_eq!(report.remedies[0].state, RemedyState::Refused);
        assert_eq!(report.remedies[1].state, RemedyState::Unused);
        let program = report.program.unwrap();
        let arguments = program.trainer.unwrap().arguments;
        assert_eq!((arguments.per_device_train_batch_size, arguments.bf16), (None, Some(true)));
        assert_eq!(program.plain_loop.unwrap().line, Some(41));

        // A description that cannot be read costs the description, not the report.
        let report: HookReport = serde_json::from_str(r#"{"pid":8,"program":{"models":7}}"#).unwrap();
        assert_eq!((report.pid, report.program), (8, None));
    }

    #[test]
    fn a_report_may_lack_or_add_fields() {
        let report: HookReport = serde_json::from_str(
            r#"{"pid":7,"later":[1],"rank":null,"oom":{"requested_bytes":5,"site":{"file":"a.py","line":3}}}"#,
        )
        .unwrap();
        assert_eq!(report.pid, 7);
        let oom = report.oom.unwrap();
        assert_eq!((oom.requested_bytes, oom.site.unwrap().line), (5, 3));
    }
}
