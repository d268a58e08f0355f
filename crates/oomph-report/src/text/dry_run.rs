//! Shows the answer of a dry run on one screen.

use oomph_protocol::{Phase, Stopped, Verdict};

use super::activity;
use super::allowed;
use super::batches;
use super::doubt;
use super::explain_snapshot;
use super::followed;
use super::page::{Ink, Page, Style};
use super::peak::{at_oom, bars, legend};
use super::site;
use crate::clean;
use crate::device::{CUSTOM, CapacityKnown, DeviceReport, Peak, Pool, PoolScale, UNBOUNDED, Whose};
use crate::dry_run::DryRunReport;
use crate::oom::{Instead, Oom};
use oomph_explain::snapshot::OwnerRow;
use oomph_gpu::Catalogue;
use oomph_gpu::size::format as size;

/// More cards than these are not drawn one by one.
const MOST_BARS: usize = 4;
/// More warnings than these are counted and not printed; JSON has all of them.
const MOST_WARNINGS: usize = 8;
/// Owners that are printed one by one; JSON has all of them.
const MOST_OWNERS: usize = 7;
/// Files that the program wrote that are printed.
const MOST_FILES: usize = 3;
/// Lines of the program that are printed.
const MOST_LINES: usize = 3;

/// Writes the report for a terminal: the verdict, the cards, the line, what it would have needed, the smallest cards
/// that hold it, warnings, and the next step. The text ends with a line break.
#[must_use]
pub fn render_dry_run(report: &DryRunReport, style: Style) -> String {
    let mut page = Page::new(style);
    verdict(&mut page, report);
    worst(&mut page, report);
    if report.verdict != Verdict::NoGpuUse {
        devices(&mut page, report);
    }
    followed::loops(&mut page, report);
    batches::write(&mut page, report);
    run(&mut page, report);
    writes(&mut page, report);
    compiled(&mut page, report);
    smallest(&mut page, report);
    if let Some(calls) = &report.activity {
        activity::calls(&mut page, calls);
    }
    warnings(&mut page, report);
    way_on(&mut page, report);
    page.finish()
}

/// Where among the steps of its training a program died. An evaluation is part of none.
fn step_of(oom: &Oom) -> Option<String> {
    match (oom.step?, oom.phase) {
        (step, Phase::Eval) => step.checked_sub(1).filter(|done| *done > 0).map(|done| format!(" after step {done}")),
        (step, _) => Some(format!(" in step {step}")),
    }
}

