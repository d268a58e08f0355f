//! Shortens each answer to what a coding agent needs.

use std::collections::BTreeMap;

use oomph_explain::log::Failure;
use oomph_explain::snapshot::{DeviceExplanation, Owner, OwnerRow};
use oomph_gpu::size::format as size;
use serde::Serialize;

use super::{Brief, BriefFix, BriefPlace};
use crate::dry_run::{DryRunReport, DryRunSchema};
use crate::explain::{ExplainReport, ExplainSchema};
use crate::fix::{FixReport, FixRow, FixSchema};
use crate::oom::Oom;
use crate::owner_names::owner_name;
use crate::plan::{PlanReport, PlanSchema};
use crate::site::Site;
use crate::text::Style;
use crate::tune::{TuneReport, TuneSchema};
use crate::{render_dry_run, render_explain, render_fix, render_plan, render_tune};

/// Owners that are named.
const MOST_OWNERS: usize = 5;

/// An answer that has a short form.
pub trait InBrief: Serialize {
    /// The short form.
    fn in_brief(&self) -> Brief;
}

impl InBrief for DryRunReport {
    fn in_brief(&self) -> Brief {
        // The card that died, else the one that is fullest.
        let fullest = || self.devices.iter().max_by_key(|device| device.peak.process_bytes);
        let device = self.oom_device().map(|(device, _)| device).or_else(fullest);
        let need = device.and_then(|device| device.need());
        let oom = device.and_then(|device| device.oom.as_ref().or(device.caught_ooms.last()));
        let place = self.host.as_ref().and_then(|host| host.site.as_ref()).or(oom.and_then(|oom| oom.site.as_ref()));
        let why = self.fault.as_ref().map(|fault| fault.message.clone()).filter(|message| !message.is_empty());
        Brief {
            of: DryRunSchema::NAME.into(),
            verdict: word(&self.verdict),
            answer: sentence(&render_dry_run(self, wide())),
            gpu: device.map(|device| device.gpu.clone()),
            limit_bytes: device.and_then(|device| device.capacity_bytes),
            needs_bytes: need.map(|need| need.process_bytes),
            needs_at_least: device.is_some_and(|device| device.needed_is_minimum),
            cause: why.or_else(|| self.fallback.clone()).or_else(|| oom.map(refused)),
            place: place.map(place_of),
            owners: device
                .and_then(|device| device.whose.as_ref())
                .map(|whose| owners(&whose.owners))
                .unwrap_or_default(),
            cards: self.smallest.iter().map(|card| card.gpu.clone()).collect(),
            unreached: self.unreached.clone(),
            warnings: self.warnings.clone(),
            next: self.next.clone(),
            command: line(&self.command),
            ..Brief::default()
        }
    }
}

impl InBrief for FixReport {
    fn in_brief(&self) -> Brief {
        let base = &self.baseline;
        Brief {
            of: FixSchema::NAME.into(),
            verdict: word(&self.verdict),
            answer: sentence(&render_fix(self, wide())),
            gpu: Some(base.gpu.clone()),
            limit_bytes: base.limit_bytes,
            needs_bytes: base.peak_bytes,
            needs_at_least: base.peak_is_minimum,
            cause: base.oom.as_ref().map(refused),
            place: base.oom.as_ref().and_then(|oom| oom.site.as_ref()).map(place_of),
            owners: owners(&base.owners),
            fixes: self.fixes.iter().map(fix).collect(),
            cards: self.floor.iter().filter_map(|floor| floor.smallest_gpu.clone()).collect(),
            warnings: self.warnings.clone(),
            next: self.next.clone(),
            command: line(&self.command),
            ..Brief::default()
        }
    }
}

