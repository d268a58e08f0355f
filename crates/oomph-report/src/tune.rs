//! The answer of `oomph tune`, `oomph.tune/1`.

use std::collections::BTreeMap;

use oomph_protocol::{Phase, Verdict};
use serde::{Deserialize, Serialize};

use crate::dry_run::NextStep;

oomph_protocol::schema!(TuneSchema, "oomph.tune/1");

/// The value of each knob, by name.
pub type Values = BTreeMap<String, u64>;

/// The largest values that fit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TuneReport {
    /// Name and version of this document.
    pub schema: TuneSchema,
    /// The answer in one word.
    pub verdict: TuneVerdict,
    /// The largest values that fit, and that were run; `null` if the smallest do not. With several knobs: those whose
    /// product is the largest, of the combinations in `frontier`.
    pub best: Option<Values>,
    /// The peak at `best`, in bytes: everything on the fullest card, contexts included.
    pub peak_bytes: Option<u64>,
    /// The next values, which were run and do not fit; `null` where the whole range fits.
    pub fails_at: Option<Values>,
    /// The largest values found that still fit when the peak is at its upper bound and the margin that was asked for is
    /// left free.
    pub recommended: Option<Values>,
    /// What is kept free in addition to the peak at `recommended`, in bytes: the peak's uncertainty and the margin that
    /// was asked for.
    pub margin_bytes: Option<u64>,
    /// Everything that was run, ascending by value.
    pub tried: Vec<TriedValue>,
    /// The peak at `recommended`, in bytes.
    #[serde(default)]
    pub recommended_peak_bytes: Option<u64>,
    /// With several knobs: the answer for each combination of all but the last.
    #[serde(default)]
    pub frontier: Vec<TuneRow>,
    /// The knob that was searched: the last one.
    #[serde(default)]
    pub varied: String,
    /// Its smallest and largest value.
    #[serde(default)]
    pub range: (u64, u64),
    /// The smallest card's identifier in the catalogue.
    #[serde(default)]
    pub gpu: String,
    /// What CUDA reports as that card's total, in bytes.
    #[serde(default)]
    pub capacity_bytes: u64,
    /// Whether the runs shared their imports.
    #[serde(default)]
    pub forked: bool,
    /// Wall time of everything, in seconds.
    #[serde(default)]
    pub elapsed_seconds: f64,
    /// What weakens the answer, one sentence each.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// What one would run next.
    #[serde(default)]
    pub next: Vec<NextStep>,
}

/// The answer in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TuneVerdict {
    /// The boundary was found: both of its sides were run.
    Found,
    /// The largest value of the range fits.
    AllFit,
    /// The smallest value does not fit.
    NoneFits,
    /// The program failed for a reason other than memory at the smallest value.
    Failed,
}

/// The boundary at one combination of all knobs but the last. The fields are those of [`TuneReport`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TuneRow {
    /// The largest values that fit.
    pub best: Option<Values>,
    /// The peak there, in bytes.
    pub peak_bytes: Option<u64>,
    /// The next values, which do not fit.
    pub fails_at: Option<Values>,
    /// The largest values that fit at the peak's upper bound.
    pub recommended: Option<Values>,
    /// The peak there, in bytes.
    pub recommended_peak_bytes: Option<u64>,
    /// What is kept free in addition to it, in bytes.
    pub margin_bytes: Option<u64>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TriedValue {
    /// The value of each knob.
    pub values: Values,
    /// What came of it.
    pub verdict: Verdict,
    /// The peak on the fullest card, in bytes; `null` where the run did not fit.
    pub peak_bytes: Option<u64>,
    /// The most that the peak may be on a real card, in bytes.
    pub high_bytes: Option<u64>,
    /// In which phase memory ran out.
    pub phase: Option<Phase>,
    /// In which optimizer step memory ran out, from 1.
    pub step: Option<u64>,
    /// Optimizer steps taken.
    pub steps: u64,
    /// Wall time of the run, in seconds.
    pub elapsed_seconds: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contract_has_its_fields_in_order() -> Result<(), serde_json::Error> {
        let values = |batch| Some(Values::from([("batch".to_owned(), batch)]));
        let report = TuneReport {
            schema: TuneSchema,
            verdict: TuneVerdict::Found,
            best: values(9),
            peak_bytes: Some(5),
            fails_at: values(10),
            recommended: values(8),
            margin_bytes: Some(3),
            tried: vec![],
            recommended_peak_bytes: None,
            frontier: vec![],
            varied: "batch".into(),
            range: (1, 16),
            gpu: "rtx-3060".into(),
            capacity_bytes: 7,
            forked: true,
            elapsed_seconds: 1.5,
            warnings: vec![],
            next: vec![],
        };
        let text = serde_json::to_string(&report)?;
        let contract = concat!(
            r#"{"schema":"oomph.tune/1","verdict":"found","best":{"batch":9},"peak_bytes":5,"fails_at":{"batch":10},"#,
            r#""recommended":{"batch":8},"margin_bytes":3,"tried":[]"#,
        );
        assert!(text.starts_with(contract), "{text}");
        assert_eq!(serde_json::from_str::<TuneReport>(&text)?, report);
        assert!(serde_json::from_str::<TuneSchema>("\"oomph.tune/2\"").is_err());
        Ok(())
    }
}
