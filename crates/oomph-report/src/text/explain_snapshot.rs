//! Shows what filled a card, who owned it and what would have helped, on one screen.

use oomph_explain::snapshot::{
    Cause, DeviceExplanation, GotPast, Group, Moment, Outcome, Owner, OwnerRow, PinnedHost, RankComparison, Source,
    WhatIf,
};
use oomph_gpu::size::format as size;

use super::page::{Ink, Page, shortened};
use crate::clean;
use crate::owner_names::owner_name;

/// Rows of lines and modules that are printed; JSON has all of them.
const MOST_GROUPS: usize = 5;
/// Causes that are printed.
const MOST_CAUSES: usize = 4;
/// Pieces of evidence of one cause that are printed.
const MOST_EVIDENCE: usize = 3;
/// The widest bar of an owner.
const WIDEST_BAR: usize = 40;

/// Writes one card of an explanation.
pub(super) fn device(page: &mut Page, device: &DeviceExplanation) {
    verdict(page, device);
    owners(page, device);
    causes(page, &device.causes);
    groups(page, 0, "top lines", &device.by_line, MOST_GROUPS);
    // Without stacks the sizes are what is known of the blocks.
    if device.by_line.is_empty() {
        groups(page, 0, "largest blocks", &device.by_size, MOST_GROUPS);
        churn(page, device);
    }
    groups(page, 0, "top modules", &device.by_module, MOST_GROUPS);
    what_if(page, device);
}

fn verdict(page: &mut Page, device: &DeviceExplanation) {
    let (ink, word) = match device.verdict.outcome {
        Outcome::Oom => (Ink::Bad, "out of memory"),
        Outcome::Fits => (Ink::Good, "fits"),
        Outcome::NoOom => (Ink::Good, "no out-of-memory error"),
    };
    let head = format!("{word} on cuda:{}:", device.index);
    page.paragraph(0, 2, &[(ink, &head), (Ink::Strong, &format!(" {}", clean(&device.verdict.happened)))]);
    let beyond = device.beyond.as_ref().map_or("", |beyond| beyond.because.as_str());
    for sentence in [&device.verdict.why, &device.verdict.what_helps, beyond] {
        if !sentence.is_empty() {
            page.paragraph(2, 4, &[(Ink::Plain, &clean(sentence))]);
        }
    }
    if let Some(past) = &device.got_past {
        page.paragraph(2, 4, &[(Ink::Plain, &got_past(past))]);
    }
}

/// The allocations that failed and that the program got past, in one sentence.
fn got_past(past: &GotPast) -> String {
    let caught = past.count.saturating_sub(past.workspaces);
    let times = |count: u64| if count == 1 { "1 time".to_owned() } else { format!("{count} times") };
    let mut parts = Vec::new();
    if past.workspaces > 0 {
        parts.push(format!("cuDNN was refused a workspace {} and used a smaller one", times(past.workspaces)));
    }
    if caught > 0 {
        parts.push(format!("an allocation failed {} and the program continued", times(caught)));
    }
    let site = past.site.as_ref().map_or(String::new(), |site| format!(" at {}", clean(&site.to_string())));
    format!("{}; the largest request was {}{site}", parts.join(", "), size(past.largest_bytes))
}

fn owners(page: &mut Page, device: &DeviceExplanation) {
    let peak = &device.peak;
    page.gap();
    let moment = match peak.at {
        Moment::Peak => "at the peak",
        Moment::Oom => "when it died",
        Moment::End => "at the end",
        Moment::Time => "at that time",
        Moment::Event => "at that event",
    };
    let figures = format!(": reserved {}, allocated {}", size(peak.reserved_bytes), size(peak.allocated_bytes));
    page.paragraph(0, 2, &[(Ink::Strong, &format!("memory by owner {moment}")), (Ink::Plain, &figures)]);
    table(page, &device.owners, device.owners.iter().map(|row| row.bytes).sum());
}