impl InBrief for TuneReport {
    fn in_brief(&self) -> Brief {
        let chosen = self.recommended.as_ref().or(self.best.as_ref());
        let peak = if self.recommended.is_some() { self.recommended_peak_bytes } else { self.peak_bytes };
        let named = |values: &BTreeMap<String, u64>| {
            values.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
        };
        let fails = self.fails_at.as_ref().map(|values| format!("{} was run and does not fit", named(values)));
        Brief {
            of: TuneSchema::NAME.into(),
            verdict: word(&self.verdict),
            answer: sentence(&render_tune(self, wide())),
            gpu: Some(self.gpu.clone()),
            limit_bytes: Some(self.capacity_bytes),
            needs_bytes: peak,
            cause: fails,
            values: chosen.cloned().unwrap_or_default(),
            warnings: self.warnings.clone(),
            next: self.next.clone(),
            ..Brief::default()
        }
    }
}

impl InBrief for PlanReport {
    fn in_brief(&self) -> Brief {
        let device = self.devices.iter().max_by_key(|device| device.expected_bytes);
        let mut largest = BTreeMap::new();
        if let Some(limits) = &self.limits {
            let named = [
                ("max_batch", limits.max_batch),
                ("max_context", limits.max_context),
                ("max_resolution", limits.max_resolution),
            ];
            largest.extend(named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        }
        let remedy = |remedy: &crate::PlannedRemedy| BriefFix {
            what: remedy.title.clone(),
            needs_bytes: Some(remedy.expected_bytes),
            result: Some(if remedy.changes_result { "changed" } else { "same" }.into()),
            ..BriefFix::default()
        };
        let fits = device.and_then(|device| device.fits);
        Brief {
            of: PlanSchema::NAME.into(),
            verdict: fits.map_or_else(|| "no-card".into(), |fits| word(&fits)),
            answer: sentence(&render_plan(self, wide())),
            gpu: device.and_then(|device| device.gpu.clone()),
            limit_bytes: device.and_then(|device| device.capacity_bytes),
            needs_bytes: device.map(|device| device.expected_bytes),
            cause: device.map(|device| {
                format!(
                    "between {} and {} at the peak ({})",
                    size(device.low_bytes),
                    size(device.high_bytes),
                    self.phase
                )
            }),
            owners: device
                .map(|device| largest_of(device.owners.iter().map(|row| (row.owner.as_str(), row.bytes))))
                .unwrap_or_default(),
            fixes: self.remedies.iter().map(remedy).collect(),
            values: largest,
            cards: self.smallest.iter().map(|card| card.gpu.clone()).collect(),
            warnings: self.warnings.clone(),
            ..Brief::default()
        }
    }
}

impl InBrief for ExplainReport {
    fn in_brief(&self) -> Brief {
        let died = |device: &&DeviceExplanation| device.oom.as_ref().is_some_and(|oom| oom.fatal);
        let devices = self.devices.as_deref().unwrap_or_default();
        let device =
            devices.iter().find(died).or_else(|| devices.iter().max_by_key(|device| device.peak_reserved_bytes));
        let failure = self.failures.as_ref().and_then(|failures| failures.first());
        let brief = Brief {
            of: ExplainSchema::NAME.into(),
            answer: sentence(&render_explain(self, wide())),
            warnings: self.notes.clone(),
            ..Brief::default()
        };
        match (device, failure) {
            (Some(device), _) => of_device(brief, device),
            (None, Some(failure)) => of_failure(brief, failure),
            (None, None) => Brief { verdict: "nothing-found".into(), ..brief },
        }
    }
}

fn of_device(brief: Brief, device: &DeviceExplanation) -> Brief {
    let site = device.oom.as_ref().and_then(|oom| oom.site.as_ref());
    let says = |text: &String| (!text.is_empty()).then(|| text.clone());
    Brief {
        verdict: word(&device.verdict.outcome),
        limit_bytes: device.card.map(|card| card.capacity_bytes),
        needs_bytes: device.smallest_card.as_ref().map(|card| card.capacity_bytes),
        cause: says(&device.verdict.why).or_else(|| says(&device.verdict.happened)),
        place: site.map(|site| BriefPlace {
            file: site.file.clone(),
            line: site.line.into(),
            function: Some(site.function.clone()),
            text: None,
        }),
        owners: owners(&device.owners),
        fixes: says(&device.verdict.what_helps)
            .map(|what| BriefFix { what: "allocator or card".into(), apply: Some(what), ..BriefFix::default() })
            .into_iter()
            .collect(),
        cards: device.smallest_card.iter().filter_map(|card| card.card.clone()).collect(),
        ..brief
    }
}

fn of_failure(brief: Brief, failure: &Failure) -> Brief {
    let cause = failure.causes.first().map(|cause| format!("{}: {}", word(&cause.cause), cause.because));
    let offers = failure.remedies.iter().map(|offer| BriefFix {
        what: offer.title.clone(),
        apply: Some(offer.apply.clone()),
        ..BriefFix::default()
    });
    Brief {
        verdict: match (failure.is_gpu_oom, failure.survived) {
            (true, false) => "oom",
            (true, true) => "recovered",
            (false, _) => "not-oom",
        }
        .into(),
        limit_bytes: failure.facts.limit_bytes.or(failure.facts.capacity_bytes),
        cause: cause.or_else(|| failure.not_oom.as_ref().map(|what| format!("{}; {}", what.what, what.look))),
        place: failure.site.as_ref().map(|site| BriefPlace {
            file: site.file.clone(),
            line: site.line,
            function: site.function.clone(),
            text: site.code.clone(),
        }),
        fixes: offers.collect(),
        ..brief
    }
}

fn fix(row: &FixRow) -> BriefFix {
    let whole = row.command.is_some() || (row.patch.is_some() && !row.by_hand);
    let words = || row.apply.iter().map(|apply| apply.text.clone()).collect::<Vec<_>>().join("\n");
    BriefFix {
        what: row.titles.join(" + "),
        verified: row.verified,
        needs_bytes: Some(row.peak_bytes),
        result: Some(word(&row.result)),
        apply: (!whole).then(words),
        command: row.command.clone(),
        patch: row.patch.clone(),
    }
}

/// What was refused, in a clause.
fn refused(oom: &Oom) -> String {
    let figures = [
        (oom.requested_bytes > 0).then(|| format!("requested {}", size(oom.requested_bytes))),
        oom.allocated_bytes.map(|bytes| format!("{} allocated", size(bytes))),
        oom.reserved_bytes.map(|bytes| format!("{} reserved", size(bytes))),
        oom.free_bytes.map(|bytes| format!("{} free on the card", size(bytes))),
        oom.module.as_ref().map(|module| format!("in {module}")),
    ];
    let figures: Vec<String> = figures.into_iter().flatten().collect();
    if figures.is_empty() { oom.message.clone() } else { figures.join(", ") }
}

fn place_of(site: &Site) -> BriefPlace {
    BriefPlace {
        file: site.file.clone(),
        line: site.line,
        function: Some(site.function.clone()),
        text: site.text.clone(),
    }
}

/// The largest owners of memory; what is free is nobody's.
fn owners(rows: &[OwnerRow]) -> BTreeMap<String, u64> {
    largest_of(rows.iter().filter(|row| row.owner != Owner::Free).map(|row| (owner_name(row.owner), row.bytes)))
}

fn largest_of<'a>(rows: impl Iterator<Item = (&'a str, u64)>) -> BTreeMap<String, u64> {
    let mut rows: Vec<(&str, u64)> = rows.filter(|(_, bytes)| *bytes > 0).collect();
    rows.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    rows.into_iter().take(MOST_OWNERS).map(|(name, bytes)| (name.to_owned(), bytes)).collect()
}

/// The word that a value without data is in JSON.
fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// A command ready for a shell.
fn line(command: &[String]) -> Option<String> {
    let joined = shlex::try_join(command.iter().map(String::as_str)).ok();
    joined.filter(|line| !line.is_empty())
}

/// So wide that a paragraph is a line.
fn wide() -> Style {
    Style { width: 4096, ..Style::default() }
}

/// The first line of an answer's text, which is its verdict in words.
fn sentence(text: &str) -> String {
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned()
}