fn verdict(page: &mut Page, report: &DryRunReport) {
    match report.verdict {
        Verdict::Fits => verdict_fits(page, report),
        Verdict::Recovered => verdict_recovered(page, report),
        Verdict::Oom => {
            let (device, oom) = match report.oom_device() {
                Some((device, oom)) => (Some(device), Some(oom)),
                None => (None, None),
            };
            let step = oom.and_then(step_of);
            let phase = oom.and_then(|oom| phase(oom.phase));
            if let Some(oom) = oom.filter(|oom| oom.forecast) {
                let step = oom.step.map_or_else(|| " before its loop ends".into(), |step| format!(" in step {step}"));
                let text = format!(" its memory grows, and the card would be full{step} (forecast, not run)");
                page.paragraph(0, 2, &[(Ink::Bad, "does not fit:"), (Ink::Strong, &text)]);
                return;
            }
            let longest = report.batches.as_ref().and_then(|all| all.longest_in(oom?.step).map(|batch| (all, batch)));
            // It was put there: when it comes, the order of the samples decides.
            let step = step.filter(|_| longest.is_none());
            let mut text = match (step, phase) {
                (Some(step), Some(phase)) => format!(" it dies{step}, {phase}"),
                (Some(step), None) => format!(" it dies{step}"),
                (None, Some(phase)) => format!(" it dies {phase}"),
                (None, None) => " it dies of an allocation that the card refused".into(),
            };
            if let Some((all, batch)) = longest {
                text += &format!(", on a batch of the longest samples ({})", batches::extent(batch, &all.seen.unit));
            }
            if let Some(device) = device {
                text += &format!(", on {}", place(device, report.devices.len()));
            }
            page.paragraph(0, 2, &[(Ink::Bad, "does not fit:"), (Ink::Strong, &text)]);
        }
        Verdict::Unsure => match (&report.unsure, &report.waits) {
            (Some(unsure), _) => doubt::unsure(page, unsure),
            (None, Some(waits)) => doubt::waits(page, waits),
            (None, None) => doubt::left_out(page),
        },
        Verdict::Failed => {
            if let Some(host) = &report.host {
                doubt::host(page, host);
                return;
            }
            if let Some(fault) = &report.fault {
                doubt::fault(page, fault);
                return;
            }
            if let Some(missing) = &report.missing_card {
                doubt::missing_card(page, missing);
                return;
            }
            if let Some(why) = &report.fallback {
                let text = format!(" the cards were not used as the program asked. {}", clean(why));
                page.paragraph(0, 2, &[(Ink::Bad, "failed:"), (Ink::Strong, &text)]);
                return;
            }
            let text = match (report.stopped, report.exit_status) {
                (_, status @ 129..=192) => format!(" the program was ended by signal {}", status - 128),
                (_, status) => format!(" the program ended with exit status {status}"),
            };
            page.paragraph(
                0,
                2,
                &[
                    (Ink::Bad, "failed:"),
                    (Ink::Strong, &text),
                    (Ink::Plain, ", and not for lack of GPU memory; its own message is above"),
                ],
            );
        }
        Verdict::NoGpuUse => {
            let text = match report.stopped {
                Stopped::Timeout => " the program had not used a GPU when its time was up",
                _ => " the program ended without using a GPU",
            };
            page.paragraph(0, 2, &[(Ink::Care, "no GPU use:"), (Ink::Strong, text)]);
            if let Some(missing) = &report.missing_card {
                page.paragraph(2, 4, &[(Ink::Plain, &doubt::why_missing(missing))]);
            }
        }
    }
}

/// Which of several cards decides, and why.
fn worst(page: &mut Page, report: &DryRunReport) {
    let Some(worst) = report.worst.as_ref().filter(|worst| worst.differs(&report.devices)) else { return };
    let ranks: Vec<String> = worst.ranks.iter().map(u32::to_string).collect();
    let ranks = match ranks.as_slice() {
        [] => String::new(),
        [one] => format!(" (rank {one})"),
        several => format!(" (ranks {})", several.join(", ")),
    };
    let title = format!("GPU {}{ranks} decides:", worst.index);
    page.paragraph(0, 2, &[(Ink::Strong, &title), (Ink::Plain, &format!(" it {}", clean(&worst.because)))]);
}

fn verdict_fits(page: &mut Page, report: &DryRunReport) {
    // The card with the least room decides.
    let tightest = report
        .devices
        .iter()
        .filter_map(|device| {
            let room = i128::from(device.capacity_bytes?) - i128::from(device.need()?.process_bytes);
            Some((device, room.min(allowed::room(device))))
        })
        .min_by_key(|(_, room)| *room);
    let Some((device, room)) = tightest else {
        let need = |device: &DeviceReport| device.need().unwrap_or(device.peak).process_bytes;
        let most = report.devices.iter().map(need).max().unwrap_or(0);
        let each = if report.devices.len() > 1 { " on the fullest card" } else { "" };
        let text = format!(" {} of GPU memory{each}", size(most));
        page.paragraph(0, 2, &[(Ink::Good, "needs"), (Ink::Strong, &text)]);
        return;
    };
    let room = u64::try_from(room).unwrap_or(0);
    let text = format!(" {} to spare on {}", size(room), place(device, report.devices.len()));
    let tight = device.capacity_bytes.is_some_and(|capacity| device.peak.high_bytes > capacity);
    // What came later, had it gone on, nobody has seen.
    let is_cut = matches!(report.stopped, Stopped::Interrupted | Stopped::Timeout);
    let (ink, word) = match (tight, report.unreached.is_empty() && !is_cut) {
        (true, true) => (Ink::Care, "fits, tightly:"),
        (true, false) => (Ink::Care, "fits, tightly, as far as it ran:"),
        (false, true) => (Ink::Good, "fits:"),
        (false, false) => (Ink::Good, "fits as far as it ran:"),
    };
    page.paragraph(0, 2, &[(ink, word), (Ink::Strong, &text)]);
    if tight {
        let doubt = size(device.peak.high_bytes - device.peak.process_bytes);
        let text = format!(" a real card may take up to {doubt} more, which this card does not have");
        page.paragraph(0, 2, &[(Ink::Care, "careful:"), (Ink::Plain, &text)]);
    }
}

