//! `oomph diff` and `oomph check`: compares two recordings, or one with limits.

use std::process::ExitCode;

use anyhow::{Context, Result};
use oomph_explain::snapshot::{self, At, Explanation, Limits, Options};
use oomph_report::review::Review;
use oomph_report::{CheckReport, CheckSchema, DiffReport, DiffSchema, clean_json, render_check, render_diff};
use oomph_trace::ReadOptions;
use serde::Serialize;

use crate::cli::{CheckArgs, DiffArgs, Format, ReviewFormat};
use crate::failure::hinted;
use crate::html::{self, Shown, Writing};
use crate::status;
use crate::{explain, output, review};

/// Every stack is compared, not only the largest.
const ALL_STACKS: usize = usize::MAX;

/// Compares two recordings.
///
/// # Errors
/// When one cannot be read.
pub fn diff(args: &DiffArgs) -> Result<ExitCode> {
    html::writable(&args.page)?;
    let [before, after] = [&args.before, &args.after].map(|path| shown(path, &args.trust.options()));
    let (before, after) = (before?, after?);
    let report = DiffReport {
        schema: DiffSchema,
        before: args.before.display().to_string(),
        after: args.after.display().to_string(),
        diff: snapshot::diff(&before.explanation, &after.explanation),
    };
    if let Some(path) = &args.page.html {
        let title = format!("{} and {}", html::last_part(&args.before), html::last_part(&args.after));
        let writing = Writing { title, path, private: args.page.private, compare: true };
        // The later recording comes first: it is what is looked into.
        html::write(&writing, Some(html::diff(&report)), &[after, before], &at_peak())?;
    }
    written(args.format, &report, || render_diff(&report, output::style()))?;
    Ok(ExitCode::from(status::DONE))
}

/// Holds a recording against limits.
///
/// # Errors
/// When it cannot be read, or is not what can be checked.
pub fn check(args: &CheckArgs) -> Result<ExitCode> {
    if let Some(reports) = review::reports(&args.files)? {
        return review::check(args, &reports);
    }
    let [file] = args.files.as_slice() else {
        return Err(hinted("a check takes one recording", "give one snapshot or trace, or the reports of dry runs"));
    };
    if args.write_baseline.is_some() {
        return Err(hinted(
            "--write-baseline is for reports of dry runs",
            "a recording is a baseline itself: give an earlier one with --baseline",
        ));
    }
    let explanation = explained(file, &args.trust.options())?;
    if explanation.devices.iter().all(|device| device.peak_reserved_bytes == 0 && device.peak_active_bytes == 0) {
        // A recording without GPU memory does not show that the limits were kept.
        return Err(hinted(
            format!("{} holds no memory of a GPU, so there is nothing to check", file.display()),
            "record a program that uses the GPU, for example with `oomph dry-run --snapshot FILE`",
        ));
    }
    let baseline = args.baseline.as_deref().map(|path| explained(path, &args.trust.options())).transpose()?;
    let limits = Limits {
        max_peak_reserved: args.max_peak.map(|size| size.0),
        max_peak_allocated: args.max_allocated.map(|size| size.0),
        max_growth: args.max_growth.zip(baseline.as_ref()).map(|(growth, baseline)| growth.of(peak(baseline))),
        no_leak: args.no_leak,
        no_oom: true,
    };
    let result = snapshot::check(&explanation, baseline.as_ref(), &limits);
    let passed = result.passed;
    let report = CheckReport { schema: CheckSchema, file: file.display().to_string(), result };
    match args.format {
        ReviewFormat::Text => output::data(&render_check(&report, output::style()))?,
        ReviewFormat::Json => written(Format::Json, &report, String::new)?,
        format => review::write(&Review::from(&report), format)?,
    }
    Ok(ExitCode::from(if passed { status::DONE } else { status::DOES_NOT_FIT }))
}

/// The peak that growth is measured from, in bytes.
fn peak(baseline: &Explanation) -> u64 {
    baseline.devices.iter().map(|device| device.peak_active_bytes).max().unwrap_or(0)
}

fn explained(path: &std::path::Path, options: &ReadOptions) -> Result<Explanation> {
    Ok(shown(path, options)?.explanation)
}

/// The moment at which recordings are compared.
fn at_peak() -> Options {
    Options { at: At::Peak, what_if: false, top: ALL_STACKS, ..Options::default() }
}

fn shown(path: &std::path::Path, options: &ReadOptions) -> Result<Shown> {
    let trace = explain::read(path, options)?;
    let explanation = snapshot::explain(&trace, &at_peak(), None);
    Ok(Shown { name: path.display().to_string(), trace, names: None, explanation })
}

fn written(format: Format, report: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
    match format {
        Format::Json => {
            let document = serde_json::to_string_pretty(report).context("cannot write the answer as JSON")?;
            output::data(&(clean_json(&document).into_owned() + "\n"))
        }
        Format::Text => output::data(&text()),
    }
}
