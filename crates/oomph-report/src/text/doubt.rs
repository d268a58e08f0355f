//! Shows doubts: an answer that depends on sizes that nothing computed, a host whose memory ran out, and a program that
//! oomph could not run.

use oomph_protocol::Verdict;

use super::page::{Ink, Page};
use super::statics;
use crate::clean;
use crate::doubt::{End, Fault, GIVE_IT_WORK, HostShortage, MissingCard, UnknownSize, Unsure, Waiting};
use crate::site::Site;
use oomph_gpu::size::format as size;

/// Sizes that are printed one by one; JSON has all of them.
const MOST_SIZES: usize = 3;

/// The verdict of an answer that is unsure.
pub(super) fn unsure(page: &mut Page, unsure: &Unsure) {
    let text = " it depends on sizes that were not computed here";
    page.paragraph(0, 2, &[(Ink::Care, "unsure:"), (Ink::Strong, text)]);
    for (name, end) in [("as small as can be", &unsure.least), ("as large as can be", &unsure.most)] {
        page.paragraph(2, 4, &[(Ink::Strong, name), (Ink::Plain, &format!(": {}", outcome(end)))]);
    }
    for one in unsure.sizes.iter().take(MOST_SIZES) {
        let UnknownSize { operation, site, low, high } = one;
        let at = site.as_ref().map(place).unwrap_or_default();
        page.paragraph(2, 4, &[(Ink::Plain, &format!("{}{at}: {low} to {high} elements", clean(operation)))]);
    }
    let hidden = unsure.sizes.len().saturating_sub(MOST_SIZES);
    if hidden > 0 {
        page.paragraph(2, 4, &[(Ink::Faint, &format!("and {hidden} more; --format json has them all"))]);
    }
    page.paragraph(2, 4, &[(Ink::Faint, "all figures below are of the largest sizes")]);
}

/// The verdict of an answer that lacks a part of the program, which is named further below.
pub(super) fn left_out(page: &mut Page) {
    let text = " it fits as far as it ran; what comes after a loop that was too long was not run as it would be";
    page.paragraph(0, 2, &[(Ink::Care, "unsure:"), (Ink::Strong, text)]);
    page.paragraph(2, 4, &[(Ink::Plain, "--until-exit runs all of it")]);
}

/// The verdict of a program that was ended while it waited.
pub(super) fn waits(page: &mut Page, waits: &Waiting) {
    let text = " the program waited for something that never came; what it would do with it was not seen";
    page.paragraph(0, 2, &[(Ink::Care, "not known:"), (Ink::Strong, text)]);
    let called = waits.called.as_ref().map(|called| format!(" ({})", clean(called))).unwrap_or_default();
    let at = waits.site.as_ref().map(|site| format!("{}{called}", place(site))).unwrap_or_default();
    let text = format!("{at}, nothing was computed for {:.0} s", waits.seconds.max(0.0));
    page.paragraph(
        2,
        4,
        &[(Ink::Strong, "waits"), (Ink::Plain, if at.is_empty() { text.trim_start_matches(',') } else { &text })],
    );
    if let Some(text) = waits.site.as_ref().and_then(|site| site.text.as_ref()) {
        page.paragraph(6, 6, &[(Ink::Faint, &clean(text))]);
    }
    page.paragraph(2, 4, &[(Ink::Plain, GIVE_IT_WORK)]);
    page.paragraph(2, 4, &[(Ink::Faint, "all figures below are of what it did until then")]);
}

fn outcome(end: &End) -> String {
    let word = match end.verdict {
        Verdict::Fits => "it fits",
        Verdict::Recovered => "it runs out of memory and recovers",
        Verdict::Oom => "it does not fit",
        Verdict::Failed => "the program fails for another reason",
        Verdict::NoGpuUse => "it does not use a GPU",
        Verdict::Unsure => "unsure",
    };
    match end.need_bytes {
        Some(bytes) => format!("{word}, with {}", size(bytes)),
        None => word.into(),
    }
}

fn place(site: &Site) -> String {
    format!(" at {}:{}", clean(&site.file), site.line)
}

/// The verdict of a run that the host's memory ended.
pub(super) fn host(page: &mut Page, host: &HostShortage) {
    let text = if host.killed {
        " the host ran out of memory, and its kernel killed the program"
    } else {
        " the host ran out of memory, not the GPU"
    };
    page.paragraph(0, 2, &[(Ink::Bad, "failed:"), (Ink::Strong, text)]);
    let total = host.total_bytes.map(|bytes| format!(", and this machine has {}", size(bytes))).unwrap_or_default();
    let at = host.site.as_ref().map(place).unwrap_or_default();
    if let Some(bytes) = host.requested_bytes {
        page.paragraph(
            2,
            4,
            &[(Ink::Strong, "requested"), (Ink::Plain, &format!(" {} at once{at}{total}", size(bytes)))],
        );
    } else if !at.is_empty() || !total.is_empty() {
        let text = format!("{at}{total}");
        page.paragraph(2, 4, &[(Ink::Plain, text.trim_start_matches([',', ' ']))]);
    }
    let text = "a dry run keeps on the host what the program keeps there: run it on a machine, or in a container, with \
                more memory, or have the program keep less there";
    page.paragraph(2, 4, &[(Ink::Plain, text)]);
}