/// A program that caught its out-of-memory error did not run as it is written.
fn verdict_recovered(page: &mut Page, report: &DryRunReport) {
    let found = report.devices.iter().find_map(|device| Some((device, device.caught_ooms.last()?)));
    let on = found.map(|(device, _)| format!(" on {}", place(device, report.devices.len()))).unwrap_or_default();
    let text = format!(" it ran out of memory{on}, caught the error and went on");
    page.paragraph(0, 2, &[(Ink::Bad, "recovered:"), (Ink::Strong, &text)]);
}

fn place(device: &DeviceReport, devices: usize) -> String {
    let name = match (device.gpu.as_str(), device.capacity_bytes) {
        (UNBOUNDED, _) | (_, None) => "a card without a limit".into(),
        (CUSTOM, Some(capacity)) => format!("a card of {}", size(capacity)),
        _ if device.gpu_name.is_empty() => clean(&device.gpu).into_owned(),
        _ => clean(&device.gpu_name).into_owned(),
    };
    if devices > 1 { format!("GPU {}, {name}", device.index) } else { name }
}

/// A card's name in a sentence: `an RTX 3060`.
fn with_article(name: &str) -> String {
    let name = ["NVIDIA GeForce ", "NVIDIA "].iter().find_map(|maker| name.strip_prefix(maker)).unwrap_or(name);
    let mut letters = name.chars();
    let first = letters.next().unwrap_or(' ');
    // A name in capitals is spelt out.
    let vowels = if letters.next().is_some_and(char::is_lowercase) { "AEIOU" } else { "AEFHILMNORSX" };
    format!("{} {name}", if vowels.contains(first) { "an" } else { "a" })
}

pub(super) fn phase(phase: Phase) -> Option<&'static str> {
    Some(match phase {
        Phase::Forward => "in the forward pass",
        Phase::Backward => "in the backward pass",
        Phase::Optimizer => "in the optimizer's step",
        Phase::Load => "while loading the model",
        Phase::Eval => "during evaluation",
        Phase::Generate => "while generating",
        Phase::Saving => "while saving",
        Phase::TextEncoding => "while encoding the prompt",
        Phase::Denoising => "while denoising",
        Phase::Decoding => "while decoding the image",
        Phase::Other | Phase::BeforeRecording => return None,
    })
}

