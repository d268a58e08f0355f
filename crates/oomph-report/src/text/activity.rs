//! Shows a program's own memory calls: what to change, then the lines that allocate and copy the most.

use oomph_gpu::size::format as size;

use super::explain_snapshot::ending;
use super::page::{Ink, Page};
use crate::activity::{Activity, AllocationSite, Sized, Traffic, Transfers};
use crate::clean;

/// Lines of the program that are shown of each kind.
const MOST_LINES: usize = 6;
/// Columns that the place of a line may take.
const WIDEST_PLACE: usize = 34;

/// Writes what there is to say; nothing where there is nothing.
pub(super) fn calls(page: &mut Page, activity: &Activity) {
    let by_line = allocations(activity).count() > 0 || !activity.transfers.sites.is_empty();
    if activity.remarks.is_empty() && !by_line {
        return;
    }
    page.gap();
    page.line(0, &[(Ink::Strong, "its calls:")]);
    for remark in &activity.remarks {
        page.paragraph(2, 4, &[(Ink::Plain, &clean(remark))]);
    }
    if by_line {
        allocating(page, activity);
        copying(page, &activity.transfers);
    }
}

/// The lines that allocate, and whether they do so from a pool.
fn allocations(activity: &Activity) -> impl Iterator<Item = (&AllocationSite, bool)> {
    let direct = activity.allocations.sites.iter().map(|site| (site, false));
    direct.chain(activity.pooled.allocations.sites.iter().map(|site| (site, true)))
}

fn allocating(page: &mut Page, activity: &Activity) {
    let mut sites: Vec<(&AllocationSite, bool)> = allocations(activity).collect();
    if sites.is_empty() {
        return;
    }
    sites.sort_by_key(|(site, _)| std::cmp::Reverse(site.bytes));
    let total = format!(": {}", total(activity));
    page.paragraph(2, 4, &[(Ink::Strong, "allocations"), (Ink::Plain, &total)]);
    let rows = sites.iter().take(MOST_LINES).map(|(site, pooled)| {
        let mut words = vec![match site.calls - site.freed.min(site.calls) {
            0 => "freed".to_owned(),
            left if left == site.calls => "never freed".to_owned(),
            left => format!("{left} never freed"),
        }];
        if *pooled {
            words.push("from a pool".to_owned());
        }
        [site.place.clone(), sizes(&site.sizes, site.calls), words.join(", ")]
    });
    table(page, rows.collect());
    rest(page, sites.len());
}

fn total(activity: &Activity) -> String {
    let kinds = [(&activity.allocations, ""), (&activity.pooled.allocations, " from a pool")];
    let parts = kinds.iter().filter(|(kind, _)| kind.calls > 0).map(|(kind, from)| {
        format!("{}{from}, {} freed, {} at most at once", kind.calls, kind.frees, size(kind.most_held_bytes))
    });
    parts.collect::<Vec<_>>().join("; ")
}

fn copying(page: &mut Page, transfers: &Transfers) {
    if transfers.sites.is_empty() {
        return;
    }
    let ways = [
        (&transfers.to_card, "to the card"),
        (&transfers.to_host, "to the host"),
        (&transfers.on_card, "within the card"),
    ];
    let parts = ways.iter().filter(|(way, _)| way.calls > 0);
    let parts: Vec<String> = parts.map(|(way, name)| format!("{} {name} in {}", size(way.bytes), way.calls)).collect();
    page.paragraph(2, 4, &[(Ink::Strong, "copies"), (Ink::Plain, &format!(": {}", parts.join(", ")))]);
    let rows = transfers.sites.iter().take(MOST_LINES).map(|site| {
        let each = Sized { bytes: site.traffic.bytes / site.traffic.calls.max(1), calls: site.traffic.calls };
        [site.place.clone(), sizes(&[each], site.traffic.calls), manner(&site.way, &site.traffic)]
    });
    table(page, rows.collect());
    rest(page, transfers.sites.len());
}

/// Which way a line copies, and what is to be known of it.
fn manner(way: &str, traffic: &Traffic) -> String {
    let mut words = vec![match way {
        "to_card" => "to the card".to_owned(),
        "to_host" => "to the host".to_owned(),
        "on_card" => "within the card".to_owned(),
        other => clean(other).into_owned(),
    }];
    if traffic.resent_calls > 0 {
        words.push(format!("{} sent before", traffic.resent_calls));
    }
    if traffic.pageable_bytes > 0 {
        words.push("not page-locked".to_owned());
    }
    words.join(", ")
}

/// `100 x 16.0 MiB`, or the range where sizes differ.
fn sizes(sizes: &[Sized], calls: u64) -> String {
    let least = sizes.iter().map(|size| size.bytes).min().unwrap_or(0);
    let most = sizes.iter().map(|size| size.bytes).max().unwrap_or(0);
    if least == most {
        format!("{calls} x {}", size(most))
    } else {
        format!("{calls} x {} to {}", size(least), size(most))
    }
}

/// Rows of a place, what happened there and how, each column as wide as it needs to be.
fn table(page: &mut Page, rows: Vec<[String; 3]>) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (place_width, size_width) = (width(0).min(WIDEST_PLACE), width(1));
    for [place, sizes, words] in &rows {
        let place = ending(&clean(place), place_width, page.unicode());
        page.line(
            4,
            &[
                (Ink::Plain, &format!("{place:<place_width$}  {sizes:>size_width$}")),
                (Ink::Faint, &format!("  {words}")),
            ],
        );
    }
}

fn rest(page: &mut Page, lines: usize) {
    if lines > MOST_LINES {
        let text = match lines - MOST_LINES {
            1 => "and 1 more line".to_owned(),
            more => format!("and {more} more lines"),
        };
        page.paragraph(4, 6, &[(Ink::Faint, &text)]);
    }
}