/// The verdict of a program that asked for a card that its run lacks.
pub(super) fn missing_card(page: &mut Page, missing: &MissingCard) {
    page.paragraph(0, 2, &[(Ink::Bad, "failed:"), (Ink::Strong, &format!(" {}", why_missing(missing)))]);
    if let Some(site) = &missing.site {
        page.paragraph(2, 4, &[(Ink::Plain, place(site).trim_start())]);
    }
}

/// Which card was asked for, and why it is not there.
pub(super) fn why_missing(missing: &MissingCard) -> String {
    let cards = |count: u32| if count == 1 { "1 card".to_owned() } else { format!("{count} cards") };
    let has = format!("the virtual machine has {}", cards(missing.cards));
    let list = missing.list.as_ref().map(|list| format!("CUDA_VISIBLE_DEVICES={}", clean(list)));
    match (missing.ordinal, list, missing.needs) {
        (Some(ordinal), None, _) => format!("the program asks for card {ordinal} (cuda:{ordinal}), and {has}"),
        (Some(ordinal), Some(list), Some(_)) => {
            format!("the program asks for card {ordinal} (cuda:{ordinal}) of {list}, and {has}")
        }
        (Some(ordinal), Some(list), None) => {
            format!("the program asks for card {ordinal} (cuda:{ordinal}), which {list} leaves out")
        }
        (None, Some(list), _) => format!("{list} names a card that is not there; {has}"),
        (None, None, _) => has,
    }
}

/// That oomph could not run a program: what was asked, what it died of, and what to report.
pub(super) fn fault(page: &mut Page, fault: &Fault) {
    if let Some(file) = &fault.static_runtime {
        return statics::print(page, file, &fault.message);
    }
    let why = if fault.own.is_some() {
        " something of oomph's own died in it"
    } else if fault.abridged.is_some() {
        " it failed in a loop that oomph had shortened"
    } else if fault.crashed_at.is_some() {
        " a signal ended it in code of oomph's own"
    } else if fault.read_at.is_some() {
        " it ended itself by a value that was never computed"
    } else if fault.asked.is_empty() {
        " it failed after an answer that a real driver would not have given"
    } else {
        " it called what the virtual GPU does not support, and failed"
    };
    page.paragraph(0, 2, &[(Ink::Bad, "oomph could not run this:"), (Ink::Strong, why)]);
    if !fault.asked.is_empty() {
        let names: Vec<String> = fault.asked.iter().map(|name| clean(name).into_owned()).collect();
        page.paragraph(2, 4, &[(Ink::Strong, "called"), (Ink::Plain, &format!(" {}", names.join(", ")))]);
    }
    if let Some(place) = &fault.crashed_at {
        page.paragraph(2, 4, &[(Ink::Strong, "crashed"), (Ink::Plain, &format!(" in {}", clean(place)))]);
    }
    if !fault.message.is_empty() {
        page.paragraph(2, 4, &[(Ink::Strong, "error"), (Ink::Plain, &format!(" {}", clean(&fault.message)))]);
    }
    if let Some(site) = &fault.own {
        page.paragraph(
            2,
            4,
            &[(Ink::Strong, "in"), (Ink::Plain, &format!(" {}", place(site).trim_start_matches(" at ")))],
        );
    }
    if let Some(site) = &fault.abridged {
        let text = format!(" {}: its results were stand-ins of those before", place(site).trim_start());
        page.paragraph(2, 4, &[(Ink::Strong, "loop"), (Ink::Plain, &text)]);
        page.paragraph(
            2,
            4,
            &[(Ink::Plain, "--until-exit runs all of it; please report these lines with the version of oomph")],
        );
        return;
    }
    if let Some(site) = &fault.read_at {
        let text = format!(" {}: what the virtual GPU computes reads as zero", place(site).trim_start());
        page.paragraph(2, 4, &[(Ink::Strong, "read"), (Ink::Plain, &text)]);
        let text = "this says nothing of the program's memory: a real card may give a value with which it goes on; leave the \
                    check out for the dry run";
        page.paragraph(2, 4, &[(Ink::Plain, text)]);
        return;
    }
    let text = "this says nothing of the program or of its memory; please report these lines with the version of oomph";
    page.paragraph(2, 4, &[(Ink::Plain, text)]);
}
