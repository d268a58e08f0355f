//! Shows the phases and loops of a program that was followed to its end.

use oomph_gpu::size::format as size;
use oomph_protocol::LoopKind;

use super::page::{Ink, Page};
use crate::clean;
use crate::device::DeviceReport;
use crate::dry_run::DryRunReport;
use crate::followed::{FollowedLoop, Growth, Holder};

/// Loops that are named one by one; JSON has all of them.
const MOST_LOOPS: usize = 4;

/// The phases of the program on one card, with their peaks.
pub fn phases(page: &mut Page, device: &DeviceReport) {
    if device.phases.len() < 2 {
        return;
    }
    page.gap();
    let width = device.phases.iter().map(|phase| phase.phase.spelled_out().chars().count()).max().unwrap_or(0).max(16);
    let title = format!("{:<width$}  {:>11}  {:>11}", "peak by phase", "allocated", "reserved");
    page.line(2, &[(Ink::Strong, &title)]);
    let most = device.phases.iter().map(|phase| phase.allocated_bytes).max().unwrap_or(0);
    for phase in &device.phases {
        let text = format!(
            "{:<width$}  {:>11}  {:>11}",
            phase.phase.spelled_out(),
            size(phase.allocated_bytes),
            size(phase.reserved_bytes)
        );
        let ink = if phase.allocated_bytes == most { Ink::Strong } else { Ink::Plain };
        page.line(2, &[(ink, &text)]);
    }
}

/// Memory that grows, the loops that were shortened, and what was not reached.
pub fn loops(page: &mut Page, report: &DryRunReport) {
    // Where the program ran into the error, there is nothing left to forecast.
    let has_died = report.oom_device().is_some_and(|(_, oom)| !oom.forecast);
    for (one, growth) in report.loops.iter().filter_map(|one| Some((one, one.growth.as_ref()?))) {
        page.gap();
        grows(page, one, growth);
        if !has_died {
            ends(page, one, growth);
        }
    }
    let shortened: Vec<String> = report.loops.iter().filter(|one| one.shortened).map(run_of).collect();
    if !shortened.is_empty() {
        page.gap();
        let hidden = shortened.len().saturating_sub(MOST_LOOPS);
        let mut text = format!(" {}", shortened[..shortened.len().min(MOST_LOOPS)].join(", "));
        if hidden > 0 {
            text += &format!(", and {hidden} more");
        }
        text += "; --until-exit runs every iteration";
        page.paragraph(0, 2, &[(Ink::Faint, "loops shortened:"), (Ink::Faint, &text)]);
    }
    for one in &report.unreached {
        let text = format!(" {}: {}; --until-exit or a larger --budget reaches it", clean(&one.part), clean(&one.why));
        page.paragraph(0, 2, &[(Ink::Care, "not reached:"), (Ink::Plain, &text)]);
    }
}

fn run_of(one: &FollowedLoop) -> String {
    let of = one.of.map(|of| format!(" of {of}")).unwrap_or_default();
    let unit = match one.kind {
        LoopKind::Epochs => "rounds",
        LoopKind::Evaluation => "batches",
        LoopKind::Training | LoopKind::Other => "iterations",
    };
    format!("{} ran {}{of} {unit}", place(one), one.iterations)
}

fn place(one: &FollowedLoop) -> String {
    let file = clean(&one.file);
    let name = file.rsplit('/').next().unwrap_or(&file);
    format!("{name}:{}", one.line)
}

fn grows(page: &mut Page, one: &FollowedLoop, growth: &Growth) {
    let each = match one.kind {
        LoopKind::Training => "training iteration",
        LoopKind::Epochs => "epoch",
        LoopKind::Evaluation => "evaluation batch",
        LoopKind::Other => "iteration",
    };
    let mut text = format!(" {} with each {each}", size(growth.bytes_per_iteration));
    if !one.file.is_empty() {
        text += &format!(" of the loop at {}", place(one));
    }
    page.paragraph(0, 2, &[(Ink::Bad, "memory grows:"), (Ink::Strong, &text)]);
    for holder in &growth.holders {
        page.paragraph(2, 4, &[(Ink::Plain, "held by"), (Ink::Strong, &format!(" {}", held(holder)))]);
    }
    if let Some(site) = &growth.site {
        let text = format!("allocated at {}:{} in {}", clean(&site.file), site.line, clean(&site.function));
        page.paragraph(2, 4, &[(Ink::Plain, &text)]);
    }
}

/// When the card would be full, and what the loop would hold at its end.
fn ends(page: &mut Page, one: &FollowedLoop, growth: &Growth) {
    let full = match (growth.full_in_step, growth.full_in_iteration) {
        (Some(step), _) => Some(format!("the card is full in step {step}")),
        (None, Some(iteration)) => Some(format!("the card is full in iteration {iteration}")),
        (None, None) => None,
    };
    let end = growth.at_end_bytes.zip(one.of);
    let mut words: Vec<String> = full.into_iter().collect();
    if let Some(last) = growth.ends_in_iteration.filter(|last| one.of.is_none_or(|of| *last < of)) {
        words.push(format!("what it fills is full in iteration {last}, and grows no more"));
    }
    if let Some((bytes, of)) = end {
        words.push(format!("{} allocated at the end of its {of} iterations", size(bytes)));
    }
    if !words.is_empty() {
        page.paragraph(2, 4, &[(Ink::Plain, &words.join("; "))]);
    }
}

fn held(holder: &Holder) -> String {
    let mut text = format!("`{}`", clean(&holder.name));
    if holder.line > 0 {
        let file = clean(&holder.file);
        text += &format!(", which {}:{} adds to", file.rsplit('/').next().unwrap_or(&file), holder.line);
    }
    text
}
