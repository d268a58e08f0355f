//! Handles answers that depend on sizes that were never computed: runs the program again with the smallest ones.
//!
//! A dry run computes small values alone. Where a size depends on others (how much of a mask is set), the most there can be is
//! taken, which is the safe side of "fits". A verdict of death is not safe that way.

use std::collections::BTreeSet;

use oomph_launch::{HookUnknownSize, Limits, UnknownSizes};
use oomph_report::{DryRunReport, End, UnknownSize, Unsure, Verdict};

use crate::assemble::{assemble, site_of};
use crate::changes::Changes;
use crate::observation::Observation;
use crate::run_context::{Ended, RunContext};
use crate::trial::{Runner, Stop};

/// Runs the program with the least sizes, where the verdict may hang on them, and says so in the report where it does.
///
/// # Errors
/// When the run cannot be set up, or a signal ends it.
pub fn ask(
    context: &RunContext,
    first: &Observation,
    report: &mut DryRunReport,
    tell: &dyn Fn(&str),
) -> Result<(), Stop> {
    if matches!(report.verdict, Verdict::Fits | Verdict::NoGpuUse | Verdict::Unsure) || report.host.is_some() {
        return Ok(());
    }
    let sizes = sizes(first);
    if sizes.is_empty() {
        return Ok(());
    }
    tell("it depends on sizes that were not computed; running it with the smallest possible sizes");
    let changes = Changes { unknown_sizes: UnknownSizes::Least, ..Changes::none(&context.program.command) };
    let limits = Limits::of_user(context.program.timeout);
    let ended = context.run(&changes, &context.program.cards, limits).map_err(Stop::Failed)?;
    let least = match ended {
        Ended::Observed(run) => assemble(&context.program.cards, &run, None),
        Ended::Interrupted(signal, _) => return Err(Stop::Interrupted(signal)),
    };
    if matches!(least.verdict, Verdict::Fits | Verdict::Recovered) && least.verdict != report.verdict {
        report.unsure = Some(Unsure { sizes, least: end(&least), most: end(report) });
        report.verdict = Verdict::Unsure;
    }
    Ok(())
}

fn end(report: &DryRunReport) -> End {
    let need = |device: &oomph_report::DeviceReport| Some(device.need()?.process_bytes);
    End { verdict: report.verdict, need_bytes: report.devices.iter().filter_map(need).max().filter(|&bytes| bytes > 0) }
}

/// The sizes that were taken larger than they may be, those with the most doubt first.
fn sizes(run: &Observation) -> Vec<UnknownSize> {
    let mut all: Vec<&HookUnknownSize> = run.hooks.reports.iter().flat_map(|hook| &hook.unknown_sizes).collect();
    all.retain(|one| one.taken > one.low);
    all.sort_by_key(|one| std::cmp::Reverse(one.high - one.low));
    let mut seen = BTreeSet::new();
    all.retain(|one| seen.insert((&one.operation, one.site.as_ref().map(|site| (&site.file, site.line)))));
    let size = |one: &HookUnknownSize| UnknownSize {
        operation: one.operation.clone(),
        site: one.site.as_ref().map(site_of),
        low: one.low,
        high: one.high,
    };
    all.into_iter().map(size).collect()
}
