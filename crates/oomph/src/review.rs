//! `oomph check` on dry-run reports: whether a change of the program keeps to limits, and how much more it needs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use oomph_gpu::size;
use oomph_report::review::{
    Baseline, BaselineCard, BaselineSchema, Broken, Place, Review, ReviewSchema, ReviewedRun, cards, fullest, needs,
};
use oomph_report::{
    DryRunReport, DryRunSchema, Style, Verdict, clean_json, github_annotations, github_summary, junit, render_dry_run,
    render_review, sarif,
};

use crate::cli::{CheckArgs, ReviewFormat};
use crate::failure::hinted;
use crate::output;
use crate::status;

/// A report or a baseline is smaller than this, in bytes.
const LARGEST: u64 = 64 << 20;

/// The file that GitHub shows as the summary of a job.
const SUMMARY: &str = "GITHUB_STEP_SUMMARY";

/// How the files of installed packages are named in a baseline.
const PACKAGES: &str = "site-packages/";

/// The folder of the repository in a job.
const WORKSPACE: &str = "GITHUB_WORKSPACE";

/// The files as reports of dry runs, with their names; none where the first is not one.
///
/// # Errors
/// When a file cannot be read, or only some are reports.
pub fn reports(files: &[PathBuf]) -> Result<Option<Vec<(String, DryRunReport)>>> {
    let mut reports = Vec::new();
    for (place, file) in files.iter().enumerate() {
        let name = file.display().to_string();
        let mut start = Vec::new();
        let opened = File::open(file).with_context(|| format!("cannot read {name}"))?;
        opened.take(4096).read_to_end(&mut start).with_context(|| format!("cannot read {name}"))?;
        let is_report = String::from_utf8_lossy(&start).contains(DryRunSchema::NAME);
        if !is_report && place == 0 {
            return Ok(None);
        }
        if !is_report {
            return Err(hinted(
                format!("{name} is not the report of a dry run"),
                "write one with `oomph dry-run --report FILE`",
            ));
        }
        let report = serde_json::from_slice(&whole(file)?).with_context(|| format!("cannot read {name}"))?;
        reports.push((name, report));
    }
    Ok(Some(reports))
}

/// Holds the reports against the limits and the baseline.
///
/// # Errors
/// When the baseline cannot be understood, or a place cannot be written.
pub fn check(args: &CheckArgs, reports: &[(String, DryRunReport)]) -> Result<ExitCode> {
    let baseline = args.baseline.as_deref().map(read_baseline).transpose()?;
    let runs: Vec<ReviewedRun> =
        reports.iter().map(|(file, report)| reviewed(file, report, args, baseline.as_ref())).collect();
    let passed = runs.iter().all(|run| run.violations.is_empty());
    write(&Review { schema: ReviewSchema, passed, runs }, args.format)?;
    if let Some(path) = &args.write_baseline {
        let cards = reports.iter().filter_map(|(_, report)| Some((cards(report)?, kept(report))));
        let baseline = Baseline { schema: BaselineSchema, cards: cards.collect() };
        let text = serde_json::to_string_pretty(&baseline).context("cannot write the baseline as JSON")? + "\n";
        output::replace(path, |file| file.write_all(text.as_bytes()))
            .with_context(|| format!("cannot write the baseline to {}", path.display()))?;
    }
    Ok(ExitCode::from(if passed { status::DONE } else { status::DOES_NOT_FIT }))
}

