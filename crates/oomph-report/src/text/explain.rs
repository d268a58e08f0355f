//! Shows the explanation of a crash: of logs, of recordings, or of both.

use oomph_explain::snapshot::DeviceExplanation;

use super::page::{Ink, Page, Style};
use super::{explain_log, explain_snapshot};
use crate::clean;
use crate::explain::ExplainReport;

/// Notes beyond these are counted.
const MOST_NOTES: usize = 4;

/// Writes an explanation for a terminal: the verdict first. The text ends with a line break.
#[must_use]
pub fn render_explain(report: &ExplainReport, style: Style) -> String {
    let mut page = Page::new(style);
    if let Some(devices) = &report.devices {
        if let (Some(file), true) = (&report.snapshot, report.files.len() > 1) {
            page.paragraph(0, 2, &[(Ink::Faint, &clean(file))]);
        }
        // A process of a job with several cards sees them all, and uses its own.
        let used = |device: &&DeviceExplanation| device.oom.is_some() || device.peak_reserved_bytes > 0;
        let all = devices.iter().any(|device| used(&device));
        for device in devices.iter().filter(|device| !all || used(device)) {
            page.gap();
            explain_snapshot::device(&mut page, device);
        }
        if devices.is_empty() {
            page.paragraph(
                0,
                2,
                &[(Ink::Care, "nothing recorded:"), (Ink::Plain, " no GPU memory events in this file")],
            );
        }
    }
    if let Some(host) = &report.pinned_host {
        explain_snapshot::pinned_host(&mut page, host);
    }
    if let Some(ranks) = &report.ranks {
        page.gap();
        explain_snapshot::ranks(&mut page, ranks);
    }
    if let Some(failures) = &report.failures {
        page.gap();
        explain_log::failures(&mut page, failures, report.run.as_ref());
    }
    notes(&mut page, &report.notes);
    page.finish()
}

fn notes(page: &mut Page, notes: &[String]) {
    if notes.is_empty() {
        return;
    }
    page.gap();
    for note in notes.iter().take(MOST_NOTES) {
        page.paragraph(0, 2, &[(Ink::Care, "note:"), (Ink::Plain, &format!(" {}", clean(note)))]);
    }
    if notes.len() > MOST_NOTES {
        page.paragraph(
            0,
            2,
            &[(Ink::Faint, &format!("and {} more notes; --format json has them all", notes.len() - MOST_NOTES))],
        );
    }
}