fn devices(page: &mut Page, report: &DryRunReport) {
    let (mut shown, alike): (Vec<&DeviceReport>, Vec<&DeviceReport>) =
        report.devices.iter().partition(|device| device.as_device.is_none());
    if shown.len() > MOST_BARS {
        shown.sort_by_key(|device| {
            (device.oom.is_none(), std::cmp::Reverse(device.need().unwrap_or(device.peak).process_bytes))
        });
        shown.truncate(MOST_BARS);
        shown.sort_by_key(|device| device.index);
    }
    for device in &shown {
        page.gap();
        one_device(page, device, report.devices.len());
    }
    for group in alike.chunk_by(|one, next| next.index == one.index + 1 && next.as_device == one.as_device) {
        let ([first, ..], [.., last], Some(like)) = (group, group, group[0].as_device) else { continue };
        let cards = if first.index == last.index {
            format!("GPU {}", first.index)
        } else {
            format!("GPU {} to {}", first.index, last.index)
        };
        page.gap();
        page.paragraph(0, 2, &[(Ink::Strong, &cards), (Ink::Plain, &format!(": not run, as GPU {like}"))]);
    }
    let hidden = report.devices.len() - shown.len() - alike.len();
    if hidden > 0 {
        page.gap();
        page.paragraph(0, 2, &[(Ink::Faint, &format!("and {hidden} more, none of them fuller than these"))]);
    }
}

fn one_device(page: &mut Page, device: &DeviceReport, devices: usize) {
    let mut title = vec![(Ink::Strong, place(device, devices))];
    let name = clean(&device.gpu_name);
    match (device.gpu.as_str(), device.capacity_bytes) {
        (UNBOUNDED | CUSTOM, _) | (_, None) => {
            if device.like.is_some() {
                title.push((Ink::Faint, format!(", otherwise like {}", with_article(&name))));
            }
        }
        (gpu, Some(capacity)) => {
            if gpu != device.gpu_name && !device.gpu_name.is_empty() {
                title.push((Ink::Faint, format!(" ({})", clean(gpu))));
            }
            title.push((Ink::Plain, format!(", {}", size(capacity))));
        }
    }
    if device.processes == 0 {
        title.push((Ink::Plain, ": not used".into()));
    }
    if device.processes > 1 {
        title.push((Ink::Plain, format!(", {} processes", device.processes)));
    }
    let title: Vec<(Ink, &str)> = title.iter().map(|(ink, text)| (*ink, text.as_str())).collect();
    page.paragraph(0, 2, &title);
    if let Some(correction) = &device.correction {
        page.paragraph(2, 4, &[(Ink::Faint, &super::calibrate::corrected(correction))]);
    }
    if device.processes == 0 {
        return;
    }

    let now = device.oom.as_ref().map_or(device.peak, |oom| at_oom(device, oom));
    bars(page, device, &now);
    legend(page, device, &now);
    if devices <= 2 {
        figures(page, device);
    }
    if let Some(oom) = device.oom.as_ref().or(device.caught_ooms.last()) {
        death(page, device, oom);
    }
    if devices <= 2 {
        capacity(page, device);
        followed::phases(page, device);
    }
    if let (Some(whose), true) = (&device.whose, devices <= 2) {
        owners(page, whose);
    }
}

/// Whose memory it was, and the lines that allocated the most of it.
fn owners(page: &mut Page, whose: &Whose) {
    page.gap();
    let moment = if whose.at == "oom" { "when it died" } else { "at the peak" };
    page.paragraph(2, 4, &[(Ink::Strong, "memory by owner"), (Ink::Plain, &format!(" {moment}"))]);
    let rows: Vec<OwnerRow> = whose.owners.iter().take(MOST_OWNERS).copied().collect();
    explain_snapshot::table(page, &rows, whose.owners.iter().map(|row| row.bytes).sum());
    let hidden: u64 = whose.owners.iter().skip(MOST_OWNERS).map(|row| row.bytes).sum();
    if hidden > 0 {
        page.paragraph(2, 4, &[(Ink::Faint, &format!("and {} of others", size(hidden)))]);
    }
    explain_snapshot::groups(page, 2, "lines that took the most", &whose.by_line, MOST_LINES);
}

