//! Several recordings of one run, one for each rank: which is the worst, and why it differs.

use std::collections::BTreeMap;

use serde::Serialize;

use super::diff::{DeviceDiff, diff};
use super::explanation::{CauseKind, DeviceExplanation, Explanation, Group, Owner, OwnerRow};

/// Differences up to this many bytes do not count.
const NOTICEABLE: u64 = 1 << 20;
/// Owners that are named.
const MOST_OWNERS: usize = 2;

/// A comparison of ranks.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RankComparison {
    /// Every rank, in the order given.
    pub ranks: Vec<Rank>,
    /// The index of the rank with the highest reserved memory; of several, one that ran out of memory.
    pub worst: Option<usize>,
    /// The index of a rank in the middle.
    pub typical: Option<usize>,
    /// What the worst one has more or less of than the typical one.
    pub difference: Option<DeviceDiff>,
    /// Why, in one sentence; empty for a single rank.
    pub because: String,
}

/// One rank.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rank {
    /// Its place in the list.
    pub index: usize,
    /// The highest reserved memory, in bytes.
    pub peak_reserved_bytes: u64,
    /// The highest memory in use, in bytes.
    pub peak_active_bytes: u64,
    /// Whether an allocation failed.
    pub oom: bool,
    /// The first of its causes.
    pub cause: Option<CauseKind>,
    /// What a reader calls it: `rank 5` where the name of its file says so, else the name of the file.
    pub label: String,
}

/// Compares explanations of ranks, given with the names of their files. Each is taken by its fullest device.
pub fn ranks(recordings: &[(String, Explanation)]) -> RankComparison {
    let fullest = |(_, explanation): &(String, Explanation)| {
        explanation.devices.iter().max_by_key(|device| device.peak_reserved_bytes).cloned()
    };
    let devices: Vec<_> = recordings.iter().map(fullest).collect();
    let ranks: Vec<Rank> = devices
        .iter()
        .enumerate()
        .map(|(index, device)| Rank {
            index,
            peak_reserved_bytes: device.as_ref().map_or(0, |device| device.peak_reserved_bytes),
            peak_active_bytes: device.as_ref().map_or(0, |device| device.peak_active_bytes),
            oom: device.as_ref().is_some_and(|device| device.oom.as_ref().is_some_and(|oom| oom.fatal)),
            cause: device.as_ref().and_then(|device| device.verdict.cause),
            label: label(&recordings[index].0),
        })
        .collect();
    // Of ranks that are alike, the first.
    let worst = ranks.iter().rev().max_by_key(|rank| (rank.oom, rank.peak_reserved_bytes)).map(|rank| rank.index);
    let mut by_peak: Vec<usize> = ranks.iter().map(|rank| rank.index).filter(|&index| Some(index) != worst).collect();
    by_peak.sort_by_key(|&index| ranks[index].peak_reserved_bytes);
    let typical = by_peak.get(by_peak.len() / 2).copied();
    let difference = worst.zip(typical).and_then(|(worst, typical)| {
        // Each rank calls its own card as it likes, so that the two are compared under one index.
        let one = |at: usize| {
            let mut device = devices[at].clone()?;
            device.index = 0;
            Some(Explanation { devices: vec![device], ..Explanation::default() })
        };
        diff(&one(typical)?, &one(worst)?).devices.into_iter().next()
    });
    let because = worst.zip(typical).map_or(String::new(), |(worst, typical)| {
        reason(&ranks, worst, typical, devices[worst].as_ref(), devices[typical].as_ref())
    });
    RankComparison { ranks, worst, typical, difference, because }
}

/// What to call the rank whose recording has this name: `run-rank5.pickle`, `rank_5.pkl`.
fn label(file: &str) -> String {
    let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
    let number = name.to_ascii_lowercase().split("rank").skip(1).find_map(|behind| {
        let behind = behind.trim_start_matches(['-', '_', '.', '=']);
        let digits = behind.len() - behind.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        behind[..digits].parse::<u32>().ok()
    });
    number.map_or_else(|| name.to_owned(), |number| format!("rank {number}"))
}

/// Why one rank is worse off than one in the middle.
fn reason(
    ranks: &[Rank],
    worst: usize,
    typical: usize,
    one: Option<&DeviceExplanation>,
    other: Option<&DeviceExplanation>,
) -> String {
    let (Some(one), Some(other)) = (one, other) else { return String::new() };
    let (bad, usual) = (&ranks[worst].label, &ranks[typical].label);
    match Holding::of(one).beyond(&Holding::of(other)) {
        Some(more) => format!("{bad} has {more} than {usual}, which is in the middle"),
        None if ranks[worst].oom && !ranks[typical].oom => {
            format!("{bad} ran out of memory with no more in use than {usual}: its card had less room for it")
        }
        None => "no rank holds noticeably more than another".to_owned(),
    }
}

/// What a rank or a card holds, for a comparison with another.
#[derive(Clone, Copy, Debug)]
pub struct Holding<'a> {
    /// By owner.
    pub owners: &'a [OwnerRow],
    /// By module, where modules are known.
    pub by_module: &'a [Group],
    /// By the line that allocated.
    pub by_line: &'a [Group],
}

