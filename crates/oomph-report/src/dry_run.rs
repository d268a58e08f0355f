//! The answer of `oomph dry-run`, `oomph.dry-run/1`.

use std::collections::BTreeMap;

use oomph_explain::snapshot::{Group, OwnerRow};
use oomph_gpu::Kind;
pub use oomph_protocol::{Phase, Stopped, Verdict};
use serde::{Deserialize, Serialize};

use crate::activity::Activity;
use crate::batches::Batches;
use crate::doubt::{Fault, HostShortage, Unsure};
use crate::followed::{FollowedLoop, PhasePeak, Unreached};
use crate::worst::WorstCard;

/// The `gpu` of a device that had no limit.
pub const UNBOUNDED: &str = "unbounded";

/// The `gpu` of a device that was given a capacity and no name.
pub const CUSTOM: &str = "custom";

oomph_protocol::schema!(DryRunSchema, "oomph.dry-run/1");

/// Whether a program fits, what it needs, and where it died if it did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DryRunReport {
    /// Name and version of this document.
    pub schema: DryRunSchema,
    /// The answer in one word.
    pub verdict: Verdict,
    /// The program's exit status; 128 + N where signal N ended it, as a shell reports it. 0 where oomph ended the
    /// program because it had seen enough.
    pub exit_status: i32,
    /// Why the run ended.
    pub stopped: Stopped,
    /// Optimizer steps taken, the most of any process.
    pub steps: u64,
    /// Wall time of the program on the virtual GPU, in seconds, without the second run after an OOM.
    pub elapsed_seconds: f64,
    /// Frameworks that were seen, with their versions.
    pub frameworks: BTreeMap<String, String>,
    /// The virtual cards, by CUDA index.
    pub devices: Vec<DeviceReport>,
    /// Identifiers of all catalogue cards that hold the program: those that can be bought or rented smallest first,
    /// then laptops' GPUs, slices and modules likewise. Where the program used several cards, a card is listed when
    /// that many of it hold the program. Empty also where the need is not known
    /// (`would_need_bytes` is `null` after an OOM).
    pub fits_on: Vec<String>,
    /// What the program's own calls to allocate, free and copy tell its author; `null` where it made none.
    #[serde(default)]
    pub activity: Option<Activity>,
    /// What weakens the answer, one sentence each.
    pub warnings: Vec<String>,
    /// The program and its arguments.
    #[serde(default)]
    pub command: Vec<String>,
    /// Some of the smallest cards of `fits_on`, with their figures. Not all of them are slices or laptops' cards
    /// where there are ordinary ones.
    #[serde(default)]
    pub smallest: Vec<CardThatHolds>,
    /// What one would run next.
    #[serde(default)]
    pub next: Vec<NextStep>,
    /// How the batches that it trained on differ in size; `null` where they do not.
    #[serde(default)]
    pub batches: Option<Batches>,
    /// What XLA says that the largest compiled programs need, the largest first.
    #[serde(default)]
    pub compiled: Vec<CompiledProgram>,
    /// Which of several cards decides, and why; `null` where fewer than two were used.
    #[serde(default)]
    pub worst: Option<WorstCard>,
    /// Loops of the program that were shortened, or whose memory grows.
    #[serde(default)]
    pub loops: Vec<FollowedLoop>,
    /// What the program would do and the run did not reach.
    #[serde(default)]
    pub unreached: Vec<Unreached>,
    /// Whether it fits with less room than the upper end of the interval asks for.
    #[serde(default)]
    pub tight: bool,
    /// What the verdict depends on, where that is `unsure`.
    #[serde(default)]
    pub unsure: Option<Unsure>,
    /// The host's memory that ran out, where that ended the program.
    #[serde(default)]
    pub host: Option<HostShortage>,
    /// What the program wrote into a place of the run's, and would have written to the files of the user; `null` where it
    /// could write to those.
    #[serde(default)]
    pub writes: Option<Writes>,
    /// Why oomph could not run the program, where the virtual GPU is to blame; the verdict is `failed`.
    #[serde(default)]
    pub fault: Option<Fault>,
    /// Why something other than the cards did the work, in a sentence; the verdict is `failed`.
    #[serde(default)]
    pub fallback: Option<String>,
}