fn figures(page: &mut Page, device: &DeviceReport) {
    let peak = &device.peak;
    if device.oom.is_some() {
        return;
    }
    let mut text = format!(" {}", size(peak.process_bytes));
    if device.peak_is_maximum {
        let most = size(peak.high_bytes);
        text += &format!(" (at most {most} on a real card: sizes that were not computed are the most there can be)");
    } else if size(peak.low_bytes) != size(peak.high_bytes) {
        text += &format!(" (between {} and {} on a real card)", size(peak.low_bytes), size(peak.high_bytes));
    }
    text += if device.processes > 1 {
        ": all processes together, as nvidia-smi would show"
    } else {
        ": the whole process, as nvidia-smi would show it"
    };
    page.paragraph(2, 4, &[(Ink::Strong, "peak"), (Ink::Plain, &text)]);
    match (peak.reserved_bytes, peak.allocated_bytes) {
        (Some(reserved), Some(allocated)) => {
            let text = format!("reserved {}, allocated {}: the framework's own peaks", size(reserved), size(allocated));
            page.paragraph(2, 4, &[(Ink::Plain, &text)]);
        }
        (None, Some(allocated)) => {
            let text = format!("allocated {}: the framework's own peak", size(allocated));
            page.paragraph(2, 4, &[(Ink::Plain, &text)]);
        }
        _ => {}
    }
    let of_pool = device.pool.as_ref().and_then(|pool| pool_words(device, pool));
    for text in of_pool.into_iter().chain(allowed::words(device)) {
        page.paragraph(2, 4, &[(Ink::Plain, &text)]);
    }
}

/// What the framework's own rule for its pool means for the card.
fn pool_words(device: &DeviceReport, pool: &Pool) -> Option<String> {
    let limit = pool.limit_bytes?;
    let limit_words = size(limit);
    Some(match (pool.scales, device.capacity_bytes) {
        (PoolScale::Share, Some(capacity)) if capacity > 0 => {
            let percent = u128::from(limit) * 100 / u128::from(capacity);
            let decides = device.oom.as_ref().is_some_and(|oom| decided_by_the_pool(device, oom));
            let decides = if decides { ", which decides: the card itself has the memory" } else { "" };
            format!("its pool may take {limit_words} of this card ({percent} %){decides}")
        }
        (PoolScale::Fixed, _) => format!("its pool may take {limit_words}, because the program says so"),
        (_, None) => return None,
        (_, Some(_)) => format!("its pool may take {limit_words} of this card"),
    })
}

/// Whether the card had what was requested, and the rule for the pool did not let it be taken.
fn decided_by_the_pool(device: &DeviceReport, oom: &Oom) -> bool {
    let (Some(capacity), true) = (device.capacity_bytes, oom.requested_bytes > 0) else { return false };
    let held = oom.allocated_bytes.unwrap_or(u64::MAX).saturating_add(device.peak.context_bytes);
    held.saturating_add(oom.requested_bytes) <= capacity
}

/// What XLA says that the largest program it compiled needs.
fn compiled(page: &mut Page, report: &DryRunReport) {
    let Some(program) = report.compiled.first() else { return };
    let mut text = format!(
        " {} needs {}: arguments {}, outputs {}",
        clean(&program.name),
        size(program.need_bytes()),
        size(program.argument_bytes),
        size(program.output_bytes)
    );
    if program.alias_bytes > 0 {
        text += &format!(" ({} of them in place of arguments)", size(program.alias_bytes));
    }
    text += &format!(", temporary {}", size(program.temp_bytes));
    page.paragraph(0, 2, &[(Ink::Strong, "largest compiled program:"), (Ink::Plain, &text)]);
}