impl<'a> Holding<'a> {
    fn of(device: &'a DeviceExplanation) -> Self {
        Self { owners: &device.owners, by_module: &device.by_module, by_line: &device.by_line }
    }

    /// What this holds more of than the other, in words that go before "than": the owners of most of it, and the module
    /// or line that more than half of it lies in. `None` where no owner has noticeably more.
    pub fn beyond(&self, other: &Holding) -> Option<String> {
        let more = excess(of_owners(self.owners), of_owners(other.owners));
        let total: u64 = more.iter().map(|(_, bytes)| bytes).sum();
        let owners: Vec<String> = more
            .iter()
            .take(MOST_OWNERS)
            .map(|(name, bytes)| format!("{} more of {name}", super::causes::readable(*bytes)))
            .collect();
        if owners.is_empty() {
            return None;
        }
        let most_in = |ours: &[Group], theirs: &[Group], word: &str| {
            let (name, bytes) = excess(of_groups(ours), of_groups(theirs)).into_iter().next()?;
            (bytes > total / 2).then(|| format!(", most of it {word} {name}"))
        };
        let place = most_in(self.by_module, other.by_module, "in")
            .or_else(|| most_in(self.by_line, other.by_line, "at"))
            .unwrap_or_default();
        Some(owners.join(" and ") + &place)
    }
}

/// Owners by the names that a reader knows; what is not held is left out.
fn of_owners(rows: &[OwnerRow]) -> impl Iterator<Item = (&'static str, u64)> {
    rows.iter().filter(|row| !matches!(row.owner, Owner::Free | Owner::OtherProcesses)).map(|row| {
        let name = match row.owner {
            Owner::CachedSplit | Owner::CachedUnsplit => "cache",
            Owner::OptimizerState => "optimizer state",
            Owner::KvCache => "KV cache",
            Owner::GraphPools => "CUDA graphs' pools",
            Owner::SlackInBlocks => "slack in blocks",
            Owner::Unattributed => "memory of unknown owners",
            other => other.name(),
        };
        (name, row.bytes)
    })
}

fn of_groups(groups: &[Group]) -> impl Iterator<Item = (&str, u64)> {
    groups.iter().map(|group| (group.name.as_str(), group.bytes))
}

/// What there is noticeably more of, the most first.
fn excess<'a, 'b>(
    ours: impl Iterator<Item = (&'a str, u64)>,
    theirs: impl Iterator<Item = (&'b str, u64)>,
) -> Vec<(String, u64)> {
    let mut sums = BTreeMap::<String, (u64, u64)>::new();
    for (name, bytes) in theirs {
        sums.entry(name.to_owned()).or_default().0 += bytes;
    }
    for (name, bytes) in ours {
        sums.entry(name.to_owned()).or_default().1 += bytes;
    }
    let mut more: Vec<(String, u64)> = sums
        .into_iter()
        .map(|(name, (theirs, ours))| (name, ours.saturating_sub(theirs)))
        .filter(|(_, more)| *more > NOTICEABLE)
        .collect();
    more.sort_by_key(|(_, more)| std::cmp::Reverse(*more));
    more
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Source;

    const MIB: u64 = 1 << 20;

    fn rows(rows: &[(Owner, u64)]) -> Vec<OwnerRow> {
        let row = |&(owner, mib): &(Owner, u64)| OwnerRow {
            owner,
            bytes: mib * MIB,
            blocks: 1,
            confidence: 1.0,
            source: Source::Recorded,
            named_bytes: 0,
        };
        rows.iter().map(row).collect()
    }

    fn modules(groups: &[(&str, u64)]) -> Vec<Group> {
        let group = |&(name, mib): &(&str, u64)| Group {
            name: name.to_owned(),
            bytes: mib * MIB,
            blocks: 1,
            owner: Owner::Parameters,
        };
        groups.iter().map(group).collect()
    }

    #[test]
    fn the_last_stage_of_a_pipeline_has_the_head() {
        let last = rows(&[(Owner::Parameters, 600), (Owner::OptimizerState, 1200), (Owner::Activations, 50)]);
        let middle = rows(&[(Owner::Parameters, 200), (Owner::OptimizerState, 400), (Owner::Activations, 60)]);
        let (with_head, without) = (modules(&[("blocks", 600), ("head", 1200)]), modules(&[("blocks", 600)]));
        let last = Holding { owners: &last, by_module: &with_head, by_line: &[] };
        let middle = Holding { owners: &middle, by_module: &without, by_line: &[] };
        assert_eq!(
            last.beyond(&middle).as_deref(),
            Some("800.0 MiB more of optimizer state and 400.0 MiB more of parameters, most of it in head")
        );
        assert_eq!(last.beyond(&last), None);
        assert_eq!(middle.beyond(&last).as_deref(), Some("10.0 MiB more of activations"));
    }

    #[test]
    fn free_memory_is_nothing_that_is_held() {
        let (roomy, full) = (rows(&[(Owner::Free, 900)]), rows(&[(Owner::Free, 100)]));
        let of = |owners| Holding { owners, by_module: &[], by_line: &[] };
        assert_eq!(of(&roomy).beyond(&of(&full)), None);
    }
}
