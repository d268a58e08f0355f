//! The answer of `oomph dry-run`, `oomph.dry-run/1`.

use std::collections::BTreeMap;

use oomph_gpu::Kind;
use oomph_protocol::{Stopped, Verdict};
use serde::{Deserialize, Serialize};

use crate::activity::Activity;
use crate::batches::Batches;
use crate::device::DeviceReport;
use crate::doubt::{Fault, HostShortage, MissingCard, Unsure, Waiting};
use crate::followed::{FollowedLoop, Unreached};
use crate::oom::Oom;
use crate::worst::WorstCard;
use crate::writes::Writes;

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
    /// Where the program waited for something that never came; `null` where it did not.
    #[serde(default)]
    pub waits: Option<Waiting>,
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
    /// The card that the program asked for and that the run lacks, where that ended it or kept it from using a GPU; the verdict is
    /// `failed` or `no-gpu-use`.
    #[serde(default)]
    pub missing_card: Option<MissingCard>,
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

impl CompiledProgram {
    /// What it needs on a card while it runs, in bytes.
    #[must_use]
    pub fn need_bytes(&self) -> u64 {
        let all = self.argument_bytes.saturating_add(self.output_bytes).saturating_add(self.temp_bytes);
        all.saturating_sub(self.alias_bytes)
    }
}

#[cfg(test)]
mod tests {
    use oomph_protocol::Phase;

    use super::*;
    use crate::device::Peak;
    use crate::site::Site;

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
                peak_is_maximum: false,
                modelled: vec![],
                caught_ooms: vec![],
                whose: None,
                pool: None,
                allowed: None,
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
            waits: None,
            host: None,
            writes: None,
            fault: None,
            fallback: None,
            missing_card: None,
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