fn death(page: &mut Page, device: &DeviceReport, oom: &Oom) {
    site::write(page, oom);
    page.gap();
    let mut text = match oom.requested_bytes {
        0 => " an unknown amount (not in the error),".to_owned(),
        bytes => format!(" {}", size(bytes)),
    };
    if let Some(free) = oom.free_bytes {
        text += &format!(" with {} free", size(free));
    }
    page.paragraph(2, 4, &[(Ink::Strong, "requested"), (Ink::Plain, text.trim_end_matches(','))]);
    let of_pool = device.pool.as_ref().and_then(|pool| pool_words(device, pool));
    for text in of_pool.into_iter().chain(allowed::words(device)) {
        page.paragraph(2, 4, &[(Ink::Plain, &text)]);
    }
    if let Some(instead) = &oom.instead {
        page.paragraph(2, 4, &[(Ink::Strong, "then"), (Ink::Plain, &instead_words(instead))]);
    }
    let Some(capacity) = device.capacity_bytes else { return };
    match (oom.would_need_bytes, device.needed) {
        (Some(need), needed) => {
            let least = match (device.needed_is_minimum, device.peak_is_maximum) {
                (true, _) => " at least",
                (false, true) => " at most",
                (false, false) => "",
            };
            let mut text = format!("{least} {} in all", size(need));
            if let Some(needed) = needed.filter(|needed| {
                // The least has nothing above it.
                !device.needed_is_minimum
                    && !device.peak_is_maximum
                    && size(needed.low_bytes) != size(needed.high_bytes)
                    && (needed.low_bytes..=needed.high_bytes).contains(&need)
            }) {
                text += &format!(" (between {} and {})", size(needed.low_bytes), size(needed.high_bytes));
            }
            text += &if let Some(words) = allowed::need_words(device, need) {
                words
            } else if need > capacity {
                format!(", {} more than the card's {}", size(need - capacity), size(capacity))
            } else {
                format!(
                    ", which is no more than the card's {}: the program allocates differently on an unlimited card",
                    size(capacity)
                )
            };
            page.paragraph(2, 4, &[(Ink::Strong, "needs"), (Ink::Plain, &text)]);
        }
        (None, _) if allowed::is_fixed(device) => {
            let text = " more than the program lets PyTorch take; a larger card changes nothing";
            page.paragraph(2, 4, &[(Ink::Strong, "needs"), (Ink::Plain, text)]);
        }
        (None, _) if device.pool.is_some_and(|pool| pool.scales == PoolScale::Fixed) => {
            let text = " more than the program lets its pool take; a larger card changes nothing";
            page.paragraph(2, 4, &[(Ink::Strong, "needs"), (Ink::Plain, text)]);
        }
        (None, _) => {
            page.paragraph(2, 4, &[(Ink::Strong, "needs"), (Ink::Plain, " an amount that was not measured")]);
        }
    }
}

/// What a program did after the error that it caught.
fn instead_words(instead: &Instead) -> String {
    let Instead { requested_bytes, granted_bytes, .. } = *instead;
    let share = match granted_bytes {
        0 => None,
        granted => Some((requested_bytes as f64 / granted as f64).round() as u64),
    };
    let share = match share {
        Some(2) => " (half as much)".to_owned(),
        Some(parts @ 3..) => format!(" (1/{parts} of it)"),
        _ => String::new(),
    };
    format!(
        " it went on with less: the line that first requested {} later got {}{share}",
        size(requested_bytes),
        size(granted_bytes)
    )
}