fn reviewed(file: &str, report: &DryRunReport, limits: &CheckArgs, baseline: Option<&Baseline>) -> ReviewedRun {
    let device = fullest(report);
    let gpu = cards(report);
    let needs = needs(report);
    let now = kept(report);
    let before = gpu.as_ref().and_then(|gpu| baseline?.cards.get(gpu));
    let before_bytes = before.and_then(|before| before.needs_bytes);
    let growth_bytes = before_bytes.zip(needs).map(|(before, now)| difference(before, now));
    let mut violations = Vec::new();
    let mut violate = |limit: &str, says: String| violations.push(Broken { limit: limit.into(), says });
    if report.verdict != Verdict::Fits {
        violate("fits", verdict(report));
    }
    let peak = device.and_then(|device| device.need());
    let reserved = peak.map(|peak| peak.reserved_bytes.unwrap_or(peak.process_bytes));
    let allocated = peak.and_then(|peak| peak.allocated_bytes);
    for (name, what, allowed, found) in [
        ("max-peak", "reserves", limits.max_peak, reserved),
        ("max-allocated", "allocates", limits.max_allocated, allocated),
    ] {
        if let (Some(allowed), Some(found)) = (allowed, found)
            && found > allowed.0
        {
            violate(name, format!("it {what} {} where {allowed} is allowed", size::format(found)));
        }
    }
    if let (Some(before), Some(grown)) = (before_bytes, growth_bytes)
        && let Some(allowed) = limits.max_growth.map(|growth| growth.of(before))
        && u64::try_from(grown).unwrap_or(0) > allowed
    {
        let (more, allowed) = (size::format(grown.unsigned_abs()), size::format(allowed));
        violate("max-growth", format!("it needs {more} more than before, and {allowed} more is allowed"));
    }
    let leak = report.loops.iter().find(|one| one.growth.is_some());
    if let (true, Some(one)) = (limits.no_leak, leak) {
        let each = one.growth.as_ref().map_or(0, |growth| growth.bytes_per_iteration);
        violate(
            "no-leak",
            format!("memory grows by {} with each iteration of {}:{}", size::format(each), one.file, one.line),
        );
    }
    let died = device.and_then(|device| device.oom.as_ref()?.site.as_ref());
    let place = died.map(Place::from).or_else(|| grown_line(before, &now));
    let limit_bytes = device.and_then(|device| device.capacity_bytes);
    ReviewedRun {
        file: file.to_owned(),
        gpu,
        verdict: Some(report.verdict),
        limit_bytes,
        needs_bytes: needs,
        before_bytes,
        growth_bytes,
        grown: before
            .filter(|before| before.needs_bytes.is_some())
            .map(|before| grown(before, &now))
            .unwrap_or_default(),
        place,
        violations,
    }
}

/// The verdict of a dry run in its own words: the first line of its text.
fn verdict(report: &DryRunReport) -> String {
    let text = render_dry_run(report, Style { width: 4096, ..Style::default() });
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    // The run's line says that already.
    line.strip_prefix("does not fit: ").unwrap_or(line).to_owned()
}

fn difference(before: u64, now: u64) -> i64 {
    i64::try_from(i128::from(now) - i128::from(before)).unwrap_or(i64::MAX)
}

/// Whose memory grew or shrank, the largest first.
fn grown(before: &BaselineCard, now: &BaselineCard) -> Vec<(String, i64)> {
    let names = before.owners.keys().chain(now.owners.keys());
    let change: BTreeMap<&String, i64> = names
        .map(|name| {
            let of = |card: &BaselineCard| card.owners.get(name).copied().unwrap_or(0);
            (name, difference(of(before), of(now)))
        })
        .collect();
    let free = |name: &str| name == "free";
    let mut grown: Vec<(String, i64)> = change
        .into_iter()
        .filter(|(name, bytes)| *bytes != 0 && !free(name))
        .map(|(name, bytes)| (name.clone(), bytes))
        .collect();
    grown.sort_by_key(|(_, bytes)| std::cmp::Reverse(bytes.unsigned_abs()));
    grown
}

/// What a dry run needed, with the program's files named from the folder of this check and those of packages from theirs: a
/// baseline is made on one machine and compared with on another.
fn kept(report: &DryRunReport) -> BaselineCard {
    let directory = std::env::current_dir().unwrap_or_default();
    let card = BaselineCard::of(report);
    let lines = card.lines.iter().map(|(name, bytes)| (portable(name, &directory), *bytes));
    BaselineCard { lines: lines.collect(), ..card }
}

/// A line by a name that is the same on other machines.
fn portable(name: &str, directory: &Path) -> String {
    if let Some((_, package)) = name.rsplit_once("/site-packages/") {
        return format!("{PACKAGES}{package}");
    }
    let below = Path::new(name).strip_prefix(directory).ok();
    below.map_or_else(|| name.to_owned(), |path| path.display().to_string())
}

/// The line of the program that holds most of what grew. Lines are compared by file and function, because a change moves
/// them; those of packages are not the program's to change.
fn grown_line(before: Option<&BaselineCard>, now: &BaselineCard) -> Option<Place> {
    let by_function = |card: &BaselineCard| {
        let mut sums: BTreeMap<(String, String), u64> = BTreeMap::new();
        for (name, bytes) in &card.lines {
            if let Some(place) = own_line(name) {
                *sums.entry((place.file, place.function)).or_default() += bytes;
            }
        }
        sums
    };
    let earlier = before.map(by_function).unwrap_or_default();
    let (key, _) = by_function(now)
        .into_iter()
        .max_by_key(|(key, bytes)| difference(earlier.get(key).copied().unwrap_or(0), *bytes))?;
    let lines = now.lines.iter().filter_map(|(name, bytes)| Some((own_line(name)?, *bytes)));
    let of_key = lines.filter(|(place, _)| (&place.file, &place.function) == (&key.0, &key.1));
    of_key.max_by_key(|(_, bytes)| *bytes).map(|(place, _)| place)
}