/// What a program wrote, all of which is removed with the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Writes {
    /// What kept it away from the files of the user.
    pub kept_away_by: WriteFloor,
    /// Why it was not the kernel; `null` where it was.
    pub reason: Option<String>,
    /// How many files it wrote or removed.
    pub count: u64,
    /// Their sizes added up.
    pub bytes: u64,
    /// The files, by path. Of very many only some.
    pub files: Vec<WrittenFile>,
}

/// What keeps a program from changing the files of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum WriteFloor {
    /// The kernel: every process of the program sees private mounts.
    Kernel,
    /// The kernel, by means of a user namespace.
    UserNamespace,
    /// The kernel, which refuses to write outside the run's folders, with the hook, which redirects what Python writes.
    Fence,
    /// The hook, which redirects what Python writes.
    Hook,
}

/// A file that a program wrote or removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WrittenFile {
    /// Its path.
    pub path: String,
    /// Its size; `null` where it was removed.
    pub bytes: Option<u64>,
}

/// One virtual card and what the program did on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceReport {
    /// The card's CUDA index.
    pub index: u32,
    /// The card's identifier in the catalogue, [`UNBOUNDED`] or [`CUSTOM`].
    pub gpu: String,
    /// What CUDA reports as the card's total, in bytes; `null` for a card without a limit.
    pub capacity_bytes: Option<u64>,
    /// The program's peak on this card. After an OOM: up to then.
    pub peak: Peak,
    /// The out-of-memory error that ended the program, if it arose on this card.
    pub oom: Option<Oom>,
    /// The card's name as CUDA printed it to the program. For [`UNBOUNDED`] and [`CUSTOM`] it is the card whose
    /// properties were used.
    #[serde(default)]
    pub gpu_name: String,
    /// The identifier of the card that was named, where it was given another capacity (`--vram`) or none.
    #[serde(default)]
    pub like: Option<String>,
    /// The card that this one is like: its rank of the job was not run but answered for.
    #[serde(default)]
    pub as_device: Option<u32>,
    /// What of the card's figures was measured here by `oomph calibrate` and differs from the catalogue.
    #[serde(default)]
    pub correction: Option<crate::CardCorrection>,
    /// How many processes had a context on this card.
    #[serde(default)]
    pub processes: u32,
    /// What the card has to hold, where that was looked for: the peak on the smallest card that holds the program,
    /// or the peak without a limit where `smallest_capacity` says so.
    #[serde(default)]
    pub needed: Option<Peak>,
    /// The smallest capacity that holds the program, and how that is known.
    #[serde(default)]
    pub smallest_capacity: Option<SmallestCapacity>,
    /// Whether the second run ended early for another reason, so that `needed` is the least that it needs.
    #[serde(default)]
    pub needed_is_minimum: bool,
    /// The parts of the peak that were modelled and not executed, with their bounds.
    #[serde(default)]
    pub modelled: Vec<ModelledTerm>,
    /// Out-of-memory errors that the program caught and survived, the last of each process.
    #[serde(default)]
    pub caught_ooms: Vec<Oom>,
    /// Whose memory it was; `null` where that was not recorded.
    #[serde(default)]
    pub whose: Option<Whose>,
    /// The framework's pool, where it keeps one that is not PyTorch's: JAX, TensorFlow.
    #[serde(default)]
    pub pool: Option<Pool>,
    /// The phases of the program with their peaks, in the order in which they came first.
    #[serde(default)]
    pub phases: Vec<PhasePeak>,
}