/// How the smallest capacity is known, and what of the cache a smaller card gives back.
fn capacity(page: &mut Page, device: &DeviceReport) {
    let Some(found) = &device.smallest_capacity else { return };
    match (found.how, found.fails_bytes) {
        (CapacityKnown::Run, _) if !found.ran_on.is_empty() => {
            let ran = |held| {
                let mut sizes: Vec<u64> =
                    found.ran_on.iter().filter(|run| run.held == held).map(|run| run.bytes).collect();
                sizes.sort_unstable();
                sizes.into_iter().map(size).collect::<Vec<_>>().join(", ")
            };
            let dead = match ran(false) {
                none if none.is_empty() => "; no smaller card was seen to fail".into(),
                sizes => format!("; it ran out of memory with {sizes}"),
            };
            let text = format!("the program adapts to the card, so it was run: it fits with {}{dead}", ran(true));
            page.paragraph(2, 4, &[(Ink::Faint, &text)]);
        }
        (CapacityKnown::Run, Some(fails)) => {
            let text = format!("it ran with {} and ran out of memory with {}", size(found.capacity_bytes), size(fails));
            page.paragraph(2, 4, &[(Ink::Faint, &text)]);
        }
        (CapacityKnown::Run, None) => {
            let text = format!("it ran with {}; no smaller card was seen to fail", size(found.capacity_bytes));
            page.paragraph(2, 4, &[(Ink::Faint, &text)]);
        }
        (CapacityKnown::Peak, _) => {
            let text = "this is the peak on a card without a limit, whose cache is never given back";
            page.paragraph(2, 4, &[(Ink::Faint, text)]);
        }
        (CapacityKnown::Computed, _) => {
            let text = format!(
                "vLLM takes a share of whatever card it gets; by its own figures {} is enough, with a cache for one request of \
                 the longest length; it was not run there",
                size(found.capacity_bytes)
            );
            page.paragraph(2, 4, &[(Ink::Plain, &text)]);
        }
        (CapacityKnown::Replayed, _) => {}
    }
    let noticeable = |reserved: u64| found.given_back_bytes > reserved / 100;
    if let Some(reserved) = found.reserved_bytes.filter(|&reserved| noticeable(reserved)) {
        let limit = if device.oom.is_some() || device.capacity_bytes.is_none() { " without a limit" } else { "" };
        let text = format!(
            "of the {} reserved{limit}, {} is cache that would be given back on a smaller card",
            size(reserved),
            size(found.given_back_bytes)
        );
        page.paragraph(2, 4, &[(Ink::Plain, &text)]);
    }
    if let Some(less) = found.may_hold_bytes {
        let text = format!(
            "a card of {} may also hold it, with smaller workspaces for its convolutions; it was not run there",
            size(less)
        );
        page.paragraph(2, 4, &[(Ink::Plain, &text)]);
    }
}

fn run(page: &mut Page, report: &DryRunReport) {
    page.gap();
    let steps = match report.steps {
        0 => String::new(),
        1 => " after 1 optimizer step".into(),
        steps => format!(" after {steps} optimizer steps"),
    };
    let why = match report.stopped {
        Stopped::PeakStable => format!("stopped{steps}, peak stable,"),
        Stopped::Steps => format!("stopped{steps}, as asked,"),
        Stopped::Exit => format!("ended{steps}"),
        Stopped::Timeout => format!("timed out{steps}"),
        Stopped::Oom => format!("died{steps}"),
        Stopped::Interrupted => format!("was interrupted{steps}"),
        Stopped::Listening => "started, and waited for requests when it was stopped,".to_owned(),
        Stopped::Waiting => format!("ended{steps}, because it waited,"),
        Stopped::Budget => format!("stopped{steps} with a stable peak, in a loop that cannot be shortened,"),
    };
    let mut frameworks: Vec<(&String, &String)> = report.frameworks.iter().collect();
    // The framework itself goes before the libraries under it.
    frameworks.sort_by_key(|(name, _)| name.as_str() != "torch");
    let frameworks: Vec<String> =
        frameworks.iter().map(|(name, version)| format!("{} {}", clean(name), clean(version))).collect();
    let with = if frameworks.is_empty() { String::new() } else { format!("; {}", frameworks.join(", ")) };
    let text = format!("{why} in {:.1} s{with}", report.elapsed_seconds.max(0.0));
    page.paragraph(0, 2, &[(Ink::Faint, &text)]);
}