/// The owners with their bytes, their share of `total` and a bar; also used by a dry run.
pub(super) fn table(page: &mut Page, owners: &[OwnerRow], total: u64) {
    let largest = owners.iter().map(|row| row.bytes).max().unwrap_or(0).max(1);
    let names: Vec<String> = owners.iter().map(|row| owner_name(row.owner).to_owned()).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0);
    let room = page.width().saturating_sub(width + 2 + 2 + 11 + 2 + 5 + 2 + 12).clamp(0, WIDEST_BAR);
    for (row, name) in owners.iter().zip(&names).filter(|(row, _)| row.bytes > 0) {
        let percent = row.bytes as f64 * 100.0 / total.max(1) as f64;
        let head = format!("{name:<width$}  {:>11}  {percent:>3.0} %  ", size(row.bytes));
        let cells = (u128::from(row.bytes) * room as u128 / u128::from(largest)) as usize;
        let bar = owner_glyph(row.owner, page.unicode()).repeat(cells.max(usize::from(room > 0)));
        let how = match row.source {
            Source::Inferred if row.confidence < 0.995 => format!("  {:.0} % sure", row.confidence * 100.0),
            _ => String::new(),
        };
        page.line(2, &[(Ink::Plain, &head), (owner_ink(row.owner), &bar), (Ink::Faint, &how)]);
    }
}

fn owner_ink(owner: Owner) -> Ink {
    match owner {
        Owner::SlackInBlocks | Owner::CachedSplit | Owner::CachedUnsplit => Ink::Cached,
        Owner::Context | Owner::OtherProcesses => Ink::Context,
        Owner::Free => Ink::Faint,
        _ => Ink::Allocated,
    }
}

fn owner_glyph(owner: Owner, unicode: bool) -> &'static str {
    use super::bar::Part;
    match owner {
        Owner::SlackInBlocks | Owner::CachedSplit | Owner::CachedUnsplit => Part::Cached,
        Owner::Context | Owner::OtherProcesses => Part::Context,
        Owner::Free => Part::Free,
        _ => Part::Allocated,
    }
    .glyph(unicode)
}

fn causes(page: &mut Page, causes: &[Cause]) {
    let shown: Vec<&Cause> = causes.iter().filter(|cause| !cause.background).take(MOST_CAUSES).collect();
    if shown.is_empty() {
        return;
    }
    page.gap();
    page.paragraph(0, 2, &[(Ink::Strong, "why")]);
    for cause in shown {
        let bytes = if cause.bytes > 0 { format!(" {}:", size(cause.bytes)) } else { String::new() };
        let name = serde_json::to_value(cause.cause).ok().and_then(|value| value.as_str().map(str::to_owned));
        let name = name.unwrap_or_default().replace('-', " ");
        let because = format!(" {}", clean(&cause.because));
        page.paragraph(2, 4, &[(Ink::Strong, &format!("{name}:")), (Ink::Plain, &format!("{bytes}{because}"))]);
        for evidence in cause.evidence.iter().take(MOST_EVIDENCE) {
            let bytes = if evidence.bytes > 0 { format!("{}: ", size(evidence.bytes)) } else { String::new() };
            let site = evidence.site.as_ref().map(|site| format!(", {}", clean(&site.to_string()))).unwrap_or_default();
            page.paragraph(6, 8, &[(Ink::Faint, &format!("{bytes}{}{site}", clean(&evidence.what)))]);
        }
    }
}

/// A heading and the largest of some groups; also used by a dry run.
pub(super) fn groups(page: &mut Page, indent: usize, title: &str, groups: &[Group], most: usize) {
    if groups.is_empty() {
        return;
    }
    page.gap();
    page.paragraph(indent, indent + 2, &[(Ink::Strong, title)]);
    for group in groups.iter().take(most) {
        let owner = owner_name(group.owner);
        let room = page.width().saturating_sub(indent + 2 + 11 + 2 + owner.len() + 2 + 1);
        let name = if group.name.is_empty() { "(outside of modules)" } else { &group.name };
        let name = ending(&clean(name), room, page.unicode());
        let head = format!("{:>11}  {name}", size(group.bytes));
        page.line(indent + 2, &[(Ink::Plain, &head), (Ink::Faint, &format!("  {owner}"))]);
    }
    if groups.len() > most {
        page.paragraph(indent + 2, indent + 4, &[(Ink::Faint, &format!("and {} more", groups.len() - most))]);
    }
}