/// The smallest card of a kind that holds a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SmallestCapacity {
    /// The capacity in bytes, as CUDA reports a card's total.
    pub capacity_bytes: u64,
    /// How it is known.
    pub how: CapacityKnown,
    /// The largest smaller capacity on which the program was seen to run out of memory, in bytes.
    pub fails_bytes: Option<u64>,
    /// What the framework reserved in the run that the search began with, in bytes.
    pub reserved_bytes: Option<u64>,
    /// The part of that which is cache and would be given back on a smaller card, in bytes.
    pub given_back_bytes: u64,
    /// A smaller capacity on which the program may run as well, in bytes: cuDNN's convolutions do with less workspace where
    /// there is less. It was not run there. `null` where that makes no difference, or runs have shown it.
    #[serde(default)]
    pub may_hold_bytes: Option<u64>,
    /// How many runs the search took.
    pub runs: u32,
    /// The capacities that the program was run on, where it adapts to the card; empty where one run stands for others.
    #[serde(default)]
    pub ran_on: Vec<RanOn>,
}

/// A run on a card of some capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RanOn {
    /// What the card had, in bytes.
    pub bytes: u64,
    /// Whether it held the program.
    pub held: bool,
}

/// How the smallest capacity is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CapacityKnown {
    /// The program was run on it.
    Run,
    /// What it requested was replayed through the allocator's model.
    Replayed,
    /// It is the peak on a card without a limit, where the cache is never given back.
    Peak,
}

/// The memory of a card that a framework itself divides up. It grows by doubling, and may be taken whole at the start,
/// so it is larger than what the program needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pool {
    /// The most that it may take of this card, in bytes; `null` where that is not known.
    pub limit_bytes: Option<u64>,
    /// What the limit would be on another card.
    pub scales: PoolScale,
    /// Whether it was taken whole at the start.
    pub preallocated: bool,
}

/// How a pool's limit follows the size of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PoolScale {
    /// A part of the card: JAX takes at most three quarters unless it is configured otherwise.
    Share,
    /// All of the card but so many bytes: TensorFlow leaves some to the system.
    Reserve,
    /// So many bytes on any card.
    Fixed,
}

/// What XLA says that a compiled program needs on each card, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CompiledProgram {
    /// Its name, such as `jit_train_step`.
    pub name: String,
    /// What it is given.
    pub argument_bytes: u64,
    /// What it gives back.
    pub output_bytes: u64,
    /// The part of the outputs that takes the place of arguments.
    pub alias_bytes: u64,
    /// What it needs in addition to those while it runs.
    pub temp_bytes: u64,
}

/// Whose memory it was, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Whose {
    /// The moment: `peak`, or `oom` where the program died on this card.
    pub at: String,
    /// The owners, largest first. They add up to what was reserved at that moment, the contexts and what libraries took
    /// outside of the framework.
    pub owners: Vec<OwnerRow>,
    /// Live bytes by the line of the program, largest first.
    pub by_line: Vec<Group>,
    /// Live bytes by module, where modules were seen.
    pub by_module: Vec<Group>,
    /// Live bytes by data type.
    pub by_dtype: Vec<Group>,
    /// Live bytes by the part of the program that allocated them.
    pub by_phase: Vec<Group>,
}

/// The most memory that was in use on a card, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Peak {
    /// Everything on the card at the card's fullest moment, contexts included: what `nvidia-smi` would show. With
    /// one process on the card this is the process's peak; with several, the peak of their sum.
    pub process_bytes: u64,
    /// The framework's own peak of reserved memory; with several processes on the card, their sum. `null` where no
    /// framework reported it.
    pub reserved_bytes: Option<u64>,
    /// The framework's own peak of allocated memory, likewise.
    pub allocated_bytes: Option<u64>,
    /// The CUDA contexts with their modules (modelled).
    pub context_bytes: u64,
    /// What is left: libraries that take memory outside the framework's allocator, and other allocators.
    pub other_bytes: u64,
    /// The least that `process_bytes` may be on a real card.
    pub low_bytes: u64,
    /// The most that `process_bytes` may be on a real card.
    pub high_bytes: u64,
}