/// What was kept away from the user's files.
fn writes(page: &mut Page, report: &DryRunReport) {
    let Some(writes) = report.writes.as_ref().filter(|writes| writes.count > 0) else { return };
    let files = if writes.count == 1 { "1 file".to_owned() } else { format!("{} files", writes.count) };
    let mut names: Vec<String> = writes.files.iter().take(MOST_FILES).map(|file| clean(&file.path).into()).collect();
    let hidden = writes.count.saturating_sub(names.len() as u64);
    if hidden > 0 {
        names.push(format!("and {hidden} more"));
    }
    let text = format!("changed {files} ({}), none of which was kept: {}", size(writes.bytes), names.join(", "));
    page.paragraph(0, 2, &[(Ink::Faint, &text)]);
}

/// Whether only the least that it needs is known, and a card of the catalogue has as much.
fn has_room_for_the_least(device: &DeviceReport) -> bool {
    let has = |need: Peak| Catalogue::builtin().iter().any(|gpu| gpu.capacity_bytes >= need.process_bytes);
    device.needed_is_minimum && device.need().is_some_and(has)
}

fn smallest(page: &mut Page, report: &DryRunReport) {
    let known = !report.devices.is_empty() && report.devices.iter().all(|device| device.need().is_some());
    // Of a program that went on with less it may not be known what it takes unmodified, and of another the least that it needs.
    let may_be_held = report.verdict == Verdict::Recovered || report.devices.iter().any(has_room_for_the_least);
    let unknown = report.smallest.is_empty() && may_be_held;
    let left_out = report.verdict == Verdict::Unsure && report.unsure.is_none();
    if matches!(report.verdict, Verdict::NoGpuUse | Verdict::Failed) || left_out || !known || unknown {
        return;
    }
    page.gap();
    let count = report.devices.iter().filter(|device| device.processes > 0).count();
    let each = if count > 1 { format!(" ({count} of them)") } else { String::new() };
    if report.smallest.is_empty() {
        page.paragraph(0, 2, &[(Ink::Strong, "no card of the catalogue holds it"), (Ink::Plain, &each)]);
        return;
    }
    let written = if report.verdict == Verdict::Recovered { " as it is written" } else { "" };
    let title = format!("smallest cards that hold it{written}{each}:");
    page.paragraph(0, 2, &[(Ink::Strong, &title)]);
    let name_width = report.smallest.iter().map(|card| card.gpu.chars().count()).max().unwrap_or(0);
    for card in &report.smallest {
        let mut text = format!(
            "{:<name_width$}  {:>9}, {} to spare",
            clean(&card.gpu),
            size(card.capacity_bytes),
            size(card.spare_bytes)
        );
        let marks: Vec<&str> = super::mark(card.kind)
            .into_iter()
            .chain(card.tight.then_some("tight"))
            .chain(card.confirmed.then_some("run on it"))
            .collect();
        if !marks.is_empty() {
            text += &format!(" ({})", marks.join(", "));
        }
        page.line(2, &[(Ink::Plain, &text)]);
    }
    let more = report.fits_on.len().saturating_sub(report.smallest.len());
    if more > 0 {
        page.paragraph(2, 4, &[(Ink::Faint, &format!("and {more} more"))]);
    }
}

fn warnings(page: &mut Page, report: &DryRunReport) {
    if report.warnings.is_empty() {
        return;
    }
    page.gap();
    for warning in report.warnings.iter().take(MOST_WARNINGS) {
        page.paragraph(0, 2, &[(Ink::Care, "warning:"), (Ink::Plain, &format!(" {}", clean(warning)))]);
    }
    let hidden = report.warnings.len().saturating_sub(MOST_WARNINGS);
    if hidden > 0 {
        page.paragraph(0, 2, &[(Ink::Care, &format!("and {hidden} more warnings; --format json has them all"))]);
    }
}

fn way_on(page: &mut Page, report: &DryRunReport) {
    for next in &report.next {
        page.gap();
        page.paragraph(0, 2, &[(Ink::Strong, &format!("{}:", clean(&next.why)))]);
        page.line(2, &[(Ink::Plain, &clean(&next.command))]);
    }
}