fn churn(page: &mut Page, device: &DeviceExplanation) {
    let (churn, peak) = (device.churn, device.peak_active_bytes);
    if churn.allocations == 0 || peak == 0 {
        return;
    }
    let times = churn.bytes as f64 / peak as f64;
    let text = format!("{} allocations of {} in all, {times:.1} times the peak", churn.allocations, size(churn.bytes));
    page.paragraph(2, 4, &[(Ink::Faint, &text)]);
}

/// Cuts a path or a module's name at its beginning: its end says more.
pub(super) fn ending(text: &str, room: usize, unicode: bool) -> String {
    let length = text.chars().count();
    if length <= room {
        return text.to_owned();
    }
    let dots = if unicode { "…" } else { "..." };
    let kept: String = text.chars().skip(length - room.saturating_sub(dots.chars().count()).min(length)).collect();
    format!("{dots}{kept}")
}

fn what_if(page: &mut Page, device: &DeviceExplanation) {
    // The first card of the table is the program's own, or any that is large enough.
    let Some(first) = device.what_if.first() else { return };
    page.gap();
    let own = format!(" on {}, by replaying the recording", clean(&first.card));
    page.paragraph(0, 2, &[(Ink::Strong, "what if"), (Ink::Faint, &own)]);
    let died = died(device);
    let rows: Vec<&WhatIf> = device.what_if.iter().filter(|row| row.card == first.card).collect();
    let name = |row: &WhatIf| -> String {
        let settings = clean(&row.settings);
        match (settings.is_empty(), row.as_recorded) {
            (true, true) => "as recorded".into(),
            (true, false) => "default settings".into(),
            (false, true) => format!("{settings} (as recorded)"),
            (false, false) => settings.to_string(),
        }
    };
    let width = rows.iter().map(|row| name(row).chars().count()).max().unwrap_or(0).min(page.width() / 2);
    for row in rows {
        let unclear = row.says.starts_with("unclear:");
        let by_places = row.may_survive && row.says.starts_with("depends on");
        let (ink, fate) = match (row.survives, row.may_survive) {
            _ if unclear && !row.as_recorded => (Ink::Plain, "unclear  "),
            (true, _) if died => (Ink::Plain, "gets past"),
            (true, _) => (Ink::Good, "fits     "),
            (false, true) => (Ink::Plain, "perhaps  "),
            (false, false) => (Ink::Bad, "dies     "),
        };
        let settings = shortened(&name(row), width, page.unicode());
        let said = row.as_recorded || unclear || died && (row.survives || !row.may_survive);
        let says = match (by_places, said) {
            (true, _) => format!("  {}: {} of {} replays fail", clean(&row.says), row.replays_died, row.replays),
            (false, true) => String::new(),
            (false, false) => format!("  {}", clean(&row.says)),
        };
        let (least, most) = (size(row.least_reserved_bytes), size(row.most_reserved_bytes));
        let between = if least == most { String::new() } else { format!("  ({least} to {most})") };
        let tail = format!("  {:>10}{between}{says}", size(row.peak_reserved_bytes));
        page.line(2, &[(Ink::Plain, &format!("{settings:<width$}  ")), (ink, fate), (Ink::Plain, &tail)]);
    }
    if let Some(row) = device.what_if.iter().find(|row| row.says.starts_with("unclear:")) {
        page.paragraph(2, 4, &[(Ink::Plain, &clean(&row.says))]);
        return;
    }
    if died {
        page.paragraph(
            2,
            4,
            &[(Ink::Faint, "the recording ends with this failure; a replay cannot show what comes after it")],
        );
    }
    other_cards(page, device, &first.card, died);
    if let Some(smallest) = &device.smallest_card {
        let card = smallest.card.as_ref().map(|card| format!(", such as {}", clean(card))).unwrap_or_default();
        let saved = smallest.allocator_bytes.saturating_sub(smallest.least_allocator_bytes);
        let less = match saved {
            0 => String::new(),
            _ => format!(
                ", and may fit on one of {} with smaller workspaces for cuDNN",
                size(smallest.capacity_bytes.saturating_sub(saved))
            ),
        };
        let rest = match smallest.unsearched_bytes {
            0 => String::new(),
            bytes => format!("; sizes up to {} smaller were not tested, because the recording is long", size(bytes)),
        };
        let passes = if died {
            "with the recorded settings it gets past this allocation on a card of"
        } else {
            "with the recorded settings what was recorded fits on a card of"
        };
        let text = format!("{passes} {}{card}{less}{rest}{}", size(smallest.capacity_bytes), further(device));
        page.paragraph(2, 4, &[(Ink::Plain, &text)]);
    }
}

