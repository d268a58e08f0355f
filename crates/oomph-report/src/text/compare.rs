//! Shows comparisons and checks.

use oomph_explain::snapshot::{DeviceDiff, DiffRow};
use oomph_gpu::size::format as size;

use super::page::{Ink, Page, Style, shortened};
use crate::clean;
use crate::compare::{CheckReport, DiffReport};

/// Rows of each table that are printed; JSON has all of them.
const MOST_ROWS: usize = 8;

/// Writes what changed between two recordings.
#[must_use]
pub fn render_diff(report: &DiffReport, style: Style) -> String {
    let mut page = Page::new(style);
    if report.diff.devices.is_empty() {
        page.paragraph(
            0,
            2,
            &[(Ink::Care, "nothing to compare:"), (Ink::Plain, " neither file holds memory of a card")],
        );
    }
    for device in &report.diff.devices {
        page.gap();
        diff(&mut page, device);
    }
    page.finish()
}

/// Writes the differences of one device.
pub(super) fn diff(page: &mut Page, device: &DeviceDiff) {
    let ink = if device.reserved_growth_bytes > 0 { Ink::Bad } else { Ink::Good };
    let head = format!("cuda:{}: reserved {}", device.index, signed(device.reserved_growth_bytes));
    let tail = format!(", allocated {} at the peak", signed(device.allocated_growth_bytes));
    page.paragraph(0, 2, &[(ink, &head), (Ink::Plain, &tail)]);
    rows(page, "by owner", &device.by_owner);
    rows(page, "by module", &device.by_module);
    rows(page, "by line", &device.by_line);
    rows(page, "by stack", &device.by_stack);
}

fn rows(page: &mut Page, title: &str, rows: &[DiffRow]) {
    if rows.is_empty() {
        return;
    }
    page.gap();
    page.paragraph(2, 4, &[(Ink::Strong, title)]);
    for row in rows.iter().take(MOST_ROWS) {
        let room = page.width().saturating_sub(4 + 11 + 2);
        let name = shortened(&clean(&row.name), room, page.unicode());
        let ink = if row.growth_bytes > 0 { Ink::Bad } else { Ink::Good };
        page.line(4, &[(ink, &format!("{:>11}", signed(row.growth_bytes))), (Ink::Plain, &format!("  {name}"))]);
    }
    if rows.len() > MOST_ROWS {
        page.paragraph(4, 6, &[(Ink::Faint, &format!("and {} more; --format json has them", rows.len() - MOST_ROWS))]);
    }
}

fn signed(bytes: i64) -> String {
    let sign = match bytes {
        0 => "",
        1.. => "+",
        _ => "-",
    };
    format!("{sign}{}", size(bytes.unsigned_abs()))
}

/// Writes the outcome of a check.
#[must_use]
pub fn render_check(report: &CheckReport, style: Style) -> String {
    let mut page = Page::new(style);
    if report.result.passed {
        page.paragraph(
            0,
            2,
            &[(Ink::Good, "passed:"), (Ink::Plain, &format!(" {} keeps every limit", clean(&report.file)))],
        );
    }
    for violation in &report.result.violations {
        let head = format!("{} on cuda:{}:", violation.limit, violation.device);
        let figures = format!(" {} where {} is allowed", size(violation.found_bytes), size(violation.allowed_bytes));
        let says = if violation.says.is_empty() { String::new() } else { format!("; {}", clean(&violation.says)) };
        page.paragraph(0, 2, &[(Ink::Bad, &head), (Ink::Strong, &figures), (Ink::Plain, &says)]);
    }
    page.finish()
}
