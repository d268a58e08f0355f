//! The answer of `oomph fix`, `oomph.fix/1`.

use oomph_explain::snapshot::OwnerRow;
use oomph_protocol::Verdict;
use oomph_remedy::search::Prefer;
use serde::{Deserialize, Serialize};

use crate::dry_run::NextStep;
use crate::oom::Oom;

oomph_protocol::schema!(FixSchema, "oomph.fix/1");

/// The changes with which a program fits, each of them tried, cheapest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FixReport {
    /// Name and version of this document.
    pub schema: FixSchema,
    /// The answer in one word.
    pub verdict: FixVerdict,
    /// The unmodified program.
    pub baseline: Baseline,
    /// What makes it fit, in the order of `order`.
    pub fixes: Vec<FixRow>,
    /// Everything else that was tried, in order.
    pub attempts: Vec<Attempt>,
    /// Remedies that cannot be applied to this program.
    pub dropped: Vec<Dropped>,
    /// What is left when everything was tried and nothing fits.
    pub floor: Option<Floor>,
    /// Where the time was up before anything fitted: what should fit by the forecast and was not tried.
    #[serde(default)]
    pub foretold: Option<Foretold>,
    /// How many changes were tried.
    pub tried: u64,
    /// Wall time of everything, in seconds.
    pub elapsed_seconds: f64,
    /// Whether the time was up, or as many changes were tried as a search may try, before everything was tried.
    pub out_of_time: bool,
    /// What was left untried then: ids of remedies, with the amount where there is one.
    #[serde(default)]
    pub untried: Vec<String>,
    /// What weakens the answer, one sentence each.
    pub warnings: Vec<String>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// What one would run next.
    pub next: Vec<NextStep>,
    /// Which of the fixes comes first.
    #[serde(default)]
    pub order: Prefer,
}

/// The answer in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FixVerdict {
    /// The program fits unchanged.
    FitsAlready,
    /// There is at least one fix.
    Fixed,
    /// Nothing that was tried makes it fit.
    NothingFits,
    /// The program failed for another reason, so that there is nothing to fix.
    Failed,
}

/// The unmodified program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Baseline {
    /// What became of it on the card.
    pub verdict: Verdict,
    /// The card's identifier in the catalogue.
    pub gpu: String,
    /// The card's name as CUDA prints it.
    pub gpu_name: String,
    /// What CUDA reports as the card's total, in bytes; `null` for a card without a limit.
    pub capacity_bytes: Option<u64>,
    /// What the program may take: the capacity, or less where that was asked for, in bytes.
    pub limit_bytes: Option<u64>,
    /// What it needs, in bytes: its peak on the card where it fits, else on a card without a limit. `null` where that
    /// is not known.
    pub peak_bytes: Option<u64>,
    /// Whether it needs at least that much, because it did not come to its end there.
    pub peak_is_minimum: bool,
    /// The most that it was seen to die with, in bytes, where the search for what it needs ended before that was close to
    /// [`Self::peak_bytes`]: it needs something between the two. `null` where the need is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub died_with_bytes: Option<u64>,
    /// Whose memory it is at the peak, largest first.
    pub owners: Vec<OwnerRow>,
    /// The out-of-memory error.
    pub oom: Option<Oom>,
}

/// Why the price of a fix is not computed where no framework allocates for the program: its kernels are its own. What it is
/// said to cost then follows from what it does, and was published nowhere.
pub const KERNELS_UNKNOWN: &str = "what the kernels compute is not known";

impl FixRow {
    /// What it costs in time, in words: as computed, else as published for other programs.
    pub fn time(&self) -> String {
        let Some(TimeRatio { low, high }) = self.slowdown else {
            let own = self.slowdown_unknown.as_deref() == Some(KERNELS_UNKNOWN);
            return if own { self.time_cost.clone() } else { format!("published: {}", self.time_cost) };
        };
        // A step's time is not known more finely than this.
        if low >= 0.97 && high <= 1.03 {
            return "about the time of a step".to_owned();
        }
        let times = if high - low < 0.02 { format!("{high:.2}x") } else { format!("{low:.2}x to {high:.2}x") };
        format!("{times} the time of a step")
    }
}

/// How many times as long something takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TimeRatio {
    /// The least ratio.
    pub low: f64,
    /// The most.
    pub high: f64,
}

/// A change, or several together, with which the program fits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FixRow {
    /// The remedies' ids in the catalogue, with the amount where there is one: `micro-batch/4`.
    pub remedies: Vec<String>,
    /// A few words for each remedy.
    pub titles: Vec<String>,
    /// Whether it was run as it would be applied, or was seen from inside to take effect.
    pub verified: bool,
    /// What became of the program.
    pub verdict: Verdict,
    /// Its peak with the change, in bytes, contexts included.
    pub peak_bytes: u64,
    /// What it needs less than before, in bytes; negative where it needs more, `null` where the need is not known.
    pub saves_bytes: Option<i64>,
    /// What is left free of what it may take, in bytes.
    pub room_bytes: Option<u64>,
    /// What happens to the result.
    pub result: ResultChange,
    /// What was found by running it with real numbers next to the program; `null` where that was not asked for, or where it is meant
    /// to compute something else.
    #[serde(default)]
    pub comparison: Option<Comparison>,
    /// What it is said to cost in time elsewhere, in words.
    pub time_cost: String,
    /// How much longer a step takes than before, for the same samples, computed from what both compute and move; `null` where
    /// that is not known.
    #[serde(default)]
    pub slowdown: Option<TimeRatio>,
    /// Why `slowdown` is not known, in a clause.
    #[serde(default)]
    pub slowdown_unknown: Option<String>,
    /// What it costs in quality, in words, where it costs any.
    pub quality_cost: Option<String>,
    /// What was seen of it from inside, one sentence for each remedy.
    pub evidence: Vec<String>,
    /// The words to apply it.
    pub apply: Vec<Apply>,
    /// The whole command line with it, ready for a shell, where flags and variables say it all.
    pub command: Option<String>,
    /// What the user should know.
    pub notes: Vec<String>,
    /// How long the search had gone on when its trial ended, in seconds; `null` where that is not known.
    #[serde(default)]
    pub found_after_seconds: Option<f64>,
    /// The change of the program's files as a unified diff, relative to the folder in which `oomph` was started; `null`
    /// where no file changes. The patched files are what was run.
    #[serde(default)]
    pub patch: Option<String>,
    /// Whether a part of it has to be written into the program by hand: its place in the code was not certain.
    #[serde(default)]
    pub by_hand: bool,
    /// Whether it fits, but not with the upper end of what the peak may be on a real card.
    #[serde(default)]
    pub tight: bool,
}