/// A line of the program, as of [`portable`].
fn own_line(name: &str) -> Option<Place> {
    Place::named(name).filter(|place| Path::new(&place.file).is_relative() && !place.file.starts_with(PACKAGES))
}

/// Writes a review in the form that was asked for.
///
/// # Errors
/// When a place cannot be written.
pub fn write(review: &Review, format: ReviewFormat) -> Result<()> {
    match format {
        ReviewFormat::Text => output::data(&render_review(review, output::style())),
        ReviewFormat::Json => json(review),
        ReviewFormat::Sarif => json(&sarif(review, in_repository)),
        ReviewFormat::Junit => output::data(&junit(review)),
        ReviewFormat::Github => {
            let text = render_review(review, output::style());
            output::data(&(text + &github_annotations(review, in_repository)))?;
            let Some(path) = std::env::var_os(SUMMARY).filter(|path| !path.is_empty()) else { return Ok(()) };
            let appended = fs::OpenOptions::new().append(true).create(true).open(&path);
            appended
                .and_then(|mut file| file.write_all(github_summary(review).as_bytes()))
                .with_context(|| format!("cannot write the summary to {}", Path::new(&path).display()))
        }
    }
}

fn json(document: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(document).context("cannot write the answer as JSON")?;
    output::data(&(clean_json(&text).into_owned() + "\n"))
}

/// A file of the program as the repository names it.
fn in_repository(file: &str) -> String {
    let whole = std::path::absolute(file).unwrap_or_else(|_| file.into());
    let workspace = std::env::var_os(WORKSPACE).filter(|path| !path.is_empty()).map(PathBuf::from);
    let below =
        workspace.and_then(|workspace| whole.strip_prefix(workspace).ok().map(|path| path.display().to_string()));
    below.unwrap_or_else(|| file.to_owned())
}

fn read_baseline(path: &Path) -> Result<Baseline> {
    serde_json::from_slice(&whole(path)?).map_err(|error| {
        hinted(
            format!("{} is not a baseline: {error}", path.display()),
            "write one with `oomph check REPORT... --write-baseline FILE`",
        )
    })
}

fn whole(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let name = || format!("cannot read {}", path.display());
    File::open(path).with_context(name)?.take(LARGEST).read_to_end(&mut bytes).with_context(name)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(owners: &[(&str, u64)], lines: &[(&str, u64)]) -> BaselineCard {
        let map = |rows: &[(&str, u64)]| rows.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect();
        BaselineCard { verdict: Verdict::Fits, needs_bytes: Some(1), owners: map(owners), lines: map(lines) }
    }

    #[test]
    fn what_grew_comes_first_and_free_memory_is_nobodys() {
        let before = card(&[("activations", 5), ("inputs", 9), ("free", 50)], &[]);
        let now = card(&[("activations", 8), ("gradients", 1), ("inputs", 2), ("free", 10)], &[]);
        let expected =
            [("inputs", -7), ("activations", 3), ("gradients", 1)].map(|(name, bytes)| (name.to_owned(), bytes));
        assert_eq!(grown(&before, &now), expected);
    }

    #[test]
    fn lines_have_the_same_names_on_other_machines() {
        let here = Path::new("/home/me/project");
        assert_eq!(portable("/home/me/project/src/a.py:3 in f", here), "src/a.py:3 in f");
        let library = portable("/home/me/.venv/lib/python3.12/site-packages/timm/layers/mlp.py:9 in forward", here);
        assert_eq!(library, "site-packages/timm/layers/mlp.py:9 in forward");
        assert_eq!(own_line(&library), None);
        assert_eq!(own_line("/elsewhere/b.py:1 in g"), None);
    }

    #[test]
    fn a_line_that_only_moved_did_not_grow() {
        let before = card(&[], &[("a.py:10 in forward", 100), ("b.py:7 in load", 90)]);
        let now = card(&[], &[("a.py:12 in forward", 101), ("b.py:7 in load", 120)]);
        let place = grown_line(Some(&before), &now).map(|place| (place.file, place.line));
        assert_eq!(place, Some(("b.py".to_owned(), 7)));
    }
}