/// A part of the peak that comes from a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelledTerm {
    /// What it is: `"context"`, for example.
    pub what: String,
    /// The figure that was used, in bytes.
    pub bytes: u64,
    /// The least that it may be, in bytes.
    pub low_bytes: u64,
    /// The most that it may be, in bytes.
    pub high_bytes: u64,
    /// Where the figures come from.
    pub source: String,
}

/// An out-of-memory error, as the framework raised it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Oom {
    /// What was asked for, in bytes; 0 where the error does not tell.
    pub requested_bytes: u64,
    /// What the framework had allocated at that moment, in bytes.
    pub allocated_bytes: Option<u64>,
    /// What the framework had reserved at that moment, in bytes.
    pub reserved_bytes: Option<u64>,
    /// What was free on the card at that moment, in bytes.
    pub free_bytes: Option<u64>,
    /// The framework's own words.
    pub message: String,
    /// The optimizer step in which it happened, from 1; `null` where nobody counted.
    pub step: Option<u64>,
    /// The part of the program in which it happened.
    pub phase: Phase,
    /// The user's innermost line.
    pub site: Option<Site>,
    /// What the card would have to hold for the program to run, contexts included, in bytes; `null` where it was not
    /// tried.
    pub would_need_bytes: Option<u64>,
    /// Whether the error was not run into but follows from memory that grows with each iteration.
    #[serde(default)]
    pub forecast: bool,
    /// The innermost line of a library below the user's that computes something.
    #[serde(default)]
    pub library_site: Option<Site>,
    /// The module at work by its path in the model, such as `model.layers.17.mlp`; `null` for the model itself.
    #[serde(default)]
    pub module: Option<String>,
    /// The class of the model that was called; `null` outside of any.
    #[serde(default)]
    pub model: Option<String>,
    /// What a program that caught the error did instead, as far as that is known.
    #[serde(default)]
    pub instead: Option<Instead>,
}

/// What a program did after an out-of-memory error that it caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Instead {
    /// What the line that failed first requested, in bytes.
    pub requested_bytes: u64,
    /// The most that the same line was granted after the last error, in bytes.
    pub granted_bytes: u64,
    /// How many errors there were at that line.
    pub errors: u32,
}

/// A line of the user's program, or of a library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Site {
    /// The file, as the program named it.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// The function that the line is in.
    pub function: String,
    /// The line's text, where the file could be read.
    #[serde(default)]
    pub text: Option<String>,
    /// The number of the notebook's cell that the line is in, as in `In [5]`; the line counts from the cell's first.
    #[serde(default)]
    pub cell: Option<u64>,
}

/// A card that holds the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CardThatHolds {
    /// The card's identifier in the catalogue.
    pub gpu: String,
    /// The card's name as CUDA prints it.
    pub gpu_name: String,
    /// What kind of card it is: one cannot simply buy a slice of a card, or a laptop's.
    pub kind: Kind,
    /// What CUDA reports as its total, in bytes.
    pub capacity_bytes: u64,
    /// What would be left free on it, in bytes.
    pub spare_bytes: u64,
    /// Whether the program was run on a card of this capacity.
    #[serde(default)]
    pub confirmed: bool,
    /// Whether less is left than the upper end of the interval asks for.
    #[serde(default)]
    pub tight: bool,
}

/// A command that one would run next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NextStep {
    /// What it is for.
    pub why: String,
    /// The command, ready for a shell.
    pub command: String,
}

impl DryRunReport {
    /// The device whose out-of-memory error ended the program.
    #[must_use]
    pub fn oom_device(&self) -> Option<(&DeviceReport, &Oom)> {
        self.devices.iter().find_map(|device| Some((device, device.oom.as_ref()?)))
    }
}

impl DeviceReport {
    /// What this card has to hold for the program to run, as far as that is known: the peak of the second run where
    /// there was one, else the peak where nothing was refused.
    #[must_use]
    pub fn need(&self) -> Option<Peak> {
        match (self.needed, &self.oom) {
            (Some(needed), _) => Some(needed),
            (None, Some(_)) => None,
            (None, None) => Some(self.peak),
        }
    }
}

