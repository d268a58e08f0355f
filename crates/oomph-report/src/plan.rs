//! The answer of `oomph plan`, `oomph.plan/1`.

use std::collections::BTreeMap;

use oomph_protocol::TapePhase;
use serde::Serialize;

oomph_protocol::schema!(PlanSchema, "oomph.plan/1");

/// What a workload on a model needs, and what follows from it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlanReport {
    /// Name and version of this document.
    pub schema: PlanSchema,
    /// The model's name.
    pub model: String,
    /// Its parameters.
    pub parameters: u64,
    /// Those that are trained.
    pub trained_parameters: u64,
    /// What is done with it.
    pub task: String,
    /// The settings that the figures are for, as they would be typed.
    pub settings: Vec<String>,
    /// Each card that was asked for; one without a name where none was.
    pub devices: Vec<PlannedDevice>,
    /// When the peak is.
    pub phase: TapePhase,
    /// Memory of the computer that offloading takes, in bytes.
    pub host_bytes: u64,
    /// The largest that fits on the first card; `null` where nothing was asked of a card.
    pub limits: Option<PlannedLimits>,
    /// What to change, the best first.
    pub remedies: Vec<PlannedRemedy>,
    /// The smallest cards of the catalogue that hold it.
    pub smallest: Vec<PlannedCard>,
    /// The sum, term by term, where it was asked for.
    pub terms: Vec<PlannedTerm>,
    /// Cards by precisions, where it was asked for.
    pub table: Option<PlannedTable>,
    /// What a dry run of the plan said, where one was asked for.
    pub verify: Option<Verified>,
    /// What weakens the answer, one sentence each.
    pub warnings: Vec<String>,
}

/// One card and whether the workload fits on it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlannedDevice {
    /// Its name in the catalogue; `null` where none was asked for.
    pub gpu: Option<String>,
    /// How many of it.
    pub count: u64,
    /// What CUDA reports as its total, in bytes.
    pub capacity_bytes: Option<u64>,
    /// The peak of a process, in bytes: lower in one case of two hundred.
    pub low_bytes: u64,
    /// As often lower as higher.
    pub expected_bytes: u64,
    /// Higher in one case of two hundred.
    pub high_bytes: u64,
    /// Whether it fits.
    pub fits: Option<Fits>,
    /// How likely it is that it fits.
    pub probability: Option<f64>,
    /// Whose bytes they are; they add up to what is expected.
    pub owners: Vec<PlannedOwner>,
    /// What of the model the card has, where it is split over several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds: Option<String>,
}

/// Whether a workload fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Fits {
    /// The whole interval is within the card.
    Yes,
    /// The whole interval is beyond it.
    No,
    /// The card's capacity lies in the interval.
    Maybe,
}

/// Bytes of one owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlannedOwner {
    /// The owner.
    pub owner: String,
    /// Bytes.
    pub bytes: u64,
}

/// The largest that fits, other things as they are. 0 where not even one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlannedLimits {
    /// Samples (or images) at a time.
    pub max_batch: Option<u64>,
    /// Tokens of a sample.
    pub max_context: Option<u64>,
    /// Pixels along a side of a square image.
    pub max_resolution: Option<u64>,
}

/// One change and what it does to the total.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlannedRemedy {
    /// Its name in the catalogue of remedies.
    pub id: String,
    /// A few words.
    pub title: String,
    /// What is expected after it, in bytes.
    pub expected_bytes: u64,
    /// What it frees, in bytes; below 0 where it needs more.
    pub saves_bytes: i64,
    /// How likely it is that it fits then; `null` where no card was asked for.
    pub probability: Option<f64>,
    /// Whether the result changes.
    pub changes_result: bool,
}

/// A card that holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlannedCard {
    /// Its name in the catalogue.
    pub gpu: String,
    /// What CUDA reports as its total, in bytes.
    pub capacity_bytes: u64,
    /// What is expected on it, in bytes.
    pub expected_bytes: u64,
}

/// One term of the sum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlannedTerm {
    /// Whose bytes they are.
    pub owner: String,
    /// How they come about.
    pub formula: String,
    /// Where that is from.
    pub source: String,
    /// Bytes.
    pub bytes: u64,
}

/// Cards by precisions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlannedTable {
    /// The precisions (or tasks), one a column, and what is expected of each in bytes.
    pub columns: Vec<(String, u64)>,
    /// Cards, one a row, and for each column whether it fits.
    pub rows: Vec<(String, Vec<Fits>)>,
}

/// What a dry run of the plan's program said.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verified {
    /// The peak of the process in the dry run, in bytes, on a card without a limit.
    pub dry_run_bytes: u64,
    /// PyTorch's own peak of reserved memory in it, in bytes.
    pub dry_run_reserved_bytes: Option<u64>,
    /// PyTorch's own peak of allocated memory in it, in bytes.
    pub dry_run_allocated_bytes: Option<u64>,
    /// What the plan expected, in bytes.
    pub expected_bytes: u64,
    /// How far what was expected is from the dry run, in percent of the dry run; below 0 where it was too low.
    pub difference_percent: f64,
    /// Whether the dry run is within the plan's bounds.
    pub within: bool,
    /// Whether it fitted the card in the dry run; `null` where no card was asked for.
    pub fits: Option<bool>,
    /// The packages that ran, with their versions.
    pub frameworks: BTreeMap<String, String>,
}
