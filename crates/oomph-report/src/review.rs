//! The answer of `oomph check` in CI: dry runs, or a recording, compared with limits and an earlier state
//! (`oomph.review/1` and `oomph.baseline/1`).

use std::collections::BTreeMap;

use oomph_protocol::Verdict;
use serde::{Deserialize, Serialize};

use crate::compare::CheckReport;
use crate::device::{CUSTOM, DeviceReport};
use crate::dry_run::DryRunReport;
use crate::owner_names::owner_name;
use crate::site::Site;

oomph_protocol::schema!(ReviewSchema, "oomph.review/1");

oomph_protocol::schema!(BaselineSchema, "oomph.baseline/1");

/// What a program needed on some cards, small enough to lie in its repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Baseline {
    /// Name and version of this document.
    pub schema: BaselineSchema,
    /// The cards, as [`cards`] calls them.
    pub cards: BTreeMap<String, BaselineCard>,
}

/// What a program needed on one card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BaselineCard {
    /// The verdict.
    pub verdict: Verdict,
    /// What it needed, in bytes; `null` where that was not known.
    pub needs_bytes: Option<u64>,
    /// Whose memory it was at the peak, in bytes.
    #[serde(default)]
    pub owners: BTreeMap<String, u64>,
    /// Live bytes at the peak by the line of the program.
    #[serde(default)]
    pub lines: BTreeMap<String, u64>,
}

/// The largest lines that a baseline keeps.
const MOST_LINES: usize = 12;

impl BaselineCard {
    /// What a dry run says of its fullest card.
    #[must_use]
    pub fn of(report: &DryRunReport) -> Self {
        let whose = fullest(report).and_then(|device| device.whose.as_ref());
        let owners = whose.map(|whose| whose.owners.as_slice()).unwrap_or_default();
        let lines = whose.map(|whose| whose.by_line.as_slice()).unwrap_or_default();
        Self {
            verdict: report.verdict,
            needs_bytes: needs(report),
            owners: owners.iter().map(|row| (owner_name(row.owner).to_owned(), row.bytes)).collect(),
            lines: lines.iter().take(MOST_LINES).map(|row| (row.name.clone(), row.bytes)).collect(),
        }
    }
}

/// Whether all that was looked at keeps to its limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Review {
    /// Name and version of this document.
    pub schema: ReviewSchema,
    /// Whether every limit was kept.
    pub passed: bool,
    /// The dry runs, or the one recording.
    pub runs: Vec<ReviewedRun>,
}

/// One dry run, or a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReviewedRun {
    /// The file.
    pub file: String,
    /// The card, as [`cards`] calls it; `null` for a recording.
    pub gpu: Option<String>,
    /// The dry run's verdict; `null` for a recording.
    pub verdict: Option<Verdict>,
    /// What the card has, in bytes.
    pub limit_bytes: Option<u64>,
    /// What the program needs, in bytes.
    pub needs_bytes: Option<u64>,
    /// What it needed before, in bytes.
    pub before_bytes: Option<u64>,
    /// What it needs more than before, in bytes; negative where it needs less.
    pub growth_bytes: Option<i64>,
    /// Whose memory grew, and by how much, in bytes: the largest first.
    pub grown: Vec<(String, i64)>,
    /// The line at which memory ran out, or that holds most of what grew.
    pub place: Option<Place>,
    /// The limits that were not kept, one sentence each.
    pub violations: Vec<Broken>,
}

/// A limit that was not kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Broken {
    /// The limit: `fits`, or as the command line calls it.
    pub limit: String,
    /// What is wrong, in a sentence without a full stop.
    pub says: String,
}

/// A line of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Place {
    /// The file, from where the dry run was started.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// The function.
    pub function: String,
}

impl From<&Site> for Place {
    fn from(site: &Site) -> Self {
        Self { file: site.file.clone(), line: site.line, function: site.function.clone() }
    }
}

impl Place {
    /// A line as recordings name it: `train.py:41 in forward`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let (place, function) = name.split_once(" in ").unwrap_or((name, ""));
        let (file, line) = place.rsplit_once(':')?;
        Some(Self { file: file.to_owned(), line: line.parse().ok()?, function: function.to_owned() })
    }
}

impl From<&CheckReport> for Review {
    fn from(report: &CheckReport) -> Self {
        let broken = report.result.violations.iter().map(|violation| {
            let size = oomph_gpu::size::format;
            let says = if violation.says.is_empty() { String::new() } else { format!("; {}", violation.says) };
            Broken {
                limit: violation.limit.to_owned(),
                says: format!(
                    "{} where {} is allowed{says}",
                    size(violation.found_bytes),
                    size(violation.allowed_bytes)
                ),
            }
        });
        let run = ReviewedRun { file: report.file.clone(), violations: broken.collect(), ..ReviewedRun::default() };
        Self { schema: ReviewSchema, passed: report.result.passed, runs: vec![run] }
    }
}

/// The card of a dry run that decides: the one that died, else the fullest.
#[must_use]
pub fn fullest(report: &DryRunReport) -> Option<&DeviceReport> {
    let of_all = || report.devices.iter().max_by_key(|device| device.peak.process_bytes);
    report.oom_device().map(|(device, _)| device).or_else(of_all)
}

/// What a dry run's cards are called in a review and a baseline: `rtx-3060`, `h100:8`, or the size of a card without a name.
#[must_use]
pub fn cards(report: &DryRunReport) -> Option<String> {
    let device = fullest(report)?;
    let name = match device.capacity_bytes {
        Some(bytes) if device.gpu == CUSTOM => oomph_gpu::size::format(bytes),
        _ => device.gpu.clone(),
    };
    let count = report.devices.len();
    Some(if count > 1 { format!("{name}:{count}") } else { name })
}

/// What a dry run needs of that card, in bytes, where it is known.
#[must_use]
pub fn needs(report: &DryRunReport) -> Option<u64> {
    Some(fullest(report)?.need()?.process_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_recordings_name_them() {
        let place = Place::named("src/a b:c.py:41 in Net.forward").expect("it is a line");
        assert_eq!((place.file.as_str(), place.line, place.function.as_str()), ("src/a b:c.py", 41, "Net.forward"));
        assert_eq!(Place::named("no line recorded"), None);
    }

    #[test]
    fn a_baseline_reads_what_it_wrote() -> Result<(), serde_json::Error> {
        let card = BaselineCard {
            verdict: Verdict::Fits,
            needs_bytes: Some(7),
            owners: BTreeMap::from([("activations".into(), 5)]),
            lines: BTreeMap::new(),
        };
        let baseline = Baseline { schema: BaselineSchema, cards: BTreeMap::from([("l4".into(), card)]) };
        let text = serde_json::to_string(&baseline)?;
        assert!(text.starts_with(r#"{"schema":"oomph.baseline/1","cards":{"l4":{"verdict":"fits","needs_bytes":7,"#));
        assert_eq!(serde_json::from_str::<Baseline>(&text)?, baseline);
        assert!(serde_json::from_str::<Baseline>(r#"{"schema":"oomph.baseline/2","cards":{}}"#).is_err());
        Ok(())
    }
}