/// Whether the recording ends with a failed allocation, so that no replay can show what comes after it.
fn died(device: &DeviceExplanation) -> bool {
    device.verdict.outcome == Outcome::Oom
}

/// What has to be added to a card that gets past the failure, as far as the recording shows it.
fn further(device: &DeviceExplanation) -> String {
    let Some(beyond) = device.beyond.as_ref().filter(|_| died(device)) else {
        return if died(device) {
            "; what the program takes after it was not recorded".to_owned()
        } else {
            String::new()
        };
    };
    match (beyond.bytes, beyond.each_bytes) {
        (Some(bytes), _) => {
            let refused = device.oom.as_ref().map_or(0, |oom| oom.requested_bytes);
            format!("; the program then takes about {} more", size(bytes.saturating_sub(refused)))
        }
        (None, Some(each)) => format!("; each {} more lasts for one further round", size(each)),
        (None, None) => String::new(),
    }
}

/// On which of the other cards the recording passes: one line for each fate.
fn other_cards(page: &mut Page, device: &DeviceExplanation, own: &str, died: bool) {
    let others = || device.what_if.iter().filter(|row| row.card != own);
    let recorded = |is: fn(&WhatIf) -> bool| -> Vec<String> {
        others().filter(|row| row.as_recorded && is(row)).map(|row| clean(&row.card).into()).collect()
    };
    let survives = recorded(|row| row.survives);
    let perhaps = recorded(|row| !row.survives && row.may_survive);
    let dies = recorded(|row| !row.may_survive);
    let saved: Vec<String> = others()
        .filter(|row| !row.as_recorded && row.survives && dies.contains(&row.card))
        .map(|row| format!("{} with {}", clean(&row.card), clean(&row.settings)))
        .collect();
    for (ink, words, cards) in [
        (Ink::Good, if died { "gets past this allocation on" } else { "fits on" }, survives),
        (Ink::Good, "also on", saved),
        (Ink::Plain, "perhaps, with smaller workspaces for cuDNN, on", perhaps),
        (Ink::Bad, if died { "dies on" } else { "does not fit on" }, dies),
    ] {
        if !cards.is_empty() {
            page.paragraph(2, 4, &[(ink, words), (Ink::Plain, &format!(" {}", cards.join(", ")))]);
        }
    }
}

/// Pinned host memory, which a card's table has no place for.
pub(super) fn pinned_host(page: &mut Page, host: &PinnedHost) {
    page.gap();
    let figures = format!(
        " {} at most, {} at the end, of which {} in use: host memory that PyTorch keeps in place for copies; it \
         uses no GPU memory",
        size(host.peak_reserved_bytes),
        size(host.reserved_bytes),
        size(host.in_use_bytes)
    );
    page.paragraph(0, 2, &[(Ink::Strong, "pinned host memory:"), (Ink::Plain, &figures)]);
    for line in host.by_line.iter().take(MOST_EVIDENCE) {
        if let Some(site) = &line.site {
            page.paragraph(2, 4, &[(Ink::Faint, &format!("{}: {}", size(line.bytes), clean(&site.to_string())))]);
        }
    }
}

/// Several recordings of one run compared.
pub(super) fn ranks(page: &mut Page, comparison: &RankComparison) {
    page.paragraph(0, 2, &[(Ink::Strong, "comparison by file")]);
    let width = comparison.ranks.iter().map(|rank| clean(&rank.label).chars().count()).max().unwrap_or(0);
    for rank in &comparison.ranks {
        let worst = if comparison.worst == Some(rank.index) { "  the worst" } else { "" };
        let oom = if rank.oom { "  out of memory" } else { "" };
        let figures = format!(
            "{:<width$}  reserved {:>10}  in use {:>10}",
            clean(&rank.label),
            size(rank.peak_reserved_bytes),
            size(rank.peak_active_bytes)
        );
        page.line(2, &[(Ink::Plain, &figures), (Ink::Bad, oom), (Ink::Strong, worst)]);
    }
    if !comparison.because.is_empty() {
        page.paragraph(2, 4, &[(Ink::Plain, &clean(&comparison.because))]);
    }
}