/// What happens to the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ResultChange {
    /// The same numbers.
    Same,
    /// The same mathematics in another order.
    Equivalent,
    /// Another method with nearly the same result.
    Approximate,
    /// Another result.
    Changed,
    /// The same but for the order in which random numbers are drawn.
    SameInDistribution,
    /// The same by its kind, which was not compared with the program in numbers.
    NotCompared,
}

/// What the program and the changed program computed, run with real numbers on the host's processor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Comparison {
    /// What was found.
    pub outcome: Compared,
    /// The largest relative difference: of the gradients of a step, or of what the program held; `null` where nothing was compared,
    /// or where it is no number.
    pub difference: Option<f64>,
    /// The largest that a change in the last digit of the weights makes in the unmodified program, where that was run.
    pub rounding: Option<f64>,
    /// What differs first, in a clause.
    pub first: Option<String>,
    /// How many optimizer steps were compared.
    pub steps: u64,
    /// In what the compared programs were smaller, a clause each.
    pub reduced: Vec<String>,
    /// Why nothing was compared.
    pub why: Option<String>,
}

/// What a comparison found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Compared {
    /// The same but for rounding.
    Equal,
    /// The same but for the order in which random numbers are drawn.
    SameInDistribution,
    /// Another result.
    Other,
    /// Nothing: it could not be run so, or was not asked for.
    #[default]
    NotCompared,
}

/// Words that apply a remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Apply {
    /// `flag`, `env`, `code`, `config`, `action`, or `patch` for a unified diff of the program's files.
    pub kind: String,
    /// The words.
    pub text: String,
    /// The remedy that they apply.
    pub remedy: String,
}

/// A change that was tried and is not a fix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Attempt {
    /// The remedies, as of [`FixRow::remedies`].
    pub remedies: Vec<String>,
    /// What became of the program.
    pub verdict: Verdict,
    /// Its peak, in bytes, where it is known; after an out-of-memory error it needs more.
    pub peak_bytes: Option<u64>,
    /// What it saves, in bytes, where that is known; negative where it costs memory.
    pub saves_bytes: Option<i64>,
    /// Why, in a clause, where it failed or was not applied.
    pub why: Option<String>,
}

/// A remedy that cannot be applied to this program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Dropped {
    /// The remedy's id.
    pub remedy: String,
    /// Why.
    pub why: String,
}

/// A change that was not tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Foretold {
    /// The remedies that would be applied together.
    pub remedies: Vec<String>,
    /// The peak that the owners of the peak and the catalogue's shares foretell, in bytes.
    pub peak_bytes: u64,
}

/// What is left when everything was tried and nothing fits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Floor {
    /// The remedies that were applied together.
    pub remedies: Vec<String>,
    /// What the program still needs with them, in bytes; `null` where that is not known.
    pub peak_bytes: Option<u64>,
    /// The smallest card of the catalogue that would do with them.
    pub smallest_gpu: Option<String>,
    /// How many of this card would do with the weights, gradients and states split over them (ZeRO 3, FSDP), by
    /// arithmetic.
    pub cards_when_split: Option<u32>,
    /// What one of them would hold then, in bytes.
    pub bytes_per_card: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contract_has_its_fields() -> Result<(), serde_json::Error> {
        let row = FixRow {
            remedies: vec!["vae-slicing".into()],
            titles: vec!["VAE slicing".into()],
            verified: true,
            verdict: Verdict::Fits,
            peak_bytes: 3,
            saves_bytes: Some(-1),
            room_bytes: Some(2),
            result: ResultChange::Same,
            comparison: None,
            time_cost: "no cost".into(),
            slowdown: Some(TimeRatio { low: 0.5, high: 1.5 }),
            slowdown_unknown: None,
            quality_cost: None,
            evidence: vec![],
            apply: vec![Apply { kind: "code".into(), text: "x()".into(), remedy: "vae-slicing".into() }],
            command: None,
            notes: vec![],
            found_after_seconds: Some(12.5),
            patch: None,
            by_hand: false,
            tight: false,
        };
        let text = serde_json::to_string(&row)?;
        assert!(
            text.starts_with(concat!(
                r#"{"remedies":["vae-slicing"],"titles":["VAE slicing"],"verified":true,"verdict":"fits","peak_bytes":3,"#,
                r#""saves_bytes":-1,"room_bytes":2,"result":"same","comparison":null,"time_cost":"no cost","slowdown":{"low":0.5,"high":1.5},"#
            )),
            "{text}"
        );
        assert!(text.contains(r#""apply":[{"kind":"code","text":"x()","#), "{text}");
        assert_eq!(serde_json::from_str::<FixRow>(&text)?, row);
        assert!(serde_json::from_str::<FixSchema>("\"oomph.fix/2\"").is_err());
        Ok(())
    }
}