impl CompiledProgram {
    /// What it needs on a card while it runs, in bytes.
    #[must_use]
    pub fn need_bytes(&self) -> u64 {
        let all = self.argument_bytes.saturating_add(self.output_bytes).saturating_add(self.temp_bytes);
        all.saturating_sub(self.alias_bytes)
    }
}

impl Peak {
    /// What the framework reserved beyond what was allocated, in bytes; 0 where no framework reported it.
    #[must_use]
    pub fn cached_bytes(&self) -> u64 {
        self.reserved_bytes.unwrap_or(0).saturating_sub(self.allocated_bytes.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contract_has_its_fields_in_order() -> Result<(), serde_json::Error> {
        let report = DryRunReport {
            schema: DryRunSchema,
            verdict: Verdict::NoGpuUse,
            exit_status: 0,
            stopped: Stopped::PeakStable,
            steps: 3,
            elapsed_seconds: 5.1,
            frameworks: BTreeMap::from([("torch".into(), "2.15.0+cu132".into())]),
            devices: vec![DeviceReport {
                index: 0,
                gpu: "rtx-3060".into(),
                capacity_bytes: Some(1),
                peak: Peak::default(),
                oom: Some(Oom {
                    requested_bytes: 1,
                    allocated_bytes: Some(2),
                    reserved_bytes: None,
                    free_bytes: Some(3),
                    message: "out of memory".into(),
                    step: Some(1),
                    phase: Phase::Backward,
                    site: Some(Site { file: "a.py".into(), line: 1, function: "f".into(), text: None, cell: None }),
                    would_need_bytes: None,
                    forecast: false,
                    library_site: None,
                    module: None,
                    model: None,
                    instead: None,
                }),
                gpu_name: String::new(),
                like: None,
                as_device: None,
                correction: None,
                processes: 1,
                needed: None,
                smallest_capacity: None,
                needed_is_minimum: false,
                modelled: vec![],
                caught_ooms: vec![],
                whose: None,
                pool: None,
                phases: Vec::new(),
            }],
            fits_on: vec![],
            activity: None,
            warnings: vec![],
            command: vec![],
            smallest: vec![],
            next: vec![],
            batches: None,
            compiled: vec![],
            worst: None,
            loops: Vec::new(),
            unreached: Vec::new(),
            tight: false,
            unsure: None,
            host: None,
            writes: None,
            fault: None,
            fallback: None,
        };
        let text = serde_json::to_string(&report)?;
        let contract = concat!(
            r#"{"schema":"oomph.dry-run/1","verdict":"no-gpu-use","exit_status":0,"stopped":"peak-stable","steps":3,"#,
            r#""elapsed_seconds":5.1,"frameworks":{"torch":"2.15.0+cu132"},"#,
            r#""devices":[{"index":0,"gpu":"rtx-3060","capacity_bytes":1,"#,
            r#""peak":{"process_bytes":0,"reserved_bytes":null,"allocated_bytes":null,"context_bytes":0,"#,
            r#""other_bytes":0,"low_bytes":0,"high_bytes":0},"#,
            r#""oom":{"requested_bytes":1,"allocated_bytes":2,"reserved_bytes":null,"free_bytes":3,"#,
            r#""message":"out of memory","step":1,"phase":"backward","#,
            r#""site":{"file":"a.py","line":1,"function":"f","text":null,"cell":null},"would_need_bytes":null,"#,
            r#""forecast":false,"library_site":null,"module":null,"model":null,"instead":null},"#,
        );
        assert!(text.starts_with(contract), "{text}");
        assert_eq!(serde_json::from_str::<DryRunReport>(&text)?, report);
        Ok(())
    }

    #[test]
    fn another_version_is_refused() {
        assert!(serde_json::from_str::<DryRunSchema>("\"oomph.dry-run/2\"").is_err());
    }
}
